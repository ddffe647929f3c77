"""The server, and the aggregators that may stand between it and the clients.

When a round is complete, the server broadcasts the model, and an aggregator hands the round's sum on: to those above
it, it is one child.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gossamer.algorithms.context import Context
from gossamer.algorithms.increasing.gatherer import (
    MOST_AHEAD,
    Alone,
    Gatherer,
    GathererState,
    GlobalModel,
    Halt,
    Join,
    Leave,
    Probe,
    RoundUpdate,
    Where,
    holds,
)
from gossamer.algorithms.increasing.sizes import MOST_ROUNDS
from gossamer.errors import PeerError
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Elapsed, PeerDown, Resumed, Started
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Coordinates, Released, spread


class ServerNode(Gatherer):
    """The server: v^ -= eta_i U for every update, and a broadcast (v^, k) whenever round k is complete."""

    def __init__(self, name: str, context: Context, children: Mapping[str, int], where: Where, patience: float) -> None:
        super().__init__(name, GathererState(context.initial), children, where, patience)
        self.most, self.deadline = context.updates, context.deadline

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)
        yield from self.watch()

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone."""
        self.state.waiting = False
        yield from self.reset_deadline(now)
        yield from self.watch()

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        yield from self.halt("deadline") if event.timer == "deadline" else self.probe()

    def apply(self, child: str, update: RoundUpdate, where: Coordinates) -> None:
        self.state.v = (self.state.v - spread(update.step, where, self.state.v.size)).within()

    def advance(self) -> Effects:
        s = self.state
        if s.finished:
            return
        if self.most is not None and s.gathered >= self.most:
            yield from self.halt("updates")
        elif self.all_left:
            s.k = max(s.held.values())
            yield from self.halt("all clients left")
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
        self, name: str, parent: str, context: Context, children: Mapping[str, int], where: Where, patience: float
    ) -> None:
        super().__init__(name, AggregatorState(context.initial), children, where, patience)
        self.parent = parent
        # What comes late is handed on as a round after the last one.
        self.last = MOST_ROUNDS if context.quotas is None else max(context.quotas.values(), default=0) + MOST_AHEAD

    @on(Started, Resumed)
    def start(self, event: Started | Resumed, now: float) -> Effects:
        self.state.waiting = False
        if isinstance(event, Resumed) and not self.state.finished:
            yield Send(self.parent, Join())
            yield from self.say_alone()
        yield from self.watch()

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        yield from self.probe()

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

    def peer_down(self, event: PeerDown, now: float) -> Effects:
        yield from super().peer_down(event, now)
        yield from self.say_alone()

    def is_alone(self, sender: str, alone: Alone, now: float) -> Effects:
        yield from super().is_alone(sender, alone, now)
        yield from self.say_alone()

    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        yield from super().leaves(sender, leave, now)
        yield from self.say_alone()

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

    @on(GlobalModel)
    def broadcast(self, sender: str, newer: GlobalModel, now: float) -> Effects:
        """Hand a broadcast on, to each child with what the model holds of its own rounds."""
        s = self.state
        check_sender(sender, self.parent)
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

    @on(Halt)
    def halted(self, sender: str, halt: Halt, now: float) -> Effects:
        s = self.state
        check_sender(sender, self.parent)
        check_model(halt.model, s.v)
        self.check_round(halt.k)
        s.v, s.k = halt.model, max(s.k, halt.k)
        yield from self.halt("halt")

    @on(Probe)
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        check_sender(sender, self.parent)
        yield from ()
