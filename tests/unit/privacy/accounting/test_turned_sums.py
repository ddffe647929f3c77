"""The compiled sums of products, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.privacy.accounting.composition import _turned
from gossamer.privacy.accounting.turned_sums import add_products


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 0), (4, 7, 31), (2, 3, 32), (3, 9, 33), (5, 8, 100)])
def test_terms_are_added_one_after_another(shape: tuple[int, int, int]) -> None:
    """A product of complex numbers as it is defined, term after term, in ordinary Python; of sizes far apart, so that
    another order, or a product that is not rounded by itself, would have other bits."""
    rows, columns, terms = shape
    generator = np.random.default_rng(0)
    left, right = (
        generator.standard_normal((2, count, terms)) * 10.0 ** generator.uniform(-8, 8, (2, count, terms))
        for count in (rows, columns)
    )
    start = generator.standard_normal((2, rows, columns))
    expected = start.tolist()
    for a in range(rows):
        for b in range(columns):
            for x, y, u, v in zip(*left[:, a].tolist(), *right[:, b].tolist()):
                expected[0][a][b] += x * u - y * v
                expected[1][a][b] += x * v + y * u

    real, imaginary = start.copy()
    add_products(left[0] + 1j * left[1], *(np.ascontiguousarray(part.T) for part in right), real, imaginary)

    assert [real.tolist(), imaginary.tolist()] == expected


@pytest.mark.parametrize(("atoms", "count"), [(1, 1), (40, 50), (300, 1100), (9000, 5)])
def test_characteristic_functions_are_those_of_the_definition(atoms: int, count: int) -> None:
    """sum_j w_j (exp(i n s l_j) - 1), with 1e-13 of the sum of sizes for the rounding of angles up to 50."""
    generator = np.random.default_rng(1)
    weights, losses = generator.random((2, atoms)) / atoms, generator.standard_normal(atoms)
    step = 10.0 / count
    expected = np.array([[np.sum(own * np.expm1(1j * n * step * losses)) for n in range(count)] for own in weights])
    np.testing.assert_allclose(_turned(weights, losses, step, count), expected, rtol=0, atol=1e-13)
