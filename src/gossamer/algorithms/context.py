"""Inputs of algorithms, and what is asked of how they work."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gossamer.errors import SpecError, counted
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.privacy.tasks import Query
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.randomness import Stream
from gossamer.topology.graphs import Graph
from gossamer.vectors import Model, Public


class Workload(Protocol):
    """Expected numbers of examples that the updates of each node take: public, and known before the run."""

    @property
    def quota(self) -> int | None:
        """Updates of each node, where the settings bound them."""

    def of(self, name: str, update: int) -> int:
        """Examples of a node's ``update`` (from 0)."""

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        """Numbers of a node's first ``updates``, by how many examples they take."""

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        """Number of updates of each node that cover its shard so often."""

    def check(self, updates: int) -> None:
        """Raise SpecError unless every node can make so many updates."""


@dataclass(frozen=True)
class Batches:
    """The workload of nodes whose updates all take as many examples.

    Attributes
    ----------
    batch_size : int or mapping of str to int
        Examples of an update, or of each step of one: the same for all nodes, or each node's own.
    shard_sizes : mapping of str to int
        Number of examples at each node.
    quota : int, optional
        Updates of each node, where the settings bound them.
    steps : mapping of str to int
        Samples that each node draws for an update; 1 where it is left out.
    passes : bool
        Whether nodes go over their examples again and again, so that an update may take more than there are.
    """

    batch_size: int | Mapping[str, int]
    shard_sizes: Mapping[str, int]
    quota: int | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    passes: bool = False

    def of(self, name: str, update: int) -> int:
        return self.batch_size if isinstance(self.batch_size, int) else self.batch_size[name]

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        return {self.of(name, 0): updates * self.steps.get(name, 1)}

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        taken = {name: self.of(name, 0) * self.steps.get(name, 1) for name in self.shard_sizes}
        # Rounded first: 20 epochs of 0.1 * 3 updates are 6, not the 7 that floating point makes of them.
        return {n: math.ceil(round(epochs * (size / taken[n]), 6)) for n, size in self.shard_sizes.items()}

    def check(self, updates: int) -> None:
        for name, size in self.shard_sizes.items():
            if size < self.of(name, 0) and not self.passes:
                raise SpecError(
                    f"{name} holds {counted(size, 'example')}, fewer than algorithm.batch_size {self.batch_size}; "
                    "lower batch_size, use fewer nodes or another partition"
                )


@dataclass(frozen=True)
class Context:
    """Knowledge that all have before a run starts; public, every bit of it.

    Attributes
    ----------
    seed : int
        Seed of the public randomness, such as who asks whom.
    names : tuple of str
        The nodes, in the order of the graph's numbers.
    graph : Graph
        Graph that joins those who may talk to each other.
    initial : Public
        The common starting model, [size].
    queries : mapping of str to Query
        Query by which each node computes its gradients.
    shard_sizes : mapping of str to int
        Number of examples at each node.
    quotas : mapping of str to int, or None
        Number of updates that each node makes; None where only a deadline or an observer ends the run.
    deadline : float or None
        Seconds after the start at which nodes stop updating.
    updates : int or None
        Number of updates in all after which a server ends the run; None where it does not.
    clipping : Clipping
        Policy by which the clip of a query moves.
    agent_noise : float
        Noise that agents add to updates that are masked, in units of an update's most length; 0 adds nothing.
    run : str
        Name of a deployed run, whose parties have identities: agents sign their keys for masked sums, for this run
        alone. Empty in a simulation, which has none.
    lengths : ModelLengths or None
        Lengths that models of an honest run can have, where sums are masked.
    """

    seed: int
    names: tuple[str, ...]
    graph: Graph
    initial: Public
    queries: Mapping[str, Query]
    shard_sizes: Mapping[str, int]
    quotas: Mapping[str, int] | None = None
    deadline: float | None = None
    updates: int | None = None
    clipping: Clipping = field(default_factory=Clipping)
    agent_noise: float = 0.0
    run: str = ""
    lengths: ModelLengths | None = None

    def quota(self, name: str) -> int | None:
        """Number of updates that node ``name`` makes at most; None where nothing says it."""
        return None if self.quotas is None else self.quotas[name]


@dataclass(frozen=True)
class InFlight:
    """A message that was sent and has not been received."""

    sender: str
    to: str
    message: Message


Staleness = Callable[[Node, Message], int | None] | Literal["computing"] | None
"""Measure of how stale updates are, for figures of a run; no node knows of it.

A function says of a message that a node is about to receive how many of that node's updates it is behind; None where it
carries no update. ``"computing"`` counts the updates that the run makes while a node computes one of its own, where no
single node counts them all. None is an algorithm that no update is stale in.
"""


def draw(coins: Stream, names: tuple[str, ...], count: int, round: int) -> tuple[str, ...]:
    """So many of ``names`` for a round, in their order: everyone can follow the draws, which depend on no data."""
    if count == len(names):
        return names
    drawn = coins.at(round).choice(len(names), count, replace=False, shuffle=False)
    return tuple(names[number] for number in sorted(drawn.tolist()))


def mean(models: Sequence[Model]) -> Model:
    """The average of ``models``, accumulated in double precision where they are arrays."""
    total = models[0]
    for model in models[1:]:
        total = total + model
    average: Model = total / len(models)
    return average


def updates_per_epoch(context: Context, name: str, *, by_all: bool = False) -> float:
    """Expected number of updates of node ``name`` that cover its shard once; ``by_all`` nodes, that cover all shards.

    The latter takes batches of all nodes to be as large as this one's.
    """
    examples = sum(context.shard_sizes.values()) if by_all else context.shard_sizes[name]
    return examples / context.queries[name].normaliser
