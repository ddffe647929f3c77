"""The plan of a run whose nodes release noisy sums over samples of their own examples: how many, and how noisy.

Nodes make as many updates as their quotas say, where every node has one and nothing cuts the run short; else the same
nodes are run on the same virtual clock without data. The plan that each ledger commits to is that schedule, and the
noise is calibrated so that the busiest node ends within the budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from gossamer.algorithms.context import Facts
from gossamer.algorithms.persons import asked
from gossamer.algorithms.problem import Estimated, Problem
from gossamer.algorithms.sample_noise import Schedule, describe_law
from gossamer.algorithms.sample_readings import Charged, epsilon_so_far
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import counted
from gossamer.privacy.accounting.pure_composition import compositions
from gossamer.privacy.accounting.release_times import OPEN_TIMES, PUBLIC_TIMES
from gossamer.privacy.guarantees import Guarantee, reproducible
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism, NoNoise
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.sides.deployed_guarantee import Drawn, Times
from gossamer.sides.plan import Nothing, Samples, SidePlan

EVERYBODY = "everybody"
"""The observer of what nodes release: it is shown to none alone."""


@dataclass(frozen=True)
class SamplePlan:
    """The plan of a run whose nodes release noisy sums over samples of their own examples.

    Attributes
    ----------
    problem : Problem
        What is planned for.
    stop : StopSettings
        With the default filled in.
    quotas : dict of str to int, or None
        Updates of each node.
    mechanisms : dict of str to Mechanism
        Each node's noise, calibrated.
    schedules : dict of str to Schedule
        The most releases of each node.
    epsilons : dict of str to float
        Proved for each node's whole plan; infinite without noise, and where it is reproducible.
    guarantee : Guarantee
        The worst of them, in words.
    advice : tuple of str
        What is to be said of the noise.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    """

    problem: Problem[Any] = field(repr=False, compare=False)
    stop: StopSettings
    quotas: dict[str, int] | None
    mechanisms: dict[str, Mechanism]
    schedules: dict[str, Schedule]
    epsilons: dict[str, float]
    guarantee: Guarantee
    advice: tuple[str, ...] = ()
    would_be: Mapping[str, float] = field(default_factory=dict)

    lengths = None
    """Nothing is known of how long models are."""
    timed = True

    def reproducible(self) -> SamplePlan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = dict.fromkeys(self.epsilons, math.inf)
        return replace(self, epsilons=none, would_be=self.epsilons, guarantee=reproducible(self.guarantee))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.problem.size

    @property
    def estimates(self) -> Estimated | None:
        """Estimates that the schedule rests on and that the spec does not say."""
        return self.problem.estimates

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """Guarantees against all that may look."""
        return {EVERYBODY: self.guarantee}

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """The noise that all nodes have in common, if they do."""
        laws = set(self.mechanisms.values())
        return laws.pop() if len(laws) == 1 else None

    @property
    def updates(self) -> int:
        """Most releases of all nodes together."""
        return sum(sum(schedule.values()) for schedule in self.schedules.values())

    def side(self, name: str) -> SidePlan:
        """Plan of what leaves the data of node ``name``, at most; nothing of a server without data."""
        return self._samples(name, partial(self.queries, name)) if name in self.schedules else Nothing()

    def outside(self, name: str) -> Samples:
        """The same: nothing is shown to some alone."""
        return self._samples(name)

    @cached_property
    def sides(self) -> dict[str, SidePlan]:
        """Plan of each node with data, in a world that can draw any noise."""
        return {name: self._samples(name) for name in self.problem.names}

    def _samples(self, name: str, queries: Callable[[], Iterable[Query]] = tuple) -> Samples:
        return Samples(self.counts(name), self.mechanisms[name].private, queries)

    def counts(self, name: str) -> Counts:
        """The releases of node ``name``, as its ledger counts them."""
        return release_counts(self.schedules[name], self.mechanisms[name], self.size)

    def smallest_sum(self, name: str) -> None:
        """Nobody hides in sums."""

    def queries(self, name: str) -> tuple[Query, ...]:
        """Queries that node ``name`` will be asked, at the first clip."""
        clipping, law, first = self.problem.clipping, self.mechanisms[name], self.problem.first_state()
        return tuple(clipping.query(Query(sampling, law, 1.0), first) for sampling in self.schedules[name])

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Numbers of each release and its count, and Poisson samples, of the node that makes most."""
        releases = max(sum(schedule.values()) for schedule in self.schedules.values())
        samples = releases * any(isinstance(law, Poisson) for schedule in self.schedules.values() for law in schedule)
        times = Times(PUBLIC_TIMES, samples) if deadline else Times(OPEN_TIMES)
        if all(isinstance(law, Gaussian) for law in self.mechanisms.values()):
            return {EVERYBODY: Drawn(releases * (self.size + 1), samples, network=network, times=times)}
        return {EVERYBODY: Drawn(floating_point=True, network=network, times=times)}

    def __str__(self) -> str:
        laws = set(self.mechanisms.values())
        noise = describe_law(laws.pop()) if len(laws) == 1 else f"{len(laws)} different noise laws"
        return f"{counted(self.updates, 'update')} of {counted(len(self.schedules), 'node')}, {noise}"

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The law of each node."""
        return [mechanism.describe() for mechanism in self.mechanisms.values()]

    def releases(self, name: str) -> int:
        """Most releases of node ``name``."""
        return sum(self.schedules[name].values())

    def describe(self) -> dict[str, Any]:
        """The noise that all nodes have in common; of no noise, its name alone."""
        if self.mechanism is None:
            return {"mechanism": "different for each node"}
        return {"mechanism": "none"} if isinstance(self.mechanism, NoNoise) else self.mechanism.describe()

    def describe_node(self, name: str) -> dict[str, Any]:
        """A node's law, if it is not the others'."""
        return self.mechanisms[name].describe() if self.mechanism is None else {}

    @property
    def figures(self) -> dict[str, Any]:
        """Epsilons by several ways of composing, where there are several."""
        ways = composed(self)
        return {} if ways is None else {"would_be_compositions" if self.would_be else "compositions": ways}

    @property
    def facts(self) -> Facts | None:
        """Facts that claims are computed from; None for a run without noise."""
        if not self.problem.spec.private:
            return None
        least = min(self.mechanisms.values(), key=lambda law: law.second_moment(self.size))
        return self.problem.facts(self.updates, least, self.releases)

    def spent(self, ledgers: Iterable[Charged]) -> float | None:
        return epsilon_so_far(self.problem, ledgers)


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def composed(plan: SamplePlan) -> dict[str, float] | None:
    """Compose the releases of the node that spends most in several ways, for single examples.

    None for noise without a pure epsilon, and where persons' examples are counted together.
    """
    epsilons = plan.would_be or plan.epsilons
    worst = max(epsilons, key=lambda name: epsilons[name])
    mechanism, schedule = plan.mechanisms[worst], plan.schedules[worst]
    if not isinstance(mechanism, L2Laplace) or len(schedule) != 1 or asked(plan.problem.spec):
        return None
    ((kind, count),), spec = plan.counts(worst).items(), plan.problem.spec
    return compositions(kind, count, spec.delta, spec.privacy.relation)
