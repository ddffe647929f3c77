"""Reports of a node on itself: status file and log while it runs, and at the end its results."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import re
import shlex
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.deployment.party.agreement import Agreed, Invited
from gossamer.deployment.party.data_side import DataHeld
from gossamer.deployment.party.health import LOST, problems
from gossamer.deployment.party.loop import NodeLoop
from gossamer.deployment.party.reach import NodeProgress, Wire
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.peers.peers import PeerState
from gossamer.errors import CallerError, SpecError, counted
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results.personalisation import NOTE, personal_models
from gossamer.experiment.results.summary import algorithm_of, card_of, faults_of
from gossamer.files import to_json
from gossamer.keys.invitations import Invitation
from gossamer.objectives.released_scores import FILE as HISTOGRAMS
from gossamer.objectives.released_scores import ReleasedScores
from gossamer.objectives.scores import fit_figures
from gossamer.privacy import guarantee_card
from gossamer.privacy.guarantees import rounded_up
from gossamer.runtimes.host import Host
from gossamer.runtimes.mqtt.certificates import expiry
from gossamer.sides.receipts import FILE as RECEIPTS
from gossamer.trained.card import ARRAYS, saved
from gossamer.trained.card import FILE as CARD
from gossamer.trained.model import assessed
from gossamer.version import __version__, source_hash

# Results of a party at the end of its part in a run: the model that it would deploy, a personal one, and a summary.

PERSONAL = "personal.safetensors"
"""File of a party's personal model."""
SPENDING = "spending.json"
"""File with what all runs have taken of the budget of a party's data, as they were at the end of this one."""


def write_results(folder: StateFolder, agreed: Agreed, host: Host, held: DataHeld, alone: str) -> dict[str, Any]:
    """Write model and summary as they are now; what the summary says. ``alone`` says why it was, if it was."""
    prepared, rounds = agreed.prepared, host.node.rounds_made
    evaluation = evaluated(folder, held, host)
    model = np.asarray(prepared.algorithm.model_of(host.node).values)
    card = card_of(prepared, owners=agreed.names)
    folder.write(CARD, card.to_json(indent=2) + "\n")
    folder.write(ARRAYS, saved(model, card))
    summary = {
        "gossamer": __version__,
        "run": agreed.invitation.run,
        "node": agreed.me.name,
        "role": agreed.me.role,
        **algorithm_of(prepared),
        "finished": host.finished or None,
        "alone": alone or None,
        **({} if rounds is None else {"rounds": rounds._asdict()}),
        "parameters": prepared.objective.size,
        "privacy": held.describe(),
        **faults_of(held.agreed.prepared),
        "metrics": _tested(held, model),
        **_scores(held, model),
        **evaluation,
        **(_personalised(folder, held, model) if host.finished else {}),
    }
    folder.write("summary.json", to_json(summary, indent=2) + "\n")
    _write_proved(folder, held)
    return summary


def evaluated(folder: StateFolder, held: DataHeld, host: Host) -> dict[str, Any]:
    """Scores that the party has released of its held-out examples; a node that has just finished releases them.

    They are on disk before anybody sees them. A process that ends between the charge and that has cost the party its
    part: noise that is drawn again would be a second release, which nothing is left for.
    """
    if held.held_out is None or not host.finished:
        return {}
    if (kept := ReleasedScores.read(folder.path)) is None:
        if held.held_out.releases:
            folder.warn(
                "the release of held-out examples was charged and lost, since the process ended before it was written "
                "down; it is not made again, and figures of all parties are without this one, or, where parties "
                "release their sum alone, there are none"
            )
            return {}
        kept = held.release_held_out(held.agreed.prepared.algorithm.model_of(host.node))
        folder.write(HISTOGRAMS, to_json(kept.document()) + "\n")
    return {"private_evaluation": kept.summary()}


def _write_proved(folder: StateFolder, held: DataHeld) -> None:
    """Write receipts, the card of what is proved of what they are of, and what all runs have taken of a budget."""
    agreed, plan = held.agreed, held.agreed.plan
    if not agreed.holds_data and held.receipts is None:
        return
    guarantee, others = held.guarantees
    software = guarantee_card.Software(name="gossamer", version=__version__, source=f"sha256:{source_hash()}")
    proved, (run, me) = [guarantee, *others.values()], (agreed.invitation.run, agreed.me.name)
    card = guarantee_card.GuaranteeCard.of(proved, plan.describe(), __version__, software, run=run, party=me)
    if held.receipts is not None:
        kept = folder.path / HISTOGRAMS
        released = hashlib.sha256(kept.read_bytes()).hexdigest() if kept.exists() else None
        text, head, signature = held.receipts.ended(held.sign_receipts, card.digest, released)
        folder.write(RECEIPTS, text)
        card = card.ended(guarantee_card.ReceiptsHead(releases=head.releases, head=head.head, signature=signature))
    folder.write(guarantee_card.FILE, card.to_json())
    if (spending := held.spending) is not None and spending.budget is not None:
        bar = spending.bar(f"{agreed.invitation.run}/{agreed.me.name}")
        folder.write(SPENDING, to_json(bar, indent=2) + "\n")


def _personalised(folder: StateFolder, held: DataHeld, model: FloatArray) -> dict[str, Any]:
    """Write this party's personal model, if the spec asks for one and there are data to make it of, and describe it."""
    agreed = held.agreed
    settings = agreed.prepared.experiment.personalisation
    if settings is None or not agreed.holds_data:
        return {}
    (personal,) = personal_models(agreed.prepared, settings, [agreed.me.name], model[None])
    folder.write(PERSONAL, saved(personal, card_of(agreed.prepared, owners=agreed.names, note=NOTE)))
    folder.say(f"wrote {PERSONAL}. {NOTE}")
    return {"personalisation": {"personal": _tested(held, personal), "final_model": _tested(held, model), "note": NOTE}}


def _tested(held: DataHeld, model: FloatArray) -> dict[str, float]:
    """Test the model on this party's own test examples, if it has any: for itself alone."""
    found = {} if held.test is None else tested(held.agreed.prepared, model, held.test)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _scores(held: DataHeld, model: FloatArray) -> dict[str, Any]:
    """Scores of the model on this party's own test examples, with intervals: for itself alone, as they are exact."""
    prepared = held.agreed.prepared
    found = {} if held.test is None else assessed(card_of(prepared), prepared.objective, model, held.test)
    return {"scores": found} if found else {}


def tested(prepared: Prepared, model: FloatArray, test: Split) -> dict[str, float]:
    """Metrics of a model on test examples."""
    found = prepared.objective.evaluate(model[None], test)
    metrics = {"test_loss": float(found.loss[0])}
    if prepared.dataset.classes is not None:
        metrics["test_accuracy"] = float(found.accuracy[0])
    further = fit_figures(prepared.objective, model, prepared.dataset, test)
    return metrics | {name: value for name, value in further.items() if value is not None}


_EVERY = 1.0  # seconds between two statuses
_UNCONFIRMED = 20.0  # seconds: what a broker has for the answer to a ping, too
_LINE_EVERY = 60.0  # and between two lines about progress
_USUAL = ("sent", "received", "connected", "disconnected")
"""What transports count that is no loss."""
_LOGGED = ("reach", "progress")
"""Kinds of problems that the log is told of as well, since nobody may look at the status while there are any."""
_FOR = re.compile(r"[\d.]+ s\b")  # how long a problem has lasted, which makes no other one of it


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
        agreed, me = invited.agreed, invited.agreed.me
        parent = agreed.prepared.cast.parents.get(me.name)
        self._folder = folder
        self._status: dict[str, Any] = {
            "node": me.name,
            "role": me.role,
            "version": __version__,
            "run": agreed.invitation.run,
            "broker": agreed.invitation.broker,
            "algorithm": agreed.experiment.algorithm.name,
            "state": "starting",
            "since": time.time(),
            "pid": os.getpid(),
            "expires": _expiries(agreed.invitation, certificate),
            "needs": [] if parent is None else [parent],
        }
        self._count, self._server = agreed.prepared.algorithm.figures.count, not agreed.holds_data
        self._before = 0  # updates of a server that an earlier process made
        self._next, self._next_line, self._told = 0.0, 0.0, 0
        self._ledger: Any = None
        self._planned: int | None = None
        self._per_update = 1
        self._progress = NodeProgress(self._status["needs"], folder.warn)
        self._problems: Mapping[str, str] = {}

    def obeys(self, orders: Mapping[str, str]) -> None:
        """The organiser's orders are known, as far as they have come, with why one is not followed."""
        self._status["orders"] = orders

    def ends_before(self, why: str) -> None:
        """The node ends before it has begun; a process that comes after this one finds the order in the folder."""
        self._folder.keeps |= {"lock", "node.log", "status.json"}
        self._status["finished"] = why
        self._folder.warn(f"does not begin, and charges nothing: {why}")
        self.ended("finished")

    def connects(self, state: str = "connecting") -> None:
        """The start was let in, and the broker is called, or has answered."""
        with suppress(CallerError):  # of a node that was paused, or ended: its releases, until its ledger says how many
            before = self._folder.status()
            same = before.get("run") == self._status["run"]
            self._status |= {key: before[key] for key in ("releases", "planned_releases") if same and key in before}
        self._publish({"state": state})

    def waits(self, wire: Wire, now: float, lacking: Mapping[str, str] | None = None) -> None:
        """Neighbours are waited for; write the status if it is time, with what a rehearsal has found."""
        if now >= self._next:
            self._next = now + _EVERY
            around = _surroundings(wire, wire.peers.states(now), now)
            self._publish({"state": "waiting", **around, "rehearsal": lacking})
            self._tell_problems()

    def begins(self, host: Host, held: DataHeld) -> None:
        """The node is made, or made again."""
        self._ledger, self._planned = held.ledger, held.planned_releases
        self._per_update = held.computations_per_update
        self._before = self._made(host)
        self._folder.say(f"{self._status['node']} {'goes on' if host.begun else 'begins'} in run {self._status['run']}")
        self._publish({"state": "waiting", "policy": held.policy_charged})

    def look(self, loop: NodeLoop) -> None:
        """Say what has changed, and write the status if it is time."""
        now = loop.clock()
        if now >= self._next:
            self._next = now + _EVERY
            self.write(loop, now)

    def write(self, loop: NodeLoop, now: float) -> None:
        """Write the status."""
        states = loop.peers.states(now)
        updates = self._updates(loop)
        found = {
            "state": "running" if loop.ended is None else "lingering",
            "finished": loop.host.finished or None,
            "seconds": round(now - loop.began, 1) if loop.began else 0.0,
            "updates": updates,
            "releases": 0 if self._ledger is None else self._ledger.releases,
            "planned_releases": self._planned,
            "datagrams": {"sent": loop.counts["sent"], "received": loop.counts["received"]},
            "messages_rejected": loop.counts["rejected"],
            **_surroundings(loop, states, now),
            **self._progress.look(loop.host.node, updates, loop.busy, states, now),
        }
        self._publish(found)
        self._tell_problems()
        if now >= self._next_line and updates > self._told and loop.ended is None:  # a line a minute
            self._folder.say(f"{counted(updates, 'update')} since this process began")
            self._told, self._next_line = updates, now + _LINE_EVERY
        self._folder.log(f"{found['state']}: {updates} updates, {found['releases']} releases", logging.DEBUG)

    def _tell_problems(self) -> None:
        every = problems({**self._status, "process": self._status["pid"]}, time.time())
        found = {_FOR.sub("", one.text): one.text for one in every if one.kind in _LOGGED}
        for text in sorted(self._problems.keys() - found.keys()):  # first, since it may be so in other words
            self._folder.say(f"no longer so: {self._problems[text]}")
        for text in sorted(found.keys() - self._problems.keys()):
            self._folder.warn(found[text])
        self._problems = found

    def status(self) -> Mapping[str, Any]:
        """The status as it was said last."""
        return self._status

    def _publish(self, changed: Mapping[str, Any]) -> None:
        if changed.get("state", self._status["state"]) != self._status["state"]:
            self._status["since"] = time.time()
        self._status |= changed
        self._folder.publish(self._status)

    def _updates(self, loop: NodeLoop) -> int:
        """Whole updates since the process began: those that a server made, or by what was computed for them."""
        return self._made(loop.host) - self._before or loop.counts["computations"] // self._per_update

    def _made(self, host: Host) -> int:
        """Updates that the node has made as a server, where its algorithm counts them there."""
        if self._count is None or not self._server:
            return 0
        try:
            return self._count({host.node.name: host.node})
        except LookupError:  # one between the parties and the server that counts
            return 0

    def short_above(self) -> str:
        """Return why the node above did not come to the end of its plan, as it has told; empty if it did."""
        (above,) = self._status["needs"] or ("",)
        finished = self._status.get("peers", {}).get(above, {}).get("finished") or ""
        lacking = finished.partition("; ")[2].partition(":")[0]
        rest = "and in the others nobody answered, or there was no sum that could be used"
        return f"{above} {lacking}, {rest}" if lacking else ""

    def ended(self, state: str, why: str = "", privacy: Mapping[str, Any] = MappingProxyType({})) -> None:
        """The process ends; of a node that has finished it is said who was lost on the way, and what went wrong."""
        peers = self._status.get("peers", {})
        lost = [name for name, peer in peers.items() if peer["state"] in LOST and not peer["finished"]]
        if state == "finished" and lost:
            self._status["without"] = lost
            self._folder.warn(f"ends without {', '.join(lost)}, lost before they had finished")
        if why:
            self._folder.warn(why)
        made = ""
        if privacy:
            made = f": {counted(privacy['releases'], 'release')}"
            epsilon, delta = privacy.get("epsilon"), privacy.get("guarantee", {}).get("delta")
            if epsilon is not None and delta is not None:  # what goes to a trusted server has no delta of its own
                made += f", epsilon planned {rounded_up(epsilon)} at delta {delta:g}"
            made += f"; next: gossamer report {shlex.quote(str(self._folder.path))}"
        self._folder.say(f"{self._status['node']} {state}{made}")
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
        now = time.time()
        self._folder.publish({**self._status, "state": state, "since": now, "why": why or None, "written": now})


def _expiries(invitation: Invitation, certificate: Path | None) -> dict[str, str]:
    """Expiries of the papers; a certificate that cannot be read is for the broker to refuse."""
    found = {"invitation": invitation.expires}
    if certificate is not None:
        with suppress(SpecError):
            found["certificate"] = expiry(certificate)
    return {what: when.isoformat(timespec="seconds") for what, when in found.items()}


def _surroundings(wire: Wire, states: Mapping[str, PeerState], now: float) -> dict[str, Any]:
    """Reach of the node, and what its peers say of its ledger, with the time of that."""
    transport = wire.transport
    return {
        "connected": transport.connected,
        "broker_says": (transport.unconfirmed(_UNCONFIRMED) or None) if transport.connected else transport.reason,
        "transport": {kind: count for kind, count in dict(transport.counts).items() if kind not in _USUAL},
        "peers": {name: _described(peer) for name, peer in states.items() if peer.contact or peer.dropped},
        "forgotten": wire.peers.forgotten(),
        "written": time.time(),
        **wire.reach.described(now),
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
