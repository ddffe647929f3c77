"""What every algorithm offers, and what it is given.

An algorithm is a module with a settings class and five functions:

| name | what it gives |
|---|---|
| `Settings` | a frozen pydantic model with ``name``, ``nodes``, ``updates_per_node`` and ``batch_size`` |
| `build(settings, context)` | the nodes, by name |
| `model_of(node)` | the model this node would deploy |
| `output(nodes)` | the model of the whole run, such as the mean |
| `invariants(nodes, in_flight)` | vectors that only a node's own update may change, by name |
| `claims(settings, facts)` | what the paper claims of such a run, never its guarantee |

and its place in the table and the union of ``algorithms/__init__.py``. The suite in `gossamer.testing.contracts`
runs on each.

A module may have more, where the defaults do not fit:

| name | default | what it says |
|---|---|---|
| `servers(settings)` | ``()`` | nodes beside those that hold data; `build` puts them last |
| `ROLE` | ``"worker"`` | what nodes with data are called in invitations; others by the first word of their names |
| `MECHANISMS` | all | the values of ``privacy.mechanism`` that it can do with |
| `workload(settings, shard_sizes, seed)` | `Batches` | examples of each update, where there is no one ``batch_size`` |
| `CLIP_POLICIES` | ``("fixed",)`` | the values of ``privacy.clip.policy`` that its nodes follow; others are refused |
| `DEFAULT_CLIP` | ``FixedClip(bound=1)`` | what ``privacy.clip`` is where there is Gaussian noise and nothing is said |
| `first_clip(settings)` | ``privacy.clip``'s | the clip at the start, where that says none |
| `updates(servers)` | computations | how many updates the servers made, where a computation is not one |
| `members(settings)` | nodes with data | whom ``topology`` joins |
| `units(settings, names)` | none | the unit of each node that is in one; what is `Confined` stays inside |
| `GROWS` | False | whether nodes may join a run that has begun: no state depends on how many there are |
| `holders(settings)` | nodes with data | whose models are tested |
| `unit_models(nodes)` | nothing | the models of units, whose distances are measured |
| `remarks(nodes)` | nothing | warnings at the end of a run, a line each |
| `report(nodes)` | nothing | figures of its own for the summary, as plain data |
| `advice(settings, context, updates)` | nothing | warnings about a run of so many updates, a line each |

So may its settings, as fields or properties:

| name | default | what it says |
|---|---|---|
| `noiseless` | False | whether this is the algorithm without noise |
| `decided(private)` | itself | the settings with defaults filled in that depend on whether there is noise |
| `proved` | True | whether a guarantee is proved for what is released |
| `sampling` | ``privacy.sampling``'s | how examples are drawn |
| `sensitivity` | 1 | how far one example moves what is released, in clips |
| `gradients` | None | a bound on the run's length, beside ``updates_per_node`` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gossamer.errors import DataError
from gossamer.privacy.claims import Claim
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.graph_bounds import Noise
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.tasks import Query
from gossamer.protocol.messages import Message
from gossamer.protocol.node import Node
from gossamer.topology.graphs import Graph
from gossamer.vectors import Model, Public


class Workload(Protocol):
    """How many examples the updates of each node take, in expectation: public, and known before the run."""

    @property
    def quota(self) -> int | None:
        """Updates of each node, where the settings bound them."""
        ...

    def of(self, name: str, update: int) -> int:
        """Examples of a node's ``update`` (from 0)."""
        ...

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        """How many of a node's first ``updates`` take how many examples."""
        ...

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        """How many updates of each node cover its shard so often."""
        ...

    def check(self, updates: int) -> None:
        """Raise SpecError unless every node can make so many updates."""
        ...


@dataclass(frozen=True)
class Batches:
    """The workload of most algorithms: batches of one size."""

    batch_size: int
    shard_sizes: Mapping[str, int]
    quota: int | None = None

    def of(self, name: str, update: int) -> int:
        return self.batch_size

    def counts(self, name: str, updates: int) -> Mapping[int, int]:
        return {self.batch_size: updates}

    def updates_in(self, epochs: float) -> Mapping[str, int]:
        # Rounded first: 20 epochs of 0.1 * 3 updates are 6, not the 7 that floating point makes of them.
        return {n: math.ceil(round(epochs * (size / self.batch_size), 6)) for n, size in self.shard_sizes.items()}

    def check(self, updates: int) -> None:
        for name, size in self.shard_sizes.items():
            if size < self.batch_size:
                raise DataError(
                    f"{name} holds {size} examples, fewer than algorithm.batch_size {self.batch_size}; "
                    "lower batch_size, use fewer nodes or another partition"
                )


@dataclass(frozen=True)
class Context:
    """What is known to all before a run starts; public, every bit of it.

    Attributes
    ----------
    seed : int
        Of the public randomness, such as who asks whom.
    names : tuple of str
        The nodes, in the order of the graph's numbers.
    graph : Graph
        Who may talk to whom.
    initial : Public
        The common starting model, [size].
    queries : mapping of str to Query
        How each node computes its gradients.
    shard_sizes : mapping of str to int
        Number of examples at each node.
    quotas : mapping of str to int, or None
        How many updates each node makes; None where only a deadline or an observer ends the run.
    deadline : float or None
        Seconds after the start at which nodes stop updating.
    updates : int or None
        After how many updates in all a server ends the run; None where it does not.
    clipping : Clipping
        How the clip of a query moves.
    agent_noise : float
        What agents add to updates that are masked, in units of an update's most length; 0 adds nothing.
    run : str
        Name of a deployed run, whose parties have identities: agents sign their keys for masked sums, for this run
        alone. Empty in a simulation, which has none.
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


@dataclass(frozen=True)
class InFlight:
    """A message that was sent and has not been received."""

    sender: str
    to: str
    message: Message


@dataclass(frozen=True)
class Facts:
    """What a claim is computed from.

    Attributes
    ----------
    nodes : int
        K.
    smallest_shard : int
        n1, the least number of examples at a node.
    batch_size : float
        B, the expected batch size.
    updates : int
        T, over all nodes.
    mechanism : Mechanism
        Of the node with the least noise; its clip is the one at the start.
    delta : float
        At which claims are stated.
    workload : Workload, optional
        Examples of each update.
    smallest : str
        The node with the least number of examples.
    releases : int
        How many it makes.
    noise : CorrelatedNoise or RandomNoise, optional
        What goes between servers of federated units.
    """

    nodes: int
    smallest_shard: int
    batch_size: float
    updates: int
    mechanism: Mechanism
    delta: float
    workload: Workload | None = None
    smallest: str = ""
    releases: int = 0
    noise: Noise | None = None


class Algorithm(Protocol):
    """The shape of an algorithm's module, without what it may leave out."""

    Settings: type[Any]

    def build(self, settings: Any, context: Context) -> dict[str, Node]: ...
    def model_of(self, node: Node) -> Model: ...
    def output(self, nodes: Mapping[str, Node]) -> Model: ...
    def invariants(self, nodes: Mapping[str, Node], in_flight: Sequence[InFlight]) -> dict[str, Any]: ...
    def claims(self, settings: Any, facts: Facts) -> list[Claim]: ...


def mean(models: Sequence[Model]) -> Model:
    """The average of ``models``, accumulated in double precision where they are arrays."""
    total = models[0]
    for model in models[1:]:
        total = total + model
    average: Model = total / len(models)
    return average


def updates_per_epoch(context: Context, name: str) -> float:
    """How many updates of node ``name`` cover its shard once, in expectation."""
    return context.shard_sizes[name] / context.queries[name].normaliser
