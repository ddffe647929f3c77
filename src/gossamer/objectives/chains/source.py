"""The text of a chain's kernels: one example forward and back, with every size a constant.

| name | is |
|---|---|
| ``x``, ``X``, ``xo`` | examples, one behind the other, and where one begins |
| ``P`` | parameters |
| ``a0``, ``a1``, ... | what comes out of each layer; ``d0``, ... the derivatives by it, behind `MARGIN` zeros |
| ``k0``, ... | where a pool took its values from; ``h0``, ``v0`` a normalised image and its spread |
| ``z0``, ... | a channel before its pool; ``t0``, ``e0`` an image with its channels last, and derivatives by it |
| ``w0``, ... | kernels with their channels last |
| ``G`` | gradients of an example that are written down, of layers whose parameters meet several numbers |

A layer that multiplies one vector writes nothing down: its gradient is a product d x', whose norm is |d| |x|.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gossamer.objectives.chains.layers import (
    Activation,
    Arranged,
    Average,
    Convolution,
    Image,
    Layer,
    Linear,
    Maximum,
    Normalisation,
    PooledConvolution,
    Weights,
)

MARGIN = 64
"""Zeros before derivatives, for a convolution's way back."""

NONE = "U(0)"


def u(number: int) -> str:
    """A number as a constant of a kernel."""
    return f"U({number})"


@dataclass
class Text:
    """Lines of a chain's kernels, as they are put together.

    Attributes
    ----------
    arrays : dict of str to (int, str)
        Size of each working array, and ``number`` or ``index``.
    prepare, forward, backward, squares, add, finish : list of str
        Lines: once for the parameters; for each example; its squared norm; what its gradient adds to the sums; and at
        the end of a run of examples.
    explicit : int
        Numbers in G.
    helpers : dict of str to str
        Unrolled loops by name.
    """

    arrays: dict[str, tuple[int, str]] = field(default_factory=dict)
    prepare: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    backward: list[str] = field(default_factory=list)
    squares: list[str] = field(default_factory=list)
    add: list[str] = field(default_factory=list)
    finish: list[str] = field(default_factory=list)
    explicit: int = 0
    helpers: dict[str, str] = field(default_factory=dict)

    def array(self, name: str, size: int, kind: str = "number") -> str:
        """Ask for a working array."""
        self.arrays[name] = (size, kind)
        return name

    def written(self, size: int) -> int:
        """Ask for room in G; where it begins."""
        self.explicit += size
        return self.explicit - size


@dataclass(frozen=True)
class Place:
    """A layer in its chain: the names of what goes in and comes out.

    Attributes
    ----------
    number : int
        Of the layer.
    x, xo : str
        What goes in, and where it begins.
    a, d : str
        What comes out, and the derivatives by it.
    dx : str
        The derivatives by what goes in; empty where nobody asks for them.
    """

    number: int
    x: str
    xo: str
    a: str
    d: str
    dx: str


def image_arguments(image: Image) -> str:
    return f"{u(image.plane)}, {u(image.stride)}"


def _arranged(layer: Arranged, at: Place, text: Text) -> None:
    before, after, border = layer.before, layer.after, layer.border
    text.array(at.a, after.size)
    inside = u(border * after.stride + border)
    size = f"{u(before.channels)}, {u(before.height)}, {u(before.width)}"
    text.forward.append(
        f"copy_rows({at.a}, {inside}, {image_arguments(after)}, {at.x}, {at.xo}, {image_arguments(before)}, {size})"
    )
    if at.dx:
        text.backward.append(
            f"copy_rows({at.dx}, {u(MARGIN)}, {image_arguments(before)}, {at.d}, {u(MARGIN + border * after.stride + border)}"
            f", {image_arguments(after)}, {size})"
        )


def _weights(weights: Weights) -> str:
    return f"{u(weights.weight)}, {u(max(weights.bias, 0))}, {weights.biased}"


def _linear(layer: Linear, at: Place, text: Text) -> None:
    outputs, inputs = layer.after.size, layer.before.size
    sizes = f"{u(outputs)}, {u(inputs)}"
    text.array(at.a, outputs)
    text.forward.append(f"linear({at.a}, U(0), {at.x}, {at.xo}, P, {_weights(layer.weights)}, {sizes})")
    if at.dx:
        text.backward.append(
            f"linear_back({at.dx}, {u(MARGIN)}, {at.d}, {u(MARGIN)}, P, {u(layer.weights.weight)}, {sizes})"
        )
    one = " + 1.0" if layer.weights.biased else ""
    text.squares.append(f"square({at.d}, {u(MARGIN)}, {u(outputs)}) * (square({at.x}, {at.xo}, {u(inputs)}){one})")
    text.add.append(f"linear_add(T, {_weights(layer.weights)}, factor, {at.d}, {u(MARGIN)}, {at.x}, {at.xo}, {sizes})")


def _convolution(layer: Convolution, at: Place, text: Text) -> None:
    before, after = layer.before, layer.after
    row, back, dots = (
        text.helpers.setdefault(f"{name}_{layer.width}", make(layer.width)) and f"{name}_{layer.width}"
        for name, make in (("row", row_text), ("back", back_text), ("dots", dots_text))
    )
    sizes = f"{u(after.channels)}, {u(before.channels)}, {u(layer.height)}, {u(layer.width)}, {u(layer.length)}"
    parameters = after.channels * before.channels * layer.height * layer.width
    text.array(at.a, after.size)
    text.forward.append(
        f"convolution({row}, {at.a}, {u(after.plane)}, {at.x}, {at.xo}, {image_arguments(before)}, P, "
        f"{_weights(layer.weights)}, {sizes})"
    )
    go = text.written(parameters + layer.weights.biased * after.channels)
    text.backward.append(
        f"convolution_gradient({dots}, G, {u(go)}, {u(go + parameters)}, {layer.weights.biased}, {at.d}, {u(MARGIN)}, "
        f"{u(after.plane)}, {at.x}, {at.xo}, {image_arguments(before)}, {sizes})"
    )
    if at.dx:
        text.backward.append(f"fill({at.dx}, {u(MARGIN)}, zero, {u(before.size)})")
        text.backward.append(
            f"convolution_back({back}, {at.dx}, {u(MARGIN)}, {image_arguments(before)}, {at.d}, {u(MARGIN)}, "
            f"{u(after.plane)}, P, {u(layer.weights.weight)}, {sizes})"
        )
    text.finish.append(f"axpy(S, {u(layer.weights.weight)}, one, E, {u(go)}, {u(parameters)})")
    if layer.weights.biased:
        text.finish.append(f"axpy(S, {u(layer.weights.bias)}, one, E, {u(go + parameters)}, {u(after.channels)})")


def _pooled_convolution(layer: PooledConvolution, at: Place, text: Text) -> None:
    inner, after, n = layer.convolution, layer.after, at.number
    before, outputs, channels = inner.before, layer.after.channels, inner.before.channels
    row = f"row_{inner.width}"
    text.helpers[row] = row_text(inner.width)
    window = f"window_{layer.size}"
    text.helpers[window] = window_text(layer.size)
    count, length, kernel = after.plane, inner.width * channels, inner.height * inner.width
    z = text.array(f"z{n}", inner.after.plane)
    winners = text.array(f"k{n}", after.size, "index")
    text.array(at.a, after.size)
    bias = f"P[{u(inner.weights.bias)} + o]" if inner.weights.biased else "zero"
    text.forward += [
        f"for o in range({u(outputs)}):",
        f"    fill({z}, U(0), {bias}, {u(inner.length)})",
        f"    convolve({row}, {z}, U(0), {at.x}, {at.xo}, {image_arguments(before)}, P, "
        f"{u(inner.weights.weight)} + o * {u(channels * kernel)}, {u(channels)}, {u(inner.height)}, {u(inner.width)}, "
        f"{u(inner.length)})",
        f"    {window}({at.a}, o * {u(count)}, {winners}, o * {u(count)}, {z}, U(0), U(0), {u(inner.after.stride)}, "
        f"{u(after.height)}, {u(after.width)}, {u(layer.stride)})",
    ]
    go = text.written(outputs * channels * kernel + inner.weights.biased * outputs)
    last, wanted = channels > 1, bool(at.dx)
    t, e, w = at.x, "G", "P"
    if last:
        t = text.array(f"t{n}", before.size)
        text.forward.append(f"transpose({t}, U(0), {at.x}, {at.xo}, {u(channels)}, {u(before.plane)})")
    offset = "U(0)" if last else at.xo
    if wanted:
        w, e = text.array(f"w{n}", outputs * channels * kernel), text.array(f"e{n}", before.size)
        text.prepare += [
            f"for o in range({u(outputs)}):",
            f"    transpose({w}, o * {u(channels * kernel)}, P, {u(inner.weights.weight)} + o * {u(channels * kernel)}, "
            f"{u(channels)}, {u(kernel)})",
        ]
        text.backward.append(f"fill({e}, U(0), zero, {u(before.size)})")
    text.backward.append(
        f"sparse_gradient(G, {u(go)}, {u(go + outputs * channels * kernel)}, {inner.weights.biased}, {at.d}, {u(MARGIN)}, "
        f"{u(count)}, {winners}, U(0), {u(channels)}, {t}, {offset}, {u(before.stride * channels)}, {w}, U(0), {e}, "
        f"{wanted}, {u(outputs)}, {u(inner.height)}, {u(length)})"
    )
    if wanted:
        text.backward.append(f"transpose({at.dx}, {u(MARGIN)}, {e}, U(0), {u(before.plane)}, {u(channels)})")
    text.finish += [
        f"for o in range({u(outputs)}):",
        f"    transpose_add(S, {u(inner.weights.weight)} + o * {u(channels * kernel)}, E, "
        f"{u(go)} + o * {u(channels * kernel)}, {u(kernel)}, {u(channels)})",
    ]
    if inner.weights.biased:
        text.finish.append(
            f"axpy(S, {u(inner.weights.bias)}, one, E, {u(go + outputs * channels * kernel)}, {u(outputs)})"
        )


def _maximum(layer: Maximum, at: Place, text: Text) -> None:
    before, after = layer.before, layer.after
    window = f"window_{layer.size}"
    text.helpers[window] = window_text(layer.size)
    winners = text.array(f"k{at.number}", after.size, "index")
    text.array(at.a, after.size)
    text.forward += [
        f"for c in range({u(after.channels)}):",
        f"    {window}({at.a}, c * {u(after.plane)}, {winners}, c * {u(after.plane)}, {at.x}, {at.xo} + c * {u(before.plane)}"
        f", c * {u(before.plane)}, {u(before.stride)}, {u(after.height)}, {u(after.width)}, {u(layer.stride)})",
    ]
    if at.dx:
        text.backward += [
            f"fill({at.dx}, {u(MARGIN)}, zero, {u(before.size)})",
            f"winners_back({at.dx}, {u(MARGIN)}, {at.d}, {u(MARGIN)}, {image_arguments(after)}, {winners}, "
            f"{u(after.channels)}, {u(after.height)}, {u(after.width)})",
        ]


def _average(layer: Average, at: Place, text: Text) -> None:
    before, after = layer.before, layer.after
    sizes = f"{u(after.channels)}, {u(after.height)}, {u(after.width)}, {u(layer.size)}, {u(layer.stride)}"
    text.array(at.a, after.size)
    text.forward.append(
        f"average({at.a}, U(0), {image_arguments(after)}, {at.x}, {at.xo}, {image_arguments(before)}, {sizes})"
    )
    if at.dx:
        text.backward += [
            f"fill({at.dx}, {u(MARGIN)}, zero, {u(before.size)})",
            f"average_back({at.dx}, {u(MARGIN)}, {image_arguments(before)}, {at.d}, {u(MARGIN)}, "
            f"{image_arguments(after)}, {sizes})",
        ]


def _activation(layer: Activation, at: Place, text: Text) -> None:
    size = u(layer.after.size)
    text.forward.append(f"{layer.name}({at.a}, U(0), {size})")
    text.backward.append(f"{layer.name}_back({at.d}, {u(MARGIN)}, {at.a}, U(0), {size})")


def _normalisation(layer: Normalisation, at: Place, text: Text) -> None:
    image, weights, n = layer.before, layer.weights, at.number
    hat, spread = text.array(f"h{n}", image.size), text.array(f"v{n}", layer.groups, "double")
    text.array(at.a, image.size)
    each = image.channels // layer.groups
    sizes = f"{weights.biased}, {u(layer.groups)}, {u(each)}, {u(image.plane)}"
    own = f"{u(max(weights.weight, 0))}, {u(max(weights.bias, 0))}"
    text.forward.append(f"normalise({at.a}, {hat}, {spread}, {at.x}, P, {own}, {sizes}, {layer.eps!r})")
    go = text.written(2 * image.channels * weights.biased)
    target = at.dx or text.array(f"e{n}", image.size + MARGIN)
    text.backward.append(
        f"normalise_back({target}, {u(MARGIN)}, {at.d}, {u(MARGIN)}, {hat}, {spread}, G, {u(go)}, "
        f"{u(go + image.channels)}, P, {u(max(weights.weight, 0))}, {sizes})"
    )
    if weights.biased:
        text.finish.append(f"axpy(S, {u(weights.weight)}, one, E, {u(go)}, {u(image.channels)})")
        text.finish.append(f"axpy(S, {u(weights.bias)}, one, E, {u(go + image.channels)}, {u(image.channels)})")


WRITERS: Mapping[type[Layer], object] = {
    Arranged: _arranged,
    Linear: _linear,
    Convolution: _convolution,
    PooledConvolution: _pooled_convolution,
    Maximum: _maximum,
    Average: _average,
    Activation: _activation,
    Normalisation: _normalisation,
}


def row_text(width: int) -> str:
    """Return the loop z += w * x over a row of a kernel."""
    taps = range(width)
    weights = "; ".join(f"w{k} = w[wo + U({k})]" for k in taps)
    terms = " + ".join(f"w{k} * x[q + U({k})]" for k in taps)
    return f"""
@in_order
def row_{width}(z, zo, x, xo, w, wo, n):
    {weights}
    for p in range(n):
        q = xo + p
        z[zo + p] += {terms}
"""


def back_text(width: int) -> str:
    """Return the same with the kernel turned round."""
    taps = range(width)
    weights = "; ".join(f"w{k} = w[wo + U({width - 1 - k})]" for k in taps)
    terms = " + ".join(f"w{k} * d[q + U({k})]" for k in taps)
    return f"""
@in_order
def back_{width}(z, zo, d, do, w, wo, n):
    {weights}
    for p in range(n):
        q = do + p
        z[zo + p] += {terms}
"""


def dots_text(width: int) -> str:
    """Return the loop that finds the gradient by a row of a kernel."""
    taps = range(width)
    start = "; ".join(f"s{k} = d.dtype.type(0)" for k in taps)
    terms = "\n        ".join(f"s{k} += e * x[q + U({k})]" for k in taps)
    end = "; ".join(f"g[go + U({k})] += s{k}" for k in taps)
    return f"""
@reassociated
def dots_{width}(g, go, d, do, x, xo, n):
    {start}
    for p in range(n):
        e = d[do + p]
        q = xo + p
        {terms}
    {end}
"""


def window_text(size: int) -> str:
    """Return the loop that takes maxima over windows; of equal ones the first, and NaN wherever there is one."""
    tries = "\n            ".join(
        f"t = z[q + U({a}) * stride + U({b})]\n            if t > v or t != t: v = t; w = U({a}) * stride + U({b})"
        for a in range(size)
        for b in range(size)
        if a or b
    )
    return f"""
@in_order
def window_{size}(m, mo, k, ko, z, zo, first, stride, rows, columns, step):
    for i in range(rows):
        for j in range(columns):
            at = i * step * stride + j * step
            q = zo + at
            v = z[q]
            w = U(0)
            {tries}
            m[mo + i * columns + j] = v
            k[ko + i * columns + j] = np.int32(first + at + w)
"""


RESIDUALS = {"cross_entropy": ("softmax_residual", "cross_entropy"), "mse": ("squared_residual", "squared_error")}


def places(chain: Sequence[Layer]) -> Iterator[Place]:
    """Return names for each layer; an activation works in place."""
    x, xo, d = "X", "xo", ""
    trained = False
    for number, layer in enumerate(chain):
        if isinstance(layer, Activation):
            yield Place(number, x, xo, x, d, d)
            continue
        a = f"a{number}"
        yield Place(number, x, xo, a, f"d{number}", d if trained else "")
        trained = trained or isinstance(layer, (Linear, Convolution, PooledConvolution, Normalisation))
        x, xo, d = a, "U(0)", f"d{number}"


def write(chain: Sequence[Layer], loss: str) -> str:
    """Return the text of a module with the kernels of ``chain``.

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
        WRITERS[type(layer)](layer, at, text)  # type: ignore[operator]
        text.backward += steps
    return _module(text, chain, loss)


def _block(lines: Sequence[str], depth: int) -> str:
    return "\n".join("    " * depth + line for line in lines) or "    " * depth + "pass"


def _module(text: Text, chain: Sequence[Layer], loss: str) -> str:
    kinds = {"number": "P.dtype", "index": "np.int32", "double": "np.float64"}
    explicit = (max(text.explicit, 1), "number")
    features, outputs = chain[0].before.size, chain[-1].after.size
    residual, value = RESIDUALS[loss]
    last = f"a{len(chain) - 1}"
    squares = " + ".join((f"square(G, U(0), {u(text.explicit)})", *text.squares))
    arrays = [
        f"{name} = np.zeros({size}, {kinds[kind]})" for name, (size, kind) in (*text.arrays.items(), ("G", explicit))
    ]
    return f'''{"".join(text.helpers.values())}

@njit(SIGNATURE, **OPTIONS, fastmath={{"contract", "nsz"}}, cache=CACHE)
def run(mode, X, Y, index, P, clip, S, values):
    """One function, since each one is compiled with all that it calls."""
    zero, one = P.dtype.type(0), P.dtype.type(1)
    smallest = np.finfo(P.dtype).tiny
{_block(arrays, 1)}
    A, dump = np.zeros_like(G), np.zeros_like(G)
    unsound = np.zeros_like(S) if mode == CLIPPED else S
{_block(text.prepare, 1)}
    for i in range(len(index)):
        y = Y[index[i]]
        xo = U(index[i]) * {u(features)}
{_block(text.forward, 2)}
        if mode == SCORED:
            values[i] = {value}({last}, {u(outputs)}, y)
            S[i] = np.argmax({last}[:{outputs}])
            continue
        {residual}(d{len(chain) - 1}, {u(MARGIN)}, {last}, {u(outputs)}, y)
        if mode == CLIPPED:
            fill(G, U(0), zero, {u(text.explicit)})
{_block(text.backward, 2)}
        factor, T = one, S
        if mode == CLIPPED:
            values[i] = {squares}
            factor = P.dtype.type(clip_weight(values[i], clip, smallest))
            sound = values[i] < np.inf
            T = S if sound else unsound  # takes as long, and what is no number stays out
            axpy(A if sound else dump, U(0), factor, G, U(0), {u(text.explicit)})
{_block(text.add, 2)}
    if mode != SCORED:
        E = A if mode == CLIPPED else G
{_block(text.finish, 2)}
'''
