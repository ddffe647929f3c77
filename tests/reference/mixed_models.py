"""Shares of updates in a model that is mixed by age: FedAsync's recursion, with a vector of shares for each version.

The server's step is linear in the updates, so each version is x_0 plus a sum of updates, whose shares follow from their
ages alone. Independent noise of one standard deviation in all updates has that, times the norm of the shares, in the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from gossamer.arrays import FloatArray


def shares(ages: Sequence[int], mixing: float, weight: Callable[[int], float]) -> FloatArray:
    """Shares [T] of T updates in the last model, for the ages with which they came, in order."""
    versions = [np.zeros(len(ages))]
    for t, age in enumerate(ages):
        pushed = versions[t - age].copy()
        pushed[t] += 1
        alpha = mixing * weight(age)
        versions.append((1 - alpha) * versions[-1] + alpha * pushed)
    return versions[-1]
