"""Messages between clients and their server."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.messages import Message, message
from gossamer.vectors import Public, Released

SERVER = "server"


@message("fedbuff.fetch")
@dataclass(frozen=True)
class Fetch(Message):
    """The sender wants the newest model, as its ``request``."""

    request: int


@message("fedbuff.newest")
@dataclass(frozen=True)
class Newest(Message):
    """The model after ``version`` full buffers."""

    request: int
    version: int
    model: Public | Released


@message("fedbuff.push")
@dataclass(frozen=True)
class Push(Message):
    """The noised update of local steps from the model of ``version``; it asks for the newest model too."""

    request: int
    version: int
    update: Released


@message("fedbuff.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more updates."""


@message("fedbuff.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model, after ``version`` buffers."""

    version: int
    model: Public | Released
