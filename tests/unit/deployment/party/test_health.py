"""Health of a node: which status is well, which is a warning, and which needs somebody now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from gossamer.deployment.party.health import KINDS, HealthLimits, Severity, level_of, problems

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
UP = {"state": "up", "seconds": 1.0, "finished": None, "dropped": {}}
DONE = {**UP, "state": "gone", "finished": "quota"}
GONE, SILENT = {**UP, "state": "gone", "seconds": 400.0}, {**UP, "state": "silent", "seconds": 60.0}
DONE_WITH = {"state": "finished", "finished": "quota", "process": None}
OTHER = "b shows receipt 5 (head 00), which does not go on from receipt 5"
FORGOTTEN = "b has countersigned receipt 5 (head 00), and it has 3"
USED_UP = {"epsilon": 4.0, "epsilon_charged": 3.99, "share_charged": 1.0}
WELL = {
    "node": "a",
    "state": "running",
    "process": 1,
    "written": NOW,
    "connected": True,
    "expires": {"invitation": "2026-05-30T12:00:00+00:00"},
    "policy": {"epsilon": 4.0, "epsilon_charged": 1.0, "share_charged": 0.2},
    "peers": {"b": UP, "c": UP},
    "needs": [],
    "finished": None,
}


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        ({}, Severity.OK, ""),
        ({"state": "finished", "process": None, "connected": False, "peers": {"b": GONE}}, Severity.OK, ""),
        ({"peers": {"b": DONE, "c": UP}}, Severity.OK, ""),
        ({"state": "lingering", "finished": "quota", "peers": {"b": GONE}}, Severity.WARNING, "b is gone (400 s)"),
        ({"state": "stopped", "process": None}, Severity.WARNING, "start it again to go on"),
        ({"state": "connecting", "connected": False, "peers": {}}, Severity.WARNING, "has not begun yet"),
        ({"state": "waiting", "orders": {"pause 9": ""}}, Severity.WARNING, "waits: paused by the organiser"),
        ({"state": "waiting", "orders": {"pause 9": "", "resume 9": ""}}, Severity.WARNING, "has not begun yet"),
        (
            {"connected": False, "broker_says": "it ended"},
            Severity.WARNING,
            "has no broker, and goes on trying: it ended",
        ),
        ({"written": NOW - 121}, Severity.WARNING, "has written no status for 121 s"),
        ({"written": NOW - 119}, Severity.OK, ""),
        ({"peers": {"b": SILENT, "c": UP}}, Severity.WARNING, "b is silent (60 s)"),
        ({"peers": {"b": GONE, "c": UP}}, Severity.WARNING, "the run goes on without it"),
        (
            {"unacknowledged": {"b": {"seconds": 16.0, "why": "too large"}}},
            Severity.WARNING,
            "b is heard, and has acknowledged nothing for 16 s: too large",
        ),
        (
            {"unacknowledged": {"b": {"seconds": 40.0, "why": "too large"}}, "alone": 40.0, "holds": True},
            Severity.CRITICAL,
            "for 40 s: b (too large); it charges nothing more until one does",
        ),
        ({"unacknowledged": {}, "alone": 40.0, "holds": False}, Severity.CRITICAL, "and spends its budget alone"),
        (
            {"state": "lingering", "finished": "quota", "unacknowledged": {}, "alone": 40.0, "holds": True},
            Severity.CRITICAL,
            "its part is over, and it waits for them",
        ),
        ({"state": "finished", "process": None, "why": "ends alone: b"}, Severity.CRITICAL, "ends alone: b"),
        ({"peers": {"b": {**UP, "state": "never heard"}, "c": UP}}, Severity.WARNING, "b is never heard"),
        ({"peers": {"b": {**GONE, "state": "quarantined"}, "c": UP}}, Severity.WARNING, "b is quarantined"),
        (
            {"peers": {"b": GONE, "c": GONE}},
            Severity.CRITICAL,
            "lost b, c, and its part in the run cannot end without",
        ),
        ({"peers": {"b": GONE, "c": DONE}}, Severity.CRITICAL, "lost b"),
        ({"peers": {"b": GONE, "c": UP}, "needs": ["b"]}, Severity.CRITICAL, "lost b"),
        ({"expires": {"certificate": "2026-03-15T12:00:00+00:00"}}, Severity.WARNING, "expires in 14 days"),
        ({"expires": {"certificate": "2026-03-15T12:00:01+00:00"}}, Severity.OK, ""),
        ({"expires": {"invitation": "2026-03-01T12:00:00+00:00"}}, Severity.CRITICAL, "its invitation expired at"),
        (
            {"policy": {**WELL["policy"], "share_charged": 0.9}},
            Severity.WARNING,
            "has epsilon 1 charged to the policy, of 4",
        ),
        ({"policy": USED_UP}, Severity.WARNING, "of 4 that it allows (100% of its budget), so hardly another run"),
        ({"policy": USED_UP, "state": "lingering", "finished": "quota"}, Severity.OK, ""),
        ({"policy": USED_UP, "state": "finished", "finished": "quota", "process": None}, Severity.OK, ""),
        ({"policy": None}, Severity.OK, ""),
        ({"peers": {"b": {**UP, "receipts": None}}, "forgotten": []}, Severity.OK, ""),
        ({"peers": {"b": {**UP, "receipts": OTHER}, "c": UP}}, Severity.WARNING, f"takes nothing of b: {OTHER}"),
        ({"forgotten": [FORGOTTEN]}, Severity.CRITICAL, f"this is not its newest ledger: {FORGOTTEN}"),
        (
            {"state": "failed", "process": None, "why": f"a: {FORGOTTEN}", "forgotten": [FORGOTTEN]},
            Severity.CRITICAL,
            "failed",
        ),
        ({**DONE_WITH, "forgotten": [FORGOTTEN]}, Severity.CRITICAL, "put its newest ledger back"),
        ({**DONE_WITH, "peers": {"b": {**DONE, "receipts": OTHER}}}, Severity.OK, ""),
        (
            {"version": "1.2", "peers": {"b": {**UP, "version": "1.2"}, "c": {**UP, "version": None}}},
            Severity.OK,
            "",
        ),
        (
            {"version": "1.2", "peers": {"b": {**UP, "version": "1.3"}}},
            Severity.WARNING,
            "runs gossamer 1.2, and b 1.3",
        ),
        ({"state": "killed", "process": None}, Severity.CRITICAL, "was killed; start it again"),
        (
            {"state": "failed", "process": None, "why": "the disk is full"},
            Severity.CRITICAL,
            "failed: the disk is full",
        ),
        (
            {"state": "unreadable", "process": None, "why": "it is no JSON"},
            Severity.CRITICAL,
            "unreadable: it is no JSON",
        ),
    ],
)
def test_levels(change: dict[str, Any], level: Severity, text: str) -> None:
    found = problems({**WELL, **change}, NOW)
    assert level_of(found) == level
    assert len(found) == (level > Severity.OK)
    if found:
        assert text in found[0].text
        assert {one.kind for one in found} <= set(KINDS)


def test_limits() -> None:
    soon = {**WELL, "expires": {"invitation": "2026-03-31T12:00:00+00:00"}}
    assert not problems(soon, NOW, HealthLimits(days=29))
    assert problems(soon, NOW, HealthLimits(days=30))
    spent = {**WELL, "policy": {"epsilon": 1.0, "epsilon_charged": 1.0, "share_charged": 1.0}}
    assert problems(spent, NOW)
    assert not problems(spent, NOW, HealthLimits(share=1.0)), "asked for never"


def test_the_worst_comes_first() -> None:
    found = problems({**WELL, "expires": {"invitation": "2026-02-01T12:00:00+00:00"}, "peers": {"b": SILENT}}, NOW)
    assert [problem.level for problem in found] == [Severity.CRITICAL, Severity.WARNING]


def test_exit_codes_are_those_of_monitoring() -> None:
    """As Nagios' guidelines for plugins have them."""
    assert [int(level) for level in Severity] == [0, 1, 2]


def test_a_node_that_waits_to_begin_and_is_heard_and_not_reached_is_critical() -> None:
    late = {"b": {"seconds": 40.0, "why": "too large"}}
    found = problems({**WELL, "state": "waiting", "unacknowledged": late, "alone": 40.0, "holds": True}, NOW)
    assert level_of(found) == Severity.CRITICAL
    assert "b (too large); it charges nothing more until one does" in found[0].text
