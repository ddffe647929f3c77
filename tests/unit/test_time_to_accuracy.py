"""The benchmark of gossip's time to an accuracy fails when what is required is not reached, and says where."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "time_to_accuracy.py"
ROW = {"target": 0.91, "allreduce_s": 1400.0, "gossip_s": 200.0, "ratio": 7.0, "gossip_accuracy": 0.9, "epsilon": 5.0}


@pytest.fixture
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("time_to_accuracy", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def seeds(**others: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Rows like `ROW`, and ``others`` by the number of the seed."""
    return lambda seed: {"seed": seed, **ROW, **others.get(f"seed_{seed}", {})}


def test_all_is_reached(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark.main([], seeds()) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_seed_that_does_not_reach_the_accuracy_fails(
    benchmark: Any, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark.main(options, seeds(seed_4={"gossip_s": None, "ratio": None})) == 1
    said = capsys.readouterr()
    assert said.err == "time_to_accuracy: seed 4: gossip does not reach 0.91\n"
    if options:
        assert json.loads(said.out)["shortfalls"] == ["seed 4: gossip does not reach 0.91"]


def test_other_requirements_fail_too(benchmark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    slow = {f"seed_{seed}": {"ratio": 4.9} for seed in range(3)}
    assert benchmark.main([], seeds(**slow)) == 1
    assert "median ratio 4.9, below 5.0" in capsys.readouterr().err
    assert benchmark.main(["--seeds", "1"], seeds(seed_0={"gossip_accuracy": 0.86})) == 1
    assert "seed 0: gossip ends at 0.86, below 0.87" in capsys.readouterr().err


@pytest.mark.parametrize("seeds_", ["0", "-3"])
def test_no_seeds_are_one_line(benchmark: Any, seeds_: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["--seeds", seeds_], seeds())
    assert ended.value.code == 2
    assert f"argument --seeds: expected 1 or more, found {seeds_}" in capsys.readouterr().err


def test_time_to_an_accuracy_is_that_of_the_first_row_at_or_above_it(benchmark: Any) -> None:
    rows = [{"virtual_seconds": 5.0 * i, benchmark.ACCURACY: value} for i, value in enumerate([0.1, 0.9, 0.8, 0.95])]
    assert [benchmark.time_to(wanted, rows) for wanted in (0.9, 0.91, 0.96)] == [5.0, 15.0, None]


def test_both_are_evaluated_at_the_same_seconds(benchmark: Any) -> None:
    """The examples differ in that: on a grid ten times as coarse all-reduce would seem later than it is."""
    specs = benchmark.specs(3)
    assert {name: spec.algorithm.name for name, spec in specs.items()} == {"gossip": "gossip", "allreduce": "allreduce"}
    assert {spec.evaluation.every_seconds for spec in specs.values()} == {5.0}
    assert {spec.seed for spec in specs.values()} == {3}
