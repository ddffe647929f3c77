"""Release deadline: a node gets its data side's answers at multiples of it, not when they were computed.

All that a node sends, stores and asks for next follows from its answers, so nothing that it does shows how long one
took. `privacy.mechanisms` has what is proved of that, and `sides.sums.Filled` the data side, which computes
on as many examples for every answer. The deadline of an answer is public:

    1.25 (seconds without examples + examples provided for * seconds an example),

measured by this node, at its first task of a kind, on examples that nobody has: the least of some runs, which load
from elsewhere has disturbed least. Where the spec gives seconds it is the least multiple of these that is as long:
with fewer every answer would be late, and go when it is computed. An answer that misses its deadline, on a machine
that is busy, goes at the next multiple.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from gossamer.algorithms.plan import Plan
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.objectives.linear.model import LinearModel
from gossamer.sides.machine import Computer, SideAnswer
from gossamer.sides.plan import Samples
from gossamer.sides.pool import Pool
from gossamer.sides.sums import Filled

MARGIN = 1.25
"""How many times what was measured a deadline is."""
LEAST = 1e-3
"""Seconds of the shortest deadline: of less a machine's clock and scheduler know little."""
_FEW = 32  # examples to measure on, or more, if they take less than
_LONG = 0.05  # seconds
_RUNS = 5


def of_samples(plan: Plan) -> bool:
    """Whether nodes release sums over samples of their examples: an answer takes as long as its sample is large."""
    return any(isinstance(side, Samples) for side in plan.sides.values())


def has_deadline(prepared: Prepared, plan: Plan) -> bool:
    """Whether the answers of a deployed data side go at multiples of a deadline.

    Only noisy sums over samples do: what agents of units hand over is computed on batches of a fixed size.
    """
    wanted = prepared.experiment.deployment.release_deadline
    if not (of_samples(plan) and prepared.experiment.private) or wanted == "off":
        return False
    return wanted != "auto" or not isinstance(prepared.objective, LinearModel)


class Paced:
    """A data side, from which answers come at multiples of a deadline.

    Parameters
    ----------
    side : Pool
        The data side itself.
    seconds : float, optional
        Unit of which each deadline is a multiple, the least that the node can keep; by default the deadline is as
        measured.
    say : callable, optional
        Told the deadline, and of answers that missed it: for the node's own log.
    clock, wait : callable, optional
        Seconds on a steady clock, and what lets so many pass.
    """

    def __init__(
        self,
        side: Pool,
        seconds: float | None = None,
        *,
        say: Callable[[str], object] = lambda line: None,
        clock: Callable[[], float] = time.perf_counter,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._side, self._given, self._say, self._clock, self._wait = side, seconds, say, clock, wait
        self._measured: dict[Any, tuple[float, float]] = {}
        self._late = 0

    def admit(self, node: str, task: Any) -> Any:
        return self._side.admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        return self._side.amended(ticket, task)

    def releases(self, node: str) -> int:
        return self._side.releases(node)

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        """The answers to ``tickets``, each at its time."""
        return [self._in_time(ticket) for ticket in tickets]

    def deadline(self, ticket: Any) -> float:
        """Seconds after which the answer to ``ticket`` is given, or twice, three times as many if it is not there."""
        kind = ticket.task.work
        if kind not in self._measured:
            self._measured[kind] = before, each = self._measure(ticket)
            what = "a deadline" if self._given is None else f"{self._given:g} s, and not before"
            self._say(f"answers go at multiples of {what}: {MARGIN:g} times {before:.3g} s and {each:.3g} s an example")
        before, each = self._measured[kind]
        needed = max(LEAST, MARGIN * (before + each * self._side.provided_for(ticket)))
        if self._given is None:
            return needed
        unit = max(LEAST, self._given)
        return unit * math.ceil(needed / unit)

    def _in_time(self, ticket: Any) -> SideAnswer:
        deadline = self.deadline(ticket)
        begun = self._clock()
        (answer,) = self._side.compute([ticket])
        missed = math.floor((self._clock() - begun) / deadline)
        due = begun + (missed + 1) * deadline
        while (left := due - self._clock()) > 0:
            self._wait(left)
        if missed:
            self._late += 1
            if math.log10(self._late).is_integer():
                self._say(f"answers that missed their deadline so far: {self._late}; this one by {missed}")
        return answer

    def _measure(self, ticket: Any) -> tuple[float, float]:
        """Seconds without examples, and for each."""
        most, count = self._side.provided_for(ticket), _FEW
        self._side.rehearse(ticket, 1)  # the first call prepares
        before = self._least(ticket, 0)
        while self._seconds(ticket, count) < _LONG and count < most:
            count = min(most, 2 * count)
        return before, max(0.0, self._least(ticket, count) - before) / count

    def _least(self, ticket: Any, count: int) -> float:
        return min(self._seconds(ticket, count) for _ in range(_RUNS))

    def _seconds(self, ticket: Any, count: int) -> float:
        begun = self._clock()
        self._side.rehearse(ticket, count)
        return self._clock() - begun


def paced(computer: Pool, prepared: Prepared, say: Callable[[str], object]) -> Computer:
    """The data side of a party as its node has it: with a deadline, if it has one; ``say`` is told of it."""
    if not isinstance(computer.sums, Filled):
        return computer
    wanted = prepared.experiment.deployment.release_deadline
    return Paced(computer, wanted if isinstance(wanted, float) else None, say=say)
