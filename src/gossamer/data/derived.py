"""Splits as they come of files and settings, kept between runs by what they were made of.

The files are read and hashed at each start: their date, size and place say nothing about what is in them. Only public
data sets are kept, so that nobody's own data lie in a second place that nobody looks after.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.data import kept
from gossamer.data.examples import Owners, raw_bytes, read_once
from gossamer.data.settings import DatasetSettings, Format
from gossamer.data.split import Split


@dataclass(frozen=True, eq=False)
class Derived:
    """Splits that files and settings give.

    Attributes
    ----------
    train, test : Split
        As an objective gets them.
    labels : tuple of tuple of str, optional
        What the data call each class number: all labels that are of it; None for a regression.
    held : bool
        Whether the test examples are some of the training file.
    owners, persons : ndarray [training examples], optional
        Whose example each one is, and which person it is about, where the data say so.
    sources : tuple of str
        The columns of a table that features are made of.
    target : str, optional
        The column of a table that has the targets.
    """

    train: Split
    test: Split
    labels: tuple[tuple[str, ...], ...] | None
    held: bool
    owners: Owners | None = None
    persons: Owners | None = None
    sources: tuple[str, ...] = ()
    target: str | None = None


def kept_or_made(
    settings: DatasetSettings, form: Format, files: Sequence[Path], examples: int, make: Callable[[], Derived]
) -> Derived:
    """Return what was made of such ``files`` before, or ``make`` it and keep it.

    Parameters
    ----------
    settings : DatasetSettings
        All but the places of files decides what is made.
    form : str
        How the files are read.
    files : sequence of Path
        All that ``make`` reads, in an order that says which is which.
    examples : int
        As many as the public data set has for training. What has another number is something else, and is not kept.
    make : callable
        Reads the files by `examples.read_bytes`.

    Warns
    -----
    UserWarning
        If what was kept is damaged, or nothing can be kept.
    """
    with read_once():
        try:
            name = _name(settings, form, files)
        except OSError:  # the reader says what is wrong
            return make()
        if (entry := kept.find(name)) is not None:
            return _unpacked(entry)
        made = make()
    found = len(made.train) + (len(made.test) if made.held else 0)
    if found == examples and made.owners is None and made.persons is None:
        kept.keep(name, dict(_arrays(made)), {"labels": made.labels, "held": made.held})
    return made


def _name(settings: DatasetSettings, form: Format, files: Sequence[Path]) -> str:
    """Return a digest of all that decides what is made."""
    decides = {
        "settings": settings.model_dump(mode="json", exclude={"path", "test_path"}),
        "format": form,
        "files": [(path.name, hashlib.sha256(raw_bytes(path)).hexdigest()) for path in files],
        "code": _code(),
        "libraries": [np.__version__, _pillow() if form == "images" else None],
        "byte order": sys.byteorder,
    }
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


@cache
def _code() -> str:
    """Return a digest of the code that makes it, so that what another version made is not taken for its own."""
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in _sources())).hexdigest()


def _sources() -> list[Path]:
    """This package, and the modules beside it, such as what draws held-out examples: it imports nothing else."""
    here = Path(__file__).parent
    return [*sorted(here.glob("*.py")), *sorted(here.parent.glob("*.py"))]


def _pillow() -> str | None:
    try:
        return version("pillow")
    except PackageNotFoundError:
        return None


_CSR = ("data", "indices", "indptr")


def _arrays(made: Derived) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for which, split in (("train", made.train), ("test", made.test)):
        features: Any = split.features
        if split.sparse:
            yield from ((f"{which}_{part}", getattr(features, part)) for part in _CSR)
            yield f"{which}_shape", np.array(features.shape)
        else:
            yield f"{which}_features", features
        yield f"{which}_targets", split.targets


def _unpacked(entry: kept.Kept) -> Derived:
    labels = entry.facts["labels"]
    train, test = (_split(entry.arrays, which) for which in ("train", "test"))
    return Derived(train, test, None if labels is None else tuple(map(tuple, labels)), entry.facts["held"])


def _split(arrays: Mapping[str, npt.NDArray[Any]], which: str) -> Split:
    features: Any = arrays.get(f"{which}_features")
    if features is None:
        parts = tuple(arrays[f"{which}_{part}"] for part in _CSR)
        features = sp.csr_array(parts, shape=tuple(arrays[f"{which}_shape"].tolist()))
    return Split(features, arrays[f"{which}_targets"])
