"""Filters over runs: what they admit, and an adversary who chooses runs by what was seen."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.accounting.accountants import epsilon, renyi_divergence
from gossamer.privacy.accounting.filters import (
    EitherFilter,
    FilterEntry,
    FilterTotal,
    GaussianFilter,
    RenyiFilter,
    RunSeries,
    SeriesPlan,
    widest_order_of,
)
from gossamer.privacy.accounting.gaussian_dp import PlanCurve, gaussian_delta, gaussian_mu
from gossamer.privacy.accounting.renyi import renyi_level, widest_order
from gossamer.privacy.mechanisms import FixedSize, Gaussian, NeighboringRelation, NoNoise, Poisson, ReleaseKind

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


# An adversary


def advantage(epsilon: float, step: float, failure: float, admits: Callable[[int, int], bool]) -> float:
    """The largest ``P(S) - exp(epsilon) Q(S)`` of whoever chooses each run by the likelihood so far.

    A run is N(0, 1) or N(mu, 1) with mu^2 = ``step``, or it tells which data set it is with probability ``failure``.
    So many of the former and so many of the latter are admitted as ``admits`` says. Dynamic programming over the
    log-likelihood ratio on a grid: of it, steps of the trapezoidal rule are exact but for the payoff's one corner.
    """
    grid = np.linspace(-14.0, 14.0, 2801)
    width = grid[1] - grid[0]
    # Under P the ratio moves by N(step/2, step).
    moves = norm.pdf(grid[None, :] - grid[:, None] - step / 2, scale=math.sqrt(step)) * width
    over = np.maximum(-np.expm1(epsilon - grid), 0.0)

    @cache
    def value(gaussians: int, failures: int) -> tuple[float, ...]:
        best = over.copy()
        if admits(gaussians + 1, failures):
            best = np.maximum(best, moves @ np.array(value(gaussians + 1, failures)))
        if admits(gaussians, failures + 1):
            best = np.maximum(best, failure + (1 - failure) * np.array(value(gaussians, failures + 1)))
        return tuple(best)

    return float(np.interp(0.0, grid, value(0, 0)))


EPSILON, DELTA, STEPS = 1.0, 1e-3, 4


@pytest.mark.some(1)
@pytest.mark.parametrize("tells", [1, 3])
def test_nobody_who_chooses_by_what_was_seen_exceeds_delta(tells: int) -> None:
    """And the filter is not far from what it allows."""
    found = GaussianFilter(EPSILON, DELTA, ADD)
    step, failure = found.level / STEPS * (1 - 1e-12), found.failures / tells * (1 - 1e-12)
    reached = advantage(EPSILON, step, failure, lambda n, m: found.covers(FilterTotal(n * step, m * failure)))
    assert 0.99 * DELTA < reached <= DELTA * (1 + 1e-3)


def test_a_split_that_is_chosen_on_the_way_exceeds_delta() -> None:
    """The rule sum mu^2 <= mu(epsilon, delta - sum f)^2: failures where the likelihood has no way up, mu elsewhere."""
    step = gaussian_mu(EPSILON, DELTA) ** 2 / STEPS * (1 - 1e-12)
    failure = (DELTA - gaussian_delta(math.sqrt(2 * step), EPSILON)) * (1 - 1e-12)  # fits after two steps

    def admits(gaussians: int, failures: int) -> bool:
        rest = DELTA - failures * failure
        return rest > 0 and gaussians * step <= gaussian_mu(EPSILON, rest) ** 2

    assert admits(STEPS, 0)
    assert admits(2, 1)
    assert advantage(EPSILON, step, failure, admits) > 1.5 * DELTA


# What is admitted

ONE = ReleaseKind(Gaussian(1.0, 0.9), Poisson(0.01), 3)
FULL = ReleaseKind(Gaussian(1.0, 8.0), Poisson(1.0), 3)


def test_levels_are_those_of_a_part_of_delta_each() -> None:
    found = GaussianFilter(2.0, 1e-5, ADD)
    assert found.failures == pytest.approx(0.6e-5)
    assert math.sqrt(found.level) == pytest.approx(gaussian_mu(2.0, 0.4e-5), rel=1e-7)
    assert gaussian_delta(math.sqrt(found.level), 2.0) + found.failures < 1e-5
    either = EitherFilter(2.0, 1e-5, ADD, 8.0)
    assert either.renyi == RenyiFilter(2.0, 0.5e-5, ADD, 8.0)
    assert either.gaussian == GaussianFilter(2.0, 0.5e-5, ADD)


def test_either_covers_what_one_of_them_does() -> None:
    found = EitherFilter(2.0, 1e-5, ADD, 8.0)
    level, most = renyi_level(8.0, 2.0, 0.5e-5), found.gaussian.level
    assert found.covers(level, FilterTotal(math.inf, 0.0))
    assert found.covers(math.inf, FilterTotal(most, found.gaussian.failures))
    assert not found.covers(level * 1.001, FilterTotal(most * 1.001, 0.0))
    assert not found.covers(math.inf, FilterTotal(0.0, found.gaussian.failures * 1.001))
    assert found.needed(level, FilterTotal(math.inf)) == pytest.approx(2.0)
    assert found.needed(math.inf, FilterTotal(most, 0.0)) == pytest.approx(2.0)
    assert found.needed(math.inf, FilterTotal(0.0, 1.0)) == math.inf
    assert found.shares(level / 2, FilterTotal(most / 4, 0.0)) == pytest.approx((0.5, 0.25))


def test_a_plan_enters_so_that_most_of_its_kind_fit() -> None:
    """By trying: with no other failure do more such plans fit, in turn."""
    found = GaussianFilter(4.0, 0.5e-5, ADD)
    plan = {ONE: 100}
    total, entries = FilterTotal(), []
    while found.covers(then := total.plus(entry := found.entry(plan, total))):
        total, entries = then, [*entries, entry]
    for entry in entries:
        assert entry.mu == pytest.approx(PlanCurve.of(plan, ADD).mu(entry.failure), rel=2.5e-3)
    for step in range(11):
        failure = found.failures / 2**step
        mu = PlanCurve.of(plan, ADD).mu(failure)
        assert min(2**step, int(found.level / mu**2)) <= len(entries)


def test_a_plan_that_takes_all_gets_all() -> None:
    small = GaussianFilter(1.12, 0.5e-5, ADD)
    alone = small.entry({ONE: 100}, FilterTotal())
    assert alone.failure == pytest.approx(small.failures, rel=1e-9)
    assert small.covers(FilterTotal().plus(alone))
    rest = small.entry({ONE: 100}, FilterTotal(0.0, 0.7 * small.failures))
    assert rest.failure == pytest.approx(0.3 * small.failures, rel=1e-9)
    nothing = small.entry({ONE: 100}, FilterTotal(0.0, small.failures))
    assert nothing == FilterEntry(pytest.approx(10 / 0.9), 0.0)


def test_exact_plans_need_no_failure() -> None:
    found = GaussianFilter(1.0, 1e-5, ADD)
    assert found.entry({FULL: 4}, FilterTotal()) == FilterEntry(0.25, 0.0)
    assert found.entry({}, FilterTotal()) == found.entry({ONE: 0}, FilterTotal()) == FilterEntry(0.0, 0.0)
    assert found.entry({ReleaseKind(NoNoise(), Poisson(1.0), 3): 1}, FilterTotal()) == FilterEntry(math.inf, 0.0)
    with pytest.raises(AccountingError, match="no accountant here is proved"):
        found.entry({ReleaseKind(Gaussian(1.0, 1.0), FixedSize(10, 2), 3): 1}, FilterTotal())


def test_what_was_planned_in_advance_is_never_more_than_a_filter_needs() -> None:
    for plan, relation in (({ONE: 100}, ADD), ({FULL: 3, ONE: 10}, REPLACE)):
        found = EitherFilter(1.0, 1e-5, relation, 8.0)
        entry = found.gaussian.entry(plan, FilterTotal())
        sums = found.renyi.spent(plan), FilterTotal().plus(entry)
        tight = epsilon(plan, 1e-5, relation).epsilon
        assert tight <= found.reading(*sums) <= found.needed(*sums)


# Impossible numbers

NONE = [0.0, -1.0, math.nan, True, -math.inf]


@pytest.mark.parametrize("value", NONE)
@pytest.mark.parametrize("make", [RenyiFilter, GaussianFilter, EitherFilter])
def test_what_is_no_budget_is_refused(make: Callable[..., object], value: float) -> None:
    order = () if make is GaussianFilter else (8.0,)
    with pytest.raises(SpecError, match="needs an epsilon above 0"):
        make(value, 1e-5, ADD, *order)
    for delta in (*NONE, 1.0, math.inf):
        with pytest.raises(SpecError, match="needs a delta strictly between 0 and 1"):
            make(1.0, delta, ADD, *order)
    with pytest.raises(ValueError, match="NeighboringRelation"):
        make(1.0, 1e-5, "nobody", *order)


@pytest.mark.parametrize("order", [1.0, 1.01, -2.0, math.nan, math.inf, True])
@pytest.mark.parametrize("make", [RenyiFilter, EitherFilter])
def test_what_is_no_order_is_refused(make: Callable[..., object], order: float) -> None:
    with pytest.raises(SpecError, match=r"order above 1\.01"):
        make(1.0, 1e-5, ADD, order)


@pytest.mark.parametrize("count", [-1, 0.5, math.nan, math.inf, True])
def test_a_filter_counts_whole_releases(count: float) -> None:
    with pytest.raises(AccountingError, match="a count of releases is a whole number"):
        RenyiFilter(1.0, 1e-5, ADD, 8.0).spent({ONE: 10, FULL: count})  # type: ignore[dict-item]


# Series


def monthly(epsilon: float, delta: float, *plans: SeriesPlan) -> RunSeries:
    return RunSeries(name="monthly", epsilon=epsilon, delta=delta, plans=plans)


def changed(plan: SeriesPlan, **change: Any) -> SeriesPlan:
    return SeriesPlan(**plan.model_dump() | change)


PLAN = SeriesPlan(runs=12, releases=3000, sampling_rate=0.01, noise_multiplier=4.0)


def test_a_series_needs_what_its_runs_have_together() -> None:
    kind = ReleaseKind(Gaussian(1.0, 4.0), Poisson(0.01), 1)
    tight = epsilon({kind: 36_000}, 0.5e-5, ADD).epsilon
    assert tight <= monthly(2.0, 0.5e-5, PLAN).needed(ADD) <= tight * (1 + 1e-6)
    monthly(tight * 1.001, 0.5e-5, PLAN).check(ADD)
    with pytest.raises(
        SpecError, match=r"series 'monthly': its 12 runs come to epsilon \S+ at delta 5e-06, and 1.9 is"
    ):
        monthly(1.9, 0.5e-5, PLAN).check(ADD)
    with pytest.raises(SpecError, match="come to epsilon"):
        monthly(tight * 1.001, 0.5e-5, PLAN).check(REPLACE)
    fixed = changed(PLAN, sampling="fixed_size")
    assert fixed.kind.sampling.rate == pytest.approx(0.01, abs=1e-8)
    assert fixed.kind.sampling.rate >= 0.01
    with pytest.raises(AccountingError, match="no accountant here is proved"):
        monthly(9.0, 0.5e-5, fixed).check(ADD)
    monthly(9.0, 0.5e-5, fixed).check(REPLACE)


def test_a_run_fits_if_it_reveals_no_more() -> None:
    def kind(multiplier: float, rate: float) -> ReleaseKind:
        return ReleaseKind(Gaussian(1.0, multiplier), Poisson(rate), 77)

    assert PLAN.fits({kind(4.0, 0.01): 3000})
    assert PLAN.fits({kind(4.5, 0.01): 1000, kind(4.0, 0.001): 2000})
    for other in ({kind(4.0, 0.01): 3001}, {kind(3.999, 0.01): 1}, {kind(4.0, 0.0101): 1}):
        assert not PLAN.fits(other)
    assert not PLAN.fits({kind(4.0, 0.01): 1, kind(1.0, 0.001): 1})
    assert not PLAN.fits({ReleaseKind(Gaussian(1.0, 4.0), FixedSize(1000, 10), 1): 1})
    assert not PLAN.fits({ReleaseKind(NoNoise(), Poisson(0.001), 1): 1})


def test_the_rest_is_what_is_not_set_aside() -> None:
    series = monthly(2.5, 0.4e-5, PLAN)
    found = EitherFilter(4.0, 1e-5, ADD, 14.0, (series,))
    assert found.renyi == RenyiFilter(1.5, found.renyi.delta, ADD, 14.0)
    assert found.gaussian == GaussianFilter(1.5, found.renyi.delta, ADD)
    assert found.renyi.delta == pytest.approx(0.3e-5)
    assert found.needed(found.renyi.level, FilterTotal(math.inf)) == pytest.approx(4.0)
    assert widest_order_of(4.0, 1e-5, [series]) == widest_order(1.5, 0.3e-5)
    everything = EitherFilter(2.5, 1e-5, ADD, 14.0, (series,))
    assert everything.covers(0.0, FilterTotal())
    assert not everything.covers(1e-9, FilterTotal(1e-6, 0.0))
    for epsilon_, delta in ((2.4, 1e-5), (4.0, 0.4e-5)):
        with pytest.raises(SpecError, match="set aside"):
            EitherFilter(epsilon_, delta, ADD, 14.0, (series,))
    with pytest.raises(SpecError, match="two series have one name"):
        EitherFilter(9.0, 1e-5, ADD, 14.0, (series, series))
    with pytest.raises(SpecError, match="its 12 runs come to epsilon"):
        EitherFilter(9.0, 1e-5, ADD, 14.0, (monthly(1.0, 0.4e-5, PLAN),))


@pytest.mark.parametrize(
    "change",
    [
        *({name: value} for name in ("runs", "releases") for value in (0, -1, 1.5, math.nan, math.inf, True)),
        *({"sampling_rate": value} for value in (0.0, -0.1, 1.1, math.nan, True)),
        *({"noise_multiplier": value} for value in (0.0, -1.0, math.nan, math.inf)),
        {"sampling": "shuffled"},
    ],
)
def test_what_is_no_plan_of_a_series_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        changed(PLAN, **change)


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 1e-6), (math.nan, 1e-6), (math.inf, 1e-6), (1.0, 0.0), (1.0, math.nan)]
)
def test_what_is_no_part_of_a_budget_is_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(SpecError, match="should be"):
        monthly(epsilon, delta, PLAN)
    with pytest.raises(SpecError, match="plans"):
        monthly(1.0, 1e-6)


def test_a_series_survives_as_plain_values() -> None:
    series = RunSeries(
        name="monthly", epsilon=2, delta=1e-6, plans=(PLAN, changed(PLAN, sampling="fixed_size", sampling_rate=1))
    )
    assert RunSeries.of(series.plain()) == series  # type: ignore[arg-type]


def test_a_divergence_of_the_filter_is_still_the_accountants() -> None:
    assert RenyiFilter(1.0, 1e-5, ADD, 8.0).spent({ONE: 7}) == pytest.approx(7 * renyi_divergence(ONE, 8.0, ADD))
