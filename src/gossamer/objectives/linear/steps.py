"""Compiled loops of generalised linear models: sequential SGD, one step an example.

What they compute is said in `objective.Objective.local_steps`; models, residuals and layouts are those of
`glm_kernels`. A round is one call. The gradient on some coordinates has the norm ``|r| |x|``, with each residual r_c
weighted by its *share*: the part of ``|x|^2`` that lies on coordinates of output c.

Whether a model is finite is not looked up at every step: ``reach`` bounds its entries, grows by each step's length,
and only where it comes near the largest number are the entries themselves examined.

Models of one output on all coordinates, such as logistic regression, have a loop of their own: it hands over to the
general one at the first step whose numbers are too large for it. Both ask for examples some steps ahead, since reading
rows in no order costs as much as computing with them.

A sparse example moves only the weights of its stored features, but the L2 term moves all of them, by multiples of
themselves. So on the coordinates that move, a sparse round holds its model as ``scale y`` and what it has done as
``u + weight y``: the L2 term changes the two numbers, an example its own places of y and u. A scale that comes near
zero (or is zero, where step size times L2 is one) is multiplied into y, before rounding shows.

References
----------
The scaled representation: Bottou, "Stochastic gradient descent tricks", 2012, section 5.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from gossamer.machine_code import compiled
from gossamer.objectives.linear import kernels as glm_kernels
from gossamer.objectives.linear.kernels import csr_outputs, dense_scores

_READ, _KEEP, _DATA = 0, 3, 1


def _prefetch(_typing: Any, array: Any, _place: Any) -> Any:
    """Type and code of `fetch`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = make_array(array)(context, builder, arguments[0])  # type: ignore[no-untyped-call]
        address = builder.gep(given.data, [arguments[1]])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, kind, "llvm.prefetch.p0"
        )
        builder.call(function, [builder.bitcast(address, byte), number(_READ), number(_KEEP), number(_DATA)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


fetch: Any = intrinsic(_prefetch)
"""(array, place) in compiled code: ask for the memory around ``array.flat[place]`` of a contiguous array."""


_compiled = compiled(fastmath={"reassoc", "contract"})
# Inlined by force, because calls cost more than the arithmetic of a hundred features.
_inlined = compiled(inline="always", fastmath={"reassoc", "contract"})

WRONG = -1
"""What a round returns, before anything is computed, for arrays that `objective.checked` refuses."""
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
        Shape of the model.
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


_MOST_SCALE = 2.0**10  # scales lie between its inverse and itself, which costs at most 10 of a float64's 53 bits


@_compiled
def csr_outputs_some(y, scale, x, at, z, shares, shape, first, step):
    """`csr_outputs` and `dense_shares` at once, with the model ``scale y`` on what moves, and y elsewhere."""
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
    """`dense_round` for examples in CSR form: ``values``, ``columns`` [stored] and ``rows`` [n + 1].

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
            glm_kernels.residuals(loss, z, targets[i])
            length = clip_step(z, shares, square, step, clip)
            if not reach <= most / 2 / _MOST_SCALE:
                fold(y, u, scale, weight, first, step)
                scale, weight = 1.0, 0.0
                length = length if is_within(y, most) else -1.0
            factor = 1.0 - rates[k] * step * l2
            weight += pace * l2 * scale
            scale *= factor
            if not 1 / _MOST_SCALE <= abs(scale) <= _MOST_SCALE:
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
