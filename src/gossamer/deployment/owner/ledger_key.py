"""The secret beside a ledger: the key of its hashes, and a witness that the ledger was there.

The key is made with the ledger, is kept in ``<ledger>.key`` for its owner's eyes only, and is never sent. The ledger
has a mark of it. A ledger and a key that do not belong together, or one without the other, are refused: nobody gets a
fresh budget by losing a file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import closing
from pathlib import Path

from gossamer.deployment.owner.fingerprints import KEY_BYTES
from gossamer.errors import DataError
from gossamer.files import write_own
from gossamer.runtimes.storage.file import NotWritable, StorageError
from gossamer.runtimes.storage.ledger import LedgerFile
from gossamer.runtimes.storage.seal import newest_of

_PATIENCE = 100
"""How often one of several processes that make a key at the same time may be the one that is late."""


def key_path(ledger: Path) -> Path:
    """Return the place of a ledger's key."""
    return ledger.with_name(f"{ledger.name}.key")


def require_ledger(path: Path) -> bool:
    """Whether there is a ledger at ``path``.

    Raises
    ------
    DataError
        If there is none, but its key, or the file that says how new it is.
    """
    if path.exists():
        return True
    for left in (key_path(path), newest_of(path)):
        if left.exists():
            raise DataError(
                f"{left} is there, but its ledger {path} is not, so what the data have spent is not known; bring the "
                "ledger and its key back from a copy (deleting this, too, would forget everything that was ever spent)"
            )
    return False


def to_be_read(path: Path) -> LedgerFile:
    """Open a ledger that is there, with its key if that is there too; its seal can be compared without.

    Raises
    ------
    DataError
        If the two do not belong together.
    StorageError
        If one cannot be read, or is not what was written.
    """
    return open_with_key(path)[0] if key_path(path).exists() else LedgerFile(path)


def open_with_key(path: Path, *, renew: bool = False) -> tuple[LedgerFile, bytes]:
    """A ledger and its key; both are made if there is neither.

    Parameters
    ----------
    path : Path
        Path of the ledger.
    renew : bool
        Whether to make a new key where the old one is lost. All that was spent stays; hashes are forgotten.

    Raises
    ------
    DataError
        If one of the two is there without the other, or they do not belong together.
    StorageError
        If one cannot be read or made.
    """
    there = require_ledger(path)
    if not there and not path.parent.is_dir():
        raise DataError(f"there is no folder {path.parent} for the ledger; make it, or correct the policy's ledger")
    file = LedgerFile(path)
    try:
        return file, _key(file, path, renew)
    except BaseException:
        file.close()
        raise


def back_up(ledger: Path, copy: Path) -> None:
    """Copy a ledger and its key to ``copy`` and the key beside it; nodes may go on charging meanwhile.

    Raises
    ------
    DataError
        If there is no ledger, or not its key, or the copy would take the place of something.
    StorageError
        If the ledger is not what was written, or the copy cannot be.
    """
    if not require_ledger(ledger):
        raise DataError(f"there is no ledger at {ledger}, so nothing was spent, and there is nothing to copy")
    if key_path(copy).exists():
        raise DataError(f"{key_path(copy)} exists already; name another file for the copy")
    file, key = open_with_key(ledger)
    with closing(file):
        file.back_up(copy)
    _write(key_path(copy), key)
    to_be_read(copy).close()  # as who puts it back will open it


def _key(file: LedgerFile, ledger: Path, renew: bool) -> bytes:
    path = key_path(ledger)
    for _ in range(_PATIENCE):
        if path.exists() or not (renew or file.contents.mark is None or file.contents.untouched):
            break
        _make(file, path)
    if not path.exists():
        raise DataError(
            f"{ledger} is there, but its key {path} is not: what was spent is known, whether the data changed is not; "
            "bring the key back from a copy, or accept the data as they are with gossamer data update --new-key, which "
            "keeps all that was spent"
        )
    key = _read(path)
    if file.contents.mark != _mark(key):
        raise DataError(
            f"{path} is not the key of {ledger}, which was replaced or emptied; bring both back from one copy"
        )
    file.unlock(key)
    return key


def _make(file: LedgerFile, path: Path) -> None:
    """A new key, unless another process makes one.

    The mark is written before the key: whatever is killed in between leaves a mark that nothing depends on. Of two that
    make one at the same time the last mark counts.
    """
    fresh = os.urandom(KEY_BYTES)
    with file.transaction():
        if not path.exists():
            file.contents.renew(_mark(fresh))
            file.seal_with(fresh)
    with file.transaction():
        if file.contents.mark == _mark(fresh):
            _write(path, fresh)


def _mark(key: bytes) -> bytes:
    return hashlib.blake2b(b"", digest_size=16, key=key, person=b"mark").digest()


def _write(path: Path, key: bytes) -> None:
    """A new file, whole or not there."""
    try:
        write_own(path, f"{key.hex()}\n", durable=True)
    except OSError as error:
        raise NotWritable(
            f"{path}: the key of the ledger cannot be written: {error.strerror}; make its folder writable, or make room"
        ) from None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(4 * KEY_BYTES)
    except OSError as error:
        raise StorageError(f"{path}: the key of the ledger cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & 0o077:
        raise DataError(f"{path}: others may read this key (mode {mode:04o}, expected 0600); chmod 600 it")
    try:
        key = bytes.fromhex(content.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise DataError(f"{path}: expected {2 * KEY_BYTES} hexadecimal digits, the key of the ledger, found others")
    return key
