"""Events that can happen to a node. Someone who reads this file and `effects` knows what the protocol is about."""

from __future__ import annotations

from gossamer.protocol.encoding import register, value
from gossamer.protocol.messages import Message
from gossamer.vectors import Confined, Masked, Public, Released


class Event:
    """Base of all events."""

    __slots__ = ()


@register("event.started")
@value
class Started(Event):
    """The run begins. Always a node's first event."""


@register("event.resumed")
@value
class Resumed(Event):
    """The node is back with the state it had; its open computations and timers are gone.

    ``downtime`` is in seconds.
    """

    downtime: float


@register("event.received")
@value
class Received(Event):
    """A message arrived, exactly once."""

    sender: str
    message: Message


@register("event.counted")
@value
class Counted(Event):
    """All nodes together have made ``updates`` updates.

    A simulation says so before each answer of a data side, to nodes that go by it; in a deployment nobody knows it.
    """

    updates: int


@register("event.completed")
@value
class Completed(Event):
    """The data side answers task ``id`` with a vector that has a receipt; ``steps`` local steps were done."""

    id: int
    released: Released
    steps: int


@register("event.answered")
@value
class Answered(Event):
    """The data side answers task ``id`` with a vector that has no receipt and is for the node's unit alone.

    It is `Confined`, or `Masked` for a sum; and `Public` where it depends on no data, such as the keys of masks.
    """

    id: int
    vector: Confined | Masked | Public


@register("event.refused")
@value
class Refused(Event):
    """The ledger does not cover task ``id``; nothing was computed. ``spent`` releases were charged before."""

    id: int
    spent: int


@register("event.elapsed")
@value
class Elapsed(Event):
    """A timer that the node set ran out."""

    timer: str


@register("event.peer_up")
@value
class PeerUp(Event):
    """A peer that was down can be reached again."""

    peer: str


@register("event.peer_down")
@value
class PeerDown(Event):
    """A peer has been silent for too long, or is known to be gone; what was sent to it may arrive late or never."""

    peer: str
    reason: str


@register("event.stop")
@value
class Stop(Event):
    """Someone outside ends the run."""

    reason: str
