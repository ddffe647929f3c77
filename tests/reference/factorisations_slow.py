"""How little noise any correlation of a node's own draws leaves in models: a bound that all factorisations keep.

Let a node release G + C^-1 Z, Z independent normal draws of deviation s and C lower-triangular with an inverse, so that
who sees all of it sees C G + Z. One change moves G by D, of rows at most 1 long, of the releases that its example is
in. So a mu of at most M asks s = S / M, S^2 = max over D of |C D|^2. What is left in models are rows of R C^-1 Z, of
R'R = H, and so s^2 |R C^-1|^2 in all. For every set of D_j, of releases that one example may be in, and weights p_j
that sum to 1,

    S |R C^-1| >= (sum p_j |C D_j|^2)^(1/2) |R C^-1| >= |R D|_*,    D = [sqrt(p_1) D_1, sqrt(p_2) D_2, ...],

as the nuclear norm of a product is at most the product of Frobenius norms. Any D proves a bound, also one that a search
has left early; `least` looks for the largest.
"""

from __future__ import annotations

import numpy as np


def least(gram: np.ndarray, gap: int = 1, rounds: int = 4000) -> float:
    """Return a bound of S^2 |R C^-1|^2 of every C, where an example is in every ``gap``-th release.

    Parameters
    ----------
    gram : ndarray [releases, releases]
        H = R'R.
    gap : int
        Releases from one that an example is in to its next.
    rounds : int
        Most steps of the search.
    """
    count = len(gram)
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    sets = [np.arange(first, count, gap) for first in range(gap)]
    wide = len(sets[0]) + 1
    changes = np.zeros((count, gap * wide))
    own = np.zeros_like(changes, bool)  # examples of different sets have nothing to do with each other
    generator = np.random.default_rng(0)
    for number, one in enumerate(sets):
        columns = np.arange(number * wide, (number + 1) * wide)
        own[np.ix_(one, columns)] = True
        changes[np.ix_(one, columns)] = 1e-2 * generator.standard_normal((len(one), wide))
        changes[one, number * wide] += 1
    found = 0.0
    for _ in range(rounds):
        lengths = np.linalg.norm(changes, axis=1)
        shares = np.array([lengths[one].sum() for one in sets])
        shares /= np.linalg.norm(shares)  # roots of the p_j
        for share, one in zip(shares, sets, strict=True):
            changes[one] *= (share / lengths[one])[:, None]
        left, singular, right = np.linalg.svd(root @ changes, full_matrices=False)
        before, found = found, float(singular.sum() ** 2)
        if found - before < 1e-9 * found:
            break
        changes = (root @ left @ right) * own  # along which the nuclear norm, which is convex, grows most
    return found


def sensitivity(c: np.ndarray, gap: int = 1) -> float:
    """Return S of a C of which C'C has no negative entry: |C 1| over the releases of one example, of the worst."""
    return max(float(np.linalg.norm(c[:, first::gap].sum(axis=1))) for first in range(gap))
