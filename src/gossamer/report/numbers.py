"""Numbers of a report in words."""

from __future__ import annotations

from typing import Any

NOTHING = "-"
"""Cell of a table for what is not known."""
_LARGE = 1e9  # from here on powers of ten are easier to read
_SPACE = "\u00a0"  # which no line ends at


def count(value: Any) -> str:
    """Return a whole number with its thousands apart."""
    return NOTHING if value is None else f"{value:,}"


def decimal(value: Any) -> str:
    """Return a number to four digits, and a larger one to its unit."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if 1000 <= abs(value) < _LARGE else f"{value:.4g}"


def share(value: Any) -> str:
    """Return a share as a percentage."""
    return NOTHING if value is None else f"{100 * value:.1f}{_SPACE}%"


def size(value: Any) -> str:
    """Return a number of bytes."""
    if value is None:
        return NOTHING
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:.3g}{_SPACE}{name}"
    return f"{value}{_SPACE}bytes"


def node_figure(name: str, value: Any) -> str:
    """Return a figure of a node in words, by its name in ``nodes.json``."""
    if value is None:
        return NOTHING
    if name == "test_accuracy":
        return share(value)
    return count(value) if isinstance(value, int) else decimal(value)
