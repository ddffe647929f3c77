"""Trials of small runs under a schedule of faults, with real nodes, sessions, hosts, ledgers and data sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.experiment.specs.spec import Experiment
from gossamer.faults.checks import ALONE, Answers, Company, Conserved, Delivery, Liveness
from gossamer.faults.hosts import LinkedHosts, Reaper
from gossamer.faults.schedules import SETTINGS, FaultSchedule, shortened
from gossamer.faults.sides import Laboratory, WatchedSides
from gossamer.faults.specs import SmallRun, small_runs
from gossamer.protocol.trace import Step
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger, MemoryLedger
from gossamer.sides.machine import Side
from gossamer.sides.plan import SidePlan, Trust
from gossamer.sides.pool import Machine

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
        problem = trial.problem(shortest, story.append)
        return cls(seed, problem or "", shortest, trial.runs[shortest.variant].names, tuple(story))

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
        return {
            "seed": self.seed,
            "problem": self.problem,
            "nodes": list(self.nodes),
            "faults": [str(fault) for fault in self.schedule.faults],
            "story": list(self.story),
        }


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
        """Trial of a spec; see `faults.specs.small_runs`."""
        return cls(small_runs(experiment)[0], **bugs)

    def schedule(self, seed: int) -> FaultSchedule:
        """Schedule of faults for a seed."""
        return FaultSchedule.seeded(seed, [run.names for run in self.runs])

    def problem(self, schedule: FaultSchedule, tell: Callable[[str], None] | None = None) -> str | None:
        """Find what does not hold in a run with ``schedule``; None if all does.

        ``tell`` is called with a line about each fault as it happens.
        """
        run, steps, reaper = self.runs[schedule.variant], list[Step](), Reaper()
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
        checks: list[Callable[[Sequence[Step]], str | None]] = [
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
