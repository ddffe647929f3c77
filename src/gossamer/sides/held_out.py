"""Data sides of examples that a model is tested on: one histogram of scores each, with exact noise in every world.

Where parties are not to be told apart, histograms are summed behind masks: on the grid they are integers already, so
modulo 2^64 the sum is exact, and nothing is rounded, clipped or folded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.sides.home import GridNoise, Simulated


class SimulatedExactly(Simulated):
    """A simulated world whose Gaussian noise is on a grid."""

    noise = GridNoise()


def masked_sum(released: Sequence[FloatArray], step: float) -> FloatArray:
    """Return the sum of parties' noisy vectors [size], multiples of ``step``, by the messages of a masked sum.

    It is made of all of them or not at all: noise is counted on that each has added.
    """
    # Masks need cryptography, which is optional, so they are imported only here.
    from gossamer.privacy.masking import Group, MaskingAgent, MaskingServer, aggregate

    many = len(released)
    group = Group(many, released[0].size, 64, many, many, b"histograms of held-out examples")
    values = {
        number: np.rint(one.astype(np.float64) / step).astype(np.int64).view(np.uint64)
        for number, one in enumerate(released, 1)
    }
    total = aggregate(MaskingServer(group, 0), {number: MaskingAgent(group, number, 0) for number in values}, values)
    return np.asarray(total.values.view(np.int64) * step)
