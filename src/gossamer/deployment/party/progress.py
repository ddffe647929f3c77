"""Progress of a node: when it last got on, whom it has waited for since, and which of its rounds came to nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.deployment.party.health import LOST
from gossamer.deployment.peers.peers import PeerState
from gossamer.errors import counted
from gossamer.protocol.node import Node

UNHEARD = 30.0
"""Least seconds without progress that are a problem, where who is waited for is silent, or paces are known."""
HEARD = 600.0
"""The same where all who are waited for are heard, and may be at a task of unknown length."""
_TIMES = 5.0  # how many times longer than ever before a pause may be
_KNOWN = 3  # pauses after which paces are known


@dataclass
class Progress:
    """Progress of one node, by what has changed from look to look.

    Attributes
    ----------
    needs : collection of str
        The node above this one, if there is one.
    warn, say : callable
        Take a line.
    since : float or None
        When it last got on.
    lately : int
        Number of rounds in a row, up to now, that came to nothing.
    """

    needs: Collection[str]
    warn: Callable[[str], None]
    say: Callable[[str], None]
    since: float | None = None
    lately: int = 0
    _mark: Any = None
    _longest: float = 0.0
    _pauses: int = 0
    _told: bool = False

    def look(self, node: Node, made: int, busy: bool, states: Mapping[str, PeerState], now: float) -> dict[str, Any]:
        """Take stock of a node that has made so many updates, say what has changed, and describe it for the status."""
        rounds = node.rounds_made
        if (mark := (made, rounds)) != self._mark or self.since is None or busy:
            self._got_on(mark, now)
        stalled = None
        pause, waits_for = now - (self.since or now), self._awaited(node, states)
        heard = all(states[name].state == "up" for name in waits_for) and self._pauses < _KNOWN
        if waits_for and pause > (HEARD if heard else max(UNHEARD, _TIMES * self._longest)):
            stalled = {"since": self.since, "seconds": round(pause, 1), "waits_for": waits_for}
        if stalled is not None and not self._told:
            self.warn(f"no progress for {pause:.0f} s: waits for {', '.join(waits_for)}")
        elif stalled is None and self._told:
            self.say("makes progress again")
        self._told = stalled is not None
        found = {} if rounds is None else {**rounds._asdict(), "lately": self.lately}
        return {"stalled": stalled, "rounds": found or None}

    def _got_on(self, mark: Any, now: float) -> None:
        before, rounds = self._mark and self._mark[1], mark[1]
        if self.since is not None and self._mark != mark:
            self._pauses += 1
            self._longest = max(self._longest, now - self.since)
        self._mark, self.since = mark, now
        if rounds is None or before is None or rounds == before:
            return
        new = rounds.empty - before.empty
        self.lately = new + (self.lately if rounds.made == before.made else 0)
        if new:
            came = counted(new, "round") + " came to nothing: nobody answered, or there was no sum that could be used"
            self.warn(f"{came}; {rounds.made} of {rounds.planned} are made")

    def _awaited(self, node: Node, states: Mapping[str, PeerState]) -> list[str]:
        """Nodes that are waited for: of those that the node names, or else of all, those that are lost, or else any."""
        left = {name for name, peer in states.items() if peer.contact and not peer.finished}
        named = (set(node.awaited) or set(self.needs)) & states.keys() or left
        return sorted({name for name in named if states[name].state in (*LOST, "silent")} or named)


def short(node: Node) -> str:
    """Reason why a node that has finished did not come to the end of its plan; empty if it did."""
    rounds = node.rounds_made
    if rounds is None or not rounds.empty:
        return ""
    return (
        f"made {rounds.made} of {counted(rounds.planned, 'round')}: in {rounds.empty} nobody answered, or there was no "
        "sum that could be used"
    )
