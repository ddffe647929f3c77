"""Messages between members of a ring that averages in rounds."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, check_count, message
from gossamer.vectors import Public, Released


@message("ring.chunk")
@dataclass(frozen=True)
class Chunk(Message):
    """Part that the ring passes on in ``step`` of ``attempt`` at ``round``."""

    round: int
    attempt: int
    step: int
    part: Public | Released


@message("ring.alive")
@dataclass(frozen=True)
class Alive(Message):
    """A census: the sender is in ``round`` and misses a chunk."""

    round: int


@message("ring.probe")
@dataclass(frozen=True)
class Probe(Message):
    """The sender waits for a chunk. That it was received shows that the receiver is there, which needs no answer."""


@message("ring.enough")
@dataclass(frozen=True)
class Enough(Message):
    """The sender makes no more updates, so no round that waits for its vector will end."""


@message("ring.roster")
@dataclass(frozen=True)
class Roster(Message):
    """Members (node numbers) from ``attempt`` at ``round`` on."""

    round: int
    attempt: int
    members: Public


@message("ring.average")
@dataclass(frozen=True)
class Average(Message):
    """The outcome of ``round``, for a member that misses only that, and who goes on from there, at which attempt."""

    round: int
    attempt: int
    members: Public
    model: Public | Released


@message("ring.join")
@dataclass(frozen=True)
class Join(Message):
    """The sender was left out and is ready for the next round."""


@message("ring.welcome")
@dataclass(frozen=True)
class Welcome(Message):
    """The receiver is a member from ``attempt`` at ``round`` on, and ``model`` is where that round starts."""

    round: int
    attempt: int
    members: Public
    model: Public | Released


def check_when(sender: str, what: Chunk | Roster | Average | Welcome) -> None:
    """Refuse a round or an attempt that nobody has counted to."""
    check_count(sender, "round", what.round)
    check_count(sender, "attempt", what.attempt)
