"""Files of data that are damaged, made to fill memory, or of another kind than the spec says."""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from tests.end_to_end.bad_inputs.case import RUN, Case, Make, accepted

GOOD = "a,b,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(200))
"""A table that can be used."""

ZEROS = 400 << 20
"""Bytes that a bomb unpacks to, all of them 0; a few more than are unpacked of any file."""


def spec(path: str, more: str = "") -> str:
    """A spec of some data, with more of their settings."""
    return RUN.replace("dataset: digits", f"dataset: {{name: mine, path: {path}{more}}}").replace(
        "batch_size: 20", "batch_size: 5"
    )


def _table(rows: str) -> str:
    return GOOD + rows


CSV: tuple[tuple[str, str | bytes, str, str], ...] = (
    ("nothing", b"", "", "expected a header of two or more different names"),
    ("a header alone", "a,b,label\n", "", "expected rows below the header, found none"),
    ("one column", "a\n1\n2\n", "", "expected a header of two or more different names"),
    ("a name twice", GOOD.replace("a,b,", "a,a,"), "", "expected a header of two or more different names"),
    ("a short row", _table("1,2\n"), "", "line 202: expected 3 columns, found 2"),
    ("a long row", _table("1,2,3,4\n"), "", "line 202: expected 3 columns, found 4"),
    ("a text for a number", _table("x,2,1\n"), "", "line 202, column 'a': expected a number, found 'x'"),
    ("an empty cell", _table(",2,1\n"), "", "line 202, column 'a'"),
    ("NaN", _table("nan,2,1\n"), "", "line 202, column 'a'"),
    ("infinite", _table("inf,2,1\n"), "", "line 202, column 'a'"),
    (
        "larger than float32",
        _table("1e39,2,1\n"),
        "",
        "line 202, column 'a': expected a finite number that fits float32",
    ),
    ("5,000 digits", _table(f"{'9' * 5_000},2,1\n"), "", "line 202, column 'a'"),
    ("an empty target", _table("1,2,\n"), "", "line 202: the target is empty"),
    ("a target that is text among numbers", _table("1,2,nan\n"), "", "nan"),
    ("no such target", GOOD, ", target: outcome", "no column 'outcome'; its columns are a, b, label"),
    ("a target's number too large", GOOD, ", target: 7", "no column 7; it has 3, numbered from 0"),
    ("no such owner", GOOD, ", owner: ward", "no column 'ward'; its columns are a, b, label"),
    ("the target as owner", GOOD, ", owner: label", "owner names 'label', which is the target's column"),
    ("no such column to ignore", GOOD, ", ignore: [x]", "no column 'x'; its columns are a, b, label"),
    ("nothing left", GOOD, ", ignore: [a, b]", "expected a feature in a column of its own, found none"),
    ("an open quote", _table('"1,2,1\n'), "", "not a CSV row"),
    ("a NUL byte", _table("1,\0,1\n"), "", "line 202"),
    ("Latin-1", GOOD.replace("a,", "ä,").encode("latin-1"), "", "expected text in UTF-8, found bytes that are not"),
    ("UTF-16", GOOD.encode("utf-16"), "", "expected text in UTF-8, found bytes that are not"),
    ("a picture", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "", "expected text in UTF-8, found bytes that are not"),
    ("semicolons", GOOD.replace(",", ";"), "", "expected a header of two or more different names"),
    ("decimal commas", GOOD.replace("\n1,", "\n1,5,"), "", "expected 3 columns, found 4"),
    ("one class", GOOD.replace(",1\n", ",0\n"), "", "class"),
    ("too few rows", "a,b,label\n1,2,0\n2,3,1\n", "", "too few"),
    ("features that are none", GOOD, ", target: label, features: [a, c]", "no column 'c'"),
    (
        "the target as a feature",
        GOOD,
        ", target: label, features: [a, label]",
        "features names 'label', which is the target's column",
    ),
    (
        "labels that do not fit",
        GOOD,
        ", labels: ['no', 'yes']",
        "has the label 0, which is none of the 2 classes no, yes",
    ),
    ("a line of 2 MB", _table("1" * 2_000_000 + "\n"), "", "line 202"),
    ("HTML", "<!DOCTYPE html>\n<html><body>Not found</body></html>\n", "", "expected a header of two or more"),
)
"""Tables, each with more of the data's settings."""

LIBSVM: tuple[tuple[str, str | bytes, str], ...] = (
    ("nothing", b"", "expected lines of 'label index:value ...', found none"),
    ("no pairs", "1 2 3\n", "line 1: expected 'label index:value index:value ...'"),
    ("no label", "1:2 2:3\n", "line 1: expected 'label index:value"),
    ("an index of 0", "1 0:2\n", "line 1: expected indices from 1"),
    ("falling indices", "1 2:1 1:1\n", "line 1: expected indices from 1, each larger than the one before"),
    ("NaN", "1 1:nan\n", "line 1"),
    ("infinite", "1 1:inf\n", "line 1"),
    ("a label that is infinite", "inf 1:1\n", "line 1"),
    ("an index of 10**12", "".join(f"{i % 2} 1:{i} 1000000000000:1\n" for i in range(200)), "1000000000000"),
    ("an index of 10**9", "".join(f"{i % 2} 1:{i} 1000000000:1\n" for i in range(200)), "1000000000"),
    ("an index of 5,000 digits", f"1 {'9' * 5_000}:1\n", "line 1"),
    ("binary", bytes(range(256)), "line 1"),
)


def _zeros(suffix: str) -> Make:
    """Zeros, compressed: a few kilobytes that stand for gigabytes."""

    def make(folder: Path) -> None:
        pack = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
        with pack(folder / f"rows.csv{suffix}", "wb") as file:
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
        "has the shape (1000000000000,), and fewer",
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
    ("zip: no zip", "rows.zip", _holds("rows.zip", GOOD.encode()), "expected a folder or a zip"),
)
"""Files that are made, with what is in the place of a path."""

FINE: tuple[tuple[str, str | bytes, str, str], ...] = (
    ("a mark of the byte order", "\ufeff" + GOOD, "", "spreadsheets write one"),
    ("CRLF", GOOD.replace("\n", "\r\n"), "", "lines end so on Windows"),
    ("blank lines", GOOD.replace("\n", "\n\n"), "", "they say nothing"),
    ("quotes", GOOD.replace("a,b", '"a","b"'), "", "they are part of CSV"),
    ("no end of the last line", GOOD.rstrip(), "", "many editors write none"),
    ("spaces", GOOD.replace(",", ", "), "", "numbers and names are the same"),
    ("labels that are texts", GOOD.replace(",1\n", ",yes\n").replace(",0\n", ",no\n"), "", "a label is a name"),
)

KIND = "data"
CASES: tuple[Case, ...] = (
    *(
        Case(f"csv: {name}", KIND, "check spec.yaml", says, {"spec.yaml": spec("rows.csv", more), "rows.csv": content})
        for name, content, more, says in CSV
    ),
    *(
        Case(
            f"libsvm: {name}",
            KIND,
            "check spec.yaml",
            says,
            {"spec.yaml": spec("rows.libsvm"), "rows.libsvm": content},
            apart="10**" in name,
        )
        for name, content, says in LIBSVM
    ),
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
    *(
        accepted(
            Case(
                f"csv: {name}", KIND, "check spec.yaml", "", {"spec.yaml": spec("rows.csv", more), "rows.csv": content}
            ),
            why,
        )
        for name, content, more, why in FINE
    ),
)
