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
| W | Metropolis weights on `Settings.topology`: `averaging.rows` |
| K | `Settings.gossip_steps` |
| gamma | `averaging.momentum` of the spectral gap of W |

Lian et al. take the gradient of line 1 off the mean of line 4, X <- W X - eta G~; here the step is averaged too, as in
Muffliato. The mean of all models moves in the same way.

References
----------
Lian et al., "Can decentralized algorithms outperform centralized algorithms?", NeurIPS 2017, Algorithm 1. Cyffers,
Even, Bellet and Massoulie, "Muffliato: Peer-to-peer privacy amplification for decentralized optimization and
averaging", NeurIPS 2022, arXiv 2206.05091.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Clips, SmallRuns, small
from gossamer.algorithms.nodes import mean_model, model_of
from gossamer.algorithms.optimizer import ConstantRate, LearningRate, Optimizer
from gossamer.algorithms.synchronous_gossip.node import SynchronousNode, rows
from gossamer.protocol.node import Node
from gossamer.section import Composite
from gossamer.topology.builders import Ring, Topology
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import Matrix, metropolis


class Settings(Composite):
    """Settings of `d_psgd` and `muffliato`.

    Attributes
    ----------
    nodes : int
        The number of nodes.
    topology : Topology
        Graph of who exchanges models with whom.
    learning_rate : float or schedule
        eta, for the mean gradient.
    optimizer : str or mapping, optional
        Rule for what becomes of the noisy gradient; ``sgd`` takes it as it is. Each node has a memory of its own.
    gossip_steps : int
        K, how often models are averaged after each gradient step. `d_psgd` has 1, `muffliato` 5 by default.
    acceleration : {"none", "chebyshev"}
        Way in which several gossip steps follow each other; `muffliato` has ``chebyshev`` by default.
    patience : float
        Seconds without a neighbour's model, after which it is asked whether it is there, then twice as many, and so on.
    batch_size : int
        B, the expected number of examples in a batch; a node samples each of its n examples with probability B/n.
    updates_per_node : int, optional
        Rounds.
    """

    name: Literal["d_psgd", "muffliato"] = "d_psgd"
    nodes: int = Field(default=8, ge=1, le=1_000_000)
    topology: Topology = Ring()
    learning_rate: LearningRate = ConstantRate(initial=0.5)
    optimizer: Optimizer = None
    gossip_steps: int = Field(default=1, ge=1, le=1000)
    acceleration: Literal["none", "chebyshev"] = "none"
    patience: float = Field(default=60.0, ge=1e-3)
    batch_size: int = Field(default=32, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)

    @model_validator(mode="before")
    @classmethod
    def _of_muffliato(cls, content: Any) -> Any:
        several = isinstance(content, Mapping) and content.get("name") == "muffliato"
        return {"gossip_steps": 5, "acceleration": "chebyshev", **content} if several else content

    @model_validator(mode="after")
    def _once(self) -> Settings:
        if self.name == "d_psgd" and (self.gossip_steps, self.acceleration) != (1, "none"):
            raise ValueError(
                f"d_psgd averages once a round, found gossip_steps {self.gossip_steps} and acceleration "
                f"{self.acceleration}; leave them out, or take muffliato"
            )
        return self


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
    squared: Matrix = matrix.T @ matrix
    return squared


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=mean_model,
    cast=cast,
    clips=Clips(("fixed", "quantile")),
    small_runs=lambda settings: SmallRuns(
        small((3, 4), (4, 3), (6, 2)),
        fitting={"batch_size": 4, "gossip_steps": min(settings.gossip_steps, 2)},
    ),
)
