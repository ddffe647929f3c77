"""Searching schedules of growing rounds: what fits a `RoundSearch`, and the best of it.

T is searched upwards from the fewest rounds that the largest size and m allow, in steps of a quarter; for the
fewest rounds the step before the first that fits is then bisected. sigma falls as T grows, so with most_sigma alone
that is the fewest; the bound on the noise may leave a gap that a step jumps over. To save time, a candidate is left out
where its largest round alone reveals too much, or where sampling would have to spare 5 % of the noise that full batches
with the same ``sum_i (s_i/N_c)^2`` need (measured: never more than 0.5 %).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gossamer.errors import BudgetUnreachable
from gossamer.experiment.round_planning import (
    Sizes,
    power_sizes,
    proved_epsilon,
    rounds_for,
    schedule_of,
    smallest_sigma,
)
from gossamer.experiment.round_search import LEAST_M, FoundRounds, Objective, RoundSearch, constant_noise
from gossamer.experiment.round_selection import MOST_ROUNDS
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.planner import LEAST_MULTIPLIER
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.rows import row_of
from gossamer.privacy.sampling import Poisson

_STEP = 1.25
_SLACK = 0.95
_BETTER = 0.999  # less improvement of the noise than this is not worth a calibration


def search_rounds(search: RoundSearch) -> FoundRounds:
    """The best schedule of the grid.

    Raises
    ------
    BudgetUnreachable
        If no schedule of the grid keeps the bounds.
    """
    best: FoundRounds | None = None
    full = smallest_sigma({Poisson(1.0): 1}, search.epsilon, search.delta, search.relation) or 0.0
    for start in search.starts:
        for power in search.powers:
            best = _Candidates(search, start, power, full).better_than(best)
    if best is None:
        raise BudgetUnreachable(
            f"no schedule of at most {search.largest} gradients a round and {search.gradients} in all meets epsilon "
            f"{search.epsilon:g} at delta {search.delta:g} with sigma up to {search.most_sigma:g} and "
            f"{search.most_noise:g} times the constant schedule's noise; allow more, or a larger epsilon"
        )
    return best


@dataclass(frozen=True)
class _Candidates:
    """The schedules of one initial size and power, by their number of rounds."""

    search: RoundSearch
    start: int
    power: float
    full: float  # sigma of one release on the full batch

    @property
    def cap(self) -> float:
        """On the aggregate noise."""
        reference = constant_noise(self.search, self.start)
        return math.inf if reference is None else self.search.most_noise * reference

    def better_than(self, best: FoundRounds | None) -> FoundRounds | None:
        """The best of these and ``best``."""
        return self._fewest(best) if self.search.objective is Objective.ROUNDS else self._quietest(best)

    def _fewest(self, best: FoundRounds | None) -> FoundRounds | None:
        below = 0
        for rounds in self._grid(MOST_ROUNDS if best is None else best.rounds - 1):
            if self._fits(rounds):
                return self._found(self._bisected(below, rounds))
            below = rounds
        return best

    def _bisected(self, below: int, fits: int) -> int:
        while fits - below > 1:
            middle = (below + fits) // 2
            below, fits = (below, middle) if self._fits(middle) else (middle, fits)
        return fits

    def _quietest(self, best: FoundRounds | None) -> FoundRounds | None:
        for rounds in self._grid(MOST_ROUNDS):
            noise = math.inf if best is None else best.aggregate_noise * _BETTER
            if self._fits(rounds, noise):
                best = self._found(rounds, noise)
        return best

    def _fits(self, rounds: int, noise: float = math.inf) -> bool:
        """Whether K gradients in T rounds meet the budget within the bounds and with at most ``noise`` in all."""
        known = self._sizes(rounds)
        if known is None:
            return False
        sizes, search = known[1], self.search
        unsampled = _SLACK * self.full * math.sqrt(float(np.sum(np.square(sizes / search.dataset_size))))
        # The constant schedule's noise, which the last bound needs, takes longer than the others.
        if unsampled > min(search.most_sigma, noise / math.sqrt(sizes.size)):
            return False
        sigma = self._most_sigma(sizes, noise)
        if sigma < max(unsampled, LEAST_MULTIPLIER):
            return False
        if self._reveals_too_much(int(sizes[-1]), sigma):
            return False
        schedule = schedule_of(sizes, search.dataset_size)
        return proved_epsilon(schedule, sigma, search.delta, search.relation) <= search.epsilon

    def _reveals_too_much(self, size: int, sigma: float) -> bool:
        """Whether a single round spends more than delta at epsilon, exactly; small sigmas take long to account for."""
        search = self.search
        kind = ReleaseKind(Gaussian(1.0, sigma), Poisson(size / search.dataset_size), 1)
        profile = row_of(kind, search.relation).profile(kind)
        return bool(profile.forward(np.array([search.epsilon]))[0] > search.delta)

    def _found(self, rounds: int, noise: float = math.inf) -> FoundRounds:
        """What fits, with its least sigma."""
        known = self._sizes(rounds)
        assert known is not None
        m, sizes = known
        search = self.search
        sigma = smallest_sigma(schedule_of(sizes, search.dataset_size), search.epsilon, search.delta, search.relation)
        # It is found to 0.1 %, which may be above a bound that the true one keeps.
        most = self._most_sigma(sizes, noise)
        return FoundRounds(search, self.start, self.power, m, sizes, most if sigma is None else min(sigma, most))

    def _most_sigma(self, sizes: Sizes, noise: float) -> float:
        return min(self.search.most_sigma, min(noise, self.cap) / math.sqrt(float(sizes.size)))

    def _grid(self, most: int) -> Iterator[int]:
        """Numbers of rounds up to ``most``, from the fewest that most_size allows to those of the constant schedule."""
        constant = -(-self.search.gradients // self.start)
        last = min(constant, most)
        first = rounds = constant if self.power == 0 else self._fewest_by_size(constant)
        while rounds < last:
            yield rounds
            rounds = max(rounds + 1, math.floor(rounds * _STEP))
        if first <= last:
            yield last

    def _fewest_by_size(self, last: int) -> int:
        low, high = 0, min(last, MOST_ROUNDS + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._sizes(middle) is not None else (middle, high)
        return high

    def _sizes(self, rounds: int) -> tuple[float, Sizes] | None:
        """m and the sizes of the slowest growth that makes K gradients in so many rounds; None where even the fastest
        one does not."""
        wanted = self.search.gradients
        if self.power == 0 or rounds * self.start >= wanted:
            enough = -(-wanted // self.start)
            return (1.0, power_sizes(self.start, 1.0, 0.0, enough)) if enough <= min(rounds, MOST_ROUNDS) else None
        most = min(float(self.search.largest), self.start * (1.0 + (rounds - 1) / LEAST_M) ** self.power)
        if self._grown(most, rounds)[1].sum() < wanted:
            return None
        low, high = float(self.start), most
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._grown(middle, rounds)[1].sum() >= wanted else (middle, high)
        m, sizes = self._grown(high, rounds)
        return m, sizes[: rounds_for(sizes, wanted)]

    def _grown(self, last_size: float, rounds: int) -> tuple[float, Sizes]:
        """m and the sizes that start at s_0 and end at ``last_size``."""
        if last_size <= self.start:
            return math.inf, power_sizes(self.start, 1.0, 0.0, rounds)
        m = (rounds - 1) / math.expm1(math.log(last_size / self.start) / self.power)
        return m, power_sizes(self.start, m, self.power, rounds)
