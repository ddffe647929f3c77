"""Plans as Gaussian differential privacy but for a failure: against every loss, and against a slow reference."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm
from tests.reference.gaussian_fit_slow import right_side, slow_least_mu

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountants import delta, quick_figures, row_of
from gossamer.privacy.accounting.gaussian_dp import PlanCurve, full_mu, is_exact, release_mu, response_mu
from gossamer.privacy.mechanisms import (
    Counts,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    NoNoise,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def gaussian(multiplier: float, rate: float) -> ReleaseKind:
    return ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 3)


@pytest.mark.parametrize(
    ("multiplier", "rate", "releases", "failure"),
    [
        (1.5, 0.3, 20, 1e-4),
        pytest.param(0.9, 0.01, 100, 2.5e-6, marks=pytest.mark.slow),
        pytest.param(2.2, 0.01, 3000, 3e-7, marks=pytest.mark.slow),
        pytest.param(0.7, 0.001, 1000, 2.5e-6, marks=pytest.mark.slow),
    ],
)
def test_mu_is_that_of_a_slow_reference(multiplier: float, rate: float, releases: int, failure: float) -> None:
    found = PlanCurve.of({gaussian(multiplier, rate): releases}, ADD).mu(failure)
    arguments = (multiplier, rate, releases, failure)
    assert found >= slow_least_mu(*arguments, above=False) * (1 - 2e-4)
    assert found <= slow_least_mu(*arguments, above=True) * 1.005


FIXED = ReleaseKind(Gaussian(1.0, 2.0), FixedSize(1000, 50), 3)
PLANS: list[tuple[Counts, NeighboringRelation]] = [
    ({gaussian(1.0, 0.02): 50}, ADD),
    ({gaussian(1.0, 0.02): 50}, REPLACE),
    ({FIXED: 40}, REPLACE),
    ({gaussian(2.0, 0.1): 10, gaussian(4.0, 0.3): 5, gaussian(8.0, 1.0): 3}, ADD),
    ({gaussian(0.4, 0.5): 30}, ADD),
    ({ReleaseKind(L2Laplace(1.0, 0.4, ADD), Poisson(0.2), 8): 20}, ADD),
    ({ReleaseKind(Laplace(1.0, 4.0), Poisson(0.5), 2): 6, gaussian(2.0, 0.1): 4}, ADD),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("plan", "relation"), PLANS)
@pytest.mark.parametrize("failure", [1e-8, 2.5e-6, 1e-3])
def test_it_covers_every_loss_and_hardly_less_mu_does(
    plan: Counts, relation: NeighboringRelation, failure: float
) -> None:
    """By the accountant's divergences at losses that the search has not chosen, up to where they are below f."""
    mu = PlanCurve.of(plan, relation).mu(failure)
    losses = np.linspace(0.0, 1.0, 20) ** 2 * 12 * max(mu, 0.3)
    found = np.array([delta(plan, float(loss), relation) for loss in losses])
    assert (found <= right_side(mu, failure, losses) * (1 + 1e-8)).all()
    if mu < full_mu(plan, relation):
        dense = np.linspace(0.0, losses[np.argmax(found <= failure)] if (found <= failure).any() else losses[-1], 25)
        covered = right_side(mu * 0.985, failure, dense)
        # From above, where less mu mostly fails: one loss that is not covered is enough.
        assert any(delta(plan, loss, relation) > there for loss, there in zip(dense[::-1].tolist(), covered[::-1]))


@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_a_few_losses_are_enough_where_the_divergence_is_a_few_lines(
    relation: NeighboringRelation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all losses on one line the few around the point where a normal curve touches it decide."""
    looked = Counter[float]()

    def counted(self: accountants.LossFigures, loss: float, own: Any = accountants.LossFigures.delta) -> Any:
        looked[loss] += 1
        assert len(looked) <= 60, "more losses are looked at each round"
        return own(self, loss)

    monkeypatch.setattr(accountants.LossFigures, "delta", counted)
    plan = {ReleaseKind(Laplace(1.0, 3.0), Poisson(1.0), 1): 2}
    mu, alone = PlanCurve.of(plan, relation).mu(1e-3), full_mu(plan, relation)
    assert 0.85 * alone < mu < 0.9 * alone


@pytest.mark.parametrize("failure", [3e-6, 1e-14])
@pytest.mark.parametrize(
    ("kind", "relation"),
    [(gaussian(0.02, 0.5), ADD), (ReleaseKind(Gaussian(1.0, 0.03), FixedSize(10, 9), 3), REPLACE)],
)
def test_it_covers_losses_whose_exponentials_are_no_numbers(
    kind: ReleaseKind, relation: NeighboringRelation, failure: float
) -> None:
    """Up to 2,700: by the closed form of a single release."""
    pair, mu = row_of(kind, relation).profile(kind), PlanCurve.of({kind: 1}, relation).mu(failure)
    losses = np.linspace(0.0, max(pair.largest(failure / 10)), 20_000)
    with np.errstate(over="ignore"):
        found = np.maximum(pair.forward(losses), pair.backward(losses))
    assert (found <= right_side(mu, failure, losses) * (1 + 1e-8)).all()


def test_gaussian_noise_on_all_data_is_exact() -> None:
    plan = {gaussian(2.0, 1.0): 4, gaussian(3.0, 1.0): 9, gaussian(1.0, 0.1): 0}
    assert is_exact(plan)
    assert PlanCurve.of(plan, ADD).mu(1e-6) == pytest.approx(math.sqrt(4 / 4 + 9 / 9), rel=1e-12)
    assert PlanCurve.of(plan, REPLACE).mu(1e-6) == pytest.approx(2 * math.sqrt(2), rel=1e-12)
    assert not is_exact({gaussian(2.0, 0.5): 1})


def test_mu_falls_as_failures_grow_and_is_never_more_than_without_samples() -> None:
    plan = {gaussian(0.7, 0.01): 100}
    curve = PlanCurve.of(plan, ADD)
    mus = [curve.mu(failure) for failure in (1e-12, 1e-9, 1e-6, 1e-4, 0.01)]
    assert mus == sorted(mus, reverse=True)
    assert mus[0] <= curve.full == pytest.approx(10 / 0.7)
    assert curve.mu(0.9) == 0.0


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 5.0, 40.0, 1e3])
def test_randomized_response_is_covered_at_its_corner(epsilon: float) -> None:
    """Where both errors are 1/(1 + exp(epsilon)), and everywhere else, since its trade-off is linear from there."""
    log_corner = -np.logaddexp(0, epsilon)
    mu = response_mu(epsilon)
    assert norm.logcdf(-mu / 2) <= log_corner
    if epsilon < 100:
        assert norm.logcdf(-mu / 2 * (1 - 1e-5)) > log_corner
    losses = np.linspace(0.0, 1.0, 50) * min(epsilon, 30.0)
    response = -np.expm1(losses - epsilon) / (1 + math.exp(-epsilon))
    assert (right_side(mu, 0.0, losses) >= response * (1 - 1e-9)).all()


def test_single_releases() -> None:
    assert release_mu(gaussian(4.0, 0.01), ADD) == 0.25
    assert release_mu(gaussian(4.0, 0.01), REPLACE) == 0.5
    assert release_mu(ReleaseKind(Laplace(1.0, 1.0), Poisson(1.0), 1), ADD) == pytest.approx(response_mu(1.0))
    assert release_mu(ReleaseKind(NoNoise(), Poisson(0.5), 1), ADD) == math.inf
    assert PlanCurve.of({ReleaseKind(NoNoise(), Poisson(0.5), 1): 1}, ADD).mu(1e-6) == math.inf
    with pytest.raises(AccountingError, match="no accountant here is proved"):
        release_mu(FIXED, ADD)


@pytest.mark.parametrize("failure", [0.0, 1.0, math.nan, -1e-6])
def test_impossible_failures_are_refused(failure: float) -> None:
    with pytest.raises(AccountingError, match="delta"):
        PlanCurve.of({gaussian(1.0, 0.1): 1}, ADD).mu(failure)


@pytest.mark.parametrize("count", [-1, 1.5, math.nan, math.inf, True])
def test_impossible_counts_are_refused(count: float) -> None:
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        PlanCurve.of({gaussian(1.0, 0.1): count}, ADD).mu(1e-6)  # type: ignore[dict-item]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("multiplier", "rates"),
    [(1.2, [0.01] * 3000), (0.7, [0.001] * 3000), (0.3, [0.01] * 20), (4.0, np.geomspace(1e-3, 0.1, 200).tolist())],
    ids=["many", "small", "little noise", "many rates"],
)
def test_quick_figures_are_upper_bounds_and_close(multiplier: float, rates: list[float]) -> None:
    """Next to the accountant's, which have tests of their own and are some hundredths of a percent too large."""
    counts: Counter[ReleaseKind] = Counter(ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 1) for rate in rates)
    quick = quick_figures(counts, ADD)
    for target in (1e-7, 1e-5, 1e-3):
        fine = accountants.epsilon(counts, target, ADD).epsilon
        assert (1 - 1e-4) * fine <= quick.epsilon(target) <= 1.005 * fine
        assert quick.delta(1.005 * fine) <= delta(counts, fine, ADD) <= 1.001 * quick.delta(fine)
