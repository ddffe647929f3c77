"""Ranges of options, for commands that check them after parsing: one line says which option is missing or wrong."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gossamer.errors import CallerError
from gossamer.privacy.weakness import refused_delta

Range = tuple[str, Callable[[float], bool]]
"""What is expected, in words, and whether a value is."""

POSITIVE: Range = ("a finite number > 0", lambda value: 0 < value < math.inf)
SHARE: Range = ("inside (0, 1)", lambda value: 0 < value < 1)
COUNT: Range = ("a whole number >= 1", lambda value: value >= 1)


def given(options: argparse.Namespace, flag: str) -> Any:
    """The value of an option by its flag, such as ``--batch-size``; None where it is left out."""
    return getattr(options, flag[2:].replace("-", "_"))


def check_needed(options: argparse.Namespace, command: str, flags: Iterable[str]) -> None:
    """Raise CallerError where an option that ``command`` needs is left out."""
    missing = [flag for flag in flags if given(options, flag) is None]
    if missing:
        raise CallerError(f"{command} needs {', '.join(missing)}")


def check_ranges(options: argparse.Namespace, ranges: Mapping[str, Range]) -> None:
    """Raise CallerError where an option that is given is out of its range."""
    for flag, (wanted, fits) in ranges.items():
        value = given(options, flag)
        if value is not None and not fits(value):
            raise CallerError(f"{flag} must be {wanted}, found {_shown(value)}")


def add_accept_weak(command: argparse.ArgumentParser) -> None:
    """Add ``--accept-weak`` to a command that takes a delta."""
    command.add_argument("--accept-weak", action="store_true", help="take a delta above 0.01, which says little")


def check_delta(options: argparse.Namespace) -> None:
    """Raise CallerError where ``--delta`` is so large that it has to be asked for by name."""
    if (problem := refused_delta(options.delta, options.accept_weak, "--accept-weak")) is not None:
        raise CallerError(f"--{problem}")


def given_of(options: argparse.Namespace, flags: Iterable[str]) -> list[str]:
    """Which of the options are given."""
    return [flag for flag in flags if given(options, flag) is not None]


def _shown(value: float) -> str:
    try:
        return f"{value:g}"
    except OverflowError:
        return f"a number of {len(str(abs(value)))} digits"
