"""Conversations of small runs as text, to be read beside the papers: who computes what, and who sends what to whom.

    python -m tests.paper.conversations FOLDER ...      writes them anew, where they were meant to change

A folder of an algorithm has specs (``conversation*.yaml``) and beside each what its nodes say (``.txt``). Times are
virtual seconds since the start. A vector is shown by its label alone: `Public`, `Released` after charge and noise,
`Masked`, or `Confined` to its unit; all else that a message holds is shown, since it is integers.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.protocol.effects import Compute, Effect, Finish, Release, Send
from gossamer.protocol.events import Answered, Completed, Elapsed, Event, Received
from gossamer.protocol.trace import TraceStep, read_steps
from gossamer.vectors import Vector

HERE = Path(__file__).resolve().parent
SPECS = sorted(HERE.glob("*/conversation*.yaml"))


def conversation(spec: Path) -> str:
    """The lines of a run of a spec."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        run(read_spec(spec), trace=trace)
        with open(trace, "rb") as file:
            steps = list(read_steps(file))
    return "".join(f"{line}\n" for step in steps for line in _lines(step, steps[0].now))


def _lines(step: TraceStep, start: float) -> Iterator[str]:
    """What a node saw, where that is worth a line, and what it answered with."""
    told = [_seen(step.event), *map(_done, step.effects)]
    yield from (f"{step.now - start:6.2f}  {step.node:9}{line}" for line in told if line)


def _seen(event: Event) -> str:
    if isinstance(event, Received):
        return f"   <- {event.sender}: {type(event.message).__name__}"
    if isinstance(event, Completed | Answered):
        return f"   data side answers {event.id}"
    return f"   waited for {event.timer}" if isinstance(event, Elapsed) else ""


def _done(effect: Effect) -> str:
    if isinstance(effect, Send):
        return f"-> {effect.to}: {_shown(effect.message)}"
    if isinstance(effect, Compute) and isinstance(effect.task, Release):
        return f"data side, {effect.task.id}: noise on {_shown(effect.task.vector)}"
    if isinstance(effect, Compute):
        return f"data side, {effect.task.id}: {type(effect.task).__name__}"
    return f"ends: {effect.reason}" if isinstance(effect, Finish) else ""


def _shown(value: Any) -> str:
    if isinstance(value, Vector):
        return type(value).__name__
    if dataclasses.is_dataclass(value):
        shown = (f"{field.name}={_shown(getattr(value, field.name))}" for field in dataclasses.fields(value))
        return f"{type(value).__name__}({', '.join(shown)})"
    return str(value)


def main() -> None:
    """Write the conversations of some folders anew."""
    for spec in SPECS:
        if spec.parent.name in sys.argv[1:]:
            spec.with_suffix(".txt").write_text(conversation(spec), encoding="utf-8")


if __name__ == "__main__":
    main()
