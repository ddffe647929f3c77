"""Files of data that are not text: damaged, or made to fill memory."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.end_to_end.bad_inputs.case import Case, Make
from tests.end_to_end.bad_inputs.data import GOOD, KIND, spec

ZEROS = 400 << 20
"""Bytes that a bomb unpacks to, all of them 0; a few more than are unpacked of any file."""


def _zeros(suffix: str, name: str = "rows.csv") -> Make:
    """Zeros, compressed: a few kilobytes that stand for gigabytes."""

    def make(folder: Path) -> None:
        pack = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
        with pack(folder / f"{name}{suffix}", "wb") as file:
            for _ in range(ZEROS >> 20):
                file.write(bytes(1 << 20))

    return make


def _npz_bomb(folder: Path) -> None:
    with zipfile.ZipFile(folder / "rows.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("features.npy", "targets.npy"):
            with archive.open(name, "w", force_zip64=True) as file:
                np.lib.format.write_array_header_1_0(
                    file, {"descr": "<f8", "fortran_order": False, "shape": (ZEROS // 8 // 16, 16)}
                )
                for _ in range(ZEROS >> 20):
                    file.write(bytes(1 << 20))


def _holds(name: str, content: bytes) -> Make:
    def make(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return make


def _npz_of(**arrays: Any) -> Make:
    return lambda folder: np.savez(folder / "rows.npz", **arrays)


def _npz_that_says(shape: tuple[int, ...]) -> Make:
    """An array whose header says more than there is."""

    def make(folder: Path) -> None:
        with zipfile.ZipFile(folder / "rows.npz", "w") as archive, archive.open("features.npy", "w") as file:
            header = {"descr": "<f8", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            file.write(bytes(64))

    return make


CALL = b"cos\nsystem\n(U\x0ctouch /tmp/xtR."
"""A pickle that calls a shell, for whoever unpickles it."""


def _pickle_that_says(rows: int) -> bytes:
    """A batch whose array says that it has so many rows, and has 4 bytes."""
    kind = b"cnumpy\ndtype\nU\x02u1\x85R"
    state = b"(K\x01J" + struct.pack("<i", rows) + b"M\x00\x0c\x86" + kind + b"\x89U\x04abcdt"
    return b"}(U\x04datacnumpy.core.multiarray\n_reconstruct\n)R" + state + b"bU\x06labels]u."


def _six(batch: bytes, suffix: str = "") -> tuple[tuple[str, bytes], ...]:
    names = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    return tuple((name + suffix, batch) for name in names)


def _tar_of(*files: tuple[str, bytes]) -> Make:
    """An archive by both names, plain and compressed."""

    def make(folder: Path) -> None:
        for name, mode in (("c.tar", "w"), ("c.tar.gz", "w:gz")):
            with tarfile.open(folder / name, mode) as archive:  # type: ignore[call-overload]
                for file, content in files:
                    member = tarfile.TarInfo(f"cifar/{file}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))

    return make


def _picture(folder: Path, name: str, size: tuple[int, int], mode: str = "L") -> None:
    from PIL import Image

    path = folder / "pictures" / "train" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


def _pictures_of(*sizes: tuple[int, int], mode: str = "L") -> Make:
    def make(folder: Path) -> None:
        for number, size in enumerate(sizes):
            _picture(folder, f"class-{number % 2}/{number}.png", size, mode)

    return make


def _picture_that_is_none(folder: Path) -> None:
    _picture(folder, "a/1.png", (8, 8))
    (folder / "pictures" / "train" / "a" / "2.png").write_bytes(b"no picture")


def _cut_picture(folder: Path) -> None:
    _picture(folder, "a/1.png", (64, 64))
    path = folder / "pictures" / "train" / "a" / "1.png"
    path.write_bytes(path.read_bytes()[:50])


def _pixel_bomb(folder: Path) -> None:
    """A picture of 20,000 times 20,000 points, in a few kilobytes."""
    _picture(folder, "a/1.png", (20_000, 20_000), "1")


def _zip_bomb_of_pictures(folder: Path) -> None:
    with (
        zipfile.ZipFile(folder / "rows.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("train/a/1.png", "w", force_zip64=True) as file,
    ):
        for _ in range(ZEROS >> 20):
            file.write(bytes(1 << 20))


def _idx(shape: tuple[int, ...], body: bytes, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + body


def _idx_files(images: bytes, labels: bytes) -> dict[str, bytes]:
    return {"digits/train-images-idx3-ubyte": images, "digits/train-labels-idx1-ubyte": labels}


LABELS = _idx((2,), b"\0\1")
IDX: tuple[tuple[str, bytes, bytes, str], ...] = (
    ("nothing", b"", LABELS, "expected an IDX file"),
    ("text", b"5 0 4 1", LABELS, "expected an IDX file"),
    ("cut off", _idx((2, 2, 2), b"\0" * 7), LABELS, "expected 24 bytes for shape (2, 2, 2), found 23"),
    ("too long", _idx((2, 2, 2), b"\0" * 9), LABELS, "expected 24 bytes for shape (2, 2, 2), found 25"),
    ("a header that says 10**28", _idx((2**31, 2**31, 2**31), b""), LABELS, "expected"),
    ("255 dimensions", bytes([0, 0, 8, 255]), LABELS, "expected"),
    ("fractions for pixels", _idx((2, 1, 1), b"\0" * 8, 0x0D), LABELS, "expected unsigned bytes"),
    ("fewer labels", _idx((3, 2, 2), b"\0" * 12), LABELS, "expected 3 labels, found an array [2]"),
    ("an unknown type", _idx((2, 2, 2), b"\0" * 8, 0x77), LABELS, "expected an IDX file"),
)

MADE: tuple[tuple[str, str, Make, str], ...] = (
    (
        "npz: not a zip",
        "rows.npz",
        _holds("rows.npz", b"PK no"),
        "expected an NPZ archive",
    ),
    ("npz: nothing", "rows.npz", _holds("rows.npz", b""), "expected an NPZ archive"),
    ("npz: an empty archive", "rows.npz", _npz_of(), "found none"),
    ("npz: other names", "rows.npz", _npz_of(x=np.ones((9, 2)), y=np.ones(9)), "expected arrays train_features"),
    ("npz: texts", "rows.npz", _npz_of(features=np.array([["a"]]), targets=np.ones(1)), "expected numbers in features"),
    ("npz: objects", "rows.npz", _npz_of(features=np.array([{}, {}], dtype=object), targets=np.ones(2)), "pickle"),
    ("npz: other lengths", "rows.npz", _npz_of(features=np.ones((9, 2)), targets=np.ones(8)), "found [9, 2] and [8]"),
    ("npz: NaN", "rows.npz", _npz_of(features=np.full((9, 2), np.nan), targets=np.ones(9)), "row 1, column 1"),
    ("npz: no dimension", "rows.npz", _npz_of(features=np.ones(()), targets=np.ones(())), "features [n, ...]"),
    (
        "npz: a header that says 8 TB",
        "rows.npz",
        _npz_that_says((10**12,)),
        "expected an NPZ archive",
    ),
    ("npz: a header that says 10**40", "rows.npz", _npz_that_says((10**20, 10**20)), "expected an NPZ archive"),
    ("npz: a bomb", "rows.npz", _npz_bomb, "which no data are compressed to"),
    ("gz: a bomb", "rows.csv.gz", _zeros(".gz"), "which no data are compressed to"),
    ("bz2: a bomb", "rows.csv.bz2", _zeros(".bz2"), "which no data are compressed to"),
    ("xz: a bomb", "rows.csv.xz", _zeros(".xz"), "which no data are compressed to"),
    (
        "gz: no gzip",
        "rows.csv.gz",
        _holds("rows.csv.gz", GOOD.encode()),
        "is damaged or not a .gz file",
    ),
    (
        "gz: cut off",
        "rows.csv.gz",
        _holds("rows.csv.gz", gzip.compress(GOOD.encode())[:99]),
        "is damaged or not a .gz",
    ),
    (
        "xz: no xz",
        "rows.csv.xz",
        _holds("rows.csv.xz", GOOD.encode()),
        "is damaged or not a .xz file",
    ),
    ("pictures: none", "pictures", lambda f: (f / "pictures").mkdir(), "expected pictures as train/<class>/<name>.jpg"),
    ("pictures: two sizes", "pictures", _pictures_of((8, 8), (9, 9)), "expected pictures of one size"),
    ("pictures: one that is none", "pictures", _picture_that_is_none, "2.png is not a picture that can be read"),
    ("pictures: one that is cut off", "pictures", _cut_picture, "1.png is not a picture that can be read"),
    ("pictures: 400 million points", "pictures", _pixel_bomb, "could be decompression bomb"),
    ("pictures: 100 million points", "pictures", _pictures_of((10_000, 10_000), mode="1"), "expected at most 25000000"),
    ("pictures: 32 bits a channel", "pictures", _pictures_of((8, 8), mode="I;16"), "expected 8 bits a channel"),
    ("zip: a bomb of pictures", "rows.zip", _zip_bomb_of_pictures, "which no data are compressed to"),
    ("cifar: no tar", "c.tar", _holds("c.tar", b"no"), "expected a tar archive of CIFAR-10"),
    ("cifar: no batches", "c.tar.gz", _tar_of(("a.txt", b"no")), "found none of them"),
    ("cifar: a batch alone", "c.tar.gz", _tar_of(("data_batch_1", b"no")), "missing: data_batch_2, data_batch_3"),
    ("cifar: a pickle with a call", "c.tar.gz", _tar_of(*_six(CALL)), "a pickle of os system"),
    ("cifar: a pickle that says 1 TB", "c.tar.gz", _tar_of(*_six(_pickle_that_says(10**9))), "an array of 1000000000"),
    ("cifar: half a record", "c.tar", _tar_of(*_six(bytes(3072), ".bin")), "3072 bytes, which are no records of 3073"),
    ("cifar: a class 255", "c.tar", _tar_of(*_six(b"\xff" * 3073, ".bin")), "found classes 255..255"),
    ("cifar: a bomb", "c.tar.gz", _zeros(".gz", "c.tar"), "which no data are compressed to"),
    ("zip: no zip", "rows.zip", _holds("rows.zip", GOOD.encode()), "expected a folder or a zip"),
)
"""Files that are made, with what is in the place of a path."""

CASES: tuple[Case, ...] = (
    *(
        Case(f"idx: {name}", KIND, "check spec.yaml", says, {"spec.yaml": spec("digits"), **_idx_files(images, labels)})
        for name, images, labels, says in IDX
    ),
    *(
        Case(
            name,
            KIND,
            "check spec.yaml",
            says,
            {"spec.yaml": spec(path)},
            make,
            apart="bomb" in name or "says" in name or "million" in name,
        )
        for name, path, make, says in MADE
    ),
)
