"""Kinds of releases: what is remembered of one is nobody else's to change, and does not travel."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.clients.nodes import NoisedUpdate
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import Gaussian, Poisson, ReleaseKind
from gossamer.privacy.tasks import ClippedUpdate, Gradient, LocalQuery, LocalUpdate, Query
from gossamer.vectors import Public


def kind(size: int = 5) -> ReleaseKind:
    return ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.5), size)


def test_a_description_is_the_askers_own() -> None:
    one = kind()
    one.describe()["size"] = 7
    assert one.describe() == kind().describe()
    assert one.describe()["size"] == 5


def test_what_is_remembered_changes_neither_equality_nor_what_is_stored() -> None:
    """A hash of strings is another one in another process."""
    used, fresh = kind(), kind()
    assert (hash(used), used.describe()) == (hash(fresh), fresh.describe())
    again = pickle.loads(pickle.dumps(used))
    assert again == used == fresh
    assert vars(again) == {"mechanism": Gaussian(1.0, 2.0), "sampling": Poisson(0.5), "size": 5}


def test_a_query_knows_a_kind_for_each_size() -> None:
    query = Query(Poisson(0.5), Gaussian(3.0, 2.0), 4.0)
    assert [query.release(size).size for size in (5, 6, 5)] == [5, 6, 5]
    assert query.release(5) == kind()
    assert query == Query(Poisson(0.5), Gaussian(3.0, 2.0), 4.0)


def test_a_plan_that_was_asked_about_one_kind_knows_the_others() -> None:
    plan, first, second = ReleasePlan({kind(5): 1, kind(6): 2}), kind(5), kind(6)
    assert plan.refusal({}, first) is None
    assert plan.refusal({first: 1}, first) is not None
    assert plan.refusal({second: 1}, second) is None
    assert plan.refusal({second: 2}, second) is not None
    assert plan.refusal({}, kind(7)) == "not in the plan"
    assert plan.refusal({first: 1}, kind(5)) is not None
    assert plan == ReleasePlan({kind(5): 1, kind(6): 2})


# Tasks


def test_what_was_charged_does_not_become_another_task() -> None:
    """A data side charges a task when it is asked, and reads its terms again when it draws."""
    query = Query(Poisson(0.5), Gaussian(1.0, 1.0), 1.0)
    model, local = Public(np.zeros(3)), LocalQuery(1, 1, 0.1, 1.0)
    tasks: list[Any] = [Gradient(1, model, query), LocalUpdate(1, model, local), ClippedUpdate(1, model, local, 1.0)]
    for task in [*tasks, NoisedUpdate(1, model, local)]:
        with pytest.raises(FrozenInstanceError):
            task.query = replace(query, mechanism=Gaussian(1.0, 0.1))
        assert replace(task, id=2).id == 2


def test_others_tasks_may_be_frozen_too() -> None:
    @dataclass(frozen=True)
    class Others(LocalUpdate):
        more: int = 0

    assert Others(1, Public(np.zeros(3)), LocalQuery(1, 1, 0.1, 1.0)).more == 0
