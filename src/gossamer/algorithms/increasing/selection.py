"""The parameter selection of the paper on increasing sample sizes: q, m and T of sizes N_c q (i + m)^p.

Case 1 of the main theorem: the largest q with K <= K- and K <= K*, m from the initial size, T from K. K- and K* depend
on m/T, so it goes round again. It ends when a pass finds the m/T that it assumed: to 1 %, as in the paper's examples,
or less than it (the theorem asks for *at least* m/T). Case 2: the q with K = k K+, where K+ is that of q's own m/T.
Sizes that do not grow (p = 0) have one q, and m = 0.

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes), "Parameter selection" in section 3, and D.3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

from gossamer.algorithms.increasing.claims import MainTheorem, largest_r0, recommended_r0
from gossamer.errors import SpecError, counted
from gossamer.numbers import real_number, whole_number

MOST_ROUNDS = 10**6
"""More rounds than this are not planned."""

MOST_COUNT = 10**15
"""More examples or gradients than this are not planned."""

SETTLED = 0.01
"""m/T counts as found when a pass changes it by no more than this share of it, and so would all further ones."""

_MOST_PASSES = 2000


def require_count(**values: object) -> None:
    """Raise SpecError unless every value is a whole number from 0 to `MOST_COUNT`."""
    for name, value in values.items():
        number = whole_number(value)
        if number is None or number > MOST_COUNT:
            raise SpecError(f"{name} must be a whole number from 0 to {MOST_COUNT:.0e}, found {value!r:.60}")


@dataclass(frozen=True)
class RoundProblem:
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
    r0 : float, optional
        Constant r0; by default r0(sigma) of the main theorem; larger ones allow larger rounds.
    case : {1, 2}
        Case of the main theorem: K <= K-, or K >= K+.
    over : float
        k of case 2: K = k K+, at least 1.

    Raises
    ------
    SpecError
        If a number is out of its range or the first round is too large for r0.
    """

    initial_size: int
    dataset_size: int
    gradients: int
    sigma: float
    epsilon: float
    power: float = 1.0
    r0: float | None = None
    case: int = 1
    over: float = 1.0

    def __post_init__(self) -> None:
        require_count(initial_size=self.initial_size, dataset_size=self.dataset_size, gradients=self.gradients)
        if not 1 <= self.initial_size <= self.dataset_size:
            raise SpecError(
                f"the initial size must be from 1 to the {self.dataset_size} examples of the data set, "
                f"found {self.initial_size}"
            )
        if self.gradients < self.initial_size:
            raise SpecError(
                f"{counted(self.gradients, 'gradient is', 'gradients are')} fewer than the {self.initial_size} of the "
                "first round; ask for more"
            )
        power = real_number(self.power)
        if not (0 < real_number(self.epsilon) < math.inf and (power == 0 or 0.1 <= power <= 4)):
            raise SpecError(
                "expected a finite epsilon > 0 and a power that is 0 or from 0.1 to 4, "
                f"found {self.epsilon!r} and {self.power!r}"
            )
        if self.case not in (1, 2) or not 1 <= real_number(self.over) < math.inf:
            raise SpecError(
                f"expected case 1 or 2 of the theorem, and K at least K+, found case {self.case!r} and {self.over!r} K+"
            )
        recommended_r0(self.sigma, self.power)  # refuses too little noise, whatever r0 is
        if not self.initial_size / self.dataset_size < self.theorem(0.0).alpha:
            raise SpecError(
                f"the first round is {self.initial_size / self.dataset_size:.4g} of the data set, and the main theorem "
                f"needs every round below r0/sigma = {self.theorem(0.0).alpha:.4g}; start smaller or raise r0"
            )

    def theorem(self, ratio: float, power: float | None = None) -> MainTheorem:
        """The main theorem's constants at an m/T, and at another ``power`` if it is given."""
        power = self.power if power is None else power
        r0 = recommended_r0(self.sigma, power) if self.r0 is None else self.r0
        return MainTheorem(power, r0, self.sigma, ratio)

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
    return _pass(problem, assumed, by_case, star, min(by_case, star))


def pass_at(problem: RoundProblem, q: float) -> Pass:
    """The pass that takes ``q`` and has assumed just what it finds.

    Raises
    ------
    SpecError
        If it takes more than `MOST_ROUNDS` rounds.
    """
    m, rounds = _growth(problem, q)
    found = m / math.ceil(rounds)
    return _pass(problem, found, *_limits(problem, found), q)


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
    coefficient = theorem.b if problem.case == 1 else theorem.a * problem.over
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


def _pass(problem: RoundProblem, assumed: float, by_case: float, star: float, q: float) -> Pass:
    m, rounds = _growth(problem, q)
    return Pass(assumed, by_case, star, q, m, math.ceil(rounds))


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


_POWERS = np.linspace(0.0, 4.0, 81)


def transition_powers(problem: RoundProblem, m: float) -> tuple[float | None, float | None]:
    """The powers p- with K = K-, and p+ with K = K+, of sizes s_0 (1 + i/m)^p.

    Parameters
    ----------
    problem : RoundProblem
        Terms of the plan, of which power and case do not count.
    m : float
        m of the sizes; with 0 they do not grow, whatever the power.

    Returns
    -------
    (float or None, float or None)
        The least such powers from 0 to 4; None where there is none.
    """
    return (None, None) if m == 0 else (_least_root(problem, m, above=False), _least_root(problem, m, above=True))


def _least_root(problem: RoundProblem, m: float, above: bool) -> float | None:
    def excess(p: float) -> float:
        """ln K - ln K-, or ln K+."""
        q = problem.initial_size / problem.dataset_size / m**p
        rounds = ((p + 1) * problem.epochs / q) ** (1 / (p + 1))
        theorem = problem.theorem(m / rounds, p)
        limit = theorem.k_plus if above else theorem.k_minus
        return math.log(problem.gradients / limit(problem.epsilon, q, problem.dataset_size))

    found = [(p, excess(p)) for p in _POWERS.tolist()]
    for (low, one), (high, other) in pairwise(found):
        if one * other <= 0:
            return float(brentq(excess, low, high, xtol=1e-12))
    return None
