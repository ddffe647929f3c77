"""Compiled kernels of chains, kept on disk by what they are made of.

A chain's text is a file in the cache folder, named by a digest of the text, of the loops that it is made of and of the
compiler's version; numba keeps the machine code of each processor beside it. So a second process loads what the first
one compiled, and whatever is of another version, of another processor or damaged is made anew.

That text takes one example forward and back, with every size a constant.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, NamedTuple

import numba
import numpy as np

from gossamer.files import cache_home
from gossamer.objectives.chains import exponentials, kernels
from gossamer.objectives.chains.layers import (
    MARGIN,
    Activation,
    Convolution,
    Layer,
    LinearLayer,
    Normalisation,
    Place,
    PooledConvolution,
    Text,
    block,
    call,
)

WIDE = 2**15
"""Weights from which on a layer is left to BLAS. OpenBLAS has other loops, which round otherwise, for products of less
than a million multiplications; half a block has more."""
BLOCK, WIDE_BLOCK = 16, 64
"""Examples at a time. BLAS gets half a wide block or a whole one, for which its rounding is the same."""


def is_wide(layer: Layer) -> bool:
    """Whether a layer's products are left to BLAS."""
    return isinstance(layer, LinearLayer) and layer.before.size * layer.after.size >= WIDE


def is_flat(chain: Sequence[Layer]) -> bool:
    """Whether the chain is of linear layers and activations behind the first."""
    return isinstance(chain[0], LinearLayer) and all(isinstance(layer, (LinearLayer, Activation)) for layer in chain)


def write_flat(chain: Sequence[Layer], loss: str, products: bool = True) -> str:
    """Return the text of a module with the kernels of ``chain``; see `write`.

    Parameters
    ----------
    chain : sequence of Layer
        LinearLayer layers and activations.
    loss : str
        ``cross_entropy`` or ``mse``.
    products : bool
        Whether wide layers are left to BLAS.
    """
    wide = {layer for layer in chain if products and is_wide(layer)}
    forward: list[str] = []
    backward: list[str] = []
    squares: list[str] = []
    kept: list[str] = []
    add: list[str] = []
    sizes = [chain[0].before.size]
    room = max((layer.before.size * layer.after.size for layer in wide), default=0)
    for layer in chain:
        x, a = f"a{len(sizes) - 1}", f"a{len(sizes)}"
        dx, d = f"d{len(sizes) - 1}", f"d{len(sizes)}"
        outputs, inputs = layer.after.size, layer.before.size
        if isinstance(layer, Activation):
            forward.append(call(layer.name, x, 0, f"rows * U({outputs})"))
            backward.insert(0, call(f"{layer.name}_back", dx, 0, x, 0, f"rows * U({outputs})"))
            continue
        assert isinstance(layer, LinearLayer)
        own = layer.weights
        where, shape = (own.weight, max(own.bias, 0), own.biased), ("rows", outputs, inputs)
        way = "product" if layer in wide else "block"
        forward.append(call(f"linear_{way}", a, x, "P", *where, *shape))
        if len(sizes) > 1:
            backward.insert(0, call(f"linear_back_{way}", dx, d, "P", own.weight, *shape))
        one = " + 1.0" if own.biased else ""
        squares.append(f"{call('row_square', d, 'e', outputs)} * ({call('row_square', x, 'e', inputs)}{one})")
        kept += [call("keep", d, "e", outputs, "sound"), call("keep", x, "e", inputs, "sound")]
        target = ("S", "room", "first == U(0)") if layer in wide else ("S",)
        add.append(call(f"linear_add_{way}", *target, *where, "factors", d, x, *shape))
        sizes.append(outputs)
    arrays = [f"{kind}{n} = np.empty(most * {size}, P.dtype)" for n, size in enumerate(sizes) for kind in "ad"]
    residual, value = LOSSES[loss]
    last, outputs = len(sizes) - 1, sizes[-1]
    z = f"a{last}[e * U({outputs}) : e * U({outputs}) + U({outputs})]"
    half_or_whole = "U(BLOCK // 2) if {} <= U(BLOCK // 2) else U(BLOCK)"
    return f"""
BLOCK = {WIDE_BLOCK if room else BLOCK}


@compiled(SIGNATURE, boundscheck=False, fastmath={{"contract", "nsz"}}, keep=CACHE)
def run(mode, X, Y, index, P, clip, S, values):
    total = U(len(index))
    most = {half_or_whole.format("total") if room else "min(U(BLOCK), total + U(3))"}
    room = np.empty({room}, P.dtype)
{block(arrays, 1)}
    factors = np.zeros(most, P.dtype)
    smallest = np.finfo(P.dtype).tiny
    for first in range(U(0), total, U(BLOCK)):
        count = min(U(BLOCK), total - first)
        rows = {half_or_whole.format("count") if room else "count + (U(4) - count % U(4)) % U(4)"}
        gather(a0, X, index[first : first + count], rows, count, U({sizes[0]}))
{block(forward, 2)}
        if mode == SCORED:
            for e in range(count):
                z = {z}
                values[first + e] = {value}(z, U({outputs}), Y[index[first + e]])
                S[first + e] = np.argmax(z)
            continue
        for e in range(rows):
            {residual}(d{last}, e * U({outputs}), {z}, U({outputs}), Y[index[first + min(e, count - U(1))]])
{block(backward, 2)}
        for e in range(rows):
            if mode == SUMMED:
                factors[e] = 1.0 if e < count else 0.0
                continue
            norm = {" + ".join(squares)}
            sound = norm < np.inf
{block(kept, 3)}
            factors[e] = clip_weight(norm, clip, smallest) if e < count else 0.0
            if e < count:
                values[first + e] = norm
{block(add, 2)}
"""


LOSSES: Mapping[str, tuple[str, str]] = {
    "cross_entropy": ("softmax_residual", "cross_entropy"),
    "mse": ("squared_residual", "squared_error"),
}
"""Loss -> the loop for its derivatives, and that for its value."""

_KINDS = {"number": "P.dtype", "index": "np.int32", "double": "np.float64"}


def places(chain: Sequence[Layer]) -> Iterator[Place]:
    """Return names for each layer; an activation works in place."""
    x, xo, d = "X", "xo", ""
    trained = False
    for number, layer in enumerate(chain):
        if isinstance(layer, Activation):
            yield Place(number, x, xo, x, d, d)
            continue
        a, own = f"a{number}", f"d{number}"
        yield Place(number, x, xo, a, own, d if trained else "")
        trained = trained or isinstance(layer, (LinearLayer, Convolution, PooledConvolution, Normalisation))
        x, xo, d = a, "U(0)", own


def write(chain: Sequence[Layer], loss: str) -> str:
    """Return the text of a module with the kernel of ``chain``.

    Parameters
    ----------
    chain : sequence of Layer
        The last one is linear.
    loss : str
        ``cross_entropy`` or ``mse``.
    """
    text = Text()
    for layer, at in zip(chain, places(chain), strict=True):
        if not isinstance(layer, Activation):
            text.array(at.d, layer.after.size + 2 * MARGIN)
        steps, text.backward = text.backward, []
        layer.write(at, text)
        text.backward += steps
    features, outputs = chain[0].before.size, chain[-1].after.size
    residual, value = LOSSES[loss]
    a, d = f"a{len(chain) - 1}", f"d{len(chain) - 1}"
    arrays = {**text.arrays, "G": (max(text.explicit, 1), "number")}
    made = [f"{name} = np.zeros({size}, {_KINDS[kind]})" for name, (size, kind) in arrays.items()]
    squares = " + ".join((call("square", "G", 0, text.explicit), *text.squares))
    return f'''{"".join(text.loops.values())}

@compiled(SIGNATURE, boundscheck=False, fastmath={{"contract", "nsz"}}, keep=CACHE)
def run(mode, X, Y, index, P, clip, S, values):
    """One function, since each one is compiled with all that it calls."""
    zero, one = P.dtype.type(0), P.dtype.type(1)
    smallest = np.finfo(P.dtype).tiny
{block(made, 1)}
    A, dump = np.zeros_like(G), np.zeros_like(G)
    unsound = np.zeros_like(S) if mode == CLIPPED else S
{block(text.prepare, 1)}
    for i in range(len(index)):
        y = Y[index[i]]
        xo = U(index[i]) * U({features})
{block(text.forward, 2)}
        if mode == SCORED:
            values[i] = {value}({a}, U({outputs}), y)
            S[i] = np.argmax({a}[:{outputs}])
            continue
        {residual}({d}, U({MARGIN}), {a}, U({outputs}), y)
        if mode == CLIPPED:
            fill(G, U(0), zero, U({text.explicit}))
{block(text.backward, 2)}
        factor, T = one, S
        if mode == CLIPPED:
            values[i] = {squares}
            factor = P.dtype.type(clip_weight(values[i], clip, smallest))
            sound = values[i] < np.inf
            T = S if sound else unsound  # takes as long, and what is no number stays out
            axpy(A if sound else dump, U(0), factor, G, U(0), U({text.explicit}))
{block(text.add, 2)}
    if mode != SCORED:
        E = A if mode == CLIPPED else G
{block(text.finish, 2)}
'''


CLIPPED, SUMMED, SCORED = range(3)
"""Modes of a kernel: sums of clipped gradients, plain sums, and losses."""

_HEAD = '''"""Kernels of a chain of layers, written by Gossamer; safe to delete."""

import numpy as np

from gossamer.machine_code import compiled
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
    loops = (kernels, exponentials)
    made_of = "".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in loops)
    digest = hashlib.sha256("\0".join((text, made_of, signature, numba.__version__)).encode()).hexdigest()[:24]
    path, kept = folder() / f"chain_{digest}.py", True
    try:
        _keep(path, _HEAD.format(signature=signature, cache=True) + text)
    except OSError as problem:
        kept = False
        warnings.warn(
            f"compiled kernels cannot be kept in {path.parent} ({problem}), so each process compiles them again; set "
            "XDG_CACHE_HOME to a folder that can be written",
            stacklevel=2,
        )
    # No import: nobody compares bytecode that an earlier process kept.
    module = sys.modules[path.stem] = ModuleType(path.stem)  # machine code finds its module by name
    exec(compile(_HEAD.format(signature=signature, cache=kept) + text, str(path), "exec"), vars(module))
    return module.run, kept


def _keep(path: Path, text: str) -> None:
    """Write the file, unless it is there as it is to be: its date is part of what numba compares."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".py")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(name, path)
