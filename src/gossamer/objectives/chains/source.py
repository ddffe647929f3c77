"""The text of a chain's kernels: one example forward and back, with every size a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gossamer.objectives.chains.layers import (
    Activation,
    Convolution,
    Layer,
    Linear,
    Normalisation,
    PooledConvolution,
)
from gossamer.objectives.chains.text import MARGIN, Text, block, call
from gossamer.objectives.chains.writers import WRITERS, Place

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
        trained = trained or isinstance(layer, (Linear, Convolution, PooledConvolution, Normalisation))
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
        WRITERS[type(layer)](layer, at, text)
        text.backward += steps
    return _module(text, chain, loss)


def _module(text: Text, chain: Sequence[Layer], loss: str) -> str:
    features, outputs = chain[0].before.size, chain[-1].after.size
    residual, value = LOSSES[loss]
    a, d = f"a{len(chain) - 1}", f"d{len(chain) - 1}"
    arrays = {**text.arrays, "G": (max(text.explicit, 1), "number")}
    made = [f"{name} = np.zeros({size}, {_KINDS[kind]})" for name, (size, kind) in arrays.items()]
    squares = " + ".join((call("square", "G", 0, text.explicit), *text.squares))
    return f'''{"".join(text.loops.values())}

@njit(SIGNATURE, **OPTIONS, fastmath={{"contract", "nsz"}}, cache=CACHE)
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
