"""Machine code of compiled loops, kept for all clones on one machine: a fresh one compiles only what has changed.

Numba keeps it beside each source, by the time that file was written, and does not see that a loop of another file,
which it calls, has changed. Here it is kept in the user's cache, by the content of all sources that have loops.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import _CacheLocator

SOURCES = Path(__file__).resolve().parents[1] / "src"
_KEPT = 5  # states of the sources, the newest


@cache
def home() -> Path:
    """Folder for this state of the sources; the oldest of others are deleted."""
    loops = [path for path in SOURCES.rglob("*.py") if re.search(b"njit|machine_code", path.read_bytes())]
    return kept_for("gossamer-tests", loops, numba.__version__)


def kept_for(name: str, sources: Iterable[Path], *versions: str) -> Path:
    """Folder in the user's cache for these sources as they are; the oldest of other states are deleted."""
    digest = hashlib.sha256(" ".join(versions).encode())
    for path in sorted(sources):
        digest.update(path.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / name
    found = root / digest.hexdigest()[:16]
    found.mkdir(parents=True, exist_ok=True)
    os.utime(found)
    with suppress(FileNotFoundError):  # another run deletes them, too
        for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return found


class SharedLocator(_CacheLocator):
    """Place of the machine code of one loop, by its module's place among the sources; of no loop of elsewhere."""

    def __init__(self, py_func: Any, path: Path) -> None:
        self._path, self._line = path, py_func.__code__.co_firstlineno

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> SharedLocator | None:
        path = Path(py_file).resolve()
        return cls(py_func, path.relative_to(SOURCES)) if path.is_relative_to(SOURCES) else None

    def get_cache_path(self) -> str:
        return str(home() / self._path.parent)

    def get_source_stamp(self) -> str:
        return home().name

    def get_disambiguator(self) -> str:
        return str(self._line)


def share() -> None:
    """Have loops that are made from now on keep their machine code there."""
    home()
    numba.config.CACHE_LOCATOR_CLASSES = f"{__name__}.SharedLocator,InTreeCacheLocator,UserWideCacheLocator"
