"""The text of kernels for a chain of linear layers and activations alone: a run of examples at a time."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.objectives.chains.layers import Activation, Layer, Linear
from gossamer.objectives.chains.source import RESIDUALS, u


def is_flat(chain: Sequence[Layer]) -> bool:
    """Whether the chain is of linear layers and activations behind the first."""
    return isinstance(chain[0], Linear) and all(isinstance(layer, (Linear, Activation)) for layer in chain)


def write_flat(chain: Sequence[Layer], loss: str) -> str:
    """Return the text of a module with the kernels of ``chain``; see `source.write`."""
    forward: list[str] = []
    backward: list[str] = []
    squares: list[str] = []
    kept: list[str] = []
    add: list[str] = []
    sizes = [chain[0].before.size]
    for layer in chain:
        x, a = f"a{len(sizes) - 1}", f"a{len(sizes)}"
        dx, d = f"d{len(sizes) - 1}", f"d{len(sizes)}"
        if isinstance(layer, Activation):
            everything = f"rows * {u(layer.after.size)}"
            forward.append(f"{layer.name}({x}, U(0), {everything})")
            backward.insert(0, f"{layer.name}_back({dx}, U(0), {x}, U(0), {everything})")
            continue
        assert isinstance(layer, Linear)
        outputs, inputs, weights = layer.after.size, layer.before.size, layer.weights
        shape = f"rows, {u(outputs)}, {u(inputs)}"
        where = f"{u(weights.weight)}, {u(max(weights.bias, 0))}, {weights.biased}"
        forward.append(f"linear_block({a}, {x}, P, {where}, {shape})")
        if len(sizes) > 1:
            backward.insert(0, f"linear_back_block({dx}, {d}, P, {u(weights.weight)}, {shape})")
        one = " + 1.0" if weights.biased else ""
        squares.append(f"row_square({d}, e, {u(outputs)}) * (row_square({x}, e, {u(inputs)}){one})")
        kept += [f"keep({d}, e, {u(outputs)}, sound)", f"keep({x}, e, {u(inputs)}, sound)"]
        add.append(f"linear_add_block(S, {where}, factors, {d}, {x}, {shape})")
        sizes.append(outputs)
    names = ", ".join(f"a{n}, d{n}" for n in range(len(sizes)))
    arrays = "\n        ".join(f"np.empty(rows * {size}, P.dtype)," for size in sizes for _ in range(2))
    residual, value = RESIDUALS[loss]
    last, outputs = len(sizes) - 1, sizes[-1]

    def block(lines: Sequence[str], depth: int) -> str:
        return "\n".join("    " * depth + line for line in lines) or "    " * depth + "pass"

    return f'''
from gossamer.objectives.chains.block_kernels import *

BLOCK = 16


@njit(**OPTIONS)
def working(P, rows):
    return (
        {arrays}
    )


@njit(**OPTIONS, fastmath={{"contract", "nsz"}})
def forward(P, B, rows):
    {names} = B
{block(forward, 1)}


@njit(**OPTIONS, fastmath={{"contract", "nsz"}})
def backward(P, B, rows):
    {names} = B
{block(backward, 1)}


@njit(**OPTIONS)
def squared(e, B):
    {names} = B
    return {" + ".join(squares)}


@njit(**OPTIONS)
def keep_sound(e, B, sound):
    {names} = B
{block(kept, 1)}


@njit(**OPTIONS, fastmath={{"contract", "nsz"}})
def add(S, factors, B, rows):
    {names} = B
{block(add, 1)}


@njit(SIGNATURE, **OPTIONS, cache=CACHE)
def run(mode, X, Y, index, P, clip, S, values):
    total = U(len(index))
    B = working(P, min(U(BLOCK), total + U(3)))
    {names} = B
    factors = np.zeros(BLOCK + 4, P.dtype)
    smallest = np.finfo(P.dtype).tiny
    for first in range(U(0), total, U(BLOCK)):
        count = min(U(BLOCK), total - first)
        rows = count + (U(4) - count % U(4)) % U(4)
        gather(a0, X, index[first : first + count], rows, count, {u(sizes[0])})
        forward(P, B, rows)
        if mode == SCORED:
            for e in range(count):
                z = a{last}[e * {u(outputs)} : e * {u(outputs)} + {u(outputs)}]
                values[first + e] = {value}(z, {u(outputs)}, Y[index[first + e]])
                S[first + e] = np.argmax(z)
            continue
        for e in range(rows):
            z = a{last}[e * {u(outputs)} : e * {u(outputs)} + {u(outputs)}]
            {residual}(d{last}, e * {u(outputs)}, z, {u(outputs)}, Y[index[first + min(e, count - U(1))]])
        backward(P, B, rows)
        for e in range(rows):
            if mode == SUMMED:
                factors[e] = 1.0 if e < count else 0.0
                continue
            norm = squared(e, B)
            keep_sound(e, B, norm < np.inf)
            factors[e] = clip_weight(norm, clip, smallest) if e < count else 0.0
            if e < count:
                values[first + e] = norm
        add(S, factors, B, rows)
'''
