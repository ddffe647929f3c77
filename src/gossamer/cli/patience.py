"""Saying what takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gossamer.cli.printing import say

SECONDS = 5.0
"""Nothing is said about work that takes less, and then not more often."""


@contextmanager
def patience(doing: str, seconds: float = SECONDS) -> Iterator[Callable[[str], None]]:
    """Say on stderr every ``seconds`` what is being done, as long as the block runs.

    Parameters
    ----------
    doing : str
        What is done at first; the block gets a function that takes what is done from then on.
    seconds : float, optional
        Between two lines, and before the first.
    """
    known, done = [doing], threading.Event()

    def tell() -> None:
        while not done.wait(seconds):
            say(f"still {known[0]}")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda text: known.__setitem__(0, text)
    finally:
        done.set()
        teller.join()
