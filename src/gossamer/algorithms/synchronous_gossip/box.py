"""Synchronous gossip: D-PSGD, and Muffliato, which averages several times after each gradient step.

All nodes start at the same model. In each round every node i

1. samples a batch and computes g~ = sum of clipped gradients + noise at x_i         (at the data side)
2. x_i <- x_i - eta g~                       (or the move that `Settings.optimizer` makes of g~)
3. sends x_i to all its neighbours, and waits for theirs;
4. x_i <- sum_j W_ij x_j;

lines 3 and 4 K times (`gossip_steps`). So a round of all is X <- W^K (X - eta G~). D-PSGD is K = 1. With
``acceleration: chebyshev`` the k-th gossip step from the second on is x^(k+1) = gamma W x^k + (1 - gamma) x^(k-1).

| symbol | here |
|---|---|
| x_i | `state.w` |
| eta | `Settings.learning_rate` |
| W | Metropolis weights on `Settings.topology`: `rows` |
| K | `Settings.gossip_steps` |
| gamma | `momentum` of the spectral gap of W |

Lian et al. take the gradient of line 1 off the mean of line 4, X <- W X - eta G~; here the step is averaged too, as in
Muffliato. The mean of all models moves in the same way.

References
----------
Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017, Algorithm 1. Cyffers,
Even, Bellet and Massoulie, "Muffliato: Peer-to-peer privacy amplification for decentralized optimization and
averaging", NeurIPS 2022, arXiv 2206.05091.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Clips, few
from gossamer.algorithms.lock_step import LockStepNode, LockStepState
from gossamer.algorithms.paired_noise import PairedSettings, check, paired_plan
from gossamer.algorithms.plan import Terms
from gossamer.protocol.messages import Message, check_count, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.topology.graphs import Graph
from gossamer.topology.kinds import Ring
from gossamer.topology.mixing import Matrix, metropolis, spectral_gap
from gossamer.topology.topologies import Topology
from gossamer.vectors import Model, Public, Released, mixed, shifted, stepped


class Settings(PairedSettings):
    """Settings of `d_psgd` and `muffliato`.

    Attributes
    ----------
    topology : Topology
        Graph of who exchanges models with whom.
    gossip_steps : int
        K, how often models are averaged after each gradient step. `d_psgd` has 1, `muffliato` 5 by default.
    acceleration : {"none", "chebyshev"}
        Way in which several gossip steps follow each other; `muffliato` has ``chebyshev`` by default.
    patience : float
        Seconds without a neighbour's model, after which it is asked whether it is there, then twice as many, and so on.
    updates_per_node : int, optional
        Rounds.
    """

    name: Literal["d_psgd", "muffliato"] = "d_psgd"
    topology: Topology = Ring()
    gossip_steps: int = Field(default=1, ge=1, le=1000)
    acceleration: Literal["none", "chebyshev"] = "none"
    patience: float = Field(default=60.0, ge=1e-3)

    @classmethod
    def _implied(cls, said: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"gossip_steps": 5, "acceleration": "chebyshev"} if said.get("name") == "muffliato" else {}

    def _problems(self) -> Iterator[str]:
        if self.name == "d_psgd" and (self.gossip_steps, self.acceleration) != (1, "none"):
            yield (
                f"d_psgd averages once a round, found gossip_steps {self.gossip_steps} and acceleration "
                f"{self.acceleration}; leave them out, or take muffliato"
            )


# The nodes make gossip steps in lock-step with their neighbours. Messages arrive once and in order, so a neighbour's
# first iterate that is not older than the present gossip step is the one to be averaged: of this very step, unless the
# neighbour has gone on alone meanwhile. At most two iterates of a neighbour are kept, that one and the newest.
#
# Who is away has its weight go to the node's own model until it is heard again. Who comes back makes the rounds that it
# lacks at its neighbours' newest iterates.


@message("synchronous_gossip.iterate")
class Iterate(Message):
    """The sender's vector in a gossip step; ``step`` counts those of all rounds, from 0."""

    step: int
    model: Public | Released


@dataclass(frozen=True)
class Row:
    """A node's row of the mixing matrix W.

    Attributes
    ----------
    weights : mapping of str to float
        W_ij of each neighbour; what is left of 1 is the node's own.
    momentum : float
        gamma of the accelerated recursion; 1 for plain averaging.
    """

    weights: Mapping[str, float]
    momentum: float = 1.0

    def averaged(self, own: Model, heard: Mapping[str, Model]) -> Model:
        """Return (W X)_i: the weight of a neighbour that is not ``heard`` is the node's ``own``."""
        there = [name for name in self.weights if name in heard]
        return mixed(own, [heard[name] for name in there], [self.weights[name] for name in there])

    def accelerated(self, mixed: Model, before: Model | None) -> Model:
        """Return gamma (W X)_i + (1 - gamma) x_i of the step ``before``, if there is one in this round."""
        if before is None or self.momentum == 1.0:
            return mixed
        return shifted(before, before, mixed, self.momentum)


def momentum(gap: float) -> float:
    """Weight of the accelerated recursion, 2 (1 - sqrt(gap (1 - gap/4))) / (1 - gap/2)^2, for a spectral ``gap``.

    References
    ----------
    Cyffers, Even, Bellet and Massoulie, "Muffliato", NeurIPS 2022, Algorithm 1; it is the second-order recursion of
    Muthukrishnan, Ghosh and Schultz (1998), 2 / (1 + sqrt(1 - r^2)), for r = 1 - gap/2.
    """
    return 2.0 / (1.0 + math.sqrt(gap * (1.0 - gap / 4.0)))


def rows(graph: Graph, names: tuple[str, ...], *, accelerated: bool) -> dict[str, Row]:
    """Return the rows of the graph's Metropolis weights, by name."""
    matrix = metropolis(graph)
    gamma = momentum(spectral_gap(matrix)) if accelerated else 1.0
    found = {}
    for i, name in enumerate(names):
        there = zip(matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]], matrix.data[matrix.indptr[i] :])
        found[name] = Row({names[j]: float(weight) for j, weight in sorted(there) if j != i and weight > 0}, gamma)
    return found


@dataclass
class State(LockStepState):
    """State of a node.

    ``w`` is its iterate and ``before`` that of the gossip step before, in the same round. ``heard`` holds each
    neighbour's iterate for the present step and ``ahead`` the newest one after that, with their steps.
    """

    before: Model | None = None
    heard: dict[str, Model] = field(default_factory=dict)
    heard_of: dict[str, int] = field(default_factory=dict)
    ahead: dict[str, Model] = field(default_factory=dict)
    ahead_of: dict[str, int] = field(default_factory=dict)


class SynchronousNode(LockStepNode):
    """One party: its gradient steps, and its place among its neighbours."""

    state: State

    def __init__(self, name: str, context: Context, settings: Any, row: Row) -> None:
        super().__init__(name, context, settings, State, row.weights)
        self.row = row
        self.steps_a_round = settings.gossip_steps

    @property
    def missing(self) -> frozenset[str]:
        s = self.state
        return frozenset(self.neighbours) - s.heard.keys() - s.away - s.left

    def update(self, move: Model) -> Effects:
        """Line 2."""
        s = self.state
        s.w = stepped(s.w, move, -self.rate)
        yield from self.send()
        yield from self.advance()

    def send(self) -> Effects:
        """Line 3: the iterate of a gossip step, for all neighbours."""
        s = self.state
        s.sent, s.probes = True, 0
        yield from self.tell(Iterate(s.step, s.w))

    @on(Iterate, by="neighbours")
    def receive(self, sender: str, iterate: Iterate, now: float) -> Effects:
        s = self.state
        check_count(sender, "step", iterate.step)
        check_model(iterate.model, s.w)
        if s.over or iterate.step < s.step:
            return  # of a step that was made without it
        if sender not in s.heard:
            s.heard[sender], s.heard_of[sender] = iterate.model, iterate.step
            # Most messages are not the last of a step, and to find who is missing takes longer than to count.
            if s.sent and len(s.heard) + len(s.away) + len(s.left) >= len(self.neighbours) and not self.missing:
                yield from self.advance()
        elif iterate.step > s.heard_of[sender]:
            s.ahead[sender], s.ahead_of[sender] = iterate.model, iterate.step

    def average(self) -> None:
        """Line 4."""
        s = self.state
        s.before, s.w = s.w, self.row.accelerated(self.row.averaged(s.w, s.heard), s.before).within()
        s.step, s.sent = s.step + 1, False
        if s.step % self.steps_a_round == 0:
            s.before = None
        for name in [name for name, of in s.heard_of.items() if of < s.step]:
            del s.heard[name], s.heard_of[name]
            if name in s.ahead:
                s.heard[name], s.heard_of[name] = s.ahead.pop(name), s.ahead_of.pop(name)

    def reminder(self) -> Message | None:
        s = self.state
        return Iterate(s.step, s.w) if s.sent else None

    def close(self) -> None:
        s = self.state
        s.heard, s.heard_of, s.ahead, s.ahead_of = {}, {}, {}, {}


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The nodes, by name."""
    of = rows(context.graph, context.names, accelerated=settings.acceleration == "chebyshev")
    return {name: SynchronousNode(name, context, settings, of[name]) for name in context.names}


def cast(settings: Settings, names: tuple[str, ...]) -> Cast:
    """The nodes, which the topology joins."""
    return Cast(names, topology=settings.topology, mixing=lambda graph: mixing(settings, graph, names))


def mixing(settings: Settings, graph: Graph, names: tuple[str, ...]) -> Matrix:
    """W'W of one gossip step."""
    matrix = metropolis(graph)
    return matrix.T @ matrix


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    cast=cast,
    terms=lambda settings: Terms(paired=settings.noise == "pairwise"),
    check=check,
    plan=lambda one: paired_plan(one, lambda: mixing(one.settings, one.graph, one.names), one.settings.gossip_steps),
    clips=Clips(("fixed", "quantile")),
    small_runs=lambda settings: few((3, 4), (4, 3), (6, 2), batch_size=4, gossip_steps=min(settings.gossip_steps, 2)),
)
