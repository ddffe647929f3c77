"""Files of data: how they are opened, those of the data sets known by name, and where these are looked for.

Compressed ones are taken apart no further than a bound, as a small one may stand for any amount.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO, get_args

from gossamer.data.settings import Format, Layout
from gossamer.errors import DataError, failing_as
from gossamer.files import cache_home, in_bytes, open_file

MOST_DATA = 1 << 34
"""Bytes of a file of data, and of what is in a compressed one: all of it has to fit into memory."""

FREE = 1 << 28
"""Bytes that may come of a compressed file whatever its own size is."""

MOST_GROWTH = 300
"""Beyond those, the most bytes for each byte of the compressed file. Tables grow by 100 times and less; a file that was
made to fill memory by 1000 and more."""

_PIECE = 1 << 20

_READERS: Mapping[str, Callable[[BinaryIO], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
COMPRESSIONS = tuple(_READERS)
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


def variant(folder: Path, name: str) -> Path | None:
    """The file ``name`` in ``folder``, plain or compressed; None where there is none."""
    candidates = (folder / (name + suffix) for suffix in ("", *COMPRESSIONS))
    return next((path for path in candidates if os.path.isfile(path)), None)


def read_bytes(path: Path) -> bytes:
    """The contents of a file, decompressed where its name ends in .gz, .bz2 or .xz; refused as `opened` refuses."""
    with opened(path) as file:
        return b"".join(iter(lambda: file.read(_PIECE), b""))


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file of data to read it from its beginning, decompressed where its name ends in .gz, .bz2 or .xz.

    Raises
    ------
    DataError
        If it is no regular file, cannot be read or is damaged, or grows by more than files of data do; also while it
        is read.
    """
    reader = _READERS.get(path.suffix, nullcontext)
    with failing_as(DataError, f"cannot read {path}: "), open_file(path, MOST_DATA) as file:
        try:
            with reader(file) as stream:
                yield io.BufferedReader(_BoundedStream(str(path), stream, file), _PIECE)
        except _DAMAGED as error:
            if reader is nullcontext:
                raise
            raise DataError(f"{path} is damaged or not a {path.suffix} file ({error}); get the file again") from error


class _BoundedStream(io.RawIOBase):
    """A stream that grows no further than `check_growth` allows."""

    def __init__(self, what: str, stream: BinaryIO, file: BinaryIO) -> None:
        self._what, self._stream, self._file, self._produced = what, stream, file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(len(buffer))
        self._produced += len(piece)
        check_growth(self._what, self._produced, self._file.tell())
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def archive(path: Path, content: bytes) -> Iterator[zipfile.ZipFile]:
    """Open a zip whose members hold no more than files of data do.

    Raises
    ------
    BadZipFile
        If it is no zip.
    DataError
        If a member grows by more than files of data do.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as found:
        held = packed = 0
        for member in found.infolist():
            held, packed = held + member.file_size, packed + member.compress_size
            check_growth(f"{path}: {member.filename[:80]}", held, packed)
        yield found


def check_growth(what: str, produced: int, size: int) -> None:
    """Refuse data that are larger than they may be, as ``produced`` bytes of ``size`` compressed ones.

    Raises
    ------
    DataError
        If so.
    """
    if produced > max(FREE, MOST_GROWTH * size) or produced > MOST_DATA:
        raise DataError(
            f"{what}: expected data, found {in_bytes(produced)} or more in {in_bytes(size)}, which no data are "
            "compressed to; decompress the file and look at what is in it"
        )


# Data sets known by name, and what is publicly known about them.


def search_path() -> list[Path]:
    """The folders that data files are looked for in, in order; each one's immediate subfolders count too.

    Those of the environment variable GOSSAMER_DATA (separated as in PATH), then ``data`` in the current
    folder, then ``gossamer`` in the user's cache (XDG_CACHE_HOME, or ``~/.cache``).
    """
    named = [Path(folder) for folder in os.environ.get("GOSSAMER_DATA", "").split(os.pathsep) if folder]
    return [*(folder.expanduser() for folder in named), Path.cwd() / "data", cache_home()]


def find_together(names: Sequence[str], folders: Sequence[Path]) -> list[Path] | None:
    """The first of ``folders`` and their immediate subfolders that has all of ``names``: the files there.

    Files of one data set must lie together, so that a training file is never paired with a test file from
    elsewhere.
    """
    for folder in _with_subfolders(folders):
        found = [variant(folder, name) for name in names]
        present = [path for path in found if path is not None]
        if len(present) == len(found):
            return present
    return None


def missing(dataset: str, forms: Sequence[Sequence[str]], folders: Sequence[Path]) -> DataError:
    """The error for files that `find_together` did not find: which, where it looked, what to do.

    Each of the ``forms`` would do.
    """
    places, names = _with_subfolders(folders), dict.fromkeys(name for form in forms for name in form)
    there = [str(path) for place in places for name in names if (path := variant(place, name))]
    needed = ", or ".join(map(", ".join, forms))
    return DataError(
        f"data set {dataset!r} needs {needed} in one folder (plain, {', '.join(COMPRESSIONS)}), "
        f"found {', '.join(there) or 'none of them'}; looked in {', '.join(map(str, folders))} and their "
        "subfolders; put the files in one of these, or name their folder in GOSSAMER_DATA or as the path"
    )


def _with_subfolders(folders: Sequence[Path]) -> list[Path]:
    return [place for folder in folders for place in (folder, *_subfolders(folder))]


def _subfolders(folder: Path) -> list[Path]:
    # A folder that may not be read holds nothing that could be loaded.
    try:
        return sorted(child for child in folder.iterdir() if os.path.isdir(child))
    except OSError:
        return []


_BUNDLED = Path(__file__).parent


@dataclass(frozen=True)
class KnownDataset:
    """A data set that ``gossamer datasets`` lists.

    Attributes
    ----------
    name, description : str
        Name, and what it is in words.
    format : str
        Format of its files.
    files : tuple of str
        The file of training examples, then that of test examples if there is one; of data that lie in a folder all of
        them, more than two. Any may be compressed. Empty for the bundled one.
    shape : tuple of int
        The shape of an example's features: [channels, height, width] of the picture it is, or [features].
    labels : tuple, optional
        The labels in order of their class numbers; None where nobody here has checked them.
    layout : str
        Layout that the rule for layouts makes of the whole training file.
    divisor : float, optional
        Features are divided by it; by default the format's.
    others : tuple of KnownDataset
        The same data in other files, or a part of them, taken where its own are not there.
    """

    name: str
    description: str
    format: Format
    files: tuple[str, ...]
    shape: tuple[int, ...]
    labels: tuple[int | str, ...] | None
    layout: Layout = "dense"
    divisor: float | None = None
    others: tuple[KnownDataset, ...] = ()

    @property
    def forms(self) -> tuple[KnownDataset, ...]:
        """Itself, and the others."""
        return (self, *self.others)

    def found(self, folders: Sequence[Path]) -> KnownDataset:
        """The first of its forms whose files are in one of ``folders``; itself where none is."""
        return next((form for form in self.forms if find_together(form.files, folders)), self)

    def of_file(self, path: Path) -> KnownDataset:
        """The first of its forms whose files end as a file does; itself where none does."""
        suffix = (path.with_suffix("") if path.suffix in COMPRESSIONS else path).suffix
        return next((form for form in self.forms if form.files and PurePath(form.files[0]).suffix == suffix), self)

    def locate(self, folders: Sequence[Path] | None = None) -> tuple[Path, Path | None]:
        """Find the training and the test examples: two files, or one path that holds both.

        Parameters
        ----------
        folders : sequence of Path, optional
            Folders to look in, with their immediate subfolders; by default the `search_path`.

        Raises
        ------
        DataError
            If the files are in none of the folders.
        """
        if not self.files:
            return _BUNDLED / f"{self.name}.npz", None
        places = search_path() if folders is None else folders
        found = find_together(self.files, places)
        if found is None:
            raise missing(self.name, [form.files for form in self.forms], places)
        if len(found) > 2:
            return found[0].parent, None
        return found[0], found[1] if len(found) > 1 else None

    def place(self, folders: Sequence[Path]) -> Path | None:
        """The file or folder of its training examples; None where it is in none of ``folders``."""
        return self.locate(folders)[0] if not self.files or find_together(self.files, folders) else None


def _known(name: str, told: Mapping[str, Any]) -> KnownDataset:
    """The data set of an entry of ``known.json``, whose other forms are like it but for what they say."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in told.items()}
    others = [_known(name, {**told, "others": [], **other}) for other in told.get("others", ())]
    return KnownDataset(name, **{**fields, "others": tuple(others)})


_TOLD = json.loads(Path(__file__).with_name("known.json").read_text("utf-8"))
KNOWN: dict[str, KnownDataset] = {name: _known(name, told) for name, told in _TOLD.items()}
TRAIN, TEST = KNOWN["mnist"].files[:2], KNOWN["mnist"].files[2:]
NAMES = tuple(map(str, KNOWN["cifar10"].labels or ()))
"""Of the classes, by number; the order is that of the alphabet."""
PYTHON, BINARY = (KNOWN["cifar10"].others[form].files for form in (0, 2))
"""Files of the batches, the test batch last."""

SAVED, SAVED_SPLITS = "state.json", "dataset_dict.json"
"""Files that a folder has which `datasets` saved, and one of several splits."""

_SUFFIXES: dict[str, Format] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npz": "npz",
    ".zip": "images",
    ".tar": "cifar10",
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".svmlight": "libsvm",
    ".t": "libsvm",
    "": "libsvm",
}


def infer_format(path: Path) -> Format:
    """The format that a path's name says.

    A folder is IDX, CIFAR-10 or one that `datasets` saved if it holds files of such names, else pictures. A file goes
    by its suffix, left of a compression's; LIBSVM's own files often have none.

    Raises
    ------
    DataError
        If the suffix is none of a known format.
    """
    if path.is_dir():
        if any(variant(path, name) for name in PYTHON + BINARY):
            return "cifar10"
        if any((path / name).is_file() for name in (SAVED, SAVED_SPLITS)):
            return "datasets"
        return "idx" if any(path.glob("*-ubyte*")) else "images"
    plain = path.with_suffix("") if path.suffix in COMPRESSIONS else path
    if plain.suffix not in _SUFFIXES:
        raise DataError(
            f"{path}: no format is known by the suffix {plain.suffix!r}; give a file that ends in "
            f"{', '.join(filter(None, _SUFFIXES))}, or say in a spec what it is, dataset.format: "
            f"{', '.join(get_args(Format))}"
        )
    return _SUFFIXES[plain.suffix]
