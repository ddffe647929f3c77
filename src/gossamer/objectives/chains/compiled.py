"""Compiled kernels of chains, kept on disk by what they are made of.

A chain's text is a file in the cache folder, named by a digest of the text, of the loops that it is made of and of the
compiler's version; numba keeps the machine code of each processor beside it. So a second process loads what the first
one compiled, and whatever is of another version, of another processor or damaged is made anew.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import numba
import numpy as np

from gossamer.files import cache_home
from gossamer.objectives.chains import block_kernels, exponentials, kernels
from gossamer.objectives.chains.layers import Layer
from gossamer.objectives.chains.source import is_flat, is_wide, write, write_flat

CLIPPED, SUMMED, SCORED = range(3)
"""Modes of a kernel: sums of clipped gradients, plain sums, and losses."""

_HEAD = '''"""Kernels of a chain of layers, written by Gossamer; safe to delete."""

import numpy as np
from numba import njit

from gossamer.objectives.chains.exponentials import *
from gossamer.objectives.chains.kernels import *

CLIPPED, SUMMED, SCORED = range(3)
SIGNATURE = {signature!r}
CACHE = {cache}
'''

_ONE_AT_A_TIME = Lock()


class KernelOrigin(NamedTuple):
    """Origin of kernels.

    Attributes
    ----------
    kernels : str
        ``compiled`` and kept, ``loaded`` as an earlier process kept them, or compiled ``in memory`` alone.
    seconds : float
        Wall time that it took.
    """

    kernels: str
    seconds: float


MADE: dict[Any, KernelOrigin] = {}
"""How each ``run`` of this process came about."""


def folder() -> Path:
    """Return where kernels are kept."""
    return cache_home() / "kernels"


def has_products(chain: Sequence[Layer]) -> bool:
    """Whether some layers of the chain may be left to BLAS."""
    return is_flat(chain) and any(map(is_wide, chain))


def kernel_of(chain: Sequence[Layer], loss: str, dtype: np.dtype[np.floating], products: bool) -> Any:
    """Return ``run`` of the chain's kernels, compiled or loaded; ``products`` leaves wide layers to BLAS."""
    text = write_flat(chain, loss, products) if is_flat(chain) else write(chain, loss)
    with _ONE_AT_A_TIME:  # whoever asks for what is being compiled waits for it
        return _compiled(text, _signature(loss, np.dtype(dtype)))


def _signature(loss: str, dtype: np.dtype[np.floating]) -> str:
    number = "float32" if dtype == np.float32 else "float64"
    target = "int64" if loss == "cross_entropy" else number
    given = [f"Array({kind}, 1, 'C', readonly=True)" for kind in (number, target, "int64", number)]
    return f"void(int64, {', '.join(given)}, float64, {number}[::1], float64[::1])"


@cache
def _compiled(text: str, signature: str) -> Any:
    begun = time.perf_counter()
    run, kept = _made(text, signature)
    found = "in memory" if not kept else "compiled" if run.stats.cache_misses else "loaded"
    MADE[run] = KernelOrigin(found, time.perf_counter() - begun)
    return run


def _made(text: str, signature: str) -> tuple[Any, bool]:
    """Return ``run`` of a module with that text, and whether it is on disk."""
    loops = (kernels, exponentials, block_kernels)
    made_of = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in loops)
    digest = hashlib.sha256("\0".join((text, made_of, signature, numba.__version__)).encode()).hexdigest()[:24]
    kept = _HEAD.format(signature=signature, cache=True) + text
    path = folder() / f"chain_{digest}.py"
    try:
        _keep(path, kept)
        try:
            return _checked(path).run, True
        except Exception as problem:  # whatever damaged machine code raises
            warnings.warn(
                f"compiled kernels in {path} are damaged ({type(problem).__name__}), so they are made anew",
                stacklevel=2,
            )
            _forget(path)
            _keep(path, kept)
            return _checked(path).run, True
    except (OSError, RuntimeError) as problem:
        warnings.warn(
            f"compiled kernels cannot be kept in {path.parent} ({problem}), so each process compiles them again; set "
            "XDG_CACHE_HOME to a folder that can be written",
            stacklevel=2,
        )
        module = ModuleType(f"chain_{digest}")
        exec(compile(_HEAD.format(signature=signature, cache=False) + text, module.__name__, "exec"), vars(module))
        return module.run, False


def _forget(path: Path) -> None:
    """Remove a kernel's file and its machine code."""
    for old in (path, path.with_suffix(".sha256"), *_machine_code(path)):
        old.unlink(missing_ok=True)


def _machine_code(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"__pycache__/{path.stem}.*"))


def _checked(path: Path) -> ModuleType:
    """Load a kernel whose machine code is what some process kept: a flipped bit may do anything once it runs."""
    known = path.with_suffix(".sha256")
    kept = set(known.read_text(encoding="utf-8").splitlines()) if known.exists() else set()
    names = {line.partition(" ")[2] for line in kept}
    changed = [line for line in _digests(path) if line not in kept and line.partition(" ")[2] in names]
    if changed:
        raise ValueError(f"{changed[0].partition(' ')[2]} has changed")
    module = _loaded(path)
    # Appended: other processes and processors keep theirs in the same place.
    if new := [line for line in _digests(path) if line not in kept]:
        with known.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in new))
    return module


def _digests(path: Path) -> list[str]:
    return [f"{hashlib.sha256(code.read_bytes()).hexdigest()} {code.name}" for code in _machine_code(path)]


def _keep(path: Path, text: str) -> None:
    """Write the file, unless it is there as it is to be: its date is part of what numba compares."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".py")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)  # machine code finds its module by name
    spec.loader.exec_module(module)
    return module
