"""Generators that are made late draw what those of numpy draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gossamer.randomness import PART, Stream
from gossamer.sides.home import generator_of

DRAWS: dict[str, Callable[[np.random.Generator], list[Any]]] = {
    "normals": lambda g: [g.standard_normal(5, dtype=np.float32)],
    "twice": lambda g: [g.standard_normal(300, dtype=np.float32), g.standard_normal(5, dtype=np.float32)],
    "then others": lambda g: [g.standard_normal(7, dtype=np.float32), g.standard_normal(), g.random(3), g.integers(9)],
    "others first": lambda g: [g.gamma(2.0), g.standard_normal(7, dtype=np.float32)],
    "in float64": lambda g: [g.standard_normal(4), g.standard_normal(4, dtype=np.float32)],
    "of two axes": lambda g: [g.standard_normal((2, 3), dtype=np.float32)],
    "in place": lambda g: [g.standard_normal(dtype=np.float32, out=np.empty(3, np.float32))],
    "many": lambda g: [g.standard_normal(PART + 1, dtype=np.float32)],
}


@pytest.mark.parametrize("draws", DRAWS)
def test_the_numbers_are_those_of_the_generator(draws: str) -> None:
    late = DRAWS[draws](generator_of(Stream(3, "noise"), 8))
    for one, other in zip(late, DRAWS[draws](Stream(3, "noise").at(8)), strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.asarray(one).dtype == np.asarray(other).dtype
