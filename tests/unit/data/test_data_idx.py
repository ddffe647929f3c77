"""IDX files, written here byte by byte from the format's description."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from gossamer.data.array_files import TEST, TRAIN, read_idx, read_idx_folder
from gossamer.errors import DataError


def _idx(code: int, shape: tuple[int, ...], body: bytes) -> bytes:
    return bytes([0, 0, code, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


@pytest.mark.parametrize(
    ("code", "letter", "values"),
    [
        (0x08, "B", [0, 1, 255]),
        (0x09, "b", [-128, 0, 127]),
        (0x0B, "h", [-32768, 5, 32767]),
        (0x0C, "i", [-(2**31), 7, 2**31 - 1]),
        (0x0D, "f", [0.5, -1.5, 3.0]),
        (0x0E, "d", [0.1, -1e300, 3.0]),
    ],
)
def test_every_type_is_big_endian(tmp_path: Path, code: int, letter: str, values: list[float]) -> None:
    path = tmp_path / "a-idx2"
    path.write_bytes(_idx(code, (3, 1), struct.pack(f">3{letter}", *values)))
    array = read_idx(path)
    assert array.dtype.isnative
    assert array.tolist() == [[value] for value in values]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"\0\0\x08", "found 00 00 08"),
        (b"PK\3\4", "expected an IDX file"),
        (b"\0\0\x07\1\0\0\0\0", "expected an IDX file"),
        (_idx(0x08, (2, 2), b"\1\2\3"), r"expected 16 bytes for shape \(2, 2\), found 15"),
        (_idx(0x08, (2,), b"\1\2\3"), "expected 10 bytes .* found 11"),
        (b"\0\0\x08\3\0\0\0\1", "bytes for shape"),
    ],
)
def test_what_is_no_idx_file_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a-idx1"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        read_idx(path)
    assert str(path) in str(error.value)


def _write_set(folder: Path, names: tuple[str, str], count: int, labels: int | None = None) -> None:
    pixels = bytes(range(count * 6))
    (folder / names[0]).write_bytes(_idx(0x08, (count, 2, 3), pixels))
    numbers = bytes(index % 2 for index in range(count if labels is None else labels))
    (folder / f"{names[1]}.gz").write_bytes(gzip.compress(_idx(0x08, (len(numbers),), numbers)))


def test_a_folder_is_a_data_set(tmp_path: Path) -> None:
    _write_set(tmp_path, TRAIN, 4)
    _write_set(tmp_path, TEST, 2)
    train, test = read_idx_folder(tmp_path)
    assert test is not None
    assert train.features.shape == (4, 1, 2, 3)
    assert train.features[1, 0].tolist() == [[6, 7, 8], [9, 10, 11]]
    assert train.labels.tolist() == [0, 1, 0, 1]
    assert test.features.shape == (2, 1, 2, 3)


def test_test_files_may_both_be_absent(tmp_path: Path) -> None:
    _write_set(tmp_path, TRAIN, 4)
    assert read_idx_folder(tmp_path)[1] is None


def test_one_test_file_alone_is_a_mistake(tmp_path: Path) -> None:
    _write_set(tmp_path, TRAIN, 4)
    _write_set(tmp_path, TEST, 2)
    (tmp_path / TEST[0]).unlink()
    with pytest.raises(DataError, match=f"missing: {TEST[0]}"):
        read_idx_folder(tmp_path)


def test_images_and_labels_must_be_as_many(tmp_path: Path) -> None:
    _write_set(tmp_path, TRAIN, 4, labels=3)
    with pytest.raises(DataError, match=r"train-labels.*expected 4 labels, found an array \[3\]"):
        read_idx_folder(tmp_path)


def test_images_must_be_bytes(tmp_path: Path) -> None:
    _write_set(tmp_path, TRAIN, 1)
    (tmp_path / TRAIN[0]).write_bytes(_idx(0x0D, (1, 1, 1), struct.pack(">f", 0.5)))
    with pytest.raises(DataError, match="expected unsigned bytes"):
        read_idx_folder(tmp_path)


def test_mnist_begins_as_published(shared_data: Path) -> None:
    """The header in the format's description: magic 2051, 10,000 images of 28 x 28; the first test digit is 7."""
    folder = shared_data / "mnist"
    with gzip.open(folder / f"{TEST[0]}.gz") as file:
        assert file.read(16) == struct.pack(">4I", 2051, 10_000, 28, 28)
    images = read_idx(folder / f"{TEST[0]}.gz")
    assert images.shape == (10_000, 28, 28)
    assert images.dtype == np.uint8
    assert read_idx(folder / f"{TEST[1]}.gz")[0] == 7
