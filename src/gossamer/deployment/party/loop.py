"""A node's turns: what came is stored, and then carried out; over and over until the node's part in the run is over.

A turn takes what has come since the last one: datagrams, answers of the data side, the passing of time. All of it is
one commit to the store, and only then is anything sent or asked. Numbers are computed on another thread, and the
network has one of its own, so a node that computes for minutes answers its peers within one turn.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from gossamer.deployment.party.health import ALONE
from gossamer.deployment.party.reach import Wire, short
from gossamer.deployment.peers.peers import PeerState
from gossamer.deployment.peers.standing import REHEARSES
from gossamer.errors import GossamerError
from gossamer.keys.invitations import Invitation, content_of, parse_signed
from gossamer.keys.orders import REMOVED, STOPPED
from gossamer.protocol.effects import Finish, Record, Reject, Request
from gossamer.protocol.session import Transmit
from gossamer.protocol.transports import Datagram
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.computations import Computations, Counters
from gossamer.runtimes.host import Answer, Arrived, DataSideAnswer, Host, Input, Outcome, Wake
from gossamer.runtimes.loop import Action, HeldBack, carry_out, interpreter, requests
from gossamer.sides.machine import Computer

# Tasks that a node has given its data side, carried out as soon as they can be: as in a simulation where no step takes
# any time.
#
# A round of local steps is computed when all of its steps may be taken: at once, or when the newer model has come that
# it waits for. What comes later than that comes too late for it, as it does in a simulation.


class TaskDone(NamedTuple):
    """The data side's answer, what is for the node's private log, and whether it is an update."""

    event: Answer
    records: tuple[Record, ...] = ()
    update: bool = False


class Tasks:
    """The tasks of one node.

    Parameters
    ----------
    node : str
        The name.
    computer : Computer
        The data side.
    """

    def __init__(self, node: str, computer: Computer) -> None:
        nodes: Any = {node: None}
        speeds: Any = SimpleNamespace(seconds=lambda node, number: 0.0)
        self._node, self._activity = node, Activity(nodes, 0.0)
        does = self._schedule, self._happen, self._record
        computations = Computations(computer, speeds, {node: 0}, 1, Counters(), *does, self._activity)
        self._asks = requests(computations)
        self._due: deque[tuple[Action, Any]] = deque()
        self._done: list[TaskDone] = []
        self._records: tuple[Record, ...] = ()
        self._updates = 0

    def ask(self, request: Request) -> list[TaskDone]:
        """Do what is asked, and what that completes.

        Raises
        ------
        StorageError
            If a charge could not be written. Nothing was drawn.
        """
        self._done = []
        self._asks[type(request)](self._node, request, 0.0)
        while self._due:
            action, what = self._due.popleft()
            action(self._node, what, 0.0)
        return self._done

    def _schedule(self, time: float, action: Action, name: str, what: Any) -> None:
        self._due.append((action, what))

    def _happen(self, name: str, event: Any) -> None:
        before, self._updates = self._updates, self._activity.counts[name].updates
        self._done.append(TaskDone(event, self._records, self._updates > before))
        self._records = ()

    def _record(self, name: str, record: Record, now: float) -> None:
        self._records += (record,)


class Worker:
    """A thread that computes, so that the node answers its peers meanwhile.

    Parameters
    ----------
    tasks : Tasks
        Used by this thread alone.
    wake : callable
        Called when something is done.
    """

    def __init__(self, tasks: Tasks, wake: Callable[[], None]) -> None:
        self._tasks, self._wake = tasks, wake
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[TaskDone | BaseException] = queue.SimpleQueue()
        self._stopping = False
        self.busy = False  # with a task, for however long that takes
        self._thread = threading.Thread(target=self._run, name="data side", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> None:
        """Have ``request`` done."""
        self._asked.put(request)

    def done(self) -> list[TaskDone]:
        """Return what was done since the last time.

        Raises
        ------
        Exception
            What the data side raised, such as `StorageError`.
        """
        found = []
        while not self._done.empty():
            if isinstance(outcome := self._done.get(), BaseException):
                raise outcome
            found.append(outcome)
        return found

    def stop(self, patience: float = 5.0) -> None:
        """End the thread after what it is at; what was not begun is lost, as in a crash."""
        self._stopping = True
        self._asked.put(None)
        self._thread.join(patience)

    def _run(self) -> None:
        while (request := self._asked.get()) is not None and not self._stopping:
            self.busy = True
            try:
                for outcome in self._tasks.ask(request):
                    self._done.put(outcome)
                    del outcome  # of a large model, before the next takes as much
            except BaseException as error:  # for the node's own thread to raise
                self._done.put(error)
                self._wake()
                return
            self.busy = False
            self._wake()


LEFT, RENEWED = "left", "renewed"
"""Reasons of a loop to end: that the owner wants its part to be over, and that there is a newer invitation."""
_EVERY = 2.0  # seconds between two looks at the file of the invitation


class InvitationWatch:
    """Looks for a newer invitation in the place of the one that a node runs by.

    Parameters
    ----------
    path : Path
        The file.
    current : Invitation
        Invitation that it held.
    say : callable
        Takes a line.
    """

    def __init__(self, path: Path, current: Invitation, say: Callable[[str], None]) -> None:
        self._path, self._current, self._say = path, current, say
        self._seen, self._next = self._stamp(), 0.0

    def look(self, now: float) -> bool:
        """Whether there is one."""
        if now < self._next:
            return False
        self._next = now + _EVERY
        if (stamp := self._stamp()) == self._seen:
            return False
        self._seen = stamp
        try:
            found = parse_signed(content_of(self._path), [self._current.organiser.fingerprint])
        except (OSError, GossamerError) as error:
            self._say(f"{self._path} has changed, and is no invitation any more: {error}; goes on by the old one")
            return False
        return found.run == self._current.run and found.issued > self._current.issued

    def _stamp(self) -> tuple[float, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0.0, 0
        return status.st_mtime, status.st_size


MOST_BYTES = 8 << 20
"""Of datagrams in a turn."""
MOST_DATAGRAMS = 256
_LOOK = 1.0  # most seconds between two looks at what has no deadline of its own


def steady_clock() -> Callable[[], float]:
    """A clock of seconds since 1970 as they are now, and from then on as the machine's steady clock counts them.

    So a clock that is set, forwards or backwards, moves no deadline while the process runs, and the time between two
    processes of a node is known as well as the machine knows it.
    """
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


@dataclass
class NodeLoop(Wire):
    """The turns of one node, whose counts are ``computations`` (answers of the data side that are updates, or steps of
    one), datagrams ``sent`` and ``received``, and messages ``rejected``.

    Attributes
    ----------
    host : Host
        The node, with its session.
    worker : Worker
        The data side.
    linger : float
        Seconds for which a node that has finished stays for peers that it has never heard, and for those that have
        not said that they know.
    gone_after : float
        Seconds for which a node that has finished waits for peers, and for a broker that is away; when that one is
        back, they have as long again to be heard.
    serves : bool
        Whether the node has no data, and so nothing to do where those who are left have finished.
    look : callable
        Called after each turn, and once a second or more often.
    newer : callable
        Whether there is a newer invitation, at a time: then the loop ends.
    """

    host: Host
    worker: Worker
    linger: float = 60.0
    gone_after: float = 300.0
    serves: bool = False
    look: Callable[[], object] = lambda: None
    newer: Callable[[float], bool] = lambda now: False
    began: float = 0.0
    ended: float | None = None
    _reason: str = ""
    _notes: list[tuple[float, Record]] = field(default_factory=list)
    _untold: set[str] | None = None  # that the node has finished
    _was_connected: bool = True
    _changed_at: float = -math.inf  # when the connection last came or went, but for what this node did to it
    _anew_at: float | None = None  # when this node ended it
    _next_check: float = 0.0

    def __post_init__(self) -> None:
        self._home = HeldBack(
            lambda name, now: self.reach.holds(now), lambda name, request, now: self.worker.ask(request)
        )
        self._does = interpreter(self, self._home, self)

    def run(self) -> None:
        """Start or resume the node, and go on until its part in the run is over or somebody stops it."""
        self.began = self.clock()
        if self.host.finished:
            self._end(self.host.finished)
        if why := self.ends():
            self.stop(why)
        started = self.host.start(self.clock())
        self._carry_out(_unasked(started) if self.stopping else started)
        while not self.stopping and not self._over():
            self.turn()

    def settle(self) -> None:
        """Take what the data side was at, which is charged, before the process ends; it is asked for nothing more.

        What the node asks for now, it asks for again when it resumes.
        """
        self.worker.stop()
        if inputs := self._answers():
            self._carry_out(_unasked(self.host.turn(inputs)))
        self._note()

    def leave(self, reason: str, patience: float = 10.0) -> None:
        """End the node's part in the run for good, and wait a little until its peers have all that it has sent."""
        self._carry_out(self.host.stop(reason, self.clock()))
        until = self.clock() + patience
        while self.clock() < until and self._unacknowledged():
            self.turn()

    def farewell(self) -> None:
        """Tell the others a last time that the node has finished, if it has."""
        if self.host.finished:
            self.peers.finished(self._reason or self.host.finished)
            self._publish(self.peers.wake(self.clock()))

    def turn(self) -> None:
        """Wait for something to happen, and do what comes of it."""
        inputs = self._open(self._receive(self._patience()))
        self.peers.keep(self.clock())
        inputs += self._answers()
        now = self.clock()
        if (due := self.host.deadline()) is not None and due <= now:
            inputs.append((Wake(), now))
        if inputs:
            self._carry_out(self.host.turn(inputs))
        else:
            self.host.rest()
        self._publish_due(now)
        self._note()
        self._say_of_broker()
        self._publish(self.reach.look(self.host.session.links, now))
        self._home.look(self.host.node.name, now)  # asks what was held back, once a peer is reached
        self.look()
        if self.newer(now):
            self.stop(RENEWED)

    @property
    def busy(self) -> bool:
        """Whether the data side is at a task, or there is nothing more to do."""
        return self.worker.busy or self.ended is not None

    def _answers(self) -> list[tuple[Input, float]]:
        """Answers that the data side has given since the last turn."""
        found: list[tuple[Input, float]] = []
        now = self.clock()
        for done in self.worker.done():
            found.append((DataSideAnswer(done.event), now))
            self._notes += [(now - self.began, record) for record in done.records]
            self.counts["computations"] += done.update
        return found

    def _note(self) -> None:
        """Write down what the data side has said of raw data: after all is sent, which it must not hold up."""
        for seconds, record in self._notes:
            self.folder.record(seconds, record.name, record.value)
        self._notes.clear()

    def _patience(self) -> float:
        """Seconds for which nothing is to be done unless something comes."""
        now = self.clock()
        told = None if self.overview is None else self.overview.deadline()
        due = [when - now for when in (self.host.deadline(), self.peers.deadline(), told) if when is not None]
        return max(0.0, min([_LOOK, *due]))

    def _receive(self, patience: float) -> list[Datagram]:
        found, size = list[Datagram](), 0
        while len(found) < MOST_DATAGRAMS and size < MOST_BYTES:
            if (datagram := self.transport.receive(0.0 if found else patience)) is None:
                break
            found.append(datagram)
            size += len(datagram.payload)
        return found

    def _open(self, datagrams: Iterable[Datagram]) -> list[tuple[Input, float]]:
        """The frames in datagrams, with their senders, and times."""
        found: list[tuple[Input, float]] = []
        for datagram in datagrams:
            now = self.clock()
            found += [(Arrived(*frame), now) for frame in self._opened(datagram)]
            self.counts["received"] += 1
        return found

    def _carry_out(self, outcomes: Iterable[Outcome]) -> None:
        carry_out(self._does, self.host.node.name, outcomes, self.clock())

    # The interpreter's network and log

    def send(self, name: str, what: Transmit, now: float) -> None:
        self._publish(self.peers.seal(what.to, what.frame, now))

    def record(self, name: str, effect: Record, now: float) -> None:
        self.folder.record(now - self.began, effect.name, effect.value)

    def reject(self, name: str, effect: Reject, now: float) -> None:
        self.counts["rejected"] += 1
        self.peers.rejected(effect.sender, effect.reason, now)

    def finish(self, name: str, effect: Finish, now: float) -> None:
        self._end(effect.reason)

    def _end(self, reason: str) -> None:
        self.ended, self._reason = self.clock(), "; ".join(filter(None, [reason, short(self.host.node)]))
        self._tell_end()
        self.folder.say(f"makes no more updates: {self._reason}")

    def _tell_end(self) -> None:
        """Tell peers that the node has finished: those that have all it has sent, since others must not leave yet."""
        waiting = self._unacknowledged()
        if waiting != self._untold:
            self._untold = waiting
            self.peers.finished(self._reason, waiting)

    def _over(self) -> bool:
        """Whether nobody needs this node any longer: it has finished, and so have all that it still hears from.

        They must know it too, for a while: what was said last may be lost, and they would wait for one who has left.
        """
        now = self.clock()
        if now < self._next_check:
            return False
        self._next_check = now + 0.2
        if self.ended is None:
            self._end_if_left_alone(now)
            return False
        self._tell_end()
        states = self.peers.states(now)
        patient = now - self.ended <= self.linger
        lost = self._lost(states, now)
        lost |= {name for name, peer in states.items() if peer.state == "never heard" and not patient}
        unaware = {name for name, peer in states.items() if peer.state == "up" and peer.finished and not peer.knows}
        return (_busy(states) | self._unacknowledged() | (unaware if patient else set())) <= lost

    def _end_if_left_alone(self, now: float) -> None:
        """A server whose nodes have finished, but for those that are gone, has nobody to wait for.

        While none has finished it waits: who is gone for hours may come back.
        """
        states = self.peers.states(now)
        done = any(peer.finished not in ("", REHEARSES) for peer in states.values())
        if self.serves and done and _busy(states) <= self._lost(states, now):
            self._carry_out(self.host.stop("all others finished or gone", now))

    def _lost(self, states: Mapping[str, PeerState], now: float) -> set[str]:
        """Peers that are not waited for."""
        away = (LEFT, STOPPED, REMOVED)
        lost = {
            n for n, one in states.items() if one.state in ("quarantined", "removed") or one.finished.startswith(away)
        }
        if now - self._changed_at > self.gone_after:
            lost |= {name for name, peer in states.items() if peer.state == "gone"}
            # Who took part before this process began, and was not heard since, is gone; others may be still to come.
            long = {n for n, peer in states.items() if peer.state == "never heard" and peer.seconds > self.gone_after}
            lost |= {name for name, link in self.host.session.links.items() if name in long and link.delivered}
        if self.ended is not None:
            since = max(self.ended, self._changed_at) + max(self.gone_after, ALONE)
            lost |= {name for name, owed in self.reach.owed.items() if now > since and now - owed > ALONE}
        return lost

    def _unacknowledged(self) -> set[str]:
        """Peers that have not acknowledged all that they were sent."""
        return {to for to, link in self.host.session.links.items() if link.outbox}

    def _say_of_broker(self) -> None:
        connected, now = self.transport.connected, self.clock()
        if connected != self._was_connected:
            self._was_connected = connected
            if not connected:
                self._anew_at = now if self.transport.anew else None
            if self._anew_at is None or now - self._anew_at > ALONE:
                self._changed_at = now
            if connected:
                self.folder.say("connected to the broker again")
            elif self._anew_at is None:
                self.folder.warn(f"lost the broker, and goes on trying: {self.transport.reason}")
            if connected and self.ended is not None:
                self.peers.finished(self._reason, self._unacknowledged())  # what was said meanwhile is lost


def _unasked(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    """Outcomes without what is asked of the data side."""
    return (outcome for outcome in outcomes if not isinstance(outcome, Request))


def _busy(states: Mapping[str, PeerState]) -> set[str]:
    """Peers that have more to do, as far as is known."""
    return {name for name, peer in states.items() if peer.contact and not peer.finished}
