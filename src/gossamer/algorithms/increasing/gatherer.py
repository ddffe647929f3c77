"""Gathering the updates of children, in any order, until a round is complete: what server and aggregators share.

A gatherer knows which rounds of each child it holds, so that it takes each of them once. A round is complete when there
is nobody to wait for: it waits for nobody who left, and not for who is known to be away. Who comes back goes on at the
round of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field

from gossamer.algorithms.nodes import EndingNode
from gossamer.errors import PeerError
from gossamer.protocol.effects import Finish, Send, SetTimer
from gossamer.protocol.events import PeerDown, PeerUp, Stop
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Blank, Coordinates, Model, Public, Released

SERVER = "server"

MOST_AHEAD = 61
"""Most rounds that a sender is ahead of the first one that its receiver lacks: they are told in one integer."""


def holds(held: int, ahead: int, j: int) -> bool:
    """Whether round j is below ``held``, or told by bit j - held - 1 of ``ahead``."""
    return j < held or (j > held and bool(ahead >> (j - held - 1) & 1))


@message("increasing.round_update")
@dataclass(frozen=True)
class RoundUpdate(Message):
    """Update that the sender made in ``round``: the global model is to be moved by -``step``, which is eta_i U.

    Rounds from ``first`` to the one before were left out by a sender who was away. ``rounds`` rounds of clients are in
    it: one, or from an aggregator as many as it gathered.
    """

    first: int
    round: int
    rounds: int
    step: Released


@message("increasing.global_model")
@dataclass(frozen=True)
class GlobalModel(Message):
    """The broadcast (v, k): the model holds all rounds below ``k``.

    Of the receiver's own rounds it holds those below ``held``, and round ``held + 1 + j`` for every bit j of ``ahead``.
    """

    k: int
    held: int
    ahead: int
    model: Public | Released


@message("increasing.join")
@dataclass(frozen=True)
class Join(Message):
    """The sender is back and wants the newest model."""


@message("increasing.alone")
@dataclass(frozen=True)
class Alone(Message):
    """Nobody is below the sender, an aggregator, but who left or is away: it is not to be waited for."""


@message("increasing.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more rounds from ``round`` on."""

    round: int


@message("increasing.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model."""

    k: int
    model: Public | Released


@message("increasing.probe")
@dataclass(frozen=True)
class Probe(Message):
    """Others wait for the receiver. It need not answer: that it was received shows that it is alive."""


MOST_DOUBLINGS = 10
"""Of the patience with those who are waited for."""

Where = Callable[[str, int], Coordinates]
"""The coordinates that an update of a child (by name) in a round has."""


@dataclass
class GathererState:
    """State of the server or of an aggregator.

    Attributes
    ----------
    v : Public or Released
        The global model: the server's own, or the newest that came from above.
    k : int
        The server: rounds below it are complete. An aggregator: that of the newest broadcast.
    held : dict of str to int
        The first round that was not received, of each child.
    ahead : dict of str to int
        Rounds that were received after it: bit j is round held + 1 + j.
    last : dict of str to int
        Those who leave: the first round that they do not make.
    away : set of str
        Those who were silent for too long.
    gathered : int
        Rounds of clients received.
    seen : int
        So many children, in order, are not waited for in the first round that is not complete.
    waiting : bool
        Whether a timer runs, after which those who are waited for are probed.
    probes : int
        Number of times that it ran out since the last update: it takes twice as long each time.
    ends : float or None
        Time at which the run ends, on the node's clock.
    finished : str
        Reason for which it has finished.
    """

    v: Model
    k: int = 0
    held: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    away: set[str] = field(default_factory=set)
    gathered: int = 0
    seen: int = 0
    waiting: bool = False
    probes: int = 0
    ends: float | None = None
    finished: str = ""


class Gatherer(EndingNode):
    """Common part of the server and aggregators."""

    state: GathererState

    def __init__(
        self, name: str, state: GathererState, children: Mapping[str, int], where: Where, patience: float
    ) -> None:
        """``children`` has the number of clients below each."""
        state.held, state.ahead = dict.fromkeys(children, 0), dict.fromkeys(children, 0)
        super().__init__(name, state)
        self.children, self.where, self.patience = dict(children), where, patience
        self.order = tuple(children)

    @property
    def awaited(self) -> Set[str]:
        s = self.state
        return set() if s.finished else {child for child in self.order if self.waits_for(child, self.round)}

    # What differs

    def apply(self, child: str, update: RoundUpdate, where: Coordinates) -> None:
        """Take in an update that came for the first time."""
        raise NotImplementedError

    def advance(self) -> Effects:
        """Do what is due when rounds are complete."""
        raise NotImplementedError

    # Gathering

    @on(RoundUpdate)
    def receive(self, sender: str, update: RoundUpdate, now: float) -> Effects:
        s = self.state
        self.only_from_children(sender)
        held = s.held[sender]
        last = max(held, s.k) + MOST_AHEAD
        if not 0 <= update.first <= update.round <= last:
            raise PeerError(f"{sender} sends rounds {update.first} to {update.round}, expected at most {last}")
        most = self.children[sender] * (MOST_AHEAD + 1)  # an aggregator may have late ones to hand on
        if not 1 <= update.rounds <= most:
            raise PeerError(f"{sender} sends {update.rounds} rounds in one, expected 1 to {most}")
        where = self.where(sender, update.round)
        check_model(update.step, Public(Blank(where.count(s.v.size), s.v.values.dtype)))
        if s.finished or self.holds(sender, update.round):
            return  # it came before: a duplicate
        self.apply(sender, update, where)
        s.gathered += update.rounds
        s.probes = 0
        # Of who was away for so long that one integer cannot tell its rounds, the earlier ones are given up.
        self.mark(sender, update.first if update.round <= held + MOST_AHEAD else held, update.round)
        yield from self.advance()
        yield from self.watch()

    def holds(self, child: str, i: int) -> bool:
        """Whether round i of a child was received, or left out."""
        return holds(self.state.held[child], self.state.ahead[child], i)

    def newest(self, child: str) -> int:
        """The last round of a child that is held; -1 if there is none."""
        ahead = self.state.ahead[child]
        return self.state.held[child] + ahead.bit_length() if ahead else self.state.held[child] - 1

    def mark(self, child: str, first: int, i: int) -> None:
        """Rounds ``first`` to ``i`` of a child are held."""
        s = self.state
        first = max(first, s.held[child])
        if i > s.held[child] + MOST_AHEAD:  # and so first is the one that was not held
            s.held[child], s.ahead[child] = i + 1, 0
            return
        # Bit 0 is round held itself, which is not held yet.
        bits = s.ahead[child] << 1 | ((1 << (i + 1 - first)) - 1) << (first - s.held[child])
        while bits & 1:
            bits >>= 1
            s.held[child] += 1
        s.ahead[child] = bits >> 1

    def waits_for(self, child: str, i: int) -> bool:
        """Whether round i is incomplete without ``child``."""
        s = self.state
        return child not in s.away and i < s.last.get(child, i + 1) and not self.holds(child, i)

    def complete(self, i: int) -> bool:
        """Whether round i, the first that is not known to be complete, is; then the next one is looked at."""
        s = self.state
        while s.seen < len(self.order):
            if self.waits_for(self.order[s.seen], i):
                return False
            s.seen += 1
        s.seen = 0
        return True

    @property
    def all_left(self) -> bool:
        """Whether every child has left, and all that it made is here."""
        s = self.state
        return len(s.last) == len(self.order) and all(s.held[child] >= last for child, last in s.last.items())

    # Comings and goings

    @on(Join)
    def joins(self, sender: str, join: Join, now: float) -> Effects:
        self.only_from_children(sender)
        yield from self.welcome(sender)

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        if event.peer in self.children:
            yield from self.welcome(event.peer)

    def welcome(self, child: str) -> Effects:
        """Tell who is back where the others are."""
        s = self.state
        s.away.discard(child)
        s.seen = 0
        yield Send(child, Halt(s.k, s.v) if s.finished else self.news(child))

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Do not wait for ``event.peer`` until it is back."""
        if event.peer in self.children:
            self.state.away.add(event.peer)
            yield from self.advance()
            yield from self.watch()

    @on(Alone)
    def is_alone(self, sender: str, alone: Alone, now: float) -> Effects:
        """Do not wait for ``sender`` until somebody below it is back."""
        self.only_from_children(sender)
        self.state.away.add(sender)
        yield from self.advance()
        yield from self.watch()

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.only_from_children(sender)
        if leave.round < 0:
            raise PeerError(f"{sender} leaves at round {leave.round}, expected 0 or more")
        self.state.last[sender] = leave.round
        yield from self.advance()
        yield from self.watch()

    # Watching

    def watch(self) -> Effects:
        """While some wait for others, find out after a while whether those are alive."""
        s = self.state
        if not s.waiting and not s.finished:
            s.waiting = True
            yield SetTimer(self.patience * 2 ** min(s.probes, MOST_DOUBLINGS), "probe")

    def probe(self) -> Effects:
        s = self.state
        s.waiting = False
        if s.finished:
            return
        s.probes += 1
        if self.is_waited_for:
            for child in self.order:
                if self.waits_for(child, self.round):
                    yield Send(child, Probe())
        yield from self.watch()

    @property
    def round(self) -> int:
        """The first round that is not complete."""
        return self.state.k

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for the first round that is not complete: those below who have made it."""
        return any(self.holds(child, self.round) for child in self.order)

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.halt(event.reason)

    def halt(self, reason: str) -> Effects:
        """End the run: every child gets the last model."""
        s = self.state
        if not s.finished:
            s.finished = reason
            yield from self.tell(Halt(s.k, s.v))
            yield Finish(reason)

    def tell(self, message: Message) -> Effects:
        for child in self.order:
            yield Send(child, message)

    @property
    def listeners(self) -> list[str]:
        """Those who have a use for a broadcast."""
        return [child for child in self.order if child not in self.state.last and child not in self.state.away]

    def news(self, child: str) -> GlobalModel:
        s = self.state
        return GlobalModel(s.k, s.held[child], s.ahead[child], s.v)

    def only_from_children(self, sender: str) -> None:
        """Refuse what a stranger sends."""
        if sender not in self.children:
            raise PeerError(f"{sender} is no child of {self.name}")
