"""Arrays kept between runs, as files that are mapped into memory.

An entry is a folder of NPY files, whose name says what they were made of. The file ``entry`` in it has the type, the
shape and a checksum of each array, and what else belongs to them; first comes its own checksum. Entries are moved into
place whole.
A checksum finds what a disk or a copy damaged. It does not find what somebody meant to change; whoever can write in the
folder can do worse.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
import warnings
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.cache import cache_home

MOST_BYTES = 2**31
"""Of all entries together; the ones that were not used for longest are removed first."""

_ENTRY = "entry"
_NEW = ".new-"
_STALE = 24 * 3600.0
"""Seconds after which what a killed process was writing is removed."""


class Kept(NamedTuple):
    """Content of an entry.

    Attributes
    ----------
    arrays : mapping of str to ndarray
        Read from files as they are needed. Whatever is written to one stays in this process.
    facts : mapping
        Plain data.
    """

    arrays: Mapping[str, npt.NDArray[Any]]
    facts: Mapping[str, Any]


def folder() -> Path:
    """Return where entries are."""
    return cache_home() / "data"


def find(name: str) -> Kept | None:
    """Return the entry of this name; None where there is none, or none that can be used.

    Warns
    -----
    UserWarning
        If it is damaged; then it is removed.
    """
    place = folder() / name
    if not os.path.isdir(place):
        return None
    try:
        checksum, _, text = (place / _ENTRY).read_text(encoding="utf-8").partition("\n")
        if checksum != str(zlib.crc32(text.encode())):
            raise ValueError(f"{_ENTRY} is not as it was written")
        found = json.loads(text)
        arrays = {key: _mapped(place / f"{key}.npy", said) for key, said in found["arrays"].items()}
        kept = Kept(arrays, found["facts"])
    except Exception as problem:  # numpy reads a damaged header as code, which raises whatever it likes
        reason = " ".join(str(problem).split())
        warnings.warn(f"prepared data kept in {place} are damaged ({reason}), so they are made anew", stacklevel=2)
        shutil.rmtree(place, ignore_errors=True)
        return None
    _touch(place)
    return kept


def keep(name: str, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Write an entry, and remove old ones if all together are too large.

    Warns
    -----
    UserWarning
        If it cannot be written; then there is none.
    """
    place = folder() / name
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = Path(tempfile.mkdtemp(prefix=_NEW, dir=place.parent))
        try:
            _write(beside, arrays, facts)
            beside.rename(place)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        _make_room(place)
    except OSError as problem:
        if os.path.isdir(place):  # another process was first
            return
        warnings.warn(
            f"prepared data cannot be kept in {place.parent} ({problem.strerror or problem}), so each run prepares "
            "them again; set XDG_CACHE_HOME to a folder that can be written",
            stacklevel=2,
        )


def _mapped(path: Path, said: Mapping[str, Any]) -> npt.NDArray[Any]:
    # Copied on write: the file stays as it is, and compiled kernels see the type of an ordinary array.
    array = np.asarray(np.lib.format.open_memmap(path, mode="c"))
    if _described(array) != said:
        raise ValueError(f"{path.name} is not as it was written")
    return array


def _write(place: Path, arrays: Mapping[str, npt.NDArray[Any]], facts: Mapping[str, Any]) -> None:
    described = {}
    for key, given in arrays.items():
        array = np.ascontiguousarray(given)
        np.save(place / f"{key}.npy", array, allow_pickle=False)
        described[key] = _described(array)
    text = json.dumps({"arrays": described, "facts": facts})
    (place / _ENTRY).write_text(f"{zlib.crc32(text.encode())}\n{text}", encoding="utf-8")


def _described(array: npt.NDArray[Any]) -> dict[str, Any]:
    checksum = zlib.crc32(array.reshape(-1).view(np.uint8).data)
    return {"type": array.dtype.str, "shape": list(array.shape), "crc32": checksum}


def _touch(place: Path) -> None:
    with suppress(OSError):  # a cache that may only be read
        os.utime(place)


def _make_room(newest: Path) -> None:
    """Remove entries, the longest unused first, until the rest are no larger than `MOST_BYTES`; but not the newest."""
    total = 0
    ages = {place: os.stat(place).st_mtime for place in newest.parent.iterdir()}
    for place in sorted(ages, key=lambda place: (place == newest, ages[place]), reverse=True):
        if place.name.startswith(_NEW):
            if time.time() - ages[place] > _STALE:
                shutil.rmtree(place, ignore_errors=True)
            continue
        total += sum(file.stat().st_size for file in place.iterdir())
        if total > MOST_BYTES and place != newest:
            shutil.rmtree(place, ignore_errors=True)
