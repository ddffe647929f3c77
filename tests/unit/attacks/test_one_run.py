"""Bounds from one run: the theorem's recursion against a linear programme, closed forms, and families."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from gossamer.attacks.audit import (
    HypothesisFamily,
    best_guesses,
    epsilon_of,
    epsilon_one_run,
    rejects,
)
from gossamer.errors import SpecError
from gossamer.privacy.guarantees import NOTHING, PrivacyProfile
from gossamer.privacy.mechanisms import NeighboringRelation

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
GAUSSIAN = HypothesisFamily(PrivacyProfile.gaussian, "Gaussian differential privacy")
PROFILES = {
    "nothing": NOTHING,
    "pure": PrivacyProfile.of_points([(1.0, 0.0)]),
    "approximate": PrivacyProfile.of_points([(2.0, 0.01)]),
    "gaussian": PrivacyProfile.gaussian(1.0),
}


def one_run_p_value(canaries: int, guesses: int, correct: int, hypothesis: PrivacyProfile) -> float:
    """An upper bound of the probability of so many correct guesses under ``hypothesis``; see `rejects`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rejects(canaries, guesses, correct, hypothesis, middle) else (middle, high)
    return high


def most_likely(canaries: int, guesses: int, correct: int, profile: PrivacyProfile) -> float:
    """The largest P(C >= v) of a law of C on 0..r that keeps inequality (2) of `one_run` for every c, as a linear
    programme: the right side is the largest of finitely many lines, a line for each loss and each direction."""
    counts = np.arange(guesses + 1)
    slopes, constants = [], []
    for loss, delta in zip(profile.losses, profile.deltas, strict=True):
        # With x = P'(E) and a = P(E): a <= delta + exp(loss) x, and 1 - x <= delta + exp(loss) (1 - a).
        slopes += [math.exp(-loss), math.exp(loss)]
        constants += [-delta * math.exp(-loss), 1 - delta - math.exp(loss)]
    rows, limits = [], []
    for c in range(1, guesses + 1):
        wrong = (guesses - counts) * (counts >= c - 1) / canaries
        right = counts * (counts >= c) / canaries
        rows += [slope * right - wrong for slope in slopes]
        limits += [-constant for constant in constants]
    found = linprog(
        -1.0 * (counts >= correct), A_ub=rows, b_ub=limits, A_eq=[np.ones(guesses + 1)], b_eq=[1], method="highs"
    )
    return float(-found.fun)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize(("canaries", "guesses"), [(12, 12), (40, 10), (7, 5), (1, 1)])
def test_the_p_value_is_the_most_that_the_inequalities_allow(name: str, canaries: int, guesses: int) -> None:
    """The reference knows nothing of the proof that the greedy law is the smallest."""
    profile = PROFILES[name]
    thinned = PrivacyProfile(profile.losses[::32], profile.deltas[::32]) if len(profile.losses) > 32 else profile
    for correct in range(guesses + 1):
        found = one_run_p_value(canaries, guesses, correct, thinned)
        assert found == pytest.approx(most_likely(canaries, guesses, correct, thinned), rel=1e-5, abs=1e-7)


def test_one_coin() -> None:
    """Of one coin that is always guessed, a right guess has at most the probability of the best test."""
    for profile in PROFILES.values():
        assert one_run_p_value(1, 1, 1, profile) == pytest.approx(profile.accuracy, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("guesses", [10, 100])
def test_without_delta_it_is_no_smaller_than_the_binomial_tail(guesses: int, epsilon: float) -> None:
    """Randomised response of every bit is epsilon-DP, so its tail has to be within the bound; of all guesses right it
    is it."""
    profile, accuracy = PrivacyProfile.of_points([(epsilon, 0.0)]), math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(0, guesses + 1, guesses // 10):
        tail = binom.sf(correct - 1, guesses, accuracy)
        assert one_run_p_value(guesses, guesses, correct, profile) >= tail * (1 - 1e-6)
    assert one_run_p_value(10, 10, 10, profile) == pytest.approx(accuracy**10, rel=1e-4)


def test_a_mechanism_that_sometimes_reveals_everything_is_within_the_bound() -> None:
    """Randomised response that shows all bits with probability delta is (epsilon, delta)-DP in each bit. Its tail is
    (1 - delta) f(v) + delta; without delta it would be rejected far too often."""
    canaries, epsilon, delta = 50, 0.5, 1e-3
    accuracy = math.exp(epsilon) / (1 + math.exp(epsilon))
    for correct in range(0, canaries + 1, 5):
        truth = (1 - delta) * binom.sf(correct - 1, canaries, accuracy) + delta
        found = one_run_p_value(canaries, canaries, correct, PrivacyProfile.of_points([(epsilon, delta)]))
        assert found >= truth - 1e-12
    assert one_run_p_value(canaries, canaries, canaries, PrivacyProfile.of_points([(epsilon, 0.0)])) < delta / 1000


def test_a_mechanism_that_tells_all_coins_or_none_is_within_the_bound() -> None:
    """With probability 0.04, which everybody sees, every coin is told as well as mu = 3 allows; else nothing is. The
    profile of one coin is 0.04 times that of mu = 3. All coins guessed, there are 100 right of 100 with probability
    0.04 0.933^100, and 90 with nearly 0.04: far more often than if coins were told independently."""
    told = PrivacyProfile.gaussian(3.0)
    mixture = PrivacyProfile.of(np.array(told.losses), 0.04 * np.array(told.deltas))
    tail = 0.04 * float(binom.sf(89, 100, told.accuracy))
    assert one_run_p_value(100, 100, 90, mixture) >= tail > 0.03
    assert binom.sf(89, 100, mixture.accuracy) < 1e-12


@pytest.mark.parametrize("guesses", [10, 100])
def test_a_perfect_auditor_without_delta(guesses: int) -> None:
    """q^r = 0.05 at the bound, so epsilon = log(q/(1 - q)) with q = 0.05^(1/r)."""
    q = 0.05 ** (1 / guesses)
    found = epsilon_one_run(guesses, guesses, guesses, 0.0, ADD)
    assert found.epsilon == pytest.approx(math.log(q / (1 - q)), rel=3e-3)


def test_delta_and_wrong_guesses_cost() -> None:
    bounds = [epsilon_one_run(200, 100, v, delta, ADD).epsilon for v, delta in ((90, 0.0), (90, 1e-4), (85, 1e-4))]
    assert bounds[0] > bounds[1] > bounds[2] > 0


def test_the_bound_is_the_strongest_that_is_rejected() -> None:
    found = epsilon_one_run(300, 100, 80, 1e-5, ADD, 0.95, GAUSSIAN).epsilon
    strengths = np.linspace(0.05, 2, 400)
    rejected = [mu for mu in strengths if rejects(300, 100, 80, PrivacyProfile.gaussian(mu), 0.05)]
    assert rejected == strengths[: len(rejected)].tolist()
    assert found == pytest.approx(epsilon_of(PrivacyProfile.gaussian(rejected[-1]), 1e-5), rel=0.02)


def test_a_family_says_more_than_epsilon_and_delta_alone() -> None:
    alone, gaussian = (epsilon_one_run(1000, 150, 142, 1e-5, ADD, 0.95, family).epsilon for family in (None, GAUSSIAN))
    assert gaussian > 1.2 * alone


def test_guesses_at_random_bound_nothing() -> None:
    assert epsilon_one_run(100, 100, 50, 0.0, ADD).epsilon == 0.0
    assert epsilon_one_run(10, 0, 0, 0.0, ADD).epsilon == 0.0


def test_the_epsilon_of_a_profile() -> None:
    profile = PrivacyProfile.gaussian(1.0)
    for delta in (1e-5, 1e-2):
        assert profile.delta(epsilon_of(profile, delta)) == pytest.approx(delta, rel=1e-9)
    assert epsilon_of(profile, 0.9) == 0.0
    assert epsilon_of(PrivacyProfile.of_points([(2.0, 1e-3)]), 1e-3) == 2.0
    assert epsilon_of(PrivacyProfile.of_points([(2.0, 1e-3)]), 1e-4) == 2.0  # at least


def test_the_number_of_guesses_follows_what_can_be_told() -> None:
    """Where little is told only the surest guesses are worth something, and where all is told all of them are."""
    numbers = [best_guesses(500, mu) for mu in (1.0, 3.0, math.inf)]
    assert numbers == sorted(numbers)
    assert numbers[0] < 200
    assert numbers[-1] == 500
    assert best_guesses(1, 1.0) == 1


def test_what_one_run_must_be() -> None:
    with pytest.raises(SpecError, match="correct <= guesses <= canaries"):
        epsilon_one_run(10, 5, 6, 0.0, ADD)
    with pytest.raises(SpecError, match="confidence"):
        epsilon_one_run(10, 5, 5, 0.0, ADD, 95)
