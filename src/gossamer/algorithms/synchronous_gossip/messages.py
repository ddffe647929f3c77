"""Messages between neighbours that average in lock-step."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Public, Released


@message("synchronous_gossip.iterate")
@dataclass(frozen=True)
class Iterate(Message):
    """The sender's vector in a gossip step; ``step`` counts those of all rounds, from 0."""

    step: int
    model: Public | Released


@message("synchronous_gossip.probe")
@dataclass(frozen=True)
class Probe(Message):
    """The sender waits for an iterate. That it was received shows that the receiver is there, which needs no answer."""


@message("synchronous_gossip.enough")
@dataclass(frozen=True)
class Enough(Message):
    """The sender makes no more rounds, and nobody is to wait for it."""
