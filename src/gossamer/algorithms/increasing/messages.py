"""Messages between clients, aggregators and the server of asynchronous learning in rounds."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Public, Released

SERVER = "server"

MOST_AHEAD = 61
"""Most rounds that a sender is ahead of the first one that its receiver lacks: they are told in one integer."""


def holds(held: int, ahead: int, j: int) -> bool:
    """Whether round j is below ``held``, or told by bit j - held - 1 of ``ahead``."""
    return j < held or (j > held and bool(ahead >> (j - held - 1) & 1))


@message("increasing.round_update")
@dataclass(frozen=True)
class RoundUpdate(Message):
    """Update that the sender made in ``round``: the global model is to be moved by -``step``, which is eta_i U.

    Rounds from ``first`` to the one before were left out by a sender who was away. ``rounds`` rounds of clients are in
    it: one, or from an aggregator as many as it gathered.
    """

    first: int
    round: int
    rounds: int
    step: Released


@message("increasing.global_model")
@dataclass(frozen=True)
class GlobalModel(Message):
    """The broadcast (v, k): the model holds all rounds below ``k``.

    Of the receiver's own rounds it holds those below ``held``, and round ``held + 1 + j`` for every bit j of ``ahead``.
    """

    k: int
    held: int
    ahead: int
    model: Public | Released


@message("increasing.join")
@dataclass(frozen=True)
class Join(Message):
    """The sender is back and wants the newest model."""


@message("increasing.alone")
@dataclass(frozen=True)
class Alone(Message):
    """Nobody is below the sender, an aggregator, but who left or is away: it is not to be waited for."""


@message("increasing.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more rounds from ``round`` on."""

    round: int


@message("increasing.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model."""

    k: int
    model: Public | Released


@message("increasing.probe")
@dataclass(frozen=True)
class Probe(Message):
    """Others wait for the receiver. It need not answer: that it was received shows that it is alive."""
