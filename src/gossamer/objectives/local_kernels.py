"""Steps of local training between gradients of a chain: what is done with a mean gradient, compiled.

The arithmetic is that of linear models (`glm_training`, `glm_updates`): u is what a client has moved by, in float64.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from gossamer.objectives import glm_training, glm_updates

_compiled = njit(cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


@_compiled
def training_step(w, g, h, u, v, start, examples, l2, proximal, rate, momentum):
    """Take a step of `Objective.local_training` with the sum g of gradients at w. Returns whether it is finite."""
    sound = glm_updates.is_finite(w) and glm_training.whole_gradient(h, g, start, u, examples, l2, proximal)
    if sound:
        glm_training.accelerate(w, u, v, h, start, rate, momentum)
    return sound


@_compiled
def update_step(w, g, h, u, start, examples, l2, pace, clip):
    """Take a step of `Objective.local_updates` with the sum g of gradients at w. Returns whether it is finite."""
    norm = np.inf
    if glm_updates.is_finite(w) and glm_updates.is_finite(g):
        norm = glm_updates.mean_gradient(h, g, start, u, examples, l2)
    glm_updates.move(u, w, start, h, norm, pace, clip)
    return norm < np.inf


@_compiled
def write_update(update, u, most):
    """update = u, at most ``most`` long and of numbers that its dtype holds."""
    glm_updates.finish(update, u, most)


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
