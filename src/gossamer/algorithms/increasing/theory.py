"""Sizes by any exponent g, and constant steps, that the paper's theory of convergence allows.

Calculators, for those who know a problem's constants; no run needs them. The sizes and steps for g = 2 that the paper
uses are the schedules ``theory`` (`increasing.size_schedules`, `increasing.steps`).

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes): the lemma of B.3, and C.2.1. The latter is from R. Leblond, F. Pedregosa and
S. Lacoste-Julien, "Improved asynchronous parallel optimization analysis for stochastic incremental methods", JMLR 2018,
where rho is a mu/L; the paper prints a L/mu.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from gossamer.errors import SpecError

Slow = Callable[[float], float]
"""gamma: increasing, at least 1, and gamma(z) >= z gamma'(z) g/(g - 1)."""


@dataclass(frozen=True)
class DelayedSizes:
    """A delay function of order x^(1/g), and the sizes of rounds that keep to it: the lemma of B.3.

    Attributes
    ----------
    g : float
        Above 1; 2 for strongly convex problems.
    gamma : callable
        What slows the growth; a constant 1 for none.
    d : int
        By how many rounds a client may be ahead.
    m : int
        Where the growth starts; larger is a larger first round.

    Raises
    ------
    SpecError
        If g is not above 1, or d or m is negative.
    """

    g: float
    gamma: Slow
    d: int = 1
    m: int = 0

    def __post_init__(self) -> None:
        if not (1 < self.g < math.inf and self.d >= 0 and self.m >= 0):
            raise SpecError(f"expected g > 1, d >= 0 and m >= 0, found {self.g!r}, {self.d!r} and {self.m!r}")

    def tau(self, x: float) -> float:
        """M_1 + ((x + M_0)/gamma(x + M_0))^(1/g), with the least M_0 and M_1 that the lemma allows."""
        shifted = x + (self._power(self.m + 1) if self.m else 0.0)
        return float(self.d + 1 + (shifted / self.gamma(shifted)) ** (1 / self.g))

    def size(self, i: int) -> int:
        """s_i = ceil(S((m + i + 1)/(d + 1))/(d + 1)), S(x) = (x (g - 1)/(g omega(x)))^(1/(g - 1))."""
        x = (self.m + i + 1) / (self.d + 1)
        omega = self.gamma(self._power(x))
        return math.ceil(float((x * (self.g - 1) / (self.g * omega)) ** (1 / (self.g - 1))) / (self.d + 1))

    def _power(self, x: float) -> float:
        return float((x * (self.g - 1) / self.g) ** (self.g / (self.g - 1)))


@dataclass(frozen=True)
class ConstantSteps:
    """Convergence of asynchronous SGD with a constant step size eta, on a strongly convex sum: C.2.1.

    Attributes
    ----------
    eta : float
        Step size of one gradient.
    mu, smoothness : float
        mu, and L.
    sparsity : float
        Delta, from 1/examples to 1: the largest share of examples whose gradients have a certain coordinate.

    Raises
    ------
    SpecError
        If a constant is out of its range.
    """

    eta: float
    mu: float
    smoothness: float
    sparsity: float = 1.0

    def __post_init__(self) -> None:
        if not (0 < self.eta < math.inf and 0 < self.mu <= self.smoothness < math.inf and 0 < self.sparsity <= 1):
            raise SpecError(
                f"expected eta > 0, 0 < mu <= L and sparsity in (0, 1], found eta {self.eta!r}, mu {self.mu!r}, "
                f"L {self.smoothness!r} and sparsity {self.sparsity!r}"
            )

    @property
    def longest_delay(self) -> float:
        """1/(eta mu): tau is at most this (inequality 11)."""
        return 1 / (self.eta * self.mu)

    def largest_size(self, d: int) -> int:
        """s <= 1/(eta mu (d + 1)), gradients in a round of all clients together."""
        return math.floor(self.longest_delay / (d + 1) * (1 + 1e-12))

    def largest_eta(self, tau: float) -> float:
        """a/L at the largest a for a delay of tau."""
        root = math.sqrt(self.sparsity)
        bent = math.sqrt(1 + self.mu / (2 * self.smoothness) * min(1 / root, tau))
        return 1 / (5 * (1 + 2 * tau * root) * bent) / self.smoothness

    @property
    def contraction(self) -> float:
        """rho = a mu/L = eta mu."""
        return self.eta * self.mu

    def squared_distance(self, t: float, tau: float, start: float, noise: float) -> float:
        """Bound on E |w^_t - w_*|^2: 2 (1 - rho)^t |w_0 - w_*|^2 + b.

        Parameters
        ----------
        t : float
            Gradients that were computed.
        tau : float
            Delay, at most `longest_delay`, and so that eta is at most `largest_eta` of it.
        start : float
            |w_0 - w_*|^2.
        noise : float
            N = 2 E |grad f(w_*; xi)|^2.

        Raises
        ------
        SpecError
            If the bound is not about so long a delay.
        """
        if not 0 <= tau <= self.longest_delay or self.eta > self.largest_eta(tau) * (1 + 1e-12):
            raise SpecError(
                f"with a delay of {tau:g} the bound needs tau <= {self.longest_delay:.4g} and eta <= "
                f"{self.largest_eta(max(tau, 0.0)):.4g}, found eta {self.eta:g}; take a smaller one"
            )
        root = math.sqrt(self.sparsity)
        one = 1 + root * tau
        two = root + self.eta * self.mu * one
        ball = (4 * self.eta * (one + tau * two) / self.mu + 2 * self.eta**2 * one * tau) * noise
        return float(2 * (1 - self.contraction) ** t * start + ball)
