"""The home of deployed data sides: the operating system's randomness, noise on a grid, ledgers that outlive processes.

Nothing random is kept, so there is nothing to store, or to share with another release, and nothing can be drawn again:
a charge is answered once. Gaussian noise is drawn on a grid, with room for the rounding of the sum
(`sums`), so sum and noise are rounded together; other laws are drawn in floating point, and the guarantee says
so.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.privacy.streams.records import RecordNoise
from gossamer.sides.home import FloatStream, GridNoise, Home, Numbers, SideStore
from gossamer.sides.ledger import Ledger, Receipt
from gossamer.sides.plan import SidePlan, StreamPlan
from gossamer.sides.receipts import Noting
from gossamer.sides.sums import InPieces, Sums


class Receipts(Noting, Protocol):
    """Receipts of one party, as durable as its ledger."""

    def together(self) -> AbstractContextManager[None]:
        """Charge and note inside: both last, or neither."""


class DeployedNoise(GridNoise):
    """Noise on a grid, whose streams last over restarts. Nothing can be drawn again."""

    def stream(self, plan: StreamPlan, numbers: Numbers) -> GridStream:
        return GridStream(plan)


class Deployed(Home):
    """A process of a deployment.

    Parameters
    ----------
    ledgers : callable
        (name, plan) -> the durable ledger of a party, with its whole plan in it.
    kept : SideStore, optional
        Place where marks and records are kept. Without it a masked member and correlated noise cannot go on after a
        restart.
    signing : Signing, optional
        Identity and keys that sign the keys of masked sums.
    sums : callable
        Function that makes what computes sums over samples.
    receipts : Receipts, optional
        Receipts in which the releases are noted, as durable as the charges.
    """

    def __init__(
        self,
        ledgers: Callable[[str, SidePlan], Ledger],
        kept: SideStore | None = None,
        signing: Any = None,
        sums: Callable[[Objective, Split], Sums] = InPieces,
        receipts: Receipts | None = None,
    ) -> None:
        self._ledgers, self._kept, self._signing, self._sums = ledgers, kept, signing, sums
        self._receipts = receipts
        self.noise = DeployedNoise()

    def seed(self, owner: str, purpose: str = "") -> None:
        return None

    def sums(self, objective: Objective, data: Split) -> Sums:
        return self._sums(objective, data)

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        return self._ledgers(name, plan)

    def charged(self, name: str, task: Any, receipt: Receipt, charge: Callable[[Receipt], int]) -> int:
        if self._receipts is None:
            return charge(receipt)
        with self._receipts.together():
            number = charge(receipt)
            self._receipts.add(name, task, receipt)
        return number

    def kept(self, name: str) -> SideStore | None:
        return self._kept

    def signing(self, name: str) -> Any:
        return self._signing


class GridStream(FloatStream):
    """Correlated noise that a restart does not lose, drawn on a grid; see `streams.records`.

    Raises
    ------
    SpecError
        If the noise is out of the range of the grid.
    """

    def __init__(self, plan: StreamPlan) -> None:
        bound = plan.moved, plan.agents_sampled
        self._noise = None if plan.law is None else RecordNoise(plan.law, plan.size, *bound, plan.longest)
        self.needed = 0 if self._noise is None else self._noise.needed

    def answer(self, number: int, state: FloatArray, before: list[StreamRecord]) -> FloatArray:
        """The record [size] that follows from the state and from those ``before``, with fresh noise."""
        return state if self._noise is None else self._noise.answer(state, before)
