"""Compiled loops: machine code that numba makes once for a machine and keeps for later processes.

It keeps it beside the source, in ``NUMBA_CACHE_DIR`` or in the user's cache. Whatever it finds there is a copy: what
cannot be read is made anew, and where none can be kept, each process makes its own.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache

from gossamer.errors import RunWarning
from gossamer.interrupts import heard_in_compilers

_LOG = logging.getLogger("gossamer.waits")


class _Kept(FunctionCache):
    """Numba's cache of one function, which stops nobody."""

    takes = ""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)
        except Exception:  # whatever damaged machine code raises
            found = None
            with suppress(OSError):
                self.flush()  # an index that cannot be read cannot be added to either
        if found is None and self.takes:
            _tell_once(f"compiling {self.takes}, once for this machine")
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn_once(error.strerror or str(error))


def compiled(*signatures: Any, takes: str = "", **options: Any) -> Callable[[Any], Any]:
    """Return a decorator that compiles a function, by numba's njit.

    Parameters
    ----------
    *signatures
        Types for which it is compiled at once, and alone; without any it is compiled for those that it is called with.
    takes : str, optional
        Words on what is compiled and how long that takes, if it is long enough to be told.
    **options
        Further options of njit.
    """

    def made(function: Any) -> Any:
        found = njit(nogil=True, error_model="numpy", **options)(function)
        if found is function:  # NUMBA_DISABLE_JIT
            return found
        try:
            found._cache = _Kept(function)
            found._cache.takes = takes
        except RuntimeError:  # no folder can be written
            _warn_once("no folder for it can be written")
            if takes:
                _tell_once(f"compiling {takes}")
        with heard_in_compilers():
            for signature in signatures:
                found.compile(signature)
        if signatures:
            found.disable_compile()
        return found

    return made


@cache
def _tell_once(line: str) -> None:
    _LOG.info(line)


@cache
def _warn_once(why: str) -> None:
    warnings.warn(
        f"machine code cannot be kept ({why}), so each process compiles it anew; set NUMBA_CACHE_DIR to a folder that "
        "can be written",
        RunWarning,
        stacklevel=2,
    )
