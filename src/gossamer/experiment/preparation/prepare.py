"""Preparing a run: from its spec to its data, shards, objective and graph."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.problem import Holdings
from gossamer.algorithms.table import ALGORITHMS
from gossamer.data.datasets import Dataset, load_dataset
from gossamer.data.examples import Split, check_persons
from gossamer.data.memory import Data
from gossamer.data.partition import partition
from gossamer.data.settings import IN_MEMORY, DatasetSettings
from gossamer.data.unscaled import undeclared_labels, unlearnable, unscaled
from gossamer.errors import DataError, RunWarning, SpecError
from gossamer.experiment.preparation.objective import objective_of, read_pretrained
from gossamer.experiment.preparation.prepared import Prepared, public_seed
from gossamer.experiment.preparation.problem_constants import needs_estimates, with_estimates
from gossamer.experiment.specs.spec import Experiment
from gossamer.objectives.objective import Objective
from gossamer.randomness import stream
from gossamer.runtimes.world import check_world
from gossamer.topology.builders import build_graph
from gossamer.vectors import Public

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


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
    module : torch.nn.Module, or a class or function that makes one, or None
        The network.
    """

    data: Data | None = field(default=None, repr=False)
    module: Given | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.data, Data | None):
            raise SpecError(f"data: expected gs.Data(x, y, ...), found {type(self.data).__name__}; wrap the arrays")

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
    try:
        return load_dataset(settings.model_copy(update={"test_path": path})).test
    except DataError as error:
        raise DataError(f"evaluation.public_path ({path}): {error}") from None


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
    dataset = memory.dataset(spec.dataset)
    if spec.stop.accuracy is not None and dataset.classes is None:
        raise SpecError("stop.accuracy needs classes, and this data set has real targets; leave it out")
    public = read_public(spec)
    generator = stream(seed, "partition")
    shards = partition(spec.partition, dataset.train.targets, nodes, generator, dataset.owners, dataset.persons)
    prepared = assemble(spec, names, dataset, tuple(shards), memory)
    _check_edges(prepared)
    _advise(spec, dataset)
    return replace(prepared, holdings=_holdings(spec, dataset, shards), public=public)


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
    lines = unscaled(settings, None if dataset.declaration is None else dataset.declaration.format)
    if experiment.private:
        lines += unlearnable(settings) + undeclared_labels(settings)
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


def _holdings(experiment: Experiment, dataset: Dataset, shards: Sequence[npt.NDArray[np.int64]]) -> Holdings | None:
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
    cast = algorithm.cast(spec.algorithm, names)
    graph = build_graph(cast.topology, len(cast.joined), stream(seed, "topology"), cast.joined)
    objective, code = objective_of(spec, dataset, memory.module)
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
    laws, known = algorithm.clips.laws, algorithm.clips.policies
    if laws is not None and law not in laws:
        raise SpecError(f"privacy.mechanism: {name} knows {' and '.join(laws)}, found {law}")
    if clip is not None and clip.policy not in known:
        raise SpecError(f"privacy.clip.policy: {name} knows {' and '.join(known)}, found {clip.policy}")
