"""Digests of a node's status for those who watch its federation, unless its owner's policy forbids that.

Whoever has the key that the invitation names for it may watch, and a node speaks to nobody else of this. It answers
when it is called, goes on as long as it is heard (`OVERVIEW`), and says at once what is news.

A digest is a function of `TOLD` alone, the keys of a status that hold what peers and the broker can count. An error may
quote data, so of that no more is told than which of a few phrases it has.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from gossamer.deployment.peers.digest import FORM, PEER, Digest
from gossamer.deployment.peers.peers import Outgoing, Peers, PeerSettings
from gossamer.keys.orders import Orders
from gossamer.protocol.messages import Frame

if TYPE_CHECKING:
    from gossamer.deployment.party.agreement import Invited

OVERVIEW = PeerSettings(heartbeat=20.0, silence=45.0, gone_after=120.0, longest_hello=10.0)
"""Times at which digests are told, and from which a node, or who watches, is missed."""
TOLD = tuple(key for key in FORM if key not in ("time", "why"))
"""Keys of a status that a digest may depend on."""
_STALE = 10.0  # seconds for which a digest is told again to who asks often: none shows when a computation ends
_PHRASES = (
    *("the disk is full", "No space left on device", "Disk quota exceeded", "its disk reports an error"),
    *("its disk may only be read", "Read-only file system", "not the newest state", "not the newest ledger"),
)
"""What may be told of an error, if it says so."""


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
    kept = {key: status[key] for key in TOLD if status.get(key)} | {"time": now, "why": why}
    kept["peers"] = {
        name: {key: peer[key] for key in PEER if peer.get(key) and not (key == "seconds" and peer["state"] == "up")}
        for name, peer in status.get("peers", {}).items()
    }
    if stalled := kept.get("stalled"):  # to the minute, since a computation may have ended then
        kept["stalled"] = {**stalled, **{key: stalled[key] // 60 * 60 for key in ("since", "seconds")}}
    return Digest.of(kept)


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
    orders : Orders, optional
        The organiser's orders, which who watches may pass on.
    """

    def __init__(
        self,
        invited: Invited,
        status: Callable[[], Mapping[str, Any]],
        now: float,
        say: Callable[[str], None],
        orders: Orders | None = None,
    ) -> None:
        invitation, allowed = invited.agreed.invitation, invited.policy is None or invited.policy.overview
        self._names = {watcher.name for watcher in invitation.watchers}
        self._status, self._why, self._news = status, "", object()
        self._next_look, self._stale_at, self._digest = -math.inf, -math.inf, digest_of(status(), time.time())
        told = invitation.watchers if allowed else ()
        ends, names = (invited.identity, invitation.run, invitation.me.name, told), [one.name for one in told]
        self._peers = Peers(*ends, OVERVIEW, now, contacts=names, digest=lambda: self._digest, orders=orders, log=say)

    def watches(self, name: str) -> bool:
        """Whether it is somebody who watches, and no peer."""
        return name in self._names

    def open(self, sender: str, datagram: bytes, now: float) -> tuple[list[tuple[str, Frame]], Outgoing]:
        """Open a datagram of who watches, as `Peers.open`: a node takes nothing of them."""
        return [], self._peers.open(sender, datagram, now)[1]

    def wake(self, now: float) -> Outgoing:
        """Datagrams that the passing of time demands, and what is news."""
        if now < self._next_look:
            return self._peers.wake(now)
        self._next_look = now // 1.0 + 1.0  # whenever something else has the node wake
        if (news := _news(self._status())) != self._news:
            self._news, self._stale_at = news, -math.inf
            self._peers.hasten()
        if now >= self._stale_at:
            self._digest, self._stale_at = digest_of(self._status(), time.time(), self._why), now + _STALE
        return self._peers.wake(now)

    def deadline(self) -> float:
        """The time at which `wake` is wanted next: digests leave by the clock, and not when a computation ends."""
        return min(self._next_look, self._peers.deadline() or math.inf)

    def is_heard(self, now: float) -> bool:
        """Whether somebody watches this process, as far as it knows."""
        return any(peer.state == "up" for peer in self._peers.states(now).values())

    def ends(self, state: str, why: str, now: float) -> Outgoing:
        """The last digest of a node whose process ends."""
        status = {**self._status(), "state": state, "since": time.time()}
        self._status, self._why, self._next_look = lambda: status, why, -math.inf
        return self.wake(now)


def _news(status: Mapping[str, Any]) -> object:
    """Part of a status that is news when it changes: all that does not follow from how long computations take."""
    peers = {name: peer["state"] for name, peer in status.get("peers", {}).items()}
    return (
        status["state"],
        peers,
        set(status.get("unacknowledged", ())),
        status.get("alone") is None,
        dict(status.get("orders", {})),
        status.get("rehearsal"),
        not status.get("broker_says"),
    )
