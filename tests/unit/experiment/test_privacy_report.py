"""The section of a summary that says what nodes have spent."""

from __future__ import annotations

import pytest

from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results import summary
from gossamer.experiment.specs.spec_file import parse_spec

SPEC = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 30, "batch_size": 4, "updates_per_node": 2},
    "budget": {"epsilon": 5, "delta": 1e-5},
}


def test_what_all_nodes_have_in_common_is_not_looked_for_at_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a summary of n nodes takes n^2 steps, which for ten thousand is longer than their run."""
    looked: list[int] = []
    found = summary.in_common
    monkeypatch.setattr(summary, "in_common", lambda laws: looked.append(len(laws)) or found(laws))
    prepared = prepare(parse_spec(SPEC))
    report = summary.PrivacyReport(prepared, plan_run(prepared))
    for _ in range(3):
        assert len(report.describe(lambda name: 1)["nodes"]) == 30
    assert looked == [30]
