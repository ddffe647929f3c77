"""The version, and the source that is running, as a hash that two people can compare."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

__version__ = "0.1.0"

DISTRIBUTION = "gossamer-fl"
"""Name of the distribution; the import and the command are called `gossamer`."""

_READ = (".py", ".json", ".yaml", ".txt", ".html", ".css", ".js", ".mplstyle", ".sql")
"""Endings of the files that count: what is compiled from them does not."""


@cache
def source_hash() -> str:
    """SHA-256 of the package's files, in hexadecimal digits: names and contents, each after its length, by name.

    A distribution of the same version that was made elsewhere has the same one.
    """
    root = Path(__file__).parent
    files = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.suffix in _READ)
    found = hashlib.sha256()
    for name, path in files:
        for part in (name.encode(), path.read_bytes()):
            found.update(len(part).to_bytes(8, "big"))
            found.update(part)
    return found.hexdigest()
