"""Runs over several shards in one process: every file has the same bytes as without shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.reference.local_crew import Inline

from gossamer.data.memory import Data
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.runs.running import run

SECRET = NoiseSecret(bytes(range(16)))
ROOT = Path(__file__).parents[3]


def files(folder: Path) -> dict[str, bytes]:
    """All files of a run but the times that it took."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "timing.json"}


def spec(**changes: Any) -> dict[str, Any]:
    """A small run of gossip, with sections changed."""
    plain: dict[str, Any] = {
        "dataset": "digits",
        "objective": "softmax",
        "algorithm": {"name": "gossip", "nodes": 7, "batch_size": 16, "updates_per_node": 9},
        "privacy": {"clip": 1.0, "noise_multiplier": 1.0},
        "evaluation": {"every_updates": 10},
    }
    merged = plain | changes
    return {
        key: plain[key] | value if isinstance(value, dict) and isinstance(plain.get(key), dict) else value
        for key, value in merged.items()
    }


TIES = {"speeds": {"stagger": 0.0}}
SPECS: dict[str, dict[str, Any]] = {
    "usual": spec(),
    "demo": yaml.safe_load((ROOT / "examples/digits-gossip.yaml").read_text()) | {"stop": {"virtual_seconds": 40}},
    "ties": spec(**TIES),
    "ties at multiples": spec(**TIES, links={"latency": 0.5}),
    "ties of whole seconds": spec(**TIES, links={"latency": 1.0}),
    "late messages": spec(**TIES, links={"latency": 3.0}, evaluation={"every_updates": 1}),
    "cyclic": spec(speeds="cyclic", links={"latency": 1 / 7}),
    "lognormal, every update": spec(speeds="lognormal", links={"latency": 0.4}, evaluation={"every_updates": 1}),
    "very late messages": spec(speeds="lognormal", links={"latency": 30.0}),
    "later than anybody waits": spec(speeds="lognormal", links={"latency": 200.0}),
    "moments": spec(speeds="lognormal", evaluation={"every_seconds": 0.7}, stop={"virtual_seconds": 6.5}),
    "moments, ties": spec(**TIES, evaluation={"every_seconds": 1.0}, stop={"virtual_seconds": 6.0}),
    "moments and updates": spec(evaluation={"every_seconds": 1.5, "every_updates": 7}),
    "so many updates": spec(stop={"updates": 33}, algorithm={"updates_per_node": None}),
    "so many updates, ties": spec(**TIES, stop={"updates": 33}, algorithm={"updates_per_node": None}),
    "accuracy": spec(stop={"accuracy": 0.3}, privacy={"noise_multiplier": 0.1}),
    "accuracy at moments": spec(
        stop={"accuracy": 0.3}, privacy={"noise_multiplier": 0.1}, evaluation={"every_seconds": 0.9}
    ),
    "bandwidth": spec(links={"latency": 0.2, "bandwidth": 20000.0}),
    "exceptions": spec(
        links={
            "latency": 0.3,
            "exceptions": [{"node": 2, "latency": 0.05}, {"edge": [0, 6], "bandwidth": 9000.0}],
        }
    ),
    "quantile clips": spec(privacy={"clip": {"policy": "quantile", "initial": 1.0}, "noise_multiplier": 1.0}),
    "no looks": spec(evaluation={"name": "off"}),
    "random slow": spec(speeds={"scenario": "random_slow"}),
    "bipartite": spec(algorithm={"nodes": 8, "exchange": "bipartite"}),
    "no noise": spec() | {"privacy": "none"},
    "d_psgd": spec(algorithm={"name": "d_psgd", "topology": "complete"}),
    "d_psgd, ties": spec(**TIES, algorithm={"name": "d_psgd"}, evaluation={"every_updates": 3}),
    "muffliato": spec(algorithm={"name": "muffliato", "gossip_steps": 3}, speeds="lognormal"),
    "muffliato, impatient": spec(
        algorithm={"name": "muffliato", "gossip_steps": 2, "patience": 0.1}, links={"latency": 0.5}, **TIES
    ),
    "allreduce": spec(algorithm={"name": "allreduce"}),
    "local": spec(algorithm={"name": "local"}),
}


@pytest.mark.some(14)
@pytest.mark.parametrize("name", SPECS)
def test_shards_give_the_bytes_of_one_process(name: str, tmp_path: Path) -> None:
    secret = None if name == "no noise" else SECRET
    run(SPECS[name], tmp_path / "plain", secret=secret)
    expected = files(tmp_path / "plain")
    assert {"private.jsonl", "nodes.json", "ledger.jsonl", "metrics.jsonl"} - expected.keys() <= {"private.jsonl"}
    for shards in (1, 2, 4):
        folder = tmp_path / str(shards)
        run(SPECS[name], folder, secret=secret, engine=Inline(shards))
        assert files(folder) == expected


def test_what_nodes_write_down_stands_in_the_order_of_one_process(tmp_path: Path) -> None:
    """One example in four is so large that its gradient is no float32, which its node writes down."""
    drawn = np.random.default_rng(0)
    x, y = drawn.standard_normal((100, 3)), drawn.integers(0, 2, 100)
    x[::4] = 3.4e38
    data = Data(x[:80], y[:80], x_test=x[80:], y_test=y[80:], labels=[0, 1])
    small = spec(dataset=None, objective="logistic", algorithm={"batch_size": 2}, **TIES)
    del small["dataset"]
    run(small, tmp_path / "plain", secret=SECRET, data=data)
    run(small, tmp_path / "shards", secret=SECRET, data=data, engine=Inline(3))
    assert (tmp_path / "plain/private.jsonl").read_text().count("gradients_not_finite") > 9
    assert files(tmp_path / "shards") == files(tmp_path / "plain")


ALONE = {
    "no least delay: links.latency is 0": {"links": {"latency": 0.0}},
    "jitter, losses": {"links": {"jitter": 0.1}},
    "away at times": {"faults": {"absences": [{"node": 1, "start": 2.0, "end": 3.0}]}},
    "talk to a server": {"algorithm": {"name": "audp"}},
    "updates of all nodes": {
        "algorithm": {"learning_rate": {"schedule": "constant", "initial": 0.5, "clock": "global"}}
    },
}


@pytest.mark.parametrize("why", ALONE)
def test_what_cannot_be_sharded_runs_in_one_process_and_says_why(why: str, tmp_path: Path) -> None:
    run(spec(**ALONE[why]), tmp_path / "plain", secret=SECRET)
    with pytest.warns(RunWarning, match=f"this run is made in one process: .*{why}"):
        run(spec(**ALONE[why]), tmp_path / "shards", secret=SECRET, engine=Inline(2))
    assert files(tmp_path / "shards") == files(tmp_path / "plain")


def test_a_trace_is_written_in_one_process(tmp_path: Path) -> None:
    with pytest.warns(RunWarning, match="in one process: a trace has every event in order"):
        run(spec(), secret=SECRET, engine=Inline(2), trace=tmp_path / "trace")
    assert (tmp_path / "trace").stat().st_size


@pytest.mark.parametrize("shards", [0, 8, "2", 2.0, None])
def test_there_are_no_more_shards_than_nodes(shards: Any) -> None:
    with pytest.raises(SpecError, match=f"expected from 1 to 7 shards for 7 nodes, found {shards!r}; correct"):
        run(spec(), secret=SECRET, engine=Inline(shards))
