"""Schedules of growing rounds under the *proved* accountant: the fewest rounds, or the least aggregate noise.

What is searched. Sizes s_i = ceil(s_0 (1 + i/m)^p) = ceil(N_c q (i + m)^p), as many of them as make K gradients. For
each p and s_0 of a grid and each number of rounds T, m is the one with the slowest growth that makes K gradients in T
rounds, found by bisection on the last size. sigma is the least noise multiplier that is proved for (epsilon, delta).

What bounds it. Without bounds the fewest rounds would be one round of all K gradients. So no round is larger than
``most_size``, sigma is at most ``most_sigma``, and the aggregate noise sqrt(T) sigma is at most ``most_noise`` times
that of the constant schedule of size s_0 with K gradients, at its own least sigma for the same (epsilon, delta). And
m >= 1: the second round is at most 2^p times the first, so that growth is not a jump.

What to expect. As long as sigma is not small, sqrt(T) sigma is about sqrt(T sum_i s_i^2)/N_c times a constant. By the
Cauchy-Schwarz inequality that is least, for any T, when all s_i are equal. So under the proved accountant growing sizes
save neither noise nor rounds against larger rounds of one size. What they buy is a small start: give s_0, and the
search finds how fast rounds may grow from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

from gossamer.algorithms.increasing.calibration import (
    Sizes,
    constant_schedule,
    proved_epsilon,
    schedule_of,
    smallest_sigma,
)
from gossamer.algorithms.increasing.selection import MOST_ROUNDS, require_count, require_number
from gossamer.errors import SpecError
from gossamer.privacy.accounting.planner import LEAST_MULTIPLIER
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation

POWERS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Searched where no power is given; with 0 sizes are constant."""

LEAST_M = 1.0
"""Smaller m would make the second round more than 2^p times the first."""


class Objective(StrEnum):
    """Quantity that is made least."""

    ROUNDS = "rounds"
    NOISE = "noise"


@dataclass(frozen=True)
class RoundSearch:
    """Terms of a search.

    Attributes
    ----------
    objective : Objective
        Rounds, or aggregate noise.
    epsilon, delta : float
        What is to be proved.
    dataset_size, gradients : int
        N_c and K.
    relation : NeighboringRelation
        Of epsilon.
    powers : sequence of float
        Every p that is tried; 0 is a constant schedule.
    initial_sizes : sequence of int, optional
        Every s_0 that is tried; by default the powers of four below most_size, and most_size.
    most_size : int, optional
        Of any round; by default a tenth of the data set, or the initial size if that is larger.
    most_sigma : float
        Largest noise multiplier.
    most_noise : float
        Largest aggregate noise, relative to that of the constant schedule of the initial size.

    Raises
    ------
    SpecError, AccountingError
        If a number is out of its range.
    """

    objective: Objective
    epsilon: float
    delta: float
    dataset_size: int
    gradients: int
    relation: NeighboringRelation = NeighboringRelation.ADD_OR_REMOVE_ONE
    powers: Sequence[float] = POWERS
    initial_sizes: Sequence[int] = ()
    most_size: int | None = None
    most_sigma: float = 8.0
    most_noise: float = 1.25

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)
        for name in ("dataset_size", "gradients", "most_size"):
            require_count(name, getattr(self, name), optional=name == "most_size")
        for size in self.initial_sizes:
            require_count("initial size", size)
        for name in ("most_sigma", "most_noise"):
            require_number(name, getattr(self, name))
        for power in self.powers:
            require_number("power", power)
        if self.dataset_size < 1 or self.gradients < 1:
            raise SpecError(f"expected examples and gradients, found {self.dataset_size} and {self.gradients}")
        if not (all(0 <= p <= 4 for p in self.powers) and self.powers):
            raise SpecError(f"the power of the sizes must be from 0 to 4, found {list(self.powers)}")
        if not (LEAST_MULTIPLIER <= self.most_sigma <= 1000 and 0 < self.most_noise < math.inf):
            raise SpecError(
                f"expected a largest sigma from {LEAST_MULTIPLIER} to 1000 and a largest noise above 0, "
                f"found {self.most_sigma!r} and {self.most_noise!r}"
            )
        if not all(1 <= size <= self.largest for size in self.initial_sizes) or self.largest > self.dataset_size:
            raise SpecError(
                f"expected 1 <= initial size <= largest size <= {self.dataset_size} examples, found an initial size of "
                f"{max(self.initial_sizes, default=1)} and a largest of {self.largest}"
            )
        if self.gradients > MOST_ROUNDS * self.largest:
            raise SpecError(
                f"{self.gradients} gradients take more than {MOST_ROUNDS:,} rounds of at most {self.largest}; ask for "
                "fewer gradients or allow larger rounds"
            )

    @property
    def largest(self) -> int:
        """The most gradients in a round."""
        if self.most_size is not None:
            return self.most_size
        return max(self.dataset_size // 10, 1, *self.initial_sizes)

    @property
    def starts(self) -> list[int]:
        """The initial sizes that are tried, largest first; none needs to be larger than K."""
        powers = [4**k for k in range(self.largest.bit_length()) if 4**k < self.largest]
        sizes = self.initial_sizes or [*powers, self.largest]
        return sorted({min(size, self.gradients) for size in sizes}, reverse=True)


@dataclass(frozen=True)
class FoundRounds:
    """A schedule that meets the budget.

    Attributes
    ----------
    search : RoundSearch
        What was searched for.
    initial_size, power, m
        Of the sizes ceil(s_0 (1 + i/m)^p).
    sizes : ndarray [rounds]
        All of them.
    sigma : float
        The least multiplier that is proved.
    """

    search: RoundSearch
    initial_size: int
    power: float
    m: float
    sizes: Sizes
    sigma: float

    @property
    def q(self) -> float:
        """s_0/(N_c m^p)."""
        return self.initial_size / self.search.dataset_size / float(self.m**self.power)

    @property
    def rounds(self) -> int:
        return int(self.sizes.size)

    @property
    def aggregate_noise(self) -> float:
        """sqrt(T) sigma."""
        return math.sqrt(self.rounds) * self.sigma

    @cached_property
    def epsilon(self) -> float:
        """Proved with sigma; never above the budget."""
        asked = self.search
        return proved_epsilon(schedule_of(self.sizes, asked.dataset_size), self.sigma, asked.delta, asked.relation)

    @property
    def constant_rounds(self) -> int:
        """Rounds of the constant schedule of the initial size with K gradients."""
        return -(-self.search.gradients // self.initial_size)

    @property
    def constant_noise(self) -> float | None:
        """Its aggregate noise at the least sigma that is proved; None where that is above 1000."""
        return constant_noise(self.search, self.initial_size)


@lru_cache(maxsize=64)
def _constant_noise(
    size: int, dataset_size: int, gradients: int, epsilon: float, delta: float, relation: NeighboringRelation
) -> float | None:
    schedule = constant_schedule(size, dataset_size, gradients)
    sigma = smallest_sigma(schedule, epsilon, delta, relation)
    return None if sigma is None else math.sqrt(sum(schedule.values())) * sigma


def constant_noise(search: RoundSearch, size: int) -> float | None:
    """Aggregate noise of the constant schedule of ``size`` at its least sigma; None where that is above 1000."""
    return _constant_noise(size, search.dataset_size, search.gradients, search.epsilon, search.delta, search.relation)
