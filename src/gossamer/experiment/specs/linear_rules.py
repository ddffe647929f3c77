"""Rules for private linear models from what is public: how columns are declared, how many rows, which budget.

A feature is in [-1, 1] or 0 or 1, so a row x (with a one for the intercept) has at most B^2 = 1 + the number of columns
as squared length, since a category is one 1 among zeros (a date may be several columns); rows drawn evenly from the
declared ranges have R^2, to which a number adds 1/3 and a truth value 1/2. From that follow

- the smoothness: L = c B^2, c = 1/4, 1/2 and 1 for the logistic, softmax and squared loss; so the rate is 1/L, and
  steps of more than 2/L may overshoot;
- the clip: a gradient is an error times x, so a clip of R times the error of the rarer class (1 less its share)
  shortens few gradients, and predicted risks are right on average; a smaller one shortens most of the rarer class and
  few of the other, and risks come out too low. Where no share is declared, and of numbers, errors count in full up to
  a bound that falls with the reach, below: where little can be learnt, less noise is worth a bias;
- how long to train: by T steps of rate eta noise alone moves a model of d parameters by eta T C sqrt(d) / (mu n), C
  being the clip, whatever T is, and a step of 1/L goes as far as any may. So steps are in proportion to *reach* =
  mu n / (R sqrt(d)): 0.3 B^2 R/C reach, as was found best on half of the tables of `benchmarks/tables`, and tried on
  the others, as were the bounds of errors.

References
----------
Bassily, Smith and Thakurta, "Private empirical risk minimization", FOCS 2014 (noise sqrt(d)/(epsilon n)); Bubeck,
"Convex optimization", 2015, section 3.2 (steps of 1/L); Dong, Roth and Su, "Gaussian differential privacy", 2022 (mu).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from gossamer.data.columns import Column

CURVATURE = {"logistic": 0.25, "softmax": 0.5, "squared": 1.0}
"""Largest second derivative of each loss by the model's output."""
_STEPS, _LEAST, _MOST_STEPS = 0.3, 4, 1000
_NUMBERS, _CLASSES = (0.35, 200), (0.5, 40)
"""Least error that counts in full, of numbers and where no share is declared, and the reach from which 1 does."""
_DEVIATIONS = 2.5
"""Times as large that errors are of a target whose unit is its deviation."""
ENOUGH, ENOUGH_OF_NUMBERS = 10, 30
"""Least reach of the rows of the rarer class, or of all rows of a regression, at which little is lost."""


@dataclass(frozen=True)
class LinearRules:
    """Settings that fit a linear model.

    Attributes
    ----------
    columns : collection of Column
        Columns that are features.
    loss : str
        One of `CURVATURE`.
    outputs : int
        Outputs of the model: 1, or one for each of more than two classes.
    rows : float
        Rows that the smallest node trains on, over those that one person has.
    nodes : int
        Nodes that average their models, so that their noise averages out, too.
    mu : float
        Gaussian differential privacy of the whole budget; infinite without privacy.
    share : float, optional
        Declared share of the rarer of two classes.
    of_unit : bool
        Whether the target of a regression is scaled by its deviation, not by its range.
    """

    columns: Collection[Column]
    loss: str
    outputs: int
    rows: float
    nodes: int
    mu: float
    share: float | None = None
    of_unit: bool = False

    @property
    def size(self) -> int:
        """Number of parameters, d."""
        return self.outputs * (1 + sum(len(column.names("")) for column in self.columns))

    @property
    def length(self) -> float:
        """Length R of a row drawn evenly from what is declared."""
        return math.sqrt(1 + sum(map(_mean_square, self.columns)))

    @property
    def smoothness(self) -> float:
        """L, an upper bound where all columns are declared."""
        return CURVATURE[self.loss] * self._most

    @property
    def reach(self) -> float:
        """Signal of all rows over the noise of the whole run."""
        return self.mu * self.rows * self._per_row

    @property
    def error(self) -> float:
        """Error of an example that is to count in full."""
        if self.share is not None:
            return 1 - self.share
        least, whole = _NUMBERS if self.loss == "squared" else _CLASSES
        return min(1.0, max(least, self.reach / whole)) * (_DEVIATIONS if self.of_unit else 1)

    @property
    def clip(self) -> float:
        """Clip that shortens few gradients."""
        return float(f"{self.length * self.error:.2g}")

    @property
    def rate(self) -> float:
        """Learning rate 1/L."""
        return float(f"{1 / self.smoothness:.2g}")

    @property
    def updates(self) -> int:
        """Number of steps."""
        times = max(_LEAST, _STEPS * self.reach / self.error * (_DEVIATIONS if self.of_unit else 1))
        return max(20, min(_MOST_STEPS, round(times * self._most)))

    @property
    def _most(self) -> int:
        """Most squared length B^2 of a row."""
        return 1 + sum(map(_most_square, self.columns))

    @property
    def _per_row(self) -> float:
        """Reach of one row, over mu."""
        return math.sqrt(self.nodes / self.size) / self.length

    @property
    def needed(self) -> float:
        """Rows that the smallest node needs, of the rarer class or in all, so that little is lost."""
        return (ENOUGH_OF_NUMBERS if self.loss == "squared" else ENOUGH) / (self.mu * self._per_row)

    @property
    def counted(self) -> float:
        """Rows to be compared with ``needed``, the most that there can be where no share is declared."""
        return self.rows if self.loss == "squared" or self.share is None else self.rows * self.share


def _most_square(column: Column) -> int:
    """Most squared length of a column's features: one of each number, truth value or text among several."""
    parts = column.of_dates
    return (not parts or column.is_number) + sum(part != "days" for part in parts) + bool(column.was_empty)


def _mean_square(column: Column) -> float:
    """Mean square of a column's features in evenly drawn rows; 1 of numbers in units of their deviation."""
    less = (2 / 3 if column.range is not None else 0.0) if column.is_number else 0.5 * (column.kind == "boolean")
    return _most_square(column) - less - 0.5 * bool(column.was_empty)
