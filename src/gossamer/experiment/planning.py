"""How many releases each node will make, how much noise they need, and what is then guaranteed.

The schedule of a run does not depend on what its models are, so it is known before the run: from quotas where every
node has one, and else from running the same nodes on the same virtual clock with a null data side. The plan that each
ledger commits to is that schedule, and the noise is calibrated so that the busiest node ends within the budget.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gossamer.algorithms.algorithm import Facts
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.completing import Estimated
from gossamer.experiment.driving import Blind, drive
from gossamer.experiment.noise import Schedule, advice_on_noise, check_budget, choose_mechanisms, describe_law
from gossamer.experiment.prepare import Prepared
from gossamer.experiment.spec import StopSettings
from gossamer.privacy import guarantees
from gossamer.privacy.accountants import epsilon
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.data_side import NullDataSides
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.ledger import Ledger, Plan, Policy, Unlimited
from gossamer.privacy.mechanisms import L2Laplace, Mechanism, NoNoise
from gossamer.privacy.pure_composition import compositions
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import Sampling
from gossamer.runtimes.simulator import Simulator

DEFAULT_EPOCHS = 20.0


@dataclass(frozen=True)
class RunPlan:
    """What is fixed before the first release.

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
        Proved for each node's whole plan; infinite without noise.
    guarantee : Guarantee
        The worst of them, in words.
    size : int
        Number of parameters.
    estimates : Estimated or None
        What the schedule rests on that the spec does not say.
    """

    stop: StopSettings
    quotas: dict[str, int] | None
    mechanisms: dict[str, Mechanism]
    schedules: dict[str, Schedule]
    epsilons: dict[str, float]
    guarantee: Guarantee
    size: int
    estimates: Estimated | None = None

    @cached_property
    def mechanism(self) -> Mechanism | None:
        """The noise that all nodes have in common, if they do."""
        laws = set(self.mechanisms.values())
        return laws.pop() if len(laws) == 1 else None

    @property
    def updates(self) -> int:
        """Most releases of all nodes together."""
        return sum(sum(schedule.values()) for schedule in self.schedules.values())

    def ledger(self, name: str) -> Ledger:
        """An empty ledger committed to the plan of node ``name``."""
        mechanism = self.mechanisms[name]
        plan = Plan(release_counts(self.schedules[name], mechanism, self.size))
        policy: Policy = plan if mechanism.private else Unlimited()
        return Ledger(name, policy)


def plan_run(prepared: Prepared) -> RunPlan:
    """Fix schedule, noise and guarantee.

    Raises
    ------
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    spec = prepared.experiment
    stop = spec.stop if spec.bounded else spec.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})
    quotas = _quotas(prepared, stop)
    schedules = _schedules(prepared, stop, quotas)
    if not any(count for schedule in schedules.values() for count in schedule.values()):
        raise SpecError("no node makes an update before the run ends; raise stop or look at faults")
    mechanisms = choose_mechanisms(prepared, schedules)
    epsilons = _epsilons(prepared, schedules, mechanisms)
    check_budget(prepared, schedules, epsilons)
    guarantee = _guarantee(prepared, schedules, epsilons, mechanisms)
    size = prepared.objective.size
    plan = RunPlan(stop, quotas, mechanisms, schedules, epsilons, guarantee, size, prepared.estimates)
    for line in [*advice_on_noise(prepared, mechanisms), *prepared.advice(mechanisms, quotas, plan.updates)]:
        warnings.warn(line, RunWarning, stacklevel=2)
    return plan


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def _quotas(prepared: Prepared, stop: StopSettings) -> dict[str, int] | None:
    workload = prepared.workload
    limits: list[Mapping[str, int]] = []
    if workload.quota is not None:
        limits.append(dict.fromkeys(prepared.names, workload.quota))
    if stop.epochs is not None:
        limits.append(workload.updates_in(stop.epochs))
    if not limits:
        return None
    quotas = {name: min(limit[name] for limit in limits) for name in prepared.names}
    workload.check(max(quotas.values()))
    return quotas


def _schedules(prepared: Prepared, stop: StopSettings, quotas: dict[str, int] | None) -> dict[str, Schedule]:
    cut_short = stop.updates is not None or stop.virtual_seconds is not None
    if quotas is not None and not cut_short and not prepared.experiment.faults.absences:
        return {name: _samplings(prepared, name, quotas[name]) for name in prepared.names}
    counts = _dry_run(prepared, stop, quotas)
    return {name: {kind.sampling: n for kind, n in counts.get(name, {}).items()} for name in prepared.names}


def _samplings(prepared: Prepared, name: str, updates: int) -> Schedule:
    counts = prepared.workload.counts(name, updates)
    return {prepared.sampling(name, batch): count for batch, count in counts.items()}


def _dry_run(
    prepared: Prepared, stop: StopSettings, quotas: dict[str, int] | None
) -> dict[str, dict[ReleaseKind, int]]:
    """The same nodes on the same clock, with nothing in their vectors."""
    context = prepared.context(dict.fromkeys(prepared.names, NoNoise()), quotas, blank=True)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    sides = NullDataSides()
    drive(Simulator(nodes, sides, prepared.world, count=prepared.count), stop, Blind())
    return sides.counts


def _epsilons(
    prepared: Prepared, schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> dict[str, float]:
    spec, size = prepared.experiment, prepared.objective.size
    known: dict[tuple[Mechanism, frozenset[tuple[Sampling, int]]], float] = {}
    epsilons = {}
    for name, schedule in schedules.items():
        mechanism = mechanisms[name]
        key = mechanism, frozenset(schedule.items())
        if key not in known:
            counts = release_counts(schedule, mechanism, size)
            proved = mechanism.private and all(sampling.proved for sampling in schedule)
            known[key] = epsilon(counts, spec.delta, spec.privacy.relation).epsilon if proved else math.inf
        epsilons[name] = known[key]
    return epsilons


_PAPER_NOISE = (
    "privacy.norm: exponential and privacy.noise_scope: first_layer reproduce a paper's figures; no epsilon is proved "
    "for such noise, and examples may be recovered from the messages"
)


_SEQUENTIAL_ROUNDS = (
    "round_update: sequential is the paper's algorithm, in which one example changes all later gradients of its round; "
    "no epsilon is proved for it: take batch or clipped_sum"
)


def _guarantee(
    prepared: Prepared,
    schedules: Mapping[str, Schedule],
    epsilons: Mapping[str, float],
    mechanisms: Mapping[str, Mechanism],
) -> Guarantee:
    spec = prepared.experiment
    relation = spec.privacy.relation
    if not spec.private:
        return guarantees.none("privacy: none (nothing is noised, so messages may reveal examples)", relation)
    if not spec.privacy.proved:
        return guarantees.none(_PAPER_NOISE, relation)
    if not spec.proved:
        return guarantees.none(_SEQUENTIAL_ROUNDS, relation)
    worst = max(epsilons, key=lambda name: epsilons[name])
    mechanism = mechanisms[worst]
    counts = release_counts({next(iter(schedules[worst])): 1}, mechanism, prepared.objective.size)
    accountant = epsilon(counts, spec.delta, relation).accountant
    counted = (
        "; the gradient and the clip count of a batch are one release, charged jointly"
        if isinstance(spec.privacy.clip, QuantileClip)
        else ""
    )
    clips = spec.sensitivity
    moved = "" if clips == 1 else f"; one example moves a release by {clips:g} clips, and noise multipliers are of that"
    samples = spec.privacy.sampling.replace("_", "-")
    proof = (
        f"each node's ledger enforces a plan fixed before the run; {describe_law(mechanism)} on {samples} samples is "
        f"composed over the plan of the node that spends most ({accountant}){counted}{moved}; all a node sends is "
        "post-processing of its releases"
    )
    # Also where the constants are written out: they may be what an earlier run estimated.
    estimated = getattr(spec.algorithm, "estimate_on", "synthetic") != "synthetic"
    more = (guarantees.PUBLIC_EXAMPLES,) if estimated else ()
    return guarantees.planned(epsilons[worst], spec.delta, relation, proof, *more)


def composed(prepared: Prepared, plan: RunPlan) -> dict[str, float] | None:
    """What several ways of composing say of the node that spends most; None for noise without a pure epsilon."""
    worst = max(plan.epsilons, key=lambda name: plan.epsilons[name])
    mechanism, schedule = plan.mechanisms[worst], plan.schedules[worst]
    if not isinstance(mechanism, L2Laplace) or len(schedule) != 1:
        return None
    ((kind, count),) = release_counts(schedule, mechanism, plan.size).items()
    return compositions(kind, count, prepared.experiment.delta, prepared.experiment.privacy.relation)


_MOST_READINGS = 32


def epsilon_so_far(prepared: Prepared, ledgers: Iterable[Ledger]) -> float | None:
    """The largest epsilon of what nodes have released so far: a reading, not a guarantee, which covers the whole plan.

    None without noise, and where nodes differ so much that reading them all would slow the run down.
    """
    spec = prepared.experiment
    if not (spec.private and spec.proved):
        return None
    most = _undominated(ledger.counts for ledger in ledgers)
    if len(most) > _MOST_READINGS or not all(kind.mechanism.private for counts in most for kind in counts):
        return None
    return max((epsilon(counts, spec.delta, spec.privacy.relation).epsilon for counts in most), default=0.0)


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


def facts(prepared: Prepared, plan: RunPlan) -> Facts | None:
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
