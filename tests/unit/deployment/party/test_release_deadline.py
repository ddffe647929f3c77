"""Answers leave at multiples of a deadline, whatever was sampled and however long it took; on a clock of the test's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy import stats

from gossamer.deployment.party.loop import Tasks
from gossamer.deployment.party.release_deadline import LEAST, MARGIN, Paced
from gossamer.errors import BudgetSpent
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.protocol.effects import Compute, Interrupt, Update
from gossamer.protocol.events import Completed, Refused
from gossamer.sides.machine import SideAnswer
from gossamer.vectors import Public, Released

MODEL = Public(np.zeros(2))
QUERY = Query(Poisson(0.33), Gaussian(1.0, 1.1), 60.0)
BEFORE, EACH, MOST = 0.01, 0.00135, 127


@dataclass
class Clock:
    now: float = 5.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@dataclass
class Side:
    """Takes some seconds, and so many for each example of samples of the given sizes; stops after ``most`` tasks."""

    clock: Clock
    sizes: list[int]
    provided: int = MOST
    slower: float = 1.0
    admitted: int = 0
    most: int = 10**6
    rehearsed: list[int] = field(default_factory=list)

    def admit(self, node: str, task: Any) -> Any:
        if self.admitted == self.most:
            raise BudgetSpent("spent")
        self.admitted += 1
        return self

    def amended(self, ticket: Any, task: Any) -> Any:
        return self

    @property
    def task(self) -> Any:
        return Gradient(1, MODEL, QUERY)

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        self.clock.now += self.slower * (BEFORE + EACH * self.sizes.pop(0))
        return [SideAnswer(Released(np.ones(2)))]

    def releases(self, node: str) -> int:
        return self.admitted

    def provided_for(self, ticket: Any) -> int:
        return self.provided

    def rehearse(self, ticket: Any, count: int) -> None:
        self.rehearsed.append(count)
        self.clock.now += BEFORE + EACH * count


def gradient(number: int) -> Compute:
    return Compute(Gradient(number, MODEL, QUERY))


def times(tasks: Tasks, clock: Clock, count: int) -> np.ndarray:
    """Seconds from each request to its answer."""
    found = []
    for number in range(count):
        begun = clock()
        (outcome,) = tasks.ask(gradient(number))
        assert isinstance(outcome.event, Completed)
        found.append(clock() - begun)
    return np.array(found)


def test_answers_leave_at_the_deadline_whatever_was_sampled() -> None:
    sizes = np.random.default_rng(1).binomial(181, 0.33, 10_000)
    clock = Clock()
    bare = times(Tasks("a", Side(clock, sizes.tolist())), clock, len(sizes))  # type: ignore[arg-type]
    assert stats.pearsonr(sizes, bare).statistic > 0.999, "without a deadline times tell the sizes"
    side = Side(clock, sizes.tolist())
    deadline = MARGIN * (BEFORE + EACH * MOST)
    found = times(Tasks("a", Paced(side, clock=clock, wait=clock.wait)), clock, len(sizes))
    np.testing.assert_allclose(found[1:], deadline, rtol=1e-6)  # before the first it was measured
    assert found[0] == pytest.approx(deadline + sum(BEFORE + EACH * count for count in side.rehearsed))


def test_the_deadline_is_measured_once_on_examples_that_nobody_has() -> None:
    clock = Clock()
    said: list[str] = []
    side = Side(clock, [10] * 5)
    paced = Paced(side, say=said.append, clock=clock, wait=clock.wait)
    for number in range(5):
        paced.compute([paced.admit("a", gradient(number).task)])
    # One to prepare, five without examples, and 32 until 0.05 s are reached, which they are at once; five of these.
    assert side.rehearsed == [1, *[0] * 5, 32, *[32] * 5]
    before = list(side.rehearsed)
    side.sizes.append(3)
    paced.compute([paced.admit("a", gradient(9).task)])
    assert side.rehearsed == before
    assert len(said) == 1
    assert "0.00135 s an example" in said[0]


def measured(side: Side, seconds: float | None, **options: Any) -> Paced:
    """Paced answers of ``side``, whose speed is known."""
    paced = Paced(side, seconds=seconds, clock=side.clock, wait=side.clock.wait, **options)  # type: ignore[arg-type]
    paced._measured[(Gradient, 2, Gaussian)] = (BEFORE, EACH)
    return paced


def test_a_late_answer_leaves_at_the_next_multiple() -> None:
    clock = Clock()
    side = Side(clock, [20, 250, 20])
    paced = measured(side, 0.3)
    found = times(Tasks("a", paced), clock, 2)
    side.slower = 20.0
    found = np.append(found, times(Tasks("a", paced), clock, 1))
    # 0.037 s, 0.348 s and 0.740 s
    np.testing.assert_allclose(found, [0.3, 0.6, 0.9])


@pytest.mark.parametrize(("seconds", "expected"), [(0.5, 0.5), (0.1, 0.3), (1e-9, 0.227), (5e-324, 0.227)])
def test_seconds_that_are_too_few_are_taken_as_often_as_the_node_needs(seconds: float, expected: float) -> None:
    """Or every answer would miss its deadline, and go when it is computed, whatever the guarantee says of times."""
    sizes, clock = [5, 60, 120], Clock()
    side = Side(clock, list(sizes))
    found = times(Tasks("a", measured(side, seconds)), clock, 3)
    np.testing.assert_allclose(found, expected, rtol=2e-2)
    assert np.ptp(found) <= LEAST


def test_the_node_measures_what_it_needs_whoever_gives_the_seconds() -> None:
    clock, said = Clock(), list[str]()
    side = Side(clock, [10])
    paced = Paced(side, seconds=0.1, say=said.append, clock=clock, wait=clock.wait)
    assert paced.deadline(side) == pytest.approx(0.3)
    assert side.rehearsed
    assert "multiples of 0.1 s" in said[0]


def test_an_answer_at_the_very_deadline_is_late() -> None:
    """At multiples only those answers leave that were there before: nothing depends on who comes first."""
    clock = Clock(0.0)
    paced = measured(Side(clock, [0], provided=0, slower=2.0), 2 * BEFORE)
    assert times(Tasks("a", paced), clock, 1) == pytest.approx([4 * BEFORE])


def test_late_answers_are_told_to_the_log_alone_and_not_each() -> None:
    clock, said = Clock(), list[str]()
    side = Side(clock, [181] * 150, slower=2.0)
    paced = measured(side, 0.3, say=said.append)
    times(Tasks("a", paced), clock, 150)
    assert [line.split(": ")[1].split(";")[0] for line in said] == ["1", "10", "100"]


def test_no_deadline_is_shorter_than_a_clock_can_tell() -> None:
    clock = Clock()
    side = Side(clock, [0], provided=0)
    paced = Paced(side, clock=clock, wait=clock.wait)
    paced._measured[(Gradient, 2, Gaussian)] = (1e-6, 0.0)
    assert paced.deadline(side) == LEAST


def test_kinds_of_tasks_are_measured_each() -> None:
    """A round of growing size needs no new measurement when it grows, and another kind of task does."""
    clock = Clock()
    side = Side(clock, [])
    paced = Paced(side, clock=clock, wait=clock.wait)

    @dataclass
    class Ticket:
        task: Any

    def a_round(steps: int, update: str = "batch", models: int = 1) -> Ticket:
        return Ticket(
            Round(
                1,
                (Swap(0, MODEL),) * models,
                Query(Poisson(0.1), Gaussian(1.0, 1.0), 1.0),
                steps,
                steps,
                StepSizes(0.1),
                update,
            )
        )

    first = paced.deadline(a_round(4))
    measured = len(side.rehearsed)
    side.provided = 2 * MOST
    assert paced.deadline(a_round(8)) == pytest.approx(first + MARGIN * EACH * MOST, rel=1e-6)
    assert len(side.rehearsed) == measured
    paced.deadline(a_round(4, "clipped_sum"))
    assert len(side.rehearsed) > measured
    for models, anew in ((1, False), (5, True), (8, False), (9, True), (3, True), (2, True), (4, False)):
        measured = len(side.rehearsed)
        paced.deadline(a_round(4, models=models))
        assert (len(side.rehearsed) > measured) == anew, models


def test_rounds_have_their_deadline_from_when_they_are_computed() -> None:
    """A round that waits for a model takes none of its time; one that is cut short is answered in time too."""
    clock = Clock()
    tasks = Tasks("a", measured(Side(clock, [7, 150]), 0.5))
    query = Query(Poisson(0.1), Gaussian(1.0, 1.0), 1.0)
    for number, end in ((1, Update(1, MODEL, 4)), (2, Interrupt(2))):
        task = Round(number, (Swap(0, MODEL),), query, 4, 1, StepSizes(0.1), "batch")
        assert tasks.ask(Compute(task)) == []
        clock.now += 3.0
        begun = clock()
        assert len(tasks.ask(end)) == 1
        assert clock() - begun == pytest.approx(0.5)


def test_what_the_ledger_refuses_is_refused_at_once() -> None:
    clock = Clock()
    paced = Paced(Side(clock, [], most=0), seconds=0.5, clock=clock, wait=clock.wait)
    (outcome,) = Tasks("a", paced).ask(gradient(1))
    assert outcome.event == Refused(1, 0)
    assert clock() == 5.0
