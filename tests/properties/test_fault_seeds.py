"""Seeds of faults: real nodes pass them, planted bugs do not, and what fails is short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from gossamer.algorithms import allreduce, edge_cloud, gossip, graph_federated
from gossamer.protocol.frames import Data
from gossamer.protocol.session import Deliver
from gossamer.runtimes.host import Arrived, Begin, Host, Input, Outcome
from gossamer.testing.contracts import AlgorithmContract, FixedAnswers
from gossamer.testing.fault_seeds import Schedule, Trial, first_failure, shortened
from gossamer.testing.hosts import Crash


def trial(chosen: Any, kind: type[Host] = Host) -> Trial:
    class Chosen(AlgorithmContract):
        settings = chosen
        quota = 3

    contract = Chosen()
    return Trial(contract.nodes, FixedAnswers, contract.algorithm, kind)


UNITS = graph_federated.Settings(units=2, agents=2, rounds=3, patience=5.0).decided(private=True)
ALGORITHMS = {
    "gossip": gossip.Settings(nodes=4, topology="ring"),
    "allreduce": allreduce.Settings(nodes=3, timeout=30.0),
    "audp": edge_cloud.Settings(nodes=3),
    "graph_federated": UNITS,
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_seed_fails(name: str) -> None:
    failure = first_failure(trial(ALGORITHMS[name]), range(12))
    assert failure is None, str(failure)


def test_who_catches_up_takes_the_roster_of_those_who_are_ahead() -> None:
    """A member that was excluded by one that had fallen behind, and told it the outcome: all three waited for ever."""
    made = trial(ALGORITHMS["allreduce"])
    assert made.problem(Schedule.seeded(367)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_seed_of_many_fails(name: str) -> None:
    failure = first_failure(trial(ALGORITHMS[name]), range(2000))
    assert failure is None, str(failure)


class DeliversTwice(Host):
    """No deduplication: a data frame that comes again is delivered again."""

    def _take(self, what: Input, now: float) -> list[Outcome]:
        old = (
            isinstance(what, Arrived) and isinstance(what.frame, Data) and what.frame.number <= self._seen(what.sender)
        )
        outcomes = super()._take(what, now)
        return outcomes + self._converse([Deliver(what.sender, what.frame.message)]) if old else outcomes

    def _seen(self, sender: str) -> int:
        link = self.session.state().get(sender)
        return 0 if link is None else link.delivered


class SendsBeforeItStores(Host):
    """The input is stored after what came of it was sent: a crash in between forgets it."""

    def turn(self, inputs: Sequence[tuple[Input, float]]) -> list[Outcome]:
        late, self.journal.append = self.journal.append, lambda entry: None  # type: ignore[method-assign]
        try:
            outcomes = super().turn(inputs)
        finally:
            self.journal.append = late  # type: ignore[method-assign]
        return outcomes


class ForgetsTimers(Host):
    """A host that comes back does not tell its node."""

    def start(self, now: float) -> list[Outcome]:
        return self.take(Begin(), now) if not self.begun else []


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (DeliversTwice, ALGORITHMS["gossip"]),
        (SendsBeforeItStores, ALGORITHMS["gossip"]),
        (ForgetsTimers, ALGORITHMS["gossip"]),
    ],
)
def test_planted_bugs_are_found_and_shortened(kind: type[Host], settings: Any) -> None:
    """Within 200 seeds, and to ten faults at most."""
    failure = first_failure(trial(settings, kind), range(200))
    assert failure is not None
    assert failure.schedule.length <= 10, str(failure)
    assert trial(settings).problem(failure.schedule) is None  # the bug is to blame


def test_shortening_leaves_out_what_does_not_matter() -> None:
    """A made-up failure: it fails if it loses frame 7 and crashes at event 20."""

    class Made(Trial):
        def problem(self, schedule: Schedule) -> str | None:
            fates = schedule.faults.fates
            lost = len(fates) > 7 and fates[7] != (schedule.faults.delay,)
            return "found" if lost and any(crash.event == 20 for crash in schedule.crashes) else None

    seeded = Schedule.seeded(3)
    schedule = Schedule(seeded.faults, (Crash(5), Crash(20), Crash(40)))
    made = Made(dict, FixedAnswers, gossip)
    assert made.problem(schedule) == "found"
    short = shortened(made, schedule)
    assert short.crashes == (Crash(20),)
    assert short.length == 2
