"""Partitions: what holds for every scheme, then what each one promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from tests.sampling import examples

from gossamer.data.partition import (
    Dirichlet,
    Iid,
    Linear,
    Natural,
    PartitionSettings,
    Pathological,
    Shard,
    Sizes,
    partition,
)
from gossamer.errors import DataError

CLASSES = 5


def _targets(size: int, seed: int = 0) -> np.ndarray:
    """Class numbers in no order, about equally many of each."""
    return np.random.default_rng(seed).permutation(np.arange(size) % CLASSES)


def _generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# All that suit 60 examples of 5 classes on any number of nodes from 3 to 6.
ANY = [
    Iid(),
    Dirichlet(alpha=1.0, min_examples=1),
    Shard(),
    Pathological(classes_per_node=2),
    Linear(),
    Natural(),
]


@pytest.mark.parametrize("scheme", ANY, ids=lambda scheme: scheme.name)
@given(nodes=st.integers(3, 6), size=st.integers(60, 90), seed=st.integers(0, 2**32))
@settings(deadline=None, derandomize=True, max_examples=examples(40))
def test_every_example_has_one_node(scheme, nodes: int, size: int, seed: int) -> None:
    targets = _targets(size, seed)
    owners = np.random.default_rng(seed).permutation(np.arange(size) % 7).astype(str)
    parts = partition(scheme, targets, nodes, _generator(seed), owners)
    assert len(parts) == nodes
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(size))
    for part in parts:
        assert part.dtype == np.int64
        assert len(part) >= 1
        assert (np.diff(part) > 0).all()
    again = partition(scheme, targets, nodes, _generator(seed), owners)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again))


@pytest.mark.parametrize("scheme", [*ANY, Sizes(sizes=(20, 20, 10))], ids=lambda scheme: scheme.name)
def test_the_generator_decides_and_nothing_else(scheme) -> None:
    """The chance that ten other seeds all give the parts of the first is below 1e-15; no global state is asked.

    The least random scheme is natural with grouped owners: 6 owners go to 3 nodes in pairs in 90 ways, so that
    chance is 90^-10.
    """
    targets, owners = _targets(60), (np.arange(60) % 6).astype(str)

    def parts(seed: int) -> list[list[int]]:
        np.random.seed(seed)
        return [part.tolist() for part in partition(scheme, targets, 3, _generator(seed), owners)]

    assert any(parts(seed) != parts(0) for seed in range(1, 11))


@given(nodes=st.integers(1, 50), size=st.integers(50, 99))
@settings(deadline=None, derandomize=True, max_examples=examples(50))
def test_iid_sizes_differ_by_one_at_most(nodes: int, size: int) -> None:
    sizes = [len(part) for part in partition(Iid(), _targets(size), nodes, _generator())]
    assert max(sizes) - min(sizes) <= 1


def test_iid_ignores_the_order_of_the_file() -> None:
    """1,000 examples sorted by class, 4 nodes: a node's count of a class is hypergeometric, mean 50, standard
    deviation sqrt(250 x 0.2 x 0.8 x 0.75) = 5.5. Six deviations and 20 counts: false alarm below 1e-7."""
    targets = np.sort(_targets(1000))
    for part in partition(Iid(), targets, 4, _generator(1)):
        assert np.abs(np.bincount(targets[part], minlength=CLASSES) - 50).max() < 33


def test_dirichlet_shares_have_their_law() -> None:
    """A node's share of a class is Beta(alpha, (K-1) alpha): mean 1/K, variance (K-1)/(K^2 (K alpha + 1)).

    K = 4, alpha = 0.5, 400 draws of 5 independent classes: mean 1/4, variance 1/16. Beta(1/2, 3/2) has a fourth
    central moment of 3/256, so the variance's standard error is sqrt((3/256 - 1/256)/2000) = 0.0020. Six of
    each: false alarm below 1e-8. The variance under alpha 0.25 is 3/32 and under 1 it is 3/80, both outside.
    """
    targets = np.repeat(np.arange(CLASSES), 1000)
    shares = [
        np.bincount(targets[partition(Dirichlet(min_examples=1), targets, 4, _generator(seed))[0]], minlength=5)
        for seed in range(400)
    ]
    values = np.array(shares) / 1000
    assert abs(values.mean() - 1 / 4) < 6 * np.sqrt(1 / 16 / 2000)
    assert abs(((values - 1 / 4) ** 2).mean() - 1 / 16) < 6 * 0.0020


def test_dirichlet_draws_again_until_nobody_has_too_few() -> None:
    for seed in range(20):
        parts = partition(Dirichlet(alpha=0.5, min_examples=20), _targets(200), 4, _generator(seed))
        assert min(map(len, parts)) >= 20


def test_dirichlet_that_cannot_be_says_what_to_change() -> None:
    with pytest.raises(DataError, match=r"each of 10 nodes 10 of 99 examples .*raise alpha \(0.5\), lower min_"):
        partition(Dirichlet(), _targets(99), 10, _generator())


@pytest.mark.parametrize("alpha", [1e-300, 1e-6, 1e6, 1e300])
def test_extreme_alphas(alpha: float) -> None:
    """Nearly 0: each class at one node (whether every node gets one is luck). Very large: equal shares."""
    targets = np.repeat(np.arange(CLASSES), 100)
    parts = partition(Dirichlet(alpha=alpha, min_examples=1), targets, 2, _generator(3))
    counts = np.array([np.bincount(targets[part], minlength=CLASSES) for part in parts])
    expected = {0, 100} if alpha < 1 else {49, 50, 51}
    assert set(counts.ravel().tolist()) <= expected


@given(shards=st.integers(1, 4), nodes=st.integers(2, 10), seed=st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=examples(50))
def test_shards_are_equal_and_of_neighbouring_classes(shards: int, nodes: int, seed: int) -> None:
    """With 120 examples and at most 40 shards a shard has 3 or more; sizes differ by one a shard at most. A shard
    no longer than a class touches at most two."""
    targets = _targets(120, seed)
    parts = partition(Shard(shards_per_node=shards), targets, nodes, _generator(seed))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= shards
    if nodes * shards >= CLASSES:
        assert all(len(np.unique(targets[part])) <= 2 * shards for part in parts)


def test_two_shards_a_node_are_two_classes() -> None:
    """McMahan et al., section 3: 10 classes of 100, 20 shards of 50: no shard crosses classes."""
    targets = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 100))
    parts = partition(Shard(), targets, 10, _generator())
    assert all(len(part) == 100 and len(np.unique(targets[part])) <= 2 for part in parts)


def test_shards_are_dealt_at_random_and_so_are_examples_to_shards() -> None:
    """Unshuffled, node 0 would hold the first classes of every draw, or runs of the file.

    Two of 20 shards of 10 classes go to node 0: the chance that it has class 0 in all of 20 draws is below
    0.2^20. In one class of 100, half of it drawn at random has 25 runs on average; a deal of unshuffled quarters
    has at most 2. The chance of 2 or fewer is below 100 * 2 / C(100, 50) < 1e-26.
    """
    targets = np.repeat(np.arange(10), 100)
    first = [targets[partition(Shard(), targets, 10, _generator(seed))[0]] for seed in range(20)]
    assert not all(0 in held for held in first)
    part = partition(Shard(), np.zeros(100, np.int64), 2, _generator())[0]
    assert (np.diff(part) > 1).sum() >= 3


@given(held=st.integers(1, CLASSES), nodes=st.integers(5, 12), seed=st.integers(0, 1000))
@settings(deadline=None, derandomize=True, max_examples=examples(60))
def test_pathological_nodes_hold_exactly_so_many_classes(held: int, nodes: int, seed: int) -> None:
    targets = _targets(100, seed)
    parts = partition(Pathological(classes_per_node=held), targets, nodes, _generator(seed))
    counts = np.array([np.bincount(targets[part], minlength=CLASSES) for part in parts])
    assert ((counts > 0).sum(axis=1) == held).all()
    holders = (counts > 0).sum(axis=0)
    assert holders.max() - holders.min() <= 1
    for of_class in counts.T:
        assert np.ptp(of_class[of_class > 0]) <= 1


def test_linear_sizes() -> None:
    """55 examples on 10 nodes: 1, 2, ..., 10."""
    assert [len(part) for part in partition(Linear(), _targets(55), 10, _generator())] == list(range(1, 11))


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3, 1, 6), [3, 1, 6]),
        ((5, 10, 5), [5, 10, 5]),
        ((0.5, 0.3, 0.2), [10, 6, 4]),
        ((0.1, 0.2, 0.7), [2, 4, 14]),
        ((0.25, 0.25, 0.1), [5, 5, 2]),
    ],
)
def test_sizes_are_as_asked(sizes, expected: list[int]) -> None:
    parts = partition(Sizes(sizes=sizes), _targets(20), 3, _generator())
    assert [len(part) for part in parts] == expected
    assert len(np.unique(np.concatenate(parts))) == sum(expected)


def test_owners_in_sorted_order_or_grouped() -> None:
    owners = np.array(["c", "a", "b", "a", "c", "d"])
    targets = np.zeros(6, np.float32)
    parts = partition(Natural(), targets, 4, _generator(), owners)
    assert [part.tolist() for part in parts] == [[1, 3], [2], [0, 4], [5]]
    grouped = partition(Natural(), targets, 2, _generator(), owners)
    held = [set(owners[part]) for part in grouped]
    assert [len(names) for names in held] == [2, 2]
    assert held[0] | held[1] == set("abcd")


@pytest.mark.parametrize(
    ("scheme", "nodes", "message"),
    [
        (
            Pathological(classes_per_node=1),
            1,
            "some of the 5 classes would be nobody's with 1 node of 1 class each; raise",
        ),
        (Iid(), 21, "expected at most 20 nodes, one for each training example .* found 21;"),
        (Iid(), 0, "expected at most 20 nodes.* found 0;"),
        (Shard(shards_per_node=7), 3, "needs 3 x 7 shards, but there are only 20 examples"),
        (Pathological(classes_per_node=6), 3, "classes_per_node is 6, and the data have 5 classes; lower it"),
        (Pathological(classes_per_node=1), 3, "raise classes_per_node to 2 or take more nodes"),
        (Pathological(classes_per_node=5), 5, "a class of 4 examples to 5 nodes"),
        (Linear(), 10, "leaves node 0 of 10 without any"),
        (Sizes(sizes=(15, 6)), 2, "asks for 21 of 20 examples; ask for fewer"),
        (Sizes(sizes=(1, 1)), 3, "names 2 sizes for 3 nodes"),
        (Sizes(sizes=(0.9, 0.01)), 2, "leaves node 1 of 2 without any"),
        (Natural(), 2, "name the owner column"),
    ],
)
def test_what_cannot_be_dealt(scheme, nodes: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        partition(scheme, _targets(20), nodes, _generator())


def test_more_nodes_than_owners() -> None:
    with pytest.raises(DataError, match="2 owners for 3 nodes"):
        partition(Natural(), _targets(4), 3, _generator(), np.array(["a", "b", "a", "b"]))


@pytest.mark.parametrize("scheme", [Dirichlet(), Shard(), Pathological()], ids=lambda scheme: scheme.name)
def test_real_targets_have_no_classes(scheme) -> None:
    with pytest.raises(DataError, match=f"the {scheme.name} partition goes by class"):
        partition(scheme, np.linspace(0, 1, 20, dtype=np.float32), 2, _generator())


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"name": "iid"}, Iid()),
        ({"name": "dirichlet", "alpha": 0.1}, Dirichlet(alpha=0.1)),
        ({"name": "sizes", "sizes": [3, 4]}, Sizes(sizes=(3, 4))),
        ({"name": "sizes", "sizes": [0.5, 0.5]}, Sizes(sizes=(0.5, 0.5))),
    ],
)
def test_settings_are_told_apart_by_name(spec, expected) -> None:
    adapter: TypeAdapter = TypeAdapter(PartitionSettings)
    parsed = adapter.validate_python(spec)
    assert parsed == expected
    assert adapter.validate_json(parsed.model_dump_json()) == expected


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "uniform"},
        {"name": "iid", "alpha": 1},
        {"name": "dirichlet", "alpha": 0},
        {"name": "dirichlet", "alpha": float("inf")},
        {"name": "dirichlet", "min_examples": 0},
        {"name": "shard", "shards_per_node": 0},
        {"name": "pathological", "classes_per_node": 0},
        {"name": "sizes"},
        {"name": "sizes", "sizes": []},
        {"name": "sizes", "sizes": [0, 1]},
        {"name": "sizes", "sizes": [0.6, 0.6]},
        {"name": "sizes", "sizes": [-0.5, 0.6]},
        {"name": "sizes", "sizes": [2, 0.5]},
        {"name": "natural", "owners": []},
        {"name": "natural", "owners": ["a", "a"]},
        {"name": "natural", "owners": "ab"},
    ],
)
def test_settings_that_make_no_sense(spec) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(PartitionSettings).validate_python(spec)


@pytest.mark.parametrize("owners", [np.array(["b", "a", "c", "b"]), np.array([2, 1, 3, 2])])
def test_named_owners_have_their_nodes(owners) -> None:
    named = ["c", "b", "a"] if owners.dtype.kind == "U" else [3, 2, 1]
    scheme = TypeAdapter(PartitionSettings).validate_python({"name": "natural", "owners": named})
    dealt = partition(scheme, np.zeros(4, np.int64), 3, np.random.default_rng(0), owners)
    assert [rows.tolist() for rows in dealt] == [[2], [0, 3], [1]]


@pytest.mark.parametrize(
    ("named", "nodes", "words"),
    [
        (("a", "b"), 3, "partition.owners has 2 owners for 3 nodes; name one each"),
        (("a", "b"), 2, "the examples have the owner 'c', which partition.owners does not name: a, b"),
        (("a", "b", "c", "d"), 4, "leaves node 3 of 4 without any"),
    ],
)
def test_owners_that_are_not_those_of_the_examples(named, nodes, words) -> None:
    owners = np.array(["a", "b", "c", "a", "b"])
    with pytest.raises(DataError, match=words):
        partition(Natural(owners=named), np.zeros(5, np.int64), nodes, np.random.default_rng(0), owners)
