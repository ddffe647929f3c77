"""The data sets known by name: which files each consists of, and what is publicly known about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from gossamer.data.array_files import TEST, TRAIN
from gossamer.data.compression import COMPRESSIONS, variant
from gossamer.data.picture_files import BINARY, NAMES, PYTHON
from gossamer.data.settings import Format, Layout
from gossamer.errors import DataError
from gossamer.files import cache_home


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
    train_examples, features, classes : int
        Numbers as published.
    test_examples : int, optional
        Number as published; None where a fixed share of the training examples is held out.
    labels : tuple, optional
        The labels in order of their class numbers; None where nobody here has checked them.
    picture : tuple of int, optional
        The shape [channels, height, width] of an example that is a picture.
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
    train_examples: int
    test_examples: int | None
    features: int
    classes: int
    labels: tuple[int | str, ...] | None
    picture: tuple[int, int, int] | None = None
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

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of an example's features: that of the picture it is, or [features]."""
        return self.picture or (self.features,)

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


def _libsvm(
    name: str,
    description: str,
    files: tuple[str, ...],
    sizes: tuple[int, int | None, int, int],
    labels: tuple[int, ...] | None = (-1, 1),
    picture: tuple[int, int, int] | None = None,
    layout: Layout = "dense",
) -> KnownDataset:
    return KnownDataset(name, description, "libsvm", files, *sizes, labels, picture, layout)


_TEN = tuple(range(10))


def _cifar10() -> KnownDataset:
    """The published archives, what is unpacked of them, and a part of the pictures as JPEG."""
    whole = KnownDataset(
        "cifar10",
        "colour photographs, 32 x 32",
        "cifar10",
        ("cifar-10-python.tar",),
        *(50_000, 10_000, 3_072, 10),
        NAMES,
        (3, 32, 32),
    )
    part = replace(
        whole,
        description="colour photographs, 32 x 32: a subset of CIFAR-10 as JPEG, 1,000 + 200 a class",
        format="images",
        files=("cifar10-jpeg-12k.zip",),
        train_examples=10_000,
        test_examples=2_000,
    )
    unpacked = (replace(whole, files=files) for files in (PYTHON, ("cifar-10-binary.tar",), BINARY))
    return replace(whole, others=(*unpacked, part))


_ALL = (
    KnownDataset(
        "digits",
        "handwritten digits, 8 x 8, bundled",
        "npz",
        (),
        *(1797, None, 64, 10),
        _TEN,
        (1, 8, 8),
        divisor=16.0,
    ),
    KnownDataset(
        "mnist",
        "handwritten digits, 28 x 28",
        "idx",
        TRAIN + TEST,
        *(60_000, 10_000, 784, 10),
        _TEN,
        (1, 28, 28),
    ),
    _cifar10(),
    _libsvm("a9a", "census income (Adult), binary features", ("a9a", "a9a.t"), (32_561, 16_281, 123, 2)),
    _libsvm("w8a", "web pages, binary features", ("w8a",), (49_749, None, 300, 2), layout="sparse"),
    _libsvm("ijcnn1", "engine misfires", ("ijcnn1", "ijcnn1.t"), (49_990, 91_701, 22, 2)),
    _libsvm(
        "usps",
        "handwritten digits from envelopes, 16 x 16, in [-1, 1]",
        ("usps", "usps.t"),
        (7_291, 2_007, 256, 10),
        tuple(range(1, 11)),
        picture=(1, 16, 16),
    ),
    _libsvm(
        "covtype.binary",
        "forest cover, one type against the others, scaled to [0, 1]",
        ("covtype.libsvm.binary.scale",),
        (581_012, None, 54, 2),
        (1, 2),
    ),
    _libsvm("phishing", "phishing web sites", ("phishing",), (11_055, None, 68, 2), None),
    _libsvm(
        "real-sim",
        "newsgroup articles, real against simulated",
        ("real-sim",),
        (72_309, None, 20_958, 2),
        layout="sparse",
    ),
)

KNOWN: dict[str, KnownDataset] = {known.name: known for known in _ALL}
