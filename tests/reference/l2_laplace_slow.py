"""Slow, obvious accounting of L2-Laplace noise: quadrature over the noise's norm, 40-digit arithmetic, and sampling."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import mpmath
import numpy as np
import numpy.typing as npt
from scipy.integrate import quad
from scipy.special import betainc
from scipy.stats import gamma

FloatArray = npt.NDArray[np.float64]


def by_norm(epsilon: float, size: int, loss: float, shift: float = 1.0) -> float:
    """H(P||Q) at ``loss`` of any sign, for a shift of length ``shift`` <= 1, in units of the sensitivity.

    P(L > loss) - exp(loss) Q(L > loss), each an integral over the norm r ~ Gamma(size, 1/epsilon) of the probability
    that the cosine t between noise and shift is far enough up, with (1 + t)/2 ~ Beta((size-1)/2, (size-1)/2):
    |n + shift| - |n| > a where t > (a^2 + 2 r a - shift^2) / (2 r shift), if r + a > 0.
    """
    half = (size - 1) / 2
    law = gamma(size, scale=1 / epsilon)
    kinks = [(shift + abs(loss / epsilon)) / 2, abs(shift - abs(loss / epsilon)) / 2, abs(loss / epsilon)]
    cuts = [0.0, *kinks, *law.ppf([1e-16, 1e-6, 0.1, 0.5, 0.9, 1 - 1e-6]), law.isf(1e-16)]
    cuts = sorted(cut for cut in cuts if cut <= law.isf(1e-16))

    def exceeds(norm: float, above: float) -> float:
        """Probability that |n + shift| - |n| is larger than ``above``."""
        if norm + above <= 0:
            return 1.0
        cosine = (above**2 + 2 * norm * above - shift**2) / (2 * norm * shift) if norm else -1.0
        return float(betainc(half, half, min(max((1 - cosine) / 2, 0.0), 1.0)))

    def expected(above: float, sign: float) -> float:
        """Probability under P that the loss exceeds ``above``, or for sign -1 that it is less."""

        def integrand(norm: float) -> float:
            inside = exceeds(norm, above)
            return float(law.pdf(norm)) * (inside if sign > 0 else 1 - inside)

        return sum(quad(integrand, low, high, epsabs=1e-13, limit=200)[0] for low, high in pairwise(cuts))

    return expected(loss / epsilon, 1.0) - math.exp(loss) * expected(-loss / epsilon, -1.0)


def by_density(epsilon: float, size: int, losses: Iterable[float]) -> list[mpmath.mpf]:
    """H(P||Q) from the density of the loss (`l2_laplace`), with 40 digits, for size >= 2."""
    with mpmath.workdps(40):
        eps, n = mpmath.mpf(epsilon), mpmath.mpf(size)
        kappa = 1 + 2 * (n - 1) / eps * mpmath.besselk(n / 2, eps / 2) / mpmath.besselk(n / 2 - 1, eps / 2)
        mode = eps / (n - 1 + mpmath.sqrt((n - 1) ** 2 + eps**2))
        width = 1 / mpmath.sqrt(eps * mode / 2 + (n - 1) / (1 - mode**2))
        cuts = [mpmath.acos(mode) + 2 * k * width for k in range(-30, 31)]

        def integral(weight: object, end: object) -> mpmath.mpf:
            """Of density times weight over the angles from 0 to ``end``; quadrature there has an absolute error."""
            inside = [mpmath.mpf(10) ** -35, *(cut for cut in cuts if 1e-9 < cut < end), end]
            scale = max(density(point) for point in inside)
            return scale * mpmath.quad(lambda angle: density(angle) / scale * weight(angle), inside)  # type: ignore[operator]

        def density(angle: mpmath.mpf) -> mpmath.mpf:
            v = mpmath.cos(angle)
            log = eps / 2 * (v - mode) + (n - 2) * (mpmath.log(mpmath.sin(angle)) - mpmath.log(1 - mode**2) / 2)
            return mpmath.exp(log) * (kappa - v**2) / kappa

        total = integral(lambda angle: 1 + mpmath.exp(-eps * mpmath.cos(angle)), mpmath.pi / 2)

        def divergence(loss: float) -> mpmath.mpf:
            start = mpmath.mpf(loss)

            def gain(angle: mpmath.mpf) -> mpmath.mpf:
                return -mpmath.expm1(start - eps * mpmath.cos(angle))

            return integral(gain, mpmath.acos(start / eps)) / total

        return [divergence(loss) for loss in losses]


def sampled_losses(epsilon: float, size: int, shift: FloatArray, draws: int, seed: int) -> FloatArray:
    """Privacy losses of the noise in units of the sensitivity, [draws], for a shift of at most ``size`` coordinates."""
    generator = np.random.default_rng(seed)
    direction = generator.standard_normal((draws, size))
    norm = generator.gamma(size, 1 / epsilon, draws)
    noise = direction * (norm / np.linalg.norm(direction, axis=1))[:, None]
    moved = noise.copy()
    moved[:, : shift.size] += shift
    losses: FloatArray = epsilon * (np.linalg.norm(moved, axis=1) - norm)
    return losses


def three_dimensional(epsilon: float, loss: float) -> float:
    """H(P||Q) in three dimensions, in elementary functions.

    There f(v) ~ exp(epsilon v/2) (kappa - v^2) with kappa = 1 + 4/epsilon + 8/epsilon^2, as K_{3/2}/K_{1/2} at x is
    1 + 1/x; and int exp(c v) (kappa - v^2) dv = exp(c v) (kappa - v^2 + 2 v/c - 2/c^2)/c.
    """
    kappa = 1 + 4 / epsilon + 8 / epsilon**2

    def integral(rate: float, low: float) -> float:
        def antiderivative(v: float) -> float:
            return math.exp(rate * v) * (kappa - v**2 + 2 * v / rate - 2 / rate**2) / rate

        return antiderivative(1.0) - antiderivative(low)

    cut, rate = loss / epsilon, epsilon / 2
    return (integral(rate, cut) - math.exp(loss) * integral(-rate, cut)) / integral(rate, -1.0)
