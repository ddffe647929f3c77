"""Shards: whatever nodes compute, and however many things happen at one time, the bytes are those of one process."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.local_crew import Inline
from tests.sampling import examples

from gossamer.data.memory import Data
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.runs.running import run
from gossamer.randomness import stream


def made_up() -> Data:
    """Examples, some of them so large that their gradients are not finite, which nodes write down."""
    drawn = stream(3)
    x, y = drawn.random((100, 4)), drawn.integers(0, 2, 100)
    x[::4] = 3.4e38
    return Data(x[:80], y[:80], x_test=x[80:], y_test=y[80:], labels=[0, 1])


ALGORITHMS = st.sampled_from(["gossip", "d_psgd", "muffliato", "allreduce", "local", "fedbuff", "audp"])
SPEEDS = st.sampled_from(
    [
        "lognormal",
        "cyclic",
        {"name": "constant", "stagger": 0.0},
        {"name": "constant", "stagger": 0.0, "scenario": "one_slow"},
        {"name": "lognormal", "scenario": "random_slow"},
    ]
)
LOOKS = st.sampled_from([{"name": "off"}, {"every_updates": 1}, {"every_updates": 4}, {"every_seconds": 0.5}])
STOPS = st.sampled_from([{}, {"updates": 11}, {"virtual_seconds": 3.0}, {"virtual_seconds": 2.7, "updates": 9}])


@given(
    ALGORITHMS,
    st.integers(2, 6),
    st.integers(1, 4),
    SPEEDS,
    LOOKS,
    STOPS,
    st.sampled_from([0.0, 0.25, 1.0]),
    st.integers(0, 99),
)
@settings(max_examples=examples(80), deadline=None)
def test_small_runs_have_the_same_bytes(
    name: str, nodes: int, shards: int, speeds: Any, looks: Any, stop: Any, latency: float, seed: int
) -> None:
    algorithm = {"name": name, "nodes": nodes, "batch_size": 2, "updates_per_node": 5}
    spec = {
        "objective": "logistic",
        "seed": seed,
        "algorithm": algorithm | ({"buffer": 2} if name == "fedbuff" else {}),
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        "speeds": speeds,
        "links": {"latency": latency},
        "evaluation": looks,
        "stop": stop,
    }
    found = []
    with TemporaryDirectory() as folder:
        for engine in (None, Inline(min(shards, nodes))):
            out = Path(folder) / str(engine)
            run(spec, out, data=made_up(), secret=NoiseSecret(bytes(16)), engine=engine)
            found.append({path.name: path.read_bytes() for path in out.iterdir() if path.name != "timing.json"})
    assert found[0] == found[1]
