"""The parameter selection of the paper on increasing sample sizes: q, m and T of sizes N_c q (i + m)^p.

Case 1 of the main theorem: the largest q with K <= K- and K <= K*, m from the initial size, T from K. K- and K* depend
on m/T, so it goes round again. It ends when a pass finds the m/T that it assumed: to 1 %, as in the paper's examples,
or less than it (the theorem asks for *at least* m/T).

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes), "Parameter selection" in section 3, and D.3.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real

from gossamer.algorithms.increasing.theorem import MainTheorem, largest_r0, recommended_r0
from gossamer.errors import SpecError, counted

MOST_ROUNDS = 10**6
"""More rounds than this are not planned."""

MOST_COUNT = 10**15
"""More examples or gradients than this are not planned."""

SETTLED = 0.01
"""m/T counts as found when a pass changes it by no more than this share of it, and so would all further ones."""

_MOST_PASSES = 2000


def require_count(name: str, value: object, optional: bool = False) -> None:
    """Raise SpecError unless the value is a whole number from 0 to `MOST_COUNT`, or None where that is ``optional``."""
    if optional and value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Integral) or not 0 <= int(value) <= MOST_COUNT:
        raise SpecError(f"{name} must be a whole number from 0 to {MOST_COUNT:.0e}, found {value!r:.60}")


def require_number(name: str, value: object, optional: bool = False) -> None:
    """Raise SpecError unless the value is a number, or None where that is ``optional``."""
    if not (optional and value is None) and (isinstance(value, bool) or not isinstance(value, Real)):
        raise SpecError(f"{name} must be a number, found {value!r:.60}")


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
        That the main theorem is to claim.
    power : float
        p of the sizes N_c q (i + m)^p, above 0.
    r0 : float, optional
        By default r0(sigma) of the main theorem; larger ones allow larger rounds.

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

    def __post_init__(self) -> None:
        for name in ("initial_size", "dataset_size", "gradients"):
            require_count(name, getattr(self, name))
        for name in ("sigma", "epsilon", "power", "r0"):
            require_number(name, getattr(self, name), optional=name == "r0")
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
        if not (0 < self.epsilon < math.inf and 0.1 <= self.power <= 4):
            raise SpecError(
                f"expected a finite epsilon > 0 and a power from 0.1 to 4, found {self.epsilon!r} and {self.power!r}"
            )
        recommended_r0(self.sigma, self.power)  # refuses too little noise, whatever r0 is
        if not self.initial_size / self.dataset_size < self.theorem(0.0).alpha:
            raise SpecError(
                f"the first round is {self.initial_size / self.dataset_size:.4g} of the data set, and the main theorem "
                f"needs every round below r0/sigma = {self.theorem(0.0).alpha:.4g}; start smaller or raise r0"
            )

    def theorem(self, ratio: float) -> MainTheorem:
        """The main theorem's constants at an m/T."""
        r0 = recommended_r0(self.sigma, self.power) if self.r0 is None else self.r0
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
    q_minus, q_star : float
        The largest q with K <= K-, and with K <= K*.
    q, m : float
        The smaller of them, and what makes the first size s_0.
    rounds : int
        T.
    """

    assumed: float
    q_minus: float
    q_star: float
    q: float
    m: float
    rounds: int

    @property
    def found(self) -> float:
        """m/T."""
        return self.m / self.rounds


def selection_pass(problem: RoundProblem, assumed: float) -> Pass:
    """q, m and T for K- and K* at an assumed m/T.

    Raises
    ------
    SpecError
        If it takes more than `MOST_ROUNDS` rounds.
    """
    p, theorem = problem.power, problem.theorem(assumed)
    coefficient = theorem.b * problem.epsilon ** ((1 + p) / (1 + 2 * p))
    try:
        q_minus = (coefficient / problem.epochs) ** (1 + 2 * p)
    except OverflowError:  # of a budget so large that only K* binds
        q_minus = math.inf
    q_star = math.exp(p * (theorem.log_d - math.log(problem.epochs)))
    q = min(q_minus, q_star)
    share = problem.initial_size / problem.dataset_size
    try:
        m, rounds = (share / q) ** (1 / p), ((p + 1) * problem.epochs / q) ** (1 / (p + 1))
    except (OverflowError, ZeroDivisionError):
        m = rounds = math.inf
    if not rounds <= MOST_ROUNDS:
        raise SpecError(
            f"{problem.gradients} gradients would take more than {MOST_ROUNDS:,} rounds in sizes that the main theorem "
            f"allows at epsilon {problem.epsilon:g}, as they hardly grow; ask for fewer, start smaller or raise epsilon"
        )
    return Pass(assumed, q_minus, q_star, q, m, math.ceil(rounds))


def selection_passes(problem: RoundProblem) -> list[Pass]:
    """Passes until m/T has settled; the first neglects it.

    Raises
    ------
    SpecError
        If it does not settle, or a pass takes too many rounds.
    """
    passes = [selection_pass(problem, 0.0)]
    while not _settled(passes):
        if len(passes) >= _MOST_PASSES or passes[-1].found > 1e3:
            raise SpecError(
                f"no schedule for epsilon {problem.epsilon:g}: m/T rises without end from {passes[0].found:.3g} on, as "
                "the sizes hardly grow; ask for fewer gradients, start smaller or raise epsilon"
            )
        passes.append(selection_pass(problem, passes[-1].found))
    return passes


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
