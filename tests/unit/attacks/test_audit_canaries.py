"""Canaries: what is planted, what is blank, how coins are guessed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gossamer.attacks.canaries import Canaries, Sum, choose_canaries, correct_guesses, plant
from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.sides.home import Simulated
from gossamer.sides.plan import Samples
from gossamer.sides.pool import Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Public

GENERATOR = np.random.default_rng(1)
TRAIN = Split(GENERATOR.random((50, 6)).astype(np.float32), GENERATOR.integers(0, 3, 50))
CANDIDATES = np.arange(10, 40)


def canaries(kind: str = "random", train: Split = TRAIN, count: int = 20, classes: int | None = 3) -> Canaries:
    return choose_canaries(
        train,
        CANDIDATES,
        count,
        kind,
        classes,
        np.random.default_rng(2),
        np.random.default_rng(3),  # type: ignore[arg-type]
    )


def test_slots_are_candidates_and_each_is_used_once() -> None:
    rows = canaries().rows
    assert np.all(np.isin(rows, CANDIDATES))
    assert np.all(np.diff(rows) > 0)


def test_coins_are_fair_and_their_own() -> None:
    """10,000 coins: more than 5 standard deviations from the half have a chance of 6e-7."""
    many = Split(np.zeros((10_000, 1), np.float32), np.zeros(10_000, np.int64))
    made = [
        choose_canaries(
            many, np.arange(10_000), 10_000, "random", 2, np.random.default_rng(4), np.random.default_rng(coin)
        )
        for coin in (5, 6)
    ]
    assert abs(made[0].included.sum() - 5000) < 250
    np.testing.assert_array_equal(made[0].examples.targets, made[1].examples.targets)
    assert np.any(made[0].included != made[1].included)


def test_random_canaries_are_longer_than_the_data_and_mislabelled_ones_have_wrong_labels() -> None:
    lengths = np.linalg.norm(canaries("random").examples.features, axis=1)
    np.testing.assert_allclose(lengths, 3 * np.sqrt(np.mean(np.sum(np.square(TRAIN.features), axis=1))), rtol=1e-5)
    wrong = canaries("mislabelled")
    np.testing.assert_array_equal(wrong.examples.features, TRAIN.features[wrong.rows])
    assert np.all(wrong.examples.targets != TRAIN.targets[wrong.rows])
    assert set(wrong.examples.targets) <= {0, 1, 2}


def test_random_canaries_of_a_node_differ_in_direction_or_label() -> None:
    """Six features and three labels make 18 canaries, whatever the order of a node's rows: no two of them are alike,
    and of two directions the features are orthogonal."""
    held = np.concatenate([np.arange(39, 9, -2), np.arange(10, 40, 2)])
    made = choose_canaries(TRAIN, held, 30, "random", 3, np.random.default_rng(2), np.random.default_rng(3))
    for rows in (held[:15], held[15:]):
        mine = np.isin(made.rows, rows)
        x, labels = made.examples.features[mine].astype(np.float64), made.examples.targets[mine]
        cosines = x @ x.T / np.linalg.norm(x[0]) ** 2
        same = np.abs(cosines) > 1e-5
        np.testing.assert_allclose(cosines[same], 1.0, rtol=1e-5)
        assert np.sum(same & (labels[:, None] == labels)) == 15  # each with itself


def test_canaries_of_many_features_have_random_directions() -> None:
    many = Split(np.ones((20, 3000), np.float32), np.zeros(20, np.int64))
    made = choose_canaries(many, np.arange(20), 20, "random", 2, np.random.default_rng(4), np.random.default_rng(5))
    x = made.examples.features
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 3 * np.sqrt(3000), rtol=1e-5)
    assert np.abs(x @ x.T / 27_000 - np.eye(20)).max() < 0.1  # 5.5 deviations


def test_only_included_canaries_are_planted() -> None:
    made = canaries()
    planted = plant(TRAIN, made)
    inside = made.rows[made.included]
    np.testing.assert_array_equal(planted.features[inside], made.examples.features[made.included])
    np.testing.assert_array_equal(planted.targets[inside], made.examples.targets[made.included])
    others = np.setdiff1d(np.arange(50), inside)
    np.testing.assert_array_equal(planted.features[others], TRAIN.features[others])
    np.testing.assert_array_equal(planted.targets[others], TRAIN.targets[others])


def test_sparse_canaries_are_mislabelled() -> None:
    sparse = Split(sp.csr_array(TRAIN.features), TRAIN.targets)
    made = canaries("mislabelled", sparse)
    planted = plant(sparse, made)
    np.testing.assert_array_equal(planted.features.toarray(), TRAIN.features)
    assert np.flatnonzero(planted.targets != TRAIN.targets).tolist() == made.rows[made.included].tolist()
    with pytest.raises(SpecError, match="take mislabelled"):
        canaries("random", sparse)


def test_canaries_that_cannot_be() -> None:
    with pytest.raises(SpecError, match="1 to 30 canaries"):
        canaries(count=31)
    with pytest.raises(SpecError, match="no wrong labels"):
        canaries("mislabelled", classes=None)


def pool(objective: LinearModel, shard: np.ndarray, blank: np.ndarray | None = None) -> Pool:
    """The data side of one node, some of whose slots are blank."""
    plan = Samples({}, enforced=False)
    return open_pool({"node": plan}, {"node": ShardRows.of(shard, blank)}, objective, TRAIN, Simulated(5))


def test_a_blank_slot_is_sampled_and_has_no_gradient() -> None:
    """The release is that of the other rows, divided by the same public number, from the same draw of the batch."""
    objective = LinearModel("softmax", 6, 3, dtype=np.float64)
    shard = np.arange(10, 20)
    blank = shard[::2]
    task = Gradient(0, Public(np.zeros(objective.size)), Query(Poisson(0.7), NoNoise(1.0), 7.0))
    batches, answers = [], []
    for sides in (pool(objective, shard), pool(objective, shard, blank)):
        ticket = sides.admit("node", task)
        batches.append(sides.sides["node"].draw(ticket).drawn)
        answers.append(sides.compute([ticket])[0].released.values)
    assert np.isin(blank, batches[0]).any()
    np.testing.assert_array_equal(batches[1], np.setdiff1d(batches[0], blank))
    expected = objective.clipped_gradients(np.zeros((1, objective.size)), TRAIN, [batches[1]], 1.0).sums[0] / 7
    np.testing.assert_allclose(answers[1], expected, rtol=1e-12)


def test_a_blank_slot_takes_no_turn_in_a_round() -> None:
    """The others take the turns that they would have had."""
    shard, blank = np.arange(50), np.array([3, 20, 21, 44])
    objective = LinearModel("softmax", 6, 3, dtype=np.float64)
    query = Query(Poisson(0.8), NoNoise(1.0), 1.0)
    task = Round(1, (Swap(0, Public(np.zeros(objective.size))),), query, 40, 40, StepSizes(0.1), "batch")
    plain, blanked = (
        sides.sides["node"].draw(sides.admit("node", task)).drawn
        for sides in (pool(objective, shard), pool(objective, shard, blank))
    )
    held = ~np.isin(plain.rows, blank)
    assert not held.all()
    np.testing.assert_array_equal(blanked.rows, plain.rows[held])
    np.testing.assert_array_equal(blanked.slots, plain.slots[held])
    sides = pool(objective, shard, shard)
    for update in ("batch", "clipped_sum"):
        answer = sides.compute([sides.admit("node", replace(task, update=update))])[0]
        np.testing.assert_array_equal(answer.released.values, 0.0)


# Scores


def a_sum(inside: np.ndarray, along: float, variance: float, **others: object) -> Sum:
    """A sum that is ``along`` on the first coordinate, and on the last, where no gradient is, such that all that is not
    expected has a mean square of ``variance``."""
    nothing = np.zeros((0, inside.shape[1]))
    given = {"outside": np.zeros_like(inside), "others": nothing, "each": 1.0, "rate": 0.3, **others}
    plain = Sum(seen=np.zeros(inside.shape[1]), inside=inside, **given)  # type: ignore[arg-type]
    seen = np.zeros(inside.shape[1])
    seen[0] = along
    examples = plain.each * plain.others.sum(axis=0)
    expected = plain.rate * ((plain.inside + plain.outside).sum(axis=0) / 2 + examples)
    seen[-1] = math.sqrt(variance * len(seen) - np.sum((seen - expected)[:-1] ** 2))
    return plain._replace(seen=seen)


def density(y: float, mean: float, variance: float) -> float:
    return math.exp(-((y - mean) ** 2) / (2 * variance))


@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_the_score_of_a_lone_canary_is_its_likelihood_ratio(rate: float) -> None:
    """A sampled Gaussian of sensitivity 1.5, in closed form; what is orthogonal to the gradient says nothing."""
    for along in (-1.0, 0.2, 3.0):
        found = a_sum(np.array([[1.5, 0.0, 0.0]]), along, 4.0, rate=rate).log_likelihood_ratios()
        out, sampled = density(along, 0, 4.0), density(along, 1.5, 4.0)
        assert found[0] == pytest.approx(math.log(((1 - rate) * out + rate * sampled) / out), rel=1e-9)


def test_under_replacement_the_other_example_counts_too() -> None:
    heard = a_sum(np.array([[1.5, 0.0, 0.0]]), 1.0, 4.0, outside=np.array([[0.0, 0.5, 0.0]]))
    inside = 0.7 + 0.3 * density(1.0, 1.5, 4.0) / density(1.0, 0, 4.0)
    outside = 0.7 + 0.3 * density(0.0, 0.5, 4.0) / density(0.0, 0, 4.0)
    assert heard.log_likelihood_ratios()[0] == pytest.approx(math.log(inside / outside), rel=1e-9)


def test_the_means_of_other_slots_and_examples_are_taken_off_and_their_spread_is_noise() -> None:
    """With a parallel slot, there half the time and sampled with rate q, and ten examples along the same direction."""
    q, own, other, example = 0.3, 1.0, 2.0, 0.5
    inside = np.array([[own, 0.0], [other, 0.0]])
    heard = a_sum(inside, 4.0, 9.0, others=np.array([[example, 0.0], [example, 0.0]]), each=5.0)
    y = 4.0 - q / 2 * other - q * 10 * example
    variance = 9.0 + (q / 2 - (q / 2) ** 2) * other**2 + 10 * q * (1 - q) * example**2
    expected = math.log(1 - q + q * density(y, own, variance) / density(y, 0, variance))
    assert heard.log_likelihood_ratios()[0] == pytest.approx(expected, rel=1e-9)


def test_a_canary_without_a_gradient_says_nothing_and_all_may_be_said_where_nothing_surprises() -> None:
    inside = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    nothing = np.zeros((0, 3))
    heard = Sum(np.array([0.5, 0.0, 0.0]), inside, np.zeros_like(inside), nothing, 1.0, 1.0)
    assert heard.log_likelihood_ratios()[1] == 0.0
    assert np.isfinite(heard.log_likelihood_ratios()).all()


def test_the_highest_scores_are_guessed_in_and_the_lowest_out() -> None:
    made = canaries()
    perfect = np.where(made.included, 1.0, -1.0) + 0.01 * np.arange(20)
    assert correct_guesses(made, perfect, 7) == 7  # 4 in, 3 out
    assert correct_guesses(made, -perfect, 7) == 0
    some = np.zeros(20)
    some[np.flatnonzero(made.included)[0]] = 5.0
    some[np.flatnonzero(~made.included)[0]] = np.nan  # the lowest
    assert correct_guesses(made, some, 2) == 2
    with pytest.raises(DataError, match="no more guesses"):
        correct_guesses(made, perfect, 21)
