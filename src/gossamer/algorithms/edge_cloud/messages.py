"""Messages between edges and their server."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Public, Released

SERVER = "server"


@message("edge_cloud.pull")
@dataclass(frozen=True)
class Pull(Message):
    """The sender wants the newest model, as its ``request``."""

    request: int


@message("edge_cloud.newest")
@dataclass(frozen=True)
class Newest(Message):
    """The model after ``version`` updates, and the logarithm [1] of the clip to use with it, in ``stage``."""

    request: int
    version: int
    stage: int
    log_clip: Public | Released
    model: Public | Released


@message("edge_cloud.push")
@dataclass(frozen=True)
class Push(Message):
    """A noisy gradient at the model of ``version``; it asks for the newest model too."""

    request: int
    version: int
    gradient: Released


@message("edge_cloud.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender computes no more."""


@message("edge_cloud.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model, after ``version`` updates."""

    version: int
    model: Public | Released
