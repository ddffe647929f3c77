"""Arrays from memory: what is taken, what is refused in a line, and what is never printed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import gossamer as gs
from gossamer.data.memory import Data
from gossamer.data.settings import IN_MEMORY, DatasetSettings

X = np.array([[0.25, 1.0], [0.5, -1.0], [0.75, 2.0], [1.0, -2.0], [1.25, 3.0], [1.5, -3.0]])
Y = np.array(["no", "yes"] * 3)
PRIVATE = 13.03125
"""A number that would show if arrays were printed."""


class Frame:
    """As much of a data frame as is used: columns of names, and an array."""

    columns = ("age", "dose")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return X


class Turned(Frame):
    """The same in another order."""

    columns = ("dose", "age")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return X[:, ::-1]


def made(data: Data, said: DatasetSettings | None = None) -> Any:
    return data.dataset(data.settings(said))


def test_features_labels_owners_and_names_arrive() -> None:
    data = Data(X, Y, owners=[3, 1, 2, 3, 1, 2], feature_names=["age", "dose"], x_test=X[:2], y_test=Y[:2])
    settings = data.settings(None)
    found = data.dataset(settings)
    assert (settings.name, settings.features) == (IN_MEMORY, ("age", "dose"))
    assert (found.classes, found.labels) == (2, ("no", "yes"))
    np.testing.assert_array_equal(found.train.features, X.astype(np.float32))
    np.testing.assert_array_equal(found.train.targets, [0, 1] * 3)
    np.testing.assert_array_equal(found.owners, [3, 1, 2, 3, 1, 2])
    assert len(found.test) == 2


def test_columns_of_test_examples_are_those_of_the_same_name() -> None:
    for data in (
        Data(Frame(), Y, x_test=Turned(), y_test=Y),
        Data(X, Y, feature_names=["age", "dose"], x_test=Turned(), y_test=Y),
    ):
        found = made(data)
        np.testing.assert_array_equal(found.test.features, found.train.features)
    renamed = made(Data(Frame(), Y, feature_names=["a", "b"], x_test=Turned(), y_test=Y))
    np.testing.assert_array_equal(renamed.test.features, X.astype(np.float32))


def test_columns_of_other_names_or_names_in_another_order_are_refused() -> None:
    with pytest.raises(gs.DataError, match=r"^x_test: expected the columns of x, found a difference in 'a'; name them"):
        Data(X, Y, feature_names=["a", "dose"], x_test=Frame(), y_test=Y)
    with pytest.raises(gs.DataError, match=r"^feature_names: expected the columns of x in their order, found them in"):
        Data(Turned(), Y, feature_names=["age", "dose"])


class Twice(Frame):
    """Two columns of one name."""

    columns = ("age", "age")


def test_columns_that_share_a_name_are_taken_in_their_order_or_refused() -> None:
    data = Data(Twice(), Y, feature_names=["a", "b"], x_test=Twice(), y_test=Y)
    np.testing.assert_array_equal(made(data).test.features, X.astype(np.float32))

    class Three(Frame):
        columns = ("age", "dose", "age")

        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.column_stack([X, X[:, 0]])

    class Moved(Three):
        columns = ("dose", "age", "age")

    with pytest.raises(gs.DataError, match=r"^x_test: expected the columns of x, found a difference in 'age'; name"):
        Data(Three(), Y, feature_names=["a", "b", "c"], x_test=Moved(), y_test=Y)


def test_labels_in_their_order_and_a_constant_of_the_spec_apply() -> None:
    data = Data(X, Y, labels=["yes", "no"], x_test=X, y_test=Y)
    found = made(data, DatasetSettings(name=IN_MEMORY, divide_by=2.0))
    np.testing.assert_array_equal(found.train.targets, [1, 0] * 3)
    np.testing.assert_array_equal(found.train.features, (X / 2).astype(np.float32))


def test_a_fifth_of_each_class_is_held_out() -> None:
    found = made(Data(np.arange(40.0)[:, None], [0, 1] * 20))
    assert (len(found.train), len(found.test)) == (32, 8)
    assert np.bincount(found.test.targets).tolist() == [4, 4]


def test_a_persons_examples_are_on_one_side() -> None:
    found = made(Data(np.arange(40.0)[:, None], [0, 1] * 20, persons=np.repeat(np.arange(20), 2)))
    assert found.persons is not None
    assert np.unique(found.persons, return_counts=True)[1].tolist() == [2] * (len(found.train) // 2)


def test_frames_tensors_lists_and_sparse_arrays_are_taken() -> None:
    assert made(Data(Frame(), Y, x_test=X, y_test=Y)).train.features.tolist() == X.tolist()
    assert Data(Frame(), Y).feature_names == ("age", "dose")
    assert made(Data(X.tolist(), Y.tolist(), x_test=X, y_test=Y)).train.features.tolist() == X.tolist()
    thin = made(Data(sp.coo_matrix(X), Y, x_test=sp.csr_array(X), y_test=Y), DatasetSettings(name=IN_MEMORY))
    dense = thin.train.features.toarray() if thin.train.sparse else thin.train.features
    assert dense.tolist() == X.tolist()
    torch = pytest.importorskip("torch")
    assert made(Data(torch.tensor(X), Y, x_test=X, y_test=Y)).train.features.tolist() == X.tolist()


def test_texts_held_as_objects_are_texts() -> None:
    found = made(Data(X, Y.astype(object), owners=np.array(list("ababab"), object), x_test=X, y_test=Y))
    assert found.labels == ("no", "yes")
    assert found.owners.tolist() == list("ababab")


def test_real_targets_are_a_regression() -> None:
    found = made(Data(X, np.linspace(0, 1, 6), task="regression", x_test=X, y_test=np.zeros(6)))
    assert found.classes is None
    np.testing.assert_allclose(found.train.targets, np.linspace(0, 1, 6), rtol=1e-6)


MISSING = "expected a value everywhere"
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "one axis": ({"x": X[:, 0]}, r"^x: expected .*\[n, \.\.\.\], found \[6\]$"),
    "no rows": ({"x": X[:0], "y": Y[:0]}, r"^x: expected at least one example .* found \[0, 2\]$"),
    "texts as features": ({"x": X.astype(str)}, r"^x: expected numbers, found <U\d+;"),
    "objects as features": ({"x": X.astype(str).astype(object)}, r"^x, column 0: expected numbers, found str;"),
    "complex features": ({"x": X.astype(complex)}, r"^x: expected numbers, found complex128;"),
    "ragged": ({"x": [[1.0], [1.0, 2.0]]}, r"^x: expected an array, found list that is none;"),
    "nan": ({"x": np.where(X == 0.75, np.nan, X)}, r"^x, row 2, column 0: expected a finite number .*, found nan;"),
    "too large": ({"x": X * 1e300}, r"^x, row 0, column 0: expected a finite number that fits float32, found inf;"),
    "sparse nan": ({"x": sp.csr_array(np.where(X == 0.75, np.nan, X))}, r"^x, row 2, column 0: .*, found nan;"),
    "labels of another length": ({"y": Y[:3]}, r"^y: expected one for each of 6 examples, found \[3\]$"),
    "answers of another length": ({"y": np.eye(5)}, r"^y: expected one for each of 6 examples, found \[5, 5\]$"),
    "nan labels": ({"y": np.array([0, 1, np.nan, 0, 1, 0])}, r"^y: expected finite numbers, found 1 other.* row 2;"),
    "dates": ({"y": np.zeros(6, "datetime64[D]")}, r"^y: expected numbers or texts, found datetime64\[D\];"),
    "owners of another length": ({"owners": [1, 2]}, r"^owners: expected one for each of 6 examples, found \[2\]$"),
    "real owners": ({"owners": np.zeros(6)}, r"^owners: expected texts or whole numbers, found float64;"),
    "persons of another length": ({"persons": list("ab")}, r"^persons: expected one for each of 6 examples"),
    "no test labels": ({"x_test": X}, r"^y_test: expected it with x_test, found none; give both or neither$"),
    "no test features": ({"y_test": Y}, r"^x_test: expected it with y_test, found none;"),
    "other test features": ({"x_test": X[:, :1], "y_test": Y}, r"^x_test: expected .* \[2\] as in x, found \[1\]$"),
    "too few names": ({"feature_names": ["age"]}, r"^feature_names: expected 2 texts, one for each .*, found 1$"),
    "names twice": (
        {"feature_names": ["age", "age"]},
        r"^feature_names: expected each once, found 1 again; ",
    ),
    "names that are no texts": (
        {"feature_names": [1, 2]},
        r"^feature_names: .* string; give a text for each feature, such as",
    ),
    "names that are no list": (
        {"feature_names": 5},
        r"^feature_names: expected a list; give a text for each",
    ),
    "masked features": ({"x": np.ma.masked_equal(X, 0.75)}, rf"^x: {MISSING}, found 1 row without, the first row 2;"),
    "masked labels": ({"y": np.ma.masked_array(Y, [0, 0, 0, 1, 0, 1])}, rf"^y: {MISSING}, found 2 rows .* row 3;"),
    "no label": ({"y": np.array(["no", None, *Y[2:]], object)}, rf"^y: {MISSING}, found 1 row without, .* row 1;"),
    "no label in a list": ({"y": ["no", *Y[1:5], None]}, rf"^y: {MISSING}, .* row 5;"),
    "nan among texts": ({"y": ["no", "yes", float("nan"), *Y[3:]]}, rf"^y: {MISSING}, .* row 2;"),
    "empty label": ({"y": ["", *Y[1:]]}, rf"^y: {MISSING}, .* row 0;"),
    "no owner": ({"owners": np.array([1.0, np.nan, 1, 2, 2, 2])}, rf"^owners: {MISSING}, .* row 1;"),
    "nan among owners": ({"owners": np.array(["a", np.nan, *"abab"], object)}, rf"^owners: {MISSING}, .* row 1;"),
    "empty owner": ({"owners": ["a", " ", *"abab"]}, rf"^owners: {MISSING}, .* row 1;"),
    "empty person": ({"persons": [*"ababa", ""]}, rf"^persons: {MISSING}, .* row 5;"),
    "a single name of a label": (
        {"labels": ["yes"]},
        r"^labels: expected 2 or more of them, found 1; name every class once",
    ),
    "a label twice": (
        {"labels": ["no", "yes", "no"]},
        r"^labels: expected each once, found 1 again; ",
    ),
    "labels in one text": ({"labels": "no, yes"}, r"^labels: expected a list; name"),
    "labels that are neither": (
        {"labels": [0.5, 1.5]},
        r"^labels: .*; name every class once, by whole numbers or texts$",
    ),
    "examples in the place of labels": (
        {"labels": X},
        r"^labels: .*; name every class once, by whole numbers or texts$",
    ),
    "examples in the place of a task": ({"task": X}, r"^task: input should be 'classification' or 'regression'$"),
    "unknown task": ({"task": "ranking"}, r"^task: input should be 'classification' or 'regression'$"),
}


@pytest.mark.parametrize(("given", "said"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_said_in_a_line(given: dict[str, Any], said: str) -> None:
    with pytest.raises(gs.DataError, match=said) as caught:
        Data(**{"x": X, "y": Y, **given})
    assert "\n" not in str(caught.value)


def test_a_wrong_label_is_named_by_its_row() -> None:
    with pytest.raises(gs.DataError, match=r"^y, row 3 has the label maybe, which is none of the 2 classes no, yes;"):
        made(Data(X, ["no", "yes", "no", "maybe", "no", "yes"], labels=["no", "yes"], x_test=X, y_test=Y))
    with pytest.raises(gs.DataError, match=r"^y_test, row 5 has the label maybe"):
        made(Data(X, Y, x_test=X, y_test=[*Y[:5], "maybe"]))


def test_a_mask_that_hides_nothing_and_labels_of_numpy_are_taken() -> None:
    data = Data(np.ma.masked_array(X), np.array([0, 1] * 3), labels=np.array([1, 0]), x_test=X, y_test=[0, 1] * 3)
    assert made(data).labels == ("1", "0")
    assert data.settings(None).labels == (1, 0)


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"columns": {"age": [0, 120]}}, r"columns is about files, and data= gives arrays; leave it out"),
        (
            {"features": ["age", "dose"]},
            r"arrays have no columns to name; leave features out, and give .*feature_names=",
        ),
    ],
)
def test_no_column_of_arrays_is_asked_for(said: dict[str, Any], line: str) -> None:
    with pytest.raises(gs.SpecError, match=line):
        gs.run({"dataset": {"name": IN_MEMORY, **said}, "privacy": "none"}, data=Data(X, Y))


def test_real_targets_without_a_task_are_asked_about_and_not_shown() -> None:
    with pytest.raises(gs.DataError, match="give task='regression'") as caught:
        made(Data(X, X[:, 0] + PRIVATE))
    assert str(PRIVATE)[:5] not in str(caught.value)


def test_nothing_of_the_arrays_is_printed() -> None:
    data = Data(X + PRIVATE, Y, owners=list("ababab"), feature_names=["age", "dose"])
    assert repr(data) == "Data(x=[6, 2], y=[6], owners=[6], feature_names=[2])"
    assert repr(data) == str(data)


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another data set": ({"name": "digits"}, r"^the spec's dataset is 'digits', and data= gives other examples;"),
    "a file's key": ({"name": IN_MEMORY, "owner": "ward"}, r"^dataset\.owner is about files"),
    "a path": ({"name": IN_MEMORY, "path": "a.csv"}, r"^dataset\.path is about files"),
    "other labels": ({"name": IN_MEMORY, "labels": ("a", "b")}, r"^dataset\.labels of the spec is not what data= says"),
}


@pytest.mark.parametrize(("said", "line"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_spec_that_says_something_else_is_refused(said: dict[str, Any], line: str) -> None:
    with pytest.raises(gs.SpecError, match=line):
        Data(X, Y, labels=["no", "yes"]).settings(DatasetSettings(**said))
