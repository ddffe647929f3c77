"""A party's own rows are, bit for bit, those of the same rows in a file of all parties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from gossamer.data.datasets import Dataset, DatasetSettings, load_dataset
from gossamer.data.examples import Features, Split
from gossamer.deployment.party.data import load_party_split, write_party_file
from gossamer.errors import DataError, SpecError


def assert_same(found: Split, expected: Split) -> None:
    """Bit for bit, and held in the same way."""
    assert found.sparse == expected.sparse
    assert found.features.shape == expected.features.shape
    for ours, theirs in ((_parts(found.features), _parts(expected.features)), ([found.targets], [expected.targets])):
        for one, other in zip(ours, theirs, strict=True):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def _parts(features: Features) -> list[np.ndarray]:
    if isinstance(features, np.ndarray):
        return [features]
    return [features.data, features.indices, features.indptr]


def _rows(split: Split, start: int, end: int) -> Split:
    return Split(split.features[start:end], split.targets[start:end])


def _csv(path: Path, rows: list[str], header: str = "age,stay,ward,site,died") -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def _libsvm(path: Path, rows: list[str], header: str = "") -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


# Ages and stays are thirds, so that a division in another precision or order would show.
CSV_ROWS = [f"{row / 3},{row % 7 / 3},{row % 4},h{row // 10},{'abc'[row % 3]}" for row in range(20)]
SPARSE_ROWS = [f"{row % 3} {1 + row % 5}:{row / 3} {7 + row % 40}:1e-3" for row in range(20)]
OPTIONS = {
    "plain": (_csv, CSV_ROWS, {"owner": "site", "features": 3, "labels": ("a", "b", "c")}),
    "scaled": (_csv, CSV_ROWS, {"ignore": ("site",), "features": 3, "divide_by": 3.3, "labels": ("c", "a", "b")}),
    "positive": (
        _csv,
        CSV_ROWS,
        {"ignore": ("site", "ward"), "features": 2, "labels": ("a", "b", "c"), "positive": ("c", "a")},
    ),
    "named": (
        _csv,
        CSV_ROWS,
        {"target": "died", "owner": "site", "features": ("stay", "age"), "labels": ("a", "b", "c")},
    ),
    "regression": (_csv, CSV_ROWS, {"target": "age", "ignore": ("site", "died"), "features": 2, "task": "regression"}),
    "sparse": (
        _libsvm,
        SPARSE_ROWS,
        {"format": "libsvm", "features": 60, "layout": "sparse", "labels": (2, 0, 1), "normalise": "unit_norm"},
    ),
    "dense": (
        _libsvm,
        SPARSE_ROWS,
        {"format": "libsvm", "features": (1, 6, 10), "layout": "dense", "labels": (0, 1, 2), "divide_by": 7},
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_rows_of_a_party_are_those_of_the_file_of_all(case: str, tmp_path: Path) -> None:
    """Also where the party lacks classes, columns and the largest index, and tests on rows of its own."""
    write, rows, options = OPTIONS[case]
    suffix = ".svm" if write is _libsvm else ".csv"
    whole = write(tmp_path / f"whole{suffix}", rows)
    settings = DatasetSettings(name="mine", path=whole, test_path=whole, **options)
    everything = load_dataset(settings).train
    for start, end in ((0, 1), (1, 12), (12, 20)):
        own = write(tmp_path / f"own{suffix}", rows[start:end])
        train, test = load_party_split(settings, own, examples=end - start)
        assert_same(train, _rows(everything, start, end))
        assert test is None
        _, test = load_party_split(settings, own, whole)
        assert test is not None
        assert_same(test, everything)


def test_a_party_names_columns_in_its_own_order_and_needs_no_owner(tmp_path: Path) -> None:
    options = {"target": "died", "owner": "site", "features": ("stay", "age"), "labels": ("a", "b", "c")}
    whole = _csv(tmp_path / "whole.csv", CSV_ROWS)
    settings = DatasetSettings(name="mine", path=whole, test_path=whole, **options)
    other = [f"{died},{age},{stay}" for age, stay, _, _, died in (row.split(",") for row in CSV_ROWS)]
    train, _ = load_party_split(settings, _csv(tmp_path / "own.csv", other, "died,age,stay"))
    assert_same(train, load_dataset(settings).train)


def test_labels_that_look_like_numbers_are_names_where_names_are_declared(tmp_path: Path) -> None:
    """The file of all holds 1, 2 and x, so its labels are text, and so are those of a party that has no x."""
    rows = [f"{row},{label}" for row, label in enumerate(["1", "2", "x", "2"] * 2)]
    settings = DatasetSettings(
        name="mine", path=_csv(tmp_path / "whole.csv", rows, "age,kind"), features=1, labels=("1", "2", "x")
    )
    train, _ = load_party_split(settings, _csv(tmp_path / "own.csv", rows[:2], "age,kind"))
    assert train.targets.tolist() == [0, 1]
    assert load_dataset(settings.model_copy(update={"test_path": settings.path})).train.targets.tolist()[:3] == [
        0,
        1,
        2,
    ]


def test_a_known_set_needs_no_declaration(tmp_path: Path) -> None:
    everything = load_dataset(DatasetSettings(name="digits", test_path=None, test_fraction=0.01))
    own = tmp_path / "own.npz"
    np.savez(
        own, features=(everything.train.features[5:30] * 16).astype(np.uint8), targets=everything.train.targets[5:30]
    )
    train, _ = load_party_split(DatasetSettings(name="digits"), own)
    assert_same(train, _rows(everything.train, 5, 30))


def test_rows_of_a_known_set_have_its_width(tmp_path: Path) -> None:
    """Columns 3 and 7 of 300 are all that occur."""
    own = _libsvm(tmp_path / "own", ["-1 3:1 7:1", "1 7:1"])
    train, _ = load_party_split(DatasetSettings(name="w8a"), own)
    assert train.sparse
    assert train.features.shape == (2, 300)
    assert train.targets.tolist() == [0, 1]


def test_the_declared_format_goes_before_the_name_of_a_file(tmp_path: Path) -> None:
    settings = DatasetSettings(name="mine", format="csv", features=1, labels=(0, 1))
    train, _ = load_party_split(settings, _csv(tmp_path / "own.svm", ["3,1"], "age,died"))
    assert (train.features.tolist(), train.targets.tolist()) == ([[3]], [1])


def test_a_wrong_test_file_is_the_one_named(tmp_path: Path) -> None:
    settings = DatasetSettings(name="mine", format="csv", features=1, labels=(0, 1))
    own = _csv(tmp_path / "own.csv", ["3,1"], "age,died")
    test = _csv(tmp_path / "test.csv", ["3,1", "4,2"], "age,died")
    with pytest.raises(DataError, match=r"test\.csv, line 3 has the label 2, which is none of"):
        load_party_split(settings, own, test)


def _idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def test_a_folder_of_idx_files(tmp_path: Path) -> None:
    pixels = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 251
    _idx(tmp_path / "train-images-idx3-ubyte", pixels)
    _idx(tmp_path / "train-labels-idx1-ubyte", np.array([7, 3]))
    train, _ = load_party_split(DatasetSettings(name="mnist"), tmp_path)
    assert train.targets.tolist() == [7, 3]
    assert np.array_equal(train.features[:, 0], pixels.astype(np.float32) / np.float32(255))


def test_a_folder_of_pictures(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number, place in enumerate(("train/ill", "train/ill", "test/well")):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        image.fromarray(np.full((3, 2), 51 * number, np.uint8)).save(tmp_path / place / f"{number}.png")
    settings = DatasetSettings(name="mine", format="images", features=(1, 3, 2), labels=("well", "ill"))
    train, test = load_party_split(settings, tmp_path)
    assert test is not None
    assert train.targets.tolist() == [1, 1]
    assert np.array_equal(train.features[:, 0, 0, 0], np.array([0, 51], np.float32) / np.float32(255))
    assert test.targets.tolist() == [0]
    with pytest.raises(DataError, match=r"expected examples of shape \[1, 2, 3\]"):
        load_party_split(settings.model_copy(update={"features": (1, 2, 3)}), tmp_path)


@pytest.mark.parametrize(
    ("options", "asked", "error", "message"),
    [
        ({"features": None}, {}, SpecError, "missing: features"),
        ({"labels": None}, {}, SpecError, "missing: labels"),
        ({"features": 4}, {}, DataError, r"own\.csv: expected examples of 4 features .* found 3"),
        ({"labels": ("a", "b")}, {}, DataError, r"own\.csv, line 4 has the label c, which is none of"),
        ({"divide_by": 1e-38, "task": "classification"}, {}, DataError, "not finite after dataset.divide_by"),
        ({}, {"examples": 21}, DataError, "expected 21 training examples, as this party has declared, found 20"),
        ({"name": "graph_regression"}, {}, DataError, "graph_regression is drawn, not read"),
    ],
)
def test_what_is_not_as_declared_is_one_clear_line(options, asked, error, message: str, tmp_path: Path) -> None:
    own = _csv(tmp_path / "own.csv", [row.replace("0.0,", "4,") for row in CSV_ROWS])
    settings = {"name": "mine", "format": "csv", "owner": "site", "features": 3, "labels": ("a", "b", "c"), **options}
    if settings["name"] == "graph_regression":
        settings = options
    with pytest.raises(error, match=message) as found:
        load_party_split(DatasetSettings(**settings), own, **asked)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(("write", "rows"), [(_csv, CSV_ROWS), (_libsvm, SPARSE_ROWS)])
@pytest.mark.parametrize("late", [1, 3])
def test_rows_that_came_late_are_left_out_and_named(write, rows, late: int, tmp_path: Path) -> None:
    form = "csv" if write is _csv else "libsvm"
    options = {"owner": "site", "features": 3} if write is _csv else {"features": 60, "layout": "sparse"}
    labels = ("a", "b", "c") if write is _csv else (0, 1, 2)
    settings = DatasetSettings(name="mine", format=form, labels=labels, **options)
    lines: list[str] = []
    first = load_party_split(settings, write(tmp_path / "first", rows[: 20 - late]), say=lines.append)[0]
    assert not lines
    found = load_party_split(settings, write(tmp_path / "all", rows), examples=20 - late, say=lines.append)[0]
    assert_same(found, first)
    (line,) = lines
    named = (
        "leaves out 1 training example (number 20)"
        if late == 1
        else "leaves out 3 training examples (numbers 18 to 20)"
    )
    assert named in line
    assert f"declared {20 - late}" in line


def _synthetic() -> Dataset:
    return load_dataset(
        DatasetSettings(name="graph_regression", synthetic={"owners": 3, "examples": 10, "features": 4})
    )


def _sparse(folder: Path) -> Dataset:
    path = _libsvm(folder / "whole.svm", SPARSE_ROWS)
    return load_dataset(DatasetSettings(name="mine", path=path, layout="sparse", labels=(5, 0, 1, 2)))


def _cases(folder: Path) -> dict[str, Dataset]:
    return {
        "pictures": load_dataset(DatasetSettings(name="digits")),
        "two classes of many": load_dataset(DatasetSettings(name="digits", positive=(1, 7))),
        "sparse": _sparse(folder),
        "regression": _synthetic(),
    }


@pytest.mark.parametrize("case", ["pictures", "two classes of many", "sparse", "regression"])
def test_a_written_shard_loads_back_bit_for_bit(case: str, tmp_path: Path) -> None:
    """Of every case also a shard of one example, and with the same settings for all shards."""
    dataset = _cases(tmp_path)[case]
    settings = []
    for rows in (np.array([3]), np.array([9, 2, 4, 0])):
        shard = Split(dataset.train.features[rows], dataset.train.targets[rows])
        path = tmp_path / "shard.npz"
        settings.append(write_party_file(path, shard, dataset, dataset.test))
        train, test = load_party_split(settings[-1], path, examples=len(rows))
        assert_same(train, shard)
        assert test is not None
        assert_same(test, dataset.test)
        write_party_file(path, shard, dataset)
        assert load_party_split(settings[-1], path)[1] is None
    assert settings[0] == settings[1]
    assert settings[0].labels == dataset.labels


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indptr": [0, 2, 1]}, "no CSR array"),
        ({"indices": [0, 9, 1]}, "no CSR array"),
        ({"indices": [1, 0, 1]}, "rising indices in each row"),
        ({"data": [1.0, np.nan, 3.0]}, r"row 1, column 2.* found nan"),
        ({"data": [1.0, 2.0]}, "no CSR array"),
        ({"data": ["a", "b", "c"]}, "expected numbers|no CSR array"),
        ({"shape": [2, 3, 1]}, "no CSR array"),
    ],
)
def test_a_damaged_sparse_archive_is_named(changes, message: str, tmp_path: Path) -> None:
    parts = {"data": [1.0, 2.0, 3.0], "indices": [0, 1, 1], "indptr": [0, 2, 3], "shape": [2, 3]}
    path = tmp_path / "own.npz"
    arrays = {f"features_{part}": np.array(values) for part, values in {**parts, **changes}.items()}
    np.savez(path, targets=np.array([0, 1]), **arrays)
    settings = DatasetSettings(name="mine", format="npz", features=3, labels=(0, 1), layout="sparse")
    with pytest.raises(DataError, match=message) as error:
        load_party_split(settings, path)
    assert str(error.value).startswith(str(path))


def test_sparse_archives_of_the_reader_are_read_by_the_simulator_too(tmp_path: Path) -> None:
    rows = sp.csr_array(np.array([[0, 2.5, 0], [1, 0, 0]] * 5, np.float64))
    parts = {f"features_{part}": getattr(rows, part) for part in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "mine.npz", targets=np.array([0, 1] * 5), **parts)
    data = load_dataset(DatasetSettings(name="mine", path=tmp_path / "mine.npz", test_path=None, layout="sparse"))
    assert data.train.sparse
    assert data.train.features.toarray().tolist() == [[0, 2.5, 0], [1, 0, 0]] * 4


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (["50,p9,a", "51,p9,b"], None),
        (["50,p9,a", "51,p1,b"], "found 1 person with examples to train on and held out"),
        (["50,p9,a", "51,p9,b", "52,p9,a"], "found a person with 3 of them"),
    ],
)
def test_whose_rows_are_held_out_is_compared_with_whose_are_trained_on(
    test: list[str], said: str | None, tmp_path: Path
) -> None:
    """Where something is released of test rows; each party has both in tables of its own."""
    train = _csv(tmp_path / "train.csv", [f"{row},p{row // 2},{'ab'[row % 2]}" for row in range(8)], "age,who,died")
    held = _csv(tmp_path / "test.csv", test, "age,who,died")
    form = {"target": "died", "person": "who", "labels": ("a", "b"), "columns": {"age": {"range": [0, 100]}}}
    settings = DatasetSettings.model_validate({"name": "wards", "format": "csv", **form})
    load_party_split(settings, train, held, rows_per_person=2)
    if said is None:
        load_party_split(settings, train, held, rows_per_person=2, evaluated=True)
        return
    with pytest.raises(DataError, match=said) as error:
        load_party_split(settings, train, held, rows_per_person=2, evaluated=True)
    assert "\n" not in str(error.value)
