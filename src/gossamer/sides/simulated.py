"""The home of simulated data sides: numbers from one seed, noise in floating point, ledgers in memory.

Sums of a simulation that get their noise where they are computed, all of a call together, such as on a graphics
card.

The noise is the one that `FloatNoise.noisy` draws: normal numbers of the same keys, to a few units in the last place.
Other laws, and sums in float64, leave here without noise, and get it as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.asked import NoisyObjective, Normals
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.noise_streams import NoiseState, NoiseStream, Record
from gossamer.privacy.tasks import Query
from gossamer.randomness import Stream as Generators
from gossamer.sides.home import Home, Noise, Numbers, StreamNoise, generator_of, numbers_in
from gossamer.sides.ledger import Ledger, MemoryLedger, Receipt
from gossamer.sides.plan import SidePlan, Stream
from gossamer.sides.receipts import Noting
from gossamer.sides.sum_rounding import Rounding
from gossamer.sides.sums import Batch, Noisy, Provided, Sums, Together, Total


class NoisyTogether(Together):
    """All gradients of a call in one, with their noise.

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

    def gradients(self, asked: Sequence[Batch]) -> list[Total | Noisy]:
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
            else Total(total, zeroed, unclipped, len(item.rows))
            for item, total, zeroed, unclipped, drawn in rows
        ]

    def _deviation(self, item: Batch) -> float | None:
        """Standard deviation of the noise that is added here; None where it is added elsewhere, or there is none."""
        query = item.ticket.task.query
        law, _ = query.mechanism.divided(query.count_share)
        normal = law.normal if self.objective.dtype == np.float32 else None
        return None if normal is None or type(self._stream(item)) is not Generators else normal.standard_deviation

    def _keys(self, item: Batch) -> tuple[np.uint64, np.uint64]:
        from gossamer.philox import first_words  # a compiler's import takes as long as most commands

        return first_words(self._stream(item).key, item.ticket.number)  # type: ignore[attr-defined, no-any-return]

    def _stream(self, item: Batch) -> Numbers:
        name = item.ticket.side.name
        if name not in self._streams:
            self._streams[name] = self._numbers(name)
        return self._streams[name]

    def _with_count(self, item: Batch, total: FloatArray, zeroed: int, unclipped: int) -> Noisy:
        query = item.ticket.task.query
        if query.count_share:
            _, deviation = query.mechanism.divided(query.count_share)
            generator = self._stream(item).at(item.ticket.number)
            generator.bit_generator.random_raw(2)  # what the sum's noise followed from
            count = unclipped - len(item.rows) / 2 + deviation * generator.standard_normal()
            total = np.append(total, total.dtype.type(count))
        return Noisy(total, zeroed)


_NOTHING = Provided()


class FloatNoise(Noise):
    """Noise in floating point, drawn from numbers that may be repeated."""

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        return _NOTHING

    def noisy(
        self, total: FloatArray, centred: float, query: Query, provided: Provided, numbers: Numbers, number: int
    ) -> FloatArray:
        generator = generator_of(numbers, number)
        law, count_sd = query.mechanism.divided(query.count_share)
        answer: FloatArray = law.noise(generator, total.size, total.dtype) + total
        if query.count_share:
            answer = np.append(answer, total.dtype.type(centred + count_sd * generator.standard_normal()))
        return answer

    def finished(self, answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        return answer

    def stream(self, plan: Stream, numbers: Numbers) -> FloatStream:
        return FloatStream(plan, numbers)


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


class FloatStream(StreamNoise):
    """Correlated noise in floating point, whose state ends with its process."""

    needed = 0

    def __init__(self, plan: Stream, numbers: Numbers) -> None:
        self._stream = None if plan.law is None else NoiseStream(plan.law, plan.size)
        self._state, self._numbers = NoiseState(), numbers

    def answer(self, number: int, state: FloatArray, before: list[Record]) -> FloatArray:
        """The state [size] plus the next noise of the stream."""
        if self._stream is None:
            return state
        noise, self._state = self._stream.draw(self._state, self._numbers.at(number))
        return state + noise

    def snapshot(self) -> tuple[Any, ...]:
        return self._state.record, self._state.total, self._state.past

    def restore(self, snapshot: tuple[Any, ...]) -> None:
        self._state = NoiseState(*snapshot)
