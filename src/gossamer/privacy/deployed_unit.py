"""The data side of one deployed server of a federated unit: its ledger, and noise that a restart does not lose.

A record is charged, then drawn, and answered; asked for again, at the same state, it has the same answer. After a crash
the server's node is what its journal says, and asks for

- the next record, if the last was in the journal: it may have been sent;
- the last one again, if it was charged and is not in the journal: then its answer, if there was one, was never
  sent, since a host sends nothing that is not in its journal.

A record of which later ones are made is kept before it is answered (`unit_records`). If it is there, the same bytes are
answered again; if it is not, it is drawn now, under the charge that stands. With independent noise nothing is kept and
a record that was charged is drawn again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.data_side import Answer
from gossamer.privacy.graph_bounds import UpdateBound
from gossamer.privacy.unit_ledger import AnyUnitLedger
from gossamer.privacy.unit_records import FloatArray, Forgetful, Record, RecordNoise, Records
from gossamer.protocol.effects import Release
from gossamer.vectors import Released


@dataclass(frozen=True, slots=True)
class AdmittedRecord:
    """A record that is charged, or was before."""

    effect: Release


class DeployedUnitSide:
    """The data side of one unit's server, a `data_side.Computer`.

    Parameters
    ----------
    ledger : AnyUnitLedger
        Of the unit, with its stream.
    size : int
        Coordinates of a record.
    bound : UpdateBound or None
        How far one change of the data moves a round's update; None where nothing is proved.
    longest : float
        The most L2 norm of a round's update, that of one change left aside.
    records : Records, optional
        Where the last records are kept. By default in this process alone: after a restart only independent noise goes
        on, and with any other the first release is refused.

    Raises
    ------
    SpecError
        If the noise is out of the range of the grid.
    """

    def __init__(
        self,
        ledger: AnyUnitLedger,
        size: int,
        bound: UpdateBound | None,
        longest: float,
        records: Records | None = None,
    ) -> None:
        self.ledger, self._size = ledger, size
        noise = ledger.stream.noise
        self._noise = None if noise is None else RecordNoise(noise, size, bound, longest)
        self._needed = 0 if self._noise is None else self._noise.needed
        self._records: Records = Forgetful() if records is None else records
        self._past = list(self._records.kept()) if self._needed else []

    def admit(self, node: str, effect: Release) -> AdmittedRecord:
        """Charge the next record; the last one, asked for again, was charged before.

        Raises
        ------
        BudgetSpent
            If all records of the stream are spent, or those that the next one is made of are lost.
        SpecError
            If this is neither the next record nor the last.
        """
        charged = self.ledger.releases
        if effect.id not in (charged, charged - 1) or effect.id < 0:
            raise SpecError(f"{self.ledger.owner}: the next record is {charged}, found {effect.id}")
        if not self._answered(effect.id):
            self._before(effect.id)
        if effect.id == charged:
            self.ledger.charge()
        return AdmittedRecord(effect)

    def amended(self, ticket: Any, task: Any) -> Any:
        raise SpecError(f"servers of a unit run no rounds, found {type(task).__name__}")

    def compute(self, tickets: Sequence[AdmittedRecord]) -> list[Answer]:
        return [self._release(ticket.effect) for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.ledger.releases

    def _release(self, effect: Release) -> Answer:
        """The state with the record's noise; with the very same bytes if it was answered before.

        Raises
        ------
        SpecError
            If the state is another than before: two states with the same noise give their difference away.
        """
        values = effect.vector.values
        state: FloatArray = values.astype(np.float64)
        if not self._answered(effect.id):
            before = self._before(effect.id)
            record = Record(effect.id, state, state if self._noise is None else self._noise.answer(state, before))
            if self._needed:
                self._records.keep(record, self._needed)
            self._past = [*before, record][-max(self._needed, 1) :]
        kept = self._past[-1]
        if kept.state.tobytes() != state.tobytes():
            raise SpecError(f"{self.ledger.owner}: record {effect.id} was another state's; its noise is used once")
        with np.errstate(over="ignore"):
            answer = kept.answer.astype(values.dtype)
        return Answer(Released(np.nan_to_num(answer, copy=False)))  # a value out of range saturates

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
                f"{self.ledger.owner}: release refused: record {number} goes on from records before it, which ended "
                "with an earlier process; a new stream of noise is not in the plan"
            )
        return found
