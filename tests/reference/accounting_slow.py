"""Slow, obvious accountants to compare with: textbook formulas, quadrature, and dp-accounting itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt
from dp_accounting import NeighboringRelation as DpRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.stats import binom, norm

FloatArray = npt.NDArray[np.float64]
Density = Callable[[FloatArray], FloatArray]


def gaussian_delta(sensitivity: float, deviation: float, epsilon: float) -> float:
    """Balle and Wang (ICML 2018), theorem 8."""
    mu = sensitivity / deviation
    upper, lower = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
    return float(norm.cdf(upper) - math.exp(epsilon + norm.logcdf(lower)))


def gaussian_epsilon(sensitivity: float, deviation: float, delta: float) -> float:
    """The epsilon >= 0 of one full-batch Gaussian release."""
    if gaussian_delta(sensitivity, deviation, 0.0) <= delta:
        return 0.0
    top = 1.0
    while gaussian_delta(sensitivity, deviation, top) > delta:
        top *= 2
    return float(brentq(lambda e: gaussian_delta(sensitivity, deviation, e) - delta, 0.0, top, xtol=1e-13))


def response_delta(single: float, releases: int, epsilon: float) -> float:
    """Of ``releases`` randomized responses: a sum over the number of truthful answers."""
    total = 0.0
    for lies in range(releases + 1):
        difference = math.exp((releases - lies) * single) - math.exp(epsilon + lies * single)
        total += math.comb(releases, lies) * max(difference, 0.0)
    return total / (1 + math.exp(single)) ** releases


def dp_accounting_epsilon(
    releases: Iterable[tuple[float, float, int]],
    delta: float,
    interval: float,
    relation: DpRelation = DpRelation.ADD_OR_REMOVE_ONE,
) -> float:
    """dp-accounting's own epsilon of Poisson-subsampled Gaussians, given as (noise multiplier, rate, count)."""
    total = privacy_loss_distribution.identity(interval)
    for multiplier, rate, count in releases:
        single = privacy_loss_distribution.from_gaussian_mechanism(
            multiplier, value_discretization_interval=interval, sampling_prob=rate, neighboring_relation=relation
        )
        total = total.compose(single.self_compose(count))
    return float(total.get_epsilon_for_delta(delta))


def dp_accounting_group_epsilon(
    multiplier: float, rate: float, rows: int, count: int, delta: float, interval: float
) -> float:
    """dp-accounting's own epsilon of Poisson-subsampled Gaussians for ``rows`` rows that are added or removed."""
    numbers = np.arange(rows + 1)
    single = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        multiplier, numbers, binom.pmf(numbers, rows, rate), value_discretization_interval=interval
    )
    return float(single.self_compose(count).get_epsilon_for_delta(delta))


def mixture(means: Iterable[float], weights: Iterable[float]) -> Density:
    """The density of a mixture of unit normals."""
    parts = list(zip(means, weights))
    return lambda x: np.sum([weight * norm.pdf(x, mean) for mean, weight in parts], axis=0)


def divergence(upper: Density, lower: Density, epsilon: float, times: int = 1, reach: float = 12.0) -> float:
    """H(upper||lower) at ``epsilon``, of one or two independent draws, by the midpoint rule."""
    step = 2e-4 if times == 1 else 8e-3
    points = np.arange(-reach, reach, step) + step / 2
    p, q = upper(points), lower(points)
    if times == 1:
        return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)) * step)
    rows = (np.sum(np.maximum(a * p - math.exp(epsilon) * b * q, 0.0)) for a, b in zip(p, q))
    return float(sum(rows)) * step**2
