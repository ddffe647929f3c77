"""The table of rows and the entry points: what is accounted for, with which multiplier, and what is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from tests.reference.accounting_slow import dp_accounting_epsilon, gaussian_epsilon

from gossamer.errors import AccountingError, CallerError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import ROWS, AccountantRow, Accounted
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
DELTA = 1e-5
FULL: dict[type[BatchSampling], BatchSampling] = {Poisson: Poisson(1.0), FixedSize: FixedSize(40, 40)}
NEARLY_FULL: dict[type[BatchSampling], BatchSampling] = {
    Poisson: Poisson(1 - 1e-9),
    FixedSize: FixedSize(10**9, 10**9 - 1),
}
SAMPLED: dict[type[BatchSampling], BatchSampling] = {Poisson: Poisson(0.1), FixedSize: FixedSize(1000, 100)}


def row_name(row: AccountantRow) -> str:
    return f"{row.mechanism.__name__}-{row.sampling.__name__}-{row.relation}"


def gaussian(noise_multiplier: float, sampling: BatchSampling, clip: float = 0.5) -> ReleaseKind:
    return ReleaseKind(Gaussian(clip, noise_multiplier), sampling, 7)


def law_of(row: AccountantRow, noise_multiplier: float, clip: float = 0.5) -> Gaussian:
    assert issubclass(row.mechanism, Gaussian)
    return row.mechanism(clip, noise_multiplier)


def mechanism_of(row: AccountantRow, epsilon: float, size: int = 1) -> Mechanism:
    """Noise that is epsilon-differentially private on a full batch, under the row's relation, for ``size`` numbers."""
    sensitivity = 2.0 if row.relation is ADD else 4.0
    return {
        L2Laplace: L2Laplace(2.0, epsilon, row.relation),
        Laplace: Laplace(2.0, math.sqrt(size) * sensitivity / epsilon),
    }[row.mechanism]


gaussian_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if issubclass(row.mechanism, Gaussian)], ids=row_name
)
pure_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if not issubclass(row.mechanism, Gaussian)], ids=row_name
)


@gaussian_rows
@pytest.mark.parametrize("samplings", [FULL, NEARLY_FULL], ids=["full", "nearly full"])
@pytest.mark.parametrize(("noise_multiplier", "steps"), [(1.0, 1), (4.0, 1), (8.0, 50), (3.0, 50)])
def test_a_full_batch_is_the_analytic_gaussian_mechanism(
    row: AccountantRow, samplings: Mapping[type[BatchSampling], BatchSampling], noise_multiplier: float, steps: int
) -> None:
    """Sensitivity C under add-or-remove and in a ball, else 2C; T releases have sqrt(T) times the sensitivity."""
    sensitivity = 1.0 if row.relation is ADD or row.mechanism is BallGaussian else 2.0
    exact = gaussian_epsilon(sensitivity * math.sqrt(steps), noise_multiplier, DELTA)
    kind = ReleaseKind(law_of(row, noise_multiplier), samplings[row.sampling], 7)
    found = accountants.epsilon({kind: steps}, DELTA, row.relation)
    assert exact <= found.epsilon <= exact * 1.001
    assert found.accountant == row.accountant


@pure_rows
@pytest.mark.parametrize("single", [0.1, 1.0, 4.0])
def test_a_full_batch_of_pure_noise_has_its_own_epsilon(row: AccountantRow, single: float) -> None:
    """Of one number, at a small delta, where its loss is nearly certain; never more than the sum of all releases."""
    kind = ReleaseKind(mechanism_of(row, single), FULL[row.sampling], 1)
    one = accountants.epsilon({kind: 1}, 1e-12, row.relation)
    assert one.epsilon == pytest.approx(single, rel=1e-9)
    assert one.accountant == row.accountant
    assert accountants.epsilon({kind: 3}, 1e-12, row.relation).epsilon == pytest.approx(3 * single, rel=1e-6)
    assert accountants.epsilon({kind: 3}, 1e-12, row.relation).epsilon <= 3 * single * (1 + 1e-12)


@pure_rows
def test_sampling_amplifies_pure_noise_by_the_known_factor(row: AccountantRow) -> None:
    """Balle, Barthe and Gaboardi (2018), theorems 8 and 9: log(1 + q (exp(epsilon) - 1)).

    Under replace-one a Poisson sample has log(1-q+q exp(a)) - log(1-q+q exp(-a)) instead, a = epsilon/2, as the sample
    without the example is within a of both others.
    """
    rate, single = 0.1, 2.0
    kind = ReleaseKind(mechanism_of(row, single), SAMPLED[row.sampling], 1)
    expected = math.log1p(rate * math.expm1(single))
    if (row.sampling, row.relation) == (Poisson, REPLACE):
        expected = math.log1p(rate * math.expm1(single / 2)) - math.log1p(rate * math.expm1(-single / 2))
    assert accountants.epsilon({kind: 1}, 1e-12, row.relation).epsilon == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("row", ROWS, ids=row_name)
def test_sampling_never_costs_privacy_and_more_of_it_never_saves_any(row: AccountantRow) -> None:
    mechanism = law_of(row, 2.0) if issubclass(row.mechanism, Gaussian) else mechanism_of(row, 1.0, 9)
    by_rate = [
        accountants.epsilon({ReleaseKind(mechanism, sampling, 9): 20}, DELTA, row.relation).epsilon
        for sampling in (SAMPLED[row.sampling], NEARLY_FULL[row.sampling], FULL[row.sampling])
    ]
    assert by_rate[0] < 0.5 * by_rate[1]
    assert by_rate[1] == pytest.approx(by_rate[2], rel=1e-3)


def test_dp_accounting_reads_a_multiplier_in_two_ways_under_replace_one() -> None:
    """Why the table has a column for it: its PLD doubles the sensitivity, its Renyi accountant does not."""
    event = dp_accounting.GaussianDpEvent(4.0)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    pld = PLDAccountant(relation).compose(event).get_epsilon(DELTA)
    assert pld == pytest.approx(gaussian_epsilon(2.0, 4.0, DELTA), rel=1e-3)
    renyi = RdpAccountant([8.0], relation).compose(event).rdp[0]
    assert renyi == pytest.approx(8.0 * 1.0**2 / (2 * 4.0**2))
    ours = accountants.renyi_divergence(gaussian(4.0, FULL[FixedSize]), 8.0, REPLACE)
    assert ours == pytest.approx(8.0 * 2.0**2 / (2 * 4.0**2))


def test_poisson_under_replace_one_agrees_with_dp_accounting() -> None:
    replace = dp_accounting.NeighboringRelation.REPLACE_ONE
    exact = dp_accounting_epsilon([(1.0, 0.02, 200)], DELTA, 1e-4, replace)
    found = accountants.epsilon({gaussian(1.0, Poisson(0.02)): 200}, DELTA, REPLACE).epsilon
    assert exact * 0.999 <= found <= exact * 1.001


@pytest.mark.parametrize(
    ("mechanism", "sampling", "relation", "advice"),
    [
        (Gaussian(1.0, 1.0), FixedSize(100, 10), ADD, "use Poisson with add_or_remove_one or Poisson with replace_one"),
        (Gaussian(1.0, 1.0), FixedSize(100, 100), ADD, "FixedSize with replace_one"),
        (L2Laplace(1.0, 1.0, ADD), FixedSize(100, 10), ADD, "FixedSize with replace_one"),
        (Laplace(1.0, 1.0), FixedSize(100, 10), ADD, "FixedSize with replace_one"),
    ],
)
def test_other_combinations_are_refused_with_what_to_do(
    mechanism: Mechanism, sampling: BatchSampling, relation: NeighboringRelation, advice: str
) -> None:
    counts = {ReleaseKind(mechanism, sampling, 3): 1, gaussian(1.0, Poisson(0.1)): 1}
    for ask in (
        lambda: accountants.epsilon(counts, DELTA, relation),
        lambda: accountants.delta(counts, 1.0, relation),
        lambda: accountants.renyi_divergence(ReleaseKind(mechanism, sampling, 3), 8.0, relation),
    ):
        with pytest.raises(AccountingError, match=advice):
            ask()


def test_an_unknown_mechanism_or_sampler_is_refused() -> None:
    """A subclass is another law: it is not taken for its parent."""

    @dataclasses.dataclass(frozen=True)
    class Shuffled(Poisson):
        pass

    @dataclasses.dataclass(frozen=True)
    class Student(Gaussian):
        pass

    with pytest.raises(AccountingError, match="Gaussian on Shuffled batches under add_or_remove_one; use Poisson with"):
        accountants.epsilon({gaussian(1.0, Shuffled(0.1)): 1}, DELTA, ADD)
    with pytest.raises(AccountingError, match=r"Student on Poisson .* use BallGaussian, Gaussian, L2Laplace, Laplace"):
        accountants.epsilon({ReleaseKind(Student(1.0, 1.0), Poisson(0.1), 1): 1}, DELTA, ADD)


def test_no_noise_has_no_epsilon() -> None:
    bare = ReleaseKind(NoNoise(1.0), FixedSize(10, 2), 3)
    counts = {bare: 1, gaussian(1.0, Poisson(0.1)): 5}
    assert accountants.epsilon(counts, DELTA, ADD) == Accounted(math.inf, "none")
    assert accountants.delta(counts, 3.0, ADD) == 1.0
    assert accountants.renyi_divergence(bare, 8.0, ADD) == math.inf
    assert accountants.epsilon({**counts, bare: 0}, DELTA, ADD).epsilon < math.inf


@pytest.mark.parametrize("counts", [{}, {gaussian(1.0, Poisson(0.5)): 0}])
def test_nothing_released_costs_nothing(counts: dict[ReleaseKind, int]) -> None:
    assert accountants.epsilon(counts, DELTA, ADD) == Accounted(0.0, "nothing released")
    assert accountants.delta(counts, 0.0, ADD) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, math.nan, 2.0])
def test_a_delta_outside_its_range_is_the_callers_mistake(delta: float) -> None:
    with pytest.raises(CallerError, match="delta must lie strictly between 0 and 1"):
        accountants.epsilon({}, delta, ADD)


@pytest.mark.parametrize("epsilon", [-0.1, math.inf, math.nan])
def test_an_epsilon_out_of_range_is_the_callers_mistake(epsilon: float) -> None:
    with pytest.raises(CallerError, match="epsilon must be a finite number, 0 or more"):
        accountants.delta({}, epsilon, ADD)


@pytest.mark.parametrize("count", [-1, 1.5, "3"])
def test_a_count_is_a_whole_number(count: Any) -> None:
    with pytest.raises(CallerError, match="a whole number, 0 or more"):
        accountants.epsilon({gaussian(1.0, Poisson(0.1)): count}, DELTA, ADD)


def test_counts_may_be_numpy_integers_and_relations_plain_strings() -> None:
    kind = gaussian(2.0, Poisson(0.1))
    plain = accountants.epsilon({kind: 7}, DELTA, ADD)
    assert accountants.epsilon({kind: np.int64(7)}, DELTA, "add_or_remove_one") == plain  # type: ignore[dict-item,arg-type]


def test_clip_and_size_do_not_change_what_gaussian_noise_costs() -> None:
    """Noise is relative to the clip; a release of 7 coordinates is one release."""
    wide = ReleaseKind(Gaussian(10.0, 2.0), Poisson(0.1), 10**6)
    kind = gaussian(2.0, Poisson(0.1))
    assert accountants.epsilon({wide: 9}, DELTA, ADD) == accountants.epsilon({kind: 9}, DELTA, ADD)
    assert accountants.epsilon({wide: 4, kind: 5}, DELTA, ADD) == accountants.epsilon({kind: 9}, DELTA, ADD)


def test_the_size_does_change_what_laplace_noise_costs() -> None:
    """Its L1 sensitivity is sqrt(size) C."""
    small, large = (ReleaseKind(Laplace(1.0, 10.0), Poisson(1.0), size) for size in (1, 100))
    costs = [accountants.epsilon({kind: 1}, 1e-12, ADD).epsilon for kind in (small, large)]
    assert costs == pytest.approx([0.1, 1.0], rel=1e-9)


def test_full_batches_of_different_noise_add_up_in_squares() -> None:
    counts = {gaussian(3.0, Poisson(1.0)): 2, gaussian(5.0, Poisson(1.0)): 10}
    exact = gaussian_epsilon(math.sqrt(2 / 9 + 10 / 25), 1.0, DELTA)
    assert exact <= accountants.epsilon(counts, DELTA, ADD).epsilon <= exact * 1.001


def test_both_samplers_share_one_composition_under_replace_one() -> None:
    """Either alone costs less, and both cost no more than their sum at half the delta each."""
    poisson, fixed = {gaussian(2.0, Poisson(0.1)): 20}, {gaussian(2.0, FixedSize(200, 20)): 20}
    alone = [accountants.epsilon(counts, DELTA / 2, REPLACE).epsilon for counts in (poisson, fixed)]
    mixed = accountants.epsilon({**poisson, **fixed}, DELTA, REPLACE)
    assert max(alone) < mixed.epsilon < sum(alone)
    assert mixed.accountant == "PLD + PLD of the Zhu-Dong-Wang profile"


def test_delta_is_the_inverse_of_epsilon() -> None:
    counts = {gaussian(1.0, Poisson(0.05)): 100, gaussian(4.0, Poisson(0.5)): 3}
    for delta in (1e-9, 1e-5, 1e-2):
        epsilon = accountants.epsilon(counts, delta, ADD).epsilon
        assert accountants.delta(counts, epsilon, ADD) == pytest.approx(delta, rel=1e-6)


def test_beyond_the_sum_of_pure_epsilons_delta_is_zero() -> None:
    kind = ReleaseKind(L2Laplace(1.0, 0.5, ADD), Poisson(1.0), 3)
    assert accountants.delta({kind: 2}, 1.0, ADD) < 1e-14  # a sum of epsilons may be rounded
    assert accountants.delta({kind: 2}, 1.0 + 1e-14, ADD) == 0.0
    assert accountants.delta({kind: 2}, 0.99, ADD) > 0
