"""Inputs of a host, and what is to be done about them."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.protocol.effects import Record, Request
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Answered, Completed, Refused
from gossamer.protocol.frames import Frame
from gossamer.protocol.session import Transmit

Answer = Completed | Answered | Refused


# What comes in


@register("host.begin")
@dataclass(frozen=True)
class Begin:
    """The run begins."""


@register("host.resume")
@dataclass(frozen=True)
class Resume:
    """The host is there again after ``downtime`` seconds; open tasks are lost."""

    downtime: float


@register("host.arrived")
@dataclass(frozen=True)
class Arrived:
    """A frame of ``sender``, whose identity is known."""

    sender: str
    frame: Frame


@register("host.answer")
@dataclass(frozen=True)
class DataSideAnswer:
    """The data side's answer to an open task."""

    event: Answer


@register("host.wake")
@dataclass(frozen=True)
class Wake:
    """Time has passed."""


@register("host.end")
@dataclass(frozen=True)
class End:
    """Someone outside ends the run."""

    reason: str


Input = Begin | Resume | Arrived | DataSideAnswer | Wake | End


# What is to be done


@dataclass(frozen=True)
class Task:
    """Give ``effect`` (`Compute`, `Update`, `Interrupt` or `Release`) to the data side."""

    effect: Request


@dataclass(frozen=True)
class Note:
    """Write to the node's private log."""

    record: Record


@dataclass(frozen=True)
class Ended:
    """The node makes no more updates."""

    reason: str


@dataclass(frozen=True)
class Rejected:
    """A frame or its message was refused, and nobody but the sender can have made it."""

    sender: str
    reason: str


Outcome = Transmit | Task | Note | Ended | Rejected
