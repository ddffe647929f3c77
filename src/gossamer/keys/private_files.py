"""Files with keys and other secrets: nobody but their owner may read them, at any moment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gossamer.errors import CallerError, failing_as
from gossamer.files import sync_names


class IdentityError(CallerError):
    """A key or a key file is not what an identity needs."""


_LARGEST = 4096  # a key file has a few hundred bytes


def write_private(path: str | Path, content: bytes, *, what: str = "key") -> None:
    """Write a new file that only this user may read (mode 0600); ``what`` it holds, for messages.

    Raises
    ------
    IdentityError
        If the file exists or cannot be written.
    """
    try:
        # Made with its mode, so that there is no moment at which others can open it.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "wb") as file:
            os.chmod(path, 0o600)  # whatever the umask was
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        sync_names(Path(path).parent)
    except FileExistsError:
        raise IdentityError(
            f"{path}: exists already and stays as it is; choose another place for a new {what}"
        ) from None
    except OSError as error:
        raise IdentityError(f"{path}: cannot write the {what}: {error.strerror}") from None


def read_private(path: str | Path, *, what: str = "key", known: str = "make a new one") -> bytes:
    """The content of a file that nobody else may use; ``what`` it should be, for messages.

    ``known`` is what to do once somebody else may know it.

    Raises
    ------
    IdentityError
        If it cannot be read, is longer than a key, belongs to somebody else, or others may read or write it.
    """
    path = Path(path)
    refusing = failing_as(IdentityError, f"{path}: cannot read the {what}: ")
    # A pipe must not make us wait for its other end.
    with refusing, open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        _check(path, os.fstat(file.fileno()), what, known)  # of the open file, so that it cannot be swapped
        content = file.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise IdentityError(f"{path}: expected a {what} of at most {_LARGEST} bytes, found a longer file")
    if not content:
        raise IdentityError(
            f"{path}: expected a {what}, found an empty file, as a power cut can leave one that was just made; delete "
            "it and make it anew, or bring it back from a copy if it was ever used"
        )
    return content


def _check(path: Path, status: os.stat_result, what: str, known: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise IdentityError(f"{path}: expected a file with a {what}, found something else")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise IdentityError(
            f"{path}: others may use this {what} (mode {mode:04o}, expected 0600); chmod 600 it, "
            f"or {known} if anyone may have read it"
        )
    if status.st_uid != os.geteuid():
        raise IdentityError(f"{path}: the {what} belongs to user {status.st_uid}, expected user {os.geteuid()}")
