"""How many releases each node will make, how much noise they need, and what is then guaranteed.

The schedule of a run does not depend on what its models are, so it is known before the run: from quotas where every
node has one, and else from running the same nodes on the same virtual clock with a null data side. The plan that each
ledger commits to is that schedule, and the noise is calibrated so that the busiest node ends within the budget.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from gossamer.algorithms.interface import SYNTHETIC
from gossamer.errors import RunWarning, SpecError
from gossamer.experiment.completing import estimates_on
from gossamer.experiment.driving import Blind, drive
from gossamer.experiment.noise import Schedule, advice_on_noise, check_budget, choose_mechanisms, describe_law
from gossamer.experiment.person_plan import advice_on_persons, asked, check_room, joint, knowledge, rows_at, spread
from gossamer.experiment.plans import RunPlan as RunPlan
from gossamer.experiment.prepare import Prepared
from gossamer.experiment.sample_plan import SamplePlan, release_counts
from gossamer.experiment.spec import Experiment, StopSettings
from gossamer.experiment.unit_planning import plan_units
from gossamer.privacy import guarantees
from gossamer.privacy.accountants import epsilon
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism, NoNoise
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.sampling import Sampling
from gossamer.privacy.weakness import remarked
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.null import DryRun

DEFAULT_EPOCHS = 20.0
_LOOKS = 1000
"""Most evaluations in the time of an update."""


def plan_run(prepared: Prepared) -> RunPlan:
    """Fix schedule, noise and guarantee.

    Raises
    ------
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    found, advised = plan_units(prepared) if prepared.experiment.in_units else _plan_samples(prepared)
    for line in [*advised, *prepared.advice(found.mechanisms, found.quotas, found.updates)]:
        warnings.warn(line, RunWarning, stacklevel=2)
    spec = prepared.experiment
    _check_looks(spec)
    return found.reproducible() if spec.private and spec.reproducible else found


def _check_looks(spec: Experiment) -> None:
    """Refuse looks in such numbers that a run would do nothing else."""
    every, seconds = spec.evaluation.every_seconds, spec.speeds.seconds
    if every is not None and spec.evaluation.name == "on" and spec.speeds.name != "file" and every < seconds / _LOOKS:
        raise SpecError(
            f"evaluation.every_seconds is {every:g}, more than {_LOOKS} looks in the {seconds:g} s of an update "
            "(speeds.seconds); raise it"
        )


def _plan_samples(prepared: Prepared) -> tuple[SamplePlan, list[str]]:
    """The plan of nodes that release sums over samples, and what is to be said of their noise."""
    spec = prepared.experiment
    stop = spec.stop if spec.bounded else spec.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})
    quotas = _quotas(prepared, stop)
    schedules = _schedules(prepared, stop, quotas)
    if not any(count for schedule in schedules.values() for count in schedule.values()):
        raise SpecError("no node makes an update before the run ends; raise stop or look at faults")
    check_room(prepared)
    mechanisms = choose_mechanisms(prepared, schedules)
    epsilons = _epsilons(prepared, schedules, mechanisms)
    together = _together(prepared, schedules, mechanisms)
    check_budget(prepared, schedules, epsilons, together)
    guarantee = _guarantee(prepared, schedules, epsilons, mechanisms, together)
    size = prepared.objective.size
    plan = SamplePlan(stop, quotas, mechanisms, schedules, epsilons, guarantee, size, prepared.estimates)
    return plan, [*advice_on_noise(prepared, mechanisms), *advice_on_persons(prepared)]


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
    sides = DryRun()
    drive(Simulator(nodes, sides, prepared.world, count=prepared.count), stop, Blind())
    return sides.counts


def _epsilons(
    prepared: Prepared, schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> dict[str, float]:
    spec, size = prepared.experiment, prepared.objective.size
    known: dict[tuple[Mechanism, frozenset[tuple[Sampling, int]], int], float] = {}
    rows = rows_at(prepared)
    epsilons = {}
    for name, schedule in schedules.items():
        mechanism = mechanisms[name]
        key = mechanism, frozenset(schedule.items()), rows[name]
        if key not in known:
            counts = release_counts(schedule, mechanism, size)
            proved = mechanism.private and all(sampling.proved for sampling in schedule)
            accounted = epsilon(counts, spec.delta, spec.privacy.relation, rows[name]) if proved else None
            known[key] = math.inf if accounted is None else accounted.epsilon
        epsilons[name] = known[key]
    return epsilons


def _together(
    prepared: Prepared, schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> float | None:
    """What is proved of all nodes that hold a person's examples, where they are at several; else None."""
    if not (prepared.experiment.proved and spread(prepared)):
        return None
    size = prepared.objective.size
    counts = {name: release_counts(schedules[name], mechanisms[name], size) for name in prepared.names}
    return joint(prepared, counts).epsilon


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
    together: float | None,
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
    estimated = estimates_on(spec) not in (None, SYNTHETIC)
    more = (guarantees.PUBLIC_EXAMPLES,) if estimated else ()
    bound = epsilons[worst] if together is None else together
    planned = guarantees.planned(bound, spec.delta, relation, proof, *more)
    if asked(prepared):
        planned = guarantees.for_persons(planned, spec.rows_per_person, knowledge(prepared))
    return remarked(planned, min(prepared.shard_sizes.values()))
