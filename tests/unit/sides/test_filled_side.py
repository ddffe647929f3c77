"""Every answer is computed on as many examples, and is what it would be without those that nobody has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.reference import pools

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Clip, Evaluation, Gradients, Objective
from gossamer.privacy.mechanisms import BatchSampling, FixedSize, Gaussian, Laplace, Mechanism, Poisson, provided_for
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.sides import sums
from gossamer.sides.sums import DrawnTurns, RoundSum, nobody_like, round_sum
from gossamer.vectors import Coordinates, Part, Public

N, STEPS = 400, 8
LAW = Gaussian(1.0, 1e-6)


class Counting(Objective):
    """Every gradient is (1, 0, 0), whatever the example; whose examples were computed is noted."""

    size, dtype, parts, l2 = 3, np.dtype(np.float32), (Part("weight", (3,)),), 0.0

    def __init__(self) -> None:
        self.own, self.nobody = 0, 0

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return np.zeros(3, np.float32)

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        count = sum(map(len, batches))
        if len(data) == N:
            self.own += count
        else:
            assert len(data) == 1
            self.nobody += count
        sums = np.array([[len(batch), 0, 0] for batch in batches], np.float32)
        zeros = np.zeros(len(batches), np.int64)
        return Gradients(sums, zeros, zeros)

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        raise NotImplementedError


def data() -> Split:
    return Split(np.ones((N, 2), np.float32), np.zeros(N, np.int64))


def side_of(objective: Objective, made: Any = pools.filled, examples: Split | None = None) -> Any:
    return made(objective, examples or data())


def gradient(sampling: BatchSampling, law: Mechanism = LAW) -> Gradient:
    return Gradient(1, Public(np.zeros(3, np.float32)), Query(sampling, law, 1.0))


def a_round(sampling: BatchSampling, update: str, until: int = STEPS, where: Coordinates | None = None) -> Round:
    model = Public(np.zeros(3, np.float32))
    query = Query(sampling, LAW, 1.0)
    return Round(1, (Swap(0, model),), query, STEPS, until, StepSizes(0.1), update, where or Coordinates())


TASKS = {
    "gradient": gradient(Poisson(0.05)),
    "floating point": gradient(Poisson(0.05), Laplace(1.0, 50.0)),
    "fixed": gradient(FixedSize(N, 20)),
    "batch": a_round(Poisson(0.05), "batch"),
    "cut": a_round(Poisson(0.05), "batch", until=3),
    "cut before its first step": a_round(Poisson(0.05), "batch", until=0),
    "clipped sum": a_round(Poisson(0.05), "clipped_sum"),
    "a part": a_round(Poisson(0.05), "batch", where=Coordinates(1, 2)),
    "fixed round": a_round(FixedSize(N, STEPS), "clipped_sum", until=5),
}


@pytest.mark.parametrize("name", TASKS)
def test_every_answer_is_computed_on_as_many(name: str) -> None:
    objective, task = Counting(), TASKS[name]
    side = side_of(objective)
    until, steps = (task.until, task.steps) if isinstance(task, Round) else (1, 1)
    most = provided_for(task.query.sampling, N, until, steps)
    sampled = set()
    for _ in range(20):
        objective.own = objective.nobody = 0
        side.compute([side.admit("a", task)])
        assert objective.own + objective.nobody == most
        sampled.add(objective.own)
    if isinstance(task.query.sampling, Poisson) and until:
        assert len(sampled) > 1, "all samples had one size: in a run of 1e9 or fewer"
    assert side.provided_for(side.admit("a", task)) == most


@pytest.mark.parametrize("name", ["batch", "cut", "cut before its first step"])
def test_examples_whose_turn_did_not_come_take_no_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network's examples are summed one at a time: where a round is cut, how many were drawn must not show."""
    calls: list[int] = []

    def counted(task: Round, turns: DrawnTurns, *rest: Any) -> RoundSum:
        calls.extend([len(turns.rows)] * bool(len(turns.rows)))
        return round_sum(task, turns, *rest)

    monkeypatch.setattr(sums, "round_sum", counted)
    side, task, sizes = side_of(Counting()), TASKS[name], set()
    for _ in range(20):
        calls.clear()
        side.compute([side.admit("a", task)])
        sizes.add((len(calls), sum(calls)))
    assert len(sizes) == 1


def test_a_sample_that_is_larger_is_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poisson, "draw", lambda self, generator, count: np.arange(count))
    objective = Counting()
    side = side_of(objective)
    (found,) = side.compute([side.admit("a", gradient(Poisson(0.01)))])
    assert (objective.own, objective.nobody) == (N, 0)
    assert found.released.values[0] == pytest.approx(N, abs=0.01)


@pytest.mark.parametrize("name", [name for name in TASKS if name != "floating point"])
def test_an_answer_is_what_it_is_without_those(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same sample, up to noise of 1e-6 of the clip; of six deviations, once in 1e8 times."""
    drawn = np.arange(5, 25) if not isinstance(TASKS[name], Round) else np.arange(STEPS)
    for kind in (Poisson, FixedSize):
        monkeypatch.setattr(kind, "draw", lambda self, generator, count: drawn)
        monkeypatch.setattr(kind, "slots", lambda self, generator, drawn, steps: np.arange(drawn) % steps)
    objective, task = LinearModel("softmax", 4, 3), TASKS[name]
    generator = np.random.default_rng(2)
    examples = Split(generator.normal(size=(N, 4)).astype(np.float32), generator.integers(0, 3, N))
    model = Public(generator.normal(size=objective.size).astype(np.float32))
    task = replace(task, swaps=(Swap(0, model),)) if isinstance(task, Round) else replace(task, model=model)
    found = []
    for made in (pools.filled, pools.deployed):
        side = side_of(objective, made, examples)
        (answer,) = side.compute([side.admit("a", task)])
        found.append(answer.released.values)
    np.testing.assert_allclose(found[0], found[1], atol=2 * 6e-6)
    assert np.abs(found[1]).max() > 0.01 or (isinstance(task, Round) and not task.until)


@pytest.mark.parametrize("name", TASKS)
def test_a_rehearsal_is_charged_nothing_and_sees_nobodys_examples(name: str) -> None:
    objective, task = Counting(), TASKS[name]
    side = side_of(objective)
    ticket = side.admit("a", task)
    side.rehearse(ticket, 17)
    until = task.until if isinstance(task, Round) else 1
    assert (objective.own, objective.nobody) == (0, 17 if until else 0)
    assert side.releases("a") == 1
    side.compute([ticket])  # it is still to be answered


@pytest.mark.parametrize(("models", "provided"), [(1, 1), (2, 2), (5, 8), (8, 8)])
def test_a_rehearsal_has_as_many_models_as_its_deadline_provides_for(
    models: int, provided: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network's examples are summed one at a time, each with all models at hand, so that many take longer."""
    rehearsed: list[tuple[int, tuple[int, ...]]] = []

    def noted(task: Round, turns: DrawnTurns, *rest: Any) -> RoundSum:
        rehearsed.append((len({swap.step for swap in task.swaps}), tuple(turns.slots)))
        return round_sum(task, turns, *rest)

    monkeypatch.setattr(sums, "round_sum", noted)
    task = a_round(Poisson(0.05), "batch")
    task = replace(task, swaps=tuple(Swap(step, task.model) for step in range(models)))
    side = side_of(Counting())
    side.rehearse(side.admit("a", task), STEPS)
    assert {found for found, _ in rehearsed} == {provided}
    assert sorted(slot for _, slots in rehearsed for slot in slots) == list(range(STEPS))  # at every step
    assert task.models_provided_for == provided


@pytest.mark.parametrize("shape", [(7,), (2, 5, 5)])
@pytest.mark.parametrize("targets", [np.arange(4), np.ones(4, np.float32)])
def test_nobody_looks_like_the_examples_and_depends_on_their_form_alone(shape: tuple[int, ...], targets: Any) -> None:
    found = nobody_like(Split(np.zeros((4, *shape), np.float32), targets))
    again = nobody_like(Split(np.full((4, *shape), 9, np.float32), targets[::-1]))
    assert found.features.shape == (1, *shape)
    assert (found.features.dtype, found.targets.dtype) == (np.float32, targets.dtype)
    np.testing.assert_array_equal(found.features, again.features)
    np.testing.assert_array_equal(found.targets, again.targets)


def test_of_sparse_examples_nobody_has_as_many_features_as_there_may_be() -> None:
    """So that none of the shard's takes longer."""
    found = nobody_like(Split(sp.csr_array(np.eye(4, 30, dtype=np.float32)), np.zeros(4, np.int64)))
    assert found.sparse
    assert found.features.nnz == 30
