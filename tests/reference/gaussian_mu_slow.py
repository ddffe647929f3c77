"""The least mu of sampled Gaussian noise: by gdpnum on dp-accounting's distribution, and by search."""

from __future__ import annotations

import numpy as np
from dp_accounting.pld.pld_pmf import DensePLDPmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from gdpnum.converter import PLDConverter
from scipy.stats import norm

INTERVAL = 1e-4


def both_ways(multiplier: float, rate: float, releases: int) -> PrivacyLossDistribution:
    """dp-accounting's distribution for a removed example, and in the other direction the one that belongs to it.

    dp-accounting rounds the two directions up apart, so they are of no one pair: of false alarms in the one and misses
    in the other gdpnum makes curves that no test can have (misses above 1 - false alarms), and a mu that is too small,
    such as 0.470 of one release with noise 1.554 and rate 0.4355, whose mu is at least 0.506 by hand.
    """
    composed = from_gaussian_mechanism(multiplier, sampling_prob=rate, value_discretization_interval=INTERVAL)
    removed = composed.self_compose(releases)._pmf_remove.to_dense_pmf()
    probabilities, lowest = removed._probs, removed._lower_loss
    turned = probabilities * np.exp(-INTERVAL * (lowest + np.arange(probabilities.size)))
    added = DensePLDPmf(INTERVAL, 1 - lowest - probabilities.size, turned[::-1], max(1 - turned.sum(), 0.0), True)
    return PrivacyLossDistribution(removed, added)


def gdpnum_mu(multiplier: float, rate: float, releases: int) -> float:
    """The mu that gdpnum finds."""
    return float(PLDConverter(both_ways(multiplier, rate, releases)).get_mu())


def searched_mu(losses: np.ndarray, deltas: np.ndarray, least: float) -> float:
    """The least mu by definition: at each of many rates of false alarms the fewest misses that the lines allow."""
    alphas = np.geomspace(least, 0.5, 20_000)
    misses = np.max(1 - deltas[:, None] - np.exp(losses)[:, None] * alphas, axis=0)
    counted = misses >= alphas  # the other half is its mirror
    return float(np.max(norm.isf(alphas[counted]) + norm.isf(misses[counted])))
