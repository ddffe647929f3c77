"""Gradient tracking: each node follows the mean gradient of all, by averaging estimates of it with its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Clips
from gossamer.algorithms.lock_step import LockStepNode, LockStepState
from gossamer.algorithms.nodes import LearnerSettings
from gossamer.algorithms.synchronous_gossip.box import Row, rows
from gossamer.protocol.messages import Message, check_count, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.topology.kinds import Ring
from gossamer.topology.topologies import Topology
from gossamer.vectors import Model, Public, Released, stepped


class Settings(LearnerSettings):
    """Settings of `gradient_tracking`; ``patience`` is that of all algorithms in lock-step."""

    name: Literal["gradient_tracking"] = "gradient_tracking"
    topology: Topology = Ring()
    patience: float = Field(default=60.0, ge=1e-3)


@message("gradient_tracking.pair")
@dataclass(frozen=True)
class Pair(Message):
    """What a node's neighbours average in a step: its model, and its estimate of the mean gradient."""

    step: int
    model: Public | Released
    mean: Public | Released


@dataclass
class State(LockStepState):
    """``w`` is x_i, ``mean`` is y_i, ``gradient`` the last g_i; ``heard`` are pairs of this step and later ones."""

    mean: Model | None = None
    gradient: Model | None = None
    heard: dict[str, list[Pair]] = field(default_factory=dict)


class Tracker(LockStepNode):
    """One party, and its row of the mixing matrix W."""

    state: State

    def __init__(self, name: str, context: Context, settings: Settings, row: Row) -> None:
        super().__init__(name, context, settings, State, row.weights)
        self.row = row

    def update(self, gradient: Model) -> Effects:
        """Lines 1 and 2."""
        s = self.state
        news = gradient if s.gradient is None else gradient - s.gradient
        s.mean = (news if s.mean is None else s.mean + news).within()
        s.w, s.gradient = stepped(s.w, s.mean, -self.rate), gradient
        yield from self.send()
        yield from self.advance()

    def send(self) -> Effects:
        """Line 3."""
        s = self.state
        s.sent, s.probes = True, 0
        yield from self.tell(self.pair())

    def pair(self) -> Pair:
        s = self.state
        return Pair(s.step, s.w, 0.0 * s.w if s.mean is None else s.mean)

    @on(Pair, by="neighbours")
    def receive(self, sender: str, pair: Pair, now: float) -> Effects:
        s = self.state
        check_count(sender, "step", pair.step)
        for vector in (pair.model, pair.mean):
            check_model(vector, s.w)
        if s.over or pair.step < s.step:
            return  # of a step that was made without it
        # In lock-step a neighbour is one step ahead at most, and one that was away only knows its newest.
        s.heard[sender] = [*s.heard.get(sender, [])[-1:], pair]
        yield from self.unblock()

    @property
    def missing(self) -> frozenset[str]:
        s = self.state
        return frozenset(self.neighbours) - s.heard.keys() - s.away - s.left

    def average(self) -> None:
        """Line 4; the weight of a neighbour that is not there is the node's own."""
        s, heard = self.state, {name: pairs[0] for name, pairs in self.state.heard.items()}
        s.w = self.row.averaged(s.w, {name: pair.model for name, pair in heard.items()}).within()
        if s.mean is not None:
            s.mean = self.row.averaged(s.mean, {name: pair.mean for name, pair in heard.items()}).within()
        s.step, s.sent = s.step + 1, False
        later = {name: [pair for pair in pairs if pair.step >= s.step] for name, pairs in s.heard.items()}
        s.heard = {name: pairs for name, pairs in later.items() if pairs}

    def reminder(self) -> Message | None:
        return self.pair() if self.state.sent else None

    def close(self) -> None:
        self.state.heard = {}


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The nodes, by name, with Metropolis weights."""
    of = rows(context.graph, context.names, accelerated=False)
    return {name: Tracker(name, context, settings, of[name]) for name in context.names}


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The nodes, which the topology joins."""
    return Cast(names, topology=settings.topology)


ALGORITHM = Algorithm(Settings=Settings, build=build, cast=cast, clips=Clips(("fixed", "quantile")))
