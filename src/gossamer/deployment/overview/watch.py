"""Watching a federation: every party is called, tells its digest, and what they say together is judged.

A fault shows at several parties. Each is said of the party whose it is: one that is not heard, or has a problem of its
own, is named; what others then say of it is a *consequence*, and no more than a warning.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gossamer.deployment.founding import layout as papers
from gossamer.deployment.party.health import Severity
from gossamer.deployment.party.overview import OVERVIEW
from gossamer.deployment.party.party import LARGEST_DATAGRAM
from gossamer.deployment.party.state_folder import ENDED
from gossamer.deployment.peers.peers import Peers
from gossamer.deployment.peers.standing import PeerState
from gossamer.errors import CallerError
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import WATCHER, Invitation, read_signed
from gossamer.runtimes.mqtt.broker import BrokerAddress, Tls, TransportSettings
from gossamer.runtimes.mqtt.certificates import expiry
from gossamer.runtimes.mqtt.transport import MqttTransport

_OF_PEERS = ("reach", "peers", "progress", "receipts")
"""Kinds of problems that another party may be the cause of."""
_BY_ITSELF = ("not allowed", "too large", "perhaps too large", "not acknowledged")
"""Beginnings of what the broker says to whoever is refused there, as of `MqttTransport.refusal`."""
_CLOCK = 30.0  # seconds by which clocks may differ
_PATIENCE = 15.0  # seconds for which nobody is missed at first
_WARNING, _CRITICAL = "warning", "critical"

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

    Raises
    ------
    CallerError
        If the folder has not what it takes.

    Notes
    -----
    `open` it before anything else, and `close` it.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], patience: float = 30.0) -> None:
        self.folder = folder
        place = folder / WATCHER if (folder / WATCHER).is_dir() else folder
        self.invitation = read_signed(place / papers.RECORD if place == folder else folder / papers.RECORD)
        run, members = self.invitation.run, self.invitation.members
        identity = _identity(place, self.invitation)
        limits = TransportSettings(patience, largest_datagram=LARGEST_DATAGRAM)
        self._transport = MqttTransport(run, WATCHER, _address(place, self.invitation), limits, say)
        names = [member.name for member in members]
        self._peers = Peers(identity, run, WATCHER, members, OVERVIEW, time.monotonic(), contacts=names)

    def open(self) -> None:
        """Connect to the broker.

        Raises
        ------
        BrokerUnreachable
            If there is no connection.
        """
        self._transport.open()

    def close(self) -> None:
        """Disconnect."""
        self._transport.close()

    def look(self, seconds: float, *, until_heard: bool = False) -> None:
        """Listen for so many seconds, or until all parties were heard."""
        until = time.monotonic() + seconds
        while (now := time.monotonic()) < until and not (until_heard and self._all_heard(now)):
            self._send(self._peers.wake(now))
            datagram = self._transport.receive(min(0.5, until - now))
            if datagram is not None:
                self._send(self._peers.open(datagram.sender, datagram.payload, time.monotonic())[1])

    def statuses(self) -> Statuses:
        """Statuses of all parties, in the order of the invitation."""
        states = self._peers.states(time.monotonic())
        expired = [name for name in states if _expired(self.folder / name / papers.CERTIFICATE)]
        return judged(states, self.invitation.run, time.time(), expired)

    def _all_heard(self, now: float) -> bool:
        return all(peer.digest is not None for peer in self._peers.states(now).values())

    def _send(self, datagrams: list[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self._transport.send(to, datagram)


def _identity(place: Path, invitation: Invitation) -> Identity:
    """The key of who watches."""
    if invitation.overview is None:
        raise CallerError(
            f"{place}: this federation was founded before there were overviews; `gossamer federation renew` adds what "
            "it takes to the papers of all"
        )
    identity = Identity.load(place / papers.IDENTITY)
    if identity.public_key != invitation.overview:
        raise CallerError(
            f"{place / papers.IDENTITY}: expected the overview's key of run {invitation.run}, with fingerprint "
            f"{invitation.overview.fingerprint}, found that of another federation, {identity.public_key.fingerprint}; "
            "put the folder overview of this federation there"
        )
    return identity


def _address(place: Path, invitation: Invitation) -> BrokerAddress:
    host, port = papers.host_and_port(invitation.broker)
    tls = Tls(place / papers.AUTHORITY, place / papers.CERTIFICATE, place / papers.IDENTITY)
    return BrokerAddress(host, port, tls if papers.has_tls(invitation.broker) else None)


def _expired(certificate: Path) -> bool:
    return certificate.exists() and expiry(certificate).timestamp() < time.time()


def judged(states: Mapping[str, PeerState], run: str, now: float, expired: list[str] | None = None) -> Statuses:
    """Statuses of parties as they are heard.

    Parameters
    ----------
    states : mapping of str to PeerState
        Knowledge of each party, with its digest.
    run : str
        Name of the run.
    now : float
        Seconds since 1970.
    expired : list of str, optional
        Parties whose certificate has expired, by its copy here.
    """
    found = {name: _status(name, run, peer, now) for name, peer in states.items()}
    said = Counter(peer.digest.version for peer in states.values() if peer.digest is not None)
    usual = said.most_common(1)[0][0] if said else ""
    for name, status in found.items():
        problems = status["problems"]
        if status["process"] is None and status["state"] not in ENDED:
            problems.append(_of_silent(name, states, found, name in (expired or ())))
        if status.get("version", usual) != usual:
            problems.append(_problem(_WARNING, "versions", f"runs gossamer {status['version']}, and others {usual}"))
    own = {name for name, status in found.items() if any(_is_own(one, status) for one in status["problems"])}
    for status in found.values():
        late = set(status["peers"])
        for one in status["problems"]:
            if one["kind"] in _OF_PEERS and one["level"] == _CRITICAL and late and late <= own:
                one |= {"level": _WARNING, "text": f"for the fault of {', '.join(sorted(late))}: {one['text']}"}
        status["problems"].sort(key=lambda one: one["level"] != _CRITICAL)
        worst = [Severity[one["level"].upper()] for one in status["problems"]]
        status["level"] = max(worst, default=Severity.OK).name.lower()
    return found


def _problem(level: str, kind: str, text: str) -> dict[str, str]:
    return {"level": level, "kind": kind, "text": text}


def _is_own(problem: Mapping[str, str], status: Mapping[str, Any]) -> bool:
    refused = any(one["why"].startswith(_BY_ITSELF) for one in status.get("unacknowledged", {}).values())
    return problem["level"] == _CRITICAL and (problem["kind"] not in _OF_PEERS or refused)


def _status(name: str, run: str, peer: PeerState, now: float) -> dict[str, Any]:
    """Status of one party by its digest, and what is wrong with it by that."""
    status: dict[str, Any] = {"node": name, "run": run, "state": "not heard", "process": None, "peers": {}}
    status |= {"heard": round(peer.seconds, 1), "dropped": dict(peer.dropped), "problems": []}
    if (digest := peer.digest) is None:
        return status
    status |= {key: getattr(digest, key) for key in ("version", "state", "since", "updates", "releases", "up")}
    status |= {"planned_releases": None if digest.planned < 0 else digest.planned, "written": digest.time}
    status |= {"contacts": digest.peers}
    status["peers"] = {one.name: {"state": one.state, "seconds": 0.0, "dropped": {}} for one in digest.late}
    status["unacknowledged"] = {
        one.name: {"seconds": one.unacknowledged, "why": one.why} for one in digest.late if one.unacknowledged
    }
    status["problems"] = [_problem(Severity(one.level).name.lower(), one.kind, one.text) for one in digest.problems]
    if digest.state in ENDED:
        return status
    if peer.state == "up":
        status["process"] = 1
        off = digest.time - (now - peer.seconds)
        if math.fabs(off) > _CLOCK:
            text = f"its clock is {math.fabs(off):.0f} s {'ahead of' if off > 0 else 'behind'} this machine's; set one"
            status["problems"].append(_problem(_CRITICAL, "clock", text))
    else:
        # What it said last is not so any longer, and what it says of others may be why it is silent.
        status |= {"state": "not heard", "problems": [], "peers": {}, "unacknowledged": {}}
    return status


def _of_silent(name: str, states: Mapping[str, PeerState], found: Statuses, expired: bool) -> dict[str, str]:
    """The problem of a party that is not heard: of the party, or of the way between it and who watches."""
    peer = states[name]
    if peer.digest is None and peer.state == "never heard" and peer.seconds < _PATIENCE:
        return _problem(_WARNING, "silence", "was called, and has not answered yet")
    if expired:
        return _problem(_CRITICAL, "papers", "its certificate has expired, so no broker lets it in; renew it")
    said = f"{peer.seconds:.0f} s" if peer.digest is not None else f"{peer.seconds:.0f} s, and not since it was called"
    heard = [other for other, one in found.items() if one["process"] is not None]
    missed = [other for other in heard if name in found[other]["peers"]]
    if heard and not missed:
        text = (
            f"not heard for {said}, and nobody misses it: it has finished or its policy forbids this (overview: no), "
            "or the broker's access list is older than this federation's papers"
        )
        return _problem(_WARNING, "silence", text)
    by = f", nor by {', '.join(missed)}" if missed else ""
    text = f"not heard for {said}{by}: it does not run, hangs, or does not reach the broker; ask who runs it"
    return _problem(_CRITICAL, "silence", text)
