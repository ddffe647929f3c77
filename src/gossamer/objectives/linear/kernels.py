"""Compiled loops of generalised linear models: outputs, residuals, clipped sums.

An example x with outputs z = W x + b has the loss gradient r x' by W and r by b, where r (one *residual* per
output) is the derivative of the loss by z. It is a rank-one matrix, so its norm is ``|r| sqrt(|x|^2 + 1)``
(without an intercept ``|r| |x|``) and clipping it means scaling r: no per-example gradient is ever stored.

A model is a flat row: W [outputs, features] in C order, then b [outputs] if there is an intercept. All kernels
run on one thread and treat every row, and every example of a row, with the same instructions in the same
order, whatever else is in the call.

Sums may be reassociated, so that dot products vectorise; nothing is assumed about NaN and infinity.

References
----------
Goodfellow, "Efficient per-example gradient computations", arXiv:1510.01799, section 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from gossamer.arrays import FloatArray, Floats
from gossamer.machine_code import compiled

# The losses of generalised linear models, as functions of the outputs z = W x + b.
#
# | loss | outputs | loss of one example with target y |
# |---|---|---|
# | `logistic` | 1 | log(1 + exp(-s z)), s = 2 y - 1 |
# | `softmax` | one per class | log(sum_c exp(z_c)) - z_y |
# | `squared` | 1 | (z - y)^2 / 2 |
# | `squared_error` | 1 | (z - y)^2 |
# | `poisson` | 1 | exp(z) - y + y (log y - z), half of the deviance, of counts y |
# | `hinge` | 1 for 2 classes, else one per class | sum_c max(0, 1 - s_c z_c), s_c = 1 for y's own output, else -1 |
#
# Targets are class numbers from 0, and real numbers for `squared`, `squared_error` and `poisson`.
# Their derivatives by z are those of `residuals`. Kernels know a loss as (code, weights, offsets): of classes that have
# weights w, gradients are those of w_y times the loss of z + log w (`class_weights`); otherwise both arrays are empty.
#
# References
# ----------
# One-against-rest hinge: Rifkin and Klautau, "In defense of one-vs-all classification", JMLR 2004.
# Poisson regression: McCullagh and Nelder, "Generalized linear models", 1989, sections 2.3.1 and 6.2.
# The softmax's curvature 1/2: Boehning, "Multinomial logistic regression algorithm", Ann. Inst. Stat. Math. 1992.

LOGISTIC, SOFTMAX, SQUARED, HINGE, SQUARED_ERROR, POISSON = range(6)

TargetArray = Floats


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
        return self.most_classes == 0 if classes is None else 2 <= classes <= self.most_classes


def _signs(z: FloatArray, targets: TargetArray) -> FloatArray:
    """+1 where the target is the output's own class, else -1, [outputs, 1, rows]."""
    own = np.arange(len(z)) if len(z) > 1 else np.ones(1)
    return np.where(targets == own[:, None, None], 1, -1).astype(z.dtype)


def _logistic(z: FloatArray, targets: TargetArray) -> FloatArray:
    margin = (_signs(z, targets) * z)[0]
    return np.asarray(np.log1p(np.exp(-np.abs(margin))) + np.maximum(-margin, 0))


def _softmax(z: FloatArray, targets: TargetArray) -> FloatArray:
    top = z.max(axis=0)
    own = np.take_along_axis(z, targets.astype(np.int64)[None, None], axis=0)[0]
    return np.asarray(np.log(np.exp(z - top).sum(axis=0)) + (top - own))


def _squared(z: FloatArray, targets: TargetArray) -> FloatArray:
    return np.asarray(np.square(z[0] - targets) / 2)


def _squared_error(z: FloatArray, targets: TargetArray) -> FloatArray:
    return np.asarray(np.square(z[0] - targets))


def _hinge(z: FloatArray, targets: TargetArray) -> FloatArray:
    return np.asarray(np.maximum(1 - _signs(z, targets) * z, 0).sum(axis=0))


def _poisson(z: FloatArray, targets: TargetArray) -> FloatArray:
    return np.asarray(np.exp(z[0]) - targets + xlogy(targets, targets) - targets * z[0])


LOSSES = {
    "logistic": LinearLoss(LOGISTIC, _logistic, 2, one_output_for_two=True, curvature=0.25),
    "softmax": LinearLoss(SOFTMAX, _softmax, math.inf, one_output_for_two=False, curvature=0.5),
    "squared": LinearLoss(SQUARED, _squared, 0, one_output_for_two=False, curvature=1.0),
    "squared_error": LinearLoss(SQUARED_ERROR, _squared_error, 0, one_output_for_two=False, curvature=2.0),
    "poisson": LinearLoss(POISSON, _poisson, 0, one_output_for_two=False, curvature=None),
    "hinge": LinearLoss(HINGE, _hinge, math.inf, one_output_for_two=True, curvature=None),
}


_compiled = compiled(fastmath={"reassoc", "contract"})
# Inlined by force, because a call costs more than the arithmetic of a few features.
_inlined = compiled(inline="always", fastmath={"reassoc", "contract"})


@_compiled
def residuals(loss, z, target):
    """Replace the outputs z [outputs] by the derivatives of the loss by each of them."""
    code, weights, offsets = loss
    for c in range(offsets.size):
        z[c] += offsets[c]
    if code == SOFTMAX:
        top = z[0]
        for c in range(1, z.size):
            top = max(top, z[c])
        total = 0.0
        for c in range(z.size):
            z[c] = np.exp(z[c] - top)
            total += z[c]
        for c in range(z.size):
            z[c] /= total
        z[int(target)] -= 1.0
    elif code == LOGISTIC:
        z[0] = 1.0 / (1.0 + np.exp(-z[0])) - target
    elif code == SQUARED:
        z[0] -= target
    elif code == SQUARED_ERROR:
        z[0] = 2.0 * (z[0] - target)
    elif code == POISSON:
        z[0] = np.exp(z[0]) - target
    else:
        for c in range(z.size):
            # A single output stands for class 1, one of several for its own class.
            sign = 1.0 if target == (c if z.size > 1 else 1) else -1.0
            z[c] = -sign if sign * z[c] < 1.0 else 0.0
    if weights.size > 0:
        for c in range(z.size):
            z[c] *= weights[int(target)]


@_compiled
def clip_residuals(z, square, clip):
    """Scale the residuals z so that the gradient's norm is at most ``clip``.

    ``square`` is |x|^2, plus one if there is an intercept, in float64: float32 features cannot overflow it.
    Returns whether the norm is finite, and whether it was at most ``clip`` already.
    """
    limits = np.finfo(z.dtype)
    total = 0.0
    for c in range(z.size):
        total += np.float64(z[c]) * np.float64(z[c])
    norm = np.sqrt(total) * np.sqrt(square)
    if not norm <= limits.max:
        return False, False
    scale = 1.0 if norm <= clip else clip / norm
    for c in range(z.size):
        scaled = z[c] * scale
        # A subnormal number may be rounded up by half of itself, and the norm would exceed the clip.
        z[c] = scaled if abs(scaled) >= limits.tiny else 0.0
    return True, norm <= clip


@_compiled
def is_finite(values):
    """Whether no entry of ``values`` [n] is NaN or infinite."""
    total = values.dtype.type(0)
    for j in range(values.size):
        total += values[j] * values.dtype.type(0)
    return total == 0


@_inlined
def dense_scores(w, x, z, intercept):
    """z = W x + b for a dense x [features]."""
    outputs, features = z.size, x.size
    for c in range(outputs):
        row = w[c * features : (c + 1) * features]
        total = w.dtype.type(0)
        for j in range(features):
            total += row[j] * x[j]
        z[c] = total + w[outputs * features + c] if intercept else total


@_inlined
def dense_square(x, intercept):
    """Return |x|^2 (plus one with an intercept)."""
    square = 1.0 if intercept else 0.0
    for j in range(x.size):
        square += np.float64(x[j]) * np.float64(x[j])
    return square


@_compiled
def dense_outputs(w, x, z, intercept):
    """z = W x + b for a dense x [features]; returns |x|^2 (plus one with an intercept)."""
    dense_scores(w, x, z, intercept)
    return dense_square(x, intercept)


@_compiled
def dense_squares(examples, intercept, squares):
    """Write `dense_square` of each row of ``examples`` [n, features] to ``squares`` [n]."""
    for i in range(examples.shape[0]):
        squares[i] = dense_square(examples[i], intercept)


@_compiled
def dense_outputs_of_four(w, examples, four, z, squares, intercept):
    """`dense_outputs` of the examples ``four`` [4] into z [4, outputs] and squares [4], two outputs at a time.

    A row of w is loaded once for all; each example's numbers are made by the same operations in any company.
    """
    x0, x1, x2, x3 = examples[four[0]], examples[four[1]], examples[four[2]], examples[four[3]]
    outputs, features = z.shape[1], x0.size
    for c in range(0, outputs - 1, 2):
        row, next_row = w[c * features : (c + 1) * features], w[(c + 1) * features : (c + 2) * features]
        s0 = s1 = s2 = s3 = t0 = t1 = t2 = t3 = w.dtype.type(0)
        for j in range(features):
            s0 += row[j] * x0[j]
            s1 += row[j] * x1[j]
            s2 += row[j] * x2[j]
            s3 += row[j] * x3[j]
            t0 += next_row[j] * x0[j]
            t1 += next_row[j] * x1[j]
            t2 += next_row[j] * x2[j]
            t3 += next_row[j] * x3[j]
        z[0, c], z[1, c], z[2, c], z[3, c] = s0, s1, s2, s3
        z[0, c + 1], z[1, c + 1], z[2, c + 1], z[3, c + 1] = t0, t1, t2, t3
    if outputs % 2:
        c = outputs - 1
        row = w[c * features : (c + 1) * features]
        s0 = s1 = s2 = s3 = w.dtype.type(0)
        for j in range(features):
            s0 += row[j] * x0[j]
            s1 += row[j] * x1[j]
            s2 += row[j] * x2[j]
            s3 += row[j] * x3[j]
        z[0, c], z[1, c], z[2, c], z[3, c] = s0, s1, s2, s3
    for e in range(4):
        x = examples[four[e]]
        squares[e] = dense_square(x, intercept)
        if intercept:
            for c in range(outputs):
                z[e, c] += w[outputs * features + c]


@_compiled
def dense_add(g, examples, four, z, intercept):
    """g += the gradients with residuals z [4, outputs] at the examples ``four`` [4].

    Four at a time, because loading and storing g costs more than the arithmetic.
    """
    x0, x1, x2, x3 = examples[four[0]], examples[four[1]], examples[four[2]], examples[four[3]]
    outputs, features = z.shape[1], x0.size
    for c in range(outputs):
        row = g[c * features : (c + 1) * features]
        r0, r1, r2, r3 = z[0, c], z[1, c], z[2, c], z[3, c]
        for j in range(features):
            row[j] += r0 * x0[j] + r1 * x1[j] + r2 * x2[j] + r3 * x3[j]
        if intercept:
            g[outputs * features + c] += r0 + r1 + r2 + r3


@_compiled
def csr_outputs(w, values, columns, z, features, intercept):
    """`dense_outputs` for a sparse x with ``values`` [stored] in distinct ``columns`` [stored]."""
    outputs = z.size
    for c in range(outputs):
        total = w.dtype.type(0)
        for p in range(values.size):
            total += w[c * features + columns[p]] * values[p]
        z[c] = total + w[outputs * features + c] if intercept else total
    square = 1.0 if intercept else 0.0
    for p in range(values.size):
        square += np.float64(values[p]) * np.float64(values[p])
    return square


@_compiled
def csr_add(g, values, columns, z, features, intercept):
    """`dense_add` for a sparse x."""
    outputs = z.size
    for c in range(outputs):
        for p in range(values.size):
            g[c * features + columns[p]] += z[c] * values[p]
        if intercept:
            g[outputs * features + c] += z[c]


@_compiled
def clipped_sums(loss, models, batches, targets, clips, shape, sums, zeroed, unclipped, examples):
    """Sums of clipped gradients over ragged batches.

    Parameters
    ----------
    loss : tuple (int, ndarray [classes or 0], ndarray [outputs or 0])
        One of the codes above, weights of the classes, and what is added to outputs.
    models : ndarray [width, size]
        Flat models; a row with an entry that is not finite has no finite gradient.
    batches : pair of ndarray, [width + 1] and [packed] of int64
        Row k's examples are ``packed[starts[k]:starts[k + 1]]``.
    targets : ndarray [n] of float64
        Class numbers or real values.
    clips : ndarray [width] of float64
        Largest norm of a per-example gradient at each model.
    shape : tuple (outputs, features, intercept)
        Shape of the model.
    sums : ndarray [width, size]
        Written.
    zeroed, unclipped : ndarray [width] of int64
        Written: how many gradients were not finite, and how many had a norm of at most the clip.
    examples : tuple of ndarray
        [n, features] of float32, one example a row; or ``values``, ``columns`` [stored] and ``rows`` [n + 1] of CSR.
    """
    outputs, features, intercept = shape
    starts, packed = batches
    z, four, squares = np.empty((4, outputs), models.dtype), np.empty(4, np.int64), np.empty(4)
    kept, those = np.empty((4, outputs), models.dtype), np.empty(4, np.int64)
    for k in range(models.shape[0]):
        w, g, batch = models[k], sums[k], packed[starts[k] : starts[k + 1]]
        finite, held = is_finite(w), 0
        g[:] = 0
        zeroed[k] = unclipped[k] = 0
        if len(examples) == 3:
            values, columns, rows = examples
            for i in batch:
                x, at = values[rows[i] : rows[i + 1]], columns[rows[i] : rows[i + 1]]
                square = csr_outputs(w, x, at, z[0], features, intercept)
                residuals(loss, z[0], targets[i])
                sound, whole = clip_residuals(z[0], square, clips[k])
                if finite and sound:
                    unclipped[k] += whole
                    csr_add(g, x, at, z[0], features, intercept)
                else:
                    zeroed[k] += 1
        else:
            for first in range(0, batch.size, 4):
                given = min(4, batch.size - first)
                for e in range(4):
                    four[e] = batch[first + min(e, given - 1)]
                dense_outputs_of_four(w, examples[0], four, z, squares, intercept)
                for e in range(given):
                    residuals(loss, z[e], targets[four[e]])
                    sound, whole = clip_residuals(z[e], squares[e], clips[k])
                    if not (finite and sound):
                        zeroed[k] += 1
                        continue
                    unclipped[k] += whole
                    kept[held], those[held] = z[e], four[e]
                    held += 1
                    if held == 4:
                        dense_add(g, examples[0], those, kept, intercept)
                        held = 0
            if held > 0:
                those[held:], kept[held:] = those[0], 0
                dense_add(g, examples[0], those, kept, intercept)
