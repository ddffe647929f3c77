"""Number of releases of samples that each node will make, noise that they need, and what is then guaranteed.

The schedule of a run does not depend on what its models are, so it is known before the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from gossamer.algorithms.persons import (
    advice_on_persons,
    asked,
    check_room,
    joint,
    knowledge,
    persons_of,
    rows_at,
    spread,
)
from gossamer.algorithms.problem import Problem
from gossamer.algorithms.sample_noise import Schedule, advice_on_noise, check_budget, choose_mechanisms, describe_law
from gossamer.algorithms.sample_plan import SamplePlan, release_counts
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import SpecError, counted
from gossamer.privacy import guarantees
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.accounting.worst import Parts, worst_profile
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.releases import added
from gossamer.privacy.sampling import Sampling
from gossamer.privacy.weakness import remarked

DEFAULT_EPOCHS = 20.0

P = TypeVar("P", bound=SamplePlan)


def plan_samples(problem: Problem[Any], plan: type[P] = SamplePlan) -> P:  # type: ignore[assignment]
    """The ``plan`` of nodes that release noisy sums over samples of their own examples.

    Raises
    ------
    SpecError
        If no node makes an update, or settings do not fit together.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    spec = problem.spec
    stop = spec.stop if spec.bounded else spec.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})
    quotas = quotas_of(problem, stop)
    return plan_schedules(problem, stop, quotas, _schedules(problem, stop, quotas), plan)


def plan_schedules(
    problem: Problem[Any],
    stop: StopSettings,
    quotas: dict[str, int] | None,
    schedules: dict[str, Schedule],
    plan: Callable[..., P],
) -> P:
    """The ``plan`` of nodes that make so many releases, and until then.

    Raises
    ------
    SpecError
        If there are none, or settings do not fit together.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    if not any(count for schedule in schedules.values() for count in schedule.values()):
        raise SpecError("no node makes an update before the run ends; raise stop or look at faults")
    check_room(problem)
    mechanisms = choose_mechanisms(problem, schedules)
    epsilons = _epsilons(problem, schedules, mechanisms)
    together = _together(problem, schedules, mechanisms)
    check_budget(problem, schedules, epsilons, together)
    guarantee = _guarantee(problem, schedules, epsilons, mechanisms, together)
    advice = (*advice_on_noise(problem, mechanisms), *advice_on_persons(problem))
    return plan(
        problem=problem,
        stop=stop,
        quotas=quotas,
        mechanisms=mechanisms,
        schedules=schedules,
        epsilons=epsilons,
        guarantee=guarantee,
        advice=advice,
    )


def quotas_of(problem: Problem[Any], stop: StopSettings) -> dict[str, int] | None:
    """Return how many updates each node makes at most; None where only something else ends the run."""
    workload = problem.workload
    limits: list[Mapping[str, int]] = []
    if workload.quota is not None:
        limits.append(dict.fromkeys(problem.names, workload.quota))
    if stop.epochs is not None:
        limits.append(workload.updates_in(stop.epochs))
    if not limits:
        return None
    quotas = {name: min(limit[name] for limit in limits) for name in problem.names}
    workload.check(max(quotas.values()))
    return quotas


def _schedules(problem: Problem[Any], stop: StopSettings, quotas: dict[str, int] | None) -> dict[str, Schedule]:
    cut_short = stop.updates is not None or stop.virtual_seconds is not None
    if quotas is not None and not cut_short and not problem.absences:
        return {name: _samplings(problem, name, quotas[name]) for name in problem.names}
    counts = problem.schedule(stop, quotas)
    return {name: {kind.sampling: n for kind, n in counts.get(name, {}).items()} for name in problem.names}


def _samplings(problem: Problem[Any], name: str, updates: int) -> Schedule:
    counts = problem.workload.counts(name, updates)
    return {problem.sampling(name, batch): count for batch, count in counts.items()}


def _epsilons(
    problem: Problem[Any], schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> dict[str, float]:
    spec, size = problem.spec, problem.size
    known: dict[tuple[Mechanism, frozenset[tuple[Sampling, int]], int], float] = {}
    rows = rows_at(problem)
    epsilons = {}
    for name, schedule in schedules.items():
        mechanism = mechanisms[name]
        key = mechanism, frozenset(schedule.items()), rows[name]
        if key not in known:
            counts = added(release_counts(schedule, mechanism, size), problem.beforehand)
            proved = mechanism.private and all(sampling.proved for sampling in schedule)
            accounted = epsilon(counts, spec.delta, spec.privacy.relation, rows[name]) if proved else None
            known[key] = math.inf if accounted is None else accounted.epsilon
        epsilons[name] = known[key]
    return epsilons


def _together(
    problem: Problem[Any], schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> float | None:
    """Epsilon of all nodes that hold a person's examples together, where they are at several; else None."""
    if not (problem.spec.proved and spread(problem.spec, problem.holdings)):
        return None
    counts = {
        name: added(release_counts(schedules[name], mechanisms[name], problem.size), problem.beforehand)
        for name in problem.names
    }
    return joint(problem, counts).epsilon


def _parts(
    problem: Problem[Any], schedules: Mapping[str, Schedule], mechanisms: Mapping[str, Mechanism]
) -> list[Parts]:
    """Releases about each example or person, that the profile is of: of those alike once."""
    counts = {
        name: added(release_counts(schedules[name], mechanisms[name], problem.size), problem.beforehand)
        for name in problem.names
    }
    rows = rows_at(problem)
    persons = (
        persons_of(problem, counts) if spread(problem.spec, problem.holdings) else [((n, rows[n]),) for n in counts]
    )
    return [[(counts[name], most) for name, most in person] for person in persons]


_PAPER_NOISE = (
    "privacy.norm: exponential and privacy.noise_scope: first_layer reproduce a paper's figures; no epsilon is proved "
    "for such noise, and examples may be recovered from the messages"
)


_SEQUENTIAL_ROUNDS = (
    "round_update: sequential is the paper's algorithm, in which one example changes all later gradients of its round; "
    "no epsilon is proved for it: take batch or clipped_sum"
)


def _guarantee(
    problem: Problem[Any],
    schedules: Mapping[str, Schedule],
    epsilons: Mapping[str, float],
    mechanisms: Mapping[str, Mechanism],
    together: float | None,
) -> Guarantee:
    spec = problem.spec
    relation = spec.privacy.relation
    if not spec.private:
        return guarantees.none("privacy: none (nothing is noised, so messages may reveal examples)", relation)
    if not spec.privacy.proved:
        return guarantees.none(_PAPER_NOISE, relation)
    if not spec.proved:
        return guarantees.none(_SEQUENTIAL_ROUNDS, relation)
    worst = max(epsilons, key=lambda name: epsilons[name])
    mechanism = mechanisms[worst]
    counts = release_counts({next(iter(schedules[worst])): 1}, mechanism, problem.size)
    accountant = epsilon(counts, spec.delta, relation).accountant
    together_with = (
        "; the gradient and the clip count of a batch are one release, charged jointly"
        if isinstance(spec.privacy.clip, QuantileClip)
        else ""
    )
    clips = spec.terms.sensitivity
    moved = "" if clips == 1 else f"; one example moves a release by {clips:g} clips, and noise multipliers are of that"
    samples = spec.privacy.sampling.replace("_", "-")
    first = counted(sum(problem.beforehand.values()), "release") if problem.beforehand else ""
    before = f"; {first} of each node before the run counted with it" if first else ""
    proof = (
        f"each node's ledger enforces a plan fixed before the run; {describe_law(mechanism)} on {samples} samples is "
        f"composed over the plan of the node that spends most ({accountant}){together_with}{moved}{before}; all a "
        "node sends is post-processing of its releases"
    )
    more = (guarantees.PUBLIC_EXAMPLES,) if problem.public_examples else ()
    bound = epsilons[worst] if together is None else together
    planned = guarantees.planned(bound, spec.delta, relation, proof, *more)
    planned = replace(
        planned, evidence=partial(worst_profile, _parts(problem, schedules, mechanisms), relation, (bound, spec.delta))
    )
    if asked(spec):
        planned = guarantees.for_persons(planned, spec.rows_per_person, knowledge(problem.holdings))
    return remarked(planned, min(problem.shard_sizes.values()))
