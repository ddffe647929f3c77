"""A drill: one script of incidents in virtual time, for any seed, compared with the same run without any.

    drill = Drill.of(experiment, Script.read("incidents.yaml"), recall)
    found = drill.run(seed)
    assert not found.problems

A run is made three times: undisturbed, with the incidents of single parties, and with the broker's as well. After every
event of the last two holds what has to hold in spite of any fault (`faults.checks`); at the end of each, that all who
are still there have finished, how much later than without incidents, and that every ledger is complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import SpecError
from gossamer.experiment.spec import Experiment
from gossamer.faults.checks import Answers, Conserved, Delivery
from gossamer.faults.drilled_hosts import DrilledHosts, Recall
from gossamer.faults.fault_injector import Reaper
from gossamer.faults.incidents import Incident, Script, duration
from gossamer.faults.schedules import Schedule
from gossamer.faults.sides import WatchedSides, lines_of
from gossamer.faults.specs import SmallRun
from gossamer.faults.whole_runs import whole_run
from gossamer.faults.trials import Disk, Ledgers, laboratory
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Answered, Completed
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import Step
from gossamer.runtimes.speeds import Speeds
from gossamer.sides.machine import Side

MOST_EVENTS = 200_000
"""Of a drill, which is over long before."""
SINGLE, ALL = "incidents of single parties", "all incidents"
_INSTANT = 1.0
"""Seconds in which frames are under way: nobody who waits for nobody ends later by more than that."""


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
class Fate:
    """Fate of one party in a drill.

    Attributes
    ----------
    party : str
        Its name.
    incident : str
        In words.
    delay : float or None
        Seconds by which it ended later than without incidents; None if it did not end.
    allowed : float
        Most seconds of that.
    charged : int
        Releases in its ledger.
    end, note : str
        In words; the note is what it said of an old copy.
    """

    party: str
    incident: str
    delay: float | None
    allowed: float
    charged: int | None
    end: str
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """Outcome of a drill for a seed.

    Attributes
    ----------
    seed : int
        Which.
    fates : mapping of str to tuple of Fate
        Of all nodes, by run: `SINGLE`, `ALL`, and where rounds wait one of each party that something befalls.
    problems : tuple of str
        What did not hold.
    """

    seed: int
    fates: Mapping[str, tuple[Fate, ...]]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Drill:
    """A drill of one spec.

    Attributes
    ----------
    run : SmallRun
        The spec's, at full length.
    script : Script
        What happens.
    recall : callable
        What a party says of an old copy of its disk.
    """

    small: SmallRun
    script: Script
    recall: Recall
    _disk: Disk = field(default_factory=Disk, repr=False, compare=False)

    @classmethod
    def of(cls, experiment: Experiment, script: Script, recall: Recall) -> Drill:
        """The drill of a spec.

        Raises
        ------
        CallerError
            If the spec does not fit together, or a party is none of its own.
        """
        deadline_of(experiment)
        small, _ = whole_run(experiment)
        script.check(small.prepared.names)
        return cls(small, script, recall)

    @property
    def parties(self) -> tuple[str, ...]:
        """Those with data."""
        return tuple(self.small.prepared.names)

    @cached_property
    def session(self) -> SessionSettings:
        """Settings of sessions, as deployed parties have them."""
        links = self.small.prepared.experiment.links
        return SessionSettings(links.retry_after, 8 * links.retry_after, links.silence, learns=True)

    @property
    def deadline(self) -> float:
        """Most seconds for which a round waits for one who is away; 0 where nobody waits."""
        return deadline_of(self.small.prepared.experiment)

    def run(self, seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
        """Run the drill for a seed; ``tell`` is called with a line about each thing that happens."""
        script = self.script.moved(seed)
        quiet = self._found(seed, Script.model_construct(incidents=()))
        problems = [] if quiet.problem is None else [f"without incidents: {quiet.problem}"]
        fates: dict[str, tuple[Fate, ...]] = {}
        for title, part in self._parts(script).items():
            ran = self._found(seed, part, tell if part is script else None)
            fates[title] = tuple(self._fate(name, part, quiet, ran) for name in self.small.nodes)
            wrong = [line for fate in fates[title] for line in self._wrong(fate, ran)]
            wrong = wrong if ran.problem is None else [ran.problem]  # which ended the run
            problems += [f"{title}: {line}" for line in wrong]
        return Outcome(seed, fates, tuple(problems))

    def _parts(self, script: Script) -> dict[str, Script]:
        """The runs that are made, by what happens in them. Where rounds wait, each party's incidents also alone."""
        each = {f"{name} alone": script.only(name) for name in script.parties} if self.deadline else {}
        return each | {SINGLE: script.without_broker(), ALL: script}

    def _found(self, seed: int, script: Script, tell: Callable[[str], None] | None = None) -> Found:
        """Let a run go to its end."""
        small, steps, reaper = self.small, list[Step](), Reaper()
        experiment, names = small.prepared.experiment, small.prepared.names
        ledgers = Ledgers(self._disk, small, reaper)
        sides = WatchedSides(small.pool(laboratory(ledgers), Side), ledgers.charged, small.private)
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
        algorithm, counted = small.prepared.algorithm, _Counted(small.nodes)
        checks: list[Callable[[Sequence[Step]], str | None]] = [
            sides,
            Delivery(hosts),
            Answers(hosts, algorithm, small.names[len(names) :], small.averaged, small.private),
            Conserved(hosts, algorithm),
        ]
        problem = None
        while problem is None and not self._over(hosts):
            if hosts.next_time is None or hosts.events >= MOST_EVENTS:
                problem = f"it does not end: {', '.join(set(names) - set(hosts.ended))} go on after {hosts.now:g} s"
                break
            hosts.step()
            if steps:
                for step in steps:
                    counted(step)
                problem = next((said for check in checks if (said := check(steps)) is not None), None)
                steps.clear()
            if problem is None and hosts.rejected:
                problem = f"refused: {hosts.rejected[0].reason}"
        charged = {name: ledgers.charged(name) for name in small.nodes}
        longest = counted.steps * speeds.longest
        return Found(hosts.ended, charged, sides.asked, counted.given, hosts.refused, longest, problem)

    def _over(self, hosts: DrilledHosts) -> bool:
        """Whether all parties that ever come back have finished."""
        return hosts.gone.union(hosts.ended).issuperset(self.parties) and not hosts.away - hosts.gone

    def _fate(self, name: str, script: Script, quiet: Found, ran: Found) -> Fate:
        incidents = script.of(name)
        gone = any(math.isinf(incident.lasts) for incident in incidents)
        ended, before = ran.ended.get(name), quiet.ended.get(name)
        delay = None if gone or ended is None or before is None else ended - before
        said = ran.refused.get(name)
        end = "gone" if gone else "finished" if ended is not None else "goes on" if name in self.parties else "serves"
        note = "" if said is None else f"its old copy is refused, as {said}"
        words = ", ".join(map(str, incidents)) or "none"
        return Fate(name, words, delay, self._allowed(name, script, ran), ran.charged[name], end, note)

    def _allowed(self, name: str, script: Script, ran: Found) -> float:
        """Most seconds by which a party may end later.

        Its own outages and the broker's, each with one retry; of a process that was killed the retry is that of the
        update it was at. Where rounds wait, one deadline for each incident of anybody.
        """
        mine = [one for one in script.incidents if one.party in (None, name) and not math.isinf(one.lasts)]
        allowed = sum(one.lasts + self._retry(one, ran) for one in mine)
        if self.deadline:
            allowed += sum(self.deadline for one in script.incidents)
        return allowed + _INSTANT

    def _retry(self, incident: Incident, ran: Found) -> float:
        again = incident.copied if incident.copied and ran.refused.get(incident.party or "") is None else 0.0
        return self.session.longest_retry + (ran.longest + again if incident.kind in ("killed", "backup") else 0.0)

    def _wrong(self, fate: Fate, ran: Found) -> list[str]:
        """Faults found at a party."""
        name, found = fate.party, []
        given, asked = ran.given[name], ran.asked[name]
        if fate.end == "goes on":
            found.append(f"{name} has not finished")
        elif fate.delay is not None and fate.delay > fate.allowed:
            found.append(f"{name} ends {duration(fate.delay)} later, expected {duration(fate.allowed)} at most")
        if fate.charged is not None and not given <= fate.charged <= asked:
            found.append(
                f"the ledger of {name} has {fate.charged} releases, and its node asked for {asked}, of which it was "
                f"given {given}"
            )
        return found


def deadline_of(experiment: Experiment) -> float:
    settings = experiment.algorithm
    deadline = ALGORITHMS[settings.name].waits(settings)
    if deadline is None:
        raise SpecError(
            f"a drill says how long anybody waits for those who are away, and {settings.name} waits without end; give "
            "algorithm.timeout, or take gossip or fedbuff"
        )
    return deadline


class _Counted:
    """Counts of what nodes were given, as lines of their ledgers."""

    def __init__(self, nodes: Iterable[str]) -> None:
        self.given = dict.fromkeys(nodes, 0)
        self.steps = 0  # of the longest task
        self._lines: dict[tuple[str, int], int] = {}

    def __call__(self, step: Step) -> None:
        if isinstance(step.event, Completed | Answered):
            self.given[step.node] += self._lines.get((step.node, step.event.id), 1)
        for effect in step.effects:
            if isinstance(effect, Compute):
                task: Any = effect.task
                self.steps = max(self.steps, task.steps)
                self._lines[step.node, task.id] = lines_of(task)


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
