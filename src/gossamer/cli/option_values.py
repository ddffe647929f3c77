"""Values of options, read from their text."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError


class FileName(argparse.Action):
    """The name of a file or folder, or several: an empty one, which would mean the current folder, is a mistake."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        names = values if isinstance(values, list) else [values]
        if "" in names:
            raise CallerError(
                f"{option_string or self.metavar}: expected the name of a file or folder, found an empty one; give one "
                "(a variable of the shell may be unset)"
            )
        paths = [None if name is None else Path(name) for name in names]
        setattr(namespace, self.dest, paths if isinstance(values, list) else paths[0])


def at_least_zero(text: str, what: str = "a number") -> float:
    """Read a finite number, ``what`` it is; the parser prints what is wrong with it."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"expected {what}, 0 or more, found {text!r}")
    return found


def port(text: str) -> int:
    """Read the number of a port."""
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"expected the number of a port, 1 to 65535, found {text!r}")
    return int(text)


def interval(text: str) -> float:
    """Read a length of time with its unit, as seconds; for ``off`` infinity."""
    if text == "off":
        return math.inf
    unit = _UNITS.get(text[-1:])
    try:
        return at_least_zero(text if unit is None else text[:-1]) * (unit or 1)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"expected a time such as 90s, 5m or 2h, or off, found {text!r}") from None


_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds(text: str) -> float:
    """Read a length of time."""
    return at_least_zero(text, "seconds")
