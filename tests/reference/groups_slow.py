"""The pairs for persons with several rows as they are written: every number of rows, and a root for every loss."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import log_ndtr, logsumexp
from scipy.stats import binom

FloatArray = npt.NDArray[np.float64]


def sampled(mu: float, rate: float, rows: int, loss: float) -> float:
    """H(P||Q) of sum_k Binomial(rows, rate)(k) N(k mu, 1) against N(0, 1)."""
    logs, shifts = binom.logpmf(np.arange(rows + 1), rows, rate), mu * np.arange(rows + 1)

    def ahead(output: float) -> float:
        return float(logsumexp(logs + output * shifts - shifts**2 / 2))

    cut = _where(ahead, loss, 0.0, float(shifts[-1]) + 40)
    return _difference(logs + log_ndtr(shifts - cut), np.array([loss + log_ndtr(-cut)]))


def sampled_back(mu: float, rate: float, rows: int, loss: float) -> float:
    """H(Q||P) of the same."""
    logs, shifts = binom.logpmf(np.arange(rows + 1), rows, rate), mu * np.arange(rows + 1)
    if loss >= -logs[0]:
        return 0.0

    def behind(output: float) -> float:
        return -float(logsumexp(logs - output * shifts - shifts**2 / 2))

    cut = -_where(behind, loss, -float(shifts[-1]) - 40, 40.0 + loss / mu)
    return _difference(np.array([log_ndtr(cut)]), loss + logs + log_ndtr(cut - shifts))


def replaced(mu: float, rate: float, rows: int, loss: float) -> float:
    """H(P||Q) of sum_k Binomial(rows, rate)(k) N(k mu, 1) against the same with N(-k mu, 1)."""
    logs, shifts = binom.logpmf(np.arange(rows + 1), rows, rate), mu * np.arange(rows + 1)

    def ahead(output: float) -> float:
        terms = logs - shifts**2 / 2
        return float(logsumexp(terms + output * shifts) - logsumexp(terms - output * shifts))

    cut = _where(ahead, loss, 0.0, float(shifts[-1]) + 40)
    return _difference(logs + log_ndtr(shifts - cut), loss + logs + log_ndtr(-shifts - cut))


def _where(increasing, target: float, low: float, high: float) -> float:  # type: ignore[no-untyped-def]
    return float(brentq(lambda output: increasing(output) - target, low, high, xtol=1e-13))


def _difference(more: FloatArray, less: FloatArray) -> float:
    return math.fsum([*np.exp(more), *(-np.exp(less))])


def hypergeometric(rows: int, size: int, batch: int) -> list[Fraction]:
    """Exact probabilities that 0, 1, ..., ``rows`` of ``rows`` among ``size`` are in a batch."""
    whole = math.comb(size, rows)
    return [Fraction(math.comb(batch, k) * math.comb(size - batch, rows - k), whole) for k in range(rows + 1)]


def binomial(rows: int, rate: float) -> list[Fraction]:
    """Exact probabilities that 0, 1, ..., ``rows`` of ``rows`` are sampled."""
    one = Fraction(rate)
    return [math.comb(rows, k) * one**k * (1 - one) ** (rows - k) for k in range(rows + 1)]
