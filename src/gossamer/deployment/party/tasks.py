"""Tasks that a node has given its data side, carried out as soon as they can be.

A round of local steps is computed when all of its steps may be taken: at once, or when the newer model has come that it
waits for. What comes later than that comes too late for it, as it does in a simulation.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.errors import BudgetSpent
from gossamer.privacy.tasks import Round
from gossamer.protocol.effects import Compute, Interrupt, Record, Release, Request, Update
from gossamer.protocol.events import Answered, Completed, Refused
from gossamer.runtimes.host import Answer
from gossamer.sides.machine import Answer as Computed
from gossamer.sides.machine import Computer
from gossamer.vectors import Released


@dataclass(frozen=True)
class TaskDone:
    """The data side's answer, what is for the node's private log, and whether it is an update."""

    event: Answer
    records: tuple[Record, ...] = ()
    update: bool = False


@dataclass
class _Waiting:
    """A round that is charged, and waits for a newer model."""

    ticket: Any
    task: Round


class Tasks:
    """The tasks of one node.

    Parameters
    ----------
    node : str
        The name.
    computer : Computer
        The data side.
    """

    def __init__(self, node: str, computer: Computer) -> None:
        self._node, self._computer = node, computer
        self._rounds: dict[int, _Waiting] = {}

    def ask(self, request: Request) -> list[TaskDone]:
        """Do what is asked, and what that completes.

        Raises
        ------
        StorageError
            If a charge could not be written. Nothing was drawn.
        """
        match request:
            case Compute(task):
                return self._compute(task)
            case Release():
                return self._admitted(request.id, request, self._answer)
            case Update():
                return self._update(request)
            case Interrupt(task):
                waiting = self._rounds.get(task)
                return [] if waiting is None else self._cut(waiting)

    def _compute(self, task: Any) -> list[TaskDone]:
        return self._admitted(task.id, task, self._begin if task.amendable else self._answer)

    def _admitted(self, number: int, task: Any, go_on: Callable[[int, Any, Any], list[TaskDone]]) -> list[TaskDone]:
        try:
            ticket = self._computer.admit(self._node, task)
        except BudgetSpent:
            return [TaskDone(Refused(number, self._computer.releases(self._node)))]
        return go_on(number, task, ticket)

    def _answer(self, number: int, task: Any, ticket: Any) -> list[TaskDone]:
        (computed,) = self._computer.compute([ticket])
        return [_outcome(number, computed, 1, update=bool(task.steps))]

    def _begin(self, number: int, task: Round, ticket: Any) -> list[TaskDone]:
        self._rounds[number] = waiting = _Waiting(ticket, task)
        return self._complete(waiting) if task.until == task.steps else []

    def _update(self, update: Update) -> list[TaskDone]:
        waiting = self._rounds.get(update.task)
        if waiting is None:
            return []
        before = waiting.task.until  # all these steps count as done
        waiting.task = waiting.task.swapped(before, update.model, max(before, update.until))
        return self._complete(waiting) if waiting.task.until == waiting.task.steps else []

    def _cut(self, waiting: _Waiting) -> list[TaskDone]:
        waiting.task = waiting.task.cut(waiting.task.until)
        return self._complete(waiting)

    def _complete(self, waiting: _Waiting) -> list[TaskDone]:
        task = waiting.task
        del self._rounds[task.id]
        (computed,) = self._computer.compute([self._computer.amended(waiting.ticket, task)])
        return [_outcome(task.id, computed, task.until, update=True)]


def _outcome(number: int, computed: Computed, steps: int, *, update: bool) -> TaskDone:
    """Outcome that a node is told: `Answered` where there is no receipt. What takes no steps is no update."""
    vector = computed.released
    event = Completed(number, vector, steps) if isinstance(vector, Released) else Answered(number, vector)
    return TaskDone(event, computed.notes, update)


class Worker:
    """A thread that computes, so that the node answers its peers meanwhile.

    Parameters
    ----------
    tasks : Tasks
        Used by this thread alone.
    wake : callable
        Called when something is done.
    """

    def __init__(self, tasks: Tasks, wake: Callable[[], None]) -> None:
        self._tasks, self._wake = tasks, wake
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[TaskDone | BaseException] = queue.SimpleQueue()
        self._stopping = False
        self.busy = False  # with a task, for however long that takes
        self._thread = threading.Thread(target=self._run, name="data side", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> None:
        """Have ``request`` done."""
        self._asked.put(request)

    def done(self) -> list[TaskDone]:
        """Return what was done since the last time.

        Raises
        ------
        Exception
            What the data side raised, such as `StorageError`.
        """
        found = []
        while not self._done.empty():
            outcome = self._done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            found.append(outcome)
        return found

    def stop(self, patience: float = 5.0) -> None:
        """End the thread after what it is at; what was not begun is lost, as in a crash."""
        self._stopping = True
        self._asked.put(None)
        self._thread.join(patience)

    def _run(self) -> None:
        while (request := self._asked.get()) is not None and not self._stopping:
            self.busy = True
            try:
                for outcome in self._tasks.ask(request):
                    self._done.put(outcome)
            except BaseException as error:  # for the node's own thread to raise
                self._done.put(error)
                self._wake()
                return
            self.busy = False
            self._wake()
