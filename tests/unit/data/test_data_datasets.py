"""From settings to splits: the bundled set, the reader's own files, and the published sizes of known sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gossamer as gs
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.files import infer_format
from gossamer.errors import DataError, SpecError


def test_digits_are_scikit_learns() -> None:
    """Each of the 1,797 examples is there once, in [0, 1], with its digit; a fifth of each class is kept apart."""
    from sklearn.datasets import load_digits

    reference = load_digits()
    ours = load_dataset(DatasetSettings(name="digits"))
    assert np.array_equal(load_dataset("digits").train.features, ours.train.features)
    assert (ours.classes, ours.labels) == (10, tuple("0123456789"))
    assert ours.train.features.shape[1:] == ours.test.features.shape[1:] == (1, 8, 8)
    assert ours.train.features.dtype == np.float32
    assert ours.train.targets.dtype == np.int64

    def rows(features: np.ndarray, targets: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(map(tuple, np.column_stack([features.reshape(len(features), -1), targets])))

    found = rows(ours.train.features, ours.train.targets) + rows(ours.test.features, ours.test.targets)
    assert sorted(found) == rows(reference.data / 16, reference.target)
    per_class = np.bincount(reference.target)
    assert np.bincount(ours.test.targets).tolist() == [count // 5 for count in per_class]


def test_digits_need_no_files_and_no_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_dataset(DatasetSettings(name="digits"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    np.random.seed(3)
    again = load_dataset(DatasetSettings(name="digits"))
    assert np.array_equal(first.train.features, again.train.features)
    assert np.array_equal(first.test.targets, again.test.targets)
    assert again.source == "bundled; 0.2 of the examples held out for testing"


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_train_and_test_files_get_the_same_width(tmp_path: Path) -> None:
    """a9a.t stops at index 122 of 123 in just this way."""
    train = _write(tmp_path, "mine", "1 1:1 4:1\n-1 2:2\n")
    test = _write(tmp_path, "mine.t", "-1 1:1\n")
    data = load_dataset(DatasetSettings(name="mine", path=train, test_path=test))
    assert data.train.features.tolist() == [[1, 0, 0, 1], [0, 2, 0, 0]]
    assert data.test.features.tolist() == [[1, 0, 0, 0]]
    assert data.train.targets.tolist() == [1, 0]
    assert data.source == f"{train}; test examples from {test}"
    wider = load_dataset(DatasetSettings(name="mine", path=test, test_path=train, labels=(-1, 1), features=9))
    assert wider.train.features.shape == (1, 9)


def test_files_of_a_known_set_have_its_width(tmp_path: Path) -> None:
    path = _write(tmp_path, "a9a", "1 1:1 4:1\n-1 2:1\n")
    data = load_dataset(DatasetSettings(name="a9a", path=path, test_path=path))
    assert data.train.features.shape == data.test.features.shape == (2, 123)


def test_a_test_label_that_training_lacks(tmp_path: Path) -> None:
    train = _write(tmp_path, "mine", "1 1:1\n-1 2:2\n")
    test = _write(tmp_path, "mine.t", "1 1:1\n0 1:1\n")
    with pytest.raises(
        DataError,
        match=r"mine\.t, line 2 has the label 0, which is none of the 2 classes -1, 1; correct it, or name all",
    ):
        load_dataset(DatasetSettings(name="mine", path=train, test_path=test))


def test_a_wrong_label_of_a_held_out_table_is_named_by_its_line(tmp_path: Path) -> None:
    """The split puts the row into training or test examples, and a blank line is a line."""
    for wrong in range(6):
        rows = [f"{row},{'maybe' if row == wrong else 'ny'[row % 2]}" for row in range(6)]
        path = _write(tmp_path, f"own{wrong}.csv", "x,y\n\n" + "\n".join(rows) + "\n")
        said = (
            rf"own{wrong}\.csv, line {wrong + 3} has the label maybe, which is none of the 2 classes n, y; correct it"
        )
        with pytest.raises(DataError, match=said):
            load_dataset(DatasetSettings(name="own", path=path, target="y", labels=("n", "y"), test_fraction=0.4))


def test_two_classes_from_many() -> None:
    """Odd against even digits, and nothing else is different: features, order and held-out examples are the same."""
    ten, two = (load_dataset(DatasetSettings(name="digits", positive=odd)) for odd in (None, (9, 1, 3, 5, 7)))
    assert (two.classes, two.labels) == (2, ("0, 2, 4, 6, 8", "1, 3, 5, 7, 9"))
    for many, few in ((ten.train, two.train), (ten.test, two.test)):
        assert np.array_equal(few.features, many.features)
        assert np.array_equal(few.targets, many.targets % 2)
        assert few.targets.dtype == np.int64


def test_positive_labels_of_names_and_of_a_party_that_lacks_some(tmp_path: Path) -> None:
    """Where all labels are named, no example needs to be positive; class 1 does not depend on the labels' order."""
    path = _write(tmp_path, "mine.csv", "x,y\n" + "".join(f"{row},{'abc'[row % 3]}\n" for row in range(15)))
    for labels in (None, ("c", "a", "b", "d")):
        data = load_dataset(DatasetSettings(name="mine", path=path, labels=labels, positive=("c",)))
        assert data.train.targets.tolist() == [int(row % 3 == 2) for row in data.train.features[:, 0]]
    options = {"name": "mine", "path": path, "labels": ("a", "b", "c", "d")}
    data = load_dataset(DatasetSettings(**options, positive=("d",)))
    assert (data.classes, data.labels) == (2, ("a, b, c", "d"))
    assert not data.train.targets.any()
    with pytest.raises(DataError, match="'positive' names the label d, which is none of the 3 classes a, b, c"):
        load_dataset(DatasetSettings(name="mine", path=path, positive=("d",)))


def test_positive_labels_of_test_examples_and_of_a_regression(tmp_path: Path) -> None:
    train = _write(tmp_path, "mine", "1 1:1\n2 2:2\n3 1:3\n")
    test = _write(tmp_path, "mine.t", "3 1:1\n1 1:1\n2 1:1\n")
    options = {"name": "mine", "path": train, "test_path": test}
    data = load_dataset(DatasetSettings(**options, positive=(2,)))
    assert (data.train.targets.tolist(), data.test.targets.tolist()) == ([0, 1, 0], [0, 0, 1])
    with pytest.raises(DataError, match="'positive' makes classes of labels, but task is regression"):
        load_dataset(DatasetSettings(**options, positive=(2,), task="regression"))


def usps_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files like those of USPS: labels from 1 to 10 and 256 columns; example i has the value i + j in column j."""
    rows = [f"{1 + i % 10} " + " ".join(f"{j + 1}:{i + j}" for j in range(256)) for i in range(20)]
    _write(folder, "usps", "\n".join(rows))
    _write(folder, "usps.t", "\n".join(rows[:10]))
    monkeypatch.setenv("GOSSAMER_DATA", str(folder))


def test_usps_rows_are_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row by row: column 16 r + c of the file is the pixel in row r and column c."""
    usps_files(tmp_path, monkeypatch)
    data = load_dataset(DatasetSettings(name="usps"))
    assert data.train.features.shape == (20, 1, 16, 16)
    assert data.test.features.shape == (10, 1, 16, 16)
    assert data.train.features[3, 0, 2, 5] == 3 + 16 * 2 + 5
    assert data.labels == tuple(map(str, range(1, 11)))
    flat = load_dataset(DatasetSettings(name="usps", layout="sparse")).train
    assert flat.sparse
    assert flat.features.shape == (20, 256)


@pytest.mark.some(1)
@pytest.mark.parametrize(("objective", "size"), [("softmax", 2570), ("cnn_mapa", 2880)])
def test_usps_suits_linear_models_and_networks(
    objective: str, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """softmax: 256 * 10 weights and 10 biases. The network: 5 x 5 convolutions from 1 to 10 and from 10 to 10
    channels, 260 + 2,510, which leave one pixel of 16 x 16, and 10 * 10 + 10."""
    usps_files(tmp_path, monkeypatch)
    spec = {
        "dataset": {"name": "usps", "divide_by": 275},
        "objective": objective,
        "algorithm": {"name": "gossip", "nodes": 2, "topology": "complete", "batch_size": 4, "updates_per_node": 1},
        "privacy": "none",
    }
    model = gs.run(gs.Experiment.model_validate(spec)).model
    assert sum(part.size for part in model.values()) == size
    assert all(np.isfinite(part).all() for part in model.values())


def test_csv_with_owners_and_a_held_out_share(tmp_path: Path) -> None:
    """Owners stay beside their examples when a share of these is held out."""
    lines = [f"{row},h{row % 3},{row % 2}" for row in (*range(1, 20), 0)]
    path = _write(tmp_path, "mine.csv", "value,site,ill\n" + "\n".join(lines))
    data = load_dataset(DatasetSettings(name="mine", path=path, owner="site", test_fraction=0.25))
    assert (len(data.train), len(data.test)) == (16, 4)
    assert data.owners is not None
    for value, owner, target in zip(data.train.features[:, 0], data.owners, data.train.targets):
        assert owner == f"h{int(value) % 3}"
        assert target == int(value) % 2


def test_regression(tmp_path: Path) -> None:
    path = _write(tmp_path, "mine.csv", "x,y\n" + "".join(f"{row},{row / 2}\n" for row in range(10)))
    data = load_dataset(DatasetSettings(name="mine", path=path, task="regression"))
    assert (data.classes, data.labels) == (None, None)
    assert data.train.targets.dtype == np.float32
    assert np.array_equal(data.train.targets, data.train.features[:, 0] / 2)
    assert len(data.test) == 2
    with pytest.raises(DataError, match="task: regression"):
        load_dataset(DatasetSettings(name="mine", path=path))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_divide_and_normalise_mean_the_same_in_both_layouts(tmp_path: Path, layout) -> None:
    """The square of 1e30 is no float32, its norm is."""
    path = _write(tmp_path, "mine", "1 1:3 3:4\n-1\n1 2:-0.5\n1 1:1e30\n")
    options = {"name": "mine", "path": path, "test_path": path, "layout": layout}
    half = load_dataset(DatasetSettings(**options, divide_by=2)).train
    unit = load_dataset(DatasetSettings(**options, normalise="unit_norm")).train
    assert half.sparse == unit.sparse == (layout == "sparse")

    def dense(features) -> np.ndarray:
        assert features.dtype == np.float32
        return features.toarray() if layout == "sparse" else features

    assert dense(half.features).tolist() == [
        [1.5, 0, 2],
        [0, 0, 0],
        [0, -0.25, 0],
        [np.float32(1e30) / 2, 0, 0],
    ]
    assert np.allclose(dense(unit.features), [[0.6, 0, 0.8], [0, 0, 0], [0, -1, 0], [1, 0, 0]], rtol=1e-6)


def test_unit_norm_of_pictures(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    features = np.zeros((2, 1, 1, 2), np.float32)
    features[:, 0, 0] = [[3, 4], [0.5, 0]]
    np.savez(
        path,
        train_features=features,
        train_targets=[0, 1],
        test_features=features,
        test_targets=[0, 1],
    )
    unit = load_dataset(DatasetSettings(name="mine", path=path, normalise="unit_norm")).train.features
    assert np.allclose(unit[:, 0, 0], [[0.6, 0.8], [1, 0]], rtol=1e-6)


@pytest.mark.parametrize(("filled", "sparse"), [(1, True), (2, False)])
def test_layout_follows_the_share_of_entries(tmp_path: Path, filled: int, sparse: bool) -> None:
    """Of 11 columns one entry a row is under a tenth, two are over."""
    row = " ".join(f"{index}:1" for index in range(11, 11 - filled, -1))
    row = " ".join(sorted(row.split(), key=lambda pair: int(pair.split(":")[0])))
    path = _write(tmp_path, "mine", f"1 {row}\n-1 {row}\n")
    data = load_dataset(DatasetSettings(name="mine", path=path, test_path=path))
    assert data.train.sparse == data.test.sparse == sparse


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"owner": "site"}, "'owner' is for csv, parquet, datasets files, but this is libsvm"),
        ({"target": "y"}, "'target' is for csv"),
        (
            {"features": ["a", "b"], "target": "y"},
            "'features' names columns, which csv, parquet, datasets files have, but this is libsvm",
        ),
        ({"test_fraction": 0.1}, "too few to hold out 0.1"),
    ],
)
def test_options_that_do_not_apply_are_refused(tmp_path: Path, options, message: str) -> None:
    path = _write(tmp_path, "mine", "1 1:1\n-1 2:1\n")
    with pytest.raises(DataError, match=message):
        load_dataset(DatasetSettings(name="mine", path=path, **options))


def test_pictures_have_no_sparse_layout() -> None:
    with pytest.raises(DataError, match="no sparse layout"):
        load_dataset(DatasetSettings(name="digits", layout="sparse"))


def test_two_sources_of_test_examples(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    arrays = {"features": np.eye(2), "targets": [0, 1]}
    np.savez(path, **{f"{split}_{name}": array for split in ("train", "test") for name, array in arrays.items()})
    with pytest.raises(DataError, match="leave test_path out"):
        load_dataset(DatasetSettings(name="mine", path=path, test_path=path))


def test_test_examples_of_another_shape(tmp_path: Path) -> None:
    train = _write(tmp_path, "a.csv", "x,z,y\n1,2,0\n1,2,1\n")
    test = _write(tmp_path, "b.csv", "x,y\n1,0\n")
    with pytest.raises(DataError, match=r"b\.csv: expected test examples of shape \[2\].* found \[1\]"):
        load_dataset(DatasetSettings(name="mine", path=train, test_path=test))


def test_no_examples_at_all(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, features=np.zeros((0, 3)), targets=np.zeros(0))
    with pytest.raises(DataError, match="at least one example"):
        load_dataset(DatasetSettings(name="mine", path=path))


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.csv", "csv"),
        ("a.csv.gz", "csv"),
        ("a.npz", "npz"),
        ("a.zip", "images"),
        ("a9a", "libsvm"),
        ("a9a.t.bz2", "libsvm"),
        ("a.svm", "libsvm"),
    ],
)
def test_formats_by_name(name: str, form: str) -> None:
    assert infer_format(Path(name)) == form


def test_folders_and_unknown_suffixes(tmp_path: Path) -> None:
    assert infer_format(tmp_path) == "images"
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    assert infer_format(tmp_path) == "idx"
    with pytest.raises(DataError, match=r"suffix '\.xlsx'; give a file that ends in \.csv, .* dataset\.format: idx"):
        infer_format(Path("a.xlsx"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"nam": "x"},
        {"name": ""},
        {"test_fraction": 0},
        {"test_fraction": 1},
        {"divide_by": 0},
        {"features": 0},
        {"labels": (1,)},
        {"positive": ()},
        {"format": "orc"},
        {"normalise": "standard"},
    ],
)
def test_settings_are_checked(wrong) -> None:
    with pytest.raises(SpecError):
        DatasetSettings(**{"name": "mine", **wrong})


# Sizes as the sets' own pages state them; positives of a9a are the 24.08 % of Adult that earn over 50 K, digits
# per class of MNIST and USPS are those of their publications.
PUBLISHED = {
    "a9a": ((32_561, 123), (16_281, 123), [24_720, 7_841]),
    "ijcnn1": ((49_990, 22), (91_701, 22), [45_137, 4_853]),
    "usps": ((7_291, 1, 16, 16), (2_007, 1, 16, 16), [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644]),
    "mnist": (
        (60_000, 1, 28, 28),
        (10_000, 1, 28, 28),
        [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PUBLISHED)
def test_known_sets_have_their_published_sizes(name: str, shared_data: Path, monkeypatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    data = load_dataset(DatasetSettings(name=name))
    train, test, counts = PUBLISHED[name]
    assert data.train.features.shape == train
    assert data.test.features.shape == test
    assert np.bincount(data.train.targets).tolist() == counts
    assert data.classes == len(counts)
    low = -1 if name in ("usps", "ijcnn1") else 0
    assert low <= data.train.features.min() < data.train.features.max() <= 1


@pytest.mark.slow
def test_usps_pictures_stand_upright(shared_data: Path, monkeypatch) -> None:
    """A one is an upright stroke: the middle third of columns holds most ink, no third of rows does.

    Ink is a value's distance from -1; label 2 stands for the digit one.
    """
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    data = load_dataset(DatasetSettings(name="usps", positive=(2,)))
    assert (len(data.train), data.classes) == (7_291, 2)
    assert data.train.targets.sum() == 1005
    mean = (data.train.features[data.train.targets == 1, 0] + 1).mean(axis=0)
    columns, rows = mean.sum(axis=0) / mean.sum(), mean.sum(axis=1) / mean.sum()
    assert columns[5:11].sum() > 0.8
    assert max(rows[:6].sum(), rows[5:11].sum(), rows[10:].sum()) < 0.5


def test_w8a_without_a_test_file(shared_data: Path, monkeypatch) -> None:
    """49,749 x 300 with 1,479 positives: a fifth of each class, rounded down, is held out."""
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    data = load_dataset(DatasetSettings(name="w8a"))
    assert data.train.sparse
    assert data.train.features.shape == (39_800, 300)
    assert np.bincount(data.test.targets).tolist() == [48_270 // 5, 1_479 // 5]


@pytest.mark.slow
def test_cifar_subset(shared_data: Path, monkeypatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    data = load_dataset(DatasetSettings(name="cifar10"))
    assert data.train.features.shape == (10_000, 3, 32, 32)
    assert np.bincount(data.train.targets).tolist() == [1000] * 10
    assert np.bincount(data.test.targets).tolist() == [200] * 10
    assert data.labels is not None
    assert data.labels[:3] == ("airplane", "automobile", "bird")


def test_a_divisor_that_leaves_no_finite_features_is_refused() -> None:
    with pytest.raises(
        DataError, match=r"digits\.npz: features are not finite after dataset\.divide_by, scale and normalise"
    ):
        load_dataset(DatasetSettings(name="digits", divide_by=1e-38))
