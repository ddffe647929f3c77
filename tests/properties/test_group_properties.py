"""What pairs for persons with several rows must satisfy, whatever the plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import row_of
from gossamer.privacy.accounting.group_pairs import GroupReplaced, GroupSampled
from gossamer.privacy.mechanisms import (
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
LOSSES = np.concatenate([[0.0], np.geomspace(1e-4, 12, 60)])
SLACK = 1 + 1e-7
TINY = 1e-13  # exponents of up to 113, of a Gaussian pair whose mu is 30, are rounded by up to 2.5e-14

mus, rates, rows = st.floats(0.02, 3), st.floats(1e-3, 0.97), st.integers(2, 12)
pairs = pytest.mark.parametrize("profile", [GroupSampled, GroupReplaced])
laws = st.one_of(
    st.floats(0.4, 20).map(lambda z: Gaussian(1.0, z)),
    st.floats(0.05, 1).map(lambda e: L2Laplace(1.0, e, REPLACE)),
    st.floats(1.0, 9).map(lambda scale: Laplace(1.0, scale)),
)
combinations = st.one_of(
    st.tuples(rates.map(Poisson), st.sampled_from([ADD, REPLACE])),
    st.integers(2, 60).flatmap(
        lambda size: st.tuples(st.integers(1, size).map(lambda batch: FixedSize(size, batch)), st.just(REPLACE))
    ),
)


@pairs
@given(mu=mus, low=rates, high=rates, share=st.floats(0, 1), number=rows)
@settings(deadline=None, max_examples=examples(30))
def test_profiles_are_convex_and_increasing_in_their_rate(
    profile: type, mu: float, low: float, high: float, share: float, number: int
) -> None:
    """As merging needs; the rate is 1 - (1-q)^m, and convexity in q would not hold."""
    low, high = sorted((low, high))
    bottom, top = profile(mu, low, number), profile(mu, high, number)
    assume(top.rate < 1 - 1e-6)  # or q cannot be told from it
    rate = (1 - share) * bottom.rate + share * top.rate
    between = profile(mu, min(max(-np.expm1(np.log1p(-rate) / number), 1e-6), 0.999), number)
    for side in ("forward", "backward"):
        mixed = (1 - share) * getattr(bottom, side)(LOSSES) + share * getattr(top, side)(LOSSES)
        found = getattr(between, side)(LOSSES)
        assert (found <= mixed * SLACK + 1e-12).all()
        assert (getattr(bottom, side)(LOSSES) <= getattr(top, side)(LOSSES) * SLACK + TINY).all()


@given(law=laws, combination=combinations, number=rows)
@settings(deadline=None, max_examples=examples(80))
def test_profiles_are_profiles_and_more_rows_reveal_more(law, combination, number: int) -> None:
    """Convex and decreasing in exp(loss), at most 1, at most the tail beyond the largest loss."""
    sampling, relation = combination
    kind = ReleaseKind(law, sampling, 3)
    fewer, more = (row_of(kind, relation).profile(kind, m) for m in (number - 1, number))
    for at, side in enumerate(("forward", "backward")):
        curve = getattr(more, side)(LOSSES)
        assert (curve <= 1 + TINY).all()
        assert (np.diff(curve) <= TINY).all()
        gaps = np.diff(np.exp(LOSSES))
        assert (np.diff(np.diff(curve) / gaps) >= -TINY / gaps[:-1]).all()  # but for rounding of the curve
        assert (getattr(fewer, side)(LOSSES) <= curve * SLACK + TINY).all()
        for tail in (1e-3, 1e-9):
            largest = more.largest(tail)[at]
            assert getattr(more, side)(np.array([max(largest, 0.0)]))[0] <= tail * SLACK


@given(
    law=laws,
    combination=combinations,
    number=st.integers(1, 5),
    count=st.integers(1, 40),
    power=st.floats(-9, -2),
)
@settings(deadline=None, max_examples=examples(40))
def test_epsilon_grows_with_rows_and_releases(law, combination, number: int, count: int, power: float) -> None:
    sampling, relation = combination
    kind, delta = ReleaseKind(law, sampling, 3), 10.0**power
    found = accountants.epsilon({kind: count}, delta, relation, number).epsilon
    assert found <= accountants.epsilon({kind: count}, delta, relation, number + 1).epsilon * SLACK
    assert found <= accountants.epsilon({kind: count + 1}, delta, relation, number).epsilon * SLACK
    # rows at two shards are no worse than all of them at one with the releases of both
    joint = accountants.joint_epsilon([({kind: count}, number), ({kind: count}, 1)], delta, relation).epsilon
    assert joint <= accountants.epsilon({kind: 2 * count}, delta, relation, number).epsilon * SLACK
    assert joint >= found / SLACK
