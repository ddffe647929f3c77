"""One run of a drill to its end: hosts with incidents, and what has to hold after every event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gossamer.faults.checks import Answers, Conserved, Delivery
from gossamer.faults.drilled_hosts import DrilledHosts, Recall
from gossamer.faults.fault_injector import Reaper
from gossamer.faults.incidents import Script, duration
from gossamer.faults.schedules import Schedule
from gossamer.faults.sides import WatchedSides
from gossamer.faults.specs import SmallRun
from gossamer.faults.trials import Disk, Ledgers, laboratory
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Answered, Completed
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import Step
from gossamer.runtimes.speeds import Speeds
from gossamer.sides.machine import Side

MOST_EVENTS = 200_000
"""Of a drill, which is over long before."""


@dataclass
class Found:
    """End of one run.

    Attributes
    ----------
    ended : mapping of str to float
        When each party finished.
    charged : mapping of str to int or None
        Releases in each node's ledger; None where it has none.
    asked, given : mapping of str to int
        Releases that each node has asked for, and that it was given: what lies between was lost with a process, or is
        under way.
    refused : mapping of str to str or None
        What a party said of an old copy.
    longest : float
        Seconds of the longest update.
    problem : str or None
        What did not hold.
    """

    ended: Mapping[str, float]
    charged: Mapping[str, int | None]
    asked: Mapping[str, int]
    given: Mapping[str, int]
    refused: Mapping[str, str | None]
    longest: float
    problem: str | None


@dataclass(frozen=True)
class Course:
    """A run that can be made again and again, with other incidents.

    Attributes
    ----------
    small : SmallRun
        The run.
    recall : callable
        What a party says of an old copy of its disk.
    """

    small: SmallRun
    recall: Recall
    _disk: Disk = field(default_factory=Disk, repr=False, compare=False)

    @cached_property
    def session(self) -> SessionSettings:
        """Settings of sessions, as deployed parties have them."""
        links = self.small.prepared.experiment.links
        return SessionSettings(links.retry_after, 8 * links.retry_after, links.silence, learns=True)

    @cached_property
    def parties(self) -> frozenset[str]:
        """Those with data."""
        return frozenset(self.small.prepared.names)

    def run(self, seed: int, script: Script, tell: Callable[[str], None] | None = None) -> Found:
        """Let a run go to its end; ``tell`` is called with a line about each thing that happens."""
        small, steps, reaper = self.small, list[Step](), Reaper()
        experiment, names = small.prepared.experiment, small.prepared.names
        ledgers = Ledgers(self._disk, small, reaper)
        sides = WatchedSides(small.pool(laboratory(ledgers), Side), ledgers.charged, small.private, small.lines)
        speeds = _Noted(Speeds(experiment.speeds, len(small.nodes), seed))
        hosts = DrilledHosts(
            small.nodes,
            sides,
            Schedule(script.faults(seed, small.names), every=64),
            speeds=speeds,
            settings=self.session,
            units=small.prepared.units,
            watch=steps.append,
            reaper=reaper,
            tell=tell,
            recall=self.recall,
        )
        algorithm, counted = small.prepared.algorithm, _Counted(small.nodes, small.lines)
        checks: list[Callable[[Sequence[Step]], str | None]] = [
            sides,
            Delivery(hosts),
            Answers(hosts, algorithm, small.names[len(names) :], small.averaged, small.private),
            Conserved(hosts, algorithm),
        ]
        problem = None
        while problem is None and not (hosts.changed and self._over(hosts)):
            if hosts.next_time is None or hosts.events >= MOST_EVENTS:
                on = ", ".join(name for name in names if name not in hosts.ended)
                problem = f"it does not end: {on} go on after {hosts.now:g} s"
                break
            hosts.step()
            if steps:
                for step in steps:
                    counted(step)
                problem = next((said for check in checks if (said := check(steps)) is not None), None)
                steps.clear()
            if problem is None and hosts.rejected:
                problem = f"refused: {hosts.rejected[0].reason}"
        missed = [one for one in script.incidents if one.at > hosts.now]
        if problem is None and missed:
            problem = f"it is over after {duration(hosts.now)}, before {missed[0]} happens ({duration(missed[0].at)})"
        charged = {name: ledgers.charged(name) for name in small.nodes}
        longest = counted.steps * speeds.longest
        return Found(hosts.ended, charged, sides.asked, counted.given, hosts.refused, longest, problem)

    def _over(self, hosts: DrilledHosts) -> bool:
        """Whether all parties that ever come back have finished."""
        return hosts.gone.union(hosts.ended).issuperset(self.parties) and not hosts.away - hosts.gone


class _Counted:
    """Counts of what nodes were given, as lines of their ledgers."""

    def __init__(self, nodes: Iterable[str], lines: Callable[[str, Any], int]) -> None:
        self.given, self.lines = dict.fromkeys(nodes, 0), lines
        self.steps = 0  # of the longest task
        self._worth: dict[tuple[str, int], int] = {}
        self._seen: set[tuple[str, int]] = set()

    def __call__(self, step: Step) -> None:
        if isinstance(step.event, Completed | Answered):
            self._count(step.node, step.event)
        for effect in step.effects:
            if isinstance(effect, Compute):
                task: Any = effect.task
                self.steps = max(self.steps, task.steps)
                self._worth[step.node, task.id] = self.lines(step.node, task)

    def _count(self, node: str, event: Completed | Answered) -> None:
        """Note what a node was given: once, however often it asked again, and nothing where it was refused."""
        refused = isinstance(event, Answered) and not event.vector.size
        if not refused and (node, event.id) not in self._seen:
            self._seen.add((node, event.id))
            self.given[node] += self._worth.get((node, event.id), 1)


class _Noted:
    """Speeds that keep the longest time of a task."""

    def __init__(self, speeds: Speeds) -> None:
        self._speeds, self.longest = speeds, 0.0

    def seconds(self, node: int, number: int) -> float:
        """Virtual seconds of a step of an update."""
        found = self._speeds.seconds(node, number)
        self.longest = max(self.longest, found)
        return found

    def ahead(self, node: int, number: int) -> float:
        return self._speeds.ahead(node, number)
