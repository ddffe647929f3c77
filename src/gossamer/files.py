"""Files that are written whole or not at all, most for their owner alone; and files of others, read with bounds.

Files for their owner alone are so whatever the umask is: there is no moment at which others could open them.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from gossamer.errors import CallerError, DataError, failing_as, listed

# Folders that belong to one process at a time.
#
# The lock is on the folder itself, so nothing is left in it, and the system lets go of it when the process ends,
# however it ends. Where there are no such locks, as on Windows and on some network file systems, nobody is refused.

_HELD: set[int] = set()
"""Descriptors of folders that this process has."""


class UnderWay(CallerError):
    """Another run writes to the folder."""


class FolderLock:
    """The lock on a folder.

    Parameters
    ----------
    path : Path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._descriptor = path, -1

    def take(self) -> None:
        """Have the folder for this process, until `give_back`; a folder that is not there is nobody's yet.

        Raises
        ------
        UnderWay
            If another run has it, in this process or elsewhere.
        """
        if self._descriptor in _HELD:
            return
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:  # as on Windows, where folders cannot be opened
            return
        if not _locked(descriptor):
            os.close(descriptor)
            raise UnderWay(f"{self._path}: a run is still under way there; wait for it, or end it")
        _HELD.add(descriptor)
        self._descriptor = descriptor

    def give_back(self) -> None:
        """Let others have the folder."""
        if self._descriptor in _HELD:
            _HELD.remove(self._descriptor)
            os.close(self._descriptor)


@contextmanager
def held(path: Path) -> Iterator[FolderLock]:
    """Have a folder for this process alone, as long as the block runs.

    Raises
    ------
    UnderWay
        If another run has it.
    """
    lock = FolderLock(path)
    lock.take()
    try:
        yield lock
    finally:
        lock.give_back()


def _locked(descriptor: int) -> bool:
    """Whether the lock is ours now, or there are none."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _let_go() -> None:
    """In a process that was forked: only the one that took a lock is to keep it."""
    for descriptor in _HELD:
        os.close(descriptor)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)


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
def replaced(path: Path, *, durable: bool = False, opener: Callable[[str, int], int] = for_owner) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` at the end: whole, or not at all.

    Parameters
    ----------
    path : Path
        The file.
    durable : bool
        Whether it has to be on disk before anything else happens.
    opener : callable
        Opener of the new file, as for `open`: by whom it may be read.
    """
    beside = path.with_name(f".{path.name}.new")
    try:
        with open(beside, "wb", opener=opener) as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise _naming(error, path, beside) from error.__cause__
    if durable:
        sync_names(path.parent)


@contextmanager
def named(path: Path) -> Iterator[None]:
    """Have an error of the system name ``path``: of what is written to an open file, such as to a full disk, it names
    none."""
    try:
        yield
    except OSError as error:
        raise _naming(error, path) from error.__cause__


def _naming(error: BaseException, path: Path, beside: Path | None = None) -> BaseException:
    if not isinstance(error, OSError) or error.filename not in (None, str(beside)):
        return error
    return OSError(error.errno, error.strerror or str(error), str(path))


@contextmanager
def as_written(place: Path, what: str, remedy: str) -> Iterator[None]:
    """Refuse, in a line, what is read in the block and is not ``what`` Gossamer wrote to ``place``, whatever it is."""
    try:
        yield
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise DataError(f"{place}: expected {what}, found something else; {remedy}") from None


def append(path: Path, line: str) -> None:
    """Add a line to a file of its owner's, whole or not at all."""
    left = memoryview(line.encode())
    with named(path), open(path, "ab", buffering=0, opener=for_owner) as file:
        before = file.tell()
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise


def synced(path: Path) -> int:
    """Have all of a file on disk; the number of its bytes."""
    with named(path), open(path, "rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def sync_names(folder: Path) -> None:
    """Have what the names in a folder stand for on disk: a file that is new, or that took another's place."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_own(path: Path, content: str | bytes, *, durable: bool = False) -> None:
    """Replace a file, whole or not at all; it is on disk when this returns, if it has to be ``durable``."""
    with replaced(path, durable=durable) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def make_own_folder(path: Path) -> None:
    """Make a folder that nobody else can look into, and have it on disk; one that is there stays as it is."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in new:
        sync_names(folder.parent)


def is_read_only(path: Path) -> bool:
    """Whether what a path is on may be read and not written, as a disk may be left after an error."""
    try:
        return bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    except OSError:
        return False


def to_json(value: Any, *, indent: int | None = None) -> str:
    """Standard JSON, in which there is no NaN or infinity."""
    return json.dumps(value, indent=indent, allow_nan=False)


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Lines of a CSV file, of all keys in order; a cell is empty where a row has nothing."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def cache_home() -> Path:
    """Return the folder of all that Gossamer keeps between runs: ``gossamer`` in XDG_CACHE_HOME, or in ``~/.cache``.

    Whatever is in it may be deleted at any time; a run makes again what it needs.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gossamer"


# Reading of files that other people made: of regular files alone, and no more of them than a bound.
#
# A pipe keeps its reader waiting and a device such as ``/dev/zero`` never ends, so nothing is read before it is known
# to be a file of a size that can be read. What is wrong is an `OSError`, whose ``strerror`` says so, as of a file that
# is not there: whoever reads a file says already what it was for.

MOST_TEXT = 1 << 22
"""Bytes of a file that somebody writes by hand: a spec, a policy, a list of nodes."""

MOST_RECORDS = 1 << 30
"""Bytes of a file that a run writes, such as its metrics."""


@contextmanager
def open_file(path: str | Path, most: int = MOST_TEXT) -> Iterator[BinaryIO]:
    """Open a regular file of at most ``most`` bytes; it may grow while it is read.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file or is larger.
    """
    # A pipe must not make us wait for its other end; of a terminal we must not become the owner.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except ValueError as error:  # a null character
        raise _refused(path, f"no file can have this name ({error})") from None
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket cannot be opened
            raise _refused(path, wrong_kind(os.stat(path).st_mode)) from None
        raise
    try:
        found = os.fstat(descriptor)  # of the open file, so that it cannot be swapped
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path, wrong_kind(found.st_mode))
        if found.st_size > most:
            raise _refused(path, _too_large(found.st_size, most))
        with open(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def read_file(path: str | Path, most: int = MOST_TEXT) -> bytes:
    """Return the content of a regular file of at most ``most`` bytes.

    Raises
    ------
    OSError
        If it cannot be read, is no regular file or is larger.
    """
    with open_file(path, most) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(size + 1)  # room is made for all that is asked for, so not for ``most``
        if len(content) > size:
            content += file.read(most - size)
    if len(content) > most:  # it grew, or its system does not know its size
        raise _refused(path, _too_large(len(content), most))
    return content


def read_text(path: str | Path, most: int = MOST_TEXT) -> str:
    """Return the text of a regular file in UTF-8, without the mark of its byte order.

    Raises
    ------
    OSError
        As `read_file`, and for what is not UTF-8.
    """
    content = read_file(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(path, f"it is not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def words_beside(module: str) -> Any:
    """Words that Gossamer says, from the YAML file beside a ``module``: its own, so no bounds are checked."""
    text = Path(module).with_suffix(".yaml").read_text("utf-8")
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def refusals(module: str, broken: Mapping[str, object], **named: Any) -> Iterator[str]:
    """Lines on the rules that are broken, in the words that the YAML file beside a module has for each.

    Parameters
    ----------
    module : str
        Path of the module, its ``__file__``.
    broken : mapping of str to object
        Rules by their names in the file, each with whether it is broken.
    **named : object
        Values whose parts stand in the words, as ``{s.nodes}`` is a part of ``s``.

    Yields
    ------
    str
        A line for each rule that is broken, in their order.
    """
    for rule in [rule for rule, is_broken in broken.items() if is_broken]:
        yield words_beside(module)[rule].format(**named)


def read_rows(path: Path, what: str, key: str) -> Iterator[tuple[int, str]]:
    """Lines of a text file of ``what``, which ``key`` names, each with its number: without blank ones and comments.

    Raises
    ------
    DataError
        If the file cannot be read.
    """
    with failing_as(DataError, f"{path}: cannot read {what} (", f"); check {key}"):
        lines = read_text(path).splitlines()
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def real_path(path: str | Path) -> Path:
    """Return a path without links; one whose links lead in a circle stays as it is, for whoever opens it to say so."""
    return Path(os.path.realpath(path))


def in_bytes(size: float) -> str:
    """Return a number of bytes in words: ``4 MiB``."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    unit = 0
    while size >= 1000 and unit < len(units) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.3g} {units[unit]}"


def wrong_kind(mode: int) -> str:
    """Return what is wrong with something that is no file, by its mode."""
    return f"it is {'a folder' if stat.S_ISDIR(mode) else 'a pipe, a socket or a device'}, expected a file"


def _too_large(size: int, most: int) -> str:
    return f"it has {in_bytes(size)}, expected at most {in_bytes(most)}"


def _refused(path: str | Path, why: str) -> OSError:
    return OSError(errno.EINVAL, why, str(path))


def elsewhere(folder: Path, file: str) -> str:
    """Say where ``file``, which was expected in ``folder``, is instead: nowhere, or in folders just below it."""
    try:
        if not folder.exists():
            return ", found no such folder"
        below = sorted(str(path.parent) for path in folder.glob(f"*/{file}"))
    except (OSError, ValueError):  # a name that is too long, or has a zero byte
        return ""
    return f", found one in {listed(below, 3)}" if below else ""
