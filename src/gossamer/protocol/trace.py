"""A run's trace: every event a node saw and every effect it answered with.

A trace replays through the same nodes and must give the same effects, wherever it was recorded: all that is
random or private reaches a node inside its events.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gossamer.errors import CallerError, MalformedMessage, beginning
from gossamer.protocol.effects import Effect
from gossamer.protocol.encoding import decode, encode, frozen
from gossamer.protocol.events import Event
from gossamer.protocol.node import Node

_LENGTH = struct.Struct("<I")


@frozen("trace.step")
class TraceStep:
    """At ``now`` (seconds), ``node`` saw ``event`` and answered with ``effects``."""

    now: float
    node: str
    event: Event
    effects: list[Effect]


def write_step(file: BinaryIO, step: TraceStep) -> None:
    """Append one step to ``file``: a u32 length and its encoding."""
    data = encode(step)
    file.write(_LENGTH.pack(len(data)) + data)


def read_steps(file: BinaryIO) -> Iterator[TraceStep]:
    """The steps of a file that `write_step` made.

    Raises
    ------
    MalformedMessage
        If the file is cut off or is no trace.
    """
    with beginning(str(getattr(file, "name", "the trace")), MalformedMessage):
        while header := file.read(_LENGTH.size):
            data = file.read(length := int.from_bytes(header, "little"))
            if len(header) < _LENGTH.size or len(data) < length:
                raise MalformedMessage("the trace ends inside a step")
            step = decode(data)
            if not isinstance(step, TraceStep):
                raise MalformedMessage(f"expected a step, found {type(step).__name__}")
            yield step


_FIRST = b"o\x0atrace.step"
"""First bytes of every encoded step, by which a trace is told from other files."""


def check_is_trace(path: Path) -> None:
    """Refuse a file that is no trace: a new one would take its place, or be added to it.

    Raises
    ------
    CallerError
        If a file is there with something else in it.
    """
    if not path.is_file():
        return
    with path.open("rb") as file:
        found = file.read(_LENGTH.size + len(_FIRST))
    if found and not (len(found) > _LENGTH.size and _FIRST.startswith(found[_LENGTH.size :])):
        raise CallerError(
            f"{path}: expected a trace, or a file that is not there yet, found a file with something else in it; "
            "choose another --trace"
        )


def whole_steps(file: BinaryIO) -> int:
    """Count the bytes of ``file`` that are whole steps; a process that was killed may have left half of one."""
    size, end = file.seek(0, os.SEEK_END), 0
    while end + _LENGTH.size <= size:
        file.seek(end)
        after = end + _LENGTH.size + int.from_bytes(file.read(_LENGTH.size), "little")
        if after > size:
            break
        end = after
    return end


@dataclass(frozen=True)
class ReplayDifference:
    """First step at which a replay answers differently: its ``index``, what the trace holds and what the node said."""

    index: int
    step: TraceStep
    effects: list[Effect]


def replay(steps: Iterable[TraceStep], nodes: Mapping[str, Node]) -> ReplayDifference | None:
    """Feed the events of a trace to fresh ``nodes``; the first difference in their effects, or None.

    Effects are compared as encoded bytes, so the least bit of a vector counts.

    Raises
    ------
    CallerError
        If the trace has a node that ``nodes`` lacks.
    """
    for index, step in enumerate(steps):
        if step.node not in nodes:
            raise CallerError(f"the trace has a node {step.node!r}, found only {', '.join(nodes)}")
        effects = nodes[step.node].handle(step.event, step.now)
        if encode(list(effects)) != encode(list(step.effects)):
            return ReplayDifference(index, step, effects)
    return None
