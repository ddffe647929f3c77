"""Whole local trainings at data sides: the examples they take, what is clipped, noised and masked, what is refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.reference import glm_slow
from tests.reference.local_training_slow import local_training
from tests.reference.side_kinds import (
    BOUND,
    CLIENTS,
    DATA,
    LOCAL,
    OBJECTIVE,
    SHARDS,
    SIZE,
    TRAINING,
    UPDATE_LAW,
    Disk,
    Sum,
    masked_plan,
    model,
)

from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.errors import SpecError
from gossamer.objectives.objective import Training
from gossamer.privacy.mechanisms import Gaussian, NoNoise, Poisson
from gossamer.privacy.tasks import LocalUpdate, Query, TrainingQuery
from gossamer.protocol.encoding import decode, encode
from gossamer.sides.client import clipped, shuffled
from gossamer.sides.plan import ClientUpdate, SidePlan
from gossamer.sides.pool import Pool, open_pool

WORLDS = ("simulation", "deployment", "laboratory")
FAR = replace(TRAINING, rate=5.0)
"""A training that goes far beyond the bound."""


def pool(plans: dict[str, SidePlan], world: str = "simulation") -> Pool:
    return open_pool(plans, SHARDS, OBJECTIVE, DATA, Disk(world).home())


def ask(where: Pool, node: str, task: Any) -> Any:
    (found,) = where.compute([where.admit(node, task)])
    return found


def update(where: Pool, node: str = "a", round: int = 0, query: Any = TRAINING, start: float = 0.1) -> np.ndarray:
    values: np.ndarray = ask(where, node, LocalUpdate(round, model(start), query)).released.values
    return values


# The question


def test_epochs_are_whole_passes() -> None:
    """10 examples in batches of 4 are 3 steps: 4, 4 and 2."""
    epochs = {"local_epochs": 2, "local_learning_rate": 0.3, "local_momentum": 0.9, "proximal": 0.1}
    found = [fedbuff.Settings(batch_size=batch, **epochs).query(10) for batch in (4, 5, 100)]
    assert found == [TrainingQuery(steps, batch, 0.3, 0.9, 0.1) for steps, batch in ((6, 4), (4, 5), (2, 100))]
    assert [TrainingQuery(steps, 4, 0.3).examples(10) for steps in range(1, 8)] == [4, 8, 10, 14, 18, 20, 24]
    assert TrainingQuery(3, 100, 0.3).examples(10) == 30


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((0, 1, 0.5), "steps must be a whole number > 0, found 0"),
        ((1, 0, 0.5), "batch must be a whole number > 0, found 0"),
        ((1, 1, 0.0), "rate must be a finite number > 0, found 0"),
        ((1, 1, np.inf), "rate must be a finite number > 0, found inf"),
        ((1, 1, 0.5, 1.0), r"momentum lies in \[0, 1\), found 1"),
        ((1, 1, 0.5, -0.1), r"momentum lies in \[0, 1\), found -0.1"),
        ((1, 1, 0.5, 0.0, -1.0), "proximal must be a finite number >= 0, found -1"),
        ((1, 1, 0.5, 0.0, np.inf), "proximal must be a finite number >= 0, found inf"),
    ],
)
def test_questions_out_of_range(values: tuple[Any, ...], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        TrainingQuery(*values)


def test_a_question_is_encoded_and_bounds_nothing_by_itself() -> None:
    task = LocalUpdate(3, model(), TRAINING)
    assert decode(encode(task)) == task
    assert math.isinf(TRAINING.reach)
    assert task.steps == 6


# The examples


def test_each_epoch_is_a_shuffle_of_the_whole_shard() -> None:
    """The last epoch may be cut short; two epochs in the same order have a chance of 1 in 10!."""
    rows, query = np.arange(20, 30), TrainingQuery(8, 4, 0.1)
    found = shuffled(query, rows, np.random.default_rng(0))
    assert found.lengths.tolist() == [4, 4, 2, 4, 4, 2, 4, 4]
    first, second, third = np.split(found.examples, [10, 20])
    assert sorted(first) == sorted(second) == rows.tolist()
    assert len(set(third)) == len(third) == 8
    assert set(third) < set(rows)
    assert first.tolist() != second.tolist()
    whole = shuffled(TrainingQuery(3, 100, 0.1), rows, np.random.default_rng(0))
    assert whole.lengths.tolist() == [10, 10, 10]


def test_all_orders_are_as_likely_and_independent_from_epoch_to_epoch() -> None:
    """Of 3,600 pairs of orders of 3 examples each of 36 comes 100 times, with a standard deviation of 9.9; all of them
    are within 55 of that with a probability of 1 - 36 x 4e-8. One shuffle for both epochs, or none, gives 0 or 600."""
    seen = Counter(
        tuple(shuffled(TrainingQuery(2, 3, 0.1), np.arange(3), np.random.default_rng(seed)).examples.tolist())
        for seed in range(3600)
    )
    assert len(seen) == 36
    assert all(abs(count - 100) < 55 for count in seen.values())


# What is computed


def test_an_update_is_that_of_the_definition_on_the_sides_own_examples() -> None:
    where = pool({name: ClientUpdate() for name in CLIENTS})
    for name in CLIENTS:
        rows = where.sides[name].draw(where.admit(name, LocalUpdate(0, model(0.1), TRAINING))).drawn
        assert sorted(rows.examples.tolist()) == sorted([*SHARDS[name].rows, *SHARDS[name].rows])

        def gradient(w: np.ndarray, i: int) -> np.ndarray:
            return glm_slow.example_gradient("squared", w, DATA.features[i], float(DATA.targets[i]), 1, False)

        training = Training(rows, TRAINING.rate, TRAINING.momentum, TRAINING.proximal)
        expected = local_training(gradient, np.full(SIZE, 0.1), training, OBJECTIVE.l2)
        np.testing.assert_allclose(update(where, name), expected.update, rtol=1e-12)


def test_a_round_has_its_own_coins_and_is_the_same_again() -> None:
    """Also after a restart in a simulation, where everything follows from a seed."""
    where, again = pool({name: ClientUpdate() for name in CLIENTS}), pool({name: ClientUpdate() for name in CLIENTS})
    first = update(where, "a", 3).tobytes()
    assert update(where, "a", 4).tobytes() != first
    assert update(where, "a", 3).tobytes() == first
    assert update(again, "a", 3).tobytes() == first
    where.renew("a")
    assert update(where, "a", 3).tobytes() == first
    assert len({update(where, name, 3).tobytes() for name in CLIENTS}) == 3


def test_both_kinds_of_questions_are_answered_in_one_call() -> None:
    where = pool({name: ClientUpdate() for name in CLIENTS})
    tasks = [LocalUpdate(0, model(0.1), query) for query in (TRAINING, LOCAL, FAR)]
    together = where.compute([where.admit(name, task) for name, task in zip(CLIENTS, tasks)])
    for name, task, found in zip(CLIENTS, tasks, together):
        assert ask(where, name, task).released == found.released


def test_steps_that_are_not_finite_are_counted_inside() -> None:
    features = DATA.features.copy()
    features[4] = np.nan
    where = open_pool(
        {"a": ClientUpdate()}, SHARDS, OBJECTIVE, replace(DATA, features=features), Disk("simulation").home()
    )
    found = ask(where, "a", LocalUpdate(0, model(), TRAINING))
    assert found.not_finite == 2  # one batch of each epoch has it
    assert np.isfinite(found.released.values).all()


# What leaves


@pytest.mark.parametrize("world", WORLDS)
def test_the_whole_update_is_clipped(world: str) -> None:
    """Not its steps: it goes where it would have gone, as far as the bound."""
    where = pool({"a": ClientUpdate(FAR, BOUND)}, world)
    ticket = where.admit("a", LocalUpdate(0, model(1.0), FAR))
    (raw,) = where.raw([ticket])
    length = np.linalg.norm(raw.update)
    assert length > 10 * BOUND
    found = ticket.side.release(ticket, raw).released.values
    np.testing.assert_allclose(found, raw.update * (BOUND / length), rtol=1e-12)


@pytest.mark.parametrize("world", ["simulation", "deployment"])
def test_a_noised_update_is_the_clipped_one_with_noise_of_the_planned_size(world: str) -> None:
    """Steps on the whole shard are the same in any order. Of 3,000 draws of three coordinates the standard deviation is
    within 5 % with a probability of 1 - 1e-10 (chi-squared), and each mean within 5.5 of its own with 1 - 1e-7."""
    count, query = 3000, replace(FAR, batch=10)
    expected = update(pool({"a": ClientUpdate(query, BOUND)}), "a", 0, query, 1.0)
    assert np.linalg.norm(expected) == pytest.approx(BOUND)
    where = pool({"a": ClientUpdate(query, BOUND, UPDATE_LAW, count, SIZE)}, world)
    found = np.stack([update(where, "a", 0, query, 1.0) for _ in range(count)])
    assert abs((found - expected).std() / UPDATE_LAW.standard_deviation - 1) < 0.05
    error = np.abs(found.mean(axis=0) - expected)
    assert (error < 5.5 * UPDATE_LAW.standard_deviation / math.sqrt(count)).all()
    assert where.releases("a") == count


def test_a_masked_sum_is_that_of_whole_updates_clipped() -> None:
    plan, start = masked_plan(0.0, query=FAR), 20.0
    members = pool(dict.fromkeys(CLIENTS, plan))
    raw = pool(dict.fromkeys(CLIENTS, ClientUpdate()))
    updates = [update(raw, name, 0, FAR, start) for name in CLIENTS]
    assert all(np.linalg.norm(each) > BOUND for each in updates)
    total = Sum(dict.fromkeys(CLIENTS, members), plan.bound, 0, start, FAR).total().values
    expected = sum(clipped(each, plan.bound.longest) for each in updates)
    np.testing.assert_allclose(total, expected, atol=3 * SIZE * plan.bound.fixed.resolution)


# What is refused


@pytest.mark.parametrize("query", [LOCAL, replace(TRAINING, momentum=0.5), replace(TRAINING, steps=7)])
def test_another_question_than_planned_is_refused_and_costs_nothing(query: Any) -> None:
    where = pool({"a": ClientUpdate(TRAINING, BOUND, UPDATE_LAW, 1, SIZE)})
    with pytest.raises(SpecError, match="a makes updates by TrainingQuery"):
        where.admit("a", LocalUpdate(0, model(), query))
    assert where.releases("a") == 0


@pytest.mark.parametrize("query", [None, Query(Poisson(0.5), NoNoise(), 1.0)])
def test_no_other_kind_of_question_is_answered(query: Any) -> None:
    for plan in (ClientUpdate(), ClientUpdate(bound=BOUND, noise=Gaussian(BOUND, 2.0), most_updates=1, size=SIZE)):
        where = pool({"a": plan})
        with pytest.raises(SpecError, match="a makes updates by LocalQuery or TrainingQuery, found"):
            where.admit("a", LocalUpdate(0, model(), query))
        assert where.releases("a") == 0
