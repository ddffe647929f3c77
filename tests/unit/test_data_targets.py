"""Labels to class numbers, and the fixed test split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.data.targets import class_labels, class_numbers, held_out, positive_classes, real_targets, written
from gossamer.errors import DataError


@pytest.mark.parametrize(
    ("labels", "numbers"),
    [
        ([-1.0, 1.0, -1.0], [0, 1, 0]),
        ([10.0, 1.0, 2.0], [2, 0, 1]),
        ([0.0, 1.0, 2.0], [0, 1, 2]),
        (["well", "ill", "well"], [1, 0, 1]),
    ],
)
def test_labels_are_numbered_in_sorted_order(labels: list, numbers: list[int]) -> None:
    array = np.array(labels)
    found = class_numbers(array, class_labels(array, None), "training")
    assert found.tolist() == numbers
    assert found.dtype == np.int64


def test_labels_may_be_named_in_any_order() -> None:
    """A party that lacks a class still numbers the others as all parties do."""
    classes = class_labels(np.array([3.0, 1.0]), (3, 2, 1))
    assert class_numbers(np.array([1.0, 3.0]), classes, "training").tolist() == [2, 0]
    classes = class_labels(np.array([3.0, 1.0]), (2, 3, 1))
    assert class_numbers(np.array([1.0, 2.0, 3.0]), classes, "training").tolist() == [2, 0, 1]
    classes = class_labels(np.array(["ill"]), ("well", "unclear", "ill"))
    assert class_numbers(np.array(["ill", "well"]), classes, "test").tolist() == [2, 0]


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        ([0.5, 1.0], None, "found 0.5; for real targets say task: regression"),
        ([np.nan, 1.0], None, "found nan"),
        ([np.inf, 1.0], None, "found inf"),
        ([3.0, 3.0], None, "found only 3; where other parties"),
        ([1.0, 2.0], (1, 1), "must all differ"),
        ([1.0, 2.0], ("a", "b"), "the data's are numbers"),
    ],
)
def test_labels_that_make_no_classes(labels: list[float], given, message: str) -> None:
    with pytest.raises(DataError, match=message):
        class_labels(np.array(labels), given)


@pytest.mark.parametrize(
    ("label", "classes", "message"),
    [
        (11.0, [1.0, 2.0], "test example 2 has the label 11, which is none of the 2 classes 1, 2"),
        (0.0, [1.0, 2.0], "has the label 0"),
        (1.5, [1.0, 2.0], "has the label 1.5"),
    ],
)
def test_a_label_that_training_lacks(label: float, classes: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        class_numbers(np.array([1.0, label]), np.array(classes), "test")


def test_positive_labels_are_found_among_the_classes_wherever_they_stand() -> None:
    assert positive_classes(np.array([0.0, 1.0, 2.0, 3.0]), (3, 1)).tolist() == [False, True, False, True]
    assert positive_classes(np.array([3.0, 1.0, 2.0]), (3,)).tolist() == [True, False, False]
    assert positive_classes(np.array(["a", "b"]), ("b", "b")).tolist() == [False, True]
    assert positive_classes(np.array(["1", "2"]), (2,)).tolist() == [False, True]


@pytest.mark.parametrize(
    ("classes", "given", "message"),
    [
        ([0.0, 1.0, 2.0], (1, 7), "'positive' names the label 7, which is none of the 3 classes 0, 1, 2"),
        (["ill", "well"], ("sick",), "'positive' names the label sick, which is none of the 2 classes ill, well"),
        ([0.0, 1.0], (0, 1), "'positive' names all 2 classes 0, 1; leave at least one out"),
        ([0.0, 1.0], ("yes",), r"the positive labels are \['yes'\], but the data's are numbers"),
    ],
)
def test_positive_labels_that_make_no_two_classes(classes: list, given: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        positive_classes(np.array(classes), given)


def test_names_and_numbers_do_not_mix() -> None:
    with pytest.raises(DataError, match="not of the same kind"):
        class_numbers(np.array(["a"]), np.array([1.0]), "test")


def test_real_targets() -> None:
    assert real_targets(np.array([0.5, -2.0]), "training").dtype == np.float32
    with pytest.raises(DataError, match="expects numbers as targets, found red"):
        real_targets(np.array(["red"]), "training")
    for wrong in (np.nan, 1e39):
        with pytest.raises(DataError, match="test example 2 has the target"):
            real_targets(np.array([0.0, wrong]), "test")


def test_labels_are_written_as_people_do() -> None:
    assert [written(label) for label in np.array([-1.0, 10.0, 0.5])] == ["-1", "10", "0.5"]
    assert written(np.str_("well")) == "well"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.floats(0.01, 0.99))
@settings(deadline=None, derandomize=True, max_examples=200)
def test_each_class_gives_its_share_rounded_down(classes: list[int], fraction: float) -> None:
    strata = np.array(classes)
    tested = held_out(strata, fraction)
    for number in set(classes):
        members = strata == number
        share = fraction * members.sum()
        assert share - 1 - 1e-6 < tested[members].sum() <= share + 1e-6
        assert (~tested[members]).any()


@pytest.mark.parametrize(("fraction", "size", "count"), [(0.3, 10, 3), (0.29, 100, 29), (0.2, 5, 1), (0.2, 4, 0)])
def test_shares_that_floating_point_stores_as_less(fraction: float, size: int, count: int) -> None:
    assert held_out(np.zeros(size), fraction).sum() == count


def test_the_split_does_not_follow_the_order_of_a_file() -> None:
    """Neither every fifth nor the first: of 2,000 in 10,000 each residue mod 5 and each fifth of the file has 400.

    Such a count is hypergeometric with standard deviation sqrt(2000 0.2 0.8 0.8) = 16. The choice is fixed, so
    this either always passes or never; six deviations leave 1e-7 for bad luck.
    """
    chosen = np.flatnonzero(held_out(np.zeros(10_000), 0.2))
    for group in (chosen % 5, chosen // 2000):
        counts = np.bincount(group, minlength=5)
        assert 0 < np.abs(counts - 400).max() < 6 * 16


def test_the_split_only_depends_on_positions_and_classes() -> None:
    strata = np.arange(100) % 3
    global_state = np.random.get_state()
    np.random.seed(1)
    first = held_out(strata, 0.2)
    np.random.seed(2)
    assert np.array_equal(held_out(strata + 7, 0.2), first)
    np.random.set_state(global_state)
