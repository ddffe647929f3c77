"""Histograms of a model's scores by outcome on a public grid, as sums that can be noised; counts again from noisy ones.

A row of two outcomes is in one of 2 B cells: its outcome, and the bin of its score, the logarithm of the odds that the
model gives. The bins are fixed before anything is looked at, around the log odds of the declared prevalence, where most
scores are: 0.1 wide there, and wider the further out. A histogram is measured as a tree [1]: of each outcome the two
halves of the grid are counted, the four quarters, and so on down to the bins, each level times the root of its
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
from scipy.special import logit

from gossamer.arrays import FloatArray, Floats, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.magnitudes import UnitVectors
from gossamer.objectives.objective import Objective, Part
from gossamer.objectives.scores import of_second

BINS = 32
"""B, a power of two."""
_AROUND = 0.5 * np.sinh(0.2 * np.arange(1 - BINS // 2, BINS // 2))
_WIDE = 1.5 * logit(np.arange(1, BINS) / BINS)
SHARES = np.array([4, 4, 3, 2, 2]) / 15
"""Share of each level of the tree, from halves to bins, in a row's squared length: coarse ones tell most of figures."""
SIZE = 2 * (2 * BINS - 2)
"""Numbers that are released."""
_SHORTENED = 1 - 1e-12
"""Rounding of the matrix must not take a row's vector over the length of 1."""


def edges(around: float | None) -> FloatArray:
    """Return the scores between two bins, [B - 1], close together in the middle.

    Parameters
    ----------
    around : float or None
        Middle of the grid, from which it is 5 to either end. Of None it is for scores that may be around any, from -5.2
        to 5.2.
    """
    return np.asarray(_WIDE if around is None else _AROUND + around, np.float64)


def scores_of(around: float | None) -> FloatArray:
    """Return the score that stands for each bin, [B]."""
    inner = edges(around)
    width = inner[1] - inner[0]
    ends = np.concatenate(([inner[0] - width], inner, [inner[-1] + width]))
    return np.asarray((ends[1:] + ends[:-1]) / 2, np.float64)


def middle(prevalence: float | None) -> float | None:
    """Return the score that the grid is around: log odds of the share of outcome 1, where it is declared."""
    return None if prevalence is None else float(logit(prevalence))


def cells(scores: FloatArray, outcomes: npt.NDArray[Any], around: float | None = None) -> IndexArray:
    """Return the cell of each row, [n]: its bin, and B more where its outcome is 1.

    Parameters
    ----------
    scores : ndarray [n]
        Logarithms of the odds of outcome 1. One that is not a number counts as 0.
    outcomes : ndarray [n]
        0 or 1.
    around : float, optional
        Middle of the grid; see `edges`.
    """
    bins = np.searchsorted(edges(around), np.nan_to_num(np.asarray(scores, np.float64), nan=0.0), side="right")
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
    around : float, optional
        Middle of the grid; see `edges`.
    """

    counts: Floats
    variance: float
    rows: float
    around: float | None = None

    @classmethod
    def of(cls, released: FloatArray, deviation: float, rows: float, around: float | None = None) -> Self:
        """Return the counts that a released sum [SIZE] of rows says, whose noise has this standard deviation."""
        sums = np.asarray(released, np.float64).reshape(2, -1)
        return cls(sums @ _matrix() @ unit_covariance(), deviation**2, rows, around)

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        """Counts of the rows of both, on one grid, whose noise is independent."""
        variance, rows = self.variance + other.variance, self.rows + other.rows
        return ScoreCounts(self.counts + other.counts, variance, rows, self.around)


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
    around : float, optional
        Middle of the grid; see `edges`.
    """

    def __init__(
        self, objective: Objective, model: FloatArray, group: IndexArray, groups: int = 1, around: float | None = None
    ) -> None:
        self._objective, self._model, self._group, self._groups = objective, model, group, groups
        self._around = around
        self.size = groups * SIZE
        self.parts = (Part("counts", (groups, SIZE)),)

    def total(self, data: Split, rows: IndexArray) -> FloatArray:
        found, group = cells(self._scores(data, rows), data.targets[rows], self._around), self._group[rows]
        return np.concatenate([measured(found[group == number]) for number in range(self._groups)])

    def _scores(self, data: Split, rows: IndexArray) -> FloatArray:
        with np.errstate(all="ignore"):
            return of_second(np.asarray(self._objective.scores(self._model, data.features[rows]), np.float64))
