"""Records of one stream of noise, which a server draws for its whole unit, as they leave it.

A record is charged, then drawn, and drawn once. After a crash the server's node is what its journal says, and asks for
the next record, or for the last one again. One that was answered is answered with the same bytes; one that was charged
and not kept was given to nobody, and is drawn now under the charge that stands. Records that later ones are made of are
kept before they are answered (`streams.records`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.streams.noise_streams import Record
from gossamer.protocol.effects import Release
from gossamer.sides.answers import Answer
from gossamer.sides.home import Home, numbers_in
from gossamer.sides.ledger import Receipt
from gossamer.sides.machine import Due, Rule, Ticket
from gossamer.sides.plan import Stream
from gossamer.vectors import Released


class StreamRule(Rule):
    """The records of one unit's stream."""

    def __init__(self, name: str, plan: Stream, home: Home) -> None:
        self._name, self._receipt = name, Receipt(plan.kind)
        self._noise, self._kept = home.noise.stream(plan, numbers_in(home, name, "noise")), home.kept(name)
        self._needed = self._noise.needed
        self._past = list(self._kept.kept()) if self._kept is not None and self._needed else []

    def due(self, task: Any, charged: int) -> Due:
        if not isinstance(task, Release):
            raise SpecError(f"{self._name} releases records of a stream, found {type(task).__name__}")
        if task.id not in (charged, charged - 1) or task.id < 0:
            raise SpecError(f"{self._name}: the next record is {charged}, found {task.id}")
        if not self._answered(task.id):
            self._before(task.id)
        return Due(self._receipt if task.id == charged else None)

    def number(self, task: Release, charged: int) -> int:
        return task.id

    def amended(self, task: Any, became: Any) -> Any:
        raise SpecError(f"servers of a unit run no rounds, found {type(became).__name__}")

    def release(self, ticket: Ticket, raw: None) -> Answer:
        """The state with the record's noise; with the very same bytes if it was answered before.

        Raises
        ------
        SpecError
            If the state is another than before: two states with the same noise give their difference away.
        """
        number, values = ticket.number, ticket.task.vector.values
        state: FloatArray = values.astype(np.float64)
        if not self._answered(number):
            before = self._before(number)
            record = Record(number, state, self._noise.answer(number, state, before))
            if self._kept is not None and self._needed:
                self._kept.keep(record, self._needed)
            self._past = [*before, record][-max(self._needed, 1) :]
        kept = self._past[-1]
        if kept.state.tobytes() != state.tobytes():
            raise SpecError(f"{self._name}: record {number} was another state's; its noise is used once")
        with np.errstate(over="ignore"):
            answer = kept.answer.astype(values.dtype)
        return Answer(Released(np.nan_to_num(answer, copy=False)))  # a value out of range saturates

    def snapshot(self) -> tuple[Any, ...]:
        past = [(record.number, record.state, record.answer) for record in self._past]
        return past, self._noise.snapshot()

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        past, noise = snapshot
        self._past = [Record(*parts) for parts in past]
        self._noise.restore(noise)

    def _answered(self, number: int) -> bool:
        """Whether a record has an answer, which is kept."""
        return bool(self._past) and self._past[-1].number == number

    def _before(self, number: int) -> list[Record]:
        """The records that one is made of.

        Raises
        ------
        BudgetSpent
            If they are lost.
        """
        wanted = list(range(max(number - self._needed, 0), number))
        found = [record for record in self._past if record.number in wanted]
        if [record.number for record in found] != wanted:
            raise BudgetSpent(
                f"{self._name}: release refused: record {number} goes on from records before it, which ended "
                "with an earlier process; a new stream of noise is not in the plan"
            )
        return found
