"""What settings say of data that nobody else sees, and files that are not as declared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.data.datasets import DatasetSettings, blank_dataset, declared, declared_form, load_dataset
from gossamer.data.files import KNOWN
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation.objective import build_objective

WARDS = {"name": "wards", "format": "csv", "features": 3, "labels": ("home", "ward")}


@pytest.mark.parametrize(
    ("options", "shape", "labels"),
    [
        (WARDS, (3,), ("home", "ward")),
        ({**WARDS, "features": (1, 4, 4), "format": "idx"}, (1, 4, 4), ("home", "ward")),
        ({**WARDS, "features": ("age", "stay"), "target": "died"}, (2,), ("home", "ward")),
        ({**WARDS, "labels": ("1.0", "0")}, (3,), ("1", "0")),
        ({**WARDS, "labels": ("01", "02"), "format": "images"}, (3,), ("01", "02")),
        ({**WARDS, "labels": (1, 2, 3), "positive": (2,)}, (3,), ("1, 3", "2")),
        ({"name": "wards", "path": "wards.csv.gz", "features": 3, "task": "regression"}, (3,), None),
        ({"name": "digits"}, (1, 8, 8), tuple("0123456789")),
        ({"name": "usps"}, (1, 16, 16), tuple(map(str, range(1, 11)))),
        ({"name": "usps", "layout": "sparse"}, (256,), tuple(map(str, range(1, 11)))),
        ({"name": "w8a"}, (300,), ("-1", "1")),
        ({"name": "graph_regression"}, (2,), None),
    ],
)
def test_the_form_of_what_is_declared(options, shape: tuple[int, ...], labels: tuple[str, ...] | None) -> None:
    form = declared_form(DatasetSettings(**options))
    assert (form.shape, form.labels) == (shape, labels)
    assert (None if form.classes is None else len(form.classes)) == (None if labels is None else len(labels))


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"name": "wards", "format": "csv"}, "features, labels"),
        ({**WARDS, "labels": None}, "labels"),
        ({**WARDS, "features": None, "task": "regression"}, "features"),
        ({**WARDS, "format": None}, r"format \(or layout and divide_by\)"),
        ({**WARDS, "format": None, "layout": "dense"}, r"format \(or layout and divide_by\)"),
        ({**WARDS, "format": None, "path": "folder"}, r"format \(or layout and divide_by\)"),
        ({**WARDS, "format": "libsvm"}, "layout"),
        ({"name": "phishing"}, "labels"),
    ],
)
def test_what_is_left_to_the_data_is_named(options, missing: str) -> None:
    with pytest.raises(SpecError, match=f"must declare what they look like; missing: {missing}$"):
        declared_form(DatasetSettings(**options))


def test_a_format_may_differ_where_nothing_follows_from_it() -> None:
    form = declared_form(DatasetSettings(**{**WARDS, "format": None, "layout": "dense", "divide_by": 255}))
    assert (form.format, form.layout) == (None, "dense")


def test_what_the_settings_say_goes_before_what_is_known() -> None:
    """And a declaration says all there is: made of itself it stays the same."""
    given = {"features": 64, "labels": (9, 8, 7, 6, 5, 4, 3, 2, 1, 0), "divide_by": 8.0, "layout": "sparse"}
    found = declared(DatasetSettings(name="digits", **given))
    assert {key: getattr(found, key) for key in given} == given
    for name in ("digits", "w8a", "cifar10", "phishing"):
        known = declared(DatasetSettings(name=name))
        assert declared(DatasetSettings.model_validate(known.model_dump())) == known


@pytest.mark.parametrize(
    "wrong",
    [
        {"features": ()},
        {"features": (1, 0)},
        {"features": ("age", 3), "target": "died"},
        {"features": ("age", "age"), "target": "died"},
        {"features": ("age",)},
        {"features": ("age",), "target": "died", "ignore": ("id",)},
    ],
)
def test_features_are_a_number_a_shape_or_names(wrong) -> None:
    with pytest.raises(SpecError, match="features"):
        DatasetSettings(name="wards", **wrong)


def _npz(folder: Path, shape: tuple[int, ...]) -> Path:
    path = folder / "mine.npz"
    np.savez(path, features=np.arange(10.0 * np.prod(shape)).reshape(10, *shape), targets=[0, 1] * 5)
    return path


@pytest.mark.parametrize(
    ("found", "features", "message"),
    [
        ((6,), 7, "expected examples of 7 features .* found 6 features"),
        ((1, 2, 3), 6, r"expected examples of 6 features .* found shape \[1, 2, 3\]"),
        ((6,), (1, 2, 4), r"expected examples of shape \[1, 2, 4\] .* found 6 features"),
        ((1, 2, 3), (1, 3, 2), r"expected examples of shape \[1, 3, 2\] .* found shape \[1, 2, 3\]"),
    ],
)
def test_a_file_that_is_not_as_declared(tmp_path: Path, found, features, message: str) -> None:
    path = _npz(tmp_path, found)
    with pytest.raises(DataError, match=rf"{path}: {message}; correct the file, or features"):
        load_dataset(DatasetSettings(name="mine", path=path, features=features))


def test_a_file_of_a_known_set_that_is_another(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected examples of shape \[1, 8, 8\] .* found 6 features"):
        load_dataset(DatasetSettings(name="digits", path=_npz(tmp_path, (6,))))


def test_flat_rows_become_pictures_of_the_declared_shape(tmp_path: Path) -> None:
    """Row by row: feature 3 r + c is the pixel in row r and column c."""
    path = _npz(tmp_path, (6,))
    flat, pictures = (load_dataset(DatasetSettings(name="mine", path=path, features=f)) for f in (6, (1, 2, 3)))
    assert pictures.train.features.shape == (8, 1, 2, 3)
    assert np.array_equal(pictures.train.features[:, 0, 1, 2], flat.train.features[:, 5])
    assert np.array_equal(pictures.train.features.reshape(8, 6), flat.train.features)


def test_columns_by_name_have_the_declared_order(tmp_path: Path) -> None:
    rows = [f"{row},{row % 2},x,{10 * row}" for row in range(10)]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["age,died,note,stay", *rows]))
    options = {"name": "mine", "path": path, "target": "died", "test_path": path}
    data = load_dataset(DatasetSettings(**options, features=("stay", "age")))
    assert data.train.features.tolist() == [[10 * row, row] for row in range(10)]
    with pytest.raises(DataError, match="no column 'weight'; its columns are age, died, note, stay"):
        load_dataset(DatasetSettings(**options, features=("stay", "weight")))
    with pytest.raises(DataError, match="features names 'died', which is the target's column"):
        load_dataset(DatasetSettings(**options, features=("stay", "died")))


@pytest.mark.parametrize(
    ("dataset", "objective"),
    [
        ({"name": "digits"}, "softmax"),
        ({"name": "digits", "positive": (1, 3)}, "logistic"),
        ({"name": "graph_regression", "synthetic": {"owners": 2, "examples": 20, "features": 3}}, "squared"),
        ({"name": "digits"}, "mlp"),
    ],
)
def test_a_server_without_data_builds_the_same_objective(dataset, objective: str) -> None:
    spec = gs.Experiment.model_validate(
        {"dataset": dataset, "objective": objective, "algorithm": "gossip", "privacy": "none"}
    )
    full, blank = load_dataset(spec.dataset), blank_dataset(spec.dataset)
    assert len(blank.train) == len(blank.test) == 0
    assert blank.train.features.shape[1:] == full.train.features.shape[1:]
    assert (blank.classes, blank.labels, blank.name) == (full.classes, full.labels, full.name)
    assert blank.train.features.dtype == full.train.features.dtype
    assert blank.train.targets.dtype == full.train.targets.dtype
    first, second = (build_objective(spec, data) for data in (full, blank))
    starts = [one.initial(np.random.default_rng(1)) for one in (first, second)]
    assert first.size == second.size
    assert np.array_equal(*starts)


def test_a_server_of_sparse_data_has_no_rows_of_them() -> None:
    blank = blank_dataset(DatasetSettings(name="w8a"))
    assert blank.train.sparse
    assert blank.train.features.shape == (0, 300)
    assert blank.train.features.dtype == np.float32


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KNOWN))
def test_the_catalogue_declares_what_the_files_hold(name: str, shared_data: Path, monkeypatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    try:
        KNOWN[name].locate()
    except DataError:
        pytest.skip(f"no files of {name}")
    data = load_dataset(DatasetSettings(name=name))
    form = declared_form(DatasetSettings(name=name))
    assert (data.train.features.shape[1:], data.labels) == (form.shape, form.labels)
    assert data.train.sparse == (form.layout == "sparse")
