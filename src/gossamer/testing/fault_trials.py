"""What happens to small runs under a schedule of faults, with real nodes, sessions, hosts, ledgers and data sides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms.edge_messages import SERVER
from gossamer.experiment.agent_sides import agent_sides
from gossamer.experiment.sample_plan import SamplePlan, release_counts
from gossamer.experiment.spec import Experiment
from gossamer.experiment.unit_plan import UnitPlan
from gossamer.privacy.data_side import Computer, DataSide, DataSides
from gossamer.privacy.ledger import RenyiFilter
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.unit_side import UnitSide, UnitSides
from gossamer.protocol.trace import Step
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage_ledger import LedgerFile
from gossamer.testing.fault_checks import Answers, Conserved, Delivery, Progress
from gossamer.testing.fault_schedules import SETTINGS, Schedule
from gossamer.testing.fault_sides import WatchedLedger, WatchedSides
from gossamer.testing.fault_specs import SmallRun, small_runs
from gossamer.testing.hosts import LinkedHosts
from gossamer.testing.reaper import Reaper

MOST_EVENTS = 300
"""Of a run with faults."""

_BUDGET = RenyiFilter(math.inf, 1e-5, NeighboringRelation.ADD_OR_REMOVE_ONE)
_SHARE = 1000  # so many runs share a ledger file: making one takes as long as a run


class _Samples:
    """Of nodes that release noisy sums over their own samples."""

    def __init__(self, run: SmallRun, ledgers: _Ledgers, side: type[DataSide]) -> None:
        assert isinstance(run.plan, SamplePlan)
        self.run, self.plan, self.ledgers, self.side = run, run.plan, ledgers, side
        self.shards = dict(zip(run.prepared.names, run.prepared.shards, strict=True))

    def computer(self) -> Computer:
        prepared = self.run.prepared
        sides = {name: self._side(name, 0) for name in self.shards}
        return DataSides(sides, prepared.objective, prepared.dataset.train)

    def renew(self, computer: Any, name: str, seed: int) -> None:
        if name in self.shards:
            computer.sides[name] = self._side(name, seed)

    def charged(self, name: str) -> int | None:
        return int(self._ledger(name).releases)

    def _side(self, name: str, seed: int) -> DataSide:
        return self.side(self.ledgers.watched(self._ledger(name)), self.shards[name], seed)

    def _ledger(self, name: str) -> Any:
        plan = self.plan
        if not self.run.private:
            return self.ledgers.kept(name, plan.ledger(name))
        planned = release_counts(plan.schedules[name], plan.mechanisms[name], plan.size)
        return self.ledgers.open(name, planned)


class _Units:
    """Of the agents and servers of federated units."""

    def __init__(self, run: SmallRun, ledgers: _Ledgers, side: type[DataSide]) -> None:
        assert isinstance(run.plan, UnitPlan)
        self.run, self.plan, self.ledgers = run, run.plan, ledgers

    def computer(self) -> Computer:
        prepared, plan = self.run.prepared, self.plan
        units = {server: self._server(server, 0) for server in plan.units}
        server_of = {agent: server for server, unit in plan.units.items() for agent in unit.agents}
        agents = self._agents(0)
        return UnitSides(agents, units, server_of, prepared.objective, prepared.dataset.train)

    def renew(self, computer: Any, name: str, seed: int) -> None:
        if name in self.plan.units:
            computer.units[name] = self._server(name, seed)
        else:
            computer.agents[name] = self._agents(seed)[name]

    def charged(self, name: str) -> int | None:
        ledger = self._ledger(name) if name in self.plan.units else self.ledgers.known(name)
        return None if ledger is None else int(ledger.releases)

    def _agents(self, seed: int) -> dict[str, Any]:
        spec = self.run.prepared.experiment
        agents: dict[str, Any] = {}
        noise = spec.privacy.agent_noise or 0.0
        agents.update(agent_sides(self.run.prepared, seed, self.plan.clip, noise, self.plan.radius))
        for name, side in agents.items():
            if (ledger := getattr(side, "ledger", None)) is not None:
                side.ledger = self.ledgers.watched(self.ledgers.kept(name, ledger))
        return agents

    def _server(self, name: str, seed: int) -> UnitSide:
        return UnitSide(self.ledgers.watched(self._ledger(name)), self.plan.size, seed)

    def _ledger(self, name: str) -> Any:
        unit = self.plan.units[name]
        return self.ledgers.open_stream(name, unit.stream, unit.agents)


class _Disk:
    """Where runs keep their ledgers."""

    def __init__(self) -> None:
        self._file, self._runs = LedgerFile(":memory:"), 0

    def run(self) -> tuple[LedgerFile, str]:
        """The file of a new run, and its name there."""
        self._runs += 1
        if self._runs % _SHARE == 0:
            self._file.close()
            self._file = LedgerFile(":memory:")
        return self._file, f"run-{self._runs}"


class _Ledgers:
    """The ledgers of one run, on what is a disk to it."""

    def __init__(self, disk: _Disk, reaper: Callable[[str], None]) -> None:
        (self.file, self.run), self.reaper = disk.run(), reaper
        self._kept: dict[str, Any] = {}

    def open(self, name: str, planned: Mapping[Any, int]) -> Any:
        return self.file.open(name, f"{self.run} {name}", self.run, _BUDGET, planned)

    def open_stream(self, name: str, stream: Any, agents: tuple[str, ...]) -> Any:
        return self.file.open_stream(name, f"{self.run} {name}", self.run, _BUDGET, stream, agents, 0.0)

    def kept(self, name: str, empty: Any) -> Any:
        """A ledger in memory that outlives processes too; ``empty`` at first."""
        return self._kept.setdefault(name, empty)

    def known(self, name: str) -> Any:
        return self._kept.get(name)

    def watched(self, ledger: Any) -> Any:
        return WatchedLedger(ledger, self.reaper)


@dataclass(frozen=True)
class Trial:
    """What is run, and what must hold.

    Attributes
    ----------
    runs : sequence of SmallRun
        A schedule says which of them it happens to.
    kind : type of Host
        Another one has a bug that tests are to find.
    side : type of DataSide
        So has this.
    """

    runs: Sequence[SmallRun]
    kind: type[Host] = Host
    side: type[DataSide] = DataSide
    _disk: _Disk = field(default_factory=_Disk, repr=False, compare=False)

    @classmethod
    def of(cls, experiment: Experiment, **bugs: Any) -> Trial:
        """That of a spec; see `fault_specs.small_runs`."""
        return cls(small_runs(experiment)[0], **bugs)

    def schedule(self, seed: int) -> Schedule:
        """What goes wrong for a seed."""
        return Schedule.seeded(seed, [run.names for run in self.runs])

    def problem(self, schedule: Schedule, tell: Callable[[str], None] | None = None) -> str | None:
        """What does not hold in a run with ``schedule``; None if all does.

        ``tell`` is called with a line about each fault as it happens.
        """
        run, steps, reaper = self.runs[schedule.variant], list[Step](), Reaper()
        ledgers = _Ledgers(self._disk, reaper)
        make = _Units if run.prepared.units else _Samples
        sides = WatchedSides(make(run, ledgers, self.side), reaper, run.private)
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
        )
        algorithm, names = run.prepared.algorithm, run.prepared.names
        progress = Progress(hosts, names, SERVER if SERVER in run.names else None)
        checks: list[Callable[[Sequence[Step]], str | None]] = [
            sides,
            Delivery(hosts),
            Answers(hosts, algorithm, run.names[len(names) :], run.averaged, run.private),
            Conserved(hosts, algorithm),
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
