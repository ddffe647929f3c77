"""Compiled loops of generalised linear models: mini-batch SGD of many agents, clipped or with momentum.

What they compute is said in `objective.Objective.local_updates` and `local_training`; models, residuals and layouts are
those of `glm_kernels`. One call takes all agents, one after another, so that an agent's result has the same bits
whatever others there are. An agent holds what it has done, u, and its velocity in float64, and its model as
``start + u``, rounded to the dtype of models where a gradient is taken. Networks with compiled chains take the same
steps (`descent_step`), and those of `objective.Objective.local_steps`.
"""

from __future__ import annotations

import numpy as np

from gossamer.machine_code import compiled
from gossamer.objectives.linear import kernels as glm_kernels

_compiled = compiled(fastmath={"reassoc", "contract"})
# Inlined by force, because a call costs more than the arithmetic of a few features.
_inlined = compiled(inline="always", fastmath={"reassoc", "contract"})

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
def descend(loss, models, batches, targets, settings, shape, updates, not_finite, examples):
    """Updates of agents, all steps of one after those of another.

    Parameters
    ----------
    loss : int
        One of the codes of `glm_kernels`.
    models : ndarray [width, size]
        Model that each agent starts at.
    batches : triple of ndarray, [width], [all steps] and [drawn] of int64
        Steps of each agent, examples of each step, and the examples, one step behind the other.
    targets : ndarray [n] of float64
        Class numbers or real values.
    settings : tuple (l2, bounds [width], rates [width], clips [width]) or (l2, bounds, rates, momenta, proximals)
        Strength of the L2 term, most norm of each update, size of each agent's steps; and what they are clipped to, or
        their momentum and strength of the proximal term.
    shape : tuple (outputs, features, intercept)
        Shape of the model.
    updates : ndarray [width, size]
        Written.
    not_finite : ndarray [width] of int64
        Written: number of mean gradients that were not finite.
    examples : tuple of ndarray
        [n, features] of float32, one example a row; or ``values``, ``columns`` [stored] and ``rows`` [n + 1] of CSR.
    """
    (steps, lengths, packed), (outputs, features, intercept) = batches, shape
    l2, bounds, rates = settings[:3]
    size, step, first = models.shape[1], 0, 0
    w, g = np.empty(size, models.dtype), np.empty(size, models.dtype)
    h, u, v = np.empty(size), np.empty(size), np.empty(size)
    z, four = np.empty((4, outputs), models.dtype), np.empty(4, np.int64)
    for k in range(models.shape[0]):
        start = models[k]
        w[:], u[:] = start, 0
        if len(settings) == 5:
            v[:] = 0
        not_finite[k] = 0
        for _ in range(steps[k]):
            batch, sound = packed[first : first + lengths[step]], is_finite(w)
            if len(examples) == 1:
                sound = sound and dense_batch(g, w, loss, batch, targets, z, four, intercept, examples[0])
            else:
                values, columns, rows = examples
                sound = sound and csr_batch(
                    g, w, loss, batch, targets, z[0], features, intercept, values, columns, rows
                )
            if len(settings) == 4:
                norm = mean_gradient(h, g, start, u, batch.size, l2) if sound else np.inf
                move(u, w, start, h, norm, rates[k], settings[3][k])
                sound = norm < np.inf
            else:
                sound = sound and whole_gradient(h, g, start, u, batch.size, l2, settings[4][k])
                if sound:
                    accelerate(w, u, v, h, start, rates[k], settings[3][k])
            not_finite[k] += not sound
            first += lengths[step]
            step += 1
        finish(updates[k], u, bounds[k])


@_compiled
def descent_step(w, g, h, u, v, start, examples, settings):
    """Take one step of `descend` with the sum g of gradients at w, and ``settings`` of one agent: (l2, rate, clip) or
    (l2, rate, momentum, proximal). Returns whether it is finite."""
    l2, rate = settings[:2]
    sound = is_finite(w) and is_finite(g)
    if len(settings) == 3:
        norm = mean_gradient(h, g, start, u, examples, l2) if sound else np.inf
        move(u, w, start, h, norm, rate, settings[2])
        return norm < np.inf
    sound = sound and whole_gradient(h, g, start, u, examples, l2, settings[3])
    if sound:
        accelerate(w, u, v, h, start, rate, settings[2])
    return sound


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
