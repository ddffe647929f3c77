"""Asynchronous federated learning with increasing sample sizes, Example 3 of section D.3.2: what is proved of its plan.

The paper claims (1, 5.5e-8)-differential privacy for sigma = 8, N_c = 10,000 and s_i = 16 + ceil(1.3216 i), i < 195,
with batches drawn with replacement. We account for the same rounds with Poisson samples and with batches of fixed size.
"""

from __future__ import annotations

import math

import pytest
from dp_accounting import NeighboringRelation as DpRelation
from dp_accounting.rdp import compute_epsilon
from tests.reference.accounting_slow import dp_accounting_epsilon

from gossamer.privacy.accounting import accountants
from gossamer.privacy.mechanisms import BatchSampling, FixedSize, Gaussian, NeighboringRelation, Poisson, ReleaseKind

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
RECORDS, MULTIPLIER, CLAIMED, DELTA = 10_000, 8.0, 1.0, 5.5e-8
SIZES = [16 + math.ceil(1.3216 * i) for i in range(195)]


def proved(samplings: list[BatchSampling], relation: NeighboringRelation) -> float:
    counts: dict[ReleaseKind, int] = {}
    for sampling in samplings:
        kind = ReleaseKind(Gaussian(0.1, MULTIPLIER), sampling, 1)
        counts[kind] = counts.get(kind, 0) + 1
    return accountants.epsilon(counts, DELTA, relation).epsilon


POISSON: list[BatchSampling] = [Poisson(size / RECORDS) for size in SIZES]
FIXED: list[BatchSampling] = [FixedSize(RECORDS, size) for size in SIZES]


def test_the_schedule_is_the_papers() -> None:
    """K = 25,000 gradients are reached after 183 of the 195 rounds."""
    assert sum(SIZES[:182]) < 25_000 <= sum(SIZES[:183])


@pytest.mark.parametrize(("relation", "about"), [(ADD, 0.126), (REPLACE, 0.253)])
def test_poisson_rounds_prove_far_more_than_the_claim(relation: NeighboringRelation, about: float) -> None:
    """``about``: dp-accounting at 1e-4 for the exact rates (the slow test below computes it)."""
    found = proved(POISSON, relation)
    assert found == pytest.approx(about, rel=1e-2)
    assert found < CLAIMED


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_poisson_rounds_against_dp_accounting(relation: NeighboringRelation) -> None:
    releases = [(MULTIPLIER, size / RECORDS, SIZES.count(size)) for size in sorted(set(SIZES))]
    exact = dp_accounting_epsilon(releases, DELTA, 1e-4, DpRelation[relation.name])
    assert 0.997 * exact <= proved(POISSON, relation) <= 1.003 * exact


def test_rounds_of_fixed_size_lie_between_poisson_and_the_renyi_accountant() -> None:
    """dp-accounting has only a Renyi accountant for these, which is looser than the composed profile."""
    found = proved(FIXED, REPLACE)
    orders = [4.0, 8.0, 16.0, 32.0, 64.0]
    totals = [
        sum(accountants.renyi_divergence(ReleaseKind(Gaussian(0.1, MULTIPLIER), s, 1), order, REPLACE) for s in FIXED)
        for order in orders
    ]
    loose, _ = compute_epsilon(orders, totals, DELTA)
    assert proved(POISSON, REPLACE) < found < loose
    assert found < CLAIMED
