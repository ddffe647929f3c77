"""Named arrays inside a flat parameter vector, as in a ``state_dict``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray


@dataclass(frozen=True)
class Part:
    """One named array inside a flat vector, as in a ``state_dict``."""

    name: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)


def pack(arrays: Mapping[str, npt.ArrayLike], parts: Sequence[Part], dtype: npt.DTypeLike) -> FloatArray:
    """The flat vector [sum of sizes] that holds ``arrays`` in the order of ``parts``.

    Raises
    ------
    ValueError
        If an array has another shape than its part.
    """
    flat = []
    for part in parts:
        array = np.asarray(arrays[part.name], dtype)
        if array.shape != part.shape:
            raise ValueError(f"{part.name} must have shape {part.shape}, found {array.shape}")
        flat.append(array.reshape(-1))
    return np.concatenate(flat)


def unpack(vector: FloatArray, parts: Sequence[Part]) -> dict[str, FloatArray]:
    """Views into ``vector`` [size] under the names and shapes of ``parts``."""
    expected = sum(part.size for part in parts)
    if vector.shape != (expected,):
        raise ValueError(f"the parts need a vector of {expected} numbers, found shape {vector.shape}")
    arrays, start = {}, 0
    for part in parts:
        arrays[part.name] = vector[start : start + part.size].reshape(part.shape)
        start += part.size
    return arrays
