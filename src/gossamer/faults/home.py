"""The home of data sides whose processes are killed: durable ledgers, other numbers in every life, and a reaper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from gossamer.randomness import derive
from gossamer.sides.ledger import Ledger
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Pool
from gossamer.sides.simulated import Simulated


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
