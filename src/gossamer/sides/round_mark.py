"""The newest round that an agent may have said something secret in: all that its masks leave behind.

An agent's keys live for one sum and are never stored. After a restart they are gone, and with others it must not take
part in the same sum again: it would answer twice, and two masked vectors of one round, with all others in them the
same, have a difference that no mask hides. So the round is marked before the first message that depends on a
secret, and rounds up to the mark are refused ever after. The server counts the agent as vanished from that sum.
"""

from __future__ import annotations

from typing import Protocol


class RoundMark(Protocol):
    """A whole number that only grows, and outlives the process."""

    @property
    def round(self) -> int:
        """The newest round that was reached; -1 before the first."""
        ...

    def reached(self, round: int) -> None:
        """Mark ``round``; it is durable when this returns. If it raises, nothing may be said."""
        ...


class MarkInMemory:
    """A mark that ends with its process: for simulations, where no process ends."""

    def __init__(self) -> None:
        self.round = -1

    def reached(self, round: int) -> None:
        self.round = round
