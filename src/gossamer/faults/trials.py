"""Trials of small runs under a schedule of faults, with real nodes, sessions, hosts, ledgers and data sides."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from gossamer.algorithms.interface import SmallRuns
from gossamer.algorithms.plan import Plan
from gossamer.algorithms.table import ALGORITHMS
from gossamer.data.datasets import Dataset
from gossamer.data.declaration import Declaration
from gossamer.data.examples import Split
from gossamer.errors import RunWarning, SpecError, TopologyError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, assemble, nodes_of, public_seed, shards_of
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults.checks import (
    ALONE,
    SIZE,
    Answers,
    Company,
    Conserved,
    Delivery,
    Laboratory,
    Liveness,
    WatchedSides,
)
from gossamer.faults.hosts import LinkedHosts, Reaper
from gossamer.faults.schedules import SETTINGS, FaultSchedule, shortened
from gossamer.protocol.node import Node
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.host import Host
from gossamer.runtimes.speeds import Speeds
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger, MemoryLedger
from gossamer.sides.machine import Side
from gossamer.sides.plan import SidePlan, Trust
from gossamer.sides.pool import Machine, Pool, open_pool

# Small runs of a spec, which seeds of faults happen to: few nodes, few updates, four parameters, short waits.
#
# What an algorithm does stays as the spec says it; what makes a run long or large is shortened, and said.

MOST_NODES = 6
EXAMPLES = 8  # of each node of a small run

_SMALL = {
    "dataset": {"name": "digits"},  # examples are zeros, see `WatchedSides`
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
        train = prepared.dataset.train
        return open_pool(self.sides, shards_of(prepared), prepared.objective, train, home, machine)

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
        runs.append(made(small))
        if len(runs[-1].nodes) > MOST_NODES:
            raise SpecError(f"faults are simulated for at most {MOST_NODES} nodes, found {', '.join(runs[-1].nodes)}")
        remarks += said
    return runs, list(dict.fromkeys(remarks))


def _wanted(experiment: Experiment) -> SmallRuns:
    return ALGORITHMS[experiment.algorithm.name].small_runs(experiment.algorithm)


def _described(size: Mapping[str, Any]) -> str:
    values = {key: value for key, value in size.items() if key not in _SECTIONS and value is not None}
    for section in _SECTIONS & size.keys():
        values.update({f"{section}.{key}": value for key, value in size[section].items() if value is not None})
    return ", ".join(f"{key} {value}" for key, value in values.items())


def _shrunk(content: dict[str, Any], wanted: SmallRuns, size: Mapping[str, Any]) -> tuple[Prepared, list[str]]:
    """One small run."""
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
        return _of_zeros(read(sections)), remarks
    except TopologyError as error:
        remarks.append(f"algorithm.topology: a ring, as so few nodes have no other ({error})")
        ring = {"algorithm": {**algorithm, "topology": {"name": "ring"}}}
        return _of_zeros(read({**sections, **ring})), remarks


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


def read(sections: Mapping[str, Any]) -> Experiment:
    """The experiment of these sections; one that is None is left out."""
    return parse_spec({key: value for key, value in sections.items() if value is not None})


def _of_zeros(experiment: Experiment) -> Prepared:
    """The run, with nodes whose examples are zeros."""
    names = tuple(f"node-{number}" for number in range(experiment.algorithm.nodes))
    count = EXAMPLES * len(names)
    zeros = Split(np.zeros((count, SIZE), np.float32), np.zeros(count, np.float32))
    dataset = Dataset(Declaration.of(experiment.dataset, None, (SIZE,), "dense", None), zeros, zeros, "nowhere")
    return assemble(experiment, names, dataset, tuple(np.split(np.arange(count), len(names))))


def made(prepared: Prepared) -> SmallRun:
    """The run, with its plan and nodes."""
    experiment = prepared.experiment
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)  # of runs that are too short to be of use
        plan = plan_run(prepared)
    nodes = nodes_of(prepared, plan)
    speeds = Speeds(experiment.speeds, len(nodes), public_seed(experiment))
    return SmallRun(prepared, plan, nodes, speeds)


# Seeds of faults: the first that fails, shortened, and how to run it again.
#
#     trial = Trial.of(experiment)
#     seed = first_failing(trial, range(2000))
#     if seed is not None:
#         print(Failure.of(trial, seed))
#
# A *trial* says what is run and what must hold (`faults.trials`); a *schedule* is all that goes wrong
# (`faults.schedules`).


@dataclass(frozen=True)
class Failure:
    """A seed that fails.

    Attributes
    ----------
    seed : int
        Seed that fails.
    problem : str
        Sentence on what does not hold, with the shortest schedule that still fails.
    schedule : FaultSchedule
        Shortest schedule that still fails.
    nodes : tuple of str
        Nodes of the run.
    story : tuple of str
        Lines on what went wrong in it, in order.
    """

    seed: int
    problem: str
    schedule: FaultSchedule
    nodes: tuple[str, ...]
    story: tuple[str, ...]

    @classmethod
    def of(cls, trial: Trial, seed: int) -> Failure:
        """Failure of a seed that fails.

        Raises
        ------
        ValueError
            If it does not.
        """
        schedule = trial.schedule(seed)
        if trial.problem(schedule) is None:
            raise ValueError(f"seed {seed} does not fail")
        shortest = shortened(schedule, lambda candidate: trial.problem(candidate) is not None, len(trial.runs))
        story: list[str] = []
        problem = trial.problem(shortest, story.append) or ""
        return cls(seed, problem, shortest, trial.runs[shortest.variant].names, tuple(story))

    def __str__(self) -> str:
        schedule = self.schedule
        faults = [f"  {fault}" for fault in schedule.faults] or ["  no fault at all"]
        return "\n".join(
            [
                f"seed {self.seed} fails at {self.problem}",
                f"nodes: {', '.join(self.nodes)}; a snapshot every {schedule.every} inputs, {schedule.busy:g} s to "
                f"store a turn, {'messages in chunks, ' if schedule.chunks else ''}clocks {schedule.skew:g} s apart",
                "shortest schedule that still fails:",
                *faults,
                "what happened:",
                *(f"  {line}" for line in self.story),
            ]
        )

    def as_dict(self) -> dict[str, Any]:
        """The failure as plain data."""
        faults = [str(fault) for fault in self.schedule.faults]
        said = {"seed": self.seed, "problem": self.problem, "nodes": list(self.nodes)}
        return {**said, "faults": faults, "story": list(self.story)}


def first_failing(trial: Trial, seeds: Iterable[int]) -> int | None:
    """The first of ``seeds`` that fails."""
    return next((seed for seed in seeds if trial.problem(trial.schedule(seed)) is not None), None)


MOST_EVENTS = 300
"""Of a run with faults."""

_SHARE = 1000  # so many runs share a ledger file: making one takes as long as a run


class Disk:
    """Storage for the ledgers of runs."""

    def __init__(self) -> None:
        self._file, self._runs = LedgerFile(":memory:"), 0

    def run(self) -> tuple[LedgerFile, str]:
        """The file of a new run, and its name there."""
        self._runs += 1
        if self._runs % _SHARE == 0:
            self._file.close()
            self._file = LedgerFile(":memory:")
        return self._file, f"run-{self._runs}"


class Ledgers:
    """The ledgers of one run, on what is a disk to it.

    Attributes
    ----------
    reaper : callable
        Told before something lasts, or is seen.
    """

    def __init__(self, disk: Disk, run: SmallRun, reaper: Callable[[str], None]) -> None:
        (self._file, self._name), self._small, self.reaper = disk.run(), run, reaper
        self._kept: dict[str, Ledger] = {}

    def open(self, name: str, plan: SidePlan) -> Ledger:
        """The ledger of a party as it is now: durable; without noise, one in memory that outlives processes too."""
        if self._small.private:
            # Ledgers of whole clients take no other relation than the one that counts what moves an update most.
            budget = admits_all(self._small.prepared.experiment.privacy.relation)
            return stored_ledger(self._file, name, f"{self._name} {name}", self._name, budget, plan, Trust.SCOPE)
        charges = plan.charges()
        assert charges is not None, f"nothing is charged to {name}"
        return self._kept.setdefault(name, MemoryLedger(name, charges))

    def charged(self, name: str) -> int | None:
        """Number of releases of ``name`` that the ledger on disk has; None if it has none."""
        plan = self._small.sides[name]
        return None if plan.charges() is None else self.open(name, plan).releases


def laboratory(ledgers: Ledgers) -> Home:
    """The home of simulated data sides whose processes are killed."""
    return Laboratory(ledgers.open, ledgers.reaper)


@dataclass(frozen=True)
class Trial:
    """Runs to try, and what must hold in them.

    Attributes
    ----------
    runs : sequence of SmallRun
        A schedule says which of them it happens to.
    kind : type of Host
        Another one has a bug that tests are to find.
    machine : callable
        Function that makes a data side; another one has a bug, too.
    home : callable
        Function that makes the home of data sides from the run's ledgers.
    alone_after : float
        Seconds after which nodes that reach nobody ask their data sides nothing more.
    """

    runs: Sequence[SmallRun]
    kind: type[Host] = Host
    machine: Machine = Side
    home: Callable[[Ledgers], Home] = laboratory
    alone_after: float = ALONE
    _disk: Disk = field(default_factory=Disk, repr=False, compare=False)

    @classmethod
    def of(cls, experiment: Experiment, **bugs: Any) -> Trial:
        """Trial of a spec; see `small_runs`."""
        return cls(small_runs(experiment)[0], **bugs)

    def schedule(self, seed: int) -> FaultSchedule:
        """Schedule of faults for a seed."""
        return FaultSchedule.seeded(seed, [run.names for run in self.runs])

    def problem(self, schedule: FaultSchedule, tell: Callable[[str], object] = lambda line: None) -> str | None:
        """Find what does not hold in a run with ``schedule``; None if all does.

        ``tell`` is called with a line about each fault as it happens.
        """
        run, steps, reaper = self.runs[schedule.variant], list[TraceStep](), Reaper()
        ledgers = Ledgers(self._disk, run, reaper)
        sides = WatchedSides(run.pool(self.home(ledgers), self.machine), ledgers.charged, run.private)
        hosts = LinkedHosts(
            run.nodes,
            sides,
            schedule,
            speeds=run.speeds,
            settings=run.chunked if schedule.chunks else SETTINGS,
            units=run.prepared.units,
            watch=steps.append,
            reaper=reaper,
            kind=self.kind,
            tell=tell,
            contacts={name: run.prepared.contacts(name) for name in run.names},
            alone_after=self.alone_after,
        )
        algorithm, names = run.prepared.algorithm, run.prepared.names
        progress = Liveness(hosts, names, run.prepared.cast.hub, waits=run.waits)
        checks: list[Callable[[Sequence[TraceStep]], str | None]] = [
            sides,
            Delivery(hosts),
            Answers(hosts, algorithm, run.names[len(names) :], run.averaged, run.private),
            Conserved(hosts, algorithm),
            Company(hosts, names),
            progress,
        ]
        try:
            while hosts.events < MOST_EVENTS and not hosts.over:
                if hosts.next_time is None:
                    return progress.stuck("and nothing is left to happen")
                hosts.step()
                problem = next((found for check in checks if (found := check(steps)) is not None), None)
                if problem is None and hosts.rejected:
                    problem = f"refused: {hosts.rejected[0].reason}"
                if problem is not None:
                    return f"event {hosts.events}: {problem}"
                steps.clear()
        except Exception as error:  # whatever it is, it is found
            return f"event {hosts.events}: {type(error).__name__}: {error}"
        return None
