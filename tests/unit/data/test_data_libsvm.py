"""LIBSVM text: what the format's description says, and each way a line can be wrong."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sampling import examples

from gossamer.data.array_files import read_libsvm
from gossamer.errors import DataError

# By the format's definition: columns are index - 1, absent entries are zero.
TEXT = "+1 1:0.5 3:-2\n\n-1 2:1e-3 \n1.0\r\n"
DENSE = [[0.5, 0, -2], [0, 0.001, 0], [0, 0, 0]]


def _file(folder: Path, text: str) -> Path:
    path = folder / "data"
    path.write_text(text)
    return path


def test_lines_become_rows(tmp_path: Path) -> None:
    examples = read_libsvm(_file(tmp_path, TEXT))
    assert examples.labels.tolist() == [1, -1, 1]
    assert examples.features.dtype == np.float32
    assert np.array_equal(examples.features.toarray(), np.array(DENSE, np.float32))


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed_files_read_as_plain(tmp_path: Path, suffix: str, compress) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(compress(TEXT.encode()))
    assert np.array_equal(read_libsvm(path).features.toarray(), np.array(DENSE, np.float32))


def test_width_may_be_given(tmp_path: Path) -> None:
    assert read_libsvm(_file(tmp_path, TEXT), features=7).features.shape == (3, 7)


def test_stored_zeros_take_no_room(tmp_path: Path) -> None:
    assert read_libsvm(_file(tmp_path, "1 1:0.0 2:3\n")).features.nnz == 1


@given(
    rows=st.lists(st.lists(st.floats(-1e6, 1e6, width=32), min_size=5, max_size=5), min_size=1, max_size=8),
    labels=st.data(),
)
@settings(deadline=None, derandomize=True, max_examples=examples(50))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, rows, labels) -> None:
    """Round trip: repr of a float32 as a double reads back exactly."""
    kinds = labels.draw(st.lists(st.integers(-3, 10), min_size=len(rows), max_size=len(rows)))
    text = "".join(
        f"{label} " + " ".join(f"{column}:{value!r}" for column, value in enumerate(row, 1) if value) + "\n"
        for label, row in zip(kinds, rows)
    )
    examples = read_libsvm(_file(tmp_path_factory.mktemp("libsvm"), text), features=5)
    assert examples.labels.tolist() == kinds
    assert np.array_equal(examples.features.toarray(), np.array(rows, np.float32))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("1 0:1", "found 0"),
        ("1 2:1 2:1", "found 2 after 2"),
        ("1 3:1 2:1", "found 2 after 3"),
        ("1 9:1", "from 1 to 5"),
        ("1 2", "'2'"),
        ("1 2:", "'2:'"),
        ("1 :3", "':3'"),
        ("1 2:3:4", "'2:3:4'"),
        ("1 2:3:4 5", "'2:3:4'"),
        ("1 2:x", "'2:x'"),
        ("1 2:1_0", "'2:1_0'"),
        ("1 -2:1", "'-2:1'"),
        ("1 1.5:1", "'1.5:1'"),
        ("1 99999999999:1", "'99999999999:1'"),
        ("one 2:1", "'one'"),
        ("1,2 2:1", "'1,2'"),
        ("1 qid:3 2:1", "'qid:3'"),
        ("1 2:nan", "index 2: expected a finite number that fits float32, found nan"),
        ("1 2:-inf", "found -inf"),
        ("1 2:1e39", "found inf"),
        ("nan 2:1", "expected a finite label"),
        ("1 2:\xff", "expected 'label index:value"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, found: str) -> None:
    path = _file(tmp_path, f"1 1:1\n\n{line}\n1 1:1\n")
    with pytest.raises(DataError) as error:
        read_libsvm(path, features=5)
    assert str(error.value).startswith(f"{path}, line 3")
    assert found in str(error.value)
    assert "\n" not in str(error.value)


def test_an_index_may_be_smaller_than_the_last_of_the_line_before(tmp_path: Path) -> None:
    assert read_libsvm(_file(tmp_path, "1 5:1\n1\n1 2:1\n")).features.shape == (3, 5)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_examples_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match="found none"):
        read_libsvm(_file(tmp_path, text))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(b"1 1:1\n")
    with pytest.raises(DataError, match=f"data{suffix} is damaged or not a {suffix} file"):
        read_libsvm(path)


def test_a_cut_off_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.gz"
    path.write_bytes(gzip.compress(TEXT.encode())[:-6])
    with pytest.raises(DataError, match="damaged"):
        read_libsvm(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*absent: No such file"):
        read_libsvm(tmp_path / "absent")


def test_reads_a9a_as_scikit_learn_does(shared_data: Path) -> None:
    """An independent reader of the same format."""
    from sklearn.datasets import load_svmlight_file

    path = shared_data / "libsvm" / "a9a.t.bz2"
    theirs, labels = load_svmlight_file(str(path), n_features=123, dtype=np.float32)
    ours = read_libsvm(path, features=123)
    assert np.array_equal(ours.labels, labels)
    assert (ours.features != theirs).nnz == 0
