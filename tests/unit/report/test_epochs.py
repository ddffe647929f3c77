"""Epochs from ledgers: passes over all examples, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.report.test_records import folder

from gossamer.report.curves import axes_of, curves
from gossamer.report.records import RunRecord, read_record

SHARDS = {"node-0": 120, "node-1": 60, "node-2": 300}
BATCH = 30


def line(node: str, releases: int, **sampling: Any) -> dict[str, Any]:
    return {"node": node, "releases": releases, "size": 7, **sampling}


def run(path: Path, ledger: list[dict[str, Any]], updates: int = 48) -> RunRecord:
    rows = [{"updates": made, "loss": 1.0, "mean_model_test_loss": 1.0} for made in (0, updates // 2, updates)]
    there = folder(path, rows, updates=updates, parameters=7)
    (there / "ledger.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ledger))
    return read_record(there)


def poisson(each: int) -> list[dict[str, Any]]:
    return [line(node, each, probability=BATCH / size) for node, size in SHARDS.items()]


def test_an_epoch_is_as_many_batches_as_cover_all_shards(tmp_path: Path) -> None:
    """48 updates of 30 examples are 1440, three times the 480 that there are."""
    assert run(tmp_path / "a", poisson(16)).metrics["epochs"] == pytest.approx([0, 1.5, 3])
    fixed = [line(node, 16, dataset_size=size, batch_size=BATCH) for node, size in SHARDS.items()]
    assert run(tmp_path / "b", fixed).metrics["epochs"] == pytest.approx([0, 1.5, 3])


def test_nodes_that_are_alike_are_in_one_line_of_many(tmp_path: Path) -> None:
    """Two of 120 examples and one of 240."""
    sizes = {("node-0", "node-1"): 120, ("node-2",): 240}
    ledger = [{**line("", 16, probability=BATCH / size), "node": [*names]} for names, size in sizes.items()]
    assert run(tmp_path / "a", ledger).metrics["epochs"] == pytest.approx([0, 1.5, 3])


def test_updates_of_several_steps_and_a_scale_that_was_found_before(tmp_path: Path) -> None:
    """8 updates of 6 steps each take as many examples."""
    scale = [{**line(node, 1, probability=1.0), "size": 2} for node in SHARDS]
    assert run(tmp_path / "a", [*scale, *poisson(16)], updates=8).metrics["epochs"] == pytest.approx([0, 1.5, 3])


@pytest.mark.parametrize(
    "ledger",
    [
        [],
        [*poisson(8), *poisson(9)],
        [{**one, "protects": "client"} for one in poisson(16)],
        [{"node": "node-0", "releases": 3, "size": 7, "unit": "server-0"}],
        [{"node": "node-0", "releases": 0, "size": 7, "probability": 0.5}],
        [{"node": "node-0", "releases": 3, "size": 7, "probability": "often"}],
    ],
)
def test_where_they_are_not_known_nothing_is_drawn_across_them(ledger: list[dict[str, Any]], tmp_path: Path) -> None:
    found = run(tmp_path / "a", ledger)
    assert "epochs" not in found.metrics
    assert "epochs" not in axes_of(list(curves([found])))


def test_curves_are_drawn_across_epochs(tmp_path: Path) -> None:
    assert axes_of(list(curves([run(tmp_path / "a", poisson(16))]))) == ["updates", "epochs"]
