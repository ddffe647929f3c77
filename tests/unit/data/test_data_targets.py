"""Labels to class numbers, and the fixed test split."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.data.targets import class_labels, class_numbers, positive_classes, real_targets, written
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
