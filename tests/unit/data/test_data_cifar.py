"""CIFAR-10 as it is published: both forms, as folders and archives, and what is no such thing."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.datasets import known_datasets, load_dataset
from gossamer.data.picture_files import BINARY, NAMES, PYTHON, matrix, read_cifar10, unpickled
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


def python_2(number: int) -> bytes:
    """The opcodes of the published files, which Python 2 wrote with protocol 2: text is of bytes (U and T)."""
    values = pictures(number).tobytes()
    labels = b"".join(b"K" + bytes([label]) for label in classes(number))
    state = b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    kind = b"cnumpy\ndtype\nq\x09U\x02u1K\x00K\x01\x87Rq\x0a" + state
    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x06cnumpy\nndarray\nq\x07K\x00\x85U\x01b\x87Rq\x08"
    array += b"(K\x01K" + bytes([EACH]) + b"M" + struct.pack("<H", 3072) + b"\x86" + kind + b"\x89"
    array += b"T" + struct.pack("<i", len(values)) + values + b"tb"
    names = b"".join(b"U\x05a.png" for _ in classes(number))
    head = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03"
    return (
        head + b"U\x06labelsq\x04](" + labels + b"eU\x04dataq\x05" + array + b"U\x09filenamesq\x0b](" + names + b"eu."
    )


def batches(write: Any) -> dict[str, bytes]:
    names = BINARY if write is binary else PYTHON
    return {name: write(number) for number, name in enumerate(names)}


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


def python_3(number: int, protocol: int) -> bytes:
    found = {b"labels": classes(number), b"data": pictures(number).reshape(EACH, 3072)}
    return pickle.dumps(found, protocol)


WRITERS = {
    "binary": binary,
    "python 2": python_2,
    **{f"python 3, protocol {p}": lambda number, p=p: python_3(number, p) for p in (2, 3, 4)},
}


def test_the_opcodes_of_python_2_are_a_pickle() -> None:
    """What stands here by hand is what pickle reads."""
    found = pickle.loads(python_2(1), encoding="bytes")
    assert found[b"labels"] == classes(1)
    assert np.array_equal(found[b"data"], pictures(1).reshape(EACH, 3072))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", WRITERS)
def test_pictures_and_classes_of_all_batches(tmp_path: Path, form: str, packed: bool) -> None:
    files = batches(WRITERS[form])
    path = archive(tmp_path / "c.tar.gz", files) if packed else folder(tmp_path / "c", files)
    train, test = read_cifar10(path)
    assert train.features.shape == (5 * EACH, 3, 32, 32)
    assert np.array_equal(train.features, np.concatenate([pictures(number) for number in range(5)]))
    assert train.labels.tolist() == [NAMES[label] for number in range(5) for label in classes(number)]
    assert test is not None
    assert np.array_equal(test.features, pictures(5))
    assert test.labels.tolist() == [NAMES[label] for label in classes(5)]


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("cifar-10-python.tar.gz", batches(python_2)),
        ("cifar-10-binary.tar.gz", batches(binary)),
        ("cifar-10-batches-py", batches(python_2)),
        ("cifar-10-batches-bin", batches(binary)),
    ],
)
def test_it_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, bytes]
) -> None:
    """In a folder of GOSSAMER_DATA, before the subset of JPEGs; class numbers are the published ones."""
    make = archive if name.endswith(".gz") else folder
    path = make(tmp_path / name, files)
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


class Command:
    """What would be called by whoever unpickles it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, ("called", "w"))


def of(data: Any, labels: Any = (0, 1)) -> bytes:
    return pickle.dumps({"data": data, "labels": list(labels)}, 2)


ZEROS = np.zeros((2, 3072), np.uint8)
BATCHES: dict[str, tuple[bytes, str]] = {
    "a call": (pickle.dumps(Command(), 2), r"\(a pickle of (io|_io) open\)"),
    "a call in it": (of(Command()), r"a pickle of (io|_io) open"),
    "a call for a label": (of(ZEROS, [0, Command()]), r"a pickle of (io|_io) open"),
    "no mapping": (pickle.dumps([1], 2), "a pickle of list"),
    "nothing of it": (pickle.dumps({"a": 1}, 2), "a pickle without data and labels"),
    "no array": (of([1, 2]), "no array of bytes"),
    "fractions": (of(np.zeros((2, 3072))), "an array that is not of unsigned bytes"),
    "column by column": (of(np.asfortranarray(ZEROS)), "not of unsigned bytes, row by row"),
    "objects": (of(np.array([[None], [{}]])), "an array that is not of unsigned bytes"),
    "other pictures": (of(np.zeros((2, 784), np.uint8)), r"an array \[2, 784\]"),
    "fewer labels": (of(ZEROS, [1]), "with a label each"),
    "a class 10": (of(ZEROS, [0, 10]), "no numbers from 0 to 9"),
    "cut off": (of(ZEROS)[:999], "CIFAR-10"),
    "empty": (b"", "CIFAR-10"),
    "text": (b"airplane", "CIFAR-10"),
    "a size that is not there": (of(ZEROS).replace(b"M\x00\x0c", b"M\x00\x0d"), "an array of 2 x 3328 with 6144"),
    "a set": (pickle.dumps({1, 2}, 4), "a pickle of set"),
    "room for 2 EB": (b"\x80\x05\x96" + bytes(7) + b"\x20.", "bytes in a bytearray8"),
    "a place far away": (b"\x80\x02]r\xff\xff\xff\xff.", "with LONG_BINPUT"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_pickles_that_are_no_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refused in a line, and nothing in them is called."""
    monkeypatch.chdir(tmp_path)
    content, expected = BATCHES[name]
    path = folder(tmp_path / "c", {**batches(python_2), "data_batch_3": content})
    with pytest.raises(DataError, match=rf"data_batch_3: expected a batch of .*{expected}") as refusal:
        read_cifar10(path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "called").exists()


def test_every_damaged_byte_is_read_or_refused() -> None:
    """Never anything but an array or a ValueError; 2,000 pickles with three bytes changed, and 300 cut off."""
    whole = pickle.dumps({"data": np.zeros((1, 4), np.uint8), "labels": [1]}, 2)
    generator = np.random.default_rng(0)
    for trial in range(2_300):
        spoilt = bytearray(whole)
        for place in generator.integers(0, len(whole), 3):
            spoilt[place] = generator.integers(256)
        content = bytes(spoilt) if trial < 2_000 else whole[: trial % len(whole)]
        with contextlib.suppress(ValueError):
            found = unpickled(content)
            matrix(found.get("data") if isinstance(found, dict) else found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (binary(1)[:-1], f"{5 * 3073 - 1} bytes, which are no records of 3073"),
        (b"", "pictures of classes 0..9, found none"),
        (b"\x0a" + bytes(3072), "pictures of classes 0..9, found classes 10..10"),
    ],
)
def test_records_that_are_no_batch(tmp_path: Path, content: bytes, expected: str) -> None:
    path = folder(tmp_path / "c", {**batches(binary), "test_batch.bin": content})
    with pytest.raises(DataError, match=rf"test_batch.bin: expected .*{expected}"):
        read_cifar10(path)


def test_all_batches_are_needed(tmp_path: Path) -> None:
    files = batches(binary)
    del files["data_batch_2.bin"]
    with pytest.raises(DataError, match=r"all batches of CIFAR-10, missing: data_batch_2\.bin"):
        read_cifar10(folder(tmp_path / "c", files))
    with pytest.raises(DataError, match="found none of them"):
        read_cifar10(archive(tmp_path / "c.tar", {"notes.txt": b"hello"}, "w"))


def test_archives_that_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "c.tar"
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match="expected a tar archive of CIFAR-10"):
        read_cifar10(path)
    whole = archive(path, batches(binary), "w").read_bytes()
    for cut in (100, 600, len(whole) // 2):
        path.write_bytes(whole[:cut])
        with pytest.raises(DataError, match="CIFAR-10"):
            read_cifar10(path)


def test_links_in_archives_are_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "c.tar"
    archive(path, batches(binary), "w")
    with tarfile.open(path, "a") as tar:
        link = tarfile.TarInfo("elsewhere/data_batch_1.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert len(read_cifar10(path)[0].labels) == 5 * EACH
