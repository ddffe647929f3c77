"""The benchmark of slow clients: what it requires, and that the table on FedBuff's page holds of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).resolve().parents[2] / "benchmarks" / "slow_clients.py"


@pytest.fixture(scope="module")
def benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("slow_clients", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(**times: Sequence[float | None]) -> list[dict[str, Any]]:
    """Seconds of FedAvg, and of ``times`` by arm, to both accuracies in both partitions."""
    found = {"FedAvg": (100.0, 90.0), "FedBuff": (50.0, 45.0), "FedAsync": (20.0, 20.0), **times}
    return [
        {"partition": partition, "arm": arm, "0.9": seconds, "0.93": seconds}
        for partition in ("iid", "by class")
        for arm, seconds in found.items()
    ]


def test_half_of_the_time_is_enough_in_every_seed(benchmark: Any) -> None:
    assert benchmark.shortfalls(rows()) == []
    assert benchmark.shortfalls(rows(FedAvg=(None, 90.0), FedBuff=(500.0, 45.0))) == []  # FedAvg never gets there


@pytest.mark.parametrize("late", [46.0, None])
def test_a_seed_that_takes_longer_is_a_line(benchmark: Any, late: float | None) -> None:
    found = benchmark.shortfalls(rows(FedBuff=(50.0, late)))
    assert len(found) == 4
    after = "never" if late is None else "46 s"
    assert found[0] == f"iid, seed 1: FedBuff reaches 0.9 after {after}, FedAvg after 90 s"


def test_medians_and_times_of_runs_that_do_not_get_there(benchmark: Any) -> None:
    assert benchmark.median([3.0, None, 5.0]) == 5.0
    assert benchmark.median([3.0, None, None]) is None
    found = [{"virtual_seconds": 2.0 * i, benchmark.ACCURACY: value} for i, value in enumerate([0.1, 0.9, 0.8, 0.95])]
    assert [benchmark.time_to(wanted, found) for wanted in (0.9, 0.91, 0.96)] == [2.0, 6.0, None]


def test_settings_are_of_the_grids(benchmark: Any) -> None:
    arms = {"iid": benchmark.SPEED, "by class": benchmark.SPEED, "private": benchmark.PRIVATE}
    for place, chosen in benchmark.CHOSEN.items():
        assert chosen.keys() == arms[place].keys()
        for name, settings in chosen.items():
            assert settings in list(benchmark.settings_of(arms[place][name][1]))


@pytest.mark.slow
def test_fedbuff_and_fedasync_take_at_most_half_of_fedavgs_time(benchmark: Any) -> None:
    """Of five seeds, to both accuracies, of which the second takes FedAvg about twice as long."""
    assert benchmark.shortfalls(benchmark.speed(5)) == []
