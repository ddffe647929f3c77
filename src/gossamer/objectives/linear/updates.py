"""Compiled loops of generalised linear models: mini-batch SGD of many agents, clipped or with momentum.

What they compute is said in `objective.Objective.local_updates` and `local_training`; models, residuals and layouts are
those of `glm_kernels`. One call takes all agents, one after another, so that an agent's result has the same bits
whatever others there are. An agent holds what it has done, u, and its velocity in float64, and its model as
``start + u``, rounded to the dtype of models where a gradient is taken. Networks with compiled chains take the same
steps (`training_step`, `update_step`), and those of `objective.Objective.local_steps`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gossamer.objectives.linear import kernels as glm_kernels

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
# Inlined by force, because a call costs more than the arithmetic of a few features.
_inlined = njit(inline="always", error_model="numpy", fastmath={"reassoc", "contract"})

residuals, clip_residuals, is_finite = (
    _inlined(each.py_func) for each in (glm_kernels.residuals, glm_kernels.clip_residuals, glm_kernels.is_finite)
)
dense_outputs, dense_add = _inlined(glm_kernels.dense_outputs.py_func), _inlined(glm_kernels.dense_add.py_func)
csr_outputs, csr_add = _inlined(glm_kernels.csr_outputs.py_func), _inlined(glm_kernels.csr_add.py_func)


@_inlined
def dense_batch(g, w, loss, batch, targets, z, four, intercept, examples):
    """g = the sum of the gradients of a batch at w. Returns whether all of them are finite."""
    sound, held = True, 0
    g[:] = 0
    for i in batch:
        square = dense_outputs(w, examples[i], z[held], intercept)
        residuals(loss, z[held], targets[i])
        finite, _ = clip_residuals(z[held], square, np.inf)
        sound = sound and finite
        four[held] = i
        held += 1
        if held == 4:
            dense_add(g, examples, four, z, intercept)
            held = 0
    if held > 0:
        four[held:], z[held:] = four[0], 0
        dense_add(g, examples, four, z, intercept)
    return sound


@_inlined
def csr_batch(g, w, loss, batch, targets, z, features, intercept, values, columns, rows):
    """`dense_batch` for examples in CSR form."""
    sound = True
    g[:] = 0
    for i in batch:
        x, at = values[rows[i] : rows[i + 1]], columns[rows[i] : rows[i + 1]]
        square = csr_outputs(w, x, at, z, features, intercept)
        residuals(loss, z, targets[i])
        finite, _ = clip_residuals(z, square, np.inf)
        sound = sound and finite
        csr_add(g, x, at, z, features, intercept)
    return sound


@_inlined
def root(total, h):
    """The L2 norm of h [size], whose squares sum to ``total``, also where these overflow or vanish."""
    if total != total or 1e-280 < total < np.inf:
        return np.sqrt(total)
    peak, scaled = 0.0, 0.0
    for j in range(h.size):
        peak = max(peak, abs(h[j]))
    if not 0.0 < peak < np.inf:
        return peak
    for j in range(h.size):
        scaled += (h[j] / peak) * (h[j] / peak)
    return peak * np.sqrt(scaled)


@_inlined
def mean_gradient(h, g, start, u, examples, l2):
    """h = g / examples + l2 (start + u). Returns its norm."""
    share, total = 1.0 / examples, 0.0
    for j in range(h.size):
        h[j] = share * np.float64(g[j]) + l2 * (np.float64(start[j]) + u[j])
    # A loop of its own: which way it is added up would otherwise depend on where small arrays lie.
    for j in range(h.size):
        total += h[j] * h[j]
    return root(total, h)


@_inlined
def move(u, w, start, h, norm, pace, clip):
    """Take a step along the mean gradient h, of which only the ``norm`` is known if that is not finite."""
    if norm < np.inf:
        length = pace if norm <= clip else pace * (clip / norm)
        for j in range(u.size):
            u[j] -= length * h[j]
            w[j] = np.float64(start[j]) + u[j]
    if clip == np.inf:
        most = np.float64(np.finfo(w.dtype).max)
        for j in range(u.size):
            place = np.float64(start[j]) + u[j]
            if not (norm < np.inf and abs(place) <= most):
                u[j] = (-most if place < 0.0 else most) - np.float64(start[j])
                w[j] = np.float64(start[j]) + u[j]


@_inlined
def finish(update, u, most):
    """update = u, made at most ``most`` long, whatever rounding did, and of numbers that its dtype holds."""
    limits, total = np.finfo(update.dtype), 0.0
    for j in range(u.size):
        total += u[j] * u[j]
    norm = root(total, u)
    scale = most / norm if norm > most else 1.0
    for j in range(u.size):
        entry = u[j] * scale
        if not abs(entry) <= limits.max:
            entry = -limits.max if entry < 0.0 else limits.max
        # A subnormal number may be rounded up by half of itself, and the norm would exceed its bound.
        update[j] = entry if abs(entry) >= limits.tiny else 0.0


@_compiled
def dense_updates(loss, models, batches, targets, limits, shape, updates, not_finite, examples):
    """Updates of agents with dense examples.

    Parameters
    ----------
    loss : int
        One of the codes of `glm_kernels`.
    models : ndarray [width, size]
        Model that each agent starts at.
    batches : pair of ndarray, [width, 2] and [packed] of int64
        Steps of each agent and examples in each of them; the examples, one step behind the other.
    targets : ndarray [n] of float64
        Class numbers or real values.
    limits : tuple (rates [width], clips [width], l2)
        Step size of each whole update, most norm of each mean gradient, strength of the L2 term.
    shape : tuple (outputs, features, intercept)
        Shape of the model.
    updates : ndarray [width, size]
        Written.
    not_finite : ndarray [width] of int64
        Written: how many mean gradients were not finite.
    examples : ndarray [n, features] of float32
        One example a row.
    """
    (shapes, packed), (rates, clips, l2), (outputs, _, intercept) = batches, limits, shape
    size, first = models.shape[1], 0
    w, g, h, u = np.empty(size, models.dtype), np.empty(size, models.dtype), np.empty(size), np.empty(size)
    z, four = np.empty((4, outputs), models.dtype), np.empty(4, np.int64)
    for k in range(models.shape[0]):
        start, steps, length = models[k], shapes[k, 0], shapes[k, 1]
        w[:], u[:] = start, 0
        not_finite[k] = 0
        for _ in range(steps):
            batch, norm = packed[first : first + length], np.inf
            if is_finite(w) and dense_batch(g, w, loss, batch, targets, z, four, intercept, examples):
                norm = mean_gradient(h, g, start, u, length, l2)
            move(u, w, start, h, norm, rates[k] / steps, clips[k])
            not_finite[k] += not norm < np.inf
            first += length
        finish(updates[k], u, rates[k] * clips[k])


@_compiled
def csr_updates(loss, models, batches, targets, limits, shape, updates, not_finite, *sparse):
    """`dense_updates` for examples in CSR form: ``values``, ``columns`` [stored] and ``rows`` [n + 1]."""
    (shapes, packed), (rates, clips, l2), (outputs, features, intercept) = batches, limits, shape
    values, columns, rows = sparse
    size, first = models.shape[1], 0
    w, g, h, u = np.empty(size, models.dtype), np.empty(size, models.dtype), np.empty(size), np.empty(size)
    z = np.empty(outputs, models.dtype)
    for k in range(models.shape[0]):
        start, steps, length = models[k], shapes[k, 0], shapes[k, 1]
        w[:], u[:] = start, 0
        not_finite[k] = 0
        for _ in range(steps):
            batch, norm = packed[first : first + length], np.inf
            if is_finite(w) and csr_batch(g, w, loss, batch, targets, z, features, intercept, values, columns, rows):
                norm = mean_gradient(h, g, start, u, length, l2)
            move(u, w, start, h, norm, rates[k] / steps, clips[k])
            not_finite[k] += not norm < np.inf
            first += length
        finish(updates[k], u, rates[k] * clips[k])


@_inlined
def whole_gradient(h, g, start, u, examples, l2, proximal):
    """h = g / examples + l2 (start + u) + proximal u. Returns whether all of it is finite."""
    share, total = 1.0 / examples, 0.0
    for j in range(h.size):
        h[j] = share * np.float64(g[j]) + l2 * (np.float64(start[j]) + u[j]) + proximal * u[j]
        total += h[j] * 0.0
    return total == 0.0


@_inlined
def accelerate(w, u, v, h, start, rate, momentum):
    """Take a step with the gradient h: v = momentum v + h, and w = start + u moves by -rate v."""
    for j in range(u.size):
        v[j] = momentum * v[j] + h[j]
        u[j] -= rate * v[j]
        w[j] = np.float64(start[j]) + u[j]


@_compiled
def dense_training(loss, models, batches, targets, settings, shape, updates, not_finite, examples):
    """Trainings of clients with dense examples.

    Parameters
    ----------
    loss : int
        One of the codes of `glm_kernels`.
    models : ndarray [width, size]
        Model that each client starts at.
    batches : triple of ndarray, [width], [all steps] and [drawn] of int64
        Steps of each client, examples of each step, and the examples, one step behind the other.
    targets : ndarray [n] of float64
        Class numbers or real values.
    settings : tuple (rates [width], momenta [width], proximals [width], l2)
        Settings of each client; strength of the L2 term.
    shape : tuple (outputs, features, intercept)
        Shape of the model.
    updates : ndarray [width, size]
        Written.
    not_finite : ndarray [width] of int64
        Written: how many steps were left out.
    examples : ndarray [n, features] of float32
        One example a row.
    """
    (steps, lengths, packed), (rates, momenta, proximals, l2), (outputs, _, intercept) = batches, settings, shape
    size, step, first = models.shape[1], 0, 0
    w, g = np.empty(size, models.dtype), np.empty(size, models.dtype)
    h, u, v = np.empty(size), np.empty(size), np.empty(size)
    z, four = np.empty((4, outputs), models.dtype), np.empty(4, np.int64)
    for k in range(models.shape[0]):
        start = models[k]
        w[:], u[:], v[:] = start, 0, 0
        not_finite[k] = 0
        for _ in range(steps[k]):
            batch, sound = packed[first : first + lengths[step]], False
            if is_finite(w) and dense_batch(g, w, loss, batch, targets, z, four, intercept, examples):
                sound = whole_gradient(h, g, start, u, batch.size, l2, proximals[k])
            if sound:
                accelerate(w, u, v, h, start, rates[k], momenta[k])
            else:
                not_finite[k] += 1
            first += lengths[step]
            step += 1
        finish(updates[k], u, np.inf)


@_compiled
def csr_training(loss, models, batches, targets, settings, shape, updates, not_finite, *sparse):
    """`dense_training` for examples in CSR form: ``values``, ``columns`` [stored] and ``rows`` [n + 1]."""
    (steps, lengths, packed), (rates, momenta, proximals, l2), (outputs, features, intercept) = batches, settings, shape
    values, columns, rows = sparse
    size, step, first = models.shape[1], 0, 0
    w, g = np.empty(size, models.dtype), np.empty(size, models.dtype)
    h, u, v = np.empty(size), np.empty(size), np.empty(size)
    z = np.empty(outputs, models.dtype)
    for k in range(models.shape[0]):
        start = models[k]
        w[:], u[:], v[:] = start, 0, 0
        not_finite[k] = 0
        for _ in range(steps[k]):
            batch, sound = packed[first : first + lengths[step]], False
            if is_finite(w) and csr_batch(g, w, loss, batch, targets, z, features, intercept, values, columns, rows):
                sound = whole_gradient(h, g, start, u, batch.size, l2, proximals[k])
            if sound:
                accelerate(w, u, v, h, start, rates[k], momenta[k])
            else:
                not_finite[k] += 1
            first += lengths[step]
            step += 1
        finish(updates[k], u, np.inf)


@_compiled
def training_step(w, g, h, u, v, start, examples, l2, proximal, rate, momentum):
    """Take a step of `Objective.local_training` with the sum g of gradients at w. Returns whether it is finite."""
    sound = is_finite(w) and whole_gradient(h, g, start, u, examples, l2, proximal)
    if sound:
        accelerate(w, u, v, h, start, rate, momentum)
    return sound


@_compiled
def update_step(w, g, h, u, start, examples, l2, pace, clip):
    """Take a step of `Objective.local_updates` with the sum g of gradients at w. Returns whether it is finite."""
    norm = np.inf
    if is_finite(w) and is_finite(g):
        norm = mean_gradient(h, g, start, u, examples, l2)
    move(u, w, start, h, norm, pace, clip)
    return norm < np.inf


@_compiled
def write_update(update, u, most):
    """update = u, at most ``most`` long and of numbers that its dtype holds."""
    finish(update, u, most)


@_compiled
def place(w, start, u, unit):
    """w = start - unit u, where a round of `Objective.local_steps` is."""
    for j in range(u.size):
        w[j] = np.float64(start[j]) - unit * u[j]


@_compiled
def round_step(u, g, w, share, l2):
    """Take a step of `Objective.local_steps`: u += share (g + l2 w) for the clipped gradient g at w."""
    for j in range(u.size):
        # Zero times what is not finite would be no zero.
        u[j] += share * (np.float64(g[j]) + l2 * np.float64(w[j]) if l2 > 0.0 else np.float64(g[j]))
