"""Parts of a run, as prepared from its spec: data, shards, objective, graph, starting point."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.context import Context, Workload
from gossamer.algorithms.interface import Algorithm, Cast
from gossamer.algorithms.problem import Estimated, Holdings, sampling_of
from gossamer.algorithms.table import ALGORITHMS
from gossamer.arrays import IndexArray
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.data.partition import Natural
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.objective import Objective
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.sampling import BatchSampling
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.privacy.tasks import Query
from gossamer.protocol.node import Node
from gossamer.randomness import derive, stream
from gossamer.runtimes.world import World
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import rho
from gossamer.vectors import Blank, Public

_MOST_MIXED = 2000
"""Nodes of the largest graph whose eigenvalues are computed: within a second."""


@dataclass(frozen=True)
class Prepared:
    """Everything public and private that a run needs, before any noise is decided.

    Attributes
    ----------
    experiment : Experiment
        The spec.
    dataset : Dataset
        Training and test examples.
    names : tuple of str
        The nodes.
    shards : tuple of index arrays
        The rows of the training split that each node holds.
    objective : Objective
        Objective that is minimised.
    graph : Graph
        Graph of who may talk to whom: of the nodes, or of those that the algorithm joins, such as servers of units.
    estimates : Estimated or None
        Constants guessed from public or synthetic examples, because the spec does not say them.
    run : str
        Name of the deployed run, whose parties have identities; empty in a simulation.
    holdings : Holdings or None
        Places of persons' examples, where the data say whose they are. Of other parties' data nobody knows.
    pretrained : Public or None
        The model of ``objective.pretrained``, if there is one.
    public : Split or None
        The public examples of ``evaluation.public_path``, if there are some.
    code : bytes
        Digest of a module that was given from memory; empty if none was.
    blank : ndarray of int64 or None
        Rows whose slots hold nothing, as an audit has them: they count in the sizes of shards and are sampled, and have
        no gradient.
    """

    experiment: Experiment
    dataset: Dataset
    names: tuple[str, ...]
    shards: tuple[npt.NDArray[np.int64], ...]
    objective: Objective
    graph: Graph
    estimates: Estimated | None = None
    run: str = ""
    holdings: Holdings | None = None
    pretrained: Public | None = field(default=None, repr=False)
    public: Split | None = field(default=None, repr=False)
    code: bytes = b""
    blank: IndexArray | None = field(default=None, repr=False)

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm."""
        return ALGORITHMS[self.experiment.algorithm.name]

    @cached_property
    def cast(self) -> Cast:
        """Everybody in the run, by role."""
        return self.algorithm.cast(self.experiment.algorithm, self.names)

    @property
    def owners(self) -> tuple[str, ...] | None:
        """Owners of the nodes' examples, in order, where the spec names them: a column alone makes no name public."""
        scheme = self.experiment.partition
        return scheme.owners if isinstance(scheme, Natural) else None

    @property
    def world(self) -> World:
        """The world that the nodes live in: clock, links, faults."""
        spec = self.experiment
        vector = self.objective.size * self.objective.dtype.itemsize
        # Models, sums, noise and answers of a call: about four vectors for each computation gathered.
        width = min(spec.compute.width, max(1, spec.compute.memory_mib * 2**20 // (4 * vector)))
        told = spec.terms.told
        return World(
            spec.speeds, spec.links, spec.faults, public_seed(spec), width, self.cast.servers, self.units, told
        )

    @cached_property
    def units(self) -> dict[str, str]:
        """The federated unit of each node that is in one."""
        return dict(self.cast.trust)

    @cached_property
    def rho(self) -> float | None:
        """Factor that an averaging leaves of squared distances; None where nobody says, or it takes too long."""
        mixing = self.cast.mixing
        if mixing is None or self.graph.nodes > _MOST_MIXED:
            return None
        return round(rho(mixing(self.graph)), 12)

    @cached_property
    def initial(self) -> Public:
        """The common starting model."""
        return self.drawn_initial()

    def drawn_initial(self) -> Public:
        """The same, drawn anew if it is drawn."""
        if self.pretrained is not None:
            return self.pretrained
        vector = self.objective.initial(stream(public_seed(self.experiment), "initial model"))
        return Public(np.asarray(vector, self.objective.dtype))

    @cached_property
    def shard_sizes(self) -> dict[str, int]:
        """Examples at each node; public."""
        return {name: len(shard) for name, shard in zip(self.names, self.shards, strict=True)}

    @cached_property
    def workload(self) -> Workload:
        """The number of examples that each update of each node takes.

        Raises
        ------
        CallerError
            If a node cannot make the first update, or the settings do not fit together.
        """
        spec = self.experiment
        found = self.algorithm.workload(spec.algorithm, self.shard_sizes, public_seed(spec))
        found.check(1)
        return found

    def contacts(self, name: str) -> tuple[str, ...]:
        """Nodes that ``name`` exchanges messages with from the start, in order.

        Its children, where the algorithm has it above others, and its parent; without one, its neighbours in the graph,
        if that joins it.
        """
        cast = self.cast
        children = tuple(child for child, parent in cast.parents.items() if parent == name)
        if name in cast.parents:
            return (*children, cast.parents[name])
        if name not in cast.joined:
            return children
        return (*children, *(cast.joined[number] for number in self.graph.neighbours(cast.joined.index(name))))

    def sampling(self, name: str, batch: int) -> BatchSampling:
        """Return the scheme by which node ``name`` draws so many examples."""
        return sampling_of(self.experiment, self.shard_sizes[name], batch)

    def context(
        self,
        mechanisms: Mapping[str, Mechanism],
        quotas: Mapping[str, int] | None,
        *,
        blank: bool = False,
        lengths: ModelLengths | None = None,
    ) -> Context:
        """Return the context that nodes are built from; with ``blank`` vectors for a run of the schedule alone."""
        spec = self.experiment
        workload = self.workload
        batches = {name: workload.of(name, 0) for name in self.names}
        initial = Public(Blank(self.objective.size, self.objective.dtype)) if blank else self.initial
        return Context(
            seed=public_seed(spec),
            names=self.names,
            graph=self.graph,
            initial=initial,
            queries=self._queries(batches, mechanisms),
            shard_sizes=self.shard_sizes,
            quotas=quotas,
            deadline=spec.stop.virtual_seconds,
            updates=spec.stop.updates,
            clipping=self.clipping,
            agent_noise=spec.privacy.agent_noise or 0.0,
            run=self.run,
            lengths=lengths,
        )

    def _queries(self, batches: Mapping[str, int], mechanisms: Mapping[str, Mechanism]) -> dict[str, Query]:
        """A query of each node; those that are equal are one object, of which what follows is computed once."""
        found: dict[Query, Query] = {}
        queries = {n: Query(self.sampling(n, batch), mechanisms[n], float(batch)) for n, batch in batches.items()}
        return {name: found.setdefault(query, query) for name, query in queries.items()}

    @property
    def count(self) -> Callable[[Mapping[str, Node]], int] | None:
        """Counter of the updates that nodes have made, where a computation is not one."""
        return self.algorithm.figures.count

    @property
    def clipping(self) -> Clipping:
        """The policy by which clips move; without a clip they do not."""
        clip = self.experiment.privacy.clip
        return Clipping() if clip is None else Clipping(clip)

    def advice(self, mechanisms: Mapping[str, Mechanism], quotas: Mapping[str, int] | None, updates: int) -> list[str]:
        """Warnings of the algorithm before a run of so many updates."""
        return self.algorithm.figures.advice(self.experiment.algorithm, self.context(mechanisms, quotas), updates)


def public_seed(experiment: Experiment) -> int:
    """The seed of what all nodes know: topology, partition, initial model, speeds, links, who asks whom."""
    return derive(experiment.seed, "public")
