"""Data sides whose processes are killed: the ledger is durable, noise is fresh in every life, and both are watched.

In these runs every example is zero. So a gradient is zero, and what is released is its noise: two releases that share
noise are seen.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gossamer.faults.hosts import Killed
from gossamer.protocol.trace import Step
from gossamer.randomness import derive
from gossamer.sides.home import DRAWING, Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Answer
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Pool
from gossamer.vectors import Confined, Masked, Public, Released

# The home of data sides whose processes are killed: durable ledgers, other numbers in every life, and a reaper.


class Laboratory(Simulated):
    """A simulated world whose processes end and come back.

    Parameters
    ----------
    ledgers : callable
        (name, plan) -> the ledger of a party as it is on its disk.
    reaper : callable
        Told before something lasts, or is seen; it may raise `reaper.Killed`.
    """

    def __init__(self, ledgers: Callable[[str, SidePlan], Ledger], reaper: Callable[[str], None]) -> None:
        super().__init__(0)
        self._ledgers, self._reaper = ledgers, reaper
        self._lives: dict[str, int] = defaultdict(int)

    def seed(self, owner: str, purpose: str = "") -> int:
        """Seed of the owner's life: what one process drew, the next one does not."""
        life = self._lives[owner]
        return derive(life, "life", owner) if life else 0

    def ledger(self, name: str, plan: SidePlan) -> Ledger:
        return self._ledgers(name, plan)

    def crashpoint(self, what: str) -> None:
        self._reaper(what)

    def restarted(self, name: str) -> None:
        """Begin another life of ``name``."""
        self._lives[name] += 1


def renew(pool: Pool, name: str) -> None:
    """Start the process of ``name`` again: with other numbers, where they are a laboratory's."""
    if isinstance(pool.home, Laboratory):
        pool.home.restarted(name)
    pool.renew(name)


SIZE = 4
"""Of models. Two draws of so many numbers point the same way with a probability of about 1e-20."""


class WatchedSides:
    """Data sides that may be killed, and what does not hold of them: it is in ``problems``.

    Parameters
    ----------
    pool : Pool
        Pool of all parties, whose home has them killed.
    charged : callable
        Function for the number of releases of a party that the ledger on disk has; None if it has none.
    private : bool
        Whether there is noise.
    """

    def __init__(self, pool: Pool, charged: Callable[[str], int | None], private: bool) -> None:
        self.pool, self.charged, self.private = pool, charged, private
        self.problems: list[str] = []
        self.drawn: dict[str, set[int]] = defaultdict(set)  # releases of each, in all its lives
        self._unchecked: set[str] = set()  # of whom something was drawn since the last look at the ledger
        self.noise: dict[bytes, tuple[str, Any]] = {}  # what was drawn for what
        self._tasks: dict[int, tuple[str, Any, Any]] = {}  # by the identity of its ticket, which is kept alive here

    def admit(self, node: str, task: Any) -> Any:
        ticket = self.pool.admit(node, task)
        self._tasks[id(ticket)] = node, task, ticket
        return ticket

    def amended(self, ticket: Any, task: Any) -> Any:
        node, _, _ = self._tasks.pop(id(ticket))
        amended = self.pool.amended(ticket, task)
        self._tasks[id(amended)] = node, task, amended
        return amended

    def compute(self, tickets: Sequence[Any]) -> list[Answer]:
        asked = [self._tasks.pop(id(ticket))[:2] for ticket in tickets]
        try:
            answers = self.pool.compute(tickets)
        except Killed as killed:
            for node, task in asked if str(killed) != DRAWING else ():  # it may have been drawn
                if task.label is not Public:  # of keys and shares of a masked sum, nothing is
                    self._count(node, task)
            raise
        for (node, task), answer in zip(asked, answers, strict=True):
            self._look(node, task, answer.released)
        return answers

    def releases(self, node: str) -> int:
        return self.pool.releases(node)

    def restart(self, name: str) -> None:
        """The process of ``name`` is started again, and remembers nothing."""
        renew(self.pool, name)

    def _look(self, node: str, task: Any, answer: Any) -> None:
        """Note what noise was drawn for, if any was, and for what before; or that raw data were handed over."""
        if isinstance(answer, Confined) and self.charged(node) is not None:
            self._count(node, task)
        if not isinstance(answer, Masked) and not (isinstance(answer, Released) and self.private):
            return
        noise = answer.values - task.base
        what = (node, task)
        before = self.noise.setdefault(_known_by(noise), what)
        if before is not what and not (task.kept and before == what):
            self.problems.append(f"{node}: two releases share their noise, the second is of task {task.id}")
        self._count(node, task)

    def _count(self, node: str, task: Any) -> None:
        """Noise was drawn for a task. One whose answer was never stored is drawn anew, under the same charge."""
        if self.private:
            self.drawn[node].add(task.id if task.kept else len(self.drawn[node]))
            self._unchecked.add(node)

    def __call__(self, steps: Sequence[Step]) -> str | None:
        """Find releases that share noise, and a ledger on disk that lacks one whose noise was drawn."""
        for node in self._unchecked:
            charged, drawn = self.charged(node), len(self.drawn[node])
            if charged is not None and charged < drawn:
                return f"the ledger of {node} has {charged} releases, and noise was drawn for {drawn}"
        self._unchecked.clear()
        return self.problems[0] if self.problems else None


def _known_by(noise: Any) -> bytes:
    """Key of a draw: the same whatever the draw is multiplied by, but for rounding."""
    length = float(np.linalg.norm(noise[:SIZE])) if noise.dtype.kind == "f" and noise.size >= SIZE else 0.0
    if not length:
        return bytes(noise.tobytes())
    known: bytes = (noise[:SIZE] / length).round(7).tobytes()  # a clip count may follow
    return known
