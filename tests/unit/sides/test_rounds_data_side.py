"""Rounds at the data side: what is summed, how far one example can move it, and that it is one release."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.reference.pools import simulated
from tests.sampling import examples

from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent, SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.protocol.effects import Compute
from gossamer.protocol.encoding import decode, encode
from gossamer.randomness import Stream, stream
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.pool import BlankSides, Pool
from gossamer.sides.sums import DrawnTurns, RoundSum, round_sum
from gossamer.vectors import Coordinates, Masked, Public, Released

N, FEATURES, STEPS = 8, 5, 6
PROVED = ("batch", "clipped_sum")
FALLING = StepSizes(0.5, 0.2, 0.5, 3.0, 2.0)
LOSSES = [("logistic", 2), ("softmax", 3), ("squared", None), ("hinge", 2)]


def objective_of(loss: str = "logistic", classes: int | None = 2, l2: float = 0.0) -> LinearModel:
    return LinearModel(loss, FEATURES, classes, l2=l2, dtype=np.float64)


def data_of(classes: int | None = 2, features: Any = None) -> Split:
    x = stream(1).standard_normal((N, FEATURES)).astype(np.float32) if features is None else features
    return Split(x, np.arange(N) % classes if classes else np.linspace(-3, 3, N, dtype=np.float32))


def a_round(
    objective: Objective,
    update: str = "batch",
    mechanism: Mechanism | None = None,
    sampling: BatchSampling | None = None,
    **changes: Any,
) -> Round:
    """Three models, of which the third counts from slot 4 on; step sizes that fall."""
    models = stream(2).standard_normal((4, objective.size))
    swaps = tuple(Swap(step, Released(models[k])) for k, step in enumerate((0, 1, 4, 4)))
    query = Query(sampling or Poisson(0.5), mechanism or NoNoise(0.3), 1.0)
    made = Round(7, swaps, query, STEPS, STEPS, FALLING, update)
    return replace(made, **changes)


def sides(objective: Objective, policy: Any = None, data: Split | None = None) -> Pool:
    return simulated({"a": np.arange(N)}, objective, data or data_of(), 5, policy)


# A slow reference: one example after the other, with the formulas of the interface


def gradient(objective: Objective, data: Split, w: np.ndarray, row: int) -> np.ndarray:
    return np.asarray(objective.clipped_gradients(w[None], data, [np.array([row])], math.inf).sums[0])


def clipped(vector: np.ndarray, clip: float) -> np.ndarray:
    norm = np.linalg.norm(vector)
    return vector * min(1.0, clip / norm) if norm else vector


def eta(task: Round, slot: int) -> float:
    sizes = task.step_sizes
    return sizes.initial / (1 + sizes.beta * (sizes.start + sizes.stride * slot) ** sizes.exponent)


def model_at(task: Round, slot: int) -> np.ndarray:
    return np.asarray([swap.model.values for swap in task.swaps if swap.step <= slot][-1])


def slow_batch(task: Round, turns: DrawnTurns, objective: Objective, data: Split) -> tuple[np.ndarray, np.ndarray]:
    """The clipped sum, and the L2 term of the public slots."""
    where, total, decay = task.where, np.zeros(task.answer_size), np.zeros(task.answer_size)
    for row, slot in zip(*turns):
        if slot < task.until:
            g = where.step * gradient(objective, data, model_at(task, slot), row)[where.slice]
            total += eta(task, slot) / eta(task, 0) * clipped(g, task.query.mechanism.clip)
    for slot in range(task.until):
        w = model_at(task, slot)[where.slice]
        decay += eta(task, slot) / eta(task, 0) * where.step * objective.l2 * w
    return total, decay


def slow_steps(task: Round, turns: DrawnTurns, objective: Objective, data: Split, clip: float) -> np.ndarray:
    """Algorithm 1 of the paper: a local model w that every step moves, rebuilt as base - eta U at a swap."""
    where, u, unit, base, w = task.where, np.zeros(task.answer_size), eta(task, 0), None, np.zeros(0)
    for slot in range(task.until):
        if base is not model_at(task, slot):
            base = model_at(task, slot)
            w = base.copy()
            w[where.slice] -= unit * u
        for row in (row for row, turn in zip(*turns) if turn == slot):
            g = where.step * gradient(objective, data, w, row)[where.slice]
            g = clipped(g, clip) + where.step * objective.l2 * w[where.slice]
            u = u + eta(task, slot) / unit * g
            w[where.slice] -= eta(task, slot) * g
    return u


TURNS = DrawnTurns(np.array([4, 0, 6, 2, 5, 7]), np.array([3, 0, 5, 3, 0, 4]))
WHERES = [Coordinates(), Coordinates(1, 3), Coordinates(0, 2)]


@pytest.mark.parametrize("where", WHERES)
def test_a_batch_is_summed_at_the_models_of_its_slots(where: Coordinates) -> None:
    for sizes, l2, until, (loss, classes) in itertools.product(
        [FALLING, StepSizes(0.5)], [0.0, 0.1], [0, 1, 4, 6], LOSSES
    ):
        objective, data = objective_of(loss, classes, l2), data_of(classes)
        task = a_round(objective, until=until, where=where, step_sizes=sizes)
        found = round_sum(task, TURNS, objective, data)
        total, decay = slow_batch(task, TURNS, objective, data)
        np.testing.assert_allclose(found.total, total, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found.public + np.zeros(task.answer_size), decay, rtol=0, atol=1e-13)


@pytest.mark.parametrize("where", WHERES)
def test_sequential_steps_are_those_of_the_paper(where: Coordinates) -> None:
    for l2, until, loss in itertools.product([0.0, 0.1], [0, 1, 4, 6], ["logistic", "squared"]):
        classes = dict(LOSSES)[loss]
        objective, data = objective_of(loss, classes, l2), data_of(classes)
        for clip in (0.3, math.inf):
            task = a_round(objective, "sequential", NoNoise(clip), until=until, where=where)
            found = round_sum(task, TURNS, objective, data)
            np.testing.assert_allclose(
                found.total, slow_steps(task, TURNS, objective, data, clip), rtol=1e-10, atol=1e-12
            )
            assert not np.any(found.public)


@pytest.mark.parametrize("where", WHERES)
@pytest.mark.parametrize("clip", [0.1, 1e6])
def test_a_clipped_sum_is_all_steps_clipped_at_half_the_clip(clip: float, where: Coordinates) -> None:
    objective, data = objective_of(l2=0.1), data_of()
    task = a_round(objective, "clipped_sum", NoNoise(clip), where=where)
    whole = slow_steps(task, TURNS, objective, data, math.inf)
    found = round_sum(task, TURNS, objective, data)
    np.testing.assert_allclose(found.total, clipped(whole, clip / 2), rtol=1e-10, atol=1e-12)
    assert (np.linalg.norm(whole) > clip / 2) == (clip == 0.1)
    assert not np.any(found.public)  # the L2 term is clipped with the rest


def test_one_model_and_one_step_size_give_the_clipped_gradients_of_the_batch_exactly() -> None:
    objective, data = objective_of(), data_of()
    w = stream(3).standard_normal(objective.size)
    task = a_round(objective, swaps=(Swap(0, Public(w)),), step_sizes=StepSizes(0.1))
    (expected,) = objective.clipped_gradients(w[None], data, [TURNS.rows[np.argsort(TURNS.slots, kind="stable")]], 0.3)[
        0
    ]
    np.testing.assert_array_equal(round_sum(task, TURNS, objective, data).total, expected)


def test_many_models_are_taken_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    objective, data = objective_of(), data_of()
    task = a_round(objective)
    whole = round_sum(task, TURNS, objective, data).total
    monkeypatch.setattr("gossamer.sides.sums._NUMBERS", 2 * objective.size)
    np.testing.assert_allclose(round_sum(task, TURNS, objective, data).total, whole, rtol=1e-14)


# What one example can do


@st.composite
def rounds(draw: st.DrawFn, update: str) -> tuple[Round, DrawnTurns, LinearModel, Split]:
    loss, classes = draw(st.sampled_from(LOSSES))
    objective = objective_of(loss, classes, draw(st.sampled_from([0.0, 0.3])))
    features = draw(hnp.arrays(np.float32, (N, FEATURES), elements=st.floats(-1e3, 1e3, width=32)))
    numbers = st.floats(-10, 10)
    places = sorted(draw(st.lists(st.integers(0, STEPS), max_size=3)))
    models = draw(hnp.arrays(np.float64, (len(places) + 1, objective.size), elements=numbers))
    swaps = tuple(Swap(step, Released(w)) for step, w in zip([0, *places], models))
    step = draw(st.integers(1, 3))
    task = a_round(
        objective,
        update,
        NoNoise(draw(st.floats(1e-3, 1e3))),
        swaps=swaps,
        until=draw(st.integers(0, STEPS)),
        step_sizes=StepSizes(
            *(draw(st.floats(low, high)) for low, high in ((1e-3, 10), (0, 5), (0, 2), (0, 9), (0, 9)))
        ),
        where=Coordinates(draw(st.integers(0, step - 1)), step),
    )
    rows = np.array(draw(st.lists(st.integers(0, N - 1), unique=True, min_size=1, max_size=N)), np.int64)
    slots = draw(hnp.arrays(np.int64, len(rows), elements=st.integers(0, STEPS - 1)))
    return task, DrawnTurns(rows, slots), objective, data_of(classes, features)


def without(turns: DrawnTurns, index: int) -> DrawnTurns:
    return DrawnTurns(np.delete(turns.rows, index), np.delete(turns.slots, index))


MANY = settings(max_examples=examples(300), deadline=None, derandomize=True)


@MANY
@given(st.data())
def test_one_example_moves_a_batch_by_its_clip_at_most(data: st.DataObject) -> None:
    """Added or removed; what is public does not move at all. Rounding: 8 additions of numbers of size C."""
    task, turns, objective, split = data.draw(rounds("batch"))
    index = data.draw(st.integers(0, len(turns.rows) - 1))
    present = round_sum(task, turns, objective, split)
    absent = round_sum(task, without(turns, index), objective, split)
    clip = task.query.mechanism.clip
    assert np.linalg.norm(present.total - absent.total) <= clip * (1 + 1e-12)
    np.testing.assert_array_equal(present.public, absent.public)


@MANY
@given(st.data())
def test_the_share_of_an_example_in_a_batch_is_its_own(data: st.DataObject) -> None:
    """The sum is that of every example alone, so nobody's model or weight depends on who else is there."""
    task, turns, objective, split = data.draw(rounds("batch"))
    alone = [
        round_sum(task, DrawnTurns(turns.rows[i : i + 1], turns.slots[i : i + 1]), objective, split).total
        for i in range(len(turns.rows))
    ]
    found = round_sum(task, turns, objective, split).total
    np.testing.assert_allclose(found, np.sum(alone, axis=0), rtol=0, atol=1e-12 * task.query.mechanism.clip)


@MANY
@given(st.data())
def test_a_clipped_sum_is_as_short_for_all_data(data: st.DataObject) -> None:
    """Then any two are at most the mechanism's clip apart."""
    task, turns, objective, split = data.draw(rounds("clipped_sum"))
    found = round_sum(task, turns, objective, split)
    assert np.linalg.norm(found.total) <= task.query.mechanism.clip / 2 * (1 + 1e-12)
    assert not np.any(found.public)


def test_steps_without_bounds_end_in_a_finite_clipped_sum() -> None:
    """With step sizes far above 2/l2 U overflows: it counts as zero, and the private log hears of it."""
    objective, data = objective_of("squared", None, l2=1e200), data_of(None)
    task = a_round(objective, "clipped_sum", NoNoise(1.0), step_sizes=StepSizes(1e200))
    found = round_sum(task, TURNS, objective, data)
    assert not np.any(found.total)
    assert found.zeroed > 0


def test_an_example_that_is_not_finite_counts_as_zero_and_is_counted() -> None:
    features = stream(1).standard_normal((N, FEATURES)).astype(np.float32)
    features[4] = np.nan
    objective = objective_of()
    for update in ("batch", "clipped_sum", "sequential"):
        found = round_sum(a_round(objective, update), TURNS, objective, data_of(2, features))
        assert found.zeroed == 1
        left = round_sum(a_round(objective, update), without(TURNS, 0), objective, data_of(2, features))
        np.testing.assert_allclose(found.total, left.total, rtol=1e-12)


# One release


def test_the_answer_is_noise_and_sum_of_the_examples_drawn() -> None:
    """With the generators that the data side keys by its ledger's count: drawn first, then their slots."""
    objective, data = objective_of(l2=0.1), data_of()
    where = sides(objective)
    for number in (1, 2):
        task = a_round(objective, mechanism=Gaussian(0.3, 2.0), until=4, where=Coordinates(1, 2))
        (answer,) = where.compute([where.admit("a", task)])
        sampling = Stream(5, "a", "sampling").at(number)
        rows = Poisson(0.5).draw(sampling, N)
        turns = DrawnTurns(rows, sampling.integers(STEPS, size=len(rows)))
        noise = 0.6 * Stream(5, "a", "noise").at(number).standard_normal(task.answer_size)
        total, decay = slow_batch(task, turns, objective, data)
        assert type(answer.released) is Released
        np.testing.assert_allclose(answer.released.values, total + decay + noise, rtol=0, atol=1e-12)


def test_a_round_is_on_the_nodes_own_examples() -> None:
    """All of them take part, at one step, so that the sums are those of rows 1, 5 and of rows 2, 3, 7."""
    objective, data = objective_of(), data_of()
    shards = {"a": [5, 1], "b": [2, 7, 3]}
    where = simulated(shards, objective, data, 5)
    swaps = (Swap(0, Public(np.ones(objective.size))),)
    task = a_round(objective, sampling=Poisson(1.0), swaps=swaps, steps=1, until=1)
    answers = where.compute([where.admit(name, task) for name in shards])
    for found, rows in zip(answers, shards.values()):
        expected, _ = slow_batch(task, DrawnTurns(np.array(rows), np.zeros(len(rows), np.int64)), objective, data)
        np.testing.assert_allclose(found.released.values, expected, rtol=1e-12)


@pytest.mark.parametrize("update", PROVED)
def test_the_charge_comes_before_batch_and_noise(update: str, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def spy(cls: type, name: str) -> None:
        original = getattr(cls, name)

        def observed(self: Any, *args: Any) -> Any:
            order.append(name)
            return original(self, *args)

        monkeypatch.setattr(cls, name, observed)

    for cls, name in ((MemoryLedger, "charge"), (Poisson, "draw"), (Poisson, "slots"), (Gaussian, "noise")):
        spy(cls, name)
    objective = objective_of()
    where = sides(objective)
    ticket = where.admit("a", a_round(objective, update, Gaussian(0.3, 2.0)))
    assert order == ["charge"]
    where.compute([ticket])
    assert order == ["charge", "draw", "slots", "noise"]


def test_what_is_charged_is_the_release_that_was_planned() -> None:
    """Rounds on different coordinates are one kind, and a round that the plan does not cover is not computed."""
    objective = objective_of()
    tasks = [a_round(objective, mechanism=Gaussian(0.3, 2.0), where=Coordinates(first, 4)) for first in range(4)]
    assert {task.answer_size for task in tasks} == {1, 2}
    kind = tasks[0].query.release(objective.size)
    where = sides(objective, ReleasePlan({kind: 4}))
    where.compute([where.admit("a", task) for task in tasks])
    assert where.sides["a"].ledger.counts == {kind: 4}
    with pytest.raises(BudgetSpent, match="the plan covers 4"):
        where.admit("a", tasks[0])
    with pytest.raises(BudgetSpent, match="not in the plan"):
        where.admit("a", a_round(objective, mechanism=Gaussian(0.3, 1.9)))


@pytest.mark.parametrize("update", PROVED)
def test_nobody_drawn_or_nothing_done_is_noised_and_answered(update: str) -> None:
    objective = objective_of(l2=0.1)
    where = sides(objective)
    for sampling, until in ((Poisson(1e-12), STEPS), (Poisson(0.5), 0)):
        task = a_round(objective, update, Gaussian(0.3, 2.0), sampling, until=until)
        (answer,) = where.compute([where.admit("a", task)])
        assert np.all(answer.released.values != 0)


def test_what_nothing_bounds_saturates() -> None:
    objective, data = objective_of("squared", None, l2=1e200), data_of(None)
    where = sides(objective, data=data)
    task = a_round(objective, "sequential", Gaussian(1.0, 1.0), WithReplacement(N, STEPS), step_sizes=StepSizes(1e200))
    (answer,) = where.compute([where.admit("a", task)])
    assert np.isfinite(answer.released.values).all()


def test_rounds_and_gradients_in_one_call_are_answered_in_order() -> None:
    objective = objective_of()
    asked: list[Gradient | Round] = [
        a_round(objective),
        Gradient(1, Public(np.ones(objective.size)), Query(Poisson(0.5), NoNoise(), 2.0)),
        a_round(objective, "clipped_sum", where=Coordinates(0, 2)),
    ]
    together, apart = sides(objective), sides(objective)
    joint = together.compute([together.admit("a", task) for task in asked])
    alone = [apart.compute([apart.admit("a", task)])[0] for task in asked]
    assert joint == alone
    assert len({answer.released.size for answer in joint}) == 2


def test_the_null_data_side_charges_the_same_and_has_nothing() -> None:
    objective = objective_of()
    null, task = BlankSides(), a_round(objective, where=Coordinates(1, 3), until=0)
    ticket = null.amended(null.admit("a", task), task.swapped(4, Public(np.ones(objective.size)), 5))
    (answer,) = null.compute([ticket])
    assert answer.released.size == task.answer_size
    assert null.counts == {"a": {task.release: 1}}


# What a round may become


def test_a_round_that_became_another_is_computed_as_it_became() -> None:
    objective, data = objective_of(l2=0.1), data_of()
    where = sides(objective)
    task = a_round(objective, swaps=a_round(objective).swaps[:1], until=2)
    model = Released(stream(9).standard_normal(objective.size))
    became = task.swapped(2, model, 5).cut(4)
    (answer,) = where.compute([where.amended(where.admit("a", task), became)])
    sampling = Stream(5, "a", "sampling").at(1)
    rows = Poisson(0.5).draw(sampling, N)
    total, decay = slow_batch(became, DrawnTurns(rows, sampling.integers(STEPS, size=len(rows))), objective, data)
    np.testing.assert_allclose(answer.released.values, total + decay, rtol=0, atol=1e-12)
    assert where.releases("a") == 1


def others(task: Round) -> dict[str, Round]:
    query, swaps = task.query, task.swaps
    return {
        "id": replace(task, id=8),
        "less noise": replace(task, query=replace(query, mechanism=Gaussian(0.3, 1.0))),
        "another clip": replace(task, query=replace(query, mechanism=Gaussian(9.0, 2.0))),
        "another rate": replace(task, query=replace(query, sampling=Poisson(1.0))),
        "more steps": replace(task, steps=STEPS + 1),
        "step sizes": replace(task, step_sizes=StepSizes(9.0)),
        "update": replace(task, update="clipped_sum"),
        "coordinates": replace(task, where=Coordinates(1, 2)),
        "fewer models": replace(task, swaps=swaps[:-1]),
        "another model": replace(task, swaps=(Swap(0, swaps[1].model), *swaps[1:])),
        "another place": replace(task, swaps=(swaps[0], Swap(2, swaps[1].model), *swaps[2:])),
    }


@pytest.mark.parametrize("change", others(a_round(objective_of(), mechanism=Gaussian(0.3, 2.0))))
def test_a_round_becomes_no_other_than_the_one_admitted(change: str) -> None:
    objective = objective_of()
    task = a_round(objective, mechanism=Gaussian(0.3, 2.0))
    for computer in (sides(objective), BlankSides()):
        ticket: Any = computer.admit("a", task)
        with pytest.raises(SpecError, match="only models are swapped into the admitted round 7"):
            computer.amended(ticket, others(task)[change])


def test_a_round_is_answered_once() -> None:
    """Two answers at different models would have the same noise: their difference would be data without any."""
    objective = objective_of()
    where = sides(objective)
    ticket = where.admit("a", a_round(objective, mechanism=Gaussian(0.3, 2.0)))
    later = where.amended(ticket, ticket.task.swapped(5, Public(np.ones(objective.size)), 6))
    where.compute([ticket])
    for again in (ticket, later):
        with pytest.raises(SpecError, match="a charge is answered once"):
            where.compute([again])


# What is no round


GOOD = a_round(objective_of(), mechanism=Gaussian(0.3, 2.0))
ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"swaps": ()}, "first model at step 0"),
        ({"swaps": (Swap(1, GOOD.model),)}, "first model at step 0"),
        ({"swaps": (Swap(0, GOOD.model), Swap(3, GOOD.model), Swap(2, GOOD.model))}, "in order"),
        ({"swaps": (Swap(0, GOOD.model), Swap(STEPS + 1, GOOD.model))}, "in order"),
        ({"swaps": (Swap(0, GOOD.model), Swap(1, Public(np.ones(2))))}, "one size"),
        ({"steps": 0, "until": 0, "swaps": (Swap(0, GOOD.model),)}, "at least 1 step"),
        ({"until": -1}, "takes 0 to 6"),
        ({"until": STEPS + 1}, "takes 0 to 6"),
        ({"update": "stream"}, "batch, clipped_sum, sequential"),
        ({"where": Coordinates(6, 7)}, "start below"),
        ({"query": replace(GOOD.query, normaliser=2.0)}, "normaliser 1"),
        ({"query": replace(GOOD.query, unit=2.0)}, "unit 1"),
        ({"query": replace(GOOD.query, count_share=0.1)}, "no count"),
        ({"query": replace(GOOD.query, sampling=FixedSize(N, 5))}, "one step for each example"),
        ({"query": replace(GOOD.query, mechanism=L2Laplace(1.0, 1.0, ADD)), "where": Coordinates(0, 2)}, "Gaussian"),
    ],
)
def test_a_round_that_makes_no_sense_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match=reason):
        replace(GOOD, **changes)


@pytest.mark.parametrize("sampling", [Poisson(0.5), FixedSize(N, STEPS)])
def test_nothing_unproved_is_charged_as_if_it_were(sampling: BatchSampling) -> None:
    """The ledger has only law and sampling of a release, so a sequential round must differ in one of them."""
    with pytest.raises(SpecError, match="nothing is proved for sequential rounds"):
        a_round(objective_of(), "sequential", Gaussian(0.3, 2.0), sampling)
    assert a_round(objective_of(), "sequential", NoNoise(), sampling).update == "sequential"


@pytest.mark.parametrize("model", [np.ones(3), Masked(np.ones(3))])
def test_only_what_is_free_of_raw_data_is_swapped_in(model: Any) -> None:
    with pytest.raises(SpecError, match="public or released"):
        Swap(0, model)


@pytest.mark.parametrize(
    ("sizes", "update", "reason"),
    [
        (StepSizes(0.5, -0.01, stride=1.0), "batch", "no step of a batch round is larger than its first"),
        (StepSizes(0.5, -0.5, stride=1.0), "clipped_sum", "positive in all 6 steps"),
        (StepSizes(0.5, 0.0, 400.0, 0.0, 1e300), "batch", "positive in all 6 steps"),
    ],
)
def test_step_sizes_that_would_break_a_bound_are_refused_before_the_charge(
    sizes: StepSizes, update: str, reason: str
) -> None:
    objective = objective_of()
    where = sides(objective)
    with pytest.raises(SpecError, match=reason):
        where.admit("a", a_round(objective, update, Gaussian(0.3, 2.0), step_sizes=sizes))
    assert where.releases("a") == 0


def test_growing_steps_are_no_matter_where_the_sum_is_clipped() -> None:
    objective = objective_of()
    sizes = StepSizes(0.5, -0.01, stride=1.0)
    task = a_round(objective, "clipped_sum", NoNoise(1e9), step_sizes=sizes)
    found = round_sum(task, TURNS, objective, data_of())
    np.testing.assert_allclose(found.total, slow_steps(task, TURNS, objective, data_of(), math.inf), rtol=1e-10)


@pytest.mark.parametrize(
    "sizes",
    [{"initial": 0.0}, {"initial": math.inf}, {"start": -1.0}, {"stride": math.nan}, {"beta": -2.0, "start": 1.0}],
)
def test_step_sizes_are_numbers_above_zero(sizes: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=r"(initial|start|stride) must be a finite number|step sizes"):
        StepSizes(**{"initial": 0.1, **sizes})


def test_step_sizes_follow_their_formula() -> None:
    """0.6 / (1 + 0.5 sqrt(4 + 5 h)): 0.6/2 at h = 0, 0.6/2.5 at h = 1, 0.6/3.5 at h = 4 (sqrt(24) is not a number
    to quote, so h = 9 instead: sqrt(49) = 7, 0.6/4.5)."""
    sizes = StepSizes(0.6, 0.5, 0.5, 4.0, 5.0)
    np.testing.assert_allclose(sizes.at(np.array([0, 1, 9])), [0.6 / 2, 0.6 / 2.5, 0.6 / 4.5], rtol=1e-15)
    assert sizes.first == pytest.approx(0.3, rel=1e-15)
    np.testing.assert_array_equal(StepSizes(0.25, 3.0).at(np.arange(3)), [0.25] * 3)


def test_a_round_survives_the_wire() -> None:
    task = replace(GOOD, where=Coordinates(1, 2)).swapped(5, Public(np.ones(6)), 6)
    assert decode(encode(Compute(task))) == Compute(task)
    assert (task.answer_size, task.release) == (3, GOOD.query.release(6))
    assert task.model == GOOD.model


def test_a_gradient_is_one_step() -> None:
    task = Gradient(1, Public(np.ones(3)), GOOD.query)
    assert (task.steps, task.release) == (1, GOOD.query.release(3))


def test_what_a_data_side_computes_is_raw() -> None:
    """Nothing of it has a label before it is noised."""
    objective = objective_of()
    found = round_sum(a_round(objective), TURNS, objective, data_of())
    assert type(found) is RoundSum
    assert type(found.total) is np.ndarray
