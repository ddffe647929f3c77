"""Runs over several shards in one process: every file has the same bytes as without shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from tests.oracle import specs as oracle
from tests.reference.local_crew import Inline
from torch import nn

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
    "moments and updates": spec(evaluation={"every_seconds": 1.5, "every_updates": 7}),
    "so many updates": spec(stop={"updates": 33}, algorithm={"updates_per_node": None}),
    "accuracy": spec(stop={"accuracy": 0.3}, privacy={"noise_multiplier": 0.1}),
    "d_psgd": spec(algorithm={"name": "d_psgd", "topology": "complete"}),
    "muffliato": spec(algorithm={"name": "muffliato", "gossip_steps": 3}, speeds="lognormal"),
    "local": spec(algorithm={"name": "local"}),
    "updates of all nodes": spec(
        algorithm={"learning_rate": {"schedule": "constant", "initial": 0.5, "clock": "global"}}
    ),
    "clients": spec() | {"algorithm": {"name": "fedavg", "nodes": 5, "rounds": 4, "batch_size": 16}},
    **{name: small for name, small in oracle.SPECS.items() if not name.endswith("-vmap")},
}
"""Small runs of every algorithm, but of no network whose gradients depend on what is computed beside them."""


def of_shards(plain: dict[str, Any]) -> dict[str, Any]:
    """The spec, such that shards can compute for it: without a kernel a network needs exact rounding."""
    objective = plain.get("objective")
    own = isinstance(objective, dict) and "module" in objective
    return plain | {"compute": {"rounding": "exact"}} if own else plain


@pytest.mark.some(14)
@pytest.mark.filterwarnings("ignore:data set 'patients'")
@pytest.mark.parametrize("name", SPECS)
def test_shards_give_the_bytes_of_one_process(name: str, tmp_path: Path) -> None:
    small = of_shards(SPECS[name])
    secret = None if small.get("privacy") == "none" else SECRET
    run(small, tmp_path / "plain", secret=secret)
    for shards in {1, min(3, small["algorithm"].get("nodes", 3))}:
        folder, crew = tmp_path / str(shards), Inline(shards)
        run(small, folder, secret=secret, engine=crew)
        assert crew.asked
        assert files(folder) == files(tmp_path / "plain")


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
    "network's gradients round by what is computed beside them": spec(objective="mlp", compute={"strategy": "layers"})
}


@pytest.mark.parametrize("why", ALONE)
def test_what_cannot_be_sharded_runs_in_one_process_and_says_why(why: str, tmp_path: Path) -> None:
    run(ALONE[why], tmp_path / "plain", secret=SECRET)
    crew = Inline(2)
    with pytest.warns(RunWarning, match=f"this run is made in one process: .*{why}"):
        run(ALONE[why], tmp_path / "shards", secret=SECRET, engine=crew)
    assert not crew.asked
    assert files(tmp_path / "shards") == files(tmp_path / "plain")


@pytest.mark.parametrize("shards", [0, 8, "2", 2.0, None])
def test_there_are_no_more_shards_than_nodes(shards: Any) -> None:
    with pytest.raises(SpecError, match=f"expected from 1 to 7 shards for 7 nodes, found {shards!r}; correct"):
        run(spec(), secret=SECRET, engine=Inline(shards))


def test_a_module_that_no_shard_can_make_is_computed_in_one_process() -> None:
    small, crew = spec(compute={"rounding": "exact"}), Inline(2)
    del small["objective"]
    with pytest.warns(RunWarning, match="this run is made in one process: its module was given from memory"):
        run(small, secret=SECRET, module=lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), engine=crew)
    assert not crew.asked
