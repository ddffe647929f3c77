"""Many gradients in one call: each is what its party gives alone, with a charge, a sample and noise of its own."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import scipy.sparse as sp
from tests.reference.pools import simulated

from gossamer.data.examples import Split
from gossamer.errors import BudgetSpent
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides.machine import SideAnswer
from gossamer.sides.pool import Pool
from gossamer.vectors import Public, Released

FEATURES, PARTIES = 7, 5
GENERATOR = np.random.default_rng(0)
DENSE = Split(GENERATOR.random((60, FEATURES), dtype=np.float32), GENERATOR.integers(0, 2, 60))
SHARDS = [tuple(range(start, 60, PARTIES)) for start in range(PARTIES)]
QUERIES = (
    Query(Poisson(0.4), Gaussian(1.0, 1.5), 4.0),
    Query(Poisson(0.9), Gaussian(0.01, 0.7), 3.0, unit=2.5),
)


def pool(objective: LinearModel, data: Split = DENSE, policy: ReleasePlan | None = None) -> Pool:
    return simulated({f"node-{i}": shard for i, shard in enumerate(SHARDS)}, objective, data, 1, policy)


def gradient(number: int, objective: LinearModel, query: Query) -> Gradient:
    model = np.random.default_rng(number).standard_normal(objective.size).astype(objective.dtype)
    return Gradient(number, Public(model), query)


def asked(where: Pool, objective: LinearModel, query: Query | None = None) -> list[SideAnswer]:
    """Three gradients of each party, in one call."""
    tasks = [
        (f"node-{i}", gradient(10 * i + n, objective, query or QUERIES[(i + n) % 2]))
        for n in range(3)
        for i in range(PARTIES)
    ]
    return where.compute([where.admit(*task) for task in tasks])


def same(one: Sequence[SideAnswer], other: Sequence[SideAnswer]) -> bool:
    return [(a.released, a.not_finite) for a in one] == [(a.released, a.not_finite) for a in other]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_in_company_each_is_what_it_is_alone(dtype: type) -> None:
    for loss, sparse in itertools.product(["logistic", "softmax", "hinge"], [False, True]):
        data = Split(sp.csr_array(DENSE.features), DENSE.targets) if sparse else DENSE
        objective = LinearModel(loss, FEATURES, 2, l2=0.1, dtype=dtype)
        together, alone = pool(objective, data), pool(objective, data)
        for side in alone.sides.values():
            side.rule._place = None  # type: ignore[attr-defined]  # no window takes it in
        assert same(asked(together, objective), asked(alone, objective))


def test_each_release_has_a_sample_and_noise_of_its_own() -> None:
    objective = LinearModel("logistic", FEATURES, 2)
    query = Query(Poisson(1e-9), Gaussian(1.0, 1.0), 1.0)  # nothing but noise
    found = [answer.released for answer in asked(pool(objective), objective, query)]
    assert len({vector.values.tobytes() for vector in found}) == len(found)
    assert all(type(vector) is Released and vector.values.base is None for vector in found)
    assert 0.7 < np.std([vector.values for vector in found]) < 1.3


def test_what_is_refused_among_others_is_not_charged_and_changes_no_other() -> None:
    objective = LinearModel("logistic", FEATURES, 2)
    kind = QUERIES[0].release(objective.size)
    where, whole = pool(objective, policy=ReleasePlan({kind: 2})), pool(objective)
    tickets, expected = [], []
    for n in range(4):
        for name in where.sides:
            task = gradient(n, objective, QUERIES[0])
            if n < 2:
                tickets.append(where.admit(name, task))
                expected.append(whole.admit(name, task))
                continue
            with pytest.raises(BudgetSpent):
                where.admit(name, task)
    assert [where.releases(name) for name in where.sides] == [2] * PARTIES
    assert same(where.compute(tickets), whole.compute(expected))


def test_gradients_that_are_not_finite_are_counted_where_they_occur() -> None:
    features = np.array(DENSE.features)
    features[SHARDS[2][0]] = np.inf
    objective = LinearModel("logistic", FEATURES, 2)
    query = Query(Poisson(1.0), Gaussian(1.0, 1.0), 1.0)
    found = asked(pool(objective, Split(features, DENSE.targets)), objective, query)
    assert [answer.not_finite for answer in found] == [0, 0, 1, 0, 0] * 3
    assert all(np.isfinite(answer.released.values).all() for answer in found)


def test_a_model_of_another_size_is_no_task_of_a_window() -> None:
    objective = LinearModel("logistic", FEATURES, 2)
    where = pool(objective)
    where.compute([where.admit("node-0", gradient(1, objective, QUERIES[0]))])
    longer = Gradient(2, Public(np.zeros(objective.size + 1, np.float32)), QUERIES[0])
    with pytest.raises(ValueError):
        where.compute([where.admit("node-0", longer)])
