"""Data sides whose processes are killed: the ledger is durable, noise is fresh in every life, and both are watched.

In these runs every example is zero. So a gradient is zero, and what is released is its noise: two releases that share
noise are seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from gossamer.privacy.data_side import Answer, Computer
from gossamer.privacy.masking_steps import MaskingStep
from gossamer.protocol.effects import Release
from gossamer.protocol.trace import Step
from gossamer.randomness import derive
from gossamer.testing.reaper import Killed
from gossamer.vectors import Masked, Released

SIZE = 4
"""Of models. Two draws of so many numbers point the same way with a probability of about 1e-20."""


_ANSWERED_AGAIN = (Release, MaskingStep)  # if they are asked again, and as before


class WatchedLedger:
    """A ledger whose process may be killed right before a charge."""

    def __init__(self, ledger: Any, reaper: Callable[[str], None]) -> None:
        self._ledger, self._reaper = ledger, reaper

    def charge(self, *kind: Any) -> None:
        self._reaper("charging a release")
        self._ledger.charge(*kind)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


class Sides(Protocol):
    """Makes what a party's process has of its data, and knows what its ledger says on disk."""

    def computer(self) -> Computer:
        """The data sides of all, each in its first life."""
        ...

    def renew(self, computer: Computer, name: str, seed: int) -> None:
        """Put a new data side in the place of the one of ``name``: its process was started again."""
        ...

    def charged(self, name: str) -> int | None:
        """How many releases of ``name`` the ledger on disk has; None if it has none."""
        ...


class WatchedSides:
    """Data sides that may be killed, and what does not hold of them: it is in ``problems``.

    Parameters
    ----------
    sides : Sides
        What they are made of.
    reaper : callable
        Told before noise is drawn.
    private : bool
        Whether there is noise.
    """

    def __init__(self, sides: Sides, reaper: Callable[[str], None], private: bool) -> None:
        self.sides, self.reaper, self.private = sides, reaper, private
        self.computer = sides.computer()
        self.problems: list[str] = []
        self.drawn: dict[str, set[int]] = defaultdict(set)  # releases of each, in all its lives
        self._unchecked: set[str] = set()  # of whom something was drawn since the last look at the ledger
        self.noise: dict[bytes, tuple[str, Any]] = {}  # what was drawn for what
        self._lives: dict[str, int] = defaultdict(int)
        self._tasks: dict[int, tuple[str, Any, Any]] = {}  # by the identity of its ticket, which is kept alive here

    def admit(self, node: str, task: Any) -> Any:
        ticket = self.computer.admit(node, task)
        self._tasks[id(ticket)] = node, task, ticket
        return ticket

    def amended(self, ticket: Any, task: Any) -> Any:
        node, _, _ = self._tasks.pop(id(ticket))
        amended = self.computer.amended(ticket, task)
        self._tasks[id(amended)] = node, task, amended
        return amended

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        self.reaper("drawing noise")
        asked = [self._tasks.pop(id(ticket))[:2] for ticket in tickets]
        try:
            answers = self.computer.compute(tickets)
        except Killed:
            for node, task in asked:  # it may have been drawn
                self._count(node, task)
            raise
        for (node, task), answer in zip(asked, answers, strict=True):
            self._look(node, task, answer.released)
        return answers

    def releases(self, node: str) -> int:
        return self.computer.releases(node)

    def restart(self, name: str) -> None:
        """The process of ``name`` is started again, and remembers nothing."""
        self._lives[name] += 1
        self.sides.renew(self.computer, name, derive(self._lives[name], "life", name))

    def _look(self, node: str, task: Any, answer: Any) -> None:
        """Note what noise was drawn for, if any was, and for what before."""
        if not isinstance(answer, Masked) and not (isinstance(answer, Released) and self.private):
            return
        noise = answer.values - task.vector.values if isinstance(task, Release) else answer.values
        what = (node, task)
        before = self.noise.setdefault(_known_by(noise), what)
        if before is not what and not (isinstance(task, _ANSWERED_AGAIN) and before == what):
            self.problems.append(f"{node}: two releases share their noise, the second is of task {task.id}")
        self._count(node, task)

    def _count(self, node: str, task: Any) -> None:
        """Noise was drawn for a task. One whose answer was never stored is drawn anew, under the same charge."""
        if self.private:
            self.drawn[node].add(task.id if isinstance(task, _ANSWERED_AGAIN) else len(self.drawn[node]))
            self._unchecked.add(node)

    def __call__(self, steps: Sequence[Step]) -> str | None:
        """Which releases share noise, or whose ledger on disk lacks one whose noise was drawn."""
        for node in self._unchecked:
            charged, drawn = self.sides.charged(node), len(self.drawn[node])
            if charged is not None and charged < drawn:
                return f"the ledger of {node} has {charged} releases, and noise was drawn for {drawn}"
        self._unchecked.clear()
        return self.problems[0] if self.problems else None


def _known_by(noise: Any) -> bytes:
    """What the same draw has in common with this one, whatever it is multiplied by, and but for rounding."""
    length = float(np.linalg.norm(noise[:SIZE])) if noise.dtype.kind == "f" and noise.size >= SIZE else 0.0
    if not length:
        return bytes(noise.tobytes())
    known: bytes = (noise[:SIZE] / length).round(7).tobytes()  # a clip count may follow
    return known
