"""Text of kernels while it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


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
