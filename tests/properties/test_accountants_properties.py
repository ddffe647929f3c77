"""What every accounting must satisfy, whatever the plan."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.pld import Composition
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)
from gossamer.privacy.pairs import (
    FixedSizeSampled,
    Full,
    GaussianFull,
    PoissonReplaced,
    PoissonSampled,
    Profile,
    ReleaseGroup,
    Response,
    ResponseFull,
    merge,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SLACK = 1 + 1e-7  # rounding

multipliers = st.floats(0.4, 20)
rates = st.floats(1e-3, 1)
deltas = st.floats(-10, -1).map(lambda power: 10.0**power)
counts = st.integers(1, 300)
fulls = st.one_of(
    st.floats(0.05, 3).map(GaussianFull),
    st.floats(0.05, 3).map(ResponseFull),
)
samplings = st.one_of(
    rates.map(Poisson),
    st.integers(2, 400).flatmap(lambda size: st.integers(1, size).map(lambda batch: FixedSize(size, batch))),
)
mechanisms = st.one_of(
    multipliers.map(lambda multiplier: Gaussian(1.0, multiplier)),
    st.floats(0.05, 1).map(lambda epsilon: L2Laplace(1.0, epsilon, REPLACE)),
)
plans = st.dictionaries(st.builds(ReleaseKind, mechanisms, samplings, st.just(3)), counts, min_size=1, max_size=4)


def epsilon_of(
    mechanism: Mechanism, sampling: BatchSampling, count: int, delta: float, relation: NeighboringRelation
) -> float:
    return accountants.epsilon({ReleaseKind(mechanism, sampling, 3): count}, delta, relation).epsilon


relations = pytest.mark.parametrize("relation", [ADD, REPLACE])


@relations
@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(multiplier=multipliers, rate=rates, count=counts, delta=deltas, factor=st.floats(1.01, 2))
def test_epsilon_falls_with_noise_and_rises_with_rate_count_and_rarer_failure(
    relation: NeighboringRelation, multiplier: float, rate: float, count: int, delta: float, factor: float
) -> None:
    base = epsilon_of(Gaussian(1.0, multiplier), Poisson(rate), count, delta, relation)
    assert epsilon_of(Gaussian(1.0, multiplier * factor), Poisson(rate), count, delta, relation) <= base * SLACK
    assert epsilon_of(Gaussian(1.0, multiplier), Poisson(rate / factor), count, delta, relation) <= base * SLACK
    assert epsilon_of(Gaussian(1.0, multiplier), Poisson(rate), count + 1, delta, relation) * SLACK >= base
    assert epsilon_of(Gaussian(1.0, multiplier), Poisson(rate), count, delta / factor, relation) * SLACK >= base


@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(multiplier=multipliers, rate=rates, count=counts, delta=deltas)
def test_replacing_costs_more_than_adding_and_a_fixed_size_no_less_than_half_a_full_batch(
    multiplier: float, rate: float, count: int, delta: float
) -> None:
    """Replacing is removing and adding; a full batch is the worst."""
    mechanism = Gaussian(1.0, multiplier)
    add = epsilon_of(mechanism, Poisson(rate), count, delta, ADD)
    replace = epsilon_of(mechanism, Poisson(rate), count, delta, REPLACE)
    full = epsilon_of(mechanism, Poisson(1.0), count, delta, REPLACE)
    size = 1000
    fixed = epsilon_of(mechanism, FixedSize(size, max(round(rate * size), 1)), count, delta, REPLACE)
    assert add <= replace * 1.001
    assert replace <= full * 1.001
    assert fixed <= full * 1.001


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(plan=plans, delta=deltas, seed=st.randoms(use_true_random=False))
def test_the_order_of_composition_does_not_matter(plan: dict[ReleaseKind, int], delta: float, seed: object) -> None:
    items = list(plan.items())
    seed.shuffle(items)  # type: ignore[attr-defined]
    accountants._epsilon.cache_clear()
    once = accountants.epsilon(plan, delta, REPLACE).epsilon
    accountants._epsilon.cache_clear()
    assert accountants.epsilon(dict(items), delta, REPLACE).epsilon == pytest.approx(once, rel=1e-9, abs=1e-12)


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(plan=plans, delta=deltas)
def test_one_accountant_for_all_rounds(plan: dict[ReleaseKind, int], delta: float) -> None:
    """A new accountant in each round would spend the budget once per round: all rounds together cost more than any.

    And not more than the rounds' sum at an equal share of delta, which is basic composition.
    """
    whole = accountants.epsilon(plan, delta, REPLACE).epsilon
    rounds = [accountants.epsilon({kind: count}, delta, REPLACE).epsilon for kind, count in plan.items()]
    shares = [accountants.epsilon({k: n}, delta / len(plan), REPLACE).epsilon for k, n in plan.items()]
    assert max(rounds) <= whole * 1.001 + 1e-9
    assert whole <= sum(shares) * 1.003 + 1e-9


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(plan=plans, delta=deltas)
def test_delta_undoes_epsilon(plan: dict[ReleaseKind, int], delta: float) -> None:
    epsilon = accountants.epsilon(plan, delta, REPLACE).epsilon
    assume(1e-3 < epsilon < 1e3)
    back = accountants.delta(plan, epsilon, REPLACE)
    assert back <= delta * (1 + 1e-6)
    assert accountants.delta(plan, epsilon * 0.99, REPLACE) > back * (1 - 1e-9)


@settings(max_examples=examples(20), deadline=None, derandomize=True)
@given(plan=plans, delta=deltas, order=st.sampled_from([2.0, 4.0, 16.0]))
def test_a_renyi_filter_never_promises_more_than_the_distribution(
    plan: dict[ReleaseKind, int], delta: float, order: float
) -> None:
    total = sum(count * accountants.renyi_divergence(kind, order, REPLACE) for kind, count in plan.items())
    loose = accountants.renyi_epsilon(order, total, delta)
    assert accountants.epsilon(plan, delta, REPLACE).epsilon <= loose * 1.001 + 1e-9


LOSSES = np.linspace(0.0, 6.0, 61)
families = {
    "poisson": lambda full, rate: PoissonSampled(full, rate),
    "fixed size": lambda full, rate: FixedSizeSampled(full, rate),
    "replaced": lambda full, rate: PoissonReplaced(full.mu if isinstance(full, GaussianFull) else full.epsilon, rate),
    "response": lambda full, rate: Response(2 * math.atanh(0.999 * rate)),
}


@pytest.mark.parametrize("family", families)
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(full=fulls, low=st.floats(1e-4, 1), high=st.floats(1e-4, 1), weight=st.floats(0, 1))
def test_profiles_are_convex_and_increasing_in_the_rate(
    family: str, full: Full, low: float, high: float, weight: float
) -> None:
    """What the mixtures rest on, at positive losses of both directions and so at all losses."""
    low, high = sorted((low, high))
    between = min(max((1 - weight) * low + weight * high, low), high)
    at = {rate: families[family](full, rate) for rate in (low, between, high)}
    # The rates of a response are rounded on the way through its epsilon: take those it really has.
    assume(at[high].rate > at[low].rate)
    share = (at[between].rate - at[low].rate) / (at[high].rate - at[low].rate)
    for direction in ("forward", "backward"):
        below, middle, above = (getattr(at[rate], direction)(LOSSES) for rate in (low, between, high))
        assert np.all(middle <= (1 - share) * below + share * above + 1e-12)
        assert np.all(below <= middle + 1e-12)
        assert np.all(middle <= above + 1e-12)


@pytest.mark.parametrize("family", families)
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(full=fulls, rate=st.floats(1e-4, 1))
def test_profiles_are_curves_of_a_pair(family: str, full: Full, rate: float) -> None:
    """Convex and decreasing in exp(e), also across e = 0, between max(0, 1 - exp(e)) and 1; one value at e = 0."""
    profile: Profile = families[family](full, rate)
    ahead, back = profile.forward(LOSSES), profile.backward(LOSSES)
    assert ahead[0] == pytest.approx(back[0], abs=1e-12)
    ratios = np.concatenate([np.exp(-LOSSES[:0:-1]), np.exp(LOSSES)])
    curve = np.concatenate([-np.expm1(-LOSSES[:0:-1]) + np.exp(-LOSSES[:0:-1]) * back[:0:-1], ahead])
    slopes = np.diff(curve) / np.diff(ratios)
    assert np.all(slopes <= 1e-10)
    assert np.all(slopes >= -1 - 1e-10)
    assert np.all(np.diff(slopes) >= -1e-9)
    assert np.all(curve <= 1 + 1e-12)
    assert np.all(curve >= np.maximum(0, 1 - ratios) - 1e-12)


@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(
    full=fulls,
    rates=st.lists(st.floats(1e-3, 1), min_size=3, max_size=25, unique=True),
    count=st.integers(1, 20),
    delta=deltas,
)
def test_merged_rates_dominate_the_exact_composition(full: Full, rates: list[float], count: int, delta: float) -> None:
    """And by little: half a percent, or a grid interval where epsilon is nearly 0."""
    exact: dict[Profile, int] = {PoissonSampled(full, rate): count for rate in rates}
    separate = Composition([ReleaseGroup(profile, profile, 1.0, number) for profile, number in exact.items()]).epsilon(
        delta
    )
    merged = Composition(merge(exact)).epsilon(delta)
    assert separate <= merged * (1 + 1e-4) + 1e-6
    assert merged <= separate * 1.005 + 1e-3


def exact_delta_of_counts(low: Profile, high: Profile, weights: list[float], epsilon: float) -> float:
    """Every way in which independent coins choose between two profiles, one composition each."""
    steps = np.zeros(len(weights) + 1)
    for choice in itertools.product((0, 1), repeat=len(weights)):
        steps[sum(choice)] += math.prod(w if c else 1 - w for w, c in zip(weights, choice))
    total = 0.0
    for uses, probability in enumerate(steps):
        groups = [ReleaseGroup(p, p, 1.0, n) for p, n in ((low, len(weights) - uses), (high, uses)) if n]
        total += probability * Composition(groups).delta(epsilon)
    return total


def test_coins_of_one_bias_dominate_different_coins() -> None:
    """1 - p = geometric mean of 1 - w, in full: 16 outcomes of 4 coins, each composed by itself."""
    low, high = PoissonSampled(GaussianFull(1.0), 0.1), PoissonSampled(GaussianFull(1.0), 0.5)
    weights = [0.1, 0.35, 0.6, 0.9]
    bias = 1 - math.prod(1 - w for w in weights) ** 0.25
    for epsilon in (0.5, 2.0, 4.0):
        separate = exact_delta_of_counts(low, high, weights, epsilon)
        merged = Composition([ReleaseGroup(low, high, bias, 4)]).delta(epsilon)
        assert separate * (1 - 1e-3) <= merged
        average = Composition([ReleaseGroup(low, high, float(np.mean(weights)), 4)]).delta(epsilon)
        assert average < merged * (1 - 1e-3)
