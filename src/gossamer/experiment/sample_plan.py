"""The plan of a run whose nodes release noisy sums over samples of their own examples: how many, and how noisy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol

from gossamer.algorithms.algorithm import Facts
from gossamer.errors import SpecError, counted
from gossamer.experiment.completing import Estimated
from gossamer.experiment.noise import Schedule, describe_law
from gossamer.experiment.person_plan import asked, joint, spread
from gossamer.experiment.prepare import Prepared
from gossamer.experiment.spec import StopSettings
from gossamer.objectives.objective import IndexArray
from gossamer.privacy.accountants import epsilon
from gossamer.privacy.guarantees import Guarantee, reproducible
from gossamer.privacy.mechanisms import L2Laplace, Mechanism, NoNoise
from gossamer.privacy.pure_composition import compositions
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.tasks import Query
from gossamer.sides.ledger import Ledger, MemoryLedger
from gossamer.sides.making import open_pool
from gossamer.sides.plan import Nothing, Samples, SidePlan
from gossamer.sides.pool import Pool
from gossamer.sides.samples import Shard
from gossamer.sides.simulated import Simulated


@dataclass(frozen=True)
class SamplePlan:
    """The plan of a run whose nodes release noisy sums over samples of their own examples.

    Attributes
    ----------
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
    size : int
        Number of parameters.
    estimates : Estimated or None
        What the schedule rests on that the spec does not say.
    would_be : mapping of str to float
        What ``epsilons`` would be with a noise secret, where noise is reproducible; empty where it is secret.
    guarantees : mapping of str to Guarantee
        None beside ``guarantee``, which is against all that may look.
    """

    stop: StopSettings
    quotas: dict[str, int] | None
    mechanisms: dict[str, Mechanism]
    schedules: dict[str, Schedule]
    epsilons: dict[str, float]
    guarantee: Guarantee
    size: int
    estimates: Estimated | None = None
    would_be: Mapping[str, float] = field(default_factory=dict)
    guarantees: Mapping[str, Guarantee] = field(default_factory=dict)

    def reproducible(self) -> SamplePlan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = dict.fromkeys(self.epsilons, math.inf)
        return replace(self, epsilons=none, would_be=self.epsilons, guarantee=reproducible(self.guarantee))

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """The noise that all nodes have in common, if they do."""
        laws = set(self.mechanisms.values())
        return laws.pop() if len(laws) == 1 else None

    @property
    def lengths(self) -> None:
        """Nothing is known of how long models are."""
        return None

    @property
    def updates(self) -> int:
        """Most releases of all nodes together."""
        return sum(sum(schedule.values()) for schedule in self.schedules.values())

    def side(self, prepared: Prepared, name: str) -> SidePlan:
        """What leaves the data of node ``name``, at most; nothing of a server without data."""
        return self._samples(name, partial(self.queries, prepared, name)) if name in self.schedules else Nothing()

    def outside(self, prepared: Prepared, name: str) -> SidePlan:
        """The same: nothing is shown to some alone."""
        return self._samples(name)

    def _samples(self, name: str, queries: Callable[[], Iterable[Query]] = tuple) -> Samples:
        mechanism = self.mechanisms[name]
        return Samples(release_counts(self.schedules[name], mechanism, self.size), mechanism.private, queries)

    def queries(self, prepared: Prepared, name: str) -> tuple[Query, ...]:
        """What node ``name`` will be asked, at the first clip."""
        first = prepared.clipping.initial(prepared.initial)
        law = self.mechanisms[name]
        return tuple(prepared.clipping.query(Query(sampling, law, 1.0), first) for sampling in self.schedules[name])

    def ledger(self, name: str) -> MemoryLedger:
        """An empty ledger committed to the plan of node ``name``."""
        return MemoryLedger(name, self._samples(name).charges())

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

    def figures(self, prepared: Prepared) -> dict[str, Any]:
        """What several ways of composing say, where there are several."""
        ways = composed(prepared, self)
        return {} if ways is None else {"would_be_compositions" if self.would_be else "compositions": ways}

    def facts(self, prepared: Prepared) -> Facts | None:
        return facts(prepared, self)

    def sides(self, prepared: Prepared, seed: int, blank: IndexArray | None = None) -> tuple[Pool, list[Ledger]]:
        """A data side for each node."""
        pool = open_pool(
            {name: self._samples(name) for name in prepared.names},
            {name: Shard.of(rows, blank) for name, rows in zip(prepared.names, prepared.shards, strict=True)},
            prepared.objective,
            prepared.dataset.train,
            Simulated(seed),
        )
        return pool, pool.ledgers

    def spent(self, prepared: Prepared, ledgers: Iterable[Charged]) -> float | None:
        return epsilon_so_far(prepared, ledgers)


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def composed(prepared: Prepared, plan: SamplePlan) -> dict[str, float] | None:
    """What several ways of composing say of the node that spends most, for single examples.

    None for noise without a pure epsilon, and where persons' examples are counted together.
    """
    epsilons = plan.would_be or plan.epsilons
    worst = max(epsilons, key=lambda name: epsilons[name])
    mechanism, schedule = plan.mechanisms[worst], plan.schedules[worst]
    if not isinstance(mechanism, L2Laplace) or len(schedule) != 1 or asked(prepared):
        return None
    ((kind, count),) = release_counts(schedule, mechanism, plan.size).items()
    return compositions(kind, count, prepared.experiment.delta, prepared.experiment.privacy.relation)


_MOST_READINGS = 32


class Charged(Protocol):
    """A ledger of releases."""

    @property
    def owner(self) -> str:
        """The node."""
        ...

    @property
    def counts(self) -> Counts:
        """What was charged."""
        ...


def epsilon_so_far(prepared: Prepared, ledgers: Iterable[Charged]) -> float | None:
    """The largest epsilon of what nodes have released so far: a reading, not a guarantee, which covers the whole plan.

    None without noise or where it is reproducible, and where nodes differ so much that reading them all would slow
    the run down.
    """
    spec = prepared.experiment
    if not (spec.private and spec.proved) or spec.reproducible:
        return None
    rows = spec.rows_per_person
    if spread(prepared):
        return _joint_so_far(prepared, {ledger.owner: ledger.counts for ledger in ledgers})
    most = _undominated(ledger.counts for ledger in ledgers)
    if len(most) > _MOST_READINGS or not all(kind.mechanism.private for counts in most for kind in counts):
        return None
    return max((epsilon(counts, spec.delta, spec.privacy.relation, rows).epsilon for counts in most), default=0.0)


def _joint_so_far(prepared: Prepared, counts: Mapping[str, Counts]) -> float | None:
    try:
        return joint(prepared, counts, _MOST_READINGS).epsilon
    except SpecError:  # nodes are further apart now than their plans are
        return None


def _undominated(all_counts: Iterable[Counts]) -> list[Counts]:
    """Those of several nodes' counts that may be the worst: no other has as many releases of every kind and more."""
    single: dict[ReleaseKind, int] = {}
    mixed: dict[frozenset[tuple[ReleaseKind, int]], Counts] = {}
    for counts in all_counts:
        if len(counts) > 1:  # a node whose rates differ from one release to the next
            mixed[frozenset(counts.items())] = counts
        for kind, count in counts.items() if len(counts) == 1 else ():
            single[kind] = max(count, single.get(kind, 0))
    front: list[Counts] = []
    for counts in [*mixed.values(), *({kind: count} for kind, count in single.items())]:
        if len(front) > _MOST_READINGS:
            break
        if not any(_within(counts, other) for other in front):
            front = [other for other in front if not _within(other, counts)] + [counts]
    return front


def _within(some: Counts, others: Counts) -> bool:
    return all(count <= others.get(kind, 0) for kind, count in some.items())


def facts(prepared: Prepared, plan: SamplePlan) -> Facts | None:
    """What claims are computed from; None for a run without noise."""
    spec = prepared.experiment
    if not spec.private:
        return None
    smallest = min(prepared.names, key=lambda name: prepared.shard_sizes[name])
    return Facts(
        nodes=len(prepared.names),
        smallest_shard=prepared.shard_sizes[smallest],
        batch_size=float(prepared.workload.of(smallest, 0)),
        updates=plan.updates,
        mechanism=min(plan.mechanisms.values(), key=lambda law: law.second_moment(plan.size)),
        delta=spec.delta,
        workload=prepared.workload,
        smallest=smallest,
        releases=sum(plan.schedules[smallest].values()),
    )
