"""Text of kernels while it is put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gossamer.objectives.chains.unrolled import LOOPS

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
