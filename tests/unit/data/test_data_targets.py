"""Labels to class numbers, and real targets."""

from __future__ import annotations

import numpy as np
import pytest

from gossamer.data.declaration import Classes, Declaration, classes_of
from gossamer.data.examples import written
from gossamer.data.settings import DatasetSettings
from gossamer.errors import DataError


def classes(labels: list, given=None, positive=None) -> Classes:
    found = classes_of(np.array(labels), DatasetSettings(name="mine", labels=given, positive=positive))
    assert found is not None
    return found


def targets(labels: list, of: Classes | None, which: str = "training"):
    task = "regression" if of is None else "classification"
    settings = DatasetSettings(name="mine", task=task)
    return Declaration.of(settings, None, (1,), "dense", of).targets(np.array(labels), "mine.npz", which=which)


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
    found = targets(labels, classes(labels))
    assert found.tolist() == numbers
    assert found.dtype == np.int64


def test_labels_may_be_named_in_any_order() -> None:
    """A party that lacks a class still numbers the others as all parties do."""
    assert targets([1.0, 3.0], classes([3.0, 1.0], (3, 2, 1))).tolist() == [2, 0]
    assert targets([1.0, 2.0, 3.0], classes([3.0, 1.0], (2, 3, 1))).tolist() == [2, 0, 1]
    assert targets(["ill", "well"], classes(["ill"], ("well", "unclear", "ill")), "test").tolist() == [2, 0]


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
        classes(labels, given)


@pytest.mark.parametrize(
    ("label", "known", "message"),
    [
        (11.0, [1.0, 2.0], "mine.npz, test example 2 has the label 11, which is none of the 2 classes 1, 2"),
        (0.0, [1.0, 2.0], "has the label 0"),
        (1.5, [1.0, 2.0], "has the label 1.5"),
    ],
)
def test_a_label_that_training_lacks(label: float, known: list[float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        targets([1.0, label], classes(known), "test")


def test_positive_labels_are_found_among_the_classes_wherever_they_stand() -> None:
    assert classes([0.0, 1.0, 2.0, 3.0], positive=(3, 1)) == (("0", "2"), ("1", "3"))
    assert classes([3.0, 1.0, 2.0], positive=(3,)) == (("1", "2"), ("3",))
    assert classes(["a", "b"], positive=("b", "b")) == (("a",), ("b",))
    assert classes(["1", "2"], positive=(2,)) == (("1",), ("2",))


@pytest.mark.parametrize(
    ("labels", "given", "message"),
    [
        ([0.0, 1.0, 2.0], (1, 7), "'positive' names the label 7, which is none of the 3 classes 0, 1, 2"),
        (["ill", "well"], ("sick",), "'positive' names the label sick, which is none of the 2 classes ill, well"),
        ([0.0, 1.0], (0, 1), "'positive' names all 2 classes 0, 1; leave at least one out"),
        ([0.0, 1.0], ("yes",), r"the positive labels are \['yes'\], but the data's are numbers"),
    ],
)
def test_positive_labels_that_make_no_two_classes(labels: list, given: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        classes(labels, positive=given)


def test_names_and_numbers_do_not_mix() -> None:
    with pytest.raises(DataError, match="test example 1 has the label 01, which is none of the 2 classes 1, 2"):
        targets(["01"], classes([1.0, 2.0]), "test")


def test_real_targets() -> None:
    assert targets([0.5, -2.0], None).dtype == np.float32
    with pytest.raises(DataError, match="expected numbers as targets of a regression, found red"):
        targets(["red"], None)
    for wrong in (np.nan, 1e39):
        with pytest.raises(DataError, match="test example 2 has the target"):
            targets([0.0, wrong], None, "test")


def test_labels_are_written_as_people_do() -> None:
    assert [written(label) for label in np.array([-1.0, 10.0, 0.5])] == ["-1", "10", "0.5"]
    assert written(np.str_("well")) == "well"
