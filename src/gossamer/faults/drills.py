"""A drill: one script of incidents in virtual time, for any seed, compared with the same run without any.

    drill = Drill.of(experiment, Script.read("incidents.yaml"), recall)
    found = drill.run(seed)
    assert not found.problems

A run is made three times: undisturbed, with the incidents of single parties, and with the broker's as well. After every
event of the last two holds what has to hold in spite of any fault (`faults.checks`); at the end of each, that all who
are still there have finished, how much later than without incidents, and that every ledger is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gossamer.algorithms.table import ALGORITHMS
from gossamer.errors import SpecError
from gossamer.experiment.spec import Experiment
from gossamer.faults.drilled_hosts import Recall
from gossamer.faults.drilled_runs import Course
from gossamer.faults.fates import Comparison, Fate
from gossamer.faults.incidents import Script
from gossamer.faults.whole_runs import whole_run

SINGLE, ALL = "incidents of single parties", "all incidents"


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
    course : Course
        The run, at full length.
    script : Script
        What happens.
    deadline : float
        Most seconds for which a round waits for one who is away; 0 where nobody waits.
    replaced : tuple of str
        What is other than the spec says, a line each.
    """

    course: Course
    script: Script
    deadline: float
    replaced: tuple[str, ...] = ()

    @classmethod
    def of(cls, experiment: Experiment, script: Script, recall: Recall) -> Drill:
        """The drill of a spec; ``recall`` is what a party says of an old copy of its disk.

        Raises
        ------
        CallerError
            If the spec does not fit together, or a party is none of its own.
        """
        deadline = deadline_of(experiment)
        small, replaced = whole_run(experiment)
        script.check(small.prepared.names)
        return cls(Course(small, recall), script, deadline, tuple(replaced))

    def run(self, seed: int, tell: Callable[[str], None] | None = None) -> Outcome:
        """Run the drill for a seed; ``tell`` is called with a line about each thing that happens."""
        script, course = self.script.moved(seed), self.course
        quiet = course.run(seed, Script.model_construct(incidents=()))
        problems = [] if quiet.problem is None else [f"without incidents: {quiet.problem}"]
        fates: dict[str, tuple[Fate, ...]] = {}
        for title, part in self._parts(script).items():
            ran = course.run(seed, part, tell if part is script else None)
            compared = Comparison(course.parties, part, quiet, ran, self.deadline, course.session.longest_retry)
            fates[title] = tuple(map(compared.fate, course.small.nodes))
            wrong = [line for fate in fates[title] for line in compared.wrong(fate)]
            wrong = wrong if ran.problem is None else [ran.problem]  # which ended the run
            problems += [f"{title}: {line}" for line in wrong]
        return Outcome(seed, fates, tuple(problems))

    def _parts(self, script: Script) -> dict[str, Script]:
        """The runs that are made, by what happens in them. Where rounds wait, each party's incidents also alone."""
        each = {f"{name} alone": script.only(name) for name in script.parties} if self.deadline else {}
        return each | {SINGLE: script.without_broker(), ALL: script}


def deadline_of(experiment: Experiment) -> float:
    """Most seconds for which a round of a spec waits for one who is away; 0 where nobody waits.

    Raises
    ------
    SpecError
        If somebody waits without end.
    """
    settings = experiment.algorithm
    deadline = ALGORITHMS[settings.name].waits(settings)
    if deadline is None:
        raise SpecError(
            f"a drill says how long anybody waits for those who are away, and {settings.name} waits without end; give "
            "algorithm.timeout, or take gossip or fedbuff"
        )
    return deadline
