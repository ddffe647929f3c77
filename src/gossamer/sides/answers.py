"""Compiled loops of what leaves a party's data as a noisy gradient: a sample, its clipped sum, noise, and what follows.

Both a window of many computations and the loop of a population answer by them, so that a charge has one answer in any
company. Numbers of a query are a row of ``terms``, in the order of `window.GradientTerms`.
"""

from __future__ import annotations

import numpy as np

from gossamer.machine_code import compiled
from gossamer.objectives.linear.kernels import clipped_sums
from gossamer.philox import add_normals, sample

_compiled = compiled()


@_compiled
def noisy(key, number, terms, model, l2, noise, found):  # type: ignore[no-untyped-def]
    """Add noise to a clipped sum ``found`` [size], make it a mean, and add the regulariser's gradient at ``model``."""
    add_normals(key, number, terms[2], noise, found)
    normaliser, unit, strength = np.float32(terms[3]), np.float32(terms[4]), np.float32(l2)
    for j in range(found.size):
        value = found[j] / normaliser / unit
        found[j] = value + strength * model[j] if l2 != 0.0 else value


@_compiled
def noisy_rows(keys, numbers, terms, places, models, l2, sums):  # type: ignore[no-untyped-def]
    """`noisy` of each row of ``sums`` [width, size]: row k by ``numbers[k]`` and ``keys[places[k]]``."""
    noise = np.empty(sums.shape[1], np.float32)
    for k in range(places.size):
        key = keys[places[k], 0], keys[places[k], 1]
        noisy(key, numbers[k], terms[k], models[k], l2, noise, sums[k])


@_compiled
def answer(keys, number, terms, rows, objective, examples, model, drawn, noises, found):  # type: ignore[no-untyped-def]
    """Write the noisy gradient of a linear model to ``found`` [size]; how many examples' were not finite.

    Parameters
    ----------
    keys : pair of pairs of uint64
        Keys of samples and of noise.
    number : int
        Number of the charge.
    terms : ndarray [6]
        Numbers of the query.
    rows : ndarray of int64
        Rows of the party's examples.
    objective : tuple (loss, shape, targets, l2)
        As `linear.kernels.clipped_sums` takes the first three, and the strength of the L2 term.
    examples : tuple of ndarray
        As `linear.kernels.clipped_sums` takes them.
    model : ndarray [size] of float32
        Model that it is computed at.
    drawn, noises : ndarray [most rows] of int64, [size] of float32
        Overwritten.
    found : ndarray [size] of float32
        Written.
    """
    loss, shape, targets, l2 = objective
    sampling, noise = keys
    count = sample(sampling, number, rows.size, terms[0], drawn)
    for i in range(count):
        drawn[i] = rows[drawn[i]]
    starts, counts, clips = np.zeros(2, np.int64), np.empty((2, 1), np.int64), np.empty(1)
    starts[1], clips[0] = count, terms[1]
    whole = 1, model.size
    clipped_sums(
        loss,
        model.reshape(whole),
        (starts, drawn),
        targets,
        clips,
        shape,
        found.reshape(whole),
        counts[0],
        counts[1],
        examples,
    )
    noisy(noise, number, terms, model, l2, noises, found)
    return counts[0, 0]
