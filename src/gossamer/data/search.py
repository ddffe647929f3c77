"""Folders in which data files are looked for. Nothing is ever downloaded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gossamer.data.compression import COMPRESSIONS
from gossamer.errors import DataError
from gossamer.files import cache_home


def search_path() -> list[Path]:
    """The folders that data files are looked for in, in order; each one's immediate subfolders count too.

    Those of the environment variable GOSSAMER_DATA (separated as in PATH), then ``data`` in the current
    folder, then ``gossamer`` in the user's cache (XDG_CACHE_HOME, or ``~/.cache``).
    """
    named = [Path(folder) for folder in os.environ.get("GOSSAMER_DATA", "").split(os.pathsep) if folder]
    return [*(folder.expanduser() for folder in named), Path.cwd() / "data", cache_home()]


def variant(folder: Path, name: str) -> Path | None:
    """The file ``name`` in ``folder``, plain or compressed; None where there is none."""
    candidates = (folder / (name + suffix) for suffix in ("", *COMPRESSIONS))
    return next((path for path in candidates if os.path.isfile(path)), None)


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
