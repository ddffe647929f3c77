"""CIFAR-10 in its binary version: as a folder and an archive, and what is no such thing."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.datasets import known_datasets, load_dataset
from gossamer.data.files import BATCHES, NAMES
from gossamer.data.picture_files import read_cifar10
from gossamer.data.settings import DatasetSettings
from gossamer.errors import DataError

EACH = 5
"""Pictures of a batch; the real ones have 10,000."""


def pictures(number: int) -> np.ndarray:
    """Pixels [pictures, channel, row, column] of a batch."""
    return np.random.default_rng(number).integers(0, 256, (EACH, 3, 32, 32), np.uint8)


def classes(number: int) -> list[int]:
    return [(3 * number + picture) % 10 for picture in range(EACH)]


def binary(number: int) -> bytes:
    """A byte of the class, and planes of red, green and blue, each row by row."""
    parts = []
    for picture, label in zip(pictures(number), classes(number)):
        parts.append(bytes([label]))
        parts += [bytes([picture[c, y, x]]) for c in range(3) for y in range(32) for x in range(32)]
    return b"".join(parts)


def batches() -> dict[str, bytes]:
    return {name: binary(number) for number, name in enumerate(BATCHES)}


def folder(path: Path, files: dict[str, bytes]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (path / name).write_bytes(content)
    return path


def archive(path: Path, files: dict[str, bytes], mode: Any = "w:gz") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.mark.parametrize("packed", [False, True])
def test_pictures_and_classes_of_all_batches(tmp_path: Path, packed: bool) -> None:
    files = batches()
    path = archive(tmp_path / "c.tar.gz", files) if packed else folder(tmp_path / "c", files)
    train, test = read_cifar10(path)
    assert train.features.shape == (5 * EACH, 3, 32, 32)
    assert np.array_equal(train.features, np.concatenate([pictures(number) for number in range(5)]))
    assert train.labels.tolist() == [NAMES[label] for number in range(5) for label in classes(number)]
    assert test is not None
    assert np.array_equal(test.features, pictures(5))
    assert test.labels.tolist() == [NAMES[label] for label in classes(5)]


@pytest.mark.parametrize("name", ["cifar-10-binary.tar.gz", "cifar-10-batches-bin"])
def test_it_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """In a folder of GOSSAMER_DATA, before the subset of JPEGs; class numbers are the published ones."""
    make = archive if name.endswith(".gz") else folder
    path = make(tmp_path / name, batches())
    (tmp_path / "cifar10-jpeg-12k.zip").write_bytes(b"no zip")
    monkeypatch.setenv("GOSSAMER_DATA", str(tmp_path))
    for settings in (DatasetSettings(name="cifar10"), DatasetSettings(name="cifar10", path=path)):
        found = load_dataset(settings)
        assert found.labels == NAMES
        assert found.train.targets.tolist() == [label for number in range(5) for label in classes(number)]
        assert np.array_equal(found.test.features, pictures(5).astype(np.float32) / np.float32(255))
        assert found.source == str(path)
    (record,) = [one for one in known_datasets() if one.name == "cifar10"]
    assert record.path == path
    own = load_dataset(DatasetSettings(name="mine", path=path))
    assert (own.labels, own.train.features.shape) == (NAMES, (25, 3, 32, 32))


@pytest.mark.parametrize("packed", [False, True])
def test_the_python_version_is_not_read(tmp_path: Path, packed: bool) -> None:
    files = {name.removesuffix(".bin"): b"a pickle" for name in BATCHES}
    path = archive(tmp_path / "c.tar.gz", files) if packed else folder(tmp_path / "c", files)
    with pytest.raises(DataError, match=r"get its binary version, cifar-10-binary\.tar\.gz"):
        load_dataset(DatasetSettings(name="mine", path=path))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (binary(1)[:-1], f"{5 * 3073 - 1} bytes, which are no records of 3073"),
        (b"", "a batch of CIFAR-10, found 0 bytes"),
        (b"\x0a" + bytes(3072), "pictures of classes 0..9, found class 10"),
    ],
)
def test_records_that_are_no_batch(tmp_path: Path, content: bytes, expected: str) -> None:
    path = folder(tmp_path / "c", {**batches(), "test_batch.bin": content})
    with pytest.raises(DataError, match=rf"test_batch.bin: expected .*{expected}"):
        read_cifar10(path)


def test_all_batches_are_needed(tmp_path: Path) -> None:
    files = batches()
    del files["data_batch_2.bin"]
    with pytest.raises(DataError, match=r"all batches of CIFAR-10, found no data_batch_2\.bin;"):
        read_cifar10(folder(tmp_path / "c", files))
    with pytest.raises(DataError, match=r"found no data_batch_1\.bin, data_batch_2\.bin"):
        read_cifar10(archive(tmp_path / "c.tar", {"notes.txt": b"hello"}, "w"))


def test_archives_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c.tar"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="expected a tar archive of CIFAR-10"):
        read_cifar10(path)
    whole = archive(path, batches(), "w").read_bytes()
    for cut in (100, 600, len(whole) // 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="CIFAR-10"):
            read_cifar10(path)


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "c.tar"
    archive(path, batches(), "w")
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("elsewhere/data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert len(read_cifar10(path)[0].labels) == 5 * EACH
