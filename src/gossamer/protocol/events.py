"""Events that can happen to a node. Someone who reads this file and `effects` knows what the protocol is about."""

from __future__ import annotations

from gossamer.protocol.encoding import value
from gossamer.protocol.messages import Message
from gossamer.vectors import Confined, Masked, Public, Released


class Event:
    """Base of all events."""

    __slots__ = ()


@value("event.started")
class Started(Event):
    """The run begins. Always a node's first event."""


@value("event.resumed")
class Resumed(Event):
    """The node is back with the state it had; its open computations and timers are gone.

    ``downtime`` is in seconds.
    """

    downtime: float


@value("event.received")
class Received(Event):
    """A message arrived, exactly once."""

    sender: str
    message: Message


@value("event.counted")
class Counted(Event):
    """All nodes together have made ``updates`` updates.

    A simulation says so before each answer of a data side, to nodes that go by it; in a deployment nobody knows it.
    """

    updates: int


@value("event.completed")
class Completed(Event):
    """The data side answers task ``id`` with a vector that has a receipt; ``steps`` local steps were done."""

    id: int
    released: Released
    steps: int


@value("event.answered")
class Answered(Event):
    """The data side answers task ``id`` with a vector that has no receipt and is for the node's unit alone.

    It is `Confined`, or `Masked` for a sum; and `Public` where it depends on no data, such as the keys of masks.
    """

    id: int
    vector: Confined | Masked | Public


@value("event.refused")
class Refused(Event):
    """The ledger does not cover task ``id``; nothing was computed. ``spent`` releases were charged before."""

    id: int
    spent: int


@value("event.elapsed")
class Elapsed(Event):
    """A timer that the node set ran out."""

    timer: str


@value("event.peer_up")
class PeerUp(Event):
    """A peer that was down can be reached again."""

    peer: str


@value("event.peer_down")
class PeerDown(Event):
    """A peer has been silent for too long, or is known to be gone; what was sent to it may arrive late or never."""

    peer: str
    reason: str


@value("event.stop")
class Stop(Event):
    """Someone outside ends the run."""

    reason: str
