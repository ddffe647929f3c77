"""Values of options, read from their text."""

from __future__ import annotations

import argparse
import math


def seconds(text: str) -> float:
    """Read a length of time; the parser prints what is wrong with it."""
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not 0 <= found < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds, 0 or more, found {text!r}")
    return found
