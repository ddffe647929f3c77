"""Preparing a run: from its spec to its data, shards, objective and graph; and to its nodes and data sides."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import numpy as np

from gossamer.algorithms.context import Context, Workload
from gossamer.algorithms.interface import Algorithm, Cast
from gossamer.algorithms.plan import Holdings, Plan, sampling_of
from gossamer.algorithms.table import ALGORITHMS
from gossamer.arrays import IndexArray, IntArray
from gossamer.data.datasets import Dataset, load_dataset, undeclared_labels, unlearnable, unscaled
from gossamer.data.examples import Split, check_persons
from gossamer.data.memory import Data
from gossamer.data.partition import Natural, partition
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.errors import DataError, ModelError, RunWarning, SpecError, beginning
from gossamer.experiment.preparation.objective import objective_of, read_pretrained, with_estimates
from gossamer.experiment.specs.spec import NOTHING_FROZEN, Experiment
from gossamer.objectives.objective import Objective
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.mechanisms import BatchSampling, Mechanism
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.privacy.tasks import Query
from gossamer.protocol.node import Node
from gossamer.randomness import derive, stream
from gossamer.runtimes.world import World, check_world
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Side
from gossamer.sides.pool import Machine, Pool, open_pool
from gossamer.sides.receipts import Noting
from gossamer.sides.samples import ShardRows
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import rho
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Blank, Public

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


# Nodes of a run, and data sides with their ledgers, by its plan.

RUN = "run"
"""The purpose of all that is no audit."""


SECRET_BYTES = 16


@dataclass(frozen=True, slots=True)
class NoiseSecret:
    """128 bits that nobody else may know; they are not shown when printed.

    Attributes
    ----------
    value : bytes [16]
        The bits.

    Raises
    ------
    SpecError
        If they are not 16 bytes.
    """

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.value, bytes) or len(self.value) != SECRET_BYTES:
            raise SpecError(
                f"a noise secret has {SECRET_BYTES} bytes, found something else; NoiseSecret.fresh() draws one"
            )

    @classmethod
    def fresh(cls) -> NoiseSecret:
        """A new one, from the operating system's randomness."""
        return cls(token_bytes(SECRET_BYTES))

    def derive(self, *labels: str) -> int:
        """A seed of 128 bits for one purpose: keyed BLAKE2b, so nobody without the secret can tell it from random bits.

        References
        ----------
        RFC 7693, section 2.9, keyed hashing.
        """
        message = json.dumps(labels).encode()  # keeps ("a", "b") and ("ab",) apart
        digest = hashlib.blake2b(message, key=self.value, digest_size=SECRET_BYTES, person=b"gossamer noise").digest()
        return int.from_bytes(digest, "little")


@dataclass(frozen=True)
class Sources:
    """Sources of a run's data sides, beside what is prepared and planned.

    Attributes
    ----------
    noise : int
        Seed of noise and masks, and of batches too, where those have none of their own.
    samples : int or None
        Seed of batches.
    machine : callable
        Maker of a data side; see `open_pool`.
    ledgers : mapping of str to Ledger
        Ledgers that were charged before the run.
    book : Noting or None
        Book in which receipts are noted.
    secret : NoiseSecret or None
        Secret that they follow from; None where nothing is secret.
    purpose : str
        Purpose that decides gradients beside what is prepared; runs that differ in it share no noise.
    """

    noise: int
    samples: int | None = None
    machine: Machine = Side
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    book: Noting | None = None
    secret: NoiseSecret | None = None
    purpose: str = RUN


def nodes_of(prepared: Prepared, plan: Plan) -> dict[str, Node]:
    """Fresh nodes of a run, by name."""
    context = prepared.context(plan.mechanisms, plan.quotas, lengths=plan.lengths)
    return prepared.algorithm.build(prepared.experiment.algorithm, context)


def sides_of(prepared: Prepared, plan: Plan, sources: Sources) -> Pool:
    """The data sides of all parties of a simulation, with ledgers for what is planned.

    Raises
    ------
    SpecError
        If a party whose updates are made on all its examples has a row that is blank.
    """
    home = Simulated(sources.noise, sources.ledgers, sources.samples, sources.book)
    objective, data, trust = prepared.objective, prepared.dataset.train, prepared.cast.trust
    return open_pool(plan.sides, shards_of(prepared), objective, data, home, sources.machine, trust)


def shards_of(prepared: Prepared) -> dict[str, ShardRows]:
    """The rows of each node with data, of which some may be blank."""
    return {
        name: ShardRows.of(rows, prepared.blank) for name, rows in zip(prepared.names, prepared.shards, strict=True)
    }


# Parts of a run, as prepared from its spec: data, shards, objective, graph, starting point.

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
    estimates : str
        Line on constants guessed from synthetic examples, because the spec does not say them; empty if it does.
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
    began : float
        Moment on the machine's clock at which preparing began.
    """

    experiment: Experiment
    dataset: Dataset
    names: tuple[str, ...]
    shards: tuple[IntArray, ...]
    objective: Objective
    graph: Graph
    estimates: str = ""
    run: str = ""
    holdings: Holdings | None = None
    pretrained: Public | None = field(default=None, repr=False)
    public: Split | None = field(default=None, repr=False)
    code: bytes = b""
    blank: IndexArray | None = field(default=None, repr=False)
    began: float = field(default_factory=time.perf_counter, compare=False)

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
    def scaled_privately(self) -> dict[str, int]:
        """Columns whose scale is to be found by a release before the run, and which feature each of them is."""
        return self.dataset.declaration.scaled_privately

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
        return _contacts(self.cast, self.graph, name)

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
        known: dict[tuple[int, int, int], Query] = {}  # by what nearly all of many nodes have in common
        queries = {}
        for name, batch in batches.items():
            key = self.shard_sizes[name], batch, id(mechanisms[name])
            if (query := known.get(key)) is None:
                query = Query(self.sampling(name, batch), mechanisms[name], float(batch))
                query = known[key] = found.setdefault(query, query)
            queries[name] = query
        return queries

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


# A spec is data, and results hold the spec. So where examples or a module are given from memory, it says just that:
# ``dataset.name: in memory`` and ``objective.module: in memory:Net``. Nothing of the arrays goes into it, not even a
# hash; and whoever runs that spec alone is told what is missing.


@dataclass(frozen=True)
class FromMemory:
    """Objects in the place of what a spec names; each may be missing.

    Attributes
    ----------
    data : Data or None
        Examples.
    module : torch.nn.Module, or a class or function that makes one, or Objective, or None
        The network, or what is minimised itself.
    """

    data: Data | None = field(default=None, repr=False)
    module: Given | Objective | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        given: Any = self.data
        if not isinstance(given, Data | None):
            arrays = isinstance(given, Sequence | Mapping) or hasattr(given, "__array__")
            if arrays or not (hasattr(given, "batch_sampler") or hasattr(type(given), "__getitem__")):
                found = type(given).__name__
                raise SpecError(f"data: expected gs.Data(x, y, ...), found {found}; wrap the arrays, or give a split")
            object.__setattr__(self, "data", Data.read(given))

    def named(self, experiment: Experiment) -> Experiment:
        """The spec that says what is given from memory.

        Raises
        ------
        SpecError
            If it names something else already.
        """
        changes: dict[str, Any] = {}
        if self.data is not None:
            said = experiment.dataset if "dataset" in experiment.model_fields_set else None
            changes["dataset"] = self.data.settings(said)
        if self.module is not None:
            changes["objective"] = experiment.objective.model_copy(update={"module": self._name(experiment)})
        return experiment.model_copy(update=changes)

    def dataset(self, settings: DatasetSettings) -> Dataset:
        """The examples that were given, else those that ``settings`` name."""
        return load_dataset(settings) if self.data is None else self.data.dataset(settings)

    def _name(self, experiment: Experiment) -> str:
        if isinstance(self.module, Objective):
            return f"{IN_MEMORY}:{type(self.module).__name__}"
        from gossamer.objectives.models import name_of  # needs torch, which is optional

        found, settings = f"{IN_MEMORY}:{name_of(self.module)}", experiment.objective
        if settings.name is not None or settings.module not in (None, found):
            raise SpecError(
                f"the spec's objective is {settings.name or settings.module!r}, and module= gives another; leave one "
                "of them out"
            )
        return found


NOTHING = FromMemory()


def read_public(experiment: Experiment) -> Split | None:
    """Public examples that a spec names, read as the data set's test examples are; None if it names none.

    Raises
    ------
    CallerError
        If they cannot be read, or do not fit the data set.
    """
    path, settings = experiment.evaluation.public_path, experiment.dataset
    if path is None:
        return None
    if settings.synthetic is not None or settings.name == IN_MEMORY:
        raise SpecError(
            f"evaluation.public_path: expected data of a file, found {settings.name}, with whose settings no file "
            "is read; leave it out"
        )
    if not path.exists():
        raise DataError(f"evaluation.public_path: there is no file {path}; correct the path")
    with beginning(f"evaluation.public_path ({path})", DataError):
        return load_dataset(settings.model_copy(update={"test_path": path})).test


def prepare(experiment: Experiment, memory: FromMemory = NOTHING) -> Prepared:
    """Load the data, deal it out, and build objective and graph.

    Parameters
    ----------
    experiment : Experiment
        The spec.
    memory : FromMemory
        Examples or a module in the place of what the spec names.

    Raises
    ------
    CallerError
        With one line on what in the spec or the data does not fit.
    """
    began, spec = time.perf_counter(), memory.named(experiment)
    nodes, seed = spec.algorithm.nodes, public_seed(spec)
    names = tuple(f"node-{number:0{len(str(nodes - 1))}d}" for number in range(nodes))
    check_world(spec.speeds, spec.faults, nodes, seed, spec.links, servers=len(servers(spec)))
    dataset = memory.dataset(spec.dataset)
    if spec.stop.accuracy is not None and dataset.classes is None:
        raise SpecError("stop.accuracy needs classes, and this data set has real targets; leave it out")
    public = read_public(spec)
    generator = stream(seed, "partition")
    shards = partition(spec.partition, dataset.train.targets, nodes, generator, dataset.owners, dataset.persons)
    prepared = assemble(spec, names, dataset, tuple(shards), memory)
    if prepared.objective.whose and memory.module is None:
        raise SpecError("objective.name: foreign is for federations, whose parties have the code, and gossamer flower")
    _check_edges(prepared)
    _advise(spec, dataset)
    return replace(prepared, holdings=_holdings(spec, dataset, shards), public=public, began=began)


def _check_edges(prepared: Prepared) -> None:
    """Raise SpecError if the spec has a link between two nodes that do not talk to each other."""
    cast, graph, algorithm = prepared.cast, prepared.graph, prepared.experiment.algorithm.name
    names = (*cast.workers, *cast.servers)
    places = {name: place for place, name in enumerate(cast.joined) if name not in cast.parents}
    for one in prepared.experiment.links.exceptions or ():
        first, second = (names[number] for number in one.edge or (0, 0))
        if one.edge is None or cast.parents.get(first) == second or cast.parents.get(second) == first:
            continue
        if first not in places or places.get(second) not in graph.neighbours(places[first]):
            raise SpecError(
                f"links.exceptions: nodes {one.edge[0]} and {one.edge[1]} do not talk to each other in this run of "
                f"{algorithm}; name an edge of its topology, or a node and its server"
            )


def _advise(experiment: Experiment, dataset: Dataset) -> None:
    """Warn of numbers that nobody scales, labels that nobody declares, and rows that are all of one class."""
    settings = experiment.dataset.complete()
    lines = unscaled(settings, dataset.declaration.format)
    if experiment.private:
        counts = experiment.objective.name == "poisson"
        lines += ([] if counts else unlearnable(settings)) + undeclared_labels(settings)
    lines += _of_one_class(dataset)
    for line in lines:
        warnings.warn(line, RunWarning, stacklevel=3)


def _of_one_class(dataset: Dataset) -> list[str]:
    """Return what to say where all rows are of one class, so that every model is right: at most a line."""
    targets = dataset.train.targets
    if dataset.classes is None or len(targets) == 0 or np.any(targets != targets[0]):
        return []
    label = int(targets[0]) if dataset.labels is None else repr(dataset.labels[int(targets[0])])
    return [
        f"data set {dataset.name!r}: all {len(targets):,} training examples are of the class {label}, so there is "
        "nothing to learn, and an accuracy of 1 says nothing; choose another target, or bring rows of other classes"
    ]


def _holdings(experiment: Experiment, dataset: Dataset, shards: Sequence[IntArray]) -> Holdings | None:
    """Find how persons' examples lie at nodes; nobody may have more than the budget says."""
    if dataset.persons is None:
        return None
    if experiment.budget is not None and experiment.budget.rows_per_person is not None:
        dealt = dataset.persons[np.concatenate(shards)]
        check_persons(dealt, experiment.rows_per_person, dataset.name)
    return Holdings.of(dataset.persons, shards)


def assemble(
    experiment: Experiment,
    names: tuple[str, ...],
    dataset: Dataset,
    shards: tuple[IntArray, ...],
    memory: FromMemory = NOTHING,
) -> Prepared:
    """Build objective and graph for parties of these names; ``shards`` may be placeholders of others' lengths.

    Raises
    ------
    CallerError
        With one line on what in the spec does not fit.
    """
    spec, seed = experiment, public_seed(experiment)
    _check_privacy(spec)
    algorithm = ALGORITHMS[spec.algorithm.name]
    cast = algorithm.cast(spec.algorithm, names)
    graph = _joining(cast, seed)
    objective, code = objective_of(spec, dataset, memory.module)
    if spec.objective.frozen not in (None, held := objective.frozen or NOTHING_FROZEN):
        raise ModelError(
            f"objective.frozen: expected the SHA-256 {spec.objective.frozen} of what the network holds and nobody "
            f"trains, found {held}; take the version of it, and of what it loads, that all others have"
        )
    spec, pretrained = _started(spec, objective)
    prepared = Prepared(spec, dataset, names, shards, objective, graph, pretrained=pretrained, code=code)
    if not (missing := algorithm.estimates(spec.algorithm)):
        return prepared
    spec, estimates = with_estimates(spec, missing, objective, dataset, prepared.initial.values, seed)
    return replace(prepared, experiment=spec, estimates=estimates)


def _started(experiment: Experiment, objective: Objective) -> tuple[Experiment, Public | None]:
    """The spec with the hash of the file that nodes start from, and the model in it, if the spec names one."""
    if (settings := experiment.objective.pretrained) is None:
        return experiment, None
    model, settings = read_pretrained(settings, objective.parts, objective.dtype)
    complete = experiment.objective.model_copy(update={"pretrained": settings})
    return experiment.model_copy(update={"objective": complete}), model


def contacts_of(experiment: Experiment, names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Contacts of all parties, as of `Prepared.contacts`, in a run that is not prepared."""
    cast = ALGORITHMS[experiment.algorithm.name].cast(experiment.algorithm, names)
    graph = _joining(cast, public_seed(experiment))
    return {name: _contacts(cast, graph, name) for name in names}


def _joining(cast: Cast, seed: int) -> Graph:
    """The graph that joins nodes of an algorithm."""
    joined = cast.joined
    return build_graph(cast.topology, len(joined), stream(seed, "topology"), joined, directed=cast.directed)


def _contacts(cast: Cast, graph: Graph, name: str) -> tuple[str, ...]:
    children = tuple(child for child, parent in cast.parents.items() if parent == name)
    if name in cast.parents:
        return (*children, cast.parents[name])
    if name not in cast.joined:
        return children
    return (*children, *(cast.joined[number] for number in graph.neighbours(cast.joined.index(name))))


def servers(experiment: Experiment) -> tuple[str, ...]:
    """The nodes without data that the algorithm adds."""
    return ALGORITHMS[experiment.algorithm.name].cast(experiment.algorithm, ()).servers


def _check_privacy(experiment: Experiment) -> None:
    """A policy that an algorithm would ignore, or noise that it cannot do with, is refused."""
    name, clip = experiment.algorithm.name, experiment.privacy.clip
    algorithm, law = ALGORITHMS[name], experiment.privacy.mechanism
    laws, known = algorithm.clips.laws, algorithm.clips.policies
    if laws is not None and law not in laws:
        raise SpecError(f"privacy.mechanism: {name} knows {' and '.join(laws)}, found {law}")
    if clip is not None and clip.policy not in known:
        raise SpecError(f"privacy.clip.policy: {name} knows {' and '.join(known)}, found {clip.policy}")
