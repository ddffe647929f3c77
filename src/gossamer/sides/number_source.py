"""Sources of a data side's random numbers: a seed in a simulation, the operating system in a deployment."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gossamer.randomness import Stream


class Numbers(Protocol):
    """A family of generators, one a number."""

    def at(self, number: int) -> np.random.Generator:
        """The generator of ``number``: the same numbers again, if they come from a seed."""
        ...


def numbers_of(seed: int | None, *labels: str) -> Numbers:
    """Those of ``seed`` for one purpose; without a seed, numbers that nobody can repeat."""
    if seed is not None:
        return Stream(seed, *labels)
    # It needs cryptography, which is optional, so it is imported only here.
    from gossamer.privacy.exact.secret_generator import Fresh

    return Fresh()
