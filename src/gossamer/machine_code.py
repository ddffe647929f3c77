"""Compiled loops: machine code that numba makes once for a machine and keeps for later processes.

It keeps it beside the source, in ``NUMBA_CACHE_DIR`` or in the user's cache. Whatever it finds there is a copy: what
cannot be read is made anew, and where none can be kept, each process makes its own.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

from gossamer.errors import RunWarning
from gossamer.interrupts import heard_in_compilers
from gossamer.version import __version__

_LOG = logging.getLogger("gossamer.waits")


class _Files(IndexDataCacheFile):
    """Files of one function, each of which ends with its digest, since a flipped bit may do anything once it runs.

    The source's stamp is in it: a process that ends between writing the index and the code leaves that of the source
    before, to which the new index leads.
    """

    def _dump(self, obj: Any) -> bytes:
        content: bytes = super()._dump(obj)
        return content + self._digest(content)  # who unpickles it leaves that

    def _digest(self, content: bytes) -> bytes:
        return hashlib.sha256(repr(self._source_stamp).encode() + content).digest()

    def _check(self, content: bytes, name: str) -> None:
        if self._digest(content[:-32]) != content[-32:]:
            raise ValueError(f"{name} has changed")

    def _load_index(self) -> Any:
        found = super()._load_index()
        if found:
            with open(self._index_path, "rb") as file:
                pickle.load(file)  # numba's version
                self._check(file.read(), self._index_name)
        return found

    def _load_data(self, name: str) -> Any:
        self._check(Path(self._data_path(name)).read_bytes(), name)
        return super()._load_data(name)


class _Kept(FunctionCache):
    """Numba's cache of one function, which stops nobody."""

    def __init__(self, function: Any, takes: str) -> None:
        super().__init__(function)
        # An installation of another version may have the same source here, and others of what it calls.
        stamp = "with digests", __version__, self._impl.locator.get_source_stamp()
        self._cache_file, self._takes = _Files(self._cache_path, self._impl.filename_base, stamp), takes

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception as error:  # whatever damaged machine code raises
            found = None
            _warn_once(f"machine code in {self.cache_path} is damaged ({type(error).__name__}), so it is made anew")
            with suppress(OSError):
                self.flush()  # an index that cannot be read cannot be added to either
        if found is None and self._takes:
            _tell_once(f"compiling {self._takes}, once for this machine")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:  # an index that is damaged, too, where it could not be emptied
            _warn_once(_UNKEPT.format(getattr(error, "strerror", None) or error))


def compiled(*signatures: Any, takes: str = "", keep: bool = True, **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function by numba's njit.

    Parameters
    ----------
    *signatures
        Types for which it is compiled at once, and alone; without any it is compiled for those that it is called with.
    takes : str, optional
        Words on what is compiled and how long that takes, if it is long enough to be told.
    keep : bool
        Whether other processes may find it.
    **options
        Further options of njit.
    """

    def made(function: Any) -> Any:
        found = njit(nogil=True, error_model="numpy", **options)(function)
        if found is function:  # NUMBA_DISABLE_JIT
            return found
        try:
            found._cache = _Kept(function, takes) if keep else found._cache
        except RuntimeError:
            _warn_once(_UNKEPT.format("no folder for it can be written"))
            if takes:
                _tell_once(f"compiling {takes}")
        if signatures:
            with heard_in_compilers():
                for signature in signatures:
                    found.compile(signature)
            found.disable_compile()
        return found

    return made


_UNKEPT = (
    "machine code cannot be kept ({}), so each process compiles it anew; set NUMBA_CACHE_DIR to a folder that can be "
    "written"
)


@cache
def _tell_once(line: str) -> None:
    _LOG.info(line)


@cache
def _warn_once(line: str) -> None:
    warnings.warn(line, RunWarning, stacklevel=1)
