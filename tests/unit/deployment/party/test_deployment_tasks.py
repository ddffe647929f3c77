"""What a node asks of its data side is done as soon as it can be, once, and on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from gossamer.deployment.party.loop import Tasks, Worker
from gossamer.errors import BudgetSpent
from gossamer.privacy.mechanisms import FixedSize, NoNoise
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.protocol.effects import Compute, Interrupt, Record, Release, Update
from gossamer.protocol.events import Answered, Completed, Refused
from gossamer.runtimes.storage.file import StorageError
from gossamer.sides.machine import SideAnswer
from gossamer.vectors import Confined, Public, Released

MODEL = Public(np.zeros(2))


class Computer:
    """Answers with the task's last model and one; refuses after ``most`` tasks."""

    def __init__(self, most: int = 100, label: Any = Released, zeroed: int = 0) -> None:
        self.most, self.label, self.zeroed, self.admitted = most, label, zeroed, 0
        self.computed: list[Any] = []

    def admit(self, node: str, task: Any) -> Any:
        if self.admitted >= self.most:
            raise BudgetSpent("spent")
        self.admitted += 1
        return task

    def amended(self, ticket: Any, task: Any) -> Any:
        return task

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        self.computed += tickets
        return [SideAnswer(self.label(np.ones(2)), self.zeroed) for _ in tickets]

    def releases(self, node: str) -> int:
        return self.admitted


def gradient(number: int) -> Compute:
    return Compute(Gradient(number, MODEL, Query(FixedSize(4, 2), NoNoise(1.0), 2.0)))


def round_of(number: int, steps: int, until: int) -> Compute:
    query = Query(FixedSize(8, steps), NoNoise(1.0), 1.0)
    return Compute(Round(number, (Swap(0, MODEL),), query, steps, until, StepSizes(0.1), "batch"))


def events(outcomes: Sequence[Any]) -> list[Any]:
    return [outcome.event for outcome in outcomes]


def test_a_gradient_is_answered_at_once() -> None:
    (event,) = events(Tasks("a", Computer()).ask(gradient(3)))
    assert isinstance(event, Completed)
    assert (event.id, event.steps) == (3, 1)


def test_what_has_no_receipt_is_answered_without_one() -> None:
    (event,) = events(Tasks("a", Computer(label=Confined)).ask(gradient(3)))
    assert isinstance(event, Answered)


def test_a_release_of_a_state() -> None:
    (event,) = events(Tasks("a", Computer()).ask(Compute(Release(5, Confined(np.ones(2))))))
    assert isinstance(event, Completed)
    assert event.id == 5


def test_gradients_that_are_not_finite_are_recorded() -> None:
    (outcome,) = Tasks("a", Computer(zeroed=2)).ask(gradient(3))
    assert outcome.records == (Record("gradients_not_finite", 2.0),)


@pytest.mark.parametrize(
    "request_", [gradient(1), round_of(1, 2, 2), Compute(Release(1, Confined(np.ones(2))))], ids=repr
)
def test_what_the_ledger_refuses_is_not_computed(request_: Any) -> None:
    computer = Computer(most=0)
    assert events(Tasks("a", computer).ask(request_)) == [Refused(1, 0)]
    assert computer.computed == []


class TestRounds:
    def test_one_that_waits_for_nothing(self) -> None:
        (event,) = events(Tasks("a", Computer()).ask(round_of(1, 4, 4)))
        assert (event.id, event.steps) == (1, 4)

    def test_one_that_waits_for_a_newer_model(self) -> None:
        computer = Computer()
        tasks = Tasks("a", computer)
        assert tasks.ask(round_of(1, 4, 1)) == []
        assert tasks.ask(Update(1, MODEL, 2)) == []
        (event,) = events(tasks.ask(Update(1, MODEL, 4)))
        assert event.steps == 4
        # Each model was swapped in after all steps that could be taken before it came.
        assert [swap.step for swap in computer.computed[0].swaps] == [0, 1, 2]
        assert tasks.ask(Update(1, MODEL, 4)) == [], "it was answered before"

    def test_one_that_is_cut_short(self) -> None:
        tasks = Tasks("a", Computer())
        tasks.ask(round_of(1, 4, 3))
        (event,) = events(tasks.ask(Interrupt(1)))
        assert event.steps == 3
        assert tasks.ask(Interrupt(1)) == []

    def test_it_is_charged_once(self) -> None:
        computer = Computer()
        tasks = Tasks("a", computer)
        for request in (round_of(1, 4, 1), Update(1, MODEL, 2), Interrupt(1)):
            tasks.ask(request)
        assert computer.admitted == 1


class TestWorker:
    def test_it_answers_from_a_thread_of_its_own(self) -> None:
        awake = threading.Event()
        worker = Worker(Tasks("a", Computer()), awake.set)
        worker.ask(gradient(7))
        assert awake.wait(10)
        assert [event.id for event in events(worker.done())] == [7]
        assert worker.done() == []
        worker.stop()

    def test_what_goes_wrong_is_raised_where_answers_are_taken(self) -> None:
        class Full(Computer):
            def admit(self, node: str, task: Any) -> Any:
                raise StorageError("the disk is full")

        awake = threading.Event()
        worker = Worker(Tasks("a", Full()), awake.set)
        worker.ask(gradient(7))
        assert awake.wait(10)
        with pytest.raises(StorageError, match="full"):
            worker.done()
        worker.stop()

    def test_what_was_not_begun_when_it_ends_is_not_done(self) -> None:
        begun, go_on = threading.Event(), threading.Event()

        class Slow(Computer):
            def admit(self, node: str, task: Any) -> Any:
                begun.set()
                assert go_on.wait(10)
                return super().admit(node, task)

        computer = Slow()
        worker = Worker(Tasks("a", computer), lambda: None)
        for number in range(3):
            worker.ask(gradient(number))
        assert begun.wait(10)
        worker.stop(patience=0.0)
        go_on.set()
        worker.stop()
        assert computer.admitted == 1
