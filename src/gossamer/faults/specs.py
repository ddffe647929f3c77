"""Small runs of a spec, which seeds of faults happen to: few nodes, few updates, four parameters, short waits.

What an algorithm does stays as the spec says it; what makes a run long or large is shortened, and said.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.algorithms.interface import SmallRuns
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import ALGORITHMS
from gossamer.data.datasets import Dataset
from gossamer.data.examples import Split
from gossamer.errors import RunWarning, SpecError, TopologyError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, assemble, nodes_of, public_seed
from gossamer.experiment.specs.reading import parse_spec
from gossamer.experiment.specs.spec import Experiment
from gossamer.faults.schedules import SETTINGS
from gossamer.faults.sides import SIZE
from gossamer.protocol.node import Node
from gossamer.protocol.session import SessionSettings
from gossamer.runtimes.speeds import Speeds
from gossamer.sides.home import Home
from gossamer.sides.plan import SidePlan
from gossamer.sides.pool import Machine, Pool, open_pool
from gossamer.sides.samples import Shard

MOST_NODES = 6
EXAMPLES = 8  # of each node of a small run

_SMALL = {
    "dataset": {"name": "digits"},  # examples are zeros, see `faults.sides`
    "partition": {"name": "iid"},
    "objective": {"name": "squared", "intercept": False, "dtype": "float64"},
    "faults": None,
    "evaluation": {"name": "off"},
    "compute": None,
    "budget": None,
    "speeds": {"name": "constant", "scenario": {"name": "one_slow", "factor": 4}},
    "links": None,
    "stop": None,
}

_LEVELS: Mapping[str, Mapping[str, float]] = {
    "gaussian": {"noise_multiplier": 1.0},
    "l2_laplace": {"epsilon": 1.0},
    "laplace": {"standard_deviation": 1.0},
    "none": {},
}
"""How much noise, for each law."""
_NO_LEVEL = dict.fromkeys(("noise_multiplier", "epsilon", "standard_deviation"))

_SECTIONS = {"stop", "privacy"}

_WAITS = {"timeout": 3.0, "patience": 2.0}
"""Seconds, where a spec waits longer."""


@dataclass(frozen=True)
class SmallRun:
    """A run that faults happen to.

    Attributes
    ----------
    prepared : Prepared
        Examples that are zeros, shards, and what follows from the spec.
    plan : Plan
        Plan that says how many releases there are, and how noisy.
    nodes : mapping of str to Node
        Nodes as the algorithm builds them, and as they stay: hosts have nodes like these.
    speeds : Speeds
        Speeds that say how long tasks take.
    """

    prepared: Prepared
    plan: Plan
    nodes: Mapping[str, Node]
    speeds: Speeds

    @cached_property
    def sides(self) -> dict[str, SidePlan]:
        """Plans of what leaves each party, at most."""
        return {name: self.plan.side(name) for name in self.names}

    def pool(self, home: Home, machine: Machine) -> Pool:
        """The data sides of all parties."""
        prepared = self.prepared
        shards = {name: Shard(rows) for name, rows in zip(prepared.names, prepared.shards, strict=True)}
        return open_pool(self.sides, shards, prepared.objective, prepared.dataset.train, home, machine)

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.prepared.experiment.private

    @property
    def chunked(self) -> SessionSettings:
        """Settings of sessions that cut messages into two to six chunks."""
        return replace(SETTINGS, largest_frame=_wanted(self.prepared.experiment).chunk, largest_message=1 << 14)

    @property
    def waits(self) -> bool:
        """Whether the run waits for every node, however long that is away."""
        return _wanted(self.prepared.experiment).waits

    @property
    def averaged(self) -> int:
        """Updates of servers that are made of no answer."""
        each = _wanted(self.prepared.experiment).unanswered
        return (self.plan.updates if each is None else each) * len(self.prepared.cast.servers)

    @property
    def names(self) -> tuple[str, ...]:
        """All nodes, servers last."""
        return tuple(self.nodes)


def small_runs(experiment: Experiment) -> tuple[list[SmallRun], list[str]]:
    """The runs that seeds of faults choose from, and what is other than the spec says, a line each.

    Raises
    ------
    CallerError
        If the spec does not fit together.
    """
    name = experiment.algorithm.name
    if experiment.terms.told:
        raise SpecError(
            "algorithm.learning_rate.clock: global is for runs in the simulator, and nodes that faults happen to are "
            "not told how many updates others have made; leave it out"
        )
    content, wanted = experiment.model_dump(mode="json"), _wanted(experiment)
    sizes = "; or ".join(map(_described, wanted.sizes))
    runs, remarks = [], [f"{name}: small runs of {SIZE} parameters, with {sizes}"]
    for size in wanted.sizes:
        small, said = _shrunk(content, wanted, size)
        runs.append(_built(small))
        remarks += said
    return runs, list(dict.fromkeys(remarks))


def _wanted(experiment: Experiment) -> SmallRuns:
    return ALGORITHMS[experiment.algorithm.name].small_runs(experiment.algorithm)


def _described(size: Mapping[str, Any]) -> str:
    values = {key: value for key, value in size.items() if key not in _SECTIONS and value is not None}
    for section in _SECTIONS & size.keys():
        values.update({f"{section}.{key}": value for key, value in size[section].items() if value is not None})
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _shrunk(content: dict[str, Any], wanted: SmallRuns, size: Mapping[str, Any]) -> tuple[Experiment, list[str]]:
    """The spec of one small run."""
    algorithm = dict(content["algorithm"])
    sections: dict[str, Any] = {**content, **_SMALL}
    algorithm.update(wanted.fitting)
    algorithm.update({key: value for key, value in size.items() if key not in _SECTIONS})
    for key in wanted.bounded:
        algorithm[key] = math.inf if algorithm.get(key) is None else algorithm[key]
    remarks = _shorten_waits(algorithm, "algorithm")
    sections["stop"] = size.get("stop")
    privacy = {**content["privacy"], **size.get("privacy", {})}
    law = privacy["mechanism"]
    sections.update(algorithm=algorithm, privacy={**privacy, **_NO_LEVEL, **wanted.levels.get(law, _LEVELS[law])})
    try:
        return _fitting(sections), remarks
    except TopologyError as error:
        remarks.append(f"algorithm.topology: a ring, as so few nodes have no other ({error})")
        return _fitting({**sections, "algorithm": {**algorithm, "topology": {"name": "ring"}}}), remarks


def _shorten_waits(section: dict[str, Any], where: str) -> list[str]:
    """Put short waits in the place of long ones, in a section and those inside."""
    remarks = []
    for key, value in section.items():
        most = _WAITS.get(key)
        if isinstance(value, dict):
            remarks += _shorten_waits(value, f"{where}.{key}")
        elif most is not None and value is not None and value > most:
            section[key] = most
            instead = "no limit" if math.isinf(value) else f"{value:g} s"
            remarks.append(f"{where}.{key}: {most:g} s instead of {instead}")
    return remarks


def _fitting(sections: Mapping[str, Any]) -> Experiment:
    experiment = read(sections)
    _assembled(experiment)
    return experiment


def read(sections: Mapping[str, Any]) -> Experiment:
    """The experiment of these sections; one that is None is left out."""
    return parse_spec({key: value for key, value in sections.items() if value is not None})


def _assembled(experiment: Experiment) -> Prepared:
    return of_zeros(experiment, {f"node-{number}": EXAMPLES for number in range(experiment.algorithm.nodes)})


def of_zeros(experiment: Experiment, sizes: Mapping[str, int]) -> Prepared:
    """A run whose parties have so many examples, which are zeros."""
    count = sum(sizes.values())
    zeros = Split(np.zeros((count, SIZE), np.float32), np.zeros(count, np.float32))
    dataset = Dataset("zeros", zeros, zeros, None, None, None, "nowhere")
    shards = np.split(np.arange(count), np.cumsum(list(sizes.values()))[:-1])
    return assemble(experiment, tuple(sizes), dataset, tuple(shards))


def _built(experiment: Experiment) -> SmallRun:
    found = made(_assembled(experiment))
    if len(found.nodes) > MOST_NODES:
        raise SpecError(f"faults are simulated for at most {MOST_NODES} nodes, found {', '.join(found.nodes)}")
    return found


def made(prepared: Prepared) -> SmallRun:
    """The run, with its plan and nodes."""
    experiment = prepared.experiment
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # of runs that are too short to be of use
        plan = plan_run(prepared)
    nodes = nodes_of(prepared, plan)
    speeds = Speeds(experiment.speeds, len(nodes), public_seed(experiment))
    return SmallRun(prepared, plan, nodes, speeds)
