"""Compiled loops of generalised linear models: whole local trainings, with momentum and a proximal term.

What they compute is said in `objective.Objective.local_training`; a batch's gradient, layouts and the order of clients
are those of `glm_updates`. A client holds what it has done, u, and its velocity in float64, and its model as
``start + u``, rounded to the dtype of models where a gradient is taken.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gossamer.objectives.glm_updates import csr_batch, dense_batch, finish, is_finite

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})
_inlined = njit(inline="always", error_model="numpy", fastmath={"reassoc", "contract"})


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
        Where each client starts.
    batches : triple of ndarray, [width], [all steps] and [drawn] of int64
        Steps of each client, examples of each step, and the examples, one step behind the other.
    targets : ndarray [n] of float64
        Class numbers or real values.
    settings : tuple (rates [width], momenta [width], proximals [width], l2)
        Of each client; strength of the L2 term.
    shape : tuple (outputs, features, intercept)
        Of the model.
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
