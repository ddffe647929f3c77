"""Stochastic gradient push (SGP): decentralised SGD on directed graphs, by push-sum.

All nodes start at the same model, with weight 1. In each step k every node i

1. samples a batch and computes g~ = (sum of clipped gradients + noise) / B at z_i     (at the data side)
2. x_i <- x_i - eta g~                       (or the move that `Settings.optimizer` makes of g~)
3. sends (p_ji x_i, p_ji w_i) to its out-neighbours j of step k, and waits for those who send to it;
4. x_i <- sum_j p_ij x_j,   w_i <- sum_j p_ij w_j
5. z_i <- x_i / w_i.

P is column-stochastic: whoever sends divides what it has, so that nobody has to know who hears from whom, and the sums
over all nodes of x_i and of w_i stay as they are. A node keeps as large a share as each of its receivers gets.

A node holds z_i and w_i, and so a message is a weight and z_j: line 4 is the mean of models by weight, and line 2 is
z_i <- z_i - (eta / w_i) g~. Weights are integers, whole ones `WHOLE`, so that their sum is exact.

| symbol | here |
|---|---|
| z_i | `state.w` (the model) |
| w_i | `state.weight` / `WHOLE` |
| eta | `Settings.learning_rate` |
| P^(k) | arcs of step k of `Settings.topology`, in turn |

References
----------
Assran, Loizou, Ballas and Rabbat, "Stochastic gradient push for distributed deep learning", ICML 2019, Algorithm 1.
Kempe, Dobra and Gehrke, "Gossip-based computation of aggregate information", FOCS 2003 (push-sum).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Clips, few
from gossamer.algorithms.lock_step import LockStepNode, LockStepState
from gossamer.algorithms.nodes import LearnerSettings
from gossamer.errors import PeerError
from gossamer.protocol.effects import Send
from gossamer.protocol.messages import Message, check_count, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.topology.directed import OnePeerExponential
from gossamer.topology.topologies import Topology
from gossamer.vectors import Model, Public, Released, shifted, stepped

WHOLE = 1 << 40
"""Weight that a node begins with; a million nodes have less than 2^60 together."""


class Settings(LearnerSettings):
    """Settings of `push_sum`.

    Attributes
    ----------
    topology : Topology
        Graph of who sends to whom. It may be directed, and change from step to step.
    patience : float
        Seconds without a neighbour's share, after which it is asked whether it is there, then twice as many, and so on.
    updates_per_node : int, optional
        Steps.
    """

    name: Literal["push_sum"] = "push_sum"
    topology: Topology = OnePeerExponential()
    patience: float = Field(default=60.0, ge=1e-3)


@message("push_sum.share")
class Share(Message):
    """A part of the sender's weight, with its model, in a step; without weight it says that no more comes of it."""

    step: int
    weight: int
    model: Public | Released


@dataclass
class State(LockStepState):
    """State of a node.

    ``w`` is z_i and ``weight`` is w_i, of what it has not sent. ``held`` are shares for the present step and later
    ones, and ``heard`` the last step that each neighbour has sent its share of.
    """

    weight: int = WHOLE
    held: list[Share] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=dict)


Turns = Sequence[Collection[str]]
"""Neighbours in each step in turn."""


class PushSumNode(LockStepNode):
    """One party: its gradient steps, and its place among its neighbours.

    What comes late is added when it comes, since no weight may be lost. Who is away is sent nothing: its share stays
    with the sender.
    """

    state: State

    def __init__(
        self, name: str, context: Context, settings: Settings, neighbours: Sequence[str], out: Turns, into: Turns
    ) -> None:
        """``out`` are those that it sends to, and ``into`` those that it hears from."""
        super().__init__(name, context, settings, State, neighbours)
        self.out, self.into = out, into
        self.most = len(context.names) * WHOLE

    @property
    def missing(self) -> frozenset[str]:
        s = self.state
        due = {*self.into[s.step % len(self.into)]} - s.away - s.left
        return frozenset(name for name in due if s.heard.get(name, -1) < s.step)

    def update(self, move: Model) -> Effects:
        """Line 2, of z_i."""
        s = self.state
        s.w = stepped(s.w, move, -self.rate * WHOLE / s.weight)
        yield from self.send()
        yield from self.advance()

    def send(self) -> Effects:
        """Line 3: the same share for each receiver, and for this node what is left, which is never nothing."""
        s = self.state
        s.sent, s.probes = True, 0
        to = [name for name in self.out[s.step % len(self.out)] if name not in s.away and name not in s.left]
        share = s.weight // (len(to) + 1)
        s.weight -= share * len(to)
        for name in to:
            yield Send(name, Share(s.step, share, s.w))

    @on(Share, by="neighbours")
    def receive(self, sender: str, share: Share, now: float) -> Effects:
        s = self.state
        check_count(sender, "step", share.step)
        check_model(share.model, s.w)
        free = self.most - s.weight - sum(one.weight for one in s.held)
        if not 0 <= share.weight <= free:
            raise PeerError(f"{sender} sends a weight of {share.weight}, expected 0 to {free}, which all have together")
        s.heard[sender] = max(s.heard.get(sender, -1), share.step)
        if share.weight:
            s.held.append(share)
        if s.over:
            self.take()
        yield from self.unblock()

    def average(self) -> None:
        """Lines 4 and 5."""
        s = self.state
        self.take(s.step)
        s.step, s.sent = s.step + 1, False

    def take(self, last: int | None = None) -> None:
        """Add what is held, up to a ``last`` step."""
        s = self.state
        for one in s.held:
            if last is None or one.step <= last:
                s.weight += one.weight
                s.w = shifted(s.w, s.w, one.model, one.weight / s.weight).within()
        s.held = [] if last is None else [one for one in s.held if one.step > last]

    def reminder(self) -> Message:
        """Message that nothing comes of the steps that were made without the neighbour."""
        s = self.state
        return Share(s.step if s.sent else max(s.step - 1, 0), 0, s.w)

    def close(self) -> None:
        self.take()


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The nodes, by name."""
    names, steps = context.names, context.graph.steps
    out: dict[str, list[list[str]]] = {name: [[] for _ in steps] for name in names}
    into: dict[str, list[list[str]]] = {name: [[] for _ in steps] for name in names}
    for step, arcs in enumerate(steps):
        for i, j in sorted(set(map(tuple, arcs.tolist()))):
            out[names[i]][step].append(names[j])
            into[names[j]][step].append(names[i])
    neighbours = {name: [names[j] for j in context.graph.neighbours(i)] for i, name in enumerate(names)}
    return {n: PushSumNode(n, context, settings, neighbours[n], out[n], into[n]) for n in names}


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The nodes, which the topology joins."""
    return Cast(names, topology=settings.topology, directed=True)


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    cast=cast,
    clips=Clips(("fixed", "quantile")),
    small_runs=lambda settings: few((3, 4), (4, 3), (6, 2), batch_size=4),
)
