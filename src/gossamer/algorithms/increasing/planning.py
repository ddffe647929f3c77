"""Rounds of growing size: what the paper's parameter selection makes of them, what it claims, and what is proved.

**The selection.** Case 1 of the main theorem: the largest q with K <= K- and K <= K*, m from the initial size, T from
K. K- and K* depend on m/T, so it goes round again. It ends when a pass finds the m/T that it assumed: to 1 %, as in the
paper's examples, or less than it (the theorem asks for *at least* m/T). Case 2: the q with K = k K+, where K+ is that
of q's own m/T. Sizes that do not grow (p = 0) have one q, and m = 0.

The selection gives q, m and T; the budget ``sqrt(2 ln(1/delta)/epsilon)`` that sigma affords
with them gives the delta of the claim. T is the paper's, an upper bound: the sizes sum to K some rounds earlier.

What is proved is about the same sizes, one Poisson sample a round, with gradients at released models and Gaussian noise
of multiplier sigma on their sum (``round_update: batch``).

An estimate says where to look: for many releases at small rates q_i the central limit theorem makes them one Gaussian
release with ``mu^2 = sum_i q_i^2 (exp(1/sigma^2) - 1)`` [1]. It decides what is looked at first, and nothing else: all
that is reported is the accountant's.

References
----------
[1] Bu, Dong, Long and Su, "Deep learning with Gaussian differential privacy", HDSR 2020, theorem 5.
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes), "Parameter selection" in section 3, and D.3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from gossamer.algorithms.command import Bounded, Option
from gossamer.algorithms.increasing.claims import MainTheorem, increasing_claims, largest_r0, recommended_r0
from gossamer.errors import BudgetUnreachable, SpecError, counted
from gossamer.privacy.accounting import accountants, planner
from gossamer.privacy.guarantees import Claim
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson

MOST_ROUNDS = 10**6
"""More rounds than this are not planned."""

SETTLED = 0.01
"""m/T counts as found when a pass changes it by no more than this share of it, and so would all further ones."""

_MOST_PASSES = 2000


_SIGMA = "noise multiplier: sd of the sum's noise / clip"


@dataclass(frozen=True)
class RoundProblem(Bounded):
    """Problem that the selection starts from.

    Attributes
    ----------
    initial_size : int
        s_0, gradients in the first round; at most the data set.
    dataset_size : int
        N_c, examples of the client.
    gradients : int
        K, over all rounds.
    sigma : float
        Noise multiplier of every round, at least 1.137.
    epsilon : float
        Epsilon that the main theorem is to claim.
    power : float
        p of the sizes N_c q (i + m)^p: 0, or from 0.1 to 4.
    r0 : float or "max", optional
        Constant r0; by default r0(sigma) of the main theorem; larger ones allow larger rounds.
    case : {1, 2}
        Case of the main theorem: K <= K-, or K >= K+.
    over : float, optional
        k of case 2: K = k K+, at least 1, which it is by default.

    Raises
    ------
    SpecError
        If a number is out of its range or the first round is too large for r0.
    """

    initial_size: Annotated[int, Option("s_0, gradients in the first round", "S", ge=1, le=10**12)]
    dataset_size: Annotated[int, Option("examples of the client", "N", ge=1, le=10**12)]
    gradients: Annotated[int, Option("gradients in all rounds together", "K", ge=1)]
    sigma: Annotated[float, Option(_SIGMA, "Z", ge=1.137, le=10**6)]
    epsilon: Annotated[float, Option("to be claimed", "E", gt=0)]
    power: Annotated[float, Option("p", "P", ge=0, le=4)] = 1.0
    r0: float | str | None = None
    case: Annotated[int, Option("of the main theorem: 1, K <= K-; 2, K >= K+", "N", ge=1, le=2)] = 1
    over: Annotated[float | None, Option("with --case 2: K/K+ (default: 1)", "X", ge=1, le=1000)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial_size > self.dataset_size:
            raise SpecError(
                f"the initial size must be from 1 to the {self.dataset_size} examples of the data set, "
                f"found {self.initial_size}"
            )
        if self.gradients < self.initial_size:
            raise SpecError(
                f"{counted(self.gradients, 'gradient is', 'gradients are')} fewer than the {self.initial_size} of the "
                "first round; ask for more"
            )
        if 0 < self.power < 0.1:
            raise SpecError(f"power must be 0, for constant sizes, or at least 0.1, found {self.power:g}")
        if not self.initial_size / self.dataset_size < self.theorem(0.0).alpha:
            raise SpecError(
                f"the first round is {self.initial_size / self.dataset_size:.4g} of the data set, and the main theorem "
                f"needs every round below r0/sigma = {self.theorem(0.0).alpha:.4g}; start smaller or raise r0"
            )

    def theorem(self, ratio: float) -> MainTheorem:
        """The main theorem's constants at an m/T."""
        r0 = recommended_r0(self.sigma, self.power) if self.r0 is None else _number_of(self.r0, self.sigma)
        return MainTheorem(self.power, r0, self.sigma, ratio)

    @property
    def epochs(self) -> float:
        """K/N_c."""
        return self.gradients / self.dataset_size


@dataclass(frozen=True)
class Pass:
    """One pass of the selection.

    Attributes
    ----------
    assumed : float
        The m/T that K- and K* are computed with.
    q_by_case, q_star : float
        The largest q with K <= K- (in case 2: the one with K = k K+), and with K <= K*.
    q, m : float
        The one that is taken, and what makes the first size s_0.
    rounds : int
        T.
    """

    assumed: float
    q_by_case: float
    q_star: float
    q: float
    m: float
    rounds: int

    @property
    def found(self) -> float:
        """m/T."""
        return self.m / self.rounds


def selection_pass(problem: RoundProblem, assumed: float) -> Pass:
    """q, m and T for K-, or K+, and K* at an assumed m/T.

    Raises
    ------
    SpecError
        If it takes more than `MOST_ROUNDS` rounds.
    """
    by_case, star = _limits(problem, assumed)
    q = min(by_case, star)
    m, rounds = _growth(problem, q)
    return Pass(assumed, by_case, star, q, m, math.ceil(rounds))


def pass_at(problem: RoundProblem, q: float) -> Pass:
    """The pass that takes ``q`` and has assumed just what it finds.

    Raises
    ------
    SpecError
        If it takes more than `MOST_ROUNDS` rounds.
    """
    m, real = _growth(problem, q)
    rounds = math.ceil(real)
    return Pass(m / rounds, *_limits(problem, m / rounds), q, m, rounds)


def selection_passes(problem: RoundProblem) -> list[Pass]:
    """Passes until m/T has settled; the first neglects it.

    Raises
    ------
    SpecError
        If it does not settle, a pass takes too many rounds, or the case allows no q.
    """
    if problem.power == 0:
        return [_constant(problem)]
    if problem.case == 2:
        return [_above_k_plus(problem)]
    passes = [selection_pass(problem, 0.0)]
    while not _settled(passes):
        if len(passes) >= _MOST_PASSES or passes[-1].found > 1e3:
            raise SpecError(
                f"no schedule for epsilon {problem.epsilon:g}: m/T rises without end from {passes[0].found:.3g} on, as "
                "the sizes hardly grow; ask for fewer gradients, start smaller or raise epsilon"
            )
        passes.append(selection_pass(problem, passes[-1].found))
    return passes


def _constant(problem: RoundProblem) -> Pass:
    """The only pass where sizes do not grow."""
    one = pass_at(problem, problem.initial_size / problem.dataset_size)
    below = one.q <= one.q_by_case * (1 + 1e-12)
    if below == (problem.case == 1) or one.q == one.q_by_case:
        return one
    side, limit = ("below", "K+") if problem.case == 2 else ("above", "K-")
    raise SpecError(
        f"K = {problem.gradients} is {side} {limit} = {problem.gradients * one.q_by_case / one.q:.6g} of rounds of "
        f"{problem.initial_size}; take case {3 - problem.case}, or another epsilon, size or number of gradients"
    )


def _above_k_plus(problem: RoundProblem) -> Pass:
    """The pass with K = k K+. K+ falls as q rises, by q itself and by the m/T that falls with it: there is one."""

    def excess(log_q: float) -> float:
        m, rounds = _growth(problem, math.exp(log_q), math.inf)
        return log_q - math.log(_limits(problem, m / rounds)[0])

    high = math.log(problem.theorem(0.0).alpha)  # the first round is below alpha, and so is q m^p
    low = high
    while excess(low) > 0:
        low -= 5.0
    if excess(high) >= 0:
        q = math.exp(float(brentq(excess, low, high, xtol=1e-12, rtol=1e-14)))
        one = pass_at(problem, q)
        if one.q <= one.q_star:
            return one
    raise SpecError(
        f"case 2 needs K = {problem.gradients} to be at least K+, and rounds of at most r0/sigma = "
        f"{problem.theorem(0.0).alpha:.4g} of the data set are too small for that; plan case 1, raise r0, or ask for "
        "more gradients or a smaller epsilon"
    )


def _limits(problem: RoundProblem, assumed: float) -> tuple[float, float]:
    """(The q of the case, the largest with K <= K*) at an assumed m/T."""
    p, theorem = problem.power, problem.theorem(assumed)
    coefficient = theorem.b if problem.case == 1 else theorem.a * (problem.over or 1.0)
    try:
        by_case = (coefficient * problem.epsilon ** ((1 + p) / (1 + 2 * p)) / problem.epochs) ** (1 + 2 * p)
    except OverflowError:  # of a budget so large that only K* binds
        by_case = math.inf
    if p == 0:
        return by_case, math.inf
    return by_case, math.exp(p * (theorem.log_d - math.log(problem.epochs)))


def _growth(problem: RoundProblem, q: float, most: float = MOST_ROUNDS) -> tuple[float, float]:
    """(m, T) of a q, T not yet a whole number."""
    p, share = problem.power, problem.initial_size / problem.dataset_size
    try:
        m = (share / q) ** (1 / p) if p else 0.0
        rounds = ((p + 1) * problem.epochs / q) ** (1 / (p + 1))
    except (OverflowError, ZeroDivisionError):
        m = rounds = math.inf
    if not rounds <= most:
        raise SpecError(
            f"{problem.gradients} gradients would take more than {MOST_ROUNDS:,} rounds in sizes that the main theorem "
            f"allows at epsilon {problem.epsilon:g}, as they hardly grow; ask for fewer, start smaller or raise epsilon"
        )
    return m, rounds


def _settled(passes: list[Pass]) -> bool:
    found = passes[-1].found
    change = found - passes[-1].assumed
    if change <= 0:
        return True
    if len(passes) < 2:
        return False
    before = passes[-2].found - passes[-2].assumed
    remaining = change**2 / (before - change) if change < before else math.inf  # of a geometric series
    return max(change, remaining) <= SETTLED * found


def maximal_r0(sigma: float) -> float:
    """The largest r0 to plan with: 1/e, or a hundredth below where u0 or u1 becomes 1 if that is less.

    Raises
    ------
    SpecError
        If sigma is not positive.
    """
    most = largest_r0(sigma)
    return most if most == 1 / math.e else 0.99 * most


def _number_of(r0: float | str, sigma: float) -> float:
    if not isinstance(r0, str):
        return r0
    if r0 == "max":
        return maximal_r0(sigma)
    try:
        value = float(r0)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1 / math.e:
        raise SpecError(f"--r0 must be max or a number in (0, 1/e], 1/e = {1 / math.e:.6f}; found {r0}")
    return value


Sizes = npt.NDArray[np.int64]


def schedule_of(sizes: Sizes, dataset_size: int) -> planner.Schedule:
    """Poisson samples, one a round, at rates s_i/N_c."""
    values, counts = np.unique(sizes, return_counts=True)
    return {Poisson(size / dataset_size): count for size, count in zip(values.tolist(), counts.tolist())}


def proved_epsilon(schedule: planner.Schedule, sigma: float, delta: float, relation: NeighboringRelation) -> float:
    """Epsilon proved for Gaussian noise of multiplier sigma on every round, gradients taken at released models."""
    return accountants.epsilon(planner.gaussian_releases(sigma, schedule), delta, relation).epsilon


def smallest_sigma(
    schedule: planner.Schedule, epsilon: float, delta: float, relation: NeighboringRelation
) -> float | None:
    """The least multiplier, to 0.1 %, for which (epsilon, delta) is proved; None if it is above 1000."""
    try:
        return planner.calibrate_noise_multiplier(epsilon, delta, relation, [schedule]).noise_multiplier
    except BudgetUnreachable:
        return None


LEAST_DELTA = 1e-200
"""A smaller delta is not accounted for."""

_HALVINGS = 12
"""To find the largest q that is claimed, between two that are near each other."""

FAR = 1.25
"""So many times the gradients that were asked for are worth a note."""


@dataclass(frozen=True)
class RoundPlan:
    """A schedule, and what the main theorem claims of it.

    Attributes
    ----------
    problem : RoundProblem
        Terms of the plan.
    passes : tuple of Pass
        Passes of the selection; the last one is taken.
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
    def limits(self) -> dict[str, float | None]:
        """K-, K+ and K*; no K* of sizes that do not grow, whose rounds are below r0/sigma whatever K is."""
        theorem, epsilon, size = self.theorem, self.problem.epsilon, self.problem.dataset_size
        return {
            "k_minus": theorem.k_minus(epsilon, self.q, size),
            "k_plus": theorem.k_plus(epsilon, self.q, size),
            "k_star": theorem.k_star(self.q, size) if self.problem.power else None,
        }

    @property
    def largest_share(self) -> float:
        """Largest share of the data set in a round."""
        return int(self.sizes.max()) / self.problem.dataset_size

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
        last, asked = self.passes[-1], self.problem
        theorem = asked.theorem(max(last.assumed, last.found))
        return theorem.budget(asked.case, asked.epsilon, self.sizes.sum() / asked.dataset_size, self.rounds)

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
        asked, known = self.problem, (self.q, self.m, self.problem.power)
        r0 = self.theorem.r0 if asked.case == 2 else None
        return increasing_claims(self.sizes, asked.dataset_size, asked.sigma, self.delta, known, r0)

    @property
    def claim_problem(self) -> str | None:
        """Reason that the sizes as they are, rounded up and T of them, are not those of the claim; None if they are."""
        main = self.claims[-1]
        if not main.valid:
            return main.why
        if main.parameters["r0"] > self.theorem.r0 * (1 + 1e-9):
            return (
                f"the last of the {self.rounds} rounds are above r0/sigma = {self.theorem.alpha:.4g} of the data set, "
                f"up to {main.parameters['r0'] / self.problem.sigma:.4g}, as sizes and T are whole numbers; with r0 "
                f"{main.parameters['r0']:.4g} instead of {self.theorem.r0:.4g} the main theorem claims epsilon "
                f"{main.epsilon:.6g} of them"
            )
        if main.epsilon > self.problem.epsilon * (1 + 1e-9):
            return (
                f"for the {self.sizes.sum()} gradients of these {self.rounds} rounds and their m/T the main theorem "
                f"claims no less than epsilon {main.epsilon:.4g}"
            )
        return None


def plan_rounds(problem: RoundProblem) -> RoundPlan:
    """The paper's parameter selection, and where its sizes, as whole numbers, are not those of the claim: a smaller q.

    Raises
    ------
    SpecError
        If m/T does not settle, the rounds are too many or larger than the data set, or delta would be no failure
        probability.
    """
    plan = RoundPlan(problem, tuple(selection_passes(problem)))
    if not LEAST_DELTA <= plan.delta < 1:
        raise SpecError(
            f"the claim's delta, exp(-{plan.budget**2 * problem.epsilon / 2:.4g}), must be at least {LEAST_DELTA:g} "
            f"and below 1; plan a {'larger' if plan.delta >= 1 else 'smaller'} epsilon than {problem.epsilon:g}"
        )
    plan = plan if _is_claimed(plan) else _smaller(plan) or plan
    if plan.largest_share > 1:
        raise SpecError(
            f"sizes over the data set: round {int(plan.sizes.argmax())} of {plan.rounds} would have {plan.sizes.max()} "
            f"gradients of {problem.dataset_size} examples; ask for more gradients, so that there are more rounds"
        )
    return plan


def _is_claimed(plan: RoundPlan) -> bool:
    return plan.largest_share <= 1 and LEAST_DELTA <= plan.delta < 1 and plan.claim_problem is None


def _smaller(plan: RoundPlan) -> RoundPlan | None:
    """The plan of the largest q below that of ``plan`` whose sizes are those of the claim; None if there is none."""
    if plan.problem.power == 0:  # one q is all that there is
        return None

    def at(q: float) -> RoundPlan:
        return RoundPlan(plan.problem, (*plan.passes, pass_at(plan.problem, q)))

    low, step = plan.q, 1e-4
    try:
        while not _is_claimed(found := at(low)):
            high, low, step = low, low * (1 - step), min(2 * step, 0.25)
            if low < 1e-3 * plan.q:
                return None
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            tried = at(middle)
            low, high, found = (middle, high, tried) if _is_claimed(tried) else (low, middle, found)
    except SpecError:  # too many rounds
        return None
    return found


def power_sizes(initial_size: int, m: float, power: float, rounds: int) -> Sizes:
    """ceil(s_0 (1 + i/m)^p), [rounds]: with s_0 = N_c q m^p this is ceil(N_c q (i + m)^p)."""
    real = initial_size * ((1.0 + np.arange(rounds) / m) ** power if power else np.ones(rounds))
    return np.ceil(real * (1 - 1e-12)).astype(np.int64)  # rounding must not make 17 of 16


def rounds_for(sizes: Sizes, gradients: int) -> int:
    """Number of rounds that make so many gradients, or of all rounds if they do not."""
    return min(int(np.searchsorted(np.cumsum(sizes), gradients)) + 1, sizes.size)


class Proved(NamedTuple):
    """Proved privacy of a plan.

    Attributes
    ----------
    epsilon : float
        Proved for all rounds of the plan, at its delta.
    smallest_sigma : float or None
        Enough for the claimed epsilon; None above 1000.
    """

    epsilon: float
    smallest_sigma: float | None


def prove(plan: RoundPlan, relation: NeighboringRelation) -> Proved:
    """Return what the accountant proves of a plan."""
    asked, whole = plan.problem, schedule_of(plan.sizes, plan.problem.dataset_size)
    return Proved(
        proved_epsilon(whole, asked.sigma, plan.delta, relation),
        smallest_sigma(whole, asked.epsilon, plan.delta, relation),
    )
