"""Histograms of a model's scores by outcome on a public grid, as sums that can be noised; counts again from noisy ones.

A row of two outcomes is in one of 2 B cells: its outcome, and the bin of its score, the logarithm of the odds that the
model gives. The bins are fixed before anything is looked at. A histogram is measured as a tree [1]: of each outcome the
two halves of the grid are counted, the four quarters, and so on down to the bins, each level times the root of its
share. A row adds one vector of the public matrix to the sum, which is 1 long, so the sum's sensitivity is that of any
clipped sum of length 1, whatever the model and the rows are.

Least squares makes counts of noisy sums, without bias: x = (A' A)^-1 A' z, with the noise's covariance v (A' A)^-1
where v is the variance of one number's noise. Counts over many bins, which figures are made of, have far less of it
than in a plain histogram: a third of the deviation for the area under the ROC curve.

References
----------
[1] Hay, Rastogi, Miklau and Suciu, "Boosting the accuracy of differentially private histograms through consistency",
    VLDB 2010; for scores by outcome: Cormode and Markov, "Federated calibration and evaluation of binary classifiers",
    VLDB 2023, sections 3 and 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.magnitudes import UnitVectors
from gossamer.objectives.objective import Objective, Part
from gossamer.objectives.scores import of_second

BINS = 32
"""B, a power of two."""
EDGES = 1.5 * logit(np.arange(1, BINS) / BINS)
"""Scores between two bins, [B - 1], from -5.2 to 5.2: close together in the middle, where most scores are."""
SHARES = np.array([4, 4, 3, 2, 2]) / 15
"""Share of each level of the tree, from halves to bins, in a row's squared length: coarse ones tell most of figures."""
SIZE = 2 * (2 * BINS - 2)
"""Numbers that are released."""
_SHORTENED = 1 - 1e-12
"""Rounding of the matrix must not take a row's vector over the length of 1."""


def _middles() -> FloatArray:
    width = EDGES[1] - EDGES[0]
    ends = np.concatenate(([EDGES[0] - width], EDGES, [EDGES[-1] + width]))
    return np.asarray((ends[1:] + ends[:-1]) / 2, np.float64)


SCORES = _middles()
"""The score that stands for each bin, [B]."""
CHANCES = expit(SCORES)
"""The same as probabilities."""


def cells(scores: npt.NDArray[np.floating[Any]], outcomes: npt.NDArray[Any]) -> IndexArray:
    """Return the cell of each row, [n]: its bin, and B more where its outcome is 1.

    Parameters
    ----------
    scores : ndarray [n]
        Logarithms of the odds of outcome 1. One that is not a number counts as 0.
    outcomes : ndarray [n]
        0 or 1.
    """
    bins = np.searchsorted(EDGES, np.nan_to_num(np.asarray(scores, np.float64), nan=0.0), side="right")
    return np.asarray(bins + BINS * (np.asarray(outcomes) != 0), np.int64)


def measured(found: IndexArray) -> FloatArray:
    """Return the sum over rows of their vectors, [SIZE], by the rows' ``cells`` [n]: raw."""
    of_cells = np.bincount(found, minlength=2 * BINS).astype(np.float64).reshape(2, BINS)
    return (of_cells @ _matrix().T).ravel()


@cache
def _matrix() -> FloatArray:
    """A of one outcome, [SIZE / 2, B]; a column is 1 long, but for rounding, and never longer."""
    roots = enumerate(np.sqrt(SHARES) * _SHORTENED, 1)
    return np.concatenate([root * np.kron(np.eye(2**level), np.ones(BINS >> level)) for level, root in roots])


@cache
def unit_covariance() -> FloatArray:
    """Covariance of the counts of one outcome, [B, B], of noise of variance 1; two outcomes are independent."""
    matrix = _matrix()
    return np.asarray(np.linalg.inv(matrix.T @ matrix), np.float64)


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """Estimated counts of scores by outcome.

    Attributes
    ----------
    counts : ndarray [2, B]
        Counts of each outcome, without bias; noise makes some negative, and none a whole number.
    variance : float
        Variance of the noise of one released number; of a sum over parties that of all together.
    rows : float
        Public number of rows, which no noise is in; of a group, whose number is not, an even share.
    """

    counts: npt.NDArray[np.float64]
    variance: float
    rows: float

    @classmethod
    def of(cls, released: npt.NDArray[np.floating[Any]], deviation: float, rows: float) -> Self:
        """Return the counts that a released sum [SIZE] of rows says, whose noise has this standard deviation."""
        sums = np.asarray(released, np.float64).reshape(2, -1)
        return cls(sums @ _matrix() @ unit_covariance(), deviation**2, rows)

    @classmethod
    def exact(cls, scores: npt.NDArray[np.floating[Any]], outcomes: npt.NDArray[Any]) -> Self:
        """Return the counts of rows, without noise."""
        found = np.bincount(cells(scores, outcomes), minlength=2 * BINS)
        return cls(found.astype(np.float64).reshape(2, BINS), 0.0, len(outcomes))

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        """Counts of the rows of both, whose noise is independent."""
        return ScoreCounts(self.counts + other.counts, self.variance + other.variance, self.rows + other.rows)


class ScoreHistogram(UnitVectors):
    """Sums over rows of the vectors by which a model's scores are counted, in the place of gradients.

    Parameters
    ----------
    objective : Objective
        Objective of two classes, whose scores are logarithms of odds.
    model : ndarray [objective.size]
        The model, made of what was released.
    group : ndarray [n] of int64
        Group of each row of the data, from 0.
    groups : int
        Number of groups, each with a histogram of its own: a row is in one of them.
    """

    def __init__(self, objective: Objective, model: FloatArray, group: IndexArray, groups: int = 1) -> None:
        self._objective, self._model, self._group, self._groups = objective, model, group, groups
        self.size = groups * SIZE
        self.parts = (Part("counts", (groups, SIZE)),)

    def total(self, data: Split, rows: IndexArray) -> FloatArray:
        found, group = cells(self._scores(data, rows), data.targets[rows]), self._group[rows]
        return np.concatenate([measured(found[group == number]) for number in range(self._groups)])

    def _scores(self, data: Split, rows: IndexArray) -> FloatArray:
        with np.errstate(all="ignore"):
            return of_second(np.asarray(self._objective.scores(self._model, data.features[rows]), np.float64))
