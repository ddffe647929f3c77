"""Nodes that go step by step with their neighbours, and wait for nobody who is not there.

In a step a node sends something to neighbours, waits until it has heard what is due, and averages. Nobody waits for a
neighbour that is reported down, or that has said `Enough`. While a neighbour is silent, a `Probe` has the session find
out whether it is there. Who comes back makes the steps that it lacks, and the others wait for it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Set
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import LearnerState, RoundNode
from gossamer.protocol.effects import CancelTimer, Record, Send
from gossamer.protocol.events import PeerDown, PeerUp, Resumed
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, on


@message("lock_step.enough")
class Enough(Message):
    """The sender makes no more rounds, and nobody is to wait for it."""


@dataclass
class LockStepState(LearnerState):
    """State of a node.

    ``step`` counts the steps that are over, and ``sent`` says whether what is sent in the present one has gone out.
    ``away`` are neighbours that are down, ``left`` those that make no more rounds; ``over`` says that this node makes
    none.
    """

    step: int = 0
    sent: bool = False
    away: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    probes: int = 0
    over: bool = False


class LockStepNode(RoundNode):
    """One party: its gradient steps, and its place among its ``neighbours``; a round is ``steps_a_round`` steps."""

    state: Any
    steps_a_round = 1

    def __init__(
        self, name: str, context: Context, settings: Any, state: type[LockStepState], neighbours: Collection[str]
    ) -> None:
        super().__init__(name, context, settings, state)
        self.neighbours = self.peers = tuple(neighbours)
        self.patience = settings.patience

    @property
    @abstractmethod
    def missing(self) -> frozenset[str]:
        """Neighbours whose messages are due and waited for."""

    @abstractmethod
    def send(self) -> Effects:
        """Tell neighbours what they average in this step, and say so in ``sent``."""

    @abstractmethod
    def average(self) -> None:
        """Average, with which the step is over."""

    @abstractmethod
    def reminder(self) -> Message | None:
        """Message to a neighbour that was away, so that it does not wait for what was not sent to it."""

    def close(self) -> None:
        """Forget, or use, what was heard for steps that are not made any more."""

    @property
    def round(self) -> int:
        step: int = self.state.step
        return step // self.steps_a_round

    @property
    def awaited(self) -> Set[str]:
        return self.missing if self.state.sent else frozenset()

    @property
    def there(self) -> list[str]:
        """Neighbours that go on with this node."""
        s = self.state
        return [name for name in self.neighbours if name not in s.away and name not in s.left]

    def begin(self) -> Effects:
        """A node that makes no more updates passes on what it averages, as long as anybody is there."""
        s = self.state
        if self.quota is not None and self.round >= self.quota:
            yield from self.end("quota")
        elif not s.finished:
            yield self.compute()
        elif self.there:
            yield from self.send()
        else:
            yield from self.end(s.finished)

    def advance(self) -> Effects:
        """Make steps and begin rounds, as far as one can."""
        s = self.state
        while s.sent and not self.missing:
            self.average()
            if s.step % self.steps_a_round:
                yield from self.send()
            else:
                yield CancelTimer("patience")
                yield from self.begin()
        if s.sent:
            yield self.wait_for("patience")

    def unblock(self) -> Effects:
        """Go on, if it was only those that are waited for no more."""
        if self.state.sent and not self.missing:
            yield from self.advance()

    def rang(self, timer: str) -> Effects:
        s = self.state
        if s.sent:
            yield from self.sound_out(sorted(self.missing))
            yield self.wait_for("patience")

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        s = self.state
        if event.peer in self.neighbours and event.peer not in s.left:
            s.away.add(event.peer)
            yield Record("left_out", 1.0)
            yield from self.unblock()

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        """Tell who was away what it waits for."""
        s = self.state
        if event.peer in s.away:
            s.away.discard(event.peer)
            what = Enough() if s.over else self.reminder()
            if what is not None:
                yield Send(event.peer, what)

    @on(Enough, by="neighbours")
    def enough(self, sender: str, message: Enough, now: float) -> Effects:
        self.state.left.add(sender)
        yield from self.unblock()

    def resume(self, event: Resumed, now: float) -> Effects:
        """Set the timers again and go on; what was being computed is lost."""
        s = self.state
        yield from self.reset_deadline(now)
        if not s.sent and not s.over:
            yield from self.begin()
        yield from self.advance()

    def end(self, reason: str) -> Effects:
        """Make no more rounds, and tell all, so that nobody waits."""
        s = self.state
        if not s.over:
            s.over, s.sent = True, False
            self.close()
            yield CancelTimer("patience")
            yield from self.tell(Enough())
        yield from self.finish(reason)

    def tell(self, what: Message) -> Effects:
        for name in self.there:
            yield Send(name, what)
