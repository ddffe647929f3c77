"""Neighbouring data sets differ in what a guarantee says, and in nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gossamer.attacks.leak import ROWS, neighbours, worst_cases
from gossamer.data.examples import Split
from gossamer.privacy.mechanisms import NeighboringRelation

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SHARDS = [np.array([0, 2, 4, 6]), np.array([1, 3, 5])]


def split(sparse: bool = False, classes: int | None = 3) -> Split:
    generator = np.random.default_rng(1)
    features = generator.standard_normal((8, 4)).astype(np.float32)
    targets: Any = generator.integers(3, size=8) if classes else generator.standard_normal(8).astype(np.float32)
    return Split(sp.csr_array(features * (features > 0)) if sparse else features, targets)


def rows_that_differ(one: Split, other: Split) -> set[int]:
    def dense(data: Split) -> Any:
        return np.asarray(data.features.toarray() if data.sparse else data.features)

    features = ~((dense(one) == dense(other)) | (np.isnan(dense(one)) & np.isnan(dense(other)))).all(axis=1)
    return {int(row) for row in np.flatnonzero(features | (one.targets != other.targets))}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("classes", [3, None])
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_one_row_differs_and_is_somebodys(sparse: bool, classes: int | None, relation: NeighboringRelation) -> None:
    generator, seen, kinds = np.random.default_rng(2), set(), set()
    first = split(sparse, classes)
    before = first.features.copy(), first.targets.copy()
    for _ in range(400):
        found = neighbours(first, SHARDS, relation, classes, generator)
        differ = rows_that_differ(found.first, found.second)
        assert len(differ) <= 1
        assert found.second.features.dtype == np.float32
        assert found.second.targets.dtype == first.targets.dtype
        if relation is ADD:
            assert found.blank is not None
            assert len(found.blank) == 1
            assert differ <= {int(found.blank[0])}
        else:
            assert found.blank is None
        seen |= differ
        kinds.add(found.what.removeprefix("blank, over "))
    assert seen == {0, 1, 2, 3, 4, 5, 6}  # row 7 is nobody's
    assert kinds == set(ROWS)
    assert not rows_that_differ(first, Split(*before))


def test_of_a_client_one_row_or_all_differ() -> None:
    generator, sizes = np.random.default_rng(3), set()
    for _ in range(200):
        found = neighbours(split(), SHARDS, ADD, 3, generator, clients=True)
        assert found.blank is None
        differ = rows_that_differ(found.first, found.second)
        assert any(differ <= {*map(int, shard)} for shard in SHARDS)
        sizes.add(len(differ))
    assert sizes >= {1, 3, 4}


def test_hard_rows_stand_where_they_are_asked_for() -> None:
    generator, seen = np.random.default_rng(4), set()
    for _ in range(50):
        found = worst_cases(split(), [2, 5], 3, generator)
        seen |= rows_that_differ(split(), found)
    assert seen == {2, 5}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("classes", [3, None])
def test_rows_may_be_like_those_that_are_the_largest_already(sparse: bool, classes: int | None) -> None:
    """A hundred times the largest float is infinite, which is as bad a row as any; warnings are errors in tests."""
    generator, largest = np.random.default_rng(5), split(sparse, classes)
    values: Any = largest.features.data if sparse else largest.features
    values[:] = np.finfo(np.float32).max
    if classes is None:
        largest.targets[:] = np.finfo(np.float32).max
    kinds = {neighbours(largest, SHARDS, REPLACE, classes, generator).what for _ in range(200)}
    assert "long" in kinds
