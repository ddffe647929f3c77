"""Times at which the state of a run is kept: by the machine's clock, and for little of its time."""

from __future__ import annotations

from time import monotonic

SHARE = 0.01
"""Most of the time of a run that keeping it takes."""


def next_due(every: float, began: float) -> float:
    """Return when to keep the state again, on the machine's clock (`time.monotonic`).

    Parameters
    ----------
    every : float
        Seconds from now on at least.
    began : float
        When it was begun to be kept this time.
    """
    now = monotonic()
    return now + max(every, (now - began) / SHARE)
