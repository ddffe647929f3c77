"""What a node says to those who watch its federation: a digest of its status, unless its owner's policy forbids that.

Whoever has the key that the invitation names for it may watch, and a node speaks to nobody else of this. It answers
when it is called, goes on as long as it is heard (`OVERVIEW`), and says at once what is news.

A digest is a function of `TOLD` alone, the keys of a status that hold what peers and the broker can count. An error may
quote data, so of that no more is told than which of a few phrases it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from gossamer.deployment.party.agreement import Invited
from gossamer.deployment.party.health import problems
from gossamer.deployment.peers.digest import LONGEST_TEXT, MOST_ENTRIES, Digest, Late, Problem
from gossamer.deployment.peers.peers import Outgoing, Peers, PeerSettings
from gossamer.deployment.peers.standing import printable
from gossamer.protocol.messages import Frame

OVERVIEW = PeerSettings(heartbeat=20.0, silence=45.0, gone_after=120.0, longest_hello=10.0)
"""Times at which digests are told, and from which a node, or who watches, is missed."""
TOLD = (
    *("state", "since", "version", "updates", "releases", "planned_releases", "finished", "connected", "written"),
    *("peers", "unacknowledged", "alone", "holds", "stalled", "rounds", "needs", "expires", "forgotten"),
)
"""Keys of a status that a digest may depend on."""
_PHRASES = (
    *("the disk is full", "No space left on device", "Disk quota exceeded", "its disk reports an error"),
    *("its disk may only be read", "Read-only file system", "not the newest state", "not the newest ledger"),
)
"""What may be told of an error, if it says so."""
_ELSEWHERE = ("versions", "silence", "broker")
"""Kinds of problems that whoever watches sees for themselves, and of the right party."""


def told_of(error: object) -> str:
    """Reason why a node failed, as far as others may know it."""
    return next((phrase for phrase in _PHRASES if phrase in str(error)), "its own log says why")


def digest_of(status: Mapping[str, Any], now: float, why: str = "") -> Digest:
    """Digest of a status.

    Parameters
    ----------
    status : mapping of str to Any
        The same as `Reporter` publishes it.
    now : float
        Seconds since 1970.
    why : str
        Reason why the part is over, or why the node failed, as others may know it.
    """
    kept: dict[str, Any] = {key: status[key] for key in TOLD if key in status} | {"process": 1, "why": why}
    if stalled := kept.get("stalled"):  # to the minute, since a computation may have ended then
        kept["stalled"] = {**stalled, **{key: stalled[key] // 60 * 60 for key in ("since", "seconds")}}
    found = [one for one in problems(kept, now) if one.kind not in _ELSEWHERE][:MOST_ENTRIES]
    contacts, owed = kept.get("peers", {}), kept.get("unacknowledged", {})
    left = {name: peer for name, peer in contacts.items() if not peer["finished"]}
    late = [
        Late(
            name, peer["state"], float(owed.get(name, {}).get("seconds", 0.0)), _cut(owed.get(name, {}).get("why", ""))
        )
        for name, peer in left.items()
        if peer["state"] != "up" or name in owed
    ]
    late.sort(key=lambda one: (-one.unacknowledged, one.name))
    return Digest(
        version=kept.get("version", ""),
        time=now,
        state=kept["state"],
        since=float(kept.get("since", now)),
        updates=kept.get("updates", 0),
        releases=kept.get("releases", 0),
        planned=-1 if kept.get("planned_releases") is None else kept["planned_releases"],
        up=sum(peer["state"] == "up" for peer in contacts.values()),
        peers=len(contacts),
        late=tuple(late[:MOST_ENTRIES]),
        problems=tuple(Problem(int(one.level), one.kind, _cut(one.text)) for one in found),
    )


def _cut(text: str) -> str:
    return printable(text, LONGEST_TEXT)


class Overview:
    """A node's side of the overview.

    Parameters
    ----------
    invited : Invited
        Party with the terms of its run.
    status : callable
        Gives the status as it is now.
    now : float
        Seconds on the node's clock.
    say : callable
        Takes a line on who watches.
    """

    def __init__(
        self, invited: Invited, status: Callable[[], Mapping[str, Any]], now: float, say: Callable[[str], None]
    ) -> None:
        invitation, allowed = invited.agreed.invitation, invited.policy is None or invited.policy.overview
        self._names = {watcher.name for watcher in invitation.watchers}
        self._status, self._why = status, ""
        self._peers = None
        if allowed and self._names:
            ends = invited.identity, invitation.run, invitation.me.name, invitation.watchers
            self._peers = Peers(*ends, OVERVIEW, now, digest=self._digest, log=say)
        self._last: object = None
        self._next_look = -math.inf

    def watches(self, name: str) -> bool:
        """Whether it is somebody who watches, and no peer."""
        return name in self._names

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[tuple[str, Frame]], Outgoing]:
        """Open a datagram of who watches, as `Peers.open`; a node that may tell nothing does not answer."""
        return ([], self._peers.open(sender, datagram, now)[1]) if self._peers is not None else ([], [])

    def wake(self, now: float) -> Outgoing:
        """Datagrams that the passing of time demands, and what is news."""
        if self._peers is None:
            return []
        if now >= self._next_look:
            self._next_look = now + 1.0
            if (news := _of_note(self._digest())) != self._last:
                self._last = news
                self._peers.hasten()
        return self._peers.wake(now)

    def ends(self, state: str, why: str, now: float) -> Outgoing:
        """The last digest of a node whose process ends."""
        status = {**self._status(), "state": state, "since": time.time()}
        self._status, self._why, self._next_look = lambda: status, why, -math.inf
        return self.wake(now)

    def _digest(self) -> Digest:
        return digest_of(self._status(), time.time(), self._why)


def _of_note(digest: Digest) -> object:
    """What of a digest is news when it changes: all that does not follow from how long computations take."""
    problems = [(one.level, one.kind) for one in digest.problems if one.kind != "progress"]
    return digest.state, problems, [one.name for one in digest.late]
