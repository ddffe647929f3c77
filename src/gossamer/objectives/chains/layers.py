"""Text that each kind of layer adds to the text of its chain's kernels.

| name | is |
|---|---|
| ``X``, ``xo`` | examples, one behind the other, and where one begins |
| ``P``, ``S`` | parameters, and the sum of gradients |
| ``a0``, ``a1``, ... | what comes out of each layer; ``d0``, ... the derivatives by it, behind `MARGIN` zeros |
| ``k0``, ... | where a pool took its values from; ``h0``, ``v0`` a normalised image and its spread |
| ``z0``, ... | a channel before its pool; ``t0``, ``e0`` an image with its channels last, and derivatives by it |
| ``w0``, ... | kernels with their channels last |
| ``G``, ``E`` | gradients that are written down, of an example and summed: where parameters meet several numbers |

A layer that multiplies one vector writes nothing down: its gradient is a product d x', whose norm is |d| |x|.

Layers that there are kernels for, with the layouts of the numbers between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Text of kernels while it is put together.


def row(width: int) -> str:
    """Return the loop z += w * x over a row of a kernel."""
    return _taps(f"row_{width}", range(width))


def back(width: int) -> str:
    """Return the same with the kernel turned round."""
    return _taps(f"back_{width}", range(width)[::-1])


def _taps(name: str, places: Sequence[int]) -> str:
    """Return the loop over a row of a kernel whose weights are at ``places``."""
    weights = "; ".join(f"w{k} = w[wo + U({place})]" for k, place in enumerate(places))
    terms = " + ".join(f"w{k} * x[q + U({k})]" for k in range(len(places)))
    return f"""
@in_order
def {name}(z, zo, x, xo, w, wo, n):
    {weights}
    for p in range(n):
        q = xo + p
        z[zo + p] += {terms}
"""


def dots(width: int) -> str:
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


def window(size: int) -> str:
    """Return the loop that takes maxima over windows; of equal ones the first, and NaN wherever there is one."""
    tries = "\n            ".join(
        f"t = z[q + U({a}) * stride + U({b})]; wins = (t > v) | (t != t)\n            "
        f"v = t if wins else v; w = U({a}) * stride + U({b}) if wins else w"
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


LOOPS = {"row": row, "back": back, "dots": dots, "window": window}


MARGIN = 64
"""Zeros before derivatives, for a convolution's way back."""


@dataclass
class Text:
    """Lines of a chain's kernels.

    Attributes
    ----------
    arrays : dict of str to (int, str)
        Size of each working array, and ``number``, ``index`` or ``double``.
    prepare, forward, backward, squares, add, finish : list of str
        Lines: once for the parameters; for each example; its squared norm; what its gradient adds to the sums; and at
        the end of a run of examples.
    explicit : int
        Numbers of an example's gradient that are written down.
    loops : dict of str to str
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
    loops: dict[str, str] = field(default_factory=dict)

    def array(self, name: str, size: int, kind: str = "number") -> str:
        """Ask for a working array; its name."""
        self.arrays[name] = (size, kind)
        return name

    def written(self, size: int) -> int:
        """Ask for room for ``size`` numbers of a gradient; where it begins."""
        self.explicit += size
        return self.explicit - size

    def loop(self, kind: str, size: int) -> str:
        """Ask for an unrolled loop; its name."""
        name = f"{kind}_{size}"
        self.loops[name] = LOOPS[kind](size)
        return name


def constant(value: str | int) -> str:
    """Text of an argument: numbers are constants, and other text stands for itself."""
    return value if isinstance(value, str) else str(value) if isinstance(value, bool) else f"U({value})"


def call(name: str, *arguments: str | int) -> str:
    """Text of a call."""
    return f"{name}({', '.join(map(constant, arguments))})"


def block(lines: Sequence[str], depth: int) -> str:
    """Lines, so deep inside others."""
    return "\n".join("    " * depth + line for line in lines) or "    " * depth + "pass"


@dataclass(frozen=True)
class Place:
    """A layer in its chain: the names of what goes in and comes out.

    Attributes
    ----------
    number : int
        Number of the layer.
    x, xo : str
        Names of what goes in, and of where it begins.
    a, d : str
        Names of what comes out, and of the derivatives by it.
    dx : str
        The derivatives by what goes in; empty where nobody asks for them.
    """

    number: int
    x: str
    xo: str
    a: str
    d: str
    dx: str


@dataclass(frozen=True)
class Image:
    """Layout of the numbers between two layers: channels one behind the other, each in rows.

    Attributes
    ----------
    channels, height, width : int
        Numbers of channels, rows and columns that are read.
    stride : int
        Distance from one row to the next, at least the width.
    plane : int
        Distance from one channel to the next.
    """

    channels: int
    height: int
    width: int
    stride: int
    plane: int

    @classmethod
    def dense(cls, channels: int, height: int, width: int) -> Image:
        """Nothing between rows and channels."""
        return cls(channels, height, width, width, height * width)

    @property
    def size(self) -> int:
        """Numbers that it takes."""
        return self.channels * self.plane

    @property
    def strides(self) -> tuple[int, int]:
        """Distances between channels, and between rows."""
        return self.plane, self.stride


@dataclass(frozen=True)
class WeightPlaces:
    """Places in the flat vector where the parameters of a layer begin."""

    weight: int = -1
    bias: int = -1

    @property
    def biased(self) -> bool:
        return self.bias >= 0


@dataclass(frozen=True)
class Layer:
    """A layer with a kernel; ``before`` and ``after`` are the layouts around it."""

    before: Image
    after: Image

    def write(self, at: Place, text: Text) -> None:
        """Add what the layer does to the text."""
        raise NotImplementedError


@dataclass(frozen=True)
class Arranged(Layer):
    """A copy in another layout, with ``border`` zeros around each channel."""

    border: int

    def write(self, at: Place, text: Text) -> None:
        before, after = self.before, self.after
        inside = self.border * (after.stride + 1)
        size = (before.channels, before.height, before.width)
        text.array(at.a, after.size)
        text.forward.append(call("copy_rows", at.a, inside, *after.strides, at.x, at.xo, *before.strides, *size))
        if at.dx:
            source = (at.d, MARGIN + inside, *after.strides)
            text.backward.append(call("copy_rows", at.dx, MARGIN, *before.strides, *source, *size))


@dataclass(frozen=True)
class Convolution(Layer):
    """A convolution of stride 1; columns of ``after`` behind its width are of no use."""

    weights: WeightPlaces
    height: int
    width: int

    @property
    def parameters(self) -> int:
        """Numbers in its kernels."""
        return self.after.channels * self.before.channels * self.height * self.width

    @property
    def length(self) -> int:
        """Numbers of one output channel, in one row."""
        return (self.after.height - 1) * self.after.stride + self.after.width

    def write(self, at: Place, text: Text) -> None:
        before, after, own = self.before, self.after, self.weights
        sizes = (after.channels, before.channels, self.height, self.width, self.length)
        image = (at.x, at.xo, *before.strides)
        where = (own.weight, max(own.bias, 0), own.biased)
        text.array(at.a, after.size)
        text.forward.append(
            call("convolution", text.loop("row", self.width), at.a, after.plane, *image, "P", *where, *sizes)
        )
        go = text.written(self.parameters + own.biased * after.channels)
        derivatives = (at.d, MARGIN, after.plane)
        target = ("G", go, go + self.parameters, own.biased)
        dots = text.loop("dots", self.width)
        text.backward.append(call("convolution_gradient", dots, *target, *derivatives, *image, *sizes))
        if at.dx:
            back = text.loop("back", self.width)
            text.backward.append(call("fill", at.dx, MARGIN, "zero", before.size))
            text.backward.append(
                call("convolution_back", back, at.dx, MARGIN, *before.strides, *derivatives, "P", own.weight, *sizes)
            )
        text.finish.append(call("axpy", "S", own.weight, "one", "E", go, self.parameters))
        if own.biased:
            text.finish.append(call("axpy", "S", own.bias, "one", "E", go + self.parameters, after.channels))


@dataclass(frozen=True)
class Pool(Layer):
    """A layer that ends with windows of ``size`` by ``size``."""

    size: int
    stride: int


@dataclass(frozen=True)
class PooledConvolution(Pool):
    """A convolution whose outputs only a maximum over windows reads."""

    convolution: Convolution

    def write(self, at: Place, text: Text) -> None:
        inner, after, n = self.convolution, self.after, at.number
        own, before, outputs, channels = inner.weights, inner.before, after.channels, inner.before.channels
        kernel, each = inner.height * inner.width, inner.height * inner.width * channels
        row, window = text.loop("row", inner.width), text.loop("window", self.size)
        z, winners = text.array(f"z{n}", inner.after.plane), text.array(f"k{n}", after.size, "index")
        text.array(at.a, after.size)
        image, sizes = (at.x, at.xo, *before.strides), (channels, inner.height, inner.width, inner.length)
        place, weight = f"o * U({after.plane})", f"U({own.weight}) + o * U({each})"
        windows = (inner.after.stride, after.height, after.width, self.stride)
        text.forward += [
            f"for o in range(U({outputs})):",
            "    " + call("fill", z, 0, f"P[U({own.bias}) + o]" if own.biased else "zero", inner.length),
            "    " + call("convolve", row, z, 0, *image, "P", weight, *sizes),
            "    " + call(window, at.a, place, winners, place, z, 0, 0, *windows),
        ]
        last, lo = at.x, at.xo
        if channels > 1:
            last, lo = text.array(f"t{n}", before.size), "U(0)"
            text.forward.append(call("transpose", last, 0, at.x, at.xo, channels, before.plane))
        w, e = "P", "G"  # of which nothing is read or written
        if at.dx:
            w, e = text.array(f"w{n}", outputs * each), text.array(f"e{n}", before.size)
            text.prepare += [
                f"for o in range(U({outputs})):",
                "    " + call("transpose", w, f"o * U({each})", "P", weight, channels, kernel),
            ]
            text.backward.append(call("fill", e, 0, "zero", before.size))
        go = text.written(inner.parameters + own.biased * outputs)
        target = ("G", go, go + inner.parameters, own.biased)
        chosen = (at.d, MARGIN, after.plane, winners, 0)
        inputs = (channels, last, lo, before.stride * channels)
        text.backward.append(
            call(
                "sparse_gradient",
                *(*target, *chosen, *inputs, w, 0, e, bool(at.dx), outputs, inner.height, inner.width * channels),
            )
        )
        if at.dx:
            text.backward.append(call("transpose", at.dx, MARGIN, e, 0, before.plane, channels))
        text.finish += [
            f"for o in range(U({outputs})):",
            "    " + call("transpose_add", "S", weight, "E", f"U({go}) + o * U({each})", kernel, channels),
        ]
        if own.biased:
            text.finish.append(call("axpy", "S", own.bias, "one", "E", go + inner.parameters, outputs))


@dataclass(frozen=True)
class Maximum(Pool):
    """Maxima over windows."""

    def write(self, at: Place, text: Text) -> None:
        before, after = self.before, self.after
        winners = text.array(f"k{at.number}", after.size, "index")
        text.array(at.a, after.size)
        place, first, window = f"c * U({after.plane})", f"c * U({before.plane})", text.loop("window", self.size)
        sizes = (before.stride, after.height, after.width, self.stride)
        text.forward += [
            f"for c in range(U({after.channels})):",
            "    " + call(window, at.a, place, winners, place, at.x, f"{at.xo} + {first}", first, *sizes),
        ]
        if at.dx:
            derivatives = (at.d, MARGIN, *after.strides)
            text.backward += [
                call("fill", at.dx, MARGIN, "zero", before.size),
                call("winners_back", at.dx, MARGIN, *derivatives, winners, after.channels, after.height, after.width),
            ]


@dataclass(frozen=True)
class AveragePool(Pool):
    """Means over windows."""

    def write(self, at: Place, text: Text) -> None:
        before, after = self.before, self.after
        sizes = (after.channels, after.height, after.width, self.size, self.stride)
        text.array(at.a, after.size)
        text.forward.append(call("average", at.a, 0, *after.strides, at.x, at.xo, *before.strides, *sizes))
        if at.dx:
            text.backward += [
                call("fill", at.dx, MARGIN, "zero", before.size),
                call("average_back", at.dx, MARGIN, *before.strides, at.d, MARGIN, *after.strides, *sizes),
            ]


@dataclass(frozen=True)
class LinearLayer(Layer):
    """W x + b."""

    weights: WeightPlaces

    def write(self, at: Place, text: Text) -> None:
        outputs, inputs, own = self.after.size, self.before.size, self.weights
        where = (own.weight, max(own.bias, 0), own.biased)
        text.array(at.a, outputs)
        text.forward.append(call("linear", at.a, 0, at.x, at.xo, "P", *where, outputs, inputs))
        if at.dx:
            text.backward.append(call("linear_back", at.dx, MARGIN, at.d, MARGIN, "P", own.weight, outputs, inputs))
        one = " + 1.0" if own.biased else ""
        text.squares.append(f"{call('square', at.d, MARGIN, outputs)} * ({call('square', at.x, at.xo, inputs)}{one})")
        text.add.append(call("linear_add", "T", *where, "factor", at.d, MARGIN, at.x, at.xo, outputs, inputs))


@dataclass(frozen=True)
class Activation(Layer):
    """A function of each number, in its place."""

    name: str

    def write(self, at: Place, text: Text) -> None:
        text.forward.append(call(self.name, at.a, 0, self.after.size))
        text.backward.append(call(f"{self.name}_back", at.d, MARGIN, at.a, 0, self.after.size))


@dataclass(frozen=True)
class Normalisation(Layer):
    """`torch.nn.GroupNorm`."""

    weights: WeightPlaces
    groups: int
    eps: float

    def write(self, at: Place, text: Text) -> None:
        image, own, n = self.before, self.weights, at.number
        hat, spread = text.array(f"h{n}", image.size), text.array(f"v{n}", self.groups, "double")
        sizes = (own.biased, self.groups, image.channels // self.groups, image.plane)
        weight, bias = max(own.weight, 0), max(own.bias, 0)
        text.array(at.a, image.size)
        text.forward.append(call("normalise", at.a, hat, spread, at.x, "P", weight, bias, *sizes, repr(self.eps)))
        go = text.written(2 * image.channels * own.biased)
        target = at.dx or text.array(f"e{n}", image.size + MARGIN)
        gradients = ("G", go, go + image.channels)
        text.backward.append(
            call("normalise_back", target, MARGIN, at.d, MARGIN, hat, spread, *gradients, "P", weight, *sizes)
        )
        if own.biased:
            text.finish.append(call("axpy", "S", weight, "one", "E", go, image.channels))
            text.finish.append(call("axpy", "S", bias, "one", "E", go + image.channels, image.channels))
