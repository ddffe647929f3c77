"""Laws of the number of a person's rows in a sample, against exact fractions."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from tests.reference import groups_slow

from gossamer.privacy.accounting.accountants import MOST_ROWS, row_of
from gossamer.privacy.accounting.group_pairs import RowNumbers, binomial, hypergeometric
from gossamer.privacy.mechanisms import BallGaussian, FixedSize, NeighboringRelation, ReleaseKind

TINY = Fraction(1, 10**300)  # no probabilities of numbers are told from 0 below it
BATCHES = [(4, 7, 3), (3, 3, 2), (20, 10**9, 10**6), (30, 10**9, 10**9 - 5), (40, 50, 30), (25, 10**15, 10**14)]


def check(found: RowNumbers, exact: Sequence[Fraction], close: float) -> None:
    """Never below the exact law in distribution; and the probabilities of sets of numbers are close to it."""
    above = list(itertools.accumulate(reversed(exact)))[::-1]  # of k or more
    masses = dict(zip(found.values.astype(int).tolist(), map(math.exp, found.logs.tolist())))
    for number in range(1, len(exact)):
        mine = math.fsum(mass for value, mass in masses.items() if value >= number)
        assert mine + TINY >= min(above[number], 1 - Fraction(1, 2**52)) * (1 - Fraction(1, 10**15))
    assert math.exp(found.log_none) <= exact[0] * (1 + Fraction(1, 10**15))
    assert math.fsum(masses.values()) + math.exp(found.log_none) == pytest.approx(1, abs=1e-15)
    mean = float(sum(k * p for k, p in enumerate(exact)))
    assert math.fsum(value * mass for value, mass in masses.items()) == pytest.approx(mean, rel=close)
    assert found.some == pytest.approx(float(1 - exact[0]), rel=1e-12)


@pytest.mark.parametrize(("rows", "size", "batch"), BATCHES)
def test_numbers_in_a_batch_are_never_rounded_below(rows: int, size: int, batch: int) -> None:
    check(hypergeometric(rows, size, batch), groups_slow.hypergeometric(min(rows, size), size, batch), 1e-12)


@pytest.mark.parametrize(("rows", "rate"), [(1, 0.3), (7, 0.5), (40, 1e-4), (40, 0.999), (300, 0.335), (5, 1e-300)])
def test_numbers_in_a_poisson_sample_are_never_rounded_below(rows: int, rate: float) -> None:
    check(binomial(rows, rate), groups_slow.binomial(rows, rate), 1e-10)


def test_fewer_numbers_are_rounded_up() -> None:
    check(binomial(300, 0.335, 20), groups_slow.binomial(300, 0.335), 0.03)


def test_the_rate_of_a_batch_of_a_huge_data_set_is_not_below_the_exact_one() -> None:
    """Logarithms of factorials of 10^9 are rounded by more than 1e-7 of a probability."""
    for rows, size, batch in ((3, 10**9, 1000), (20, 10**9, 10**6), (7, 2 * 10**9 + 1, 12345)):
        kind = ReleaseKind(BallGaussian(1.0, 1.0), FixedSize(size, batch), 1)
        exact = 1 - groups_slow.hypergeometric(rows, size, batch)[0]
        rate = row_of(kind, NeighboringRelation.REPLACE_ONE).profile(kind, rows).rate
        assert exact <= rate <= float(exact) * (1 + 1e-12)


@pytest.mark.parametrize("rate", [5e-324, 1e-300, 1e-12, 1e-3, 0.5, 0.999, 1 - 2**-53])
def test_as_many_rows_as_there_may_be_take_few_numbers(rate: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = binomial(MOST_ROWS, rate)
    assert found.values.size < 1000
    assert (np.diff(found.values) > 0).all()
    assert math.fsum(np.exp(found.logs)) == pytest.approx(found.some, rel=1e-12)
    assert found.some >= -math.expm1(MOST_ROWS * math.log1p(-rate)) * (1 - 1e-12)
