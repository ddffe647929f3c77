"""The data side: charge before noise, a public normaliser, and nothing without a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from tests.reference.pools import simulated

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent
from gossamer.objectives.objective import Clip, Evaluation, Gradients, Objective
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import BatchSampling, FixedSize, Gaussian, Mechanism, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides import samples
from gossamer.sides.home import FloatNoise
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.pool import BlankSides, Pool
from gossamer.vectors import Part, Public, Released

SIZE = 3
DATA = Split(np.arange(12, dtype=np.float32).reshape(4, SIZE), np.zeros(4, np.int64))


class SumOfRows(Objective):
    """The "gradient" of an example is its features, whatever the model: sums are then plain to see."""

    size, dtype, parts = SIZE, np.dtype(np.float64), (Part("weight", (SIZE,)),)

    def __init__(self, l2: float = 0.0) -> None:
        self.l2 = l2
        self.calls: list[list[list[int]]] = []
        self.clips: list[float] = []

    def initial(self, generator: np.random.Generator) -> FloatArray:
        return np.zeros(SIZE)

    def clipped_gradients(
        self, models: FloatArray, data: Split, batches: Sequence[IndexArray], clip: Clip
    ) -> Gradients:
        self.calls.append([batch.tolist() for batch in batches])
        self.clips = np.broadcast_to(clip, len(batches)).tolist()
        sums = np.stack([np.asarray(data.features)[batch].sum(axis=0) for batch in batches])
        return Gradients(sums.astype(np.float64), *np.zeros((2, len(batches)), np.int64))

    def evaluate(self, models: FloatArray, split: Split) -> Evaluation:
        raise NotImplementedError


def sides(objective: Objective, policy: Any = None, shards: Sequence[Sequence[int]] = ((0, 1, 2, 3),)) -> Pool:
    return simulated({f"node-{i}": shard for i, shard in enumerate(shards)}, objective, DATA, 1, policy)


def task(
    mechanism: Mechanism, sampling: BatchSampling | None = None, number: int = 1, normaliser: float = 2.0
) -> Gradient:
    model = Public(np.array([1.0, 2.0, 3.0]))
    return Gradient(number, model, Query(sampling or Poisson(1.0), mechanism, normaliser))


def answer(where: Pool, what: Gradient, node: str = "node-0") -> Released:
    (answered,) = where.compute([where.admit(node, what)])
    return answered.released


def test_the_mean_divides_by_the_public_normaliser() -> None:
    """Rows 0..3 sum to (18, 22, 26); the normaliser is 2 although the batch holds 4."""
    released = answer(sides(SumOfRows()), task(NoNoise()))
    assert type(released) is Released
    np.testing.assert_array_equal(released.values, [9, 11, 13])


def test_the_regulariser_is_added_after_the_noise_and_the_mean() -> None:
    released = answer(sides(SumOfRows(l2=0.5)), task(NoNoise()))
    np.testing.assert_array_equal(released.values, [9 + 0.5, 11 + 1.0, 13 + 1.5])


def test_a_batch_is_of_the_nodes_own_rows() -> None:
    objective = SumOfRows()
    where = sides(objective, shards=[(0, 2), (1, 3)])
    tickets = [where.admit(node, task(NoNoise())) for node in ("node-1", "node-0")]
    where.compute(tickets)
    assert objective.calls == [[[1, 3], [0, 2]]]


def test_an_empty_batch_is_noised_and_answered() -> None:
    released = answer(sides(SumOfRows()), task(Gaussian(1.0, 2.0), Poisson(1e-12)))
    assert np.all(released.values != 0)


def test_the_charge_comes_before_batch_and_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of a release, observed from inside: charge, then batch, then noise."""
    order: list[str] = []

    def spy(where: Any, name: str) -> None:
        original = getattr(where, name)

        def observed(*args: Any) -> Any:
            order.append(name)
            return original(*args)

        monkeypatch.setattr(where, name, observed)

    spy(MemoryLedger, "charge")
    spy(samples, "sampled")
    spy(FloatNoise, "noisy")
    answer(sides(SumOfRows()), task(Gaussian(1.0, 1.0)))
    assert order == ["charge", "sampled", "noisy"]


def test_what_the_ledger_refuses_is_not_computed() -> None:
    mechanism = Gaussian(1.0, 1.0)
    kind = task(mechanism).query.release(SIZE)
    objective = SumOfRows()
    where = sides(objective, ReleasePlan({kind: 2}))
    answer(where, task(mechanism))
    answer(where, task(mechanism))
    with pytest.raises(BudgetSpent, match="the plan covers 2 releases"):
        where.admit("node-0", task(mechanism))
    assert len(objective.calls) == 2
    assert where.releases("node-0") == 2


@pytest.mark.parametrize(
    "other",
    [
        task(Gaussian(1.0, 0.9)),
        task(NoNoise()),
        task(Gaussian(1.0, 1.0), Poisson(0.5)),
        task(Gaussian(1.0, 1.0), FixedSize(4, 2)),
    ],
    ids=["less noise", "no noise", "another rate", "another sampling"],
)
def test_a_node_cannot_ask_for_another_kind_than_planned(other: Gradient) -> None:
    planned = task(Gaussian(1.0, 1.0)).query.release(SIZE)
    where = sides(SumOfRows(), ReleasePlan({planned: 5}))
    with pytest.raises(BudgetSpent, match="not in the plan"):
        where.admit("node-0", other)


def test_a_larger_clip_is_the_same_kind_because_the_noise_grows_with_it() -> None:
    """What is planned is noise relative to the clip; at clip 1000 the answer is (18, 22, 26)/2 + N(0, 500^2), which is
    beyond 5 sd with probability 6e-7, and closer than 1 in all three coordinates with 4e-9."""
    planned = task(Gaussian(1.0, 1.0)).query.release(SIZE)
    where = sides(SumOfRows(), ReleasePlan({planned: 5}))
    error = answer(where, task(Gaussian(1000.0, 1.0))).values - [9, 11, 13]
    assert 1 < np.abs(error).max() < 2500


def test_no_two_releases_share_noise_whatever_a_node_says() -> None:
    """Same model, same task number, same data: still other noise, at one node and across nodes."""
    where = sides(SumOfRows(), shards=[(0, 1, 2, 3)] * 2)
    answers = [answer(where, task(Gaussian(1.0, 1.0)), node) for node in ("node-0", "node-0", "node-1", "node-1")]
    for i, first in enumerate(answers):
        for second in answers[:i]:
            assert not np.any(first.values == second.values)


def test_the_noise_has_the_mechanisms_scale() -> None:
    """Sum + N(0, (z C)^2), over the normaliser. With 4,000 x 3 draws the sd is within 4 % with
    probability 1 - 5e-10 (chi-squared); a noise on the mean instead of the sum would be off by a factor of 2."""
    where = sides(SumOfRows())
    draws = np.stack([answer(where, task(Gaussian(0.5, 4.0))).values for _ in range(4000)])
    centred = draws - np.array([9, 11, 13])
    assert abs(centred.std() / (4.0 * 0.5 / 2.0) - 1) < 0.04


def test_together_or_alone_the_answers_are_the_same() -> None:
    apart, together = sides(SumOfRows(), shards=[(0, 1), (2, 3)]), sides(SumOfRows(), shards=[(0, 1), (2, 3)])
    names = ("node-0", "node-1")
    alone = [answer(apart, task(Gaussian(1.0, 1.0)), name) for name in names]
    joint = together.compute([together.admit(name, task(Gaussian(1.0, 1.0))) for name in names])
    assert alone == [item.released for item in joint]


def test_tasks_of_different_clips_are_not_mixed() -> None:
    objective = SumOfRows()
    where = sides(objective, shards=[(0,), (1,), (2,)])
    clips = {"node-0": 1.0, "node-1": 2.0, "node-2": 1.0}
    answers = where.compute([where.admit(name, task(NoNoise(clip))) for name, clip in clips.items()])
    assert objective.calls == [[[0], [1], [2]]]
    assert objective.clips == [1.0, 2.0, 1.0]
    np.testing.assert_array_equal([item.released.values[0] for item in answers], [0.0, 1.5, 3.0])


def test_without_noise_an_overflow_saturates() -> None:
    class Overflowing(SumOfRows):
        def clipped_gradients(self, *args: Any) -> Gradients:
            return Gradients(np.array([[np.inf, -np.inf, 1.0]]), *np.zeros((2, 1), np.int64))

    values = answer(sides(Overflowing()), task(NoNoise())).values
    assert np.isfinite(values).all()
    assert (values[0] > 1e300, values[1] < -1e300) == (True, True)


def test_the_null_data_side_counts_the_same_and_has_nothing() -> None:
    null = BlankSides()
    what = task(Gaussian(1.0, 1.0))
    (answered,) = null.compute([null.admit("node-0", what)])
    assert answered.released.size == SIZE
    assert null.counts == {"node-0": {what.query.release(SIZE): 1}}
