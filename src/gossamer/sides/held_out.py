"""Data sides of examples that a model is tested on: one histogram of scores each, with exact noise in every world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gossamer.arrays import FloatArray
from gossamer.privacy.exact.grid_noise import words_of
from gossamer.privacy.guarantees import HELD_OUT
from gossamer.privacy.tasks import Query
from gossamer.sides.home import FloatNoise, Numbers, Simulated
from gossamer.sides.ledger import Charges
from gossamer.sides.plan import Samples
from gossamer.sides.sums import GridQuery, Provided, Rounding


class HeldOut(Samples):
    """Plan of what is said of a party's held-out examples: one noisy sum over all of them."""

    def charges(self) -> Charges:
        return replace(super().charges(), unit=HELD_OUT)


class SeededGrid(FloatNoise):
    """Gaussian noise on a grid, from numbers that may be repeated: exact, as in deployments."""

    def provided(
        self, query: Query, size: int, rounding: Callable[[], Rounding], *, any_clip: bool = False
    ) -> Provided:
        found, normal = rounding(), query.mechanism.normal
        return Provided(found, None if normal is None else GridQuery.of(normal, size, found, any_clip=any_clip))

    def noisy(
        self, total: FloatArray, centred: float, query: Query, provided: Provided, numbers: Numbers, number: int
    ) -> FloatArray:
        if provided.grid is None:
            return super().noisy(total, centred, query, provided, numbers, number)
        return provided.grid.release(total, centred, words_of(numbers.at(number)))


class SimulatedExactly(Simulated):
    """A simulated world whose Gaussian noise is on a grid."""

    noise = SeededGrid()
