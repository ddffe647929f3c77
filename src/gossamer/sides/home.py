"""Homes: what differs from world to world, and nothing else does.

| world | numbers | noise | ledger | over a restart |
|---|---|---|---|---|
| simulation (`simulated`) | from a seed, the same again | floating point | in memory | nothing is kept |
| deployment (`deployed`) | the operating system's, never again | Gaussian noise on a grid | durable | marks, records |
| laboratory of faults (`testing`) | from a seed, another in each life | floating point | durable | a trial's choice |

The newest round that an agent may have said something secret in: all that its masks leave behind.

An agent's keys live for one sum and are never stored. After a restart they are gone, and with others it must not take
part in the same sum again: it would answer twice, and two masked vectors of one round, with all others in them the
same, have a difference that no mask hides. So the round is marked before the first message that depends on a
secret, and rounds up to the mark are refused ever after. The server counts the agent as vanished from that sum.

Sources of a data side's random numbers: a seed in a simulation, the operating system in a deployment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.sampling import Poisson, Sampling
from gossamer.privacy.streams.noise_streams import Record, Records
from gossamer.privacy.tasks import Query
from gossamer.randomness import PART
from gossamer.randomness import Stream as Generators
from gossamer.sides.ledger import Ledger, Receipt
from gossamer.sides.plan import SidePlan, Stream
from gossamer.sides.sum_rounding import Rounding
from gossamer.sides.sums import Provided, Sums


class Numbers(Protocol):
    """A family of generators, one a number."""

    def at(self, number: int) -> np.random.Generator:
        """The generator of ``number``: the same numbers again, if they come from a seed."""
        ...


def numbers_of(seed: int | None, *labels: str) -> Numbers:
    """Those of ``seed`` for one purpose; without a seed, numbers that nobody can repeat."""
    if seed is not None:
        return Generators(seed, *labels)
    # It needs cryptography, which is optional, so it is imported only here.
    from gossamer.privacy.exact.secret_randomness import FreshNumbers

    return FreshNumbers()


def sampled(numbers: Numbers, number: int, sampling: Sampling, count: int) -> IndexArray:
    """Positions in a shard of ``count`` examples that ``sampling`` draws from the numbers of ``number``."""
    if type(numbers) is Generators and type(sampling) is Poisson:
        from gossamer.philox import poisson_sample  # a compiler's import takes as long as most commands

        return poisson_sample(numbers.key, number, count, sampling.probability)
    return sampling.draw(numbers.at(number), count)


def generator_of(numbers: Numbers, number: int) -> np.random.Generator:
    """The generator of ``number``; from a seed, one that is made only if more than normal numbers are asked of it."""
    return cast(np.random.Generator, _Late(numbers, number)) if type(numbers) is Generators else numbers.at(number)


class _Late:
    """A generator whose first vector of float32 normals, often all that is drawn, needs no object of numpy's."""

    __slots__ = ("_drawn", "_made", "_number", "_stream")

    def __init__(self, stream: Generators, number: int) -> None:
        self._stream, self._number = stream, number
        self._drawn = False
        self._made: np.random.Generator | None = None

    def standard_normal(self, size: Any = None, dtype: Any = np.float64, out: Any = None) -> Any:
        quick = out is None and type(size) is int and size <= PART and np.dtype(dtype) == np.float32
        if not quick or self._drawn or self._made is not None:  # threads share the making of more
            return self._generator().standard_normal(size, dtype, out)
        from gossamer.philox import normals  # a compiler's import takes as long as most commands

        found: FloatArray = np.empty(size, np.float32)
        normals(self._stream.key, self._number, found)
        self._drawn = True
        return found

    def _generator(self) -> np.random.Generator:
        if self._made is None:
            self._made = self._stream.at(self._number)
            if self._drawn:
                self._made.bit_generator.random_raw(2)  # what the normal numbers followed from
        return self._made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._generator(), name)


class RoundMark(Protocol):
    """A whole number that only grows, and outlives the process."""

    @property
    def round(self) -> int:
        """The newest round that was reached; -1 before the first."""
        ...

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns. If it raises, nothing may be said."""
        ...


class MarkInMemory:
    """A mark that ends with its process: for simulations, where no process ends."""

    def __init__(self) -> None:
        self.round = -1

    def reached(self, round: int) -> None:
        self.round = round


CHARGING, DRAWING = "charging a release", "drawing noise"
"""Where a process may be killed; see `Home.crashpoint`."""


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


class Noise(Protocol):
    """Noise of a world: how it is provided for, drawn, and handed over."""

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

    def stream(self, plan: Stream, numbers: Numbers) -> StreamNoise:
        """The noise of a stream, drawn from ``numbers`` where it can be repeated.

        Raises
        ------
        SpecError
            If it cannot be drawn.
        """
        ...


class Home(Protocol):
    """The world that data sides live in.

    It keeps nothing, signs nothing and has nobody killed, unless it says so.
    """

    noise: Noise
    """Noise of all that is released."""

    def seed(self, owner: str, purpose: str = "") -> int | None:
        """Seed of the owner's numbers for one purpose; None where nobody can repeat them.

        With one the numbers of a charge can be drawn again, bit for bit, and a second answer is the first one.
        """
        ...

    def sums(self, objective: Objective, data: Split) -> Sums:
        """Return a way to compute sums over samples: all together, or each in pieces whose rounding is provided for."""
        ...

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        """The ledger of a party whose plan is charged, with the whole plan in it."""
        ...

    def charged(self, name: str, task: Any, receipt: Receipt, charge: Callable[[Receipt], int]) -> int:
        """Have party ``name`` ``charge`` a ``task``, and note it, before anything is drawn: both last, or neither."""
        return charge(receipt)

    def kept(self, name: str) -> Kept | None:
        """Storage for what must outlive a crash of a party; None keeps nothing."""
        return None

    def signing(self, name: str) -> Any:
        """Return the `masked_side.Signing` of the keys of masked sums; None where nobody signs them."""
        return None

    def crashpoint(self, what: str) -> None:
        """Told before something lasts, or is seen; here a process of a laboratory may be killed."""
        return None


def numbers_in(home: Home, owner: str, purpose: str) -> Numbers:
    """The owner's numbers for one purpose."""
    return numbers_of(home.seed(owner, purpose), owner, purpose)
