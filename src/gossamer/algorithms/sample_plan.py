"""The plan of a run whose nodes release noisy sums over samples of their own examples: how many, and how noisy.

Nodes make as many updates as their quotas say, where every node has one and nothing cuts the run short; else the same
nodes are run on the same virtual clock without data. The plan that each ledger commits to is that schedule, and the
noise is calibrated so that the busiest node ends within the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from gossamer.algorithms.context import Facts
from gossamer.algorithms.node_plan import EVERYBODY, NodePlan
from gossamer.algorithms.persons import asked
from gossamer.algorithms.sample_noise import Schedule
from gossamer.privacy.accounting.pure_composition import compositions
from gossamer.privacy.accounting.release_times import OPEN_TIMES, PUBLIC_TIMES
from gossamer.privacy.mechanisms import Gaussian, L2Laplace, Mechanism
from gossamer.privacy.releases import Counts, ReleaseKind, added
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.sides.deployed_guarantee import Drawn, Times
from gossamer.sides.plan import Nothing, Samples, SidePlan


@dataclass(frozen=True, kw_only=True)
class SamplePlan(NodePlan):
    """The plan of a run whose nodes release noisy sums over samples of their own examples.

    Attributes
    ----------
    schedules : dict of str to Schedule
        The most releases of each node.
    """

    schedules: dict[str, Schedule]

    timed = True

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.problem.size

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
        return Samples(self.counts(name), self.mechanisms[name].private, queries, observer=self.guarantee.observer)

    def counts(self, name: str) -> Counts:
        """The releases of node ``name``, as its ledger counts them."""
        return added(release_counts(self.schedules[name], self.mechanisms[name], self.size), self.problem.beforehand)

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
        return {EVERYBODY: Drawn(0, floating_point=True, network=network, times=times)}

    def releases(self, name: str) -> int:
        """Most releases of node ``name``, those before the run included."""
        return sum(self.counts(name).values())

    def in_run(self, name: str) -> int:
        """Most releases of node ``name`` in the run."""
        return sum(self.schedules[name].values())

    @property
    def updates(self) -> int:
        """Most releases of all nodes together in the run."""
        return sum(map(self.in_run, self.schedules))

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
        return self.problem.facts(self.updates, least, self.in_run)


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def composed(plan: SamplePlan) -> dict[str, float] | None:
    """Compose the releases of the node that spends most in several ways, for single examples.

    None for noise without a pure epsilon, and where persons' examples are counted together.
    """
    epsilons = plan.would_be or plan.epsilons
    worst = max(epsilons, key=lambda name: epsilons[name])
    mechanism = plan.mechanisms[worst]
    if not isinstance(mechanism, L2Laplace) or len(plan.counts(worst)) != 1 or asked(plan.problem.spec):
        return None
    ((kind, count),), spec = plan.counts(worst).items(), plan.problem.spec
    return compositions(kind, count, spec.delta, spec.privacy.relation)
