"""Killing of processes, at any instant between two things that last or that others see."""

from __future__ import annotations


class Killed(BaseException):
    """The process ends here."""


class Reaper:
    """Kills the process at work, at the instant that its crash says.

    Whatever lasts or can be seen calls it first, and is not done if it raises.
    """

    def __init__(self) -> None:
        self.left: int | None = None  # things that are still done; None while nobody is to be killed

    def __call__(self, doing: str) -> None:
        """Something is about to be done."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed(doing)
