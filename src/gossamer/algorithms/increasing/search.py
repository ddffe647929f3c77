"""Search of growing rounds under the *proved* accountant: the fewest rounds, or the least aggregate noise.

T is searched upwards from the fewest rounds that the largest size and m allow, in steps of a quarter; for the
fewest rounds the step before the first that fits is then bisected. sigma falls as T grows, so with most_sigma alone
that is the fewest; the bound on the noise may leave a gap that a step jumps over. To save time, a candidate is left out
where sampling would have to spare 5 % of the noise that full batches with the same ``sum_i (s_i/N_c)^2`` need
(measured: never more than 0.5 %).

For the least noise all schedules of the grid are estimated first (`increasing.planning.estimated_sigma`), and
accounted for from the least estimate on, until something fits and `_FINALISTS` more have been looked at. Only what is
accounted for is ever found.

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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache

import numpy as np

from gossamer.algorithms.increasing import planning as of
from gossamer.errors import BudgetUnreachable, SpecError
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
        Budget that is to be proved.
    dataset_size, gradients : int
        N_c and K.
    relation : NeighboringRelation
        Relation that epsilon is about.
    powers : sequence of float
        Every p that is tried; 0 is a constant schedule.
    initial_sizes : sequence of int, optional
        Every s_0 that is tried; by default the powers of four below most_size, and most_size.
    most_size : int, optional
        Size of the largest round; by default a tenth of the data set, or the initial size if that is larger.
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
        if not all(1 <= size <= self.largest for size in self.initial_sizes) or self.largest > self.dataset_size:
            raise SpecError(
                f"expected 1 <= initial size <= largest size <= {self.dataset_size} examples, found an initial size of "
                f"{max(self.initial_sizes, default=1)} and a largest of {self.largest}"
            )
        if self.gradients > of.MOST_ROUNDS * self.largest:
            raise SpecError(
                f"{self.gradients} gradients take more than {of.MOST_ROUNDS:,} rounds of at most {self.largest}; ask "
                "for fewer gradients or allow larger rounds"
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

    def spent(self, sizes: of.Sizes, sigma: float) -> float:
        """Epsilon that is proved of rounds of ``sizes`` with noise of multiplier sigma."""
        return of.proved_epsilon(of.schedule_of(sizes, self.dataset_size), sigma, self.delta, self.relation)


@dataclass(frozen=True)
class FoundRounds:
    """A schedule that meets the budget.

    Attributes
    ----------
    search : RoundSearch
        Terms of the search.
    initial_size, power, m
        Constants of the sizes ceil(s_0 (1 + i/m)^p).
    sizes : ndarray [rounds]
        All of them.
    sigma : float
        The least multiplier that is proved.
    """

    search: RoundSearch
    initial_size: int
    power: float
    m: float
    sizes: of.Sizes
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
        return self.search.spent(self.sizes, self.sigma)

    @property
    def constant_rounds(self) -> int:
        """Rounds of the constant schedule of the initial size with K gradients."""
        return -(-self.search.gradients // self.initial_size)

    @property
    def constant_noise(self) -> float | None:
        """Its aggregate noise at the least sigma that is proved; None where that is above 1000."""
        return constant_noise(self.search, self.initial_size)


@lru_cache(maxsize=64)
def constant_noise(search: RoundSearch, size: int) -> float | None:
    """Aggregate noise of the constant schedule of ``size`` at its least sigma; None where that is above 1000."""
    schedule = of.constant_schedule(size, search.dataset_size, search.gradients)
    sigma = of.smallest_sigma(schedule, search.epsilon, search.delta, search.relation)
    return None if sigma is None else math.sqrt(sum(schedule.values())) * sigma


Report = Callable[[str], None]
"""Takes what is being done, in words."""

_STEP = 1.25
_SLACK = 0.95
_BETTER = 0.999  # less improvement of the noise than this is not worth a calibration
_FINALISTS = 6
_DOUBT = 1.1  # the estimate may be so many times too large
_SAMPLED = 2048  # rounds that an estimate looks at


def search_rounds(search: RoundSearch, report: Report = lambda text: None) -> FoundRounds:
    """The best schedule of the grid.

    Parameters
    ----------
    search : RoundSearch
        Terms of the search.
    report : callable, optional
        Called before every look at a schedule.

    Raises
    ------
    BudgetUnreachable
        If no schedule of the grid keeps the bounds.
    """
    full = of.full_batch_sigma(search.epsilon, search.delta, search.relation)
    grid = [_Candidates(search, start, power, full, report) for start in search.starts for power in search.powers]
    best = (_fewest if search.objective is Objective.ROUNDS else _quietest)(grid)
    if best is None:
        raise BudgetUnreachable(
            f"no schedule of at most {search.largest} gradients a round and {search.gradients} in all meets epsilon "
            f"{search.epsilon:g} at delta {search.delta:g} with sigma up to {search.most_sigma:g} and "
            f"{search.most_noise:g} times the constant schedule's noise; allow more, or a larger epsilon"
        )
    return best


def _fewest(grid: list[_Candidates]) -> FoundRounds | None:
    """The fewest rounds, looked for first where the estimate has them: the others are soon left out then."""
    best: FoundRounds | None = None
    for candidates in sorted(grid, key=_Candidates.estimated_rounds):
        best = candidates.fewer_than(best)
    return best


def _quietest(grid: list[_Candidates]) -> FoundRounds | None:
    """The least noise of those that are estimated to have it."""
    estimates = [
        (noise, index, rounds) for index, candidates in enumerate(grid) for noise, rounds in candidates.estimates()
    ]
    best: FoundRounds | None = None
    looked = 0
    for estimate, index, rounds in sorted(estimates):
        if best is not None and (looked >= _FINALISTS or estimate > _DOUBT * best.aggregate_noise):
            break
        looked += best is not None
        noise = math.inf if best is None else best.aggregate_noise * _BETTER
        if grid[index].fits(rounds, noise):
            best = grid[index].found(rounds, noise)
    return best


@dataclass(frozen=True)
class _Candidates:
    """The schedules of one initial size and power, by their number of rounds."""

    search: RoundSearch
    start: int
    power: float
    full: float  # sigma of one release on the full batch
    report: Report

    @cached_property
    def cap(self) -> float:
        """Bound on the aggregate noise."""
        reference = constant_noise(self.search, self.start)
        return math.inf if reference is None else self.search.most_noise * reference

    def fewer_than(self, best: FoundRounds | None) -> FoundRounds | None:
        """The fewest rounds of these that are fewer than ``best``'s, else ``best``."""
        below = 0
        for rounds in self._grid(of.MOST_ROUNDS if best is None else best.rounds - 1):
            if self.fits(rounds):
                return self.found(below + 1 + bisect_left(range(below + 1, rounds), True, key=self.fits))
            below = rounds
        return best

    def estimates(self) -> Iterator[tuple[float, int]]:
        """The noise of each number of rounds, roughly, where the bounds may be kept."""
        search = self.search
        shares = self.start / search.dataset_size
        constant = -(-search.gradients // self.start)
        reference = math.sqrt(constant) * of.estimated_sigma(constant * shares**2, self.full)
        most = search.most_noise * reference * _DOUBT**2
        for rounds in self._grid(of.MOST_ROUNDS):
            squares = self._squares(rounds)
            unsampled = self.full * math.sqrt(squares)
            noise = math.sqrt(rounds) * of.estimated_sigma(squares, self.full)
            if _SLACK * unsampled <= search.most_sigma and min(noise, math.sqrt(rounds) * unsampled) <= most:
                yield noise, rounds

    def estimated_rounds(self) -> float:
        """The fewest rounds with which the bounds may be kept, roughly."""
        return next((rounds for _, rounds in self.estimates()), math.inf)

    def _squares(self, rounds: int) -> float:
        """sum_i (s_i/N_c)^2, from a sample of the rounds where they are many."""
        count = min(rounds, _SAMPLED)
        places = np.floor((np.arange(count) + 0.5) * (rounds / count))
        sizes = self._slowest(rounds, places)[1]
        return float(np.mean(np.square(sizes / self.search.dataset_size))) * rounds

    def fits(self, rounds: int, noise: float = math.inf) -> bool:
        """Whether K gradients in T rounds meet the budget within the bounds and with at most ``noise`` in all."""
        self.report(f"{rounds} rounds that start at {self.start}, power {self.power:g}")
        if (known := self._sizes(rounds)) is None:
            return False
        sizes, search = known[1], self.search
        unsampled = _SLACK * self.full * math.sqrt(float(np.sum(np.square(sizes / search.dataset_size))))
        # The constant schedule's noise, which the last bound needs, takes longer than the others.
        if unsampled > min(search.most_sigma, noise / math.sqrt(sizes.size)):
            return False
        sigma = self._most_sigma(sizes, noise)
        return sigma >= max(unsampled, LEAST_MULTIPLIER) and search.spent(sizes, sigma) <= search.epsilon

    def found(self, rounds: int, noise: float = math.inf) -> FoundRounds:
        """Return sizes that fit, with their least sigma."""
        known = self._sizes(rounds)
        assert known is not None
        (m, sizes), search = known, self.search
        schedule = of.schedule_of(sizes, search.dataset_size)
        sigma = of.smallest_sigma(schedule, search.epsilon, search.delta, search.relation)
        # It is found to 0.1 %, which may be above a bound that the true one keeps.
        most = self._most_sigma(sizes, noise)
        return FoundRounds(search, self.start, self.power, m, sizes, most if sigma is None else min(sigma, most))

    def _most_sigma(self, sizes: of.Sizes, noise: float) -> float:
        return min(self.search.most_sigma, min(noise, self.cap) / math.sqrt(float(sizes.size)))

    def _grid(self, most: int) -> Iterator[int]:
        """Numbers of rounds up to ``most``, from the fewest that most_size allows to those of the constant schedule."""
        constant = -(-self.search.gradients // self.start)
        last = min(constant, most)
        first = rounds = (
            constant
            if self.power == 0
            else 1 + bisect_left(range(1, min(constant, of.MOST_ROUNDS + 1)), True, key=self._enough)
        )
        while rounds < last:
            yield rounds
            rounds = max(rounds + 1, math.floor(rounds * _STEP))
        if first <= last:
            yield last

    def _enough(self, rounds: int) -> bool:
        """Whether the fastest growth makes K gradients."""
        wanted = self.search.gradients
        return rounds * self.start >= wanted or bool(self._grown(self._most(rounds), rounds)[1].sum() >= wanted)

    def _most(self, rounds: int) -> float:
        """The largest last size."""
        return min(float(self.search.largest), self.start * math.pow(1.0 + (rounds - 1) / LEAST_M, self.power))

    def _sizes(self, rounds: int) -> tuple[float, of.Sizes] | None:
        """m and the sizes of the slowest growth that makes K gradients in so many rounds; None where even the fastest
        one does not."""
        wanted = self.search.gradients
        if self.power == 0 or rounds * self.start >= wanted:
            enough = -(-wanted // self.start)
            few = enough <= min(rounds, of.MOST_ROUNDS)
            return (1.0, of.power_sizes(self.start, 1.0, 0.0, enough)) if few else None
        if not self._enough(rounds):
            return None
        m, sizes = self._slowest(rounds, np.arange(rounds))
        return m, sizes[: of.rounds_for(sizes, wanted)]

    def _slowest(self, rounds: int, places: of.Places) -> tuple[float, of.Sizes]:
        """m of the slowest growth that makes K gradients, by the mean of the sizes at ``places``, and those sizes."""
        wanted = self.search.gradients * places.size / rounds
        low, high = float(self.start), self._most(rounds)
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._grown(middle, rounds, places)[1].sum() >= wanted else (middle, high)
        return self._grown(high, rounds, places)

    def _grown(self, last_size: float, rounds: int, places: of.Places | None = None) -> tuple[float, of.Sizes]:
        """m and the sizes, or those at ``places``, that start at s_0 and end at ``last_size``."""
        places = np.arange(rounds) if places is None else places
        if last_size <= self.start:
            return math.inf, np.full(places.size, self.start)
        m = (rounds - 1) / math.expm1(math.log(last_size / self.start) / self.power)
        return m, of.sizes_at(places, self.start, m, self.power)
