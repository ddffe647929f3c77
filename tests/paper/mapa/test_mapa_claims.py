"""Paper 2, Remark 4 and the composition after it."""

from __future__ import annotations

import math

import pytest

from gossamer.algorithms.edge_cloud.box import mapa_claims
from gossamer.errors import SpecError


def test_each_iteration_and_all_of_them() -> None:
    """epsilon, T epsilon, and by Dwork and Roth's theorem 3.20 sqrt(2 * 200 * 9) 0.01 + 200 * 0.01 (e^0.01 - 1)."""
    single, simple, advanced = mapa_claims(0.01, 200, math.exp(-9))
    assert (single.epsilon, single.delta) == (0.01, 0.0)
    assert [simple.epsilon, advanced.epsilon] == pytest.approx([2.0, 0.6 + 2 * math.expm1(0.01)])
    assert [simple.delta, advanced.delta] == [0.0, math.exp(-9)]
    assert all(claim.valid and claim.theorem.startswith("MAPA, Remark 4") for claim in (single, simple, advanced))
    assert "below the sum" in advanced.why


def test_the_sub_linear_figure_may_be_the_larger_one() -> None:
    """With few iterations, or revealing ones."""
    for epsilon, releases in ((0.1, 3), (2.0, 1000)):
        _, simple, advanced = mapa_claims(epsilon, releases, 1e-5)
        assert advanced.epsilon > simple.epsilon
        assert "not below the sum" in advanced.why


def test_nothing_is_claimed_of_nothing() -> None:
    assert mapa_claims(0.1, 0, 1e-5) == []


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 1e-5), (math.inf, 1e-5), (0.1, 0.0), (0.1, 1.0)])
def test_impossible_numbers_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(SpecError):
        mapa_claims(epsilon, 10, delta)
