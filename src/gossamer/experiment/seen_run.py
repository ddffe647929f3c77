"""Outside view of a run, held against that of another one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from gossamer.experiment.outside_view import OutsideView
from gossamer.experiment.progress import NullProgress, Watched
from gossamer.experiment.replayed_sides import Leak, Recording
from gossamer.protocol.trace import Step


class Parted(Leak):
    """Two runs differ from a step on: `place` counts those before it."""

    def __init__(self, place: int, step: Step, view: OutsideView) -> None:
        super().__init__("two runs differ")
        self.place, self.step, self.view = place, step, view


@dataclass
class Seen(NullProgress):
    """Outside view of a run; held against that of the ``first``, if there is one."""

    recording: Recording
    first: Seen | None = None
    steps: list[bytes] = field(default_factory=list)
    left: list[dict[str, bytes]] = field(default_factory=list)
    view: OutsideView | None = None
    count: int = 0

    def began(self, run: Watched) -> None:
        self.view = OutsideView(run)
        self.recording.seconds = lambda: run.simulator.elapsed

    def step(self, step: Step) -> None:
        """See a step of a node."""
        assert self.view is not None
        # Of a long run with a large model all steps together would fill the memory.
        seen = hashlib.blake2b(self.view.step(step), digest_size=16).digest()
        place, self.count = self.count, self.count + 1
        if self.first is None:
            self.steps.append(seen)
        elif place >= len(self.first.steps):
            raise Leak(f"{step.node} sees {type(step.event).__name__} after the first run has ended")
        elif seen != self.first.steps[place]:
            raise Parted(place, step, self.view)

    def ended(self, parts: Iterator[tuple[str, bytes]]) -> None:
        """See some of what is left of the run, by name."""
        found, place = dict(parts), len(self.left)
        self.left.append(found)
        if self.first is None:
            return
        if self.count < len(self.first.steps):
            raise Leak(f"the run ends after {self.count} events, expected {len(self.first.steps)}")
        expected = self.first.left[place]
        if odd := sorted(found.keys() ^ expected.keys()):
            raise Leak(f"{odd[0]} is left of {'this run' if odd[0] in found else 'the first run'} alone")
        for name, content in found.items():
            if content != expected[name]:
                raise Leak(f"{name}: not what the first run has{_place(expected[name], content)}")


def _place(one: bytes, other: bytes) -> str:
    """Words for the first difference of two documents; nothing of what is no text."""
    try:
        first, second = one.decode(), other.decode()
    except UnicodeDecodeError:
        return ""
    at = next((at for at, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), min(len(first), len(second)))
    start = max(0, at - 30)
    return f": {second[start : at + 20]!r}, expected {first[start : at + 20]!r}"
