"""From a spec to what a run is made of: data, shards, objective, graph, starting point."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.context import Context, Workload
from gossamer.algorithms.interface import Algorithm, Cast
from gossamer.algorithms.table import ALGORITHMS
from gossamer.data.datasets import Dataset
from gossamer.data.partition import Natural, partition
from gossamer.data.persons import Holdings, check_persons
from gossamer.data.split import Split
from gossamer.data.unscaled import undeclared_labels, unlearnable, unscaled
from gossamer.errors import ModelError, RunWarning, SpecError, did_you_mean
from gossamer.experiment.ahead import compile_ahead
from gossamer.experiment.early_stopping import read_public
from gossamer.experiment.estimates import Estimated, needs_estimates, with_estimates
from gossamer.experiment.from_memory import NOTHING, FromMemory
from gossamer.experiment.pretrained import read_pretrained
from gossamer.experiment.spec import Experiment, ObjectiveSettings
from gossamer.objectives.glm import LinearModel
from gossamer.objectives.glm_losses import LOSSES
from gossamer.objectives.loss_settings import said_of
from gossamer.objectives.objective import Objective
from gossamer.privacy.clipping import Clipping
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.sampling import FixedSize, Poisson, Sampling, WithReplacement
from gossamer.privacy.streams.model_radius import ModelLengths
from gossamer.privacy.tasks import Query
from gossamer.protocol.node import Node
from gossamer.randomness import derive, stream
from gossamer.runtimes.simulator import World, check_world
from gossamer.topology.builders import build_graph
from gossamer.topology.graphs import Graph
from gossamer.vectors import Blank, Public

_SAMPLINGS: dict[str, Callable[[int, int], Sampling]] = {
    "poisson": Poisson.of_batch,
    "fixed_size": FixedSize.of_batch,
    "with_replacement": WithReplacement.of_batch,
}


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
        What is minimised.
    graph : Graph
        Who may talk to whom: of the nodes, or of those that the algorithm has it join, such as the servers of units.
    estimates : Estimated or None
        What was guessed from public or synthetic examples, because the spec does not say it.
    run : str
        Name of the deployed run, whose parties have identities; empty in a simulation.
    holdings : Holdings or None
        How persons' examples lie at nodes, where the data say whose they are. Of other parties' data nobody knows.
    pretrained : Public or None
        The model of ``objective.pretrained``, if there is one.
    public : Split or None
        The public examples of ``evaluation.public_path``, if there are some.
    code : bytes
        Digest of a module that was given from memory; empty if none was.
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

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm."""
        return ALGORITHMS[self.experiment.algorithm.name]

    @cached_property
    def cast(self) -> Cast:
        """Who is in the run."""
        return self.algorithm.cast(self.experiment.algorithm, self.names)

    @property
    def owners(self) -> tuple[str, ...] | None:
        """Owners of the nodes' examples, in order, where the spec names them: a column alone makes no name public."""
        scheme = self.experiment.partition
        return scheme.owners if isinstance(scheme, Natural) else None

    @property
    def world(self) -> World:
        """What the nodes live in."""
        spec = self.experiment
        vector = self.objective.size * self.objective.dtype.itemsize
        # Models, sums, noise and answers of a call: about four vectors for each computation gathered.
        width = min(spec.compute.width, max(1, spec.compute.memory_mib * 2**20 // (4 * vector)))
        return World(spec.speeds, spec.links, spec.faults, public_seed(spec), width, self.cast.servers, self.units)

    @cached_property
    def units(self) -> dict[str, str]:
        """The federated unit of each node that is in one."""
        return dict(self.cast.trust)

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
        """How many examples each update of each node takes.

        Raises
        ------
        CallerError
            If a node cannot make the first update, or the settings do not fit together.
        """
        spec = self.experiment
        found = self.algorithm.workload(spec.algorithm, self.shard_sizes, public_seed(spec))
        found.check(1)
        return found

    def sampling(self, name: str, batch: int) -> Sampling:
        """How node ``name`` draws so many examples."""
        spec = self.experiment
        scheme = spec.terms.sampling or spec.privacy.sampling
        return _SAMPLINGS[scheme](self.shard_sizes[name], batch)

    def context(
        self,
        mechanisms: Mapping[str, Mechanism],
        quotas: Mapping[str, int] | None,
        *,
        blank: bool = False,
        lengths: ModelLengths | None = None,
    ) -> Context:
        """What the algorithm is built from; with ``blank`` vectors for a run of the schedule alone."""
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
        """How many updates the nodes have made, where a computation is not one."""
        return self.algorithm.count

    @property
    def clipping(self) -> Clipping:
        """How clips move; without a clip they do not."""
        clip = self.experiment.privacy.clip
        return Clipping() if clip is None else Clipping(clip)

    def advice(self, mechanisms: Mapping[str, Mechanism], quotas: Mapping[str, int] | None, updates: int) -> list[str]:
        """What the algorithm warns of before a run of so many updates."""
        return self.algorithm.advice(self.experiment.algorithm, self.context(mechanisms, quotas), updates)


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
    spec = memory.named(experiment)
    nodes, seed = spec.algorithm.nodes, public_seed(spec)
    names = tuple(f"node-{number:0{len(str(nodes - 1))}d}" for number in range(nodes))
    check_world(spec.speeds, spec.faults, nodes, seed, spec.links, servers=len(servers(spec)))
    compile_ahead(spec)
    dataset = memory.dataset(spec.dataset)
    if spec.stop.accuracy is not None and dataset.classes is None:
        raise SpecError("stop.accuracy needs classes, and this data set has real targets; leave it out")
    public = read_public(spec)
    generator = stream(seed, "partition")
    shards = partition(spec.partition, dataset.train.targets, nodes, generator, dataset.owners, dataset.persons)
    prepared = assemble(spec, names, dataset, tuple(shards), memory)
    _advise(spec, dataset)
    return replace(prepared, holdings=_holdings(spec, dataset, shards), public=public)


def _advise(experiment: Experiment, dataset: Dataset) -> None:
    """Warn of numbers that nobody scales and labels that nobody declares, by what the spec says of them."""
    settings = experiment.dataset.complete()
    lines = unscaled(settings, None if dataset.declaration is None else dataset.declaration.format)
    if experiment.private:
        lines += unlearnable(settings) + undeclared_labels(settings)
    for line in lines:
        warnings.warn(line, RunWarning, stacklevel=3)


def _holdings(experiment: Experiment, dataset: Dataset, shards: Sequence[npt.NDArray[np.int64]]) -> Holdings | None:
    """How persons' examples lie at nodes; nobody may have more than the budget says."""
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
    shards: tuple[npt.NDArray[np.int64], ...],
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
    joined = algorithm.cast(spec.algorithm, names).joined
    graph = build_graph(algorithm.topology(spec.algorithm), len(joined), stream(seed, "topology"), joined)
    objective, code = _built(spec, dataset, memory)
    spec, pretrained = _started(spec, objective)
    prepared = Prepared(spec, dataset, names, shards, objective, graph, pretrained=pretrained, code=code)
    if not needs_estimates(spec):
        return prepared
    spec, estimates = with_estimates(spec, objective, dataset, prepared.initial.values, seed)
    return replace(prepared, experiment=spec, estimates=estimates)


def _started(experiment: Experiment, objective: Objective) -> tuple[Experiment, Public | None]:
    """The spec with the hash of the file that nodes start from, and the model in it, if the spec names one."""
    settings = experiment.objective.pretrained
    if settings is None:
        return experiment, None
    model, settings = read_pretrained(settings, objective.parts, objective.dtype)
    complete = experiment.objective.model_copy(update={"pretrained": settings})
    return experiment.model_copy(update={"objective": complete}), model


def servers(experiment: Experiment) -> tuple[str, ...]:
    """The nodes without data that the algorithm adds."""
    return ALGORITHMS[experiment.algorithm.name].cast(experiment.algorithm, ()).servers


def _check_privacy(experiment: Experiment) -> None:
    """A policy that an algorithm would ignore, or noise that it cannot do with, is refused."""
    name, clip = experiment.algorithm.name, experiment.privacy.clip
    algorithm, law = ALGORITHMS[name], experiment.privacy.mechanism
    laws, known = algorithm.laws, algorithm.clips.policies
    if laws is not None and law not in laws:
        raise SpecError(f"privacy.mechanism: {name} knows {' and '.join(laws)}, found {law}")
    if clip is not None and clip.policy not in known:
        raise SpecError(f"privacy.clip.policy: {name} knows {' and '.join(known)}, found {clip.policy}")


def public_seed(experiment: Experiment) -> int:
    """The seed of what all nodes know: topology, partition, initial model, speeds, links, who asks whom."""
    return derive(experiment.seed, "public")


def _built(experiment: Experiment, dataset: Dataset, memory: FromMemory) -> tuple[Objective, bytes]:
    """The objective, and what tells the code of a module from memory from another's."""
    if memory.module is None:
        return build_objective(experiment, dataset), b""
    from gossamer.objectives.models.given import made

    found = made(memory.module, tuple(dataset.train.features.shape[1:]), _outputs(experiment, dataset))
    return _trained(found.module, experiment, dataset, started=found.started), found.code


def build_objective(experiment: Experiment, dataset: Dataset) -> Objective:
    """The objective that the spec names, in the shape of the data.

    Raises
    ------
    SpecError
        If it does not exist.
    """
    settings = experiment.objective
    name = settings.name or ("softmax" if dataset.classes else "squared")
    if settings.module is None and name in LOSSES:
        if settings.loss is not None:
            raise SpecError(
                f"objective.loss is for networks; {name} is a loss itself, so leave it out, or name a network"
            )
        return _linear(name, settings, dataset)
    return _network(name, experiment, dataset)


def _linear(name: str, settings: ObjectiveSettings, dataset: Dataset) -> Objective:
    features = int(np.prod(dataset.train.features.shape[1:]))
    dtype = np.dtype(settings.dtype)
    return LinearModel(name, features, dataset.classes, l2=settings.l2, intercept=settings.intercept, dtype=dtype)


def _network(name: str, experiment: Experiment, dataset: Dataset) -> Objective:
    # Networks need torch, which is optional, so it is imported only here.
    from gossamer.objectives.models import MODELS, build_model, load_module

    settings = experiment.objective
    if settings.module is None and name not in MODELS:
        raise SpecError(f"objective.name: unknown name {name!r}{did_you_mean(name, [*LOSSES, *MODELS])}")
    shape: tuple[int, ...] = tuple(dataset.train.features.shape[1:])
    outputs = _outputs(experiment, dataset)
    module = load_module(settings.module, shape, outputs) if settings.module else build_model(name, shape, outputs)
    return _trained(module, experiment, dataset)


def _outputs(experiment: Experiment, dataset: Dataset) -> int:
    """Number of outputs that the network is to have."""
    from gossamer.objectives.torch_losses import loss_of

    classes, loss = dataset.classes, experiment.objective.loss
    found = None if loss is None else loss_of(said_of(loss), classes).wanted
    return found or classes or 1


def _trained(module: Any, experiment: Experiment, dataset: Dataset, *, started: bool = False) -> Objective:
    """The loss of a ``torch.nn.Module``; ``started`` from its own parameters."""
    from gossamer.objectives.torch_module import TorchModule

    settings = experiment.objective
    if settings.dtype != "float32":
        raise SpecError(f"objective.dtype of a network must be float32, found {settings.dtype}")
    if not settings.intercept:
        raise SpecError("objective.intercept: false is for linear models; a network's module says where it has biases")
    usual = "cross_entropy" if dataset.classes else "mse"
    compute = experiment.compute
    network: Objective = TorchModule(
        module,
        loss=usual if settings.loss is None else said_of(settings.loss),
        l2=settings.l2,
        memory_mib=compute.memory_mib,
        strategy=compute.strategy,
        pretrained=started,
        exact=compute.rounding == "exact",
        classes=dataset.classes,
    )
    if len(dataset.train.targets):  # a server has none
        _try(network, dataset)
    return network


def _try(network: Objective, dataset: Dataset) -> None:
    """Take one gradient, so that a module that cannot be trained is refused before anything is written."""
    model = network.initial(stream(0))[None]
    network.clipped_gradients(model, dataset.train, [np.arange(1)], 1.0)
    one = Split(dataset.train.features[:1], dataset.train.targets[:1])
    if not np.isfinite(network.evaluate(model, one).loss).all():
        raise ModelError("the module's loss is not finite at its initial parameters; check its outputs and its loss")
