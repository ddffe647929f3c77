"""Messages between clients and their server."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Confined, Public, Released

SERVER = "server"


@message("client.fetch")
@dataclass(frozen=True)
class Fetch(Message):
    """The sender is there, and wants a model, as its ``request``: the newest, or one to train from once it is drawn."""

    request: int


@message("client.newest")
@dataclass(frozen=True)
class Newest(Message):
    """The model after ``version`` steps of the server."""

    request: int
    version: int
    model: Public | Released


@message("client.newest_at_clip")
@dataclass(frozen=True)
class NewestAtClip(Message):
    """`Newest`, and the logarithm [1] of the clip to use for the update from this model."""

    request: int
    version: int
    log_clip: Public | Released
    model: Public | Released


@message("client.push")
@dataclass(frozen=True)
class Push(Message):
    """The update of a local training from the model of ``version``; it asks for a model too.

    The update is `Released` where the client added noise itself, and `Confined` where its server is trusted with it.
    """

    request: int
    version: int
    update: Released | Confined


@message("client.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more updates."""


@message("client.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model, after ``version`` steps of the server."""

    version: int
    model: Public | Released
