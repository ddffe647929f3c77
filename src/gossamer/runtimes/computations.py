"""Tasks that nodes have asked of data sides in a simulation: when they fall due, and when they are computed.

A computation's *result* is needed only when the clock reaches its completion. Until then it waits, and the first
that falls due has all pending ones computed in one call: that is where the speed comes from.

A round of local steps takes a node's seconds for each of them. It is computed only when it falls due, because until
then a newer model may be swapped into it; it waits, for as long as it takes, where it may not go on yet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from gossamer.errors import BudgetSpent
from gossamer.privacy.tasks import Round
from gossamer.protocol.effects import Compute, Interrupt, Update
from gossamer.protocol.events import Answered, Completed, Counted, Event, Refused
from gossamer.protocol.snapshots import Kept, kept_whole
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.loop import Action, CarryOut, LoopPart
from gossamer.runtimes.speeds import Speeds
from gossamer.sides.machine import Computer, SideAnswer
from gossamer.vectors import Released

_ROUNDING = 1e-9  # of a step: so that a step that ends now counts as done, whatever the clock's last bits are


@dataclass
class Counters(Kept):
    """Counts of a run so far."""

    changing = ("updates", "events", "rejected", "calls", "computed")
    updates: int = 0
    events: int = 0
    rejected: int = 0
    calls: int = 0
    computed: int = 0


@kept_whole
@dataclass(eq=False, slots=True)
class _Running:
    """A round that is running: at ``since`` it had done ``done`` steps, and went on.

    ``token`` tells it from another round of the same task, which it was when its node was away and has lost it.
    """

    token: int
    ticket: Any
    task: Round
    seconds: float
    since: float
    done: int = 0
    ended: bool = False

    def steps(self, now: float) -> int:
        """Count the steps that are done."""
        since = (now - self.since) / self.seconds if self.seconds else math.inf  # seconds may vanish by underflow
        return int(min(self.task.until, self.done + since + _ROUNDING))

    @property
    def end(self) -> float | None:
        """The time at which all steps are done; None if it will wait before."""
        left = self.task.steps - self.done
        return self.since + left * self.seconds if self.task.until == self.task.steps else None


class Computations(LoopPart):
    """The computations of one run.

    Parameters
    ----------
    computer : Computer
        The data sides.
    speeds : Speeds
        Times that steps take.
    numbers : mapping of str to int
        Numbers of the nodes with data.
    width : int
        Most computations gathered into one call.
    counters : Counters
        Counters of the run.
    schedule : callable
        Has an action happen: (time, action, node, what).
    happen : callable
        Shows a node an event: (node, event).
    log : callable
        Writes to a node's private log: (node, record, now).
    activity : Activity
        Activity in which what nodes compute is counted.
    told : bool
        Whether nodes are told, before each answer, how many updates all of them have made.
    counts : bool
        Whether each answer is an update.
    """

    changing = ("_counters", "_asked", "_begun", "_tickets", "_results", "_rounds")
    acts = ("_refuse", "_complete", "_complete_round")

    def __init__(
        self,
        computer: Computer,
        speeds: Speeds,
        numbers: Mapping[str, int],
        width: int,
        counters: Counters,
        schedule: Callable[[float, Action, str, Any], None],
        happen: Callable[[str, Event], None],
        log: CarryOut,
        activity: Activity,
        told: bool = False,
        counts: bool = True,
    ) -> None:
        self._computer, self._speeds, self._numbers, self._width = computer, speeds, numbers, width
        super().__init__(schedule, happen)
        self._counters, self._log, self._activity, self._told, self._counts = counters, log, activity, told, counts
        self._asked = dict.fromkeys(numbers, 0)
        self._tickets: dict[tuple[str, int], Any] = {}
        self._results: dict[tuple[str, int], SideAnswer] = {}
        self._rounds: dict[tuple[str, int], _Running] = {}
        self._begun = 0  # rounds

    def close(self) -> None:
        super().close()
        del self._log

    def compute(self, name: str, effect: Compute, now: float) -> None:
        """Admit a task and have it fall due."""
        task: Any = effect.task
        timed = bool(task.steps)  # what takes no time leaves the times of others as they are; a server may ask for it
        if timed:
            self._asked[name] += 1
        try:
            ticket = self._computer.admit(name, task)
        except BudgetSpent:
            self._schedule(now, self._refuse, name, Refused(task.id, self._computer.releases(name)))
            return
        seconds = self._speeds.seconds(self._numbers[name], self._asked[name]) if timed else 0.0
        took = task.steps * seconds if timed else None
        if took is not None:
            counts = self._activity.counts[name]
            counts.since, counts.most, counts.before = now, took, self._counters.updates
        if task.amendable:
            self._begun += 1
            self._rounds[name, task.id] = running = _Running(self._begun, ticket, task, seconds, now)
            self._schedule_end(name, running)
        else:
            self._tickets[name, task.id] = ticket
            self._schedule(now + (took or 0.0), self._complete, name, (task.id, took))

    def update(self, name: str, effect: Update, now: float) -> None:
        """Swap a model into a running round, which may wait no longer."""
        running = self._rounds.get((name, effect.task))
        if running is None or running.ended:
            return
        done, before = running.steps(now), running.task.until
        if done == before:  # it has waited until now
            running.done, running.since = done, now
        running.task = running.task.swapped(done, effect.model, max(before, effect.until))
        if before < running.task.until:
            self._schedule_end(name, running)

    def interrupt(self, name: str, effect: Interrupt, now: float) -> None:
        """Have a running round answer with the steps done so far."""
        running = self._rounds.get((name, effect.task))
        if running is not None:
            running.task, running.ended = running.task.cut(running.steps(now)), True
            self._schedule(now, self._complete_round, name, (running.task.id, running.token))

    def pending(self, name: str) -> bool:
        """Whether a node waits for an answer."""
        return any(key[0] == name for waiting in (self._tickets, self._results, self._rounds) for key in waiting)

    def lose(self, name: str) -> None:
        """Forget the computations of a node; what they were charged stays charged."""
        for pending in (self._tickets, self._results, self._rounds):
            for key in [key for key in pending if key[0] == name]:
                del pending[key]

    def _refuse(self, name: str, refusal: Refused, now: float) -> None:
        self._happen(name, refusal)

    def _schedule_end(self, name: str, running: _Running) -> None:
        if (end := running.end) is not None:
            self._schedule(end, self._complete_round, name, (running.task.id, running.token))

    def _complete_round(self, name: str, what: tuple[int, int], now: float) -> None:
        task, token = what
        running = self._rounds.get((name, task))
        if running is not None and running.token == token:  # otherwise it was cut short, or the node was away
            del self._rounds[name, task]
            ticket = self._computer.amended(running.ticket, running.task)
            (answer,) = self._compute([ticket])
            until = running.task.until
            self._answer(name, task, answer, until, until * running.seconds, now)

    def _complete(self, name: str, what: tuple[int, float | None], now: float) -> None:
        task, took = what
        key = (name, task)
        if key in self._tickets:
            self._compute_pending(key)
        if key in self._results:  # otherwise the node was away and has lost it
            self._answer(name, task, self._results.pop(key), 1, took, now)

    def _compute_pending(self, due: tuple[str, int]) -> None:
        """Compute what is due, and with it what else is pending, oldest first."""
        others = (key for key in self._tickets if key != due)
        keys = [due, *islice(others, self._width - 1)]
        answers = self._compute([self._tickets.pop(key) for key in keys])
        self._results.update(zip(keys, answers, strict=True))

    def _compute(self, tickets: list[Any]) -> list[SideAnswer]:
        answers = self._computer.compute(tickets)
        self._counters.calls += 1
        self._counters.computed += len(tickets)
        return answers

    def _answer(self, name: str, task: int, answer: SideAnswer, steps: int, took: float | None, now: float) -> None:
        if took is not None:
            self._activity.ended(name, now, self._counters.updates, took)
        if self._told:
            self._happen(name, Counted(self._counters.updates))
        if self._counts:
            self._counters.updates += 1
        if answer.not_finite or answer.too_long:
            for note in answer.notes:
                self._log(name, note, now)
        self._happen(name, _event(task, answer, steps))


def _event(task: int, answer: SideAnswer, steps: int) -> Event:
    """Return the event that a node is told: `Answered` where there is no receipt."""
    vector = answer.released
    return Completed(task, vector, steps) if isinstance(vector, Released) else Answered(task, vector)
