"""Where files are looked for, in which order, and what a missing one's error says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gossamer.data.datasets import DatasetSettings, known_datasets, load_dataset, search_path
from gossamer.data.files import KNOWN, find_together
from gossamer.errors import DataError


@pytest.fixture(autouse=True)
def empty_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No data anywhere but in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GOSSAMER_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_the_variable_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", os.pathsep.join(["/one", "", "~/two"]))
    assert search_path() == [
        Path("/one"),
        Path.home() / "two",
        tmp_path / "data",
        tmp_path / "cache" / "gossamer",
    ]


def test_the_cache_is_in_the_home_folder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert search_path()[-1] == Path.home() / ".cache" / "gossamer"


def _touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return path


def test_files_of_a_set_are_found_together(tmp_path: Path) -> None:
    """A training file in one folder and a test file in another are no pair."""
    first, second = tmp_path / "first", tmp_path / "second"
    _touch(first / "a9a")
    _touch(second / "libsvm" / "a9a.t.bz2")
    assert find_together(["a9a", "a9a.t"], [first, second]) is None
    both = [_touch(second / "libsvm" / "a9a.gz"), second / "libsvm" / "a9a.t.bz2"]
    assert find_together(["a9a", "a9a.t"], [first, second]) == both


def test_subfolders_count_but_not_theirs(tmp_path: Path) -> None:
    deep = _touch(tmp_path / "one" / "two" / "w8a")
    assert find_together(["w8a"], [tmp_path]) is None
    assert find_together(["w8a"], [tmp_path / "one"]) == [deep]


def test_an_earlier_folder_wins(tmp_path: Path) -> None:
    late, early = _touch(tmp_path / "b" / "w8a"), _touch(tmp_path / "a" / "sub" / "w8a.bz2")
    assert find_together(["w8a"], [early.parents[1], late.parent]) == [early]


def test_a_missing_set_names_files_places_and_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path / "mine"))
    there = _touch(tmp_path / "data" / "libsvm" / "a9a.bz2")
    with pytest.raises(DataError) as error:
        load_dataset(DatasetSettings(name="a9a"))
    text = str(error.value)
    assert "\n" not in text
    assert "needs a9a, a9a.t in one folder" in text
    assert f"found {there};" in text
    for folder in search_path():
        assert str(folder) in text
    assert "GOSSAMER_DATA" in text


def test_an_explicit_folder_is_the_only_one(tmp_path: Path) -> None:
    _touch(tmp_path / "data" / "w8a")
    (tmp_path / "other").mkdir()
    with pytest.raises(DataError, match=f"looked in {tmp_path / 'other'} and their"):
        load_dataset(DatasetSettings(name="w8a", path=tmp_path / "other"))


def test_unknown_names_and_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data set is called 'minst'; known are digits, mnist, .*path"):
        load_dataset(DatasetSettings(name="minst"))
    with pytest.raises(DataError, match="there is no file or folder nowhere"):
        load_dataset(DatasetSettings(name="mine", path=Path("nowhere.csv")))


def test_the_list_shows_what_is_there(tmp_path: Path) -> None:
    found = _touch(tmp_path / "data" / "phishing.gz")
    records = {record.name: record for record in known_datasets()}
    assert list(records) == [*KNOWN, "graph_regression"]
    assert records["phishing"].path == found
    assert records["mnist"].path is None
    digits = records["digits"].path
    assert digits is not None
    assert digits.is_file()
