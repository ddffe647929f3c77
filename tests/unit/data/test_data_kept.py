"""Data that are prepared once: the same bytes each time; made anew if files or settings differ, or a copy is broken."""

from __future__ import annotations

import gzip
import os
import struct
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.unit.architecture_report import modules_imported

from gossamer.data import datasets, derived, kept
from gossamer.data.catalogue import KNOWN
from gossamer.data.datasets import Dataset, DatasetSettings, load_dataset
from gossamer.data.idx import TEST, TRAIN

SIZE = {"mnist": 40, "w8a": 50}
"""Examples of the small data sets that stand for public ones here."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and files of two known data sets, which are smaller than published."""
    data = tmp_path / "files"
    data.mkdir()
    write_idx(data)
    write_libsvm(data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOSSAMER_DATA", str(data))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, examples in SIZE.items():
        monkeypatch.setitem(KNOWN, name, replace(KNOWN[name], train_examples=examples))
    return tmp_path


def write_idx(folder: Path, seed: int = 0) -> None:
    generator = np.random.default_rng(seed)
    for (images, labels), count in ((TRAIN, SIZE["mnist"]), (TEST, 20)):
        pixels = generator.integers(0, 256, (count, 28, 28), np.uint8)
        head = struct.pack(">4B3I", 0, 0, 8, 3, *pixels.shape)
        (folder / f"{images}.gz").write_bytes(gzip.compress(head + pixels.tobytes()))
        numbers = (np.arange(count) % 10).astype(np.uint8)
        (folder / labels).write_bytes(struct.pack(">4BI", 0, 0, 8, 1, count) + numbers.tobytes())


def write_libsvm(folder: Path) -> None:
    lines = [f"{1 - 2 * (row % 2)} {1 + row}:{row / 7} {200 + row}:1" for row in range(SIZE["w8a"])]
    (folder / "w8a").write_text("\n".join(lines))


def entries() -> list[Path]:
    return sorted(kept.folder().iterdir()) if kept.folder().is_dir() else []


def arrays(data: Dataset) -> dict[str, np.ndarray]:
    found = {}
    for which, split in (("train", data.train), ("test", data.test)):
        features = split.features
        parts = ("data", "indices", "indptr") if split.sparse else ("T",)
        found |= {f"{which} {part}": getattr(features, part) for part in parts}
        found[f"{which} targets"] = split.targets
    return found


def same(one: Dataset, two: Dataset) -> bool:
    """Whether all is alike, to the bit and the type."""
    facts = ("name", "classes", "labels", "owners", "persons", "source")
    first, second = arrays(one), arrays(two)
    return (
        all(getattr(one, fact) == getattr(two, fact) for fact in facts)
        and first.keys() == second.keys()
        and all(
            first[key].dtype == second[key].dtype
            and first[key].shape == second[key].shape
            and first[key].tobytes() == second[key].tobytes()
            for key in first
        )
    )


def never(*_: object) -> None:
    raise AssertionError("the files were parsed again")


@pytest.mark.parametrize(
    "settings",
    [
        DatasetSettings(name="mnist"),
        DatasetSettings(name="w8a"),
        DatasetSettings(name="w8a", layout="dense", normalise="unit_norm"),
    ],
)
def test_what_is_kept_is_what_was_made(settings: DatasetSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_dataset(settings)
    monkeypatch.setattr(datasets, "read_files", never)
    again = load_dataset(settings)
    assert same(first, again)
    assert all(isinstance(array, np.ndarray) and type(array) is np.ndarray for array in arrays(again).values())
    assert len(entries()) == 1


def test_the_public_set_itself_is_kept(shared_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(shared_data))
    settings = DatasetSettings(name="usps")
    first = load_dataset(settings)
    monkeypatch.setattr(datasets, "read_files", never)
    assert same(first, load_dataset(settings))


def test_other_contents_and_other_settings_are_made_anew(home: Path) -> None:
    """Contents count, not dates: the changed file has the size and the date of the old one."""
    load_dataset(DatasetSettings(name="mnist"))
    labels = home / "files" / TRAIN[1]
    before = labels.stat()
    labels.write_bytes(labels.read_bytes()[:-1] + b"\0")
    os.utime(labels, ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = load_dataset(DatasetSettings(name="mnist"))
    assert changed.train.targets[-1] == 0
    halved = load_dataset(DatasetSettings(name="mnist", divide_by=510))
    assert np.array_equal(halved.train.features * 2, changed.train.features)
    assert len(entries()) == 3


def test_other_code_and_other_libraries_make_it_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    load_dataset(DatasetSettings(name="mnist"))
    monkeypatch.setattr(derived, "_code", lambda: "another version of the readers")
    load_dataset(DatasetSettings(name="mnist"))
    monkeypatch.setattr(np, "__version__", "another version")
    load_dataset(DatasetSettings(name="mnist"))
    assert len(entries()) == 3


def test_all_code_that_makes_it_counts() -> None:
    """Also what stands outside the package, and is imported by what it imports."""
    imports, here = modules_imported(), Path(derived.__file__).parent
    reached = {file for file in imports if file.startswith("data/")}
    while more := {other for file in reached for other in imports[file]} - reached:
        reached |= more
    assert {"data/derived.py", "randomness.py", "normals.py"} <= reached
    assert {here.parent / file for file in reached} <= set(derived._sources())


def test_the_same_contents_elsewhere_are_what_was_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_dataset(DatasetSettings(name="mnist"))
    moved = home / "moved"
    (home / "files").rename(moved)
    monkeypatch.setattr(datasets, "read_files", never)
    assert load_dataset(DatasetSettings(name="mnist", path=moved)).source == str(moved)


def test_own_data_are_not_kept(home: Path) -> None:
    """Nor is what goes by the name of a public data set, and is another."""
    path = home / "mine.csv"
    path.write_text("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(40, 20, -1)))
    load_dataset(DatasetSettings(name="mine", path=path))
    load_dataset(
        DatasetSettings(name="a9a", path=home / "files" / "w8a", test_path=home / "files" / "w8a", features=300)
    )
    load_dataset(DatasetSettings(name="digits"))
    assert entries() == []


def _shorter(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


def _another_number(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _another_label(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"3"', b'"8"'))


def _no_array(path: Path) -> None:
    path.write_bytes(b"damaged")


def _no_bracket(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"), }", b",  }"))


DAMAGES = [
    (file, damage)
    for file in ("train_features.npy", "test_targets.npy", "entry")
    for damage in (_shorter, _another_number, _no_array, Path.unlink)
]


@pytest.mark.parametrize(("file", "damage"), [*DAMAGES, ("entry", _another_label), ("test_targets.npy", _no_bracket)])
def test_what_is_damaged_is_made_anew_and_a_line_says_so(file: str, damage: Callable[[Path], None]) -> None:
    first = load_dataset(DatasetSettings(name="mnist"))
    (entry,) = entries()
    damage(entry / file)
    with pytest.warns(UserWarning, match="damaged") as said:
        again = load_dataset(DatasetSettings(name="mnist"))
    (line,) = (str(each.message) for each in said)
    assert line.startswith(f"prepared data kept in {entry} are damaged (")
    assert line.endswith("), so they are made anew")
    assert "\n" not in line
    assert same(first, again)
    with warnings.catch_warnings(action="error"):
        assert same(first, load_dataset(DatasetSettings(name="mnist")))


def test_where_nothing_can_be_kept_a_line_says_so(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_dataset(DatasetSettings(name="mnist"))
    (home / "no folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "no folder"))
    with pytest.warns(UserWarning, match="cannot be kept") as said:
        again = load_dataset(DatasetSettings(name="mnist"))
    assert [str(each.message) for each in said] == [
        f"prepared data cannot be kept in {kept.folder()} (Not a directory), so each run prepares them again; set "
        "XDG_CACHE_HOME to a folder that can be written"
    ]
    assert same(first, again)


def test_a_full_disk_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.warns(UserWarning, match=r"cannot be kept in .* \(No space left on device\)"):
        load_dataset(DatasetSettings(name="mnist"))
    assert entries() == []


def test_two_processes_that_make_the_same_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that comes second finds the other's entry in place, and leaves it there."""
    load_dataset(DatasetSettings(name="mnist"))
    (entry,) = entries()
    before = (entry / "entry").stat().st_ino
    monkeypatch.setattr(kept, "find", lambda name: None)
    with warnings.catch_warnings(action="error"):
        load_dataset(DatasetSettings(name="mnist"))
    assert entries() == [entry]
    assert (entry / "entry").stat().st_ino == before


def test_what_is_written_to_an_array_stays_in_the_process() -> None:
    settings = DatasetSettings(name="mnist")
    first = load_dataset(settings)
    load_dataset(settings).train.features[:] = 7
    assert same(first, load_dataset(settings))


def test_the_longest_unused_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a" * 64, "b" * 64, "c" * 64, "d" * 64]
    array = {"x": np.zeros(1000)}  # a little over 8,000 bytes
    for age, name in enumerate(names[:3]):
        kept.keep(name, array, {})
        os.utime(kept.folder() / name, (1000 + age, 1000 + age))
    left = kept.folder() / ".new-killed"
    left.mkdir()
    os.utime(left, (1000, 1000))
    under_way = kept.folder() / ".new-under-way"
    under_way.mkdir()
    assert kept.find(names[0]) is not None  # so it was used last
    monkeypatch.setattr(kept, "MOST_BYTES", 20_000)
    kept.keep(names[3], array, {})
    assert [path.name for path in entries()] == [".new-under-way", names[0], names[3]]
    monkeypatch.setattr(kept, "MOST_BYTES", 10)
    kept.keep(names[1], array, {})
    assert [path.name for path in entries()] == [".new-under-way", names[1]]


def test_only_the_owner_can_look_into_it(home: Path) -> None:
    load_dataset(DatasetSettings(name="mnist"))
    assert kept.folder().stat().st_mode & 0o077 == 0
