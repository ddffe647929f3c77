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


def test_of_very_many_nodes_without_a_secret_there_is_what_would_be_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(parse_spec(SPEC | {"privacy": {"noise_secret": "reproducible"}}))
    report = summary.PrivacyReport(prepared, plan_run(prepared))
    would_be = [one["would_be_epsilon"] for one in report.describe(lambda name: 1)["nodes"].values()]
    monkeypatch.setattr(summary, "MOST_NAMED", 29)
    spread = report.describe(lambda name: 1)["spread"]
    assert spread["epsilon"] == {"least": None, "median": None, "most": None}
    assert spread["would_be_epsilon"] == {"least": min(would_be), "median": sorted(would_be)[15], "most": max(would_be)}


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
