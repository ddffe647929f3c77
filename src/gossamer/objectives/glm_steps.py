"""Compiled loops of generalised linear models: sequential SGD, one step an example.

What they compute is said in `objective.Objective.local_steps`; models, residuals and layouts are those of
`glm_kernels`. A round is one call. The gradient on some coordinates has the norm ``|r| |x|``, with each residual r_c
weighted by its *share*: the part of ``|x|^2`` that lies on coordinates of output c.

Whether a model is finite is not looked up at every step: ``reach`` bounds its entries, grows by each step's length,
and only where it comes near the largest number are the entries themselves examined.

Models of one output on all coordinates, such as logistic regression, have a loop of their own: it hands over to the
general one at the first step whose numbers are too large for it. Both ask for examples some steps ahead, since reading
rows in no order costs as much as computing with them.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gossamer.objectives import glm_kernels
from gossamer.objectives.glm_kernels import dense_scores
from gossamer.objectives.prefetch import fetch

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
# Inlined by force, because calls cost more than the arithmetic of a hundred features.
_inlined = njit(inline="always", error_model="numpy", fastmath={"reassoc", "contract"})

WRONG = -1
"""What a round returns, before anything is computed, for arrays that `local_steps.checked` refuses."""
_LINE = 64
"""Bytes of memory that are fetched at once; where they are more, some are asked for twice."""
_AHEAD = 4
"""Steps between the one that asks for an example and its own."""

residuals = _inlined(glm_kernels.residuals.py_func)


@_inlined
def are_sound(starts, batch, rates, examples):
    """Whether ``starts`` rise from 0 to the steps there are, and examples and step sizes are in their ranges."""
    wrong = starts[0] != 0 or starts[-1] > batch.size
    for s in range(1, starts.size):
        wrong |= starts[s] < starts[s - 1]
    for k in range(batch.size):
        wrong |= not 0 <= batch[k] < examples
        wrong |= not 0.0 < rates[k] < np.inf
    return not wrong


@_compiled
def reach_of(w):
    """A bound of the entries of w [size]; not finite if one of them is not."""
    total = 0.0
    for j in range(w.size):
        total += abs(np.float64(w[j]))
    return total


@_compiled
def is_within(w, most):
    """Whether every entry of w [size] is a number between -most and most."""
    beyond = 0
    for j in range(w.size):
        beyond += not abs(w[j]) <= most
    return beyond == 0


@_inlined
def clip_step(z, shares, square, factor, clip):
    """Scale the residuals z so that ``factor`` times the gradient on some coordinates is at most ``clip`` long.

    ``square`` is |x|^2 as in `glm_kernels.clip_residuals`, and ``shares`` [outputs] the part of it on coordinates of
    each output. Returns the length after clipping, or -1 where the gradient is not finite.
    """
    limits = np.finfo(z.dtype)
    total, part = 0.0, 0.0
    for c in range(z.size):
        energy = np.float64(z[c]) * np.float64(z[c])
        total += energy
        part += energy * shares[c]
    length = np.sqrt(square)
    norm = factor * np.sqrt(part) * length
    if not (np.sqrt(total) * length <= limits.max and norm <= limits.max):
        return -1.0
    if norm <= clip:
        return norm
    for c in range(z.size):
        scaled = z[c] * (clip / norm)
        # A subnormal number may be rounded up by half of itself, and the norm would exceed the clip.
        z[c] = scaled if abs(scaled) >= limits.tiny else 0.0
    return clip


@_compiled
def first_on(start, first, step):
    """Return the distance from ``start`` to the next of the coordinates ``first + k step``, k >= 0."""
    return (first - start) % step


@_compiled
def dense_shares(x, square, shares, intercept, first, step):
    """Write the part [outputs] of |x|^2 (plus one with an intercept) on coordinates of each output."""
    outputs, features = shares.size, x.size
    for c in range(outputs):
        part = 0.0
        for j in range(first_on(c * features, first, step), features, step):
            part += np.float64(x[j]) * np.float64(x[j])
        if intercept and first_on(outputs * features + c, first, step) == 0:
            part += 1.0
        shares[c] = part / square if square > 0.0 else 1.0


@_inlined
def dense_move(w, u, x, z, pace, decay, unit, intercept):
    """u += step and w -= unit step, with the step ``pace z x' + decay w``."""
    outputs, features = z.size, x.size
    one = w.dtype.type
    b, h = one(decay), one(unit)
    for c in range(outputs):
        a = one(pace * z[c])
        row, sums = w[c * features : (c + 1) * features], u[c * features : (c + 1) * features]
        for j in range(features):
            move = a * x[j] + b * row[j]
            sums[j] += move
            row[j] -= h * move
        if intercept:
            move = a + b * w[outputs * features + c]
            u[outputs * features + c] += move
            w[outputs * features + c] -= h * move


@_compiled
def dense_move_some(w, u, x, z, pace, decay, unit, intercept, first, step):
    """`dense_move` on every ``step``-th coordinate from ``first``, with u [coordinates]."""
    outputs, features = z.size, x.size
    one = w.dtype.type
    b, h = one(decay), one(unit)
    q = 0
    for c in range(outputs):
        a, start = one(pace * z[c]), c * features
        for j in range(first_on(start, first, step), features, step):
            move = a * x[j] + b * w[start + j]
            u[q] += move
            w[start + j] -= h * move
            q += 1
    if intercept:
        for c in range(first_on(outputs * features, first, step), outputs, step):
            move = one(pace * z[c]) + b * w[outputs * features + c]
            u[q] += move
            w[outputs * features + c] -= h * move
            q += 1


@_compiled
def decay_only(w, u, decay, unit, first, step):
    """The step of an example that counts as zero: u += decay w and w -= unit decay w."""
    b, h = w.dtype.type(decay), w.dtype.type(unit)
    for q in range(u.size):
        move = b * w[first + q * step]
        u[q] += move
        w[first + q * step] -= h * move


@_compiled
def start_from(w, model, u, unit, first, step):
    """w = model, less what the round has done."""
    w[:] = model
    for q in range(u.size):
        w[first + q * step] -= w.dtype.type(unit) * u[q]


@_inlined
def ask_for_row(examples, squares, targets, i):
    """Have what is known of example i fetched, its features a line of memory after the other."""
    features = examples.shape[1]
    for j in range(0, features, _LINE // examples.itemsize):
        fetch(examples, i * features + j)
    fetch(squares, i)
    fetch(targets, i)


@_inlined
def one_output(loss, w, u, z, reach, begin, end, given):
    """Steps of a model of one output on all coordinates, from ``begin`` on; otherwise as in `dense_round`.

    Returns the first step, up to ``end``, that it did not take, because the model or a gradient may not be finite, and
    ``reach`` there.
    """
    (batch, rates), targets, (clip, unit, l2), intercept, examples, squares = given
    number = np.finfo(w.dtype)
    most, tiny = np.float64(number.max), np.float64(number.tiny)
    for k in range(begin, end):
        if k + _AHEAD < batch.size:
            ask_for_row(examples, squares, targets, batch[k + _AHEAD])
        i, pace = batch[k], rates[k] / unit
        decay = pace * l2
        dense_scores(w, examples[i], z, intercept)
        residuals(loss, z, targets[i])
        length = abs(np.float64(z[0])) * np.sqrt(squares[i])
        if not (length <= most and reach <= most / 2):
            return k, reach
        if length > clip:
            scaled = z[0] * (clip / length)
            z[0] = scaled if abs(scaled) >= tiny else 0.0  # as in `clip_step`
            length = clip
        dense_move(w, u, examples[i], z, pace, decay, unit, intercept)
        reach = max(1.0, abs(1.0 - unit * decay)) * reach + rates[k] * length
    return end, reach


@_compiled
def dense_round(loss, segments, steps, targets, limits, shape, where, u, examples, squares):
    """A round of sequential SGD on dense examples.

    Parameters
    ----------
    loss : int
        One of the codes of `glm_kernels`.
    segments : pair (models [segments, size], starts [segments] of int64)
        The model from each start on, without what the round has done.
    steps : pair (batch [count] of int64, rates [count] of float64)
        The example and the step size of each step.
    targets : ndarray [n] of float64
        Class numbers or real values.
    limits : tuple (clip, unit, l2)
        Most norm of an example's gradient, step size that u is in units of, strength of the L2 term.
    shape : tuple (outputs, features, intercept)
        Of the model.
    where : tuple (first, step)
        The coordinates that move.
    u : ndarray [coordinates]
        Written: the sum of the round's gradients.
    examples : ndarray [n, features] of float32
        One example a row.
    squares : ndarray [n] of float64
        `glm_kernels.dense_squares` of them.

    Returns
    -------
    int
        How many gradients were not finite; `WRONG` if an index or a step size is out of its range.
    """
    (models, starts), (batch, rates), (clip, unit, l2) = segments, steps, limits
    (outputs, _, intercept), (first, step) = shape, where
    if not are_sound(starts, batch, rates, targets.size):
        return WRONG
    for k in range(min(_AHEAD, batch.size)):
        ask_for_row(examples, squares, targets, batch[k])
    w, z, shares = np.empty(models.shape[1], models.dtype), np.empty(outputs, models.dtype), np.ones(outputs)
    safe = np.float64(np.finfo(models.dtype).max) / 2
    zeroed = 0
    u[:] = 0
    for s in range(starts.size):
        end = starts[s + 1] if s + 1 < starts.size else batch.size
        if end == starts[s]:
            continue
        start_from(w, models[s], u, unit, first, step)
        reach, begin = reach_of(w), starts[s]
        if outputs == 1 and step == 1:
            given = steps, targets, limits, intercept, examples, squares
            begin, reach = one_output(loss, w, u, z, reach, begin, end, given)
        for k in range(begin, end):
            if k + _AHEAD < batch.size:
                ask_for_row(examples, squares, targets, batch[k + _AHEAD])
            i, pace = batch[k], rates[k] / unit * step
            x, decay = examples[i], pace * l2
            dense_scores(w, x, z, intercept)
            residuals(loss, z, targets[i])
            if step > 1:
                dense_shares(x, squares[i], shares, intercept, first, step)
            length = clip_step(z, shares, squares[i], step, clip)
            if length < 0.0 or not (reach <= safe or is_within(w, 2 * safe)):
                zeroed += 1
                length = 0.0
                if decay > 0.0:
                    decay_only(w, u, decay, unit, first, step)
            elif step == 1:
                dense_move(w, u, x, z, pace, decay, unit, intercept)
            else:
                dense_move_some(w, u, x, z, pace, decay, unit, intercept, first, step)
            reach = max(1.0, abs(1.0 - unit * decay)) * reach + rates[k] * length
    return zeroed
