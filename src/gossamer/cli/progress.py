"""Choice of what shows how a run goes."""

from __future__ import annotations

import os
import sys

from gossamer.cli.printing import Lines


def progress(*, lines: bool = False) -> Lines:
    """Return a display in a terminal that can move its cursor, and plain lines elsewhere, or where ``lines`` asks."""
    if lines or not moving():
        return Lines()
    from gossamer.cli.live import Display

    return Display()


def moving() -> bool:
    """Whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
