"""Figures of the accountants, kept for all clones on one machine.

What tests of runs cost is for the most part the proof of guarantees of the same plans, again and again. It follows from
its arguments and from the sources of `gossamer.privacy` and of what that may import, so it is kept by the content of
these, as machine code is. Tests of accountants, papers and verifiers compute theirs anew, and so does every night.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from tests import machine_code

ANEW = ("tests/unit/privacy/", "tests/unit/verify/", "tests/properties/", "tests/statistical/", "tests/paper/")
"""Tests that are about figures."""


@cache
def home() -> Path:
    """Folder for this state of the sources."""
    ours = [*machine_code.SOURCES.glob("gossamer/*.py"), *machine_code.SOURCES.glob("gossamer/privacy/**/*.py")]
    return machine_code.kept_for("gossamer-test-figures", ours, np.__version__, scipy.__version__)


def written(value: Any) -> str | None:
    """Text that says which value it is, whatever order a set has; None of what is not the accountants' own."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        inner = [written(getattr(value, field.name)) for field in dataclasses.fields(value)]
        ours = type(value).__module__.startswith("gossamer.privacy.")
    elif isinstance(value, (tuple, frozenset)):
        inner, ours = [written(one) for one in value], True
        inner = sorted(map(str, inner)) if isinstance(value, frozenset) and None not in inner else inner
    else:
        return repr(value) if value is None or isinstance(value, (int, float, str, Enum)) else None
    return f"{type(value).__qualname__}{inner}" if ours and None not in inner else None


def kept(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function as it is for tests of runs: each value is computed once."""
    memory: dict[str, Any] = {}

    def found(*arguments: Any) -> Any:
        text = written(arguments)
        if text is None or os.environ.get("PYTEST_CURRENT_TEST", "").startswith(ANEW):
            return function(*arguments)
        if text not in memory:
            path = home() / hashlib.sha256(f"{function.__name__} {text}".encode()).hexdigest()
            with suppress(OSError):  # nothing is kept of it, or it is another user's: some tests take its part
                memory[text] = pickle.loads(path.read_bytes())
        if text not in memory:
            memory[text] = function(*arguments)
            part = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
            with suppress(OSError):  # runs of other states of the sources may have deleted the folder, too
                part.write_bytes(pickle.dumps(memory[text]))
                part.replace(path)  # another process, or thread, may write the same
        return memory[text]

    found.cache_clear = function.cache_clear  # type: ignore[attr-defined]
    return found
