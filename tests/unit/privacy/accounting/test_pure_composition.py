"""Compositions of pure guarantees: the theorems as they are printed, and their order."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.accounting_slow import gaussian_epsilon, response_delta
from tests.sampling import examples

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import COMPOSITIONS, advanced, compositions, optimal, simple
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def printed_delta(epsilon: float, releases: int, i: int) -> float:
    """Kairouz, Oh and Viswanath (2015), theorem 3.3: the delta of ((k - 2 i) epsilon)."""
    k = releases
    terms = [math.comb(k, j) * (math.exp((k - j) * epsilon) - math.exp((k - 2 * i + j) * epsilon)) for j in range(i)]
    return math.fsum(terms) / (1 + math.exp(epsilon)) ** k


@pytest.mark.parametrize(("epsilon", "releases"), [(0.1, 12), (0.5, 9), (1.0, 30), (2.0, 5)])
def test_optimal_is_the_theorem_as_printed(epsilon: float, releases: int) -> None:
    """At its own deltas; i runs from 0 to k/2."""
    for i in range(1, releases // 2 + 1):
        delta = printed_delta(epsilon, releases, i)
        assert optimal(epsilon, releases, delta) == pytest.approx((releases - 2 * i) * epsilon, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-9])
def test_optimal_is_exact_at_every_delta(delta: float) -> None:
    """By the plain sum over the number of lies, up to its rounding: enough, and 1e-6 less is not."""
    for epsilon, releases in [(0.1, 1), (0.1, 30), (1.0, 5), (1.0, 60), (3.0, 4), (0.01, 400)]:
        found = optimal(epsilon, releases, delta)
        assert response_delta(epsilon, releases, found) <= delta + 1e-15
        if found > 0:
            assert response_delta(epsilon, releases, found * (1 - 1e-6)) > delta


@pytest.mark.parametrize(("epsilon", "releases", "delta"), [(1e-4, 10**9, 1e-5), (0.01, 10**6, 1e-12)])
def test_optimal_for_very_many_releases_is_gaussian(epsilon: float, releases: int, delta: float) -> None:
    """Central limit: mean k eps tanh(eps/2), variance k eps^2 / cosh(eps/2)^2, so Gaussian DP with mu = eps sqrt(k)."""
    limit = gaussian_epsilon(epsilon * math.sqrt(releases), 1.0, delta)
    assert optimal(epsilon, releases, delta) == pytest.approx(limit, rel=1e-4)


def test_optimal_where_hardly_anybody_lies() -> None:
    """Two releases at epsilon 50: H(e) = (1 - exp(e - 100)) p^2 above 0, p nearly 1; and an epsilon of 800."""
    assert optimal(50.0, 2, 0.25) == pytest.approx(100 + math.log(0.75), rel=1e-10)
    assert optimal(800.0, 3, 1e-5) == pytest.approx(2400, rel=1e-8)
    assert optimal(40.0, 10**9, 1e-5) <= simple(40.0, 10**9)


def test_advanced_by_hand() -> None:
    """sqrt(2 * 100 ln(e^8)) 0.1 + 100 * 0.1 (e^0.1 - 1) = 40 * 0.1 + 10 * 0.10517."""
    assert advanced(0.1, 100, math.exp(-8)) == pytest.approx(4 + 10 * math.expm1(0.1))
    assert advanced(800.0, 3, 1e-5) == math.inf


SAMPLINGS: list[tuple[BatchSampling, NeighboringRelation]] = [
    (Poisson(1.0), ADD),
    (Poisson(0.1), ADD),
    (Poisson(0.1), REPLACE),
    (FixedSize(50, 5), REPLACE),
]


@pytest.mark.parametrize(("sampling", "relation"), SAMPLINGS)
def test_the_three_start_from_the_amplified_epsilon(sampling: BatchSampling, relation: NeighboringRelation) -> None:
    """The base epsilon is that of a full batch under the same relation; the mechanism is set under add-or-remove."""
    kind = ReleaseKind(L2Laplace(3.0, 0.6, ADD), sampling, 5)
    # Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, theorems 8 and 9.
    single = math.log1p(sampling.rate * math.expm1(0.6 if relation is ADD else 1.2))
    if isinstance(sampling, Poisson) and relation is REPLACE:
        single = math.log1p(0.1 * math.expm1(0.6)) - math.log1p(0.1 * math.expm1(-0.6))
    found = compositions(kind, 40, 1e-5, relation)
    assert tuple(found) == COMPOSITIONS
    assert found["simple"] == pytest.approx(40 * single, rel=1e-12)
    assert found["advanced"] == pytest.approx(advanced(single, 40, 1e-5), rel=1e-12)
    assert found["optimal"] == pytest.approx(optimal(single, 40, 1e-5), rel=1e-12)
    assert found["tight"] == accountants.epsilon({kind: 40}, 1e-5, relation).epsilon


def test_the_paper_s_run_in_the_four_ways() -> None:
    """15,000 releases at d = 7,840 and eps = 0.1: Gaussian DP with mu = sqrt(15000/7840)/10 has 0.485 at 1e-5.

    By the central limit theorem of the same randomized responses, mu = 0.1 sqrt(15000) has an epsilon of 126.
    """
    found = compositions(ReleaseKind(L2Laplace(1.0, 0.1, ADD), Poisson(1.0), 7840), 15_000, 1e-5, ADD)
    assert found["simple"] == pytest.approx(1500)
    limits = [gaussian_epsilon(0.1 * math.sqrt(15_000 / share), 1.0, 1e-5) for share in (1, 7840)]
    assert [found["optimal"], found["tight"]] == pytest.approx(limits, rel=5e-3)
    assert found["optimal"] < found["advanced"] < found["simple"]


@settings(deadline=None, max_examples=examples(25))
@given(
    epsilon=st.floats(0.01, 6.0),
    size=st.integers(1, 50),
    sampling=st.sampled_from(SAMPLINGS),
    count=st.integers(0, 60),
    delta=st.sampled_from([1e-10, 1e-5, 1e-2]),
    law=st.sampled_from([L2Laplace, Laplace]),
)
def test_tight_is_at_most_optimal_and_that_at_most_simple(
    epsilon: float,
    size: int,
    sampling: tuple[BatchSampling, NeighboringRelation],
    count: int,
    delta: float,
    law: type[L2Laplace] | type[Laplace],
) -> None:
    """And advanced is never below optimal."""
    scheme, relation = sampling
    noise = L2Laplace(1.0, epsilon, relation) if law is L2Laplace else Laplace(1.0, math.sqrt(size) / epsilon)
    found = compositions(ReleaseKind(noise, scheme, size), count, delta, relation)
    assert 0 <= found["tight"] <= found["optimal"] <= found["simple"]
    assert found["optimal"] <= found["advanced"] * (1 + 1e-12)
    raw = accountants.epsilon({ReleaseKind(noise, scheme, size): count}, delta, relation).epsilon
    assert raw <= found["optimal"] * 1.01 + 1e-9


def test_mistakes_get_one_line() -> None:
    with pytest.raises(AccountingError, match="only L2Laplace and Laplace noise have an epsilon without a delta"):
        compositions(ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.1), 1), 5, 1e-5, ADD)
    with pytest.raises(AccountingError, match="no accountant here is proved"):
        compositions(ReleaseKind(L2Laplace(1.0, 1.0, ADD), FixedSize(10, 2), 1), 5, 1e-5, ADD)
    with pytest.raises(AccountingError, match="epsilon must be a finite number above 0"):
        simple(0.0, 3)
    with pytest.raises(AccountingError, match="delta must lie strictly between"):
        optimal(1.0, 3, 0.0)
    with pytest.raises(AccountingError, match="delta must lie strictly between"):
        advanced(1.0, 3, 1.0)
    with pytest.raises(AccountingError, match="0 or more, found -1"):
        simple(1.0, -1)
