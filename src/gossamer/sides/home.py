"""Homes: what differs from world to world, and nothing else does.

| world | numbers | noise | ledger | over a restart |
|---|---|---|---|---|
| simulation (`Simulated`) | from a seed, the same again | floating point | in memory | nothing is kept |
| deployment (`deployed`) | the operating system's, never again | Gaussian noise on a grid | durable | marks, records |
| laboratory of faults (`faults`) | from a seed, another in each life | floating point | durable | a trial's choice |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import NoisyObjective, Normals, Objective
from gossamer.privacy.exact.grid_noise import words_of
from gossamer.privacy.mechanisms import BatchSampling, Poisson
from gossamer.privacy.streams.correlated_noise import NoiseState, NoiseStream, StreamRecord, StreamRecords
from gossamer.privacy.tasks import Query
from gossamer.protocol.snapshots import Kept, kept_whole
from gossamer.randomness import Stream as Generators
from gossamer.sides.ledger import Ledger, MemoryLedger, Receipt
from gossamer.sides.plan import SidePlan, StreamPlan
from gossamer.sides.receipts import Noting
from gossamer.sides.sums import NOTHING_PROVIDED, GridQuery, Inputs, Noisy, Provided, Rounding, Sums, Together, Total


class Numbers(Protocol):
    """A family of generators, one a number."""

    def at(self, number: int) -> np.random.Generator:
        """The generator of ``number``: the same numbers again, if they come from a seed."""


def numbers_of(seed: int | None, *labels: str) -> Numbers:
    """Those of ``seed`` for one purpose; without a seed, numbers that nobody can repeat."""
    if seed is not None:
        return Generators(seed, *labels)
    # It needs cryptography, which is optional, so it is imported only here.
    from gossamer.privacy.exact.secret_randomness import FreshNumbers

    return FreshNumbers()


def sampled(numbers: Numbers, number: int, sampling: BatchSampling, count: int) -> IndexArray:
    """Positions in a shard of ``count`` examples that ``sampling`` draws from the numbers of ``number``."""
    if type(numbers) is Generators and type(sampling) is Poisson:
        from gossamer.philox import poisson_sample  # a compiler's import takes as long as most commands

        return poisson_sample(numbers.key, number, count, sampling.probability)
    return sampling.draw(numbers.at(number), count)


class RoundMark(Protocol):
    """The newest round that an agent may have said something secret in: all that its masks leave behind.

    It only grows, and outlives the process. An agent's keys live for one sum and are never stored. After a restart they
    are gone, and with others it must not take part in the same sum again: it would answer twice, and two masked vectors
    of one round, with all others in them the same, have a difference that no mask hides. So the round is marked before
    the first message that depends on a secret, and rounds up to the mark are refused ever after. The server counts the
    agent as vanished from that sum.
    """

    @property
    def round(self) -> int:
        """The newest round that was reached; -1 before the first."""

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns. If it raises, nothing may be said."""


class MarkInMemory(Kept):
    """A mark that ends with its process: for simulations, where no process ends."""

    changing = ("round",)

    def __init__(self) -> None:
        self.round = -1

    def reached(self, round: int) -> None:
        self.round = round


CHARGING, DRAWING = "charging a release", "drawing noise"
"""Where a process may be killed; see `Home.crashpoint`."""


for _kind in (NoiseState, StreamRecord):  # as they are in a stream that is kept
    kept_whole(_kind)


class FloatStream(Kept):
    """Correlated noise in floating point, whose state ends with its process."""

    changing = ("_state",)

    needed = 0
    """Number of records before it that the next one is made of."""

    def __init__(self, plan: StreamPlan, numbers: Numbers) -> None:
        self._stream = None if plan.law is None else NoiseStream(plan.law, plan.size)
        self._state, self._numbers = NoiseState(), numbers

    def answer(self, number: int, state: FloatArray, before: list[StreamRecord]) -> FloatArray:
        """The record [size] with fresh noise: the state plus the next noise of the stream."""
        if self._stream is None:
            return state
        noise, self._state = self._stream.draw(self._state, self._numbers.at(number))
        return state + noise


class SideStore(RoundMark, StreamRecords, Protocol):
    """State that a data side keeps over restarts: the mark of a masked member, the records of a stream."""


def saturated(answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
    """An answer in another type; what is out of its range saturates."""
    with np.errstate(over="ignore"):
        return np.asarray(np.nan_to_num(answer.astype(dtype), copy=False))


class FloatNoise:
    """Noise in floating point, drawn from numbers that may be repeated."""

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        """Return what a release of ``size`` numbers is drawn with; asked before it is charged.

        Raises
        ------
        SpecError
            If its noise cannot be drawn.
        """
        return NOTHING_PROVIDED

    def noisy(
        self, total: FloatArray, centred: float, query: Query, provided: Provided, numbers: Numbers, number: int
    ) -> FloatArray:
        """The sum [size] with its noise, and after it the noisy count ``centred``, if the query asks for one.

        What is not drawn on a grid is drawn from that ``number`` of ``numbers``.
        """
        generator = numbers.at(number)
        law, count_sd = query.mechanism.divided(query.count_share)
        answer: FloatArray = law.noise(generator, total.size, total.dtype) + total
        if query.count_share:
            answer = np.append(answer, total.dtype.type(centred + count_sd * generator.standard_normal()))
        return answer

    def finished(self, answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        """An answer in the type in which it is handed over."""
        return answer

    def stream(self, plan: StreamPlan, numbers: Numbers) -> FloatStream:
        """The noise of a stream, drawn from ``numbers`` where it can be repeated.

        Raises
        ------
        SpecError
            If it cannot be drawn.
        """
        return FloatStream(plan, numbers)


class GridNoise(FloatNoise):
    """Gaussian noise on a grid, drawn from any numbers; other laws in floating point."""

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        found = rounding()
        if (normal := query.mechanism.normal) is None:
            return Provided(found)
        return Provided(found, GridQuery.of(normal, size, found, query.count_share, any_clip=any_clip))

    def noisy(
        self, total: FloatArray, centred: float, query: Query, provided: Provided, numbers: Numbers, number: int
    ) -> FloatArray:
        if provided.grid is not None:
            return provided.grid.release(total, centred, words_of(numbers.at(number)))
        answer = query.mechanism.noise(numbers.at(number), total.size, total.dtype)
        answer += total
        np.nan_to_num(answer, copy=False)  # without a clip a sum can overflow: it saturates
        # A count goes with Gaussian noise or none, and here there is none.
        return np.append(answer, answer.dtype.type(centred)) if query.count_share else answer

    def finished(self, answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        """The answer in the objective's type."""
        return saturated(answer, dtype)


class Home(Protocol):
    """The world that data sides live in.

    It keeps nothing, signs nothing and has nobody killed, unless it says so.
    """

    noise: FloatNoise
    """Noise of all that is released."""

    def seed(self, owner: str, purpose: str = "") -> int | None:
        """Seed of the owner's numbers for one purpose; None where nobody can repeat them.

        With one the numbers of a charge can be drawn again, bit for bit, and a second answer is the first one.
        """

    def sums(self, objective: Objective, data: Split) -> Sums:
        """Return a way to compute sums over samples: all together, or each in pieces whose rounding is provided for."""

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        """The ledger of a party whose plan is charged, with the whole plan in it."""

    def charged(self, name: str, task: Any, receipt: Receipt, charge: Callable[[Receipt], int]) -> int:
        """Have party ``name`` ``charge`` a ``task``, and note it, before anything is drawn: both last, or neither."""
        return charge(receipt)

    def kept(self, name: str) -> SideStore | None:
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


class NoisyTogether(Together):
    """All gradients of a call in one, with their noise, drawn where they are computed, such as on a graphics card.

    The noise is the one that `FloatNoise.noisy` draws: normal numbers of the same keys, to a few units in the last
    place. Other laws, and sums in float64, leave here without noise, and get it as everywhere.

    Parameters
    ----------
    objective : Objective
        A `NoisyObjective`.
    data : Split
        The training examples.
    numbers : callable
        The noise's numbers of an owner, by name.
    """

    def __init__(self, objective: Objective, data: Split, numbers: Callable[[str], Numbers]) -> None:
        super().__init__(objective, data)
        assert isinstance(objective, NoisyObjective)
        self._noisy, self._numbers = objective, numbers
        self._streams: dict[str, Numbers] = {}

    def gradients(self, asked: Sequence[Inputs]) -> list[Total | Noisy]:
        """The clipped sums of gradients, those of normal noise with it."""
        keys, deviations = np.zeros((len(asked), 2), np.uint64), np.zeros(len(asked))
        for place, item in enumerate(asked):
            if (deviation := self._deviation(item)) is not None:
                keys[place], deviations[place] = self._keys(item), deviation
        models, batches, clips = self.gathered(asked)
        found = self._noisy.noisy_gradients(models, self._data, batches, clips, Normals(keys, deviations))
        rows = zip(asked, found.sums, found.zeroed.tolist(), found.unclipped.tolist(), deviations > 0, strict=True)
        return [
            self._with_count(item, total, zeroed, unclipped)
            if drawn
            else Total(total, zeroed, unclipped, len(item.drawn))
            for item, total, zeroed, unclipped, drawn in rows
        ]

    def _deviation(self, item: Inputs) -> float | None:
        """Standard deviation of the noise that is added here; None where it is added elsewhere, or there is none."""
        query = item.ticket.task.query
        law, _ = query.mechanism.divided(query.count_share)
        normal = law.normal if self.objective.dtype == np.float32 else None
        return None if normal is None or type(self._stream(item)) is not Generators else normal.standard_deviation

    def _keys(self, item: Inputs) -> tuple[np.uint64, np.uint64]:
        from gossamer.philox import first_words  # a compiler's import takes as long as most commands

        return first_words(self._stream(item).key, item.ticket.number)  # type: ignore[attr-defined, no-any-return]

    def _stream(self, item: Inputs) -> Numbers:
        name = item.ticket.side.name
        if name not in self._streams:
            self._streams[name] = self._numbers(name)
        return self._streams[name]

    def _with_count(self, item: Inputs, total: FloatArray, zeroed: int, unclipped: int) -> Noisy:
        query = item.ticket.task.query
        if query.count_share:
            _, deviation = query.mechanism.divided(query.count_share)
            generator = self._stream(item).at(item.ticket.number)
            generator.bit_generator.random_raw(2)  # what the sum's noise followed from
            count = unclipped - len(item.drawn) / 2 + deviation * generator.standard_normal()
            total = np.append(total, total.dtype.type(count))
        return Noisy(total, zeroed)


class Simulated(Home):
    """A world in which everything follows from ``seed``; good for simulation only.

    Parameters
    ----------
    seed : int
        Seed of sampling, noise and masks: secret where something is to be hidden.
    ledgers : mapping of str to Ledger, optional
        Ledgers that were charged before, by owner, and are charged further.
    samples : int, optional
        Seed of samples, where they are to be those of other runs; by default ``seed``.
    book : Noting, optional
        Book in which receipts are noted.
    """

    noise = FloatNoise()

    def __init__(
        self,
        seed: int,
        ledgers: Mapping[str, Ledger] | None = None,
        samples: int | None = None,
        book: Noting | None = None,
    ) -> None:
        self._seed, self._charged = seed, ledgers or {}
        self._samples, self._book = samples, book

    def seed(self, owner: str, purpose: str = "") -> int:
        return self._samples if purpose == "sampling" and self._samples is not None else self._seed

    def sums(self, objective: Objective, data: Split) -> Sums:
        if isinstance(objective, NoisyObjective):
            return NoisyTogether(objective, data, lambda owner: numbers_in(self, owner, "noise"))
        return Together(objective, data)

    def charged(self, name: str, task: Any, receipt: Receipt, charge: Callable[[Receipt], int]) -> int:
        number = charge(receipt)
        if self._book is not None:
            self._book.add(name, task, receipt)
        return number

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        if name in self._charged:
            return self._charged[name]
        charges = plan.charges()
        assert charges is not None, f"nothing is charged to {name}"
        return MemoryLedger(name, charges)
