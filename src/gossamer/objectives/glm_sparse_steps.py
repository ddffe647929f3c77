"""Compiled loops of generalised linear models: sequential SGD on sparse examples, one step an example.

What they compute is said in `objective.Objective.local_steps`, and more of it in `glm_steps`.

A sparse example moves only the weights of its stored features, but the L2 term moves all of them, by multiples of
themselves. So on the coordinates that move, a sparse round holds its model as ``scale y`` and what it has done as
``u + weight y``: the L2 term changes the two numbers, an example its own places of y and u. A scale that comes near
zero (or is zero, where step size times L2 is one) is multiplied into y, before rounding shows.

References
----------
The scaled representation: Bottou, "Stochastic gradient descent tricks", 2012, section 5.1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gossamer.objectives.glm_kernels import csr_outputs, residuals
from gossamer.objectives.glm_steps import WRONG, are_sound, clip_step, is_within, reach_of, start_from

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})

_SCALE = 2.0**10  # scales lie between its inverse and itself, which costs at most 10 of a float64's 53 bits


@_compiled
def csr_outputs_some(y, scale, x, at, z, shares, shape, first, step):
    """`csr_outputs` and `glm_steps.dense_shares` at once, with the model ``scale y`` on what moves, and y elsewhere."""
    outputs, features, intercept = shape
    square = 1.0 if intercept else 0.0
    for p in range(x.size):
        square += np.float64(x[p]) * np.float64(x[p])
    for c in range(outputs):
        still, moving, part = 0.0, 0.0, 0.0
        for p in range(x.size):
            j = c * features + at[p]
            if j % step == first:
                moving += y[j] * x[p]
                part += np.float64(x[p]) * np.float64(x[p])
            else:
                still += y[j] * x[p]
        if intercept:
            j = outputs * features + c
            if j % step == first:
                moving += y[j]
                part += 1.0
            else:
                still += y[j]
        z[c] = scale * moving + still
        shares[c] = part / square if square > 0.0 else 1.0
    return square


@_compiled
def csr_move(y, u, x, at, z, down, up, shape, first, step):
    """y -= down z x' and u += up z x' on every ``step``-th coordinate from ``first``."""
    outputs, features, intercept = shape
    for c in range(outputs):
        fall, rise = down * z[c], up * z[c]
        if step == 1:
            for p in range(x.size):
                y[c * features + at[p]] -= fall * x[p]
                u[c * features + at[p]] += rise * x[p]
        else:
            for p in range(x.size):
                j = c * features + at[p]
                if j % step == first:
                    y[j] -= fall * x[p]
                    u[j] += rise * x[p]
        if intercept and (outputs * features + c) % step == first:
            y[outputs * features + c] -= fall
            u[outputs * features + c] += rise


@_compiled
def fold(y, u, scale, weight, first, step):
    """u += weight y and y = scale y on the coordinates that move, so that the scale is 1 and the weight 0 again."""
    if weight != 0.0:  # zero times what is not finite would be no zero
        for j in range(first, y.size, step):
            u[j] += weight * y[j]
    for j in range(first, y.size, step):
        y[j] *= scale


@_compiled
def csr_round(loss, segments, steps, targets, limits, shape, where, sums, *sparse):
    """`glm_steps.dense_round` for examples in CSR form: ``values``, ``columns`` [stored] and ``rows`` [n + 1].

    Its sums are accumulated in float64, and so is its model.
    """
    (models, starts), (batch, rates), (clip, unit, l2) = segments, steps, limits
    (outputs, features, intercept), (first, step) = shape, where
    values, columns, rows = sparse
    if not are_sound(starts, batch, rates, targets.size):
        return WRONG
    y, u = np.empty(models.shape[1], np.float64), np.zeros(models.shape[1], np.float64)
    wide, z, shares = np.empty(outputs), np.empty(outputs, models.dtype), np.ones(outputs)
    most = np.float64(np.finfo(models.dtype).max)
    zeroed = 0
    for s in range(starts.size):
        end = starts[s + 1] if s + 1 < starts.size else batch.size
        if end == starts[s]:
            continue
        start_from(y, models[s], u[first::step], unit, first, step)
        reach, scale, weight = reach_of(y), 1.0, 0.0
        for k in range(starts[s], end):
            i, pace = batch[k], rates[k] / unit * step
            x, at = values[rows[i] : rows[i + 1]], columns[rows[i] : rows[i + 1]]
            if step == 1:
                square = csr_outputs(y, x, at, wide, features, intercept)
                wide *= scale
            else:
                square = csr_outputs_some(y, scale, x, at, wide, shares, shape, first, step)
            z[:] = wide
            residuals(loss, z, targets[i])
            length = clip_step(z, shares, square, step, clip)
            if not reach <= most / 2 / _SCALE:
                fold(y, u, scale, weight, first, step)
                scale, weight = 1.0, 0.0
                length = length if is_within(y, most) else -1.0
            factor = 1.0 - rates[k] * step * l2
            weight += pace * l2 * scale
            scale *= factor
            if not 1 / _SCALE <= abs(scale) <= _SCALE:
                fold(y, u, scale, weight, first, step)
                scale, weight = 1.0, 0.0
            if length >= 0.0:
                down = rates[k] * step / scale
                csr_move(y, u, x, at, z, down, pace + weight * down, shape, first, step)
            else:
                zeroed += 1
                length = 0.0
            reach = max(1.0, abs(factor)) * reach + rates[k] * length
        fold(y, u, scale, weight, first, step)
    sums[:] = u[first::step]
    return zeroed
