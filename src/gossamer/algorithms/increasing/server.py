"""The server, and the aggregators that may stand between it and the clients.

Both gather the updates of children, in any order, until a round is complete. Then the server broadcasts the model, and
an aggregator hands the round's sum on: to those above it, it is one child.

A gatherer knows which rounds of each child it holds, so that it takes each of them once. A round is complete when there
is nobody to wait for: it waits for nobody who left, and not for who is known to be away. Who comes back goes on at the
round of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing.settings import MOST_ROUNDS, PublicRounds
from gossamer.algorithms.nodes import EndingNode
from gossamer.errors import PeerError
from gossamer.protocol.effects import Send
from gossamer.protocol.events import PeerDown, PeerUp, Resumed
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Blank, Coordinates, Model, Public, Released, spread

SERVER = "server"

MOST_AHEAD = 61
"""Most rounds that a sender is ahead of the first one that its receiver lacks: they are told in one integer."""


def holds(held: int, ahead: int, j: int) -> bool:
    """Whether round j is below ``held``, or told by bit j - held - 1 of ``ahead``."""
    return j < held or (j > held and bool(ahead >> (j - held - 1) & 1))


@message("increasing.round_update")
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
class GlobalModel(Message):
    """The broadcast (v, k): the model holds all rounds below ``k``.

    Of the receiver's own rounds it holds those below ``held``, and round ``held + 1 + j`` for every bit j of ``ahead``.
    """

    k: int
    held: int
    ahead: int
    model: Public | Released


@message("increasing.join")
class Join(Message):
    """The sender is back and wants the newest model."""


@message("increasing.alone")
class Alone(Message):
    """Nobody is below the sender, an aggregator, but who left or is away: it is not to be waited for."""


@message("increasing.leave")
class Leave(Message):
    """The sender makes no more rounds from ``round`` on."""

    round: int


@message("increasing.halt")
class Halt(Message):
    """The run is over, and this is its model."""

    k: int
    model: Public | Released


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

    def __init__(self, name: str, state: GathererState, children: Mapping[str, int], rounds: PublicRounds) -> None:
        """``children`` has the number of clients below each."""
        state.held, state.ahead = dict.fromkeys(children, 0), dict.fromkeys(children, 0)
        super().__init__(name, state)
        self.children, self.rounds, self.patience = dict(children), rounds, rounds.settings.patience
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

    @on(RoundUpdate, by="children")
    def receive(self, sender: str, update: RoundUpdate, now: float) -> Effects:
        s = self.state
        held = s.held[sender]
        last = max(held, s.k) + MOST_AHEAD
        if not 0 <= update.first <= update.round <= last:
            raise PeerError(f"{sender} sends rounds {update.first} to {update.round}, expected at most {last}")
        most = self.children[sender] * (MOST_AHEAD + 1)  # an aggregator may have late ones to hand on
        if not 1 <= update.rounds <= most:
            raise PeerError(f"{sender} sends {update.rounds} rounds in one, expected 1 to {most}")
        where = self.rounds.where(sender, update.round)
        check_model(update.step, Public(Blank(where.count(s.v.size), s.v.values.dtype)))
        if s.finished or self.holds(sender, update.round):
            return  # it came before: a duplicate
        self.apply(sender, update, where)
        s.gathered += update.rounds
        s.probes = 0
        # Of who was away for so long that one integer cannot tell its rounds, the earlier ones are given up.
        self.mark(sender, update.first if update.round <= held + MOST_AHEAD else held, update.round)
        yield from self.go_on()

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

    @on(Join, by="children")
    def joins(self, sender: str, join: Join, now: float) -> Effects:
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

    def go_on(self) -> Effects:
        """Do what is due, and watch those who are waited for."""
        yield from self.advance()
        yield from self.watch()

    def say_alone(self) -> Effects:
        """Say so above if nobody is below."""
        yield from ()

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Do not wait for ``event.peer`` until it is back."""
        if event.peer in self.children:
            self.state.away.add(event.peer)
            yield from self.go_on()
        yield from self.say_alone()

    @on(Alone, by="children")
    def is_alone(self, sender: str, alone: Alone, now: float) -> Effects:
        """Do not wait for ``sender`` until somebody below it is back."""
        self.state.away.add(sender)
        yield from self.go_on()
        yield from self.say_alone()

    @on(Leave, by="children")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        if leave.round < 0:
            raise PeerError(f"{sender} leaves at round {leave.round}, expected 0 or more")
        self.state.last[sender] = leave.round
        yield from self.go_on()
        yield from self.say_alone()

    # Watching

    def begin(self) -> Effects:
        """Watch those who are waited for; whatever timer there was is gone."""
        self.state.waiting = False
        yield from self.watch()

    def watch(self) -> Effects:
        """While some wait for others, find out after a while whether those are alive."""
        s = self.state
        if not s.waiting and not s.finished:
            s.waiting = True
            yield self.wait_for("probe")

    def rang(self, timer: str) -> Effects:
        s = self.state
        s.waiting = False
        if s.finished:
            return
        asked = self.order if self.is_waited_for else ()
        yield from self.sound_out([child for child in asked if self.waits_for(child, self.round)])
        yield from self.watch()

    @property
    def round(self) -> int:
        """The first round that is not complete."""
        return self.state.k

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for the first round that is not complete: those below who have made it."""
        return any(self.holds(child, self.round) for child in self.order)

    def end(self, reason: str) -> Effects:
        """End the run: every child gets the last model."""
        s = self.state
        for child in () if s.finished else self.order:
            yield Send(child, Halt(s.k, s.v))
        yield from self.finish(reason)

    @property
    def listeners(self) -> list[str]:
        """Those who have a use for a broadcast."""
        return [child for child in self.order if child not in self.state.last and child not in self.state.away]

    def news(self, child: str) -> GlobalModel:
        s = self.state
        return GlobalModel(s.k, s.held[child], s.ahead[child], s.v)


class ServerNode(Gatherer):
    """The server: v^ -= eta_i U for every update, and a broadcast (v^, k) whenever round k is complete."""

    def __init__(self, name: str, context: Context, children: Mapping[str, int], rounds: PublicRounds) -> None:
        super().__init__(name, GathererState(context.initial), children, rounds)
        self.most, self.deadline = context.updates, context.deadline

    def apply(self, child: str, update: RoundUpdate, where: Coordinates) -> None:
        self.state.v = (self.state.v - spread(update.step, where, self.state.v.size)).within()

    def advance(self) -> Effects:
        s = self.state
        if s.finished:
            return
        if self.most is not None and s.gathered >= self.most:
            yield from self.end("updates")
        elif self.all_left:
            s.k = max(s.held.values())
            yield from self.end("all clients left")
        else:
            yield from self.broadcast()

    def broadcast(self) -> Effects:
        """Move k past all rounds that are complete, and tell the children if there was one."""
        s, before = self.state, self.state.k
        # If everyone is away, there is nobody to go on with.
        while self.complete(s.k) and any(self.newest(child) >= s.k for child in self.order):
            s.k += 1
        if s.k > before:
            for child in self.listeners:
                yield Send(child, self.news(child))


@dataclass
class AggregatorState(GathererState):
    """State of an aggregator; see `GathererState`.

    Attributes
    ----------
    i : int
        The first round that was not handed on.
    first : int
        The first round that those above were told nothing of.
    sums : dict of int to Released
        Sums of the updates of rounds from i on.
    counts : dict of int to int
        Number of rounds of clients in each.
    late : dict of str to tuple of (int, int)
        Rounds of each child that came after they were handed on, each with the round that it goes with instead; as
        long as the newest broadcast lacks that one, or an earlier one.
    known, known_ahead : int
        Rounds of its own that the newest broadcast holds.
    left : bool
        Whether it told those above that its children have left.
    """

    i: int = 0
    first: int = 0
    sums: dict[int, Released] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    late: dict[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    known: int = 0
    known_ahead: int = 0
    left: bool = False


class AggregatorNode(Gatherer):
    """An aggregator: hands the sum of a round's updates on to ``parent``, and what comes from there to its children.

    ``sums`` has what was gathered of the rounds that were not handed on. An update that comes after its round was is
    handed on with the next one.
    """

    state: AggregatorState

    def __init__(
        self, name: str, parent: str, context: Context, children: Mapping[str, int], rounds: PublicRounds
    ) -> None:
        super().__init__(name, AggregatorState(context.initial), children, rounds)
        self.parent, self.peers = parent, (parent,)
        # What comes late is handed on as a round after the last one.
        self.last = MOST_ROUNDS if context.quotas is None else max(context.quotas.values(), default=0) + MOST_AHEAD

    def resume(self, event: Resumed, now: float) -> Effects:
        """Join again: what those above sent may be lost."""
        if not self.state.finished:
            yield Send(self.parent, Join())
            yield from self.say_alone()
        yield from super().resume(event, now)

    @property
    def round(self) -> int:
        return self.state.i

    @property
    def is_waited_for(self) -> bool:
        return True  # by those beside it, for all that it knows

    @property
    def alone(self) -> bool:
        """Whether nobody is below but who left or is away."""
        s = self.state
        return bool(s.away) and all(child in s.away or child in s.last for child in self.order)

    def say_alone(self) -> Effects:
        if self.alone and not self.state.finished:
            yield Send(self.parent, Alone())

    def welcome(self, child: str) -> Effects:
        """Tell who is back where the others are, and those above that there is somebody again."""
        was_alone = self.alone
        yield from super().welcome(child)
        if was_alone and not self.alone and not self.state.finished:
            yield Send(self.parent, Join())

    def apply(self, child: str, update: RoundUpdate, where: Coordinates) -> None:
        s = self.state
        i = max(update.round, s.i)
        if i > update.round:
            s.late[child] = (*s.late.get(child, ()), (update.round, i))
        step = spread(update.step, where, s.v.size)
        s.sums[i] = (s.sums[i] + step).within() if i in s.sums else step
        s.counts[i] = s.counts.get(i, 0) + update.rounds

    def advance(self) -> Effects:
        s = self.state
        while not s.finished and s.sums and self.complete(s.i):
            if s.i in s.sums:
                yield Send(self.parent, RoundUpdate(s.first, s.i, s.counts.pop(s.i), s.sums.pop(s.i)))
                s.first = s.i + 1
            s.i += 1
        if self.all_left and not s.left and not s.finished:
            s.left = True
            yield Send(self.parent, Leave(s.first))

    @on(GlobalModel, by="parent")
    def broadcast(self, sender: str, newer: GlobalModel, now: float) -> Effects:
        """Hand a broadcast on, to each child with what the model holds of its own rounds."""
        s = self.state
        check_model(newer.model, s.v)
        self.check_round(newer.k)
        if newer.k > s.k:
            s.v, s.k, s.known, s.known_ahead = newer.model, newer.k, newer.held, newer.ahead
            for child, late in s.late.items():
                s.late[child] = tuple((j, i) for j, i in late if i >= s.known)
            for child in self.listeners:
                yield Send(child, self.news(child))
        yield from self.say_alone()

    def check_round(self, k: int) -> None:
        """Refuse to be told of more rounds than there can be."""
        if not 0 <= k <= self.last:
            raise PeerError(f"{self.parent} says that {k} rounds are complete, more than this run can have")

    def news(self, child: str) -> GlobalModel:
        """Return what the model holds of the child's own rounds: those that went with a round that it holds."""
        s = self.state
        late = dict(s.late.get(child, ()))

        def told(j: int) -> bool:
            return self.holds(child, j) and holds(s.known, s.known_ahead, late.get(j, j))

        held = min([s.known, s.held[child], *late])
        while told(held):
            held += 1
        ahead = sum(1 << bit for bit in range(MOST_AHEAD) if told(held + 1 + bit))
        return GlobalModel(s.k, held, ahead, s.v)

    @on(Halt, by="parent")
    def halted(self, sender: str, halt: Halt, now: float) -> Effects:
        s = self.state
        check_model(halt.model, s.v)
        self.check_round(halt.k)
        s.v, s.k = halt.model, max(s.k, halt.k)
        yield from self.end("halt")
