"""The reading of the node that spent most, against readings of all nodes."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.privacy.accounting.accountants import epsilon, most_revealing
from gossamer.privacy.mechanisms import (
    BatchSampling,
    Counts,
    FixedSize,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
LAW = Gaussian(1.0, 1.5)


def largest(some: list[Counts], relation: NeighboringRelation, rows: int) -> float:
    return max(epsilon(counts, 1e-5, relation, rows).epsilon for counts in some)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("law", "fixed", "relation", "rows"),
    [
        (LAW, False, ADD, 1),
        (LAW, False, REPLACE, 3),
        (LAW, True, REPLACE, 1),
        (L2Laplace(1.0, 0.5, ADD), False, ADD, 1),
    ],
)
def test_the_largest_is_that_of_all_nodes(
    law: Mechanism, fixed: bool, relation: NeighboringRelation, rows: int
) -> None:
    """Bit for bit."""
    generator = np.random.default_rng(1)
    sizes, numbers = generator.integers(40, 200, 10), generator.integers(1, 60, 10)
    samplings: list[BatchSampling] = [FixedSize(int(n), 32) if fixed else Poisson(32 / int(n)) for n in sizes]
    nodes: list[Counts] = [{ReleaseKind(law, sampling, 1): int(n)} for sampling, n in zip(samplings, numbers)]
    found = most_revealing(nodes, rows)
    assert len(found) < len(nodes)
    assert largest(found, relation, rows) == largest(nodes, relation, rows)


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", [1, 3])
def test_nodes_that_release_a_scale_before_are_compared_too(rows: int) -> None:
    """Bit for bit; the smallest shard of nodes that do the same is the only one that is read."""
    scale, sizes = ReleaseKind(Gaussian(1.0, 20.0), Poisson(1.0), 1), [112, 179, 248, 304, 415]
    nodes: list[Counts] = [{scale: 1, ReleaseKind(LAW, Poisson(32 / n), 1): 30} for n in sizes]
    assert most_revealing(nodes, rows) == nodes[:1]
    assert largest(nodes[:1], ADD, rows) == largest(nodes, ADD, rows)
    assert most_revealing(nodes[::-1], rows) == nodes[:1]
    fewer: Counts = {ReleaseKind(LAW, Poisson(32 / 100), 1): 30}
    assert most_revealing([*nodes, fewer], rows) == [nodes[0], fewer]


def test_nodes_that_cannot_be_compared_are_all_read() -> None:
    """Less noise, more rounds at a lower rate, another scheme, several rates; fixed batches and several rows."""
    nodes: list[Counts] = [
        {ReleaseKind(LAW, Poisson(0.2), 1): 5},
        {ReleaseKind(LAW, Poisson(0.1), 1): 6},
        {ReleaseKind(Gaussian(1.0, 1.0), Poisson(0.1), 1): 1},
        {ReleaseKind(LAW, FixedSize(10, 1), 1): 1},
        {ReleaseKind(LAW, Poisson(0.1), 1): 1, ReleaseKind(LAW, Poisson(0.15), 1): 1},
    ]
    assert len(most_revealing(nodes, 1)) == len(nodes)
    fixed: list[Counts] = [{ReleaseKind(LAW, FixedSize(10, 1), 1): 1}, {ReleaseKind(LAW, FixedSize(10, 2), 1): 1}]
    assert most_revealing(fixed, 1) == fixed[1:]
    assert most_revealing(fixed, 2) == fixed[::-1]


def test_nodes_that_have_made_less_of_the_same_are_left_out() -> None:
    """Fewer sizes of batches than another, each as often; and more noise."""
    growing = [{ReleaseKind(LAW, Poisson(0.1 * n), 1): 5 for n in range(1, last + 1)} for last in range(1, 5)]
    quieter: Counts = {ReleaseKind(Gaussian(1.0, 2.0), Poisson(0.1), 1): 5}
    assert most_revealing([*growing, quieter], 1) == growing[-1:]
    ahead: Counts = {ReleaseKind(LAW, Poisson(0.1), 1): 6}
    assert most_revealing([*growing, ahead], 1) == [growing[-1], ahead]
