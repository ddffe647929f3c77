"""SYNC: synchronous decentralised SGD with differential privacy, the baseline of A(DP)2SGD.

In each round every member k

1. samples a batch and computes g~ = sum of clipped gradients + noise at w          (at the data side)
2. w_k = w - eta g~
3. takes part in a ring all-reduce: w = mean of all w_k, in 2 (K - 1) messages a node.

Everybody waits for the slowest, and at most for `timeout`: a member that is silent for longer is left out of the
round. Whoever misses a chunk for so long calls a *census* (`Alive`); those who answer within another `timeout` are the
members of the next attempt, which the first of them announces (`Roster`). Who was left out asks to come back (`Join`)
once its computation is done, and gets the newest model (`Average`) and a place in the next round. A round that is tried
again averages the same w_k: no gradient is computed twice, so nothing is released twice.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD", Appendix A (SYNC).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from gossamer.algorithms.algorithm import Context, Facts, InFlight, updates_per_epoch
from gossamer.algorithms.learning_rate import ConstantRate, LearningRate
from gossamer.algorithms.ring import Reduction, begin
from gossamer.errors import PeerError
from gossamer.privacy.claims import Claim
from gossamer.privacy.tasks import Gradient, Query
from gossamer.protocol.effects import CancelTimer, Compute, Finish, Record, Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Model, Public, Released


class Settings(BaseModel):
    """Settings of `allreduce`.

    Attributes
    ----------
    nodes : int
        K, the number of nodes.
    learning_rate : float or schedule
        eta, for the mean gradient.
    timeout : float, optional
        Seconds without the chunk that is due, after which the silent are left out. None waits, except for peers
        that are known to be down.
    batch_size : int
        B, the expected number of examples in a batch; a node samples each of its n examples with probability B/n.
    updates_per_node : int, optional
        Rounds.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["allreduce"] = "allreduce"
    nodes: int = Field(default=8, ge=1)
    learning_rate: LearningRate = ConstantRate(initial=0.5)
    timeout: PositiveFloat | None = None
    batch_size: int = Field(default=32, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1)


@message("allreduce.chunk")
@dataclass(frozen=True)
class Chunk(Message):
    """What the ring passes on in ``step`` of ``attempt`` at ``round``."""

    round: int
    attempt: int
    step: int
    part: Public | Released


@message("allreduce.alive")
@dataclass(frozen=True)
class Alive(Message):
    """A census: the sender has its w_k of ``round`` and misses a chunk."""

    round: int


@message("allreduce.roster")
@dataclass(frozen=True)
class Roster(Message):
    """From ``attempt`` at ``round`` on, these are the members (node numbers)."""

    round: int
    attempt: int
    members: Public


@message("allreduce.join")
@dataclass(frozen=True)
class Join(Message):
    """Node number ``who`` was left out and is ready for the next round."""

    who: int


@message("allreduce.average")
@dataclass(frozen=True)
class Average(Message):
    """The outcome of ``round``."""

    round: int
    model: Public | Released


Attempt = tuple[int, int]
"""(round, attempt): what all chunks of one reduction have in common."""


@dataclass
class State:
    """State of a member.

    ``w`` is the outcome of the last round; ``own`` is w_k of this one, once computed. Chunks and rosters that come
    before they can be used wait in ``early`` and ``rosters``.
    """

    w: Model
    members: tuple[int, ...]
    round: int = 0
    attempt: int = 0
    task: int = 0
    computing: bool = False
    own: Model | None = None
    reduction: Reduction | None = None
    early: dict[tuple[int, int, int], Model] = field(default_factory=dict)
    rosters: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    counting: bool = False
    joining: set[int] = field(default_factory=set)
    left_out: bool = False
    finished: str = ""


class AllreduceNode(Node):
    """One member of the ring."""

    state: State

    def __init__(self, name: str, context: Context, settings: Settings) -> None:
        super().__init__(name, State(context.initial, tuple(range(len(context.names)))))
        self.names = context.names
        self.numbers = {other: number for number, other in enumerate(context.names)}
        self.number = self.numbers[name]
        self.query: Query = context.queries[name]
        self.rate = settings.learning_rate
        self.epoch = updates_per_epoch(context, name)
        self.timeout = settings.timeout
        self.quota = context.quotas[name] if context.quotas is not None else None
        self.deadline = context.deadline

    # The algorithm

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        if self.deadline is not None:
            yield SetTimer(self.deadline, "deadline")
        yield from self.compute()

    def compute(self) -> Effects:
        """Line 1, or none if this node makes no more updates: then it still lends its model to the average."""
        s = self.state
        s.own, s.reduction = None, None
        if s.finished:
            yield from self.step(s.w)
            return
        s.task += 1
        s.computing = True
        yield Compute(Gradient(s.task, s.w, self.query))

    @on(Completed)
    def update(self, done: Completed, now: float) -> Effects:
        """Line 2."""
        s = self.state
        if done.id != s.task or not s.computing:
            return
        s.computing = False
        if s.left_out:
            yield from self.come_back()
        else:
            yield from self.step(s.w - self.rate.at(s.round / self.epoch) * done.released)

    def step(self, own: Model) -> Effects:
        self.state.own = own
        yield from self.reduce()

    def reduce(self) -> Effects:
        """Line 3, from its first message."""
        s = self.state
        if s.own is None:
            return
        s.reduction = begin(s.own, s.members.index(self.number), len(s.members))
        s.heard, s.counting = {self.number}, False
        if self.timeout is not None and len(s.members) > 1:
            yield SetTimer(self.timeout, "chunk")
        yield from self.pass_on()
        yield from self.advance()

    def pass_on(self) -> Effects:
        s = self.state
        assert s.reduction is not None
        if not s.reduction.done:
            following = s.members[(s.reduction.position + 1) % len(s.members)]
            chunk = Chunk(s.round, s.attempt, s.reduction.step, s.reduction.outgoing)
            yield Send(self.names[following], chunk)

    @on(Chunk)
    def receive(self, sender: str, chunk: Chunk, now: float) -> Effects:
        s = self.state
        if (chunk.round, chunk.attempt) < (s.round, s.attempt):
            return  # of an attempt that was given up
        if chunk.round > s.round + 1 and not s.left_out:
            raise PeerError(f"{sender} is in round {chunk.round}, which cannot have begun: this is {s.round}")
        s.early[chunk.round, chunk.attempt, chunk.step] = chunk.part
        yield from self.advance()

    def advance(self) -> Effects:
        """Take the chunks that are due, as far as they have come."""
        s = self.state
        while s.reduction is not None and not s.reduction.done:
            part = s.early.pop((s.round, s.attempt, s.reduction.step), None)
            if part is None:
                return
            index = (s.reduction.position - s.reduction.step - 1) % len(s.members)
            check_model(part, s.reduction.parts[index])
            s.reduction = s.reduction.take(part)
            yield from self.pass_on()
        if s.reduction is not None:
            yield from self.complete(s.reduction.average)

    def complete(self, average: Model) -> Effects:
        """The round's outcome is known: on to the next."""
        s = self.state
        s.w, s.round, s.attempt = average, s.round + 1, 0
        s.early = {key: part for key, part in s.early.items() if key[0] >= s.round}
        if self.timeout is not None:
            yield CancelTimer("chunk")
            yield CancelTimer("census")
        if s.joining and s.members[0] == self.number:
            yield from self.admit()
        if s.round in s.rosters:
            s.attempt, s.members = s.rosters.pop(s.round)
        if self.quota is not None and s.round >= self.quota:
            yield from self.finish("quota")
            s.own, s.reduction = None, None
        else:
            yield from self.compute()

    # When a member is silent

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        if event.timer == "deadline":
            yield from self.finish("deadline")
        elif event.timer == "chunk":
            yield from self.call_census()
        else:
            yield from self.close_census()

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        s = self.state
        if self.numbers[event.peer] in s.members and s.own is not None and not s.counting:
            yield from self.call_census()

    def call_census(self) -> Effects:
        s = self.state
        s.heard, s.counting = {self.number}, True
        yield from self.tell(s.members, Alive(s.round))
        # A peer can be known to be down although this node would wait for ever: one second serves then.
        yield SetTimer(self.timeout or 1.0, "census")

    @on(Alive)
    def alive(self, sender: str, here: Alive, now: float) -> Effects:
        s = self.state
        if here.round < s.round:
            yield Send(sender, Average(s.round - 1, s.w))  # it misses only the outcome
        elif here.round == s.round and s.own is not None:
            if not s.counting:
                yield from self.call_census()
            s.heard.add(self.numbers[sender])

    def close_census(self) -> Effects:
        """Who was heard goes on without the others. The first of them says so; the others call again if it fails."""
        s = self.state
        here = tuple(number for number in s.members if number in s.heard)
        if s.own is None or len(here) == len(s.members):
            return
        if here[0] != self.number:
            yield from self.call_census()
            return
        yield Record("left_out", float(len(s.members) - len(here)))
        roster = Roster(s.round, s.attempt + 1, _numbers(here))
        yield from self.tell(s.members, roster)
        yield from self.adopt(roster.attempt, here)

    @on(Roster)
    def roster(self, sender: str, roster: Roster, now: float) -> Effects:
        s = self.state
        members = tuple(int(number) for number in roster.members.values)
        if not members or not set(members) <= set(range(len(self.names))):
            raise PeerError(f"{sender} names members that do not exist: {members}")
        if self.number not in members:
            s.left_out, s.members = True, members
            s.own, s.reduction = None, None
            if not s.computing:
                yield from self.come_back()
        elif roster.round > s.round or s.left_out:
            s.rosters[roster.round] = (roster.attempt, members)
        elif (roster.round, roster.attempt) > (s.round, s.attempt):
            yield from self.adopt(roster.attempt, members)

    def adopt(self, attempt: int, members: tuple[int, ...]) -> Effects:
        s = self.state
        s.attempt, s.members = attempt, members
        yield CancelTimer("census")
        yield from self.reduce()

    # Coming back

    def come_back(self) -> Effects:
        s = self.state
        yield Send(self.names[s.members[0]], Join(self.number))

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """What was being computed is lost; the others have gone on, or will answer with where they are."""
        s = self.state
        if s.computing:
            s.computing = False
            yield from self.compute()
        elif s.own is not None:
            yield from self.call_census()

    @on(Join)
    def join(self, sender: str, wish: Join, now: float) -> Effects:
        s = self.state
        if not 0 <= wish.who < len(self.names):
            raise PeerError(f"{sender} speaks for node number {wish.who}, which does not exist")
        if s.members[0] != self.number:
            yield Send(self.names[s.members[0]], wish)
        elif s.finished:
            yield Send(self.names[wish.who], Average(s.round - 1, s.w))
        else:
            s.joining.add(wish.who)

    def admit(self) -> Effects:
        """At the end of a round: those who asked get the model, and all hear who is in the next round."""
        s = self.state
        members = tuple(sorted({*s.members, *s.joining}))
        for number in sorted(s.joining - {self.number}):
            yield Send(self.names[number], Average(s.round - 1, s.w))
        s.joining = set()
        yield from self.tell(members, Roster(s.round, 1, _numbers(members)))
        s.rosters[s.round] = (1, members)

    @on(Average)
    def catch_up(self, sender: str, average: Average, now: float) -> Effects:
        s = self.state
        check_model(average.model, s.w)
        if average.round < s.round and not s.left_out:
            return
        s.left_out, s.round = False, average.round
        yield from self.complete(average.model)

    # The end

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        """The budget is spent: from now on this node lends its model to the average as it is."""
        self.state.computing = False
        yield from self.finish("budget")
        yield from self.step(self.state.w)

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.finish(event.reason)

    def finish(self, reason: str) -> Effects:
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)

    def tell(self, numbers: Sequence[int], what: Message) -> Effects:
        for number in numbers:
            if number != self.number:
                yield Send(self.names[number], what)


def _numbers(members: Sequence[int]) -> Public:
    return Public(np.array(members, np.uint32))


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The members, by name."""
    return {name: AllreduceNode(name, context, settings) for name in context.names}


def model_of(node: Node) -> Model:
    """The model this node would deploy: the outcome of its last round."""
    model: Model = node.state.w
    return model


def output(nodes: Mapping[str, Node]) -> Model:
    """The outcome of the newest round."""
    return model_of(max(nodes.values(), key=lambda node: int(node.state.round)))


def invariants(nodes: Mapping[str, Node], in_flight: Sequence[InFlight]) -> dict[str, Any]:
    """None: within a round the models are the same everywhere, and the round's average is their mean."""
    return {}


def claims(settings: Settings, facts: Facts) -> list[Claim]:
    """The paper claims nothing of its synchronous baseline."""
    return []
