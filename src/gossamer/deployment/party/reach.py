"""Peers that take what this node sends, those that are heard and take nothing, and how neighbours are met first.

A new node says hello, and probes whether a message of the run's size gets through, so that it begins together with the
others, and not before it has reached one.
"""

from __future__ import annotations

import math
import shutil
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms.masked_round import RoundMember
from gossamer.deployment.party.health import ALONE, LOST
from gossamer.deployment.party.overview import Overview
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.peers.peers import Outgoing, Peers, PeerState
from gossamer.deployment.peers.standing import REHEARSES
from gossamer.errors import counted
from gossamer.experiment.preparation.memory import available
from gossamer.keys.orders import PAUSED
from gossamer.privacy.masking import Phase
from gossamer.protocol.messages import Frame
from gossamer.protocol.node import Node
from gossamer.protocol.session import Link
from gossamer.protocol.transports import Datagram, Transport

# A broker may pass hellos and drop models: one with another run's access list, with a limit on what it passes, or that
# acknowledges nothing. So a peer is *reached* when it acknowledges what it was sent, by its session or by the answer to
# a probe. While nobody is reached the node is *alone*, and after a while it charges nothing more: updates that nobody
# averages with would spend the budget for a model of its own. The rule goes by acknowledgements alone, which tell
# nothing of the data that were not in the messages.

# Progress of a node: when it last got on, whom it has waited for since, and which of its rounds came to nothing.

UNHEARD = 30.0
"""Least seconds without progress that are a problem, where who is waited for is silent, or paces are known."""
HEARD = 600.0
"""The same where all who are waited for are heard, and may be at a task of unknown length."""
_TIMES = 5.0  # how many times longer than ever before a pause may be
_KNOWN = 3  # pauses after which paces are known


@dataclass
class NodeProgress:
    """Progress of one node, by what has changed from look to look.

    Attributes
    ----------
    needs : collection of str
        The node above this one, if there is one.
    warn : callable
        Takes a line.
    since : float or None
        Time when it last got on.
    lately : int
        Number of rounds in a row, up to now, that came to nothing.
    without : int
        Number of masked rounds in a row, up to now, that this node was in and whose sum it is not in.
    """

    needs: Collection[str]
    warn: Callable[[str], None]
    since: float | None = None
    lately: int = 0
    without: int = 0
    _sums: tuple[int, int] = -1, 0
    _mark: Any = None
    _longest: float = 0.0
    _pauses: int = 0

    def look(self, node: Node, made: int, busy: bool, states: Mapping[str, PeerState], now: float) -> dict[str, Any]:
        """Take stock of a node that has made so many updates, and describe it for the status."""
        self._look_at_sums(node)
        rounds = node.rounds_made
        if (mark := (made, rounds)) != self._mark or self.since is None or busy:
            self._got_on(mark, now)
        stalled = None
        pause, waits_for = now - (self.since or now), self._awaited(node, states)
        heard = all(states[name].state == "up" for name in waits_for) and self._pauses < _KNOWN
        if waits_for and pause > (HEARD if heard else max(UNHEARD, _TIMES * self._longest)):
            stalled = {"since": self.since, "seconds": round(pause, 1), "waits_for": waits_for}
        found = {} if rounds is None else {**rounds._asdict(), "lately": self.lately}
        return {"stalled": stalled, "rounds": found or None}

    def _got_on(self, mark: Any, now: float) -> None:
        before, rounds = self._mark and self._mark[1], mark[1]
        if self.since is not None and self._mark != mark:
            self._pauses += 1
            self._longest = max(self._longest, now - self.since)
        self._mark, self.since = mark, now
        if rounds is not None and before is not None and rounds != before:
            self.lately = rounds.empty - before.empty + (self.lately if rounds.made == before.made else 0)

    def _look_at_sums(self, node: Node) -> None:
        """Say that a client has another round, and is in no sum of the one before, which its server tells nobody."""
        client: Any = node
        if not isinstance(node, RoundMember) or not hasattr(client.state, "updates"):
            return
        sums = client.state.updates - (client.state.step == Phase.REVEAL)  # those of rounds before this one
        before, self._sums = self._sums, (client.round, sums)
        if before[0] < 0 or client.round == before[0]:
            return
        self.without = self.without + 1 if sums == before[1] else 0
        if self.without:
            self.warn(
                f"there was no sum of round {before[0] + 1} with this node in it: too few clients answered in time, or "
                f"this one did not; so it was {counted(self.without, 'round')} in a row"
            )

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


NOTICED = 15.0
"""Seconds without an acknowledgement after which somebody should look, and the others are probed."""
_ITS_LINE = 300.0  # most seconds for which what a peer sends in chunks excuses that its acknowledgements wait behind
_RECONNECT, _AGAIN = 12.0, 30.0  # seconds alone until the connection is made anew, and from then to the next time


@dataclass
class PeerReach:
    """Reach of one node.

    Attributes
    ----------
    peers : Peers
        Sealed channels to the other parties.
    size : int
        Number of bytes of a message of the run, as far as one frame may be long.
    limit : float
        Seconds after which a node that is alone charges nothing more.
    why : callable
        Reason why a peer may not be reached, as far as the way there can tell; empty where it cannot.
    reconnect : callable
        Makes the connection anew.
    began : float
        Time when this process began.
    slowness : float
        How many times longer than on a broker all are waited for.
    waits : callable
        Seconds for which what was sent to a peer waits on this node's own line, which gets on no further; None if
        nothing does. Until it is with the broker, the peer owes nothing.
    owed : dict of str to float
        Times by peer since when it has acknowledged nothing, or was not heard; only those that owe something.
    alone_since : float or None
        Time since when no peer has acknowledged anything; None while one is reached.
    """

    peers: Peers
    size: int
    limit: float
    why: Callable[[str], str]
    reconnect: Callable[[str], None]
    began: float
    slowness: float = 1.0
    waits: Callable[[str], float | None] = lambda name: None
    owed: dict[str, float] = field(default_factory=dict)
    alone_since: float | None = None
    _slow: dict[str, float] = field(default_factory=dict)  # by peer: how many times longer it may take
    _left: dict[str, float] = field(default_factory=dict)  # by peer: when its line last got on
    _waiting: set[str] = field(default_factory=set)  # peers for whom something was on the line at the last look
    _rehearse: set[str] = field(default_factory=set)
    _unheard: dict[str, float] = field(default_factory=dict)  # by peer: the last look at which it was not up
    _next_look: float = -math.inf
    _connected_at: float = -math.inf

    @property
    def _noticed(self) -> float:
        return NOTICED * self.slowness

    def look(self, links: Mapping[str, Link], now: float) -> Outgoing:
        """Take stock, and return probes of those of whom it is not known; once a second."""
        if now < self._next_look:
            return []
        self._next_look = now + 1.0
        states = self.peers.states(now)
        self._unheard |= {name: now for name, peer in states.items() if peer.state != "up"}
        self._rehearse = {name for name, peer in states.items() if peer.finished == REHEARSES}
        # Who has done its part may leave at any time, so that it is not missed; who rehearses has not begun it.
        owing = {name for name, link in links.items() if link.owed_since is not None} | self._rehearse
        done = {n for n, peer in states.items() if peer.finished and not (peer.state == "up" and n in owing)}
        there = {name: peer for name, peer in states.items() if peer.contact and name not in done}
        owed = {name: self._since(name, peer, links, now) for name, peer in there.items()}
        self.owed = {name: since for name, since in owed.items() if since is not None}
        self._slow = {name: link.silence(ALONE) / ALONE for name, link in links.items() if name in self.owed}
        taken = any(states[name].state == "up" and name in links for name in done)  # by who waits for this node
        alone = bool(there) and not taken and all(name in self.owed for name in there)
        self.alone_since = max(self.owed.values()) if alone else None
        if alone and now - max(self.owed.values()) > _RECONNECT and now - self._connected_at > _AGAIN:
            self._connected_at = now
            self.reconnect("nobody acknowledges what was sent")
        doubtful = any(now - since > self._noticed / 2 for n, since in self.owed.items() if states[n].state == "up")
        untried = [n for n, peer in there.items() if peer.owes or n not in links or links[n].owed_since is None]
        return self.probe(untried if doubtful else (), now)

    def probe(self, names: Iterable[str], now: float) -> Outgoing:
        """Return probes of peers, as far as it is time."""
        return [datagram for name in names for datagram in self.peers.probe(name, self.size, now)]

    def is_alone(self, now: float, seconds: float = ALONE) -> bool:
        """Whether every peer has acknowledged nothing for so many seconds, or longer if it is slow."""
        return self.alone_since is not None and all(
            now - since > seconds * self.slowness * self._slow.get(name, 1.0) for name, since in self.owed.items()
        )

    def holds(self, now: float) -> bool:
        """Whether the node charges nothing, since nobody would take what comes of it."""
        return self.is_alone(now, self.limit)

    def reason(self, name: str) -> str:
        """Reason why a peer is not reached, as far as is known, or what to look at."""
        return "it only rehearses; start it without --rehearse" if name in self._rehearse else self.way(name)

    def way(self, name: str) -> str:
        """The same of the way there."""
        return self.why(name) or (
            f"does the broker, and all on the way to it, pass messages of {self.size} bytes, and is its access list "
            "that of this run?"
        )

    def described(self, now: float) -> dict[str, object]:
        """The reach as plain data, for the status."""
        alarms = self.is_alone(now) and any(self.reason(name) != PAUSED for name in self.owed)
        return {
            "alone": round(now - max(self.owed.values()), 1) if alarms else None,
            "holds": self.holds(now),
            "unacknowledged": {
                name: {"seconds": round(now - since, 1), "why": self.reason(name)}
                for name, since in self.owed.items()
                if now - since > self._noticed
            },
        }

    def ended(self, links: Mapping[str, Link], now: float) -> str:
        """Reason why a node that has finished was alone at its end, if it was; empty otherwise."""
        self._next_look = -math.inf
        self.look(links, now)
        done = [name for name, peer in self.peers.states(now).items() if peer.finished and name in links]
        owing = {name for name, link in links.items() if link.owed_since is not None}
        since = self.alone_since
        if (
            since is None or now - since < self._noticed or not owing or not owing.issuperset(done)
        ):  # who is done had all
            return ""
        return (
            f"ends alone: for {now - since:.0f} s nobody has acknowledged anything: {self._who()}; since "
            "then its model has no part in those of the others, nor they in its own"
        )

    def _who(self) -> str:
        return ", ".join(f"{name} ({self.reason(name)})" for name in self.owed)

    def _since(self, name: str, peer: PeerState, links: Mapping[str, Link], now: float) -> float | None:
        """The earliest sign that nothing gets to it, or comes of it."""
        link = links[name].owed_since if name in links else None
        unheard = now - peer.seconds if peer.state in ("never heard", "silent", "gone") else None
        probe = None if peer.owes is None else now - peer.owes
        waits = None if (link, probe) == (None, None) else self.waits(name)
        if waits is not None and name in self._waiting:  # what is sent at this very moment excuses nothing
            self._left[name] = now - waits
        (self._waiting.discard if waits is None else self._waiting.add)(name)
        left = self._left.get(name, -math.inf)
        comes = links[name].incoming if name in links else None
        behind = -math.inf if comes is None else min(comes.touched, now)
        found = [max(since, left, min(behind, since + _ITS_LINE)) for since in (link, probe) if since is not None]
        found += [] if unheard is None else [unheard]
        heard = self._unheard.get(name, -math.inf) if peer.state == "up" else -math.inf
        return max(min(found), self.began, heard) if found else None


RECALL = 10.0
"""Most seconds for which a node that goes on waits for what its peers know of it; they may be away for long."""


@dataclass
class Wire:
    """Means by which a node's peers are talked to, until somebody stops it.

    Attributes
    ----------
    peers : Peers
        Sealed channels to the other parties.
    transport : Transport
        Open.
    folder : StateFolder
        Folder of the log.
    clock : callable
        Seconds.
    reach : PeerReach
        Peers that take what the node sends; a data side is asked nothing while nobody does.
    counts : Counter of str
        What was done since the process began, such as datagrams ``sent``.
    stopping : str
        Reason why it is to end.
    overview : Overview, optional
        What is told to those who watch the federation.
    ends : callable
        Reason why the organiser's orders have it end, if they do.
    """

    peers: Peers
    transport: Transport
    folder: StateFolder
    clock: Callable[[], float]
    reach: PeerReach
    counts: Counter[str] = field(default_factory=Counter, kw_only=True)
    stopping: str = field(default="", kw_only=True)
    overview: Overview | None = field(default=None, kw_only=True)
    ends: Callable[[], str] = field(default=lambda: "", kw_only=True)

    def stop(self, why: str) -> None:
        """Have it end after its turn; also from a signal handler. Who is only to wait may be told to end yet."""
        self.stopping = why if self.stopping == PAUSED else self.stopping or why
        self.transport.wake()

    def _opened(self, datagram: Datagram) -> list[tuple[str, Frame]]:
        """The frames in a datagram, with their senders, after what is answered to it at once."""
        watched = self.overview is not None and self.overview.watches(datagram.sender)
        ends: Any = self.overview if watched else self.peers
        frames, answers = ends.open(datagram.sender, datagram.payload, self.clock())
        self._publish(answers)
        if why := self.ends():
            self.stop(why)
        return list(frames)

    def _publish_due(self, now: float) -> None:
        """Publish what the passing of time demands."""
        self._publish(self.peers.wake(now))
        if self.overview is not None:
            self._publish(self.overview.wake(now))

    def _publish(self, datagrams: Iterable[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self.transport.send(to, datagram)
            self.counts["sent"] += 1


_DISK, _MEMORY = 20, 10
"""How many times the model's size a store may grow to, and a node needs in memory."""


@dataclass
class Gathering(Wire):
    """Waiting for neighbours.

    Attributes
    ----------
    look : callable
        Called again and again.
    pauses : callable
        Reason to wait in any case, if there is one: peers hear that the node is there, and nothing of theirs is taken.
    """

    look: Callable[[float], object] = field(default=lambda now: None)
    pauses: Callable[[], str] = field(default=lambda: "")

    def gather(self, neighbours: Iterable[str], patience: float, recalls: bool = False) -> None:
        """Wait until all neighbours have answered a probe, at most so many seconds, and for one of them for ever.

        They have told what they know of a pause then, which is waited for in any case.

        A node whose reach has no limit goes ahead without any; one that ``recalls`` only hears what they
        know of it.
        """
        wanted, until, told = set(neighbours), self.clock() + patience, False
        while not self.stopping and (missing := self._missing(wanted, recalls)):
            now = self.clock()
            alone = missing == wanted and not recalls and math.isfinite(self.reach.limit)
            if now >= until and not told:
                self.folder.warn(self._without(missing, now, patience, alone))
                told = True
            if now >= until and not alone:
                break
            self._publish(() if recalls else self.reach.probe(missing, now))
            self._turn(min(0.5, until - now) if now < until else 0.5, now)
        if why := self.pauses():
            self.folder.warn(f"takes no part for now: {why}")
            while not self.stopping and self.pauses():
                self._turn(0.5, self.clock())
            self.reach.began = self.clock()  # nobody owes anything of the time before

    def rehearse(self, neighbours: Collection[str]) -> None:
        """Probe the neighbours, and answer theirs, until somebody stops it."""
        self.peers.finished(REHEARSES)
        while not self.stopping:
            now = self.clock()
            self._publish(self.reach.probe(neighbours, now))
            self._turn(0.5, now)

    def lacking(self, neighbours: Collection[str], model: int) -> dict[str, str]:
        """Reasons, by what was looked at, why the node could not begin; empty where it could.

        Parameters
        ----------
        neighbours : collection of str
            Peers that it would begin with.
        model : int
            Number of bytes of a model.
        """
        states = self.peers.states(self.clock())
        here = [name for name in neighbours if states[name].state != "removed"]
        deaf = {name: self.reach.way(name) for name in here if not states[name].passed}
        heard = {name: f"{name} takes nothing: {why}" for name, why in deaf.items() if states[name].state == "up"}
        free, memory = shutil.disk_usage(self.folder.path).free, available()
        return {
            "peers": "; ".join(heard.get(name, f"{name} is not heard") for name in deaf),
            "disk": "" if free > _DISK * model else f"its disk has less room than {_DISK} models take",
            "memory": "" if memory > _MEMORY * model else f"it has less memory than {_MEMORY} models take",
        }

    def _missing(self, wanted: Collection[str], recalls: bool) -> set[str]:
        states, told = self.peers.states(self.clock()), self.peers.counters()
        here = [name for name in wanted if states[name].state != "removed"]
        passed = {name for name in here if states[name].passed and states[name].finished != REHEARSES}
        return {name for name in here if name not in told or not (recalls or name in passed)}

    def _without(self, missing: Collection[str], now: float, patience: float, alone: bool) -> str:
        states = self.peers.states(now)
        unheard = {name for name in missing if states[name].state in ("never heard", "gone")}
        heard = [f"{name} takes nothing: {self.reach.reason(name)}" for name in sorted(set(missing) - unheard)]
        parts = [f"{', '.join(sorted(unheard))} not heard"] * bool(unheard) + heard
        said = f"within {patience:g} s {'; '.join(parts)}"
        if alone:
            return f"has reached nobody, charges nothing, and waits: {said}"
        return f"goes ahead without {', '.join(sorted(missing))}: {said}"

    def _turn(self, patience: float, now: float) -> None:
        """Send what is due, and take what comes; frames among it come again, since nothing acknowledges them."""
        self._publish_due(now)
        self._publish(self.reach.look({}, now))
        if (datagram := self.transport.receive(patience)) is not None:
            self._opened(datagram)
        self.look(self.clock())
