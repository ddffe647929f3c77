"""Watching a federation: every party is called, tells its digest, and what they say together is judged.

A fault shows at several parties. Each is said of the party whose it is: one that is not heard, or has a problem of its
own, is named; what others then say of it is a *consequence*, and no more than a warning.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.party.health import ALONE, CRITICAL, STATES, WARNING, Alert, grade, problems
from gossamer.deployment.party.overview import OVERVIEW
from gossamer.deployment.party.state_folder import ENDED
from gossamer.deployment.peers.peers import Peers
from gossamer.deployment.peers.standing import REHEARSES, PeerState
from gossamer.errors import CallerError, SpecError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import WATCHER, Invitation, read_signed
from gossamer.keys.orders import PAUSED, REMOVE, STOP, Orders
from gossamer.protocol.transports import TransportSettings, connection, slowness
from gossamer.runtimes.mqtt.certificates import expiry

_OF_PEERS = ("reach", "peers", "progress", "receipts")
"""Kinds of problems that another party may be the cause of."""
_BY_ITSELF = ("not allowed", "too large", "perhaps too large", "not acknowledged")
"""Beginnings of what the broker says to whoever is refused there, as of `Transport.refusal`."""
_CLOCK = 30.0  # seconds by which clocks may differ
_PATIENCE = 15.0  # seconds for which nobody is missed at first, nor once the broker is there again
UNHEARD = "not heard"
_KEPT = ("version", "since", "updates", "releases", "planned_releases")

Statuses = dict[str, dict[str, Any]]
"""By party, what it says of itself as `StateFolder.status` has it, with its level and its problems."""


class Watch:
    """All parties of a federation, as they are heard.

    Parameters
    ----------
    folder : Path
        Folder of the federation, or a copy of its folder ``overview``.
    say : callable
        Takes a line about the connection.
    patience : float
        Most seconds for the first connection.
    run : str, optional
        The further run that is watched; by default the first.
    rejoin : int
        Seconds for which another who watches with the same key, as to give an order, has the broker.

    Raises
    ------
    CallerError
        If the folder has not what it takes.

    Attributes
    ----------
    orders : Orders
        The organiser's orders, which are told to all parties.
    transport : Transport
        Connection to the broker, to be opened before anything else, and closed.
    """

    def __init__(
        self, folder: Path, say: Callable[[str], None], patience: float = 30.0, run: str | None = None, rejoin: int = 10
    ) -> None:
        below = papers.place_of(run)
        self.folder, place = folder / below, folder / WATCHER if (folder / WATCHER).is_dir() else folder
        self.invitation = read_signed(self.folder / papers.RECORD)
        members, ends = self.invitation.members, (self.invitation.run, WATCHER)
        identity = _identity(place, self.invitation)
        limits = TransportSettings(patience, rejoin=rejoin, option="--wait")
        self.transport = connection(self.invitation.broker, *ends, place / below, place / papers.IDENTITY, limits, say)
        names = [member.name for member in members]
        self._back = -math.inf  # when the connection was made anew
        self._certificates = {name: folder / name / below / papers.CERTIFICATE for name in names}
        self.orders = Orders(self.folder / papers.ORDERS, self.invitation.run, self.invitation.organiser)
        self._peers = Peers(identity, *ends, members, OVERVIEW, time.monotonic(), contacts=names, orders=self.orders)

    def look(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        """Listen for so many seconds, or until it is done."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and not done():
            self._back = self._back if self.transport.connected else now
            self._send(self._peers.wake(now))
            if (datagram := self.transport.receive(min(0.5, until - now))) is not None:
                self._send(self._peers.open(datagram.sender, datagram.payload, time.monotonic())[1])

    @property
    def connected(self) -> float:
        """Seconds for which the broker has been there; 0 while it is not, and without end if it was not lost yet."""
        return time.monotonic() - self._back if self.transport.connected else 0.0

    def all_heard(self) -> bool:
        """Whether all parties were."""
        return all(peer.digest for peer in self._peers.states(time.monotonic()).values())

    def waits_for(self, order: str) -> list[str]:
        """Parties that have not ended, nor said of an order that they know it, or why they do not follow it."""
        # Who has stopped, or failed, may come back, and takes what comes of a party whose removal it has not heard.
        over, removed = ENDED if order == STOP else ("finished",), self.orders.removed
        left = {name: one for name, one in self.statuses().items() if one["state"] not in over and name not in removed}
        told = {name: one.get("orders", {}) for name, one in left.items()}
        return [name for name, orders in told.items() if not (orders.get(order) if order == STOP else order in orders)]

    def statuses(self) -> Statuses:
        """Statuses of all parties, in the order of the invitation."""
        self.orders.look()
        states = self._peers.states(time.monotonic())
        expired = [name for name in states if _expired(self._certificates[name])]
        here = {"connected": self.connected, "slow": slowness(self.invitation.broker)}
        found = judged(states, self.invitation.run, time.time(), expired, stops=STOP in self.orders.known, **here)
        for name in (name for name in found if REMOVE + name in self.orders.known):
            if found[name]["state"] not in ENDED:
                found[name]["state"] = "removed"
            grade(found[name], [])
        return found

    def _send(self, datagrams: list[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self.transport.send(to, datagram)


def _identity(place: Path, invitation: Invitation) -> Identity:
    """The key of who watches."""
    identity, known = Identity.load(place / papers.IDENTITY), [one.key for one in invitation.watchers]
    if identity.public_key not in known:
        raise CallerError(
            f"{place / papers.IDENTITY}: expected the overview's key of run {invitation.run}, with fingerprint "
            f"{', '.join(key.fingerprint for key in known)}, found that of another federation, "
            f"{identity.public_key.fingerprint}; put the folder overview of this federation there"
        )
    return identity


def _expired(certificate: Path) -> bool:
    try:
        return expiry(certificate).timestamp() < time.time()
    except SpecError:  # none is there, or the folder is its party's alone
        return False


def judged(
    states: Mapping[str, PeerState],
    run: str,
    now: float,
    expired: Sequence[str] = (),
    *,
    connected: float = math.inf,
    slow: float = 1.0,
    stops: bool = False,
) -> Statuses:
    """Statuses of parties as they are heard.

    Parameters
    ----------
    states : mapping of str to PeerState
        Knowledge of each party, with its digest.
    run : str
        Name of the run.
    now : float
        Seconds since 1970.
    expired : sequence of str, optional
        Parties whose certificate has expired, by its copy here.
    connected : float
        Seconds for which who watches has had the broker; 0 while it has not.
    slow : float
        How many times longer than on a broker all are waited for.
    stops : bool
        Whether the organiser has asked all to end.
    """
    found = {name: _status(peer, now, states) | {"node": name, "run": run} for name, peer in states.items()}
    wrong = {name: _wrong(status, states[name], now) for name, status in found.items()}
    versions = [version for status in found.values() if (version := status.get("version"))]
    usual = max(versions, key=versions.count, default=None)
    heard = [name for name, status in found.items() if status["process"] is not None]
    late = {name: _late(status) for name, status in found.items()}
    for name, status in found.items():
        missed = [other for other in heard if name in late[other]]
        ends = {one["peers"].get(name, {}).get("finished") for one in found.values()} - {None, "", REHEARSES}
        if status["state"] == UNHEARD and ends and not missed:
            status |= {"state": "finished", "finished": min(ends)}
        elif name in expired and status["process"] is None and status["state"] != "finished":
            text = "its certificate has expired, so no broker lets it in; renew it"
            wrong[name].append(Alert(CRITICAL, text, "papers"))
        elif status["state"] == UNHEARD:
            calls = [found[other]["peers"].get(name, {}).get("state") for other in heard]
            wrong[name].append(_of_silent(states[name], calls, missed, connected, stops))
        if status.get("version", usual) != usual:
            wrong[name].append(Alert(WARNING, f"runs gossamer {status['version']}, and others {usual}", "versions"))
    own = {name for name, alerts in wrong.items() if any(_is_own(one, found[name]) for one in alerts)}
    least = ALONE * slow if connected >= _PATIENCE else math.inf  # what would be news has no way here
    cut = _cut_off({name: found[name] for name in heard if name not in own}, least)
    for name, text in cut.items():
        if all(one.kind != "reach" or one.level != CRITICAL for one in wrong[name]):
            wrong[name].append(Alert(CRITICAL, text, "reach"))
    for name, status in found.items():
        by_others = bool(late[name]) and late[name] <= own | cut.keys() and name not in cut
        grade(status, [_as_consequence(one, late[name]) if by_others else one for one in wrong[name]])
    return found


def _cut_off(heard: Statuses, least: float) -> dict[str, str]:
    """Problems of parties that are heard, where nothing is acknowledged for long between them and all they reach.

    It may be only the others who notice, as where large messages to a party are lost. Of two ends it is the fault of
    the one that has more such peers, as a server that all its parties lose.
    """
    lost: dict[str, dict[str, str]] = {name: {} for name in heard}
    for name, status in heard.items():
        for other in heard.keys() & status["unacknowledged"].keys():
            late = status["unacknowledged"][other]
            seconds = late["seconds"] + status["heard"]  # it would be news if it had acknowledged something since
            here = status["peers"].get(other, {}).get("state") == "up" and late["why"] != PAUSED
            if seconds >= least and here:
                lost[name][other] = lost[other][name] = f"for {seconds:.0f} s: {late['why']}"
    up = {name: {n for n, peer in one["peers"].items() if peer["state"] == "up"} for name, one in heard.items()}
    whole = {name: len(peers) for name, peers in lost.items() if peers and peers.keys() >= up[name] & heard.keys()}
    fewer = {name for name, count in whole.items() if any(whole.get(other, 0) > count for other in lost[name])}
    return {
        name: f"is heard, and nothing was acknowledged between it and {', '.join(sorted(peers))} {min(peers.values())}"
        for name, peers in lost.items()
        if name in whole.keys() - fewer
    }


def _as_consequence(alert: Alert, whose: Collection[str]) -> Alert:
    """A problem as it is told where peers with faults of their own may be its cause."""
    caused = alert.kind in _OF_PEERS and alert.level == CRITICAL
    return Alert(WARNING, f"for the fault of {', '.join(sorted(whose))}: {alert.text}", alert.kind) if caused else alert


def _status(peer: PeerState, now: float, names: Collection[str]) -> dict[str, Any]:
    """Status of a party by its digest, as `StateFolder.status` has it."""
    about = {"heard": round(peer.seconds, 1), "dropped": dict(peer.dropped), "process": None, "connected": False}
    nothing = {"state": UNHEARD, "peers": {}, "updates": 0} | about
    if peer.digest is None:
        return nothing
    try:
        said = peer.digest.status()
        for key, usual in (("peers", {"seconds": 0.0, "dropped": {}}), ("unacknowledged", {"seconds": 0.0, "why": ""})):
            said[key] = {name: usual | one for name, one in said.get(key, {}).items() if name in names}
        said["since"] = said.get("since", now)
        for state in ("running", STATES[STATES.index(said["state"])]):
            problems({**said, "state": state, "process": 1}, now)  # whoever sent it may have said anything
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return nothing | {"state": "not understood"}
    if said["state"] in ENDED:
        return said | about
    if peer.state == "up":
        if not said.get("connected"):  # it is by now, or this would not be here
            said.pop("broker_says", None)
        return said | about | {"process": 1, "connected": True}
    # What it said last is not so any longer, and what it said of others may be why it is silent.
    return nothing | {key: said[key] for key in _KEPT if key in said}


def _late(status: Mapping[str, Any]) -> set[str]:
    """Peers that a party does not hear, or that acknowledge nothing of it."""
    here = {name: peer for name, peer in status["peers"].items() if peer["state"] not in ("up", "removed")}
    silent = {name for name, peer in here.items() if not peer.get("finished")}
    return silent | set(status.get("unacknowledged", ()))


def _wrong(status: Mapping[str, Any], peer: PeerState, now: float) -> list[Alert]:
    """Problems of a party by what it says itself, but for versions, which are seen better together."""
    if status["state"] == "not understood":
        return [Alert(CRITICAL, "says what this version does not understand; run one version everywhere", "versions")]
    if status["state"] == UNHEARD:
        return []
    found = [one for one in problems(status, now) if one.kind != "versions"]
    off = status.get("time", now) - (now - peer.digest_age)
    if status["process"] is not None and math.fabs(off) > _CLOCK:
        text = f"its clock is {math.fabs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine's; set one"
        found.append(Alert(CRITICAL, text, "clock"))
    return found


def _is_own(alert: Alert, status: Mapping[str, Any]) -> bool:
    """Whether it is critical by the party's own fault, or by that of its way to the broker."""
    refused = any(peer["why"].startswith(_BY_ITSELF) for peer in status.get("unacknowledged", {}).values())
    return alert.level == CRITICAL and (alert.kind not in _OF_PEERS or refused)


def _of_silent(peer: PeerState, calls: list[Any], missed: list[str], connected: float, stops: bool) -> Alert:
    """The problem of a party that is not heard: of the party, or of the way between it and who watches."""
    if not connected:
        return Alert(WARNING, "is not known of: this machine has lost the broker, and goes on trying", "broker")
    if connected < _PATIENCE or (peer.state == "never heard" and peer.seconds < _PATIENCE):
        return Alert(WARNING, "was called, and has not answered yet", "silence")
    ended = peer.digest is None or peer.seconds >= connected  # perhaps: else its last word would have been heard
    if not calls and ended:
        over = f"{'has not begun, ' * (peer.digest is None)}is over{' (the organiser has asked for its end)' * stops}"
        text = f"not heard, and nobody is: the run {over}, or all are down; `gossamer status` at a party says which"
        return Alert(WARNING, text, "silence")
    silent = f"not heard for {peer.seconds:.0f} s"
    if calls and not missed and (ended or "up" in calls):
        why = "it has finished or its policy forbids this (overview: no), or the broker's access list is an older one"
        return Alert(WARNING, f"{silent}, and nobody misses it: {why}", "silence")
    by = ", nor by " * bool(missed) + ", ".join(missed)
    return Alert(
        CRITICAL, f"{silent}{by}: it does not run, hangs, or does not reach the broker; ask who runs it", "silence"
    )
