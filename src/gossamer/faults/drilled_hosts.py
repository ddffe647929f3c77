"""Hosts of a drill: their processes are killed at a time, while they save, and may come back with an old disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from gossamer.faults.hosts import LinkedHosts
from gossamer.faults.memory_journal import MemoryJournal
from gossamer.faults.schedules import Crash, Kill
from gossamer.protocol.link import Link

Recall = Callable[[Mapping[str, Link], Mapping[str, Link]], str | None]
"""(links of a party that comes back, those of its peers to it) -> why it does not go on, if it does not."""


class DrilledHosts(LinkedHosts):
    """Hosts whose schedule has kills, too.

    Parameters
    ----------
    recall : callable
        Asked before a party goes on with an old copy of its disk.
    arguments, named
        As of `LinkedHosts`.

    Attributes
    ----------
    ended : dict of str to float
        When nodes finished.
    refused : dict of str to str
        By party, why it did not go on with an old copy; None where it did.
    """

    def __init__(self, *arguments: Any, recall: Recall, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.recall = recall
        self.ended: dict[str, float] = {}
        self.refused: dict[str, str | None] = {}
        self._saving: dict[str, Kill] = {}  # whoever is killed at its next commit
        self._copies: dict[str, MemoryJournal] = {}
        for kill in self.schedule.kills:
            self._push(kill.at, partial(self._strike, kill))
            if kill.copied is not None:
                self._push(kill.copied, partial(self._copy, kill.party))

    def step(self) -> None:
        """Let the next event happen."""
        super().step()
        for name in self.changed:
            if self.hosts[name].finished:
                self.ended.setdefault(name, self.now)

    def _copy(self, name: str) -> None:
        self._copies[name] = self.journals[name].copy()

    def _strike(self, kill: Kill) -> None:
        if kill.party in self.away:
            return
        self._saving[kill.party] = kill
        if not kill.saving:
            self.events += 1
            self._die(kill.party, "waiting")

    def _happen(self, name: str, do: Callable[[], None]) -> None:
        if name in self._saving:
            self.reaper.left, self.reaper.only = 0, "committing"
        try:
            super()._happen(name, do)
        finally:
            self.reaper.only = None

    def _die(self, name: str, doing: str) -> None:
        kill = self._saving.pop(name, None)
        if kill is not None:
            self._doomed[name] = Crash(self.events, 0, kill.kept, kill.away)
            self.last_fault = self.now
        super()._die(name, doing)
        if kill is not None and kill.copied is not None:
            self._push(self.now + kill.away / 2, lambda: self._come_back_old(name))

    def _come_back_old(self, name: str) -> None:
        """Start a party on the old copy of its disk; it goes on if its peers know of nothing that the copy lacks."""
        copy = self._copies[name]
        links = self._host(name, copy.copy()).session.links
        there = [peer for peer in self.hosts if peer not in self.away]
        known = {peer: found for peer in there if (found := self.links(peer).get(name)) is not None}
        self.refused[name] = why = self.recall(links, known)
        if self.tell is not None:
            self.tell(f"{self.now:.2f} s: {name} comes back with an old copy: {why or 'it goes on'}")
        if why is None:
            self.journals[name].base, self.journals[name].entries = copy.base, copy.entries
            self.hosts[name] = self._host(name, self.journals[name])
