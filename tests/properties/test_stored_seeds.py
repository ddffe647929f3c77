"""Seeds of faults over a store that lists late, loses and doubles: all that holds on links holds there."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("fsspec", reason="needs the extra store")

from tests.properties.test_fault_seeds import trial
from tests.reference.failing import first_failure
from tests.reference.planted_bugs import BUGS
from tests.reference.stored_hosts import StoredHosts
from tests.sampling import examples

from gossamer.faults import trials
from gossamer.faults.trials import Trial
from gossamer.runtimes.object_store import transport
from gossamer.runtimes.object_store.transport import StoreTransport


@pytest.fixture(autouse=True)
def stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of all trials are joined by a store; afterwards the transport has its own clock again."""
    monkeypatch.setattr(trials, "LinkedHosts", StoredHosts)
    monkeypatch.setattr(transport, "time", transport.time)
    StoredHosts.totals.clear()


@pytest.mark.parametrize("name", ["gossip", "fedbuff", "fedavg", "graph_federated"])
def test_no_seed_fails(name: str) -> None:
    failure = first_failure(trial(name), range(examples(40)))
    assert failure is None, str(failure)
    kinds = {"written", "shown late", "never shown", "shown twice", "read", "read again", "deleted", "deleted unread"}
    assert {kind for kind in kinds if StoredHosts.totals[kind]} == kinds


def test_a_planted_bug_is_found() -> None:
    """Which of the checks finds it first depends on when frames come."""
    instead, _ = BUGS["send before store"]
    failure = first_failure(Trial(trial("gossip").runs, **instead), range(200))
    assert failure is not None
    assert trial("gossip").problem(failure.schedule) is None  # the bug is to blame


def test_a_store_that_nobody_can_list_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StoreTransport, "_look", lambda self: None)
    failure = first_failure(trial("gossip"), range(20))
    assert failure is not None
    assert re.search("has (made no update|heard of no peer)", failure.problem), str(failure)
