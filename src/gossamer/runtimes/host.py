"""A host: one node with its session, timers and open tasks, whose every input is on disk before anything comes of it.

Like a node, a host does no I/O and reads no clock. What comes in, a frame, an answer of the data side, the passing of
time, is one *input*. A *turn* takes any number of them: all are staged in the *journal*, one commit makes them durable,
and only then what is to be done about them is returned. All that a host holds follows from its inputs, so the journal
is all that is stored: after a crash the last snapshot and the inputs since then, fed to a fresh node, give the same
host. A turn that reaches no node and makes no promise to a peer (`Session.promises`) waits for the next commit: most
chunks of a long message, and most answers to them, are such turns, and a crash costs no more than that they come again.
In particular

- no message is sent that the journal does not imply, so it is sent again with the same content if nobody acknowledged
  it; the session sees to exactly-once delivery;
- a task that was open is lost: its noise was never stored, its charge stands in the ledger. `Host.resume` tells the
  node, which asks again.

Inputs that the journal cannot take (a full disk) have not happened, and leave a host that must not be used: `broken` is
set, every further input is refused, and a host from the journal takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gossamer.errors import GossamerError, PeerError
from gossamer.protocol.effects import CancelTimer, Finish, Record, Reject, Request, Send, SetTimer
from gossamer.protocol.encoding import Buffer, decode, encode_pieces, frozen, register, size_of
from gossamer.protocol.events import Answered, Completed, Elapsed, Event, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Frame, is_confined
from gossamer.protocol.node import Node, restore_state, state_of
from gossamer.protocol.session import Link, Output, Session, SessionSettings, Transmit, latest_answers
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.loop import carry_out, interpreter

# Inputs of a host, and what is to be done about them.

Answer = Completed | Answered | Refused


# What comes in


@frozen("host.begin")
class Begin:
    """The run begins."""


@frozen("host.resume")
class Resume:
    """The host is there again after ``downtime`` seconds; open tasks are lost."""

    downtime: float


@frozen("host.arrived")
class Arrived:
    """A frame of ``sender``, whose identity is known."""

    sender: str
    frame: Frame


@frozen("host.answer")
class DataSideAnswer:
    """The data side's answer to an open task."""

    event: Answer


@frozen("host.wake")
class Wake:
    """Time has passed."""


@frozen("host.end")
class End:
    """Someone outside ends the run."""

    reason: str


Input = Begin | Resume | Arrived | DataSideAnswer | Wake | End


Outcome = Transmit | Request | Record | Reject | Finish
"""What is to be done; a `Reject` is also of a frame or message that nobody but its sender can have made."""


# Journal of a host, and the state that a snapshot in it holds.


class Journal(Protocol):
    """Store of inputs, in order.

    Of what was staged and not committed a crash keeps the first few, none, or all.
    """

    def append(self, entry: Sequence[Buffer]) -> None:
        """Stage an entry in pieces, for the next `commit`; what they are views of may change after that."""

    def snapshot(self, state: Sequence[Buffer]) -> None:
        """Stage a state in pieces, in the place of all entries so far."""

    def commit(self) -> None:
        """Make durable what was staged, in order; it is when this returns. If it raises, nothing may come of it."""

    def tidy(self) -> None:
        """Do what a commit would otherwise have to do some time."""

    def load(self) -> tuple[bytes | None, Iterable[bytes]]:
        """The newest snapshot that is durable, and the entries after it."""


@register("host.snapshot")
@dataclass
class HostState:
    """All that a host holds, as plain data.

    Attributes
    ----------
    node : dict
        State as `protocol.node.state_of` gives it.
    links : dict of str to Link
        The session's.
    timers : dict of str to float
        Times at which each rings.
    finished : str
        Reason why the node makes no more updates.
    begun : bool
        Whether it has begun.
    now : float
        Time of the last input.
    """

    node: dict[str, Any]
    links: dict[str, Link]
    timers: dict[str, float] = field(default_factory=dict)
    finished: str = ""
    begun: bool = False
    now: float = 0.0


_HANDLING = 4096  # how many bytes of a journal are read back in the time that it takes to handle one more input
_LOOKING = 16  # bytes that a journal has to grow by, for each piece of its state, until that is looked at once more
# How many times the bytes of a state its journal grows to before a snapshot takes its place: at rest, and in any case.
_GROWTH_AT_REST, _GROWTH = 1, 2


class HostBroken(GossamerError):
    """The journal did not take an input, and a host from the journal has to go on; or there can be none from it."""


class Host:
    """One party's node.

    Parameters
    ----------
    node : Node
        Fresh, as its algorithm builds it.
    settings : SessionSettings
        Settings of its session.
    journal : Journal
        Empty for a new run; otherwise the host is what its entries say.
    every : int
        Inputs between snapshots; fewer if they are large, more if the state is.
    watch : callable, optional
        Called with every `TraceStep`, replayed ones excepted; what writes a trace.
    may_hear : callable, optional
        Whether a node, by name, may be sent what is `Confined` to this one's unit; by default none may.

    Raises
    ------
    HostBroken
        If the journal holds what no such host writes.
    """

    def __init__(
        self,
        node: Node,
        settings: SessionSettings,
        journal: Journal,
        *,
        every: int = 256,
        watch: Callable[[TraceStep], None] | None = None,
        may_hear: Callable[[str], bool] = lambda to: False,
    ) -> None:
        self.node, self.journal, self.every = node, journal, every
        self.settings = settings
        self.session = Session(node.name, settings)
        self.timers: dict[str, float] = {}
        self.finished, self.begun, self.now, self.broken = "", False, 0.0, False
        self._outcomes: list[Outcome] = []  # of this turn
        self._does = interpreter(self, self, self, self)
        self._may_hear = may_hear
        self._watch: Callable[[TraceStep], None] | None = None
        self._steps: list[TraceStep] = []  # of this turn, for the watcher once it is durable
        self._bound = False  # whether something was promised in this turn
        self._size = self._since = 0  # bytes of the last snapshot, and of the journal since then
        self._again = 0  # bytes of the journal from which on it is worth it to look at the state again
        self._recover()
        self._watch = watch

    def _recover(self) -> None:
        state, entries = self.journal.load()
        try:
            if state is not None:
                self._restore(decode(state))
            for entry in entries:
                now, what = decode(entry)
                if not isinstance(what, Input):
                    raise TypeError(f"a {type(what).__name__} is no input")
                self._since += len(entry) + _HANDLING
                self._take(what, now)
                self._outcomes.clear()  # it was carried out, or comes of what is not yet answered
        except (PeerError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise HostBroken(
                f"{self.node.name}: its journal holds what this version of gossamer cannot read ({error}); "
                f"use the version that wrote it"
            ) from error

    def _restore(self, state: HostState) -> None:
        restore_state(self.node, state.node)
        self.session = Session.restore(self.node.name, self.settings, state.links)
        self.timers, self.finished, self.begun, self.now = state.timers, state.finished, state.begun, state.now

    # Inputs

    def start(self, now: float) -> list[Outcome]:
        """Begin, or resume what was begun: after a restart, say how long it was away."""
        return self.take(self.opening(now), now)

    def opening(self, now: float) -> Input:
        """Return what `start` takes: the first input of a host, and the first after a restart."""
        return Resume(max(now - self.now, 0.0)) if self.begun else Begin()

    def stop(self, reason: str, now: float) -> list[Outcome]:
        """Someone outside ends the run."""
        return self.take(End(reason), now)

    def deadline(self) -> float | None:
        """The time at which `wake` is wanted next."""
        due = [when for when in (self.session.deadline(), *self.timers.values()) if when is not None]
        return min(due, default=None)

    def take(self, what: Input, now: float) -> list[Outcome]:
        """A turn of one input."""
        return self.turn([(what, now)])

    def turn(self, inputs: Sequence[tuple[Input, float]]) -> list[Outcome]:
        """Take inputs, each with its time in seconds on the host's clock; return what is to be done about them.

        All that anything comes of are durable when this returns, by one commit. If it raises, some, none or all may be,
        nothing is to be done about any, and the host is of no more use.

        Raises
        ------
        HostBroken
            If the journal does not take them, or the host was broken before.
        """
        self._check()
        self.broken, self._bound = True, False  # until the turn is over
        self._outcomes = []
        promises = self.session.promises
        for what, now in inputs:
            pieces = encode_pieces((now, what))
            self._stored(self.journal.append, pieces)
            self._since += size_of(pieces) + _HANDLING
            self._take(what, now)
            self._snapshot(_GROWTH)
        if self._bound or self.session.promises > promises:
            self._stored(self.journal.commit)
        self.broken = False
        if self._watch is not None:
            for step in self._steps:
                self._watch(step)
            self._steps = []
        return latest_answers(self._outcomes)

    def checkpoint(self) -> None:
        """Have the journal begin anew with what the host is now: who opens it need not handle any input again.

        Raises
        ------
        HostBroken
            If the journal does not take it, or the host was broken before.
        """
        self._check()
        self.broken = True
        self._stored(self.journal.snapshot, self._encoded())
        self._stored(self.journal.commit)
        self.broken, self._since, self._again = False, 0, 0

    def rest(self) -> None:
        """Do now, while there is nothing else to do, what would otherwise hold up a turn.

        Raises
        ------
        HostBroken
            If the journal does not take it, or the host was broken before.
        """
        self._check()
        self.broken, self._bound = True, False
        self._snapshot(_GROWTH_AT_REST)
        if self._bound:
            self._stored(self.journal.commit)
        self._stored(self.journal.tidy)
        self.broken = False

    def _check(self) -> None:
        if self.broken:
            raise HostBroken(f"{self.node.name}: an input could not be stored; start again from the store")

    def _snapshot(self, growth: int) -> None:
        """Stage a snapshot, if the journal has grown to so many times the state, and is worth it at all."""
        if self._since < max(self.every * _HANDLING, growth * self._size, self._again):
            return
        pieces = self._encoded()
        size = size_of(pieces)  # several models while messages are under way, and one when they have arrived
        # Thousands of messages may wait for a peer that is down, and no snapshot of them be worth it for long.
        self._again = self._since + _LOOKING * len(pieces)
        if self._since >= growth * size:
            self._stored(self.journal.snapshot, pieces)
            self._since, self._size, self._again, self._bound = 0, size, 0, True

    def _encoded(self) -> list[Buffer]:
        return encode_pieces(self.state())

    def _stored(self, store: Callable[..., None], *data: Sequence[Buffer]) -> None:
        try:
            store(*data)
        except Exception as error:
            broken = HostBroken(f"{self.node.name}: {error}; nothing came of it, start again from the store")
            broken.exit_code = getattr(error, "exit_code", broken.exit_code)
            raise broken from error

    def state(self) -> HostState:
        """Return what a snapshot holds, to be encoded at once: later inputs change it."""
        return HostState(state_of(self.node), self.session.links, self.timers, self.finished, self.begun, self.now)

    # What an input does, a pure function of the host and the input; what is to be done about it is noted

    def _take(self, what: Input, now: float) -> None:
        self.now = now = max(now, self.now)  # a clock that is set back stands still
        match what:
            case Begin():
                self.begun = True
                self._happen(Started())
            case Resume(downtime):
                self.timers.clear()
                self._converse(self.session.wake(now))
                self._happen(Resumed(downtime))
            case Arrived(sender, frame):
                try:
                    outputs = self.session.receive(sender, frame, now)
                except PeerError as error:
                    self._outcomes.append(Reject(sender, str(error)))
                else:
                    self._converse(outputs)
            case DataSideAnswer(event):
                self._happen(event)
            case Wake():
                self._converse(self.session.wake(now))
                for name in sorted(name for name, when in self.timers.items() if when <= now):
                    if self.timers.get(name, now + 1) <= now:  # an earlier one may have cancelled it, or set it anew
                        del self.timers[name]
                        self._happen(Elapsed(name))
            case End(reason):
                self._happen(Stop(reason))

    def _converse(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if isinstance(output, Transmit):
                self._outcomes.append(output)
            else:
                self._happen(output)

    def _happen(self, event: Event) -> None:
        self._bound = True
        try:
            effects = self.node.handle(event, self.now)
        except PeerError as error:
            sender = getattr(event, "sender", self.node.name)
            self._outcomes.append(Reject(sender, str(error)))
            return
        if self._watch is not None:
            self._steps.append(TraceStep(self.now, self.node.name, event, effects))
        carry_out(self._does, self.node.name, effects, self.now)

    # The interpreter's network, clock, home and log

    def send(self, name: str, effect: Send, now: float) -> None:
        if is_confined(effect.message) and not self._may_hear(effect.to):
            raise TypeError(
                f"{type(effect.message).__name__} is confined to those whom {name} trusts, and {effect.to} is none"
            )
        self._converse(self.session.send(effect.to, effect.message, now))

    def set_timer(self, name: str, effect: SetTimer, now: float) -> None:
        self.timers[effect.name] = now + effect.after

    def cancel_timer(self, name: str, effect: CancelTimer, now: float) -> None:
        self.timers.pop(effect.name, None)

    def finish(self, name: str, effect: Finish, now: float) -> None:
        self.finished = effect.reason
        self._note(name, effect, now)

    def _note(self, name: str, outcome: Outcome, now: float) -> None:
        self._outcomes.append(outcome)

    compute = update = interrupt = record = reject = _note
