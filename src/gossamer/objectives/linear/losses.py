"""The losses of generalised linear models, as functions of the outputs z = W x + b.

| loss | outputs | loss of one example with target y |
|---|---|---|
| `logistic` | 1 | log(1 + exp(-s z)), s = 2 y - 1 |
| `softmax` | one per class | log(sum_c exp(z_c)) - z_y |
| `squared` | 1 | (z - y)^2 / 2 |
| `squared_error` | 1 | (z - y)^2 |
| `hinge` | 1 for 2 classes, else one per class | sum_c max(0, 1 - s_c z_c), s_c = 1 for y's own output, else -1 |

Targets are class numbers from 0, and real numbers for `squared` and `squared_error`.
Their derivatives by z are in `glm_kernels`.

References
----------
One-against-rest hinge: Rifkin and Klautau, "In defense of one-vs-all classification", JMLR 2004.
The softmax's curvature 1/2: Boehning, "Multinomial logistic regression algorithm", Ann. Inst. Stat. Math. 1992.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.objectives.linear import kernels as kernels

TargetArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinearLoss:
    """A loss of linear outputs.

    Attributes
    ----------
    code : int
        Code that the kernels know it by.
    values : callable
        (z [outputs, width, rows], targets [rows]) -> losses [width, rows].
    most_classes : float
        Number of classes that it can tell apart at most; 0 for a regression.
    one_output_for_two : bool
        Whether two classes share one output, whose sign decides.
    curvature : float or None
        An upper bound of the eigenvalues of the second derivative by z; None where there is none.
    """

    code: int
    values: Callable[[FloatArray, TargetArray], FloatArray]
    most_classes: float
    one_output_for_two: bool
    curvature: float | None

    @property
    def wants(self) -> str:
        """The targets it is for, in words."""
        if self.most_classes == 0:
            return "real targets"
        return "2 classes" if self.most_classes == 2 else "2 or more classes"

    def outputs(self, classes: int | None) -> int:
        """Return the number of outputs that tell ``classes`` apart."""
        return 1 if classes is None or (classes == 2 and self.one_output_for_two) else classes

    def suits(self, classes: int | None) -> bool:
        """Whether the loss is defined for that many classes, or with None for real targets."""
        if classes is None:
            return self.most_classes == 0
        return 2 <= classes <= self.most_classes


def _signs(z: FloatArray, targets: TargetArray) -> FloatArray:
    """+1 where the target is the output's own class, else -1, [outputs, 1, rows]."""
    own = np.arange(len(z)) if len(z) > 1 else np.ones(1)
    return np.where(targets == own[:, None, None], 1, -1).astype(z.dtype)


def _logistic(z: FloatArray, targets: TargetArray) -> FloatArray:
    margin = (_signs(z, targets) * z)[0]
    values: FloatArray = np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0)
    return values


def _softmax(z: FloatArray, targets: TargetArray) -> FloatArray:
    top = z.max(axis=0)
    own = np.take_along_axis(z, targets.astype(np.int64)[None, None], axis=0)[0]
    values: FloatArray = np.log(np.exp(z - top).sum(axis=0)) + (top - own)
    return values


def _squared(z: FloatArray, targets: TargetArray) -> FloatArray:
    values: FloatArray = np.square(z[0] - targets) / 2
    return values


def _squared_error(z: FloatArray, targets: TargetArray) -> FloatArray:
    values: FloatArray = np.square(z[0] - targets)
    return values


def _hinge(z: FloatArray, targets: TargetArray) -> FloatArray:
    values: FloatArray = np.maximum(1 - _signs(z, targets) * z, 0).sum(axis=0)
    return values


LOSSES = {
    "logistic": LinearLoss(kernels.LOGISTIC, _logistic, 2, one_output_for_two=True, curvature=0.25),
    "softmax": LinearLoss(kernels.SOFTMAX, _softmax, math.inf, one_output_for_two=False, curvature=0.5),
    "squared": LinearLoss(kernels.SQUARED, _squared, 0, one_output_for_two=False, curvature=1.0),
    "squared_error": LinearLoss(kernels.SQUARED_ERROR, _squared_error, 0, one_output_for_two=False, curvature=2.0),
    "hinge": LinearLoss(kernels.HINGE, _hinge, math.inf, one_output_for_two=True, curvature=None),
}
