"""A member of a ring that averages vectors round after round, whoever falls silent.

Without faults a round is one ring all-reduce (`Ring`): 2 (m - 1) messages of each of the m members.

When the chunk that is due does not come within ``timeout``, a member calls a *census* (`Alive`, to all); or, without
a timeout, when a member is known to be down, which a `Probe` of the one before finds out after a while. Whoever has its
vector for this round answers with the same. After another ``timeout`` the first member that was heard announces
who was (`Roster`), and these try the round again, with the same vectors. The others are *left out*: when one is ready
it asks to come back (`Join`), and the first member lets it in at the end of a round (`Welcome`, with the newest
average).

Attempts are ordered by (round, attempt), and nobody goes back to an earlier one. Two parts of a cut network go on
apart, each without the other, and stay apart; the run's output is that of the part that made more rounds.

Ring all-reduce as a value: the average of the members' vectors in 2 (m - 1) messages each.

Each vector is cut into m chunks. In the first m - 1 steps (reduce-scatter) a member adds the chunk it receives to its
own and passes the sum on, so that each ends up with one finished chunk; in the last m - 1 (all-gather) finished chunks
go round. In every step the member at ``position`` sends chunk ``position - step`` and receives the one before it.

References
----------
Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 2009.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import LearnerState, Probe, RoundNode
from gossamer.errors import PeerError
from gossamer.protocol.effects import CancelTimer, Record, Send, SetTimer
from gossamer.protocol.encoding import frozen
from gossamer.protocol.events import PeerDown, Resumed
from gossamer.protocol.messages import Message, check_count, check_model, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import LARGEST_VALUE, Model, Public, Released, concatenate, stepped


@message("ring.chunk")
class Chunk(Message):
    """Part that the ring passes on in ``step`` of ``attempt`` at ``round``."""

    round: int
    attempt: int
    step: int
    part: Public | Released


@message("ring.alive")
class Alive(Message):
    """A census: the sender is in ``round`` and misses a chunk."""

    round: int


@message("ring.enough")
class Enough(Message):
    """The sender makes no more updates, so no round that waits for its vector will end."""


@message("ring.roster")
class Roster(Message):
    """Members (node numbers) from ``attempt`` at ``round`` on."""

    round: int
    attempt: int
    members: Public


@message("ring.average")
class Average(Message):
    """The outcome of ``round``, for a member that misses only that, and who goes on from there, at which attempt."""

    round: int
    attempt: int
    members: Public
    model: Public | Released


@message("ring.join")
class Join(Message):
    """The sender was left out and is ready for the next round."""


@message("ring.welcome")
class Welcome(Message):
    """The receiver is a member from ``attempt`` at ``round`` on, and ``model`` is where that round starts."""

    round: int
    attempt: int
    members: Public
    model: Public | Released


def check_when(sender: str, what: Chunk | Roster | Average | Welcome) -> None:
    """Refuse a round or an attempt that nobody has counted to."""
    check_count(sender, "round", what.round)
    check_count(sender, "attempt", what.attempt)


@frozen("ring.reduction")
class Reduction:
    """One member's side of an all-reduce under way.

    Attributes
    ----------
    position : int
        The member's place in the ring, 0 <= position < members.
    step : int
        Chunks received so far, up to 2 (members - 1).
    parts : tuple of vectors
        The chunks: own values, partial sums, or finished sums.
    """

    position: int
    step: int
    parts: tuple[Model, ...]

    @property
    def members(self) -> int:
        return len(self.parts)

    @property
    def done(self) -> bool:
        return self.step == 2 * (self.members - 1)

    @property
    def outgoing(self) -> Model:
        """Part that goes to the next member in this step."""
        return self.parts[(self.position - self.step) % self.members]

    @property
    def incoming(self) -> int:
        """Number of the chunk that is due from the member before."""
        return (self.position - self.step - 1) % self.members

    def take(self, part: Model) -> Reduction:
        """The reduction after receiving ``part`` from the member before."""
        index = self.incoming
        value = self.parts[index] + part if self.step < self.members - 1 else part
        parts = (*self.parts[:index], value, *self.parts[index + 1 :])
        return replace(self, step=self.step + 1, parts=parts)

    @property
    def average(self) -> Model:
        """The mean of all members' vectors; the same bits at every member."""
        mean: Model = concatenate(self.parts) / self.members
        return mean


def cut(vector: Model, position: int, members: int) -> Reduction:
    """Cut ``vector`` into ``members`` chunks whose sizes differ by at most one; some may be empty."""
    bounds = [vector.size * i // members for i in range(members + 1)]
    parts = tuple(vector[start:stop] for start, stop in pairwise(bounds))
    return Reduction(position, 0, parts)


MOST_EARLY = 8
"""Vectors of one member that wait for others, in chunks. One that keeps the protocol has less than three."""
GRACE = 10.0
"""Seconds that a census takes where no timeout is set and a peer is known to be down."""


@dataclass
class RingState(LearnerState):
    """State of a member.

    ``w`` is the outcome of the last round and ``own`` this member's vector for the present one, once there is one.
    Chunks that come before they can be used wait in ``early``, by (round, attempt, step, sender); a roster for the next
    round waits in ``rosters``.
    """

    members: tuple[int, ...] = ()
    round: int = 0
    attempt: int = 0
    own: Model | None = None
    reduction: Reduction | None = None
    early: dict[tuple[int, int, int, int], Model] = field(default_factory=dict)
    rosters: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    joining: set[int] = field(default_factory=set)
    left_out: bool = False
    retired: bool = False
    probes: int = 0


class AllreduceNode(RoundNode):
    """One party: its noisy step, and its place in the ring."""

    state: RingState

    def __init__(self, name: str, context: Context, settings: Any) -> None:
        super().__init__(name, context, settings, RingState)
        self.state.members = tuple(range(len(context.names)))
        self.patience = settings.patience
        self.timeout: float | None = settings.timeout
        self.grace = GRACE if self.timeout is None else self.timeout
        self.names = context.names
        self.numbers = {other: number for number, other in enumerate(self.names)}
        self.number = self.numbers[name]
        # Every addition in float32 may round up.
        self.largest_sum = LARGEST_VALUE * len(self.names) * (1 + len(self.names) * 2.0**-23)

    @property
    def round(self) -> int:
        return self.state.round

    @property
    def awaited(self) -> Set[str]:
        s = self.state
        if s.left_out:
            return {self.names[number] for number in s.members}
        return frozenset() if self.before is None else {self.before}

    @property
    def before(self) -> str | None:
        """Name of the member before, while its chunk is due."""
        s = self.state
        if s.reduction is None or s.reduction.done:
            return None
        return self.names[s.members[s.reduction.position - 1]]

    # A round

    def begin(self) -> Effects:
        """Line 1. A node that makes no more updates lends its model to the average."""
        s = self.state
        if self.quota is not None and s.round >= self.quota:
            yield from self.end("quota")
        elif s.finished:
            yield from self.contribute(s.w)
        else:
            yield self.compute()

    def update(self, move: Model) -> Effects:
        """Lines 2 and 3."""
        yield from self.contribute(stepped(self.state.w, move, -self.rate))

    def resume(self, event: Resumed, now: float) -> Effects:
        """Set the timers again and go on; what was being computed is lost."""
        s = self.state
        if s.ends is not None:  # of a node that only lends its model, too: it is then asked no more
            yield SetTimer(max(s.ends - now, 0.0), "deadline")
        if s.left_out:
            yield from self.ask_to_join()
        elif s.own is not None:
            yield from self.call_census()
        elif not s.retired:
            yield from self.begin()

    def end(self, reason: str) -> Effects:
        """No more rounds; who asks still gets the outcome."""
        self.state.retired = True
        yield from self.finish(reason)

    # The ring

    def contribute(self, own: Model) -> Effects:
        """This member's vector for the present round."""
        s = self.state
        if s.left_out:
            yield from self.ask_to_join()
        else:
            s.own = own
            yield from self.reduce()

    def reduce(self) -> Effects:
        s = self.state
        if s.own is None:
            return
        s.reduction = cut(s.own, s.members.index(self.number), len(s.members))
        if not s.reduction.done:
            yield self.wait()
        yield from self.pass_on(s.reduction)
        yield from self.advance()

    def wait(self) -> SetTimer:
        """Timer for the chunk that is due: until the silent are left out, or until it is time to see who is there."""
        if self.timeout is not None:
            return SetTimer(self.timeout, "chunk")
        return self.wait_for("probe")

    def pass_on(self, reduction: Reduction) -> Effects:
        s = self.state
        if not reduction.done:
            following = s.members[(reduction.position + 1) % reduction.members]
            yield Send(self.names[following], Chunk(s.round, s.attempt, reduction.step, reduction.outgoing))

    @on(Chunk, by="numbers")
    def receive(self, sender: str, chunk: Chunk, now: float) -> Effects:
        s, number = self.state, self.numbers[sender]
        check_when(sender, chunk)
        if (chunk.round, chunk.attempt) < (s.round, s.attempt) or s.left_out:
            return  # of an attempt that was given up
        if chunk.round > s.round + 1:
            raise PeerError(f"{sender} is in round {chunk.round}, which cannot have begun: this is {s.round}")
        waiting = [part.size for (*_, other), part in s.early.items() if other == number]
        if (
            not 0 <= chunk.step < 2 * len(self.names)
            or len(waiting) >= MOST_EARLY * len(self.names)
            or sum(waiting) + chunk.part.size > MOST_EARLY * s.w.size
        ):
            raise PeerError(f"{sender} sends more chunks than a reduction has")
        check_model(chunk.part, s.w[: chunk.part.size], self.largest_sum)
        s.early[chunk.round, chunk.attempt, chunk.step, number] = chunk.part
        yield from self.advance()

    def advance(self) -> Effects:
        """Take the chunks that are due, as far as they have come."""
        s = self.state
        while s.reduction is not None and not s.reduction.done:
            before = s.members[s.reduction.position - 1]
            part = s.early.pop((s.round, s.attempt, s.reduction.step, before), None)
            if part is None or part.size != s.reduction.parts[s.reduction.incoming].size:
                return  # a chunk of the wrong size is as good as none
            s.reduction = s.reduction.take(part)
            yield from self.pass_on(s.reduction)
        if s.reduction is not None:
            yield from self.complete(s.reduction.average)

    def complete(self, average: Model) -> Effects:
        """The round's outcome is known: on to the next."""
        s = self.state
        s.probes = 0
        s.w, s.round, s.attempt, s.own, s.reduction = average.within(), s.round + 1, 0, None, None
        s.early = {key: part for key, part in s.early.items() if key[0] >= s.round}
        yield from self.end_census()
        if s.round in s.rosters:
            s.attempt, s.members = s.rosters[s.round]
        s.rosters = {}
        if s.joining and s.members[0] == self.number:
            yield from self.admit()
        yield from self.begin()

    # When a member is silent

    def rang(self, timer: str) -> Effects:
        if timer != "join" or self.state.left_out:
            does = {"chunk": self.call_census, "probe": self.probe, "census": self.close_census}
            yield from does.get(timer, self.ask_to_join)()

    def probe(self) -> Effects:
        """Have the session find out whether the member before is there, whose chunk is due."""
        if (before := self.before) is not None:
            yield from self.sound_out([before])
            yield self.wait()

    @on(Probe, by="numbers")
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        if self.state.retired:
            yield Send(sender, Enough())
        yield from self.remind(sender)

    @on(Enough, by="numbers")
    def enough(self, sender: str, message: Enough, now: float) -> Effects:
        """The member whose chunk is due makes no more rounds, so none can end any more; its chunks came before this."""
        if sender == self.before:
            self.state.own = self.state.reduction = None
            yield from self.end("others have finished")

    def remind(self, sender: str) -> Effects:
        """Tell who takes itself for a member and is none: when the roster came it had ended the round without it."""
        s = self.state
        if self.numbers[sender] not in s.members and not s.left_out:
            yield Send(sender, Roster(s.round, s.attempt, _numbers(s.members)))

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        s = self.state
        if self.numbers[event.peer] in s.members and s.own is not None and not s.heard:
            yield from self.call_census()

    @property
    def countable(self) -> bool:
        """Whether a census counts this node: it has its vector, or there is no timeout that it could exceed."""
        s = self.state
        return not (s.left_out or s.retired) and (s.own is not None or self.timeout is None)

    def call_census(self) -> Effects:
        s = self.state
        s.heard = {self.number}
        yield from self.tell(s.members, Alive(s.round))
        yield SetTimer(self.grace, "census")

    @on(Alive, by="numbers")
    def alive(self, sender: str, here: Alive, now: float) -> Effects:
        s, number = self.state, self.numbers[sender]
        check_count(sender, "round", here.round)
        if number not in s.members:
            yield from self.remind(sender)
        elif here.round < s.round:
            yield Send(sender, Average(s.round - 1, s.attempt, _numbers(s.members), s.w))
        elif here.round == s.round and self.countable:
            if not s.heard:
                yield from self.call_census()
            s.heard.add(number)

    def close_census(self) -> Effects:
        """Go on with those who were heard, without the others. The first says so; if that fails, others call again."""
        s = self.state
        here = tuple(number for number in s.members if number in s.heard)
        if not self.countable or not here:
            return
        if here[0] != self.number or len(here) == len(s.members):
            yield from self.call_census()
            return
        yield Record("left_out", float(len(s.members) - len(here)))
        attempt = s.attempt + 1
        yield from self.tell(s.members, Roster(s.round, attempt, _numbers(here)))
        yield from self.adopt(attempt, here)

    @on(Roster, by="numbers")
    def roster(self, sender: str, roster: Roster, now: float) -> Effects:
        s = self.state
        number, members = self.numbers[sender], self.parse_members(sender, roster)
        if (roster.round, roster.attempt) <= (s.round, s.attempt) or number not in s.members:
            return
        if self.number not in members:
            yield from self.leave(members)
        elif roster.round == s.round:
            yield from self.adopt(roster.attempt, members)
        else:
            s.rosters = {roster.round: (roster.attempt, members)}

    def adopt(self, attempt: int, members: tuple[int, ...]) -> Effects:
        """Try the present round again, with the same vector."""
        s = self.state
        s.attempt, s.members = attempt, members
        s.early = {key: part for key, part in s.early.items() if key[:2] >= (s.round, attempt)}
        yield from self.end_census()
        yield from self.reduce()

    def end_census(self) -> Effects:
        self.state.heard = set()
        yield CancelTimer("chunk")
        yield CancelTimer("probe")
        yield CancelTimer("census")

    @on(Average, by="numbers")
    def catch_up(self, sender: str, average: Average, now: float) -> Effects:
        """The sender's roster counts: one of this round, which the sender has passed, never reached it."""
        s = self.state
        number, members = self.numbers[sender], self.parse_members(sender, average)
        check_model(average.model, s.w)
        expected = average.round == s.round and s.own is not None and number in s.members
        if expected and self.number in members:
            known = s.rosters.get(s.round + 1, (-1, ()))
            s.rosters = {s.round + 1: max(known, (average.attempt, members))}
            yield from self.complete(average.model)

    # Leaving and coming back

    def leave(self, members: tuple[int, ...]) -> Effects:
        s = self.state
        ready = s.own is not None
        s.left_out, s.members, s.own, s.reduction, s.early, s.rosters = True, members, None, None, {}, {}
        yield from self.end_census()
        if ready:
            yield from self.ask_to_join()

    def ask_to_join(self) -> Effects:
        """Ask everybody, since who is first by now is not known; again until somebody answers."""
        yield from self.tell(range(len(self.names)), Join())
        yield SetTimer(self.grace, "join")

    @on(Join, by="numbers")
    def join(self, sender: str, wish: Join, now: float) -> Effects:
        """The first member lets in at the end of the round, who is counted for a member at once.

        When all rounds are made the first may be gone, and any other tells the outcome.
        """
        s, number = self.state, self.numbers[sender]
        if s.left_out:
            return
        if s.retired or number in s.members:
            yield self.welcome(number)
        elif s.members[0] == self.number:
            s.joining.add(number)

    def admit(self) -> Effects:
        """Let in who asked, at the end of a round, and tell the others."""
        s = self.state
        before, joining = s.members, sorted(s.joining - set(s.members))
        s.attempt, s.members, s.joining = s.attempt + 1, tuple(sorted({*s.members, *joining})), set()
        yield from self.tell(before, Roster(s.round, s.attempt, _numbers(s.members)))
        for number in joining:
            yield self.welcome(number)

    def welcome(self, number: int) -> Send:
        s = self.state
        return Send(self.names[number], Welcome(s.round, s.attempt, _numbers((*s.members, number)), s.w))

    @on(Welcome, by="numbers")
    def welcomed(self, sender: str, welcome: Welcome, now: float) -> Effects:
        s = self.state
        members = self.parse_members(sender, welcome)
        check_model(welcome.model, s.w)
        if not s.left_out or self.number not in members or welcome.round < s.round:
            return
        s.left_out, s.members, s.w = False, members, welcome.model
        s.round, s.attempt = welcome.round, welcome.attempt
        yield CancelTimer("join")
        yield from self.begin()

    def parse_members(self, sender: str, what: Roster | Average | Welcome) -> tuple[int, ...]:
        numbers = what.members
        if numbers.size > len(self.names):
            raise PeerError(f"{sender} names {numbers.size} members of {len(self.names)}")
        if numbers.values.dtype != np.uint32:
            raise PeerError(f"{sender} names members by {numbers.values.dtype}, expected uint32")
        members = tuple(sorted({int(number) for number in numbers.values}))
        if not members or members[-1] >= len(self.names):
            raise PeerError(f"{sender} names members that do not exist: {members}")
        check_when(sender, what)
        return members

    def tell(self, numbers: Sequence[int], what: Message) -> Effects:
        for number in numbers:
            if number != self.number:
                yield Send(self.names[number], what)


def _numbers(members: Sequence[int]) -> Public:
    return Public(np.array(sorted(set(members)), np.uint32))
