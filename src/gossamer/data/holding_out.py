"""The examples that are kept for testing, where the data have no test examples of their own. It is always the same."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from gossamer.data.examples import Owners


def held_out(strata: npt.NDArray[np.generic], fraction: float, persons: Owners | None = None) -> npt.NDArray[np.bool_]:
    """Whether each example is kept for testing, [n]: ``floor(fraction * size)`` of each stratum, always the same.

    Parameters
    ----------
    strata : ndarray [n]
        The class of each example, or a constant.
    fraction : float
        In (0, 1), so that no stratum loses its last example.
    persons : ndarray [n], optional
        Which person each example is about. All of a person's examples are then held out or none, and a person belongs
        to the stratum of its first example; of each stratum as many are held out as fit.

    Notes
    -----
    Each example has a key that depends on its position alone, and the smallest keys of each stratum are held
    out; a person has the key of its first example. The keys are a hash's bytes and not a generator's, whose draws may
    change between NumPy releases.
    """
    size = len(strata)
    keys = np.frombuffer(hashlib.shake_128(b"gossamer test split").digest(8 * size), "<u8")
    if persons is not None:
        return _persons_held_out(strata, fraction, persons, keys)
    _, stratum, counts = np.unique(strata, return_inverse=True, return_counts=True)
    order = np.lexsort((keys, stratum))
    rank = np.empty(size, np.int64)
    rank[order] = np.arange(size) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(rank < _quotas(counts, fraction)[stratum])


def without_last(tested: npt.NDArray[np.bool_], owners: Owners, persons: Owners | None = None) -> npt.NDArray[np.bool_]:
    """The choice ``tested`` [n] without the first row of each of ``owners`` [n] that would have none to train on.

    Where ``persons`` [n] are known, all rows of that row's person are trained on.
    """
    _, first, owner = np.unique(owners, return_index=True, return_inverse=True)
    left = np.bincount(owner, weights=~tested, minlength=len(first))
    back = np.zeros(len(tested), np.bool_)
    back[first[left == 0]] = True
    if persons is not None and back.any():
        back = np.isin(persons, persons[back])
    return tested & ~back


def _quotas(counts: npt.NDArray[np.int64], fraction: float) -> npt.NDArray[np.int64]:
    # A little is added so that 0.3 of 10 is 3 although 0.3 is stored as less.
    return np.asarray(np.floor(fraction * counts + 1e-9), np.int64)


def _persons_held_out(
    strata: npt.NDArray[np.generic], fraction: float, persons: Owners, keys: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    _, first, person, rows = np.unique(persons, return_index=True, return_inverse=True, return_counts=True)
    _, stratum = np.unique(strata[first], return_inverse=True)
    left = _quotas(np.bincount(stratum, weights=rows).astype(np.int64), fraction)
    chosen = np.zeros(len(first), np.bool_)
    for number in np.argsort(keys[first]):
        if rows[number] <= left[stratum[number]]:
            left[stratum[number]] -= rows[number]
            chosen[number] = True
    return np.asarray(chosen[person])
