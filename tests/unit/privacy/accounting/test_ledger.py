"""The ledger: counts up, and refuses what its policy does not cover."""

from __future__ import annotations

import pytest
from tests.reference.ledgers import Ledger, Unlimited, Within

from gossamer.errors import BudgetSpent, SpecError
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.filters import ReleasePlan, RenyiFilter
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, NoNoise, Poisson, ReleaseKind

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
KIND = ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 10)
OTHER = ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.2), 10)


def test_a_plan_covers_so_many_of_each_kind_and_no_more() -> None:
    ledger = Ledger("a", ReleasePlan({KIND: 2, OTHER: 1}))
    for kind in (KIND, OTHER, KIND):
        ledger.charge(kind)
    for kind in (KIND, OTHER):
        with pytest.raises(BudgetSpent, match="all are spent"):
            ledger.charge(kind)
    assert ledger.counts == {KIND: 2, OTHER: 1}
    assert ledger.releases == 3


def test_what_is_not_planned_is_refused_and_not_charged() -> None:
    ledger = Ledger("a", ReleasePlan({KIND: 2}))
    with pytest.raises(BudgetSpent, match="not in the plan") as caught:
        ledger.charge(OTHER)
    assert "a: release refused" in str(caught.value)
    assert caught.value.exit_code == 3
    assert ledger.counts == {}


def test_unlimited_counts_what_it_lets_pass() -> None:
    ledger = Ledger("a", Unlimited())
    ledger.charge(ReleaseKind(NoNoise(), Poisson(0.1), 3))
    assert ledger.lines() == [
        {"node": "a", "releases": 1, "mechanism": "NoNoise", "sampling": "Poisson", "probability": 0.1, "size": 3}
    ]


@pytest.mark.parametrize("order", [2.0, 8.0, 16.0])
def test_what_a_filter_admits_stays_within_its_budget(order: float) -> None:
    """All that passed, composed by the tight accountant (as if it had been planned), is below the filter's epsilon,
    and the filter is not far from it: a Renyi bound at one order loses something, not everything."""
    ledger = Ledger("a", Within(RenyiFilter(epsilon=2.0, delta=1e-5, relation=ADD, order=order)))
    refused = set()
    while refused != {KIND, OTHER}:
        for kind in (KIND, OTHER):  # an adaptive choice: whatever still passes
            try:
                ledger.charge(kind)
            except BudgetSpent:
                refused.add(kind)
    spent = epsilon(ledger.counts, 1e-5, ADD).epsilon
    assert spent <= 2.0
    if order == 8.0:
        assert spent > 1.0


def test_a_filter_refuses_what_has_no_divergence_bound() -> None:
    ledger = Ledger("a", Within(RenyiFilter(2.0, 1e-5, ADD)))
    with pytest.raises(BudgetSpent):
        ledger.charge(ReleaseKind(NoNoise(), Poisson(0.1), 3))


@pytest.mark.parametrize("order", [1.0, 0.5, float("nan")])
def test_a_filters_order_is_above_one(order: float) -> None:
    with pytest.raises(SpecError, match="order above 1"):
        RenyiFilter(1.0, 1e-5, ADD, order)
