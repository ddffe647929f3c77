"""The constants of the privacy theorems for increasing sample sizes: eq. 14 and the general theorem of D.3.

What the symbols mean, where the formulas differ from the printed ones and what is wrong with the theorems stands in
`gossamer.algorithms.increasing.claims`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy.optimize import brentq

from gossamer.errors import SpecError
from gossamer.numbers import real_number, require_positive

LEAST_SIGMA = 1.137
"""The main theorem needs this much noise: u0 and u1 are below 1 for r0(sigma) then."""

_HALF = (math.sqrt(3.0) - 1.0) / 2.0


def u_constants(r0: float, sigma: float) -> tuple[float, float]:
    """u0 = 2 sqrt(r0 sigma)/(sigma - r0) and u1 = e u0/sigma, both infinite where r0 >= sigma."""
    if r0 >= sigma:
        return math.inf, math.inf
    u0 = 2.0 * math.sqrt(r0 * sigma) / (sigma - r0)
    return u0, math.e * u0 / sigma


def higher_order(r0: float, sigma: float) -> float:
    """r = 8 r0 (1/(1 - u0) + e^3/((1 - u1) sigma^3)) exp(3/sigma^2), eq. 14; infinite unless u0, u1 < 1."""
    u0, u1 = u_constants(r0, sigma)
    if u0 >= 1 or u1 >= 1:
        return math.inf
    try:
        return 8.0 * r0 * (1.0 / (1.0 - u0) + (math.e / sigma) ** 3 / (1.0 - u1)) * math.exp(3.0 / sigma**2)
    except OverflowError:  # next to no noise
        return math.inf


def largest_r0(sigma: float) -> float:
    """1/e, or the r0 where u0 or u1 becomes 1 if that is less (r0 has to stay below it then).

    With x = sqrt(r0/sigma), u0 < 1 is 2x < 1 - x^2 and u1 < 1 is 2 e x < sigma (1 - x^2).

    Raises
    ------
    SpecError
        sigma is not positive.
    """
    require_positive(sigma=sigma)
    by_u0 = (3.0 - math.sqrt(8.0)) * sigma
    by_u1 = sigma * (sigma / (math.e + math.hypot(math.e, sigma))) ** 2
    return min(1.0 / math.e, by_u0, by_u1)


def recommended_r0(sigma: float, power: float) -> float:
    """r0(sigma) of the main theorem: r = (sqrt(3) - 1)/2 (3p+1)/((p+1)(2p+1)) (1 - r0/sigma)^2.

    The right side falls in r0 and r rises, so this has one root; the paper's iteration has it as its fixed point.

    Raises
    ------
    SpecError
        sigma is below 1.137, or the power is negative.
    """
    _require_noise(sigma)
    require_power(power)
    factor = _HALF * (3 * power + 1) / ((power + 1) * (2 * power + 1))

    def excess(r0: float) -> float:
        return higher_order(r0, sigma) - factor * (1.0 - r0 / sigma) ** 2

    return float(brentq(excess, 0.0, _HALF / 8.0, xtol=1e-18, rtol=1e-14))


@dataclass(frozen=True)
class MainTheorem:
    """Constants of the main theorem, in the general form of D.3.

    Attributes
    ----------
    power : float
        p >= 0.
    r0 : float
        In (0, 1/e], with u0 and u1 below 1.
    sigma : float
        Noise multiplier.
    ratio : float
        gamma, at least m/T; 0 neglects it.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    power: float
    r0: float
    sigma: float
    ratio: float = 0.0

    def __post_init__(self) -> None:
        require_positive(sigma=self.sigma)
        require_power(self.power)
        if not 0 <= real_number(self.ratio) < math.inf:
            raise SpecError(f"m/T must be a finite number >= 0, found {self.ratio!r}")
        most = largest_r0(self.sigma)
        if not (0 < real_number(self.r0) <= most and math.isfinite(self.r)):
            raise SpecError(
                f"r0 must lie in (0, 1/e], and with sigma {self.sigma:g} the theorem needs it to be at most "
                f"{most:.6g}; found {self.r0!r}"
            )

    @property
    def alpha(self) -> float:
        """r0/sigma, the largest share of the data set in a round."""
        return self.r0 / self.sigma

    @property
    def r(self) -> float:
        """`higher_order`."""
        return higher_order(self.r0, self.sigma)

    @property
    def a(self) -> float:
        """A(p, r0, sigma), the coefficient of K+."""
        p, alone = self.power, 1 - self.alpha
        inner = self.r * (2 * p + 1) ** 2 / (3 * p + 1) * (1 + self.ratio) ** (3 * (1 + 2 * p)) / alone**2
        return float((p + 1) ** (-p / (1 + 2 * p)) * inner ** ((1 + p) / (1 + 2 * p)))

    @property
    def b(self) -> float:
        """B(p, r0, sigma), the coefficient of K-."""
        p, grown = self.power, 1 + self.ratio
        x = 2 * self.r * (p + 1) * (2 * p + 1) * grown ** (2 * p) / ((3 * p + 1) * (1 - self.alpha) ** 2)
        gap = (2 / (x * (x + 2))) ** ((1 + p) / (1 + 2 * p))  # (x + 1)^2 - 1, without its cancellation
        return float(self.a * grown ** (-(1 + p) * (3 + 4 * p) / (1 + 2 * p)) * gap)

    @property
    def log_d(self) -> float:
        """log D, D = alpha^((1+p)/p)/(p+1) (1 + m/T)^-(1+p), for p > 0; printed with the last exponent as 1 + p."""
        p = self.power
        return (1 + p) / p * math.log(self.alpha) - math.log(p + 1) - (1 + p) * math.log1p(self.ratio)

    @property
    def loss(self) -> float:
        """(1 + m/T)^(2+3p)/sqrt(1 - alpha): in case 1, sigma has to be so many times sqrt(2 ln(1/delta)/epsilon)."""
        return float((1 + self.ratio) ** (2 + 3 * self.power) / math.sqrt(1 - self.alpha))

    @property
    def case_2_applies(self) -> bool:
        """Inequality (24), which case 2 needs."""
        p = self.power
        least = _HALF * (3 * p + 1) / ((p + 1) * (2 * p + 1)) * (1 - self.alpha) ** 2 / (1 + self.ratio) ** (2 * p)
        return bool(self.r >= least * (1 - 1e-12))

    def k_minus(self, epsilon: float, q: float, dataset_size: int) -> float:
        """K-: up to so many gradients case 1 holds."""
        return self.b * self._epochs(epsilon, q) * dataset_size

    def k_plus(self, epsilon: float, q: float, dataset_size: int) -> float:
        """K+: from so many gradients case 2 holds."""
        return self.a * self._epochs(epsilon, q) * dataset_size

    def k_star(self, q: float, dataset_size: int) -> float:
        """K*: up to so many gradients no round is larger than alpha of the data set; needs p > 0."""
        return math.exp(self.log_d - math.log(q) / self.power) * dataset_size

    def _epochs(self, epsilon: float, q: float) -> float:
        p = self.power
        return float(epsilon ** ((1 + p) / (1 + 2 * p)) * q ** (-1 / (1 + 2 * p)))

    def least_epsilons(self, epochs: float, q: float, rounds: int, delta: float) -> tuple[float, float]:
        """The least epsilon that each case claims for K = ``epochs`` N_c; infinite where case 2 claims none."""
        p, log_delta = self.power, math.log(1.0 / delta)
        by_size = (1 + 2 * p) / (1 + p)
        below = (epochs / (self.b * self._epochs(1.0, q))) ** by_size  # K <= K- from here on
        above = (epochs / (self.a * self._epochs(1.0, q))) ** by_size  # K >= K+ up to here
        case_1 = max(below, 2 * log_delta * (self.loss / self.sigma) ** 2)
        case_2 = self._by_noise(epochs, rounds, log_delta)
        return case_1, case_2 if self.case_2_applies and case_2 <= above else math.inf

    def budget(self, case: int, epsilon: float, epochs: float, rounds: int) -> float:
        """The largest sqrt(2 ln(1/delta)/epsilon) that sigma affords in a case; its condition on K is not looked at."""
        if case == 1:
            return self.sigma / self.loss
        return math.sqrt(2 * epsilon) / self._by_noise(epochs, rounds, 1.0)

    def _by_noise(self, epochs: float, rounds: int, log_delta: float) -> float:
        """The epsilon of inequality (28); in proportion to the root of ln(1/delta)."""
        p = self.power
        noise = epochs / (self.sigma * math.sqrt(rounds)) * math.sqrt(8 / (1 - self.alpha)) * (p + 1)
        return float(noise / math.sqrt(2 * p + 1) * math.sqrt(log_delta) * (1 + self.ratio) ** (p + 0.5))


def _require_noise(sigma: float) -> None:
    if not LEAST_SIGMA <= real_number(sigma) < math.inf:
        raise SpecError(f"the main theorem needs a finite sigma >= {LEAST_SIGMA}, for r0(sigma); found {sigma!r}")


def require_power(power: float) -> None:
    """Raise SpecError unless the power is finite and not negative."""
    if not 0 <= real_number(power) < math.inf:
        raise SpecError(f"the power p of the sizes must be a finite number >= 0, found {power!r}")
