"""Claims of asynchronous federated learning with increasing sample sizes: two theorems on privacy, one on the rate.

| symbol | here |
|---|---|
| s_i, N_c | ``sizes``, ``dataset_size``: gradients in round i of a client, and its examples |
| sigma | ``noise_multiplier``: the noise on a round's sum is N(0, (sigma C)^2 I) |
| q_i = q (i + m)^p | share of the data set in round i; q and m are not rates, (q, m, p) is ``power`` |
| T, K | rounds, and gradients in all of them |
| gamma = m/T | ``MainTheorem.ratio`` |
| alpha = r0/sigma | the most that any s_i/N_c may be |
| r | `higher_order`: of the error term that Abadi et al. leave in O-notation |
| A, B, log D | ``a``, ``b``, ``log_d`` of it |

**Which formulas.** Those of the proofs. The paper prints (1 + m/T)^(1+p) in K* and D; D.3.1 derives q (T + m)^p <=
alpha from ``s/N ((p+1) K/s)^(p/(1+p)) (1 + m/T)^p <= alpha``, which solved for K has (1 + m/T)^-(1+p). A and B are the
general ones of D.3; with r0(sigma) and m/T -> 0 they are those of the main text. Case 2 is inequality (28): (16) and
(29) follow from it only with T at its upper bound in a denominator, and lose a factor (1 + m/T)^(1/2).

**What really holds.** Not this. Within a round the local model moves after every example, so one example changes the
later gradients of its round too, and the sum does not have sensitivity C as the proof assumes; examples are drawn with
replacement, and Abadi et al.'s lemma is about Poisson samples. The proof also needs an integer lambda with
``lambda + 1 <= c0 eps/(2 S_2)`` and goes on as if lambda could be c0 eps/(2 S_2) itself. What is proved is about
rounds whose gradients are taken at released models; it is computed from the ledger and is no part of this module.

**The rate** of Theorem 2.2 has T_0 = exp(2 (1 + (L + mu) alpha/mu)) gradients as its condition, which at the paper's
alpha = 36 is e^146 at least: it is about no run that anybody makes. The paper expects a much smaller one in practice.

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes): both theorems of section 3, eq. 14 of D.2, the theorem of D.3 and its proof;
Lemma C.2.2 and the theorem after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq

from gossamer.algorithms.increasing.settings import TheoryDelay
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, real_number, require_fraction, require_not_negative, require_positive
from gossamer.privacy.guarantees import Claim, UtilityClaim

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
    if not LEAST_SIGMA <= real_number(sigma) < math.inf:
        raise SpecError(f"the main theorem needs a finite sigma >= {LEAST_SIGMA}, for r0(sigma); found {sigma!r}")
    require_not_negative(power=power)
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
        Number in (0, 1/e], with u0 and u1 below 1.
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
        require_not_negative(power=self.power, ratio=self.ratio)
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


FIRST = "increasing sample sizes, Theorem 3 (first)"
MAIN = "increasing sample sizes, Theorem 3 (main)"


RATE = "increasing sample sizes, Theorem 2.2"


def theorem_22(gradients: float, gradient_square: float, of: TheoryDelay) -> UtilityClaim:
    """8 alpha^2 N/mu^2 t/(t + 2 tau(t) - 1)^2, the bound of E ||w_t - w*||^2 with sizes, steps and delays ``theory``.

    Parameters
    ----------
    gradients : float
        t, of all clients together.
    gradient_square : float
        E ||grad f(w*; xi)||^2 of an example xi at the minimum w*; N is twice that.
    of : TheoryDelay
        tau, with the constants of the theory.

    Returns
    -------
    UtilityClaim
        Valid from T_0 gradients on, of dense examples: the paper's T_0 falls with the sparsity of theirs. It needs a
        tau that keeps to the paper's bound (12) from there on: g at least 2, and tau(t) in it.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(gradients=gradients)
    require_not_negative(gradient_square=gradient_square)
    mu, alpha = of.strong_convexity, of.alpha
    leading = 16.0 * alpha**2 * gradient_square / mu**2
    bound = leading * gradients / (gradients + 2.0 * of.at(gradients) - 1.0) ** 2
    needed, found = 2.0 * (1.0 + (of.smoothness + mu) * alpha / mu), math.log(gradients)
    why = f"the theorem is about t >= T_0 = exp({needed:.4g}), and t is exp({found:.4g})"
    if found < needed:
        return UtilityClaim(RATE, bound, gradients, False, why)
    most = math.sqrt(gradients / found * (1.0 - 1.0 / found))
    within = of.g >= 2 and of.at(gradients) <= most
    delays = f"; of delays it asks for g >= 2 and a tau(t) of at most {most:.4g} (12), found {of.g:g} and "
    return UtilityClaim(RATE, bound, gradients, within, why + ("" if within else f"{delays}{of.at(gradients):.4g}"))


def increasing_claims(
    sizes: Sequence[int] | npt.NDArray[np.int64],
    dataset_size: int,
    noise_multiplier: float,
    delta: float,
    power: tuple[float, float, float] | None = None,
    r0: float | None = None,
) -> list[Claim]:
    """Claims of the two theorems for one client's rounds: the least epsilon at ``delta``.

    Parameters
    ----------
    sizes : sequence of int [rounds]
        s_i, gradients in each of the client's rounds; nothing is claimed of none.
    dataset_size : int
        N_c, at least the largest of them.
    noise_multiplier : float
        sigma, the same in all rounds.
    delta : float
        Probability, in (0, 1).
    power : (q, m, p), optional
        Constants of a schedule s_i = ceil(N_c q (i + m)^p), i = 0, 1, ...; without it the main theorem claims nothing.
    r0 : float, optional
        r0 of the main theorem, where it is to be larger than the least that the sizes allow: case 2 needs a large r.

    Returns
    -------
    list of Claim
        The first theorem, with the least r0 that the sizes allow, and the main one. Where a condition fails, epsilon is
        what the formula alone would give, infinite where it gives nothing.

    Raises
    ------
    SpecError
        A size is not a whole number from 0 to dataset_size, or another value is out of its range.
    """
    counts = _checked(sizes, dataset_size)
    require_positive(noise_multiplier=noise_multiplier)
    require_fraction(delta=delta)
    if not counts.any():
        return []
    claims = [first_theorem(counts, dataset_size, noise_multiplier, delta)]
    if power is not None:
        claims.append(main_theorem(counts, dataset_size, noise_multiplier, delta, power, r0))
    return claims


def first_theorem(counts: FloatArray, dataset_size: int, sigma: float, delta: float) -> Claim:
    """The first theorem solved for epsilon, with rho and rho_hat as the sizes have them.

    sigma >= 2 sqrt(S_2 T ln(1/delta)/c(c1))/epsilon with epsilon = c1 T S_1^2 is c(c1) c1^2 >= y, and x^2 c(x) rises in
    x in both branches of c: c1 is the larger of rho_hat y/2 and the root of x (sqrt(2 r rho x + 1) - 1) = r rho y. r
    rises with r0, so the least r0 claims most: sigma times the largest share.
    """
    shares = counts / dataset_size
    r0 = sigma * float(shares.max())
    failures, r = _failures(r0, sigma), higher_order(r0, sigma)
    parameters = {"r0": r0, "r": r, "sigma": sigma}
    if not math.isfinite(r):
        return Claim(FIRST, math.inf, delta, False, "; ".join(failures), parameters)
    one, two, three = (float(np.mean(shares**j / (1 - shares) ** (j - 1))) for j in (1, 2, 3))
    rho, rho_hat = one * three / two**2, one**2 / two
    y = 4 * two * math.log(1 / delta) / (sigma**2 * counts.size * one**4)
    c1 = max(rho_hat * y / 2, _root(r * rho, y))
    why = "; ".join(failures) or f"the largest round is {r0 / sigma:.4g} of the data set, within r0/sigma, r0 {r0:.4g}"
    parameters |= {"c1": c1, "rho": rho, "rho_hat": rho_hat}
    return Claim(FIRST, c1 * counts.size * one**2, delta, not failures, why, parameters)


def main_theorem(
    counts: FloatArray,
    dataset_size: int,
    sigma: float,
    delta: float,
    power: tuple[float, float, float],
    r0: float | None = None,
) -> Claim:
    """The main theorem solved for epsilon: the lesser of its two cases, at ``r0`` or the least that the sizes allow."""
    q, m, p = power
    require_positive(q=q)
    require_not_negative(power=p, m=m)
    with np.errstate(over="ignore"):  # infinite is too large for any condition
        shares = q * (np.arange(counts.size + 1) + m) ** p
    alpha = max(float(counts.max()) / dataset_size, float(shares[-1]), 0.0 if r0 is None else r0 / sigma)
    failures = _failures(sigma * alpha, sigma)
    if sigma < LEAST_SIGMA:
        failures.append(f"the main theorem needs sigma >= {LEAST_SIGMA}, found {sigma:g}")
    rounding = counts - dataset_size * shares[:-1]
    if not np.all((rounding > -1e-6) & (rounding < 1 + 1e-6)):
        place = int(np.argmax(np.abs(rounding)))
        failures.append(
            f"the sizes do not follow ceil(N q (i + m)^p): round {place} has {counts[place]:.0f}, "
            f"and N q (i + m)^p is {dataset_size * shares[place]:.6g}"
        )
    parameters: dict[str, Any] = {"q": q, "m": m, "p": p, "r0": sigma * alpha, "sigma": sigma}
    if sigma * alpha > largest_r0(sigma) or not math.isfinite(higher_order(sigma * alpha, sigma)):
        return Claim(MAIN, math.inf, delta, False, "; ".join(failures), parameters)
    theorem = MainTheorem(p, sigma * alpha, sigma, m / counts.size)
    cases = theorem.least_epsilons(float(counts.sum()) / dataset_size, q, counts.size, delta)
    case = int(np.argmin(cases))
    epsilon = cases[case]
    limit = (theorem.k_minus, theorem.k_plus)[case](epsilon, q, dataset_size)
    holds = f"case {case + 1}: K = {counts.sum():.0f} is {('at most K-', 'at least K+')[case]} = {limit:.6g}"
    parameters |= {"r": theorem.r, "ratio": theorem.ratio}
    return Claim(MAIN, epsilon, delta, not failures, "; ".join(failures) or holds, parameters)


def _failures(r0: float, sigma: float) -> list[str]:
    """Reasons that no round may be as large as r0/sigma; empty if it may.

    The theorem needs r0 <= 1/e, and u0 and u1 of eq. 14 below 1 (`increasing.claims.u_constants`).
    """
    most = largest_r0(sigma)
    if r0 <= most and math.isfinite(higher_order(r0, sigma)):
        return []
    return [
        f"the largest round is {r0 / sigma:.4g} of the data set, and with sigma {sigma:g} the theorem needs every "
        f"round to be at most r0/sigma = {most / sigma:.4g}"
    ]


def _root(a: float, y: float) -> float:
    """The x with x (sqrt(2 a x + 1) - 1) = a y: with v = sqrt(2 a x + 1) - 1, v^2 (v + 2) = 2 a^2 y."""
    # v = a sqrt(y) w, so that w is in (0, 1] and nothing overflows or cancels.
    scale = a * math.sqrt(y)
    w = float(brentq(lambda w: w * w * (scale * w + 2) - 2, 0.0, 1.0, xtol=1e-300, rtol=1e-14))
    return math.sqrt(y) * w * (scale * w + 2) / 2


def _checked(sizes: Sequence[int] | npt.NDArray[np.int64], dataset_size: int) -> FloatArray:
    require_positive(dataset_size=dataset_size)
    found = np.asarray(sizes)
    counts = np.asarray(found, np.float64)
    wrong = ~((counts >= 0) & (counts <= dataset_size) & (counts == np.floor(counts)))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise SpecError(
            f"the size of a round must be a whole number from 0 to the {dataset_size} examples of the data set, "
            f"found {found[place]} in round {place}"
        )
    return counts
