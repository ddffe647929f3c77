"""Reports of a node on itself while it runs: the status file, and lines in the log when something changes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gossamer.deployment.founding.invitations import Invitation
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.health import LOST
from gossamer.deployment.party.joining import Invited
from gossamer.deployment.party.loop import NodeLoop
from gossamer.deployment.party.reach import NodeProgress, PeerReach
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.peers.peers import Peers, PeerState
from gossamer.errors import SpecError, counted
from gossamer.runtimes.host import Host
from gossamer.runtimes.mqtt.certificates import expiry
from gossamer.runtimes.mqtt.transport import MqttTransport
from gossamer.version import __version__

_EVERY = 1.0  # seconds between two statuses
_LINE_EVERY = 60.0  # and between two lines about progress


class Reporter:
    """Writes the status of one node.

    Parameters
    ----------
    invited : Invited
        Party with the terms of its run.
    folder : StateFolder
        Taken.
    certificate : Path, optional
        Certificate by which the broker knows it.
    """

    def __init__(self, invited: Invited, folder: StateFolder, certificate: Path | None = None) -> None:
        agreed, terms = invited.agreed, invited.agreed.terms
        parent = agreed.prepared.cast.parents.get(terms.me.name)
        self._folder = folder
        self._status: dict[str, Any] = {
            "node": terms.me.name,
            "role": terms.me.role,
            "version": __version__,
            "run": terms.invitation.run,
            "broker": terms.invitation.broker,
            "algorithm": terms.experiment.algorithm.name,
            "state": "starting",
            "pid": os.getpid(),
            "expires": _expiries(terms.invitation, certificate),
            "needs": [] if parent is None else [parent],
        }
        self._count, self._server = agreed.prepared.algorithm.figures.count, not terms.holds_data
        self._before = 0  # updates of a server that an earlier process made
        self._next, self._next_line, self._told = 0.0, 0.0, 0
        self._finished: dict[str, str] = {}
        self._ledger: Any = None
        self._planned: int | None = None
        self._per_update = 1
        self._progress = NodeProgress(self._status["needs"], folder.warn, folder.say)

    def connects(self) -> None:
        """The start was let in, and the broker is called."""
        self._status["state"] = "connecting"
        self._folder.publish(self._status)

    def waits(self, peers: Peers, transport: MqttTransport, reach: PeerReach, now: float) -> None:
        """Neighbours are waited for; write the status if it is time."""
        if now >= self._next:
            self._next = now + _EVERY
            self._status |= {
                "state": "waiting",
                **_surroundings(peers, peers.states(now), transport),
            } | reach.described(now)
            self._folder.publish(self._status)

    def begins(self, host: Host, held: DataHeld) -> None:
        """The node is made, or made again."""
        self._ledger, self._planned = held.ledger, held.planned_releases
        self._per_update = held.computations_per_update
        self._status |= {"state": "waiting", "policy": held.policy_charged}
        self._before = self._made(host)
        self._folder.say(f"{self._status['node']} {'goes on' if host.begun else 'begins'} in run {self._status['run']}")
        self._folder.publish(self._status)

    def look(self, loop: NodeLoop) -> None:
        """Say what has changed, and write the status if it is time."""
        now = loop.clock()
        if now >= self._next:
            self._next = now + _EVERY
            self.write(loop, now)

    def write(self, loop: NodeLoop, now: float) -> None:
        """Write the status."""
        states = loop.peers.states(now)
        for name, peer in states.items():
            self._changed(name, peer)
        self._status |= {
            "state": "running" if loop.ended is None else "lingering",
            "finished": loop.host.finished or None,
            "seconds": round(now - loop.began, 1) if loop.began else 0.0,
            "updates": self._updates(loop),
            "releases": 0 if self._ledger is None else self._ledger.releases,
            "planned_releases": self._planned,
            "datagrams": {"sent": loop.counts.sent, "received": loop.counts.received},
            "messages_rejected": loop.counts.rejected,
            **_surroundings(loop.peers, states, loop.transport),
            **({} if loop.reach is None else loop.reach.described(now)),
            **self._progress.look(loop.host.node, self._updates(loop), loop.busy, states, now),
        }
        self._folder.publish(self._status)
        self._tell_progress(loop, now)
        counts = f"{self._status['updates']} updates, {self._status['releases']} releases"
        self._folder.log(f"{self._status['state']}: {counts}", logging.DEBUG)

    def _updates(self, loop: NodeLoop) -> int:
        """Whole updates since the process began: those that a server made, or by what was computed for them."""
        return self._made(loop.host) - self._before or loop.counts.computations // self._per_update

    def _made(self, host: Host) -> int:
        """Updates that the node has made as a server, where its algorithm counts them there."""
        if self._count is None or not self._server:
            return 0
        try:
            return self._count({host.node.name: host.node})
        except LookupError:  # one between the parties and the server that counts
            return 0

    def _tell_progress(self, loop: NodeLoop, now: float) -> None:
        """A line a minute as long as there are updates."""
        updates = self._updates(loop)
        if now >= self._next_line and updates > self._told and loop.ended is None:
            self._folder.say(f"{counted(updates, 'update')} since this process began")
            self._told, self._next_line = updates, now + _LINE_EVERY

    def short_above(self) -> str:
        """Return why the node above did not come to the end of its plan, as it has told; empty if it did."""
        (above,) = self._status["needs"] or ("",)
        lacking = self._finished.get(above, "").partition("; ")[2].partition(":")[0]
        rest = "and in the others nobody answered, or there was no sum that could be used"
        return f"{above} {lacking}, {rest}" if lacking else ""

    def ended(self, state: str, why: str = "") -> None:
        """The process ends; of a node that has finished it is said who was lost on the way, and what went wrong."""
        peers = self._status.get("peers", {})
        lost = [name for name, peer in peers.items() if peer["state"] in LOST and not peer["finished"]]
        if state == "finished" and lost:
            self._status["without"] = lost
            self._folder.warn(f"ends without {', '.join(lost)}, lost before they had finished")
        if why:
            self._folder.warn(why)
        self._folder.say(f"{self._status['node']} {state}")
        self._publish_end(state, why)

    def failed(self, why: str) -> None:
        """The process ends with an error, and writes down what it can: on a full disk the error itself matters more.

        Who started the process is told by what is raised.
        """
        node = self._status["node"]
        # Why may quote data; who runs the node decides what of it a log is told.
        self._folder.log(f"{node} failed", logging.ERROR)
        with suppress(OSError):
            self._folder.note(f"{node} failed: {why}")
        with suppress(OSError):
            self._publish_end("failed", why)

    def _publish_end(self, state: str, why: str = "") -> None:
        self._folder.publish({**self._status, "state": state, "why": why or None, "written": time.time()})

    def _changed(self, name: str, peer: PeerState) -> None:
        """A line when a peer has finished, or goes on after all; of all else the peers' own log tells."""
        if peer.finished and self._finished.get(name) != peer.finished:
            self._folder.say(f"{name} makes no more updates: {peer.finished}")
        self._finished[name] = peer.finished


def _expiries(invitation: Invitation, certificate: Path | None) -> dict[str, str]:
    """Expiries of the papers; a certificate that cannot be read is for the broker to refuse."""
    found = {"invitation": invitation.expires}
    if certificate is not None:
        with suppress(SpecError):
            found["certificate"] = expiry(certificate)
    return {what: when.isoformat(timespec="seconds") for what, when in found.items()}


def _surroundings(peers: Peers, states: Mapping[str, PeerState], transport: MqttTransport) -> dict[str, Any]:
    """Reach of the node, and what its peers say of its ledger, with the time of that."""
    return {
        "connected": transport.connected,
        "broker_says": None if transport.connected else transport.reason,
        "peers": {name: _described(peer) for name, peer in states.items() if peer.contact or peer.dropped},
        "forgotten": peers.forgotten(),
        "written": time.time(),
    }


def _described(peer: PeerState) -> dict[str, Any]:
    """A peer's state as plain data."""
    return {
        "state": peer.state,
        "seconds": round(peer.seconds, 1),
        "finished": peer.finished or None,
        "dropped": dict(peer.dropped),
        "receipts": peer.receipts or None,
        "version": peer.version or None,
    }
