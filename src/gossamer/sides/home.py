"""Homes: what differs from world to world, and nothing else does.

| world | numbers | noise | ledger | over a restart |
|---|---|---|---|---|
| simulation (`simulated`) | from a seed, the same again | floating point | in memory | nothing is kept |
| deployment (`deployed`) | the operating system's, never again | Gaussian noise on a grid | durable | marks, records |
| laboratory of faults (`testing`) | from a seed, another in each life | floating point | durable | a trial's choice |
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.kept_records import Record, Records
from gossamer.privacy.tasks import Query
from gossamer.sides.charges import Receipt
from gossamer.sides.ledger import Ledger
from gossamer.sides.number_source import Numbers
from gossamer.sides.plan import SidePlan, Stream
from gossamer.sides.round_mark import RoundMark
from gossamer.sides.sum_rounding import Rounding
from gossamer.sides.sums import Provided, Sums

CHARGING, DRAWING = "charging a release", "drawing noise"
"""Where a process may be killed; see `Home.crashpoint`."""


_EACH_BY_ITSELF: AbstractContextManager[None] = nullcontext()


class StreamNoise(Protocol):
    """Draws what is new in a record of correlated noise."""

    needed: int
    """Number of records before it that the next one is made of."""

    def answer(self, number: int, state: FloatArray, before: list[Record]) -> FloatArray:
        """The record [size] with fresh noise."""
        ...

    def snapshot(self) -> Any:
        """Return all that changes, for `protocol.snapshots` to encode; nothing where records are all there is."""
        return None

    def restore(self, snapshot: Any) -> None:
        """Be as the noise was whose `snapshot` this is."""
        return None


class Kept(RoundMark, Records, Protocol):
    """State that a data side keeps over restarts: the mark of a masked member, the records of a stream."""


class Home(Protocol):
    """The world that data sides live in.

    It keeps nothing, signs nothing and has nobody killed, unless it says so.
    """

    @property
    def repeats(self) -> bool:
        """Whether the numbers of a charge can be drawn again, bit for bit: then a second answer is the first one."""
        ...

    def seed(self, owner: str) -> int | None:
        """Seed of the owner's numbers; None where nobody can repeat them."""
        ...

    def numbers(self, owner: str, purpose: str) -> Numbers:
        """The owner's numbers for one purpose."""
        ...

    def sums(self, objective: Objective, data: Split) -> Sums:
        """Return a way to compute sums over samples: all together, or each in pieces whose rounding is provided for."""
        ...

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        """Return what a release of ``size`` numbers is drawn with; asked before it is charged.

        Raises
        ------
        SpecError
            If its noise cannot be drawn.
        """
        ...

    def noisy(
        self,
        total: FloatArray,
        centred: float,
        query: Query,
        provided: Provided,
        numbers: Numbers,
        number: int,
    ) -> FloatArray:
        """The sum [size] with its noise, and after it the noisy count ``centred``, if the query asks for one.

        What is not drawn on a grid is drawn from that ``number`` of ``numbers``.
        """
        ...

    def finished(self, answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        """An answer in the type in which it is handed over."""
        ...

    def stream(self, name: str, plan: Stream) -> StreamNoise:
        """The noise of a stream.

        Raises
        ------
        SpecError
            If it cannot be drawn.
        """
        ...

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        """The ledger of a party whose plan is charged, with the whole plan in it."""
        ...

    def charging(self, name: str) -> AbstractContextManager[None]:
        """Charge party ``name`` inside, and tell of it (`charged`): both last, or neither."""
        return _EACH_BY_ITSELF

    def charged(self, name: str, task: Any, receipt: Receipt) -> None:
        """Told what party ``name`` was charged for a ``task``, before anything is drawn."""
        return None

    def kept(self, name: str) -> Kept | None:
        """Storage for what must outlive a crash of a party; None keeps nothing."""
        return None

    def signing(self, name: str) -> Any:
        """Return the `masked_side.Signing` of the keys of masked sums; None where nobody signs them."""
        return None

    def crashpoint(self, what: str) -> None:
        """Told before something lasts, or is seen; here a process of a laboratory may be killed."""
        return None

    def restarted(self, name: str) -> None:
        """The process of ``name`` was started again."""
        return None
