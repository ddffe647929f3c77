"""Files for their owner alone, whatever the umask is: there is no moment at which others could open them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def for_owner(path: str, flags: int) -> int:
    """Open a file for `open`, as its ``opener``: what it makes is for its owner alone, and so is what it finds."""
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        # What is no file of ours, such as /dev/null, is left as it is.
        if os.name == "posix" and stat.S_ISREG(found.st_mode) and found.st_mode & 0o077:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def replaced(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end: whole, or not at all."""
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb", opener=for_owner) as file:
            yield file
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_own(path: Path, content: str | bytes) -> None:
    """Replace a file, whole or not at all."""
    with replaced(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody else can look into; one that is there stays as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
