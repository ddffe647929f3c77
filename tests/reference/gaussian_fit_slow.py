"""The least mu of a plan, but for a failure: at every loss of a fine grid, from dp-accounting's distributions."""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.stats import norm


def right_side(mu: float, failure: float, losses: np.ndarray) -> np.ndarray:
    """f + (1-f) (Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu)), written out."""
    gaussian = norm.cdf(mu / 2 - losses / mu) - np.exp(losses + norm.logcdf(-mu / 2 - losses / mu))
    return failure + (1 - failure) * gaussian


def slow_least_mu(multiplier: float, rate: float, releases: int, failure: float, *, above: bool) -> float:
    """Of Poisson samples with Gaussian noise, one example added or removed: to 1e-4, from ``above`` or from below."""
    single = from_gaussian_mechanism(
        multiplier, sampling_prob=rate, value_discretization_interval=1e-4, pessimistic_estimate=above
    )
    composed = single.self_compose(releases)
    end = composed.get_epsilon_for_delta(failure)
    losses = np.linspace(0, end, 2000)
    divergences = np.array(composed.get_delta_for_epsilon(losses))
    low, high = 1e-3, 50.0
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        if (right_side(middle, failure, losses) >= divergences).all():
            high = middle
        else:
            low = middle
    return high
