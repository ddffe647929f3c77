"""Law of the number of a person's rows in a sample, never below it in distribution.

Of m rows a Poisson sample has a binomial number K, and a batch of fixed size a hypergeometric one. All that is computed
from K's law grows with K (`group_pairs`, "Monotone"): a law that is larger in distribution dominates, whether K is the
number of rows whose sum moves, or what `group_pairs.Coins` publishes. So a law K' is used with P(K' >= k) >= P(K >= k)
for every k, and it has few values:

- **Rounding.** Probabilities are products of ratios of neighbours, from the mode on, over their sum. n ratios, computed
  and added up as logarithms, leave a relative error of at most n (5e-15 + 5e-16 abs(log p)). Probabilities of numbers
  below the mode are lowered by twice that and those above it raised, and the mode has what is missing to 1: so
  P(K' <= k) <= P(K <= k) for k below the mode, and P(K' >= k) >= P(K >= k) above it. What is below 1e-300 is 0.
- **Tails.** On either side of the middle, outside which K is with a probability of `_SELDOM`, some numbers stand for
  all: each has the probability of those between it and the one before it, so every number is rounded up. 0 keeps its
  own probability, which is the largest loss of what is seen without the person.
- **The middle** keeps every number, or is rounded up in the same way to at most ``most`` of them.

`scipy.stats.hypergeom` takes logarithms of factorials of the data's size, whose rounding errors are 1e-7 and more of a
probability where that is 1e9; ratios of neighbours have none of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from gossamer.arrays import FloatArray

EVERY = 10**9
"""As many numbers in the middle as there are."""

_MARGIN = 1e-15  # twice the relative error of p is below this times 10 - log p, and the number of ratios
_SELDOM, _RARE = 1e-15, 1e-60  # probabilities of tails; they are rounded up, not left out
# Numbers that stand for tails: below the middle, where the loss of a replaced person is decided; above it; and beyond.
_BELOW, _ABOVE, _FAR = 64, 12, 4


class RowNumbers(NamedTuple):
    """A law of a number of rows.

    Attributes
    ----------
    values : ndarray [values]
        Increasing, from 1 on.
    logs : ndarray [values]
        Logarithms of their probabilities.
    log_none : float
        The logarithm of the probability of 0.
    some : float
        The probability of 1 or more.
    """

    values: FloatArray
    logs: FloatArray
    log_none: float
    some: float


@lru_cache(maxsize=1024)
def binomial(rows: int, probability: float, most: int = EVERY) -> RowNumbers:
    """Numbers of ``rows`` rows, each of them sampled with ``probability`` below 1."""
    odds = math.log(probability) - math.log1p(-probability)
    return _dominating(0, np.log(np.arange(rows, 0, -1.0) / np.arange(1.0, rows + 1)) + odds, most)


@lru_cache(maxsize=1024)
def hypergeometric(rows: int, size: int, batch: int, most: int = EVERY) -> RowNumbers:
    """Numbers of ``rows`` rows among ``size`` that are in a batch of ``batch``."""
    rows = min(rows, size)
    least, top = max(0, batch - (size - rows)), min(rows, batch)
    ratios = [(rows - k) * (batch - k) / ((k + 1) * (size - rows - batch + k + 1)) for k in range(least, top)]
    return _dominating(least, np.log(ratios), most)


def _dominating(least: int, steps: FloatArray, most: int) -> RowNumbers:
    """The law on ``least``, ``least`` + 1, ... from above; the logarithms of its probabilities go up by ``steps``."""
    logs = _rounded_up(_normalised(steps))
    with np.errstate(under="ignore"):
        probabilities = np.exp(logs)
    kept = _kept(probabilities, least, most)
    starts = np.append(0, kept[:-1] + 1)
    with np.errstate(under="ignore"):
        masses = np.add.reduceat(probabilities, starts)
    own = kept + least
    used = (own > 0) & (masses > 0)
    with np.errstate(divide="ignore"):
        return RowNumbers(
            own[used].astype(np.float64),
            np.log(masses[used]),
            float(logs[0]) if least == 0 else -math.inf,
            min(math.fsum(masses[own > 0]), 1.0),
        )


def _normalised(steps: FloatArray) -> FloatArray:
    """Logarithms of probabilities that go up by ``steps``; summed from the mode, where nothing is lost."""
    mode = int(np.argmax(np.append(0.0, np.cumsum(steps))))
    down, up = -np.cumsum(steps[:mode][::-1])[::-1], np.cumsum(steps[mode:])
    logs = np.concatenate([down, [0.0], up])
    normalised: FloatArray = logs - logsumexp(logs)
    return normalised


def _rounded_up(logs: FloatArray) -> FloatArray:
    mode = int(np.argmax(logs))
    room = _MARGIN * (logs.size + 3) * (10 - logs)
    raised = np.concatenate([logs[:mode] - room[:mode], [0.0], logs[mode + 1 :] + room[mode + 1 :]])
    with np.errstate(under="ignore"):
        others = math.fsum(np.exp(raised[:mode])) + math.fsum(np.exp(raised[mode + 1 :]))
    raised[mode] = math.log1p(-others)
    return raised


def _kept(probabilities: FloatArray, least: int, most: int) -> npt.NDArray[np.int64]:
    """Positions of the numbers that stand for themselves and those below them, the last one among them."""
    top = probabilities.size - 1
    low = int(np.argmax(np.cumsum(probabilities) > _SELDOM))
    high, higher = (top - int(np.argmax(np.cumsum(probabilities[::-1]) > rare)) for rare in (_SELDOM, _RARE))
    step = math.ceil((high - low + 1) / most)
    ends = [0] if least == 0 else []
    stretches = [(0, low, min(_BELOW, most)), (high, higher, _ABOVE), (higher, top, _FAR)]
    evenly = [np.linspace(start, end, number + 1)[1:] for start, end, number in stretches]
    return np.unique(np.concatenate([ends, *evenly, np.arange(high, low, -step)]).astype(np.int64))
