"""Rounds as distributions: their noise, who takes part and when, and audits of one release.

Every test uses fixed seeds, so it passes or fails for good. The level of each is 1e-6 (family-wise, divided among the
comparisons of a test): the chance that right code would have failed when the seeds were chosen. Each also rejects the
wrong law that it names.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats
from tests.reference.pools import simulated

from gossamer.attacks.audit import epsilon_from_runs
from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.accountants import epsilon as proved_epsilon
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    FixedSize,
    Gaussian,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.tasks import Query, Round, StepSizes, Swap
from gossamer.randomness import stream
from gossamer.vectors import Coordinates, Public, Released

LEVEL = 1e-6
FEATURES, STEPS = 7, 3
ALL = Coordinates()
SAMPLINGS = {"batch": Poisson(0.5), "clipped_sum": Poisson(0.5), "sequential": WithReplacement(6, STEPS)}


def a_round(update: str, mechanism: Mechanism, sampling: BatchSampling, where: Coordinates = ALL) -> Round:
    models = stream(2).standard_normal((2, FEATURES))
    swaps = (Swap(0, Released(models[0])), Swap(2, Released(models[1])))
    query = Query(sampling, mechanism, 1.0)
    return Round(1, swaps, query, STEPS, STEPS, StepSizes(0.1, 0.1, 1.0, 0.0, 1.0), update, where)


def answers(task: Round, rounds: int) -> np.ndarray:
    """What a data side of six examples releases, [rounds, answer_size]."""
    x = stream(1).standard_normal((6, FEATURES)).astype(np.float32)
    objective = LinearModel("logistic", FEATURES, 2, intercept=False, l2=0.1, dtype=np.float64)
    sides = simulated({"a": np.arange(6)}, objective, Split(x, np.arange(6) % 2), 3)
    return np.stack([sides.compute([sides.admit("a", task)])[0].released.values for _ in range(rounds)])


@pytest.mark.slow
@pytest.mark.parametrize("where", [ALL, Coordinates(1, 3)], ids=["all", "some"])
@pytest.mark.parametrize("update", SAMPLINGS)
def test_the_noise_is_that_of_the_mechanism_in_every_coordinate(update: str, where: Coordinates) -> None:
    """The difference to the same rounds without noise is N(0, (3 0.5)^2) in each coordinate and uncorrelated: of
    4,000 rounds; 30 % more or less noise is rejected."""
    sampling, rounds = SAMPLINGS[update], 4000
    noisy = answers(a_round(update, Gaussian(0.5, 3.0), sampling, where), rounds)
    noise = noisy - answers(a_round(update, NoNoise(0.5), sampling, where), rounds)
    size = noise.shape[1]
    assert size == where.count(FEATURES)
    for coordinate in noise.T:
        assert stats.kstest(coordinate, stats.norm(scale=1.5).cdf).pvalue > LEVEL / 2 / size
        for wrong in (1.05, 1.95):
            assert stats.kstest(coordinate, stats.norm(scale=wrong).cdf).pvalue < LEVEL
    pairs = [*combinations(noise.T, 2), (noise[:-1, 0], noise[1:, 0])]
    correlations = np.array([np.sum(left * right) / 1.5**2 for left, right in pairs]) / np.sqrt(rounds)
    assert np.abs(correlations).max() < stats.norm.isf(LEVEL / 4 / len(pairs))


def places(sampling: BatchSampling, count: int, steps: int, rounds: int = 20_000) -> np.ndarray:
    """In each round each example's slot, or ``steps`` if it does not take part, [rounds, count]."""
    nothing = Split(np.zeros((count, 2), np.float32), np.zeros(count))
    sides = simulated({"a": np.arange(count)}, LinearModel("squared", 2, None, intercept=False), nothing, 4)
    task = Round(
        1, (Swap(0, Public(np.zeros(2))),), Query(sampling, NoNoise(), 1.0), steps, steps, StepSizes(1), "batch"
    )
    found = np.full((rounds, count), steps)
    for row in found:
        turns = sides.sides["a"].draw(sides.admit("a", task)).turns
        row[turns.rows] = turns.slots
    return found


def p_of_one(found: np.ndarray, law: np.ndarray) -> float:
    """The least p-value, times their number, of each example's place against ``law`` (chi-squared)."""
    counts = [np.bincount(column, minlength=len(law)) for column in found.T]
    return len(counts) * min(float(stats.chisquare(count, len(found) * law).pvalue) for count in counts)


def p_of_pairs(found: np.ndarray, law: np.ndarray) -> float:
    """The same of the places of two examples against independence, ``law`` [places, places]."""
    pairs = list(combinations(found.T, 2))
    counts = [np.bincount(left * len(law) + right, minlength=law.size) for left, right in pairs]
    expected, possible = len(found) * law.ravel(), law.ravel() > 0
    assert not any(count[~possible].any() for count in counts)
    return len(counts) * min(float(stats.chisquare(count[possible], expected[possible]).pvalue) for count in counts)


@pytest.mark.slow
def test_a_poisson_example_takes_part_and_turns_by_its_own_coins() -> None:
    """With probability s/N = 3/6 in the round, at a uniform step, independently of the others. A slot that follows from
    the place in the batch, in turn or in order, is rejected, and so is a rate 5 % higher."""
    found = places(Poisson.of_batch(6, STEPS), 6, STEPS)
    law = np.array([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    assert p_of_one(found, law) > LEVEL / 2
    assert p_of_pairs(found, np.outer(law, law)) > LEVEL / 2
    higher = np.array([0.175, 0.175, 0.175, 0.475])
    assert p_of_one(found, higher) < LEVEL
    drawn = found < STEPS
    rank = np.cumsum(drawn, axis=1) - 1
    in_turn = np.where(drawn, rank % STEPS, STEPS)
    in_order = np.where(drawn, rank * STEPS // np.maximum(drawn.sum(axis=1, keepdims=True), 1), STEPS)
    for wrong in (in_turn, in_order):
        assert min(p_of_one(wrong, law), p_of_pairs(wrong, np.outer(law, law))) < LEVEL


@pytest.mark.slow
def test_a_fixed_batch_takes_turns_in_uniform_order() -> None:
    """Three of five examples: each at a given step with probability 1/5. Of two: both absent 1/10, one at a given step
    and the other absent 1/10, at two given steps 1/20, never at the same. Sorted turns are rejected."""
    found = places(FixedSize.of_batch(5, STEPS), 5, STEPS)
    pairs = np.full((4, 4), 1 / 20) - np.eye(4) / 20
    pairs[3, :] = pairs[:, 3] = 1 / 10
    assert p_of_one(found, np.array([0.2, 0.2, 0.2, 0.4])) > LEVEL / 2
    assert p_of_pairs(found, pairs) > LEVEL / 2
    in_turn = np.where(found < STEPS, np.cumsum(found < STEPS, axis=1) - 1, STEPS)
    assert p_of_one(in_turn, np.array([0.2, 0.2, 0.2, 0.4])) < LEVEL


# Audits of one release, at confidence 1 - 1e-8


ADD = NeighboringRelation.ADD_OR_REMOVE_ONE
DELTA = 0.05


def audit(
    update: str,
    mechanism: Gaussian,
    sampling: BatchSampling,
    relation: NeighboringRelation = ADD,
    draws: int = 10_000,
) -> float:
    """A lower bound of the epsilon of a round of two steps, with a canary and with its slot blank.

    A blank is an example like another, so under replace-one the canary is replaced by it.

    Squared loss at w = 0, gradients (w x - y) x. ``batch``: the canary's is 8 C long and the others are blank, which is
    the worst case of a clipped sum. ``clipped_sum``: the worst case is a canary that turns the whole sum around. The
    other example alone has U = 1; the canary's gradient is 5, and with a step size of 10 what comes second moves U
    further the other way: to 5 - 49 or 1 - 5.
    """
    features, targets = np.zeros((2, FEATURES), np.float32), np.array([-1.0, -1.0], np.float32)
    features[0, 0] = 8 * mechanism.clip
    if update == "clipped_sum":
        features[:, 0], targets[0] = 1, -5
    objective = LinearModel("squared", FEATURES, None, intercept=False, dtype=np.float64)
    query = Query(sampling, mechanism, 1.0)
    task = Round(1, (Swap(0, Public(np.zeros(FEATURES))),), query, 2, 2, StepSizes(10.0), update)
    scores = []
    for name in ("with", "without"):
        x = features.copy()
        x[0] *= name == "with"
        sides = simulated({name: np.arange(2)}, objective, Split(x, targets), 5)
        found = (sides.compute([sides.admit(name, task)])[0].released.values[0] for _ in range(draws))
        grain = 1e-6 * mechanism.clip  # otherwise the last bits of 0 + noise and C + noise are told apart
        scores.append(np.round(np.fromiter(found, np.float64, draws) / grain))
    if update == "clipped_sum":
        scores.reverse()  # the canary makes the sum smaller
    return epsilon_from_runs(scores[0], scores[1], DELTA, relation, 1 - 1e-8).epsilon


@pytest.mark.slow
@pytest.mark.parametrize(("update", "sampling"), [("batch", Poisson.of_batch(4, 2)), ("clipped_sum", Poisson(1.0))])
def test_one_round_is_as_private_as_proved_and_half_the_noise_is_noticed(update: str, sampling: BatchSampling) -> None:
    """`batch` at the rate s/N = 2/4. Both reach more than a third of what is proved, so they are not idle."""
    claimed, broken = Gaussian(0.5, 0.7), Gaussian(0.5, 0.35)
    task = Round(1, (Swap(0, Public(np.zeros(FEATURES))),), Query(sampling, claimed, 1.0), 2, 2, StepSizes(1), update)
    limit = proved_epsilon({task.release: 1}, DELTA, ADD).epsilon
    assert limit / 3 < audit(update, claimed, sampling) <= limit
    assert audit(update, broken, sampling) > limit


@pytest.mark.slow
def test_a_replaced_example_in_a_clipped_sum_tells_as_much_as_proved_and_half_the_noise_is_noticed() -> None:
    """All data in a batch of fixed size; the bound reached is more than a third of what is proved."""
    claimed, broken, sampling = BallGaussian(0.5, 0.7), BallGaussian(0.5, 0.35), FixedSize(2, 2)
    query = Query(sampling, claimed, 1.0)
    task = Round(1, (Swap(0, Public(np.zeros(FEATURES))),), query, 2, 2, StepSizes(1), "clipped_sum")
    replaced = NeighboringRelation.REPLACE_ONE
    limit = proved_epsilon({task.release: 1}, DELTA, replaced).epsilon
    assert limit / 3 < audit("clipped_sum", claimed, sampling, replaced) <= limit
    assert audit("clipped_sum", broken, sampling, replaced) > limit
