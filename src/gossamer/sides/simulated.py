"""The home of simulated data sides: numbers from one seed, noise in floating point, ledgers in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.asked import NoisyObjective
from gossamer.objectives.objective import Objective
from gossamer.privacy.streams.kept_records import Record
from gossamer.privacy.streams.noise_streams import NoiseState, NoiseStream
from gossamer.privacy.tasks import Query
from gossamer.randomness import Stream as Generators
from gossamer.sides.answers import divided
from gossamer.sides.charges import Receipt
from gossamer.sides.home import Home, StreamNoise
from gossamer.sides.ledger import Ledger, MemoryLedger
from gossamer.sides.noisy_sums import NoisyTogether
from gossamer.sides.number_source import Numbers, generator_of
from gossamer.sides.plan import SidePlan, Stream
from gossamer.sides.receipts import Noting
from gossamer.sides.sum_rounding import Rounding
from gossamer.sides.sums import Provided, Sums, Together

_NOTHING = Provided()


class Simulated(Home):
    """A world in which everything follows from ``seed``; good for simulation only.

    Parameters
    ----------
    seed : int
        Of sampling, noise and masks: secret where something is to be hidden.
    ledgers : mapping of str to Ledger, optional
        Ledgers that were charged before, by owner, and are charged further.
    samples : int, optional
        Seed of samples, where they are to be those of other runs; by default ``seed``.
    book : Noting, optional
        Where receipts are noted.
    """

    repeats = True

    def __init__(
        self,
        seed: int,
        ledgers: Mapping[str, Ledger] | None = None,
        samples: int | None = None,
        book: Noting | None = None,
    ) -> None:
        self._seed, self._charged = seed, ledgers or {}
        self._samples, self._book = samples, book

    def seed(self, owner: str) -> int:
        return self._seed

    def numbers(self, owner: str, purpose: str) -> Numbers:
        common = self._samples if purpose == "sampling" else None
        return Generators(self.seed(owner) if common is None else common, owner, purpose)

    def sums(self, objective: Objective, data: Split) -> Sums:
        if isinstance(objective, NoisyObjective):
            return NoisyTogether(objective, data, lambda owner: self.numbers(owner, "noise"))
        return Together(objective, data)

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        return _NOTHING

    def noisy(
        self, total: FloatArray, centred: float, query: Query, provided: Provided, numbers: Numbers, number: int
    ) -> FloatArray:
        generator = generator_of(numbers, number)
        law, count_sd = divided(query.mechanism, query.count_share)
        answer: FloatArray = law.noise(generator, total.size, total.dtype) + total
        if query.count_share:
            answer = np.append(answer, total.dtype.type(centred + count_sd * generator.standard_normal()))
        return answer

    def finished(self, answer: FloatArray, dtype: npt.DTypeLike) -> FloatArray:
        return answer

    def charged(self, name: str, task: Any, receipt: Receipt) -> None:
        if self._book is not None:
            self._book.add(name, task, receipt)

    def stream(self, name: str, plan: Stream) -> FloatStream:
        return FloatStream(plan, self.numbers(name, "noise"))

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
