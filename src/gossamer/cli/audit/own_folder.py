"""Folders that commands write figures into."""

from __future__ import annotations

from pathlib import Path

from gossamer.errors import CallerError
from gossamer.files import make_own_folder


def made_folder(path: Path) -> Path:
    """Return the folder, made where it is not there.

    Raises
    ------
    CallerError
        If it cannot be made.
    """
    try:
        make_own_folder(path)
    except OSError as error:
        raise CallerError(f"--out {path}: cannot make this folder ({error.strerror}); choose another") from None
    return path
