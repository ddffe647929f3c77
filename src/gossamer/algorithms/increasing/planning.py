"""Rounds of growing size: what the paper's parameter selection makes of them, what it claims, and what is proved.

The selection (`increasing.selection`) gives q, m and T; the budget ``sqrt(2 ln(1/delta)/epsilon)`` that sigma affords
with them gives the delta of the claim. T is the paper's, an upper bound: the sizes sum to K some rounds earlier.

What is proved is about the same sizes, one Poisson sample a round, with gradients at released models and Gaussian noise
of multiplier sigma on their sum (``round_update: batch``).

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes), "Parameter selection" in section 3, and D.3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.increasing.calibration import (
    Sizes,
    constant_schedule,
    proved_epsilon,
    schedule_of,
    smallest_sigma,
)
from gossamer.algorithms.increasing.claims import increasing_claims
from gossamer.algorithms.increasing.selection import SETTLED, Pass, RoundProblem, selection_passes
from gossamer.algorithms.increasing.theorem import MainTheorem
from gossamer.errors import SpecError, counted
from gossamer.privacy.claim import Claim
from gossamer.privacy.mechanisms import NeighboringRelation

LEAST_DELTA = 1e-200
"""A smaller delta is not accounted for."""

Places = npt.NDArray[np.int64] | npt.NDArray[np.float64]
"""Numbers of rounds, from 0."""

FAR = 1.25
"""So many times the gradients that were asked for are worth a note."""


@dataclass(frozen=True)
class RoundPlan:
    """A schedule, and what the main theorem claims of it.

    Attributes
    ----------
    problem : RoundProblem
        What was asked.
    passes : tuple of Pass
        Of the selection; the last one is taken.
    """

    problem: RoundProblem
    passes: tuple[Pass, ...]

    @property
    def q(self) -> float:
        return self.passes[-1].q

    @property
    def m(self) -> float:
        return self.passes[-1].m

    @property
    def rounds(self) -> int:
        """T, or more where that falls short of K: the theorem counts from i = 1, the sizes from i = 0."""
        return int(self.sizes.size)

    @cached_property
    def sizes(self) -> Sizes:
        """s_i = ceil(N_c q (i + m)^p), [rounds]."""
        start, rounds = self.problem.initial_size, self.passes[-1].rounds
        enough = -(-self.problem.gradients // start)
        sizes = power_sizes(start, self.m, self.problem.power, min(2 * rounds + 2, max(rounds, enough)))
        return sizes[: max(rounds, rounds_for(sizes, self.problem.gradients))]

    @property
    def rounds_for_gradients(self) -> int:
        """Number of rounds after which the K gradients are done."""
        return rounds_for(self.sizes, self.problem.gradients)

    @property
    def most_share(self) -> float:
        """r0/sigma, of the data set: the claim is about rounds of at most this."""
        return self.theorem.alpha

    @property
    def largest_share(self) -> float:
        """Largest share of the data set in a round."""
        return int(self.sizes.max()) / self.problem.dataset_size

    @property
    def too_large(self) -> int:
        """Number of the last rounds that are above r0/sigma of the data set."""
        return int(np.count_nonzero(self.sizes > self.most_share * self.problem.dataset_size * (1 + 1e-12)))

    @property
    def note(self) -> str | None:
        """Note that T makes far more gradients than were asked for; None if it does not."""
        made, asked, done = int(self.sizes.sum()), self.problem.gradients, self.rounds_for_gradients
        if made <= FAR * asked:
            return None
        return (
            f"the paper's T neglects m, and m/T is {self.passes[-1].found:.3g} here: its {self.rounds} rounds make "
            f"{made} gradients, {made / asked:.3g} times as many as asked; {counted(done, 'round')} would make the "
            f"{asked}, but the claim is about all of them"
        )

    @property
    def theorem(self) -> MainTheorem:
        """The constants that the last pass worked with."""
        return self.problem.theorem(self.passes[-1].assumed)

    @property
    def budget(self) -> float:
        """sqrt(2 ln(1/delta)/epsilon) that sigma affords at the m/T that was found."""
        last = self.passes[-1]
        return self.problem.sigma / self.problem.theorem(max(last.assumed, last.found)).loss

    @property
    def delta(self) -> float:
        """exp(-budget^2 epsilon/2)."""
        return math.exp(-(self.budget**2) * self.problem.epsilon / 2)

    @property
    def aggregate_noise(self) -> float:
        """sqrt(T) sigma."""
        return math.sqrt(self.rounds) * self.problem.sigma

    @property
    def constant_rounds(self) -> int:
        """Rounds of the initial size that make K gradients."""
        return -(-self.problem.gradients // self.problem.initial_size)

    @property
    def constant_noise(self) -> float:
        """sqrt(rounds) times the budget: what the paper holds the aggregate noise against."""
        return math.sqrt(self.constant_rounds) * self.budget

    @cached_property
    def claims(self) -> list[Claim]:
        """Claims of both theorems for these sizes, with their own sum and m/T, at the plan's delta."""
        known = self.q, self.m, self.problem.power
        return increasing_claims(self.sizes, self.problem.dataset_size, self.problem.sigma, self.delta, known)

    @property
    def claim_problem(self) -> str | None:
        """Reason that the sizes as they are, rounded up and T of them, are not those of the claim; None if they are."""
        main = self.claims[-1]
        if not main.valid:
            return main.why
        if self.too_large:
            return (
                f"the last {self.too_large} of the {self.rounds} rounds are above r0/sigma = {self.most_share:.4g} of "
                f"the data set, up to {self.largest_share:.4g}, as sizes are whole numbers and m/T settles to 1 %; "
                f"with r0 {main.parameters['r0']:.4g} instead of {self.theorem.r0:.4g} the main theorem claims "
                f"epsilon {main.epsilon:.6g} of them"
            )
        if main.epsilon > self.problem.epsilon * (1 + SETTLED):
            return (
                f"for the {self.sizes.sum()} gradients of these {self.rounds} rounds and their m/T the main theorem "
                f"claims no less than epsilon {main.epsilon:.4g}"
            )
        return None


def plan_rounds(problem: RoundProblem) -> RoundPlan:
    """The paper's parameter selection.

    Raises
    ------
    SpecError
        If m/T does not settle, the rounds are too many or larger than the data set, or delta would be no failure
        probability.
    """
    plan = RoundPlan(problem, tuple(selection_passes(problem)))
    if plan.sizes.max() > problem.dataset_size:
        raise SpecError(
            f"sizes over the data set: round {int(plan.sizes.argmax())} of {plan.rounds} would have {plan.sizes.max()} "
            f"gradients of {problem.dataset_size} examples; ask for more gradients, so that there are more rounds"
        )
    if not LEAST_DELTA <= plan.delta < 1:
        raise SpecError(
            f"the claim's delta, exp(-{plan.budget**2 * problem.epsilon / 2:.4g}), must be at least {LEAST_DELTA:g} "
            f"and below 1; plan a {'larger' if plan.delta >= 1 else 'smaller'} epsilon than {problem.epsilon:g}"
        )
    return plan


def power_sizes(initial_size: int, m: float, power: float, rounds: int) -> Sizes:
    """ceil(s_0 (1 + i/m)^p), [rounds]: with s_0 = N_c q m^p this is ceil(N_c q (i + m)^p)."""
    return sizes_at(np.arange(rounds), initial_size, m, power)


def sizes_at(places: Places, initial_size: int, m: float, power: float) -> Sizes:
    """Those of the rounds ``places``, counted from 0."""
    real = initial_size * (1.0 + places / m) ** power
    return np.ceil(real * (1 - 1e-12)).astype(np.int64)  # rounding must not make 17 of 16


def rounds_for(sizes: Sizes, gradients: int) -> int:
    """Number of rounds that make so many gradients, or of all rounds if they do not."""
    return min(int(np.searchsorted(np.cumsum(sizes), gradients)) + 1, sizes.size)


@dataclass(frozen=True)
class Proved:
    """Proved privacy of a plan, and of the constant schedule at the same proved privacy with the same gradients.

    Attributes
    ----------
    epsilon : float
        Of all rounds of the plan, at its delta.
    smallest_sigma : float or None
        Enough for the claimed epsilon; None above 1000.
    fair_rounds : int
        Rounds of the plan until its K gradients are done.
    fair_epsilon : float
        Proved for those.
    fair_noise : float
        Their aggregate noise.
    constant_noise : float or None
        Of rounds of the initial size with K gradients, at the least sigma for fair_epsilon; None where that is 0 or
        needs a sigma above 1000.
    """

    epsilon: float
    smallest_sigma: float | None
    fair_rounds: int
    fair_epsilon: float
    fair_noise: float
    constant_noise: float | None


def prove(plan: RoundPlan, relation: NeighboringRelation) -> Proved:
    """Return what the accountant proves of a plan."""
    asked, delta, done = plan.problem, plan.delta, plan.rounds_for_gradients
    whole, part = (schedule_of(plan.sizes[:rounds], asked.dataset_size) for rounds in (plan.rounds, done))
    constant = constant_schedule(asked.initial_size, asked.dataset_size, asked.gradients)
    equal = proved_epsilon(part, asked.sigma, delta, relation)
    sigma = smallest_sigma(constant, equal, delta, relation) if equal > 0 else None
    return Proved(
        proved_epsilon(whole, asked.sigma, delta, relation),
        smallest_sigma(whole, asked.epsilon, delta, relation),
        done,
        equal,
        math.sqrt(done) * asked.sigma,
        None if sigma is None else math.sqrt(plan.constant_rounds) * sigma,
    )
