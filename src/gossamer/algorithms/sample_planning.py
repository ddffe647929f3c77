"""Planning for nodes that release noisy sums over samples of their own examples: how many, how noisy, what is proved.

Nodes make as many updates as their quotas say, where every node has one and nothing cuts the run short; else the same
nodes are run on the same virtual clock without data: the schedule of a run does not depend on what its models are. The
plan that each ledger commits to is that schedule, and the noise is calibrated so that the busiest node ends within the
budget.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gossamer.algorithms.plan import EVERYBODY, Plan, Words, in_common, noise_of
from gossamer.algorithms.problem import Problem, Spec, StopSettings
from gossamer.algorithms.sample_noise import (
    Schedule,
    advice_on_noise,
    advice_on_persons,
    asked,
    check_budget,
    check_room,
    choose_mechanisms,
    joint,
    knowledge,
    persons_of,
    rows_at,
    spread,
)
from gossamer.errors import SpecError, counted
from gossamer.privacy import guarantees
from gossamer.privacy.accounting.accountants import Parts, epsilon, worst_profile
from gossamer.privacy.accounting.pure_composition import compositions
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.guarantees import OTHER_NODES, Guarantee, remarked
from gossamer.privacy.mechanisms import L2Laplace, Mechanism
from gossamer.privacy.releases import Counts, ReleaseKind, added
from gossamer.privacy.sampling import BatchSampling, Poisson
from gossamer.sides.plan import Samples

_MOST_READINGS = 32


def epsilon_so_far(problem: Problem[Any], ledgers: Iterable[Any]) -> float | None:
    """The largest epsilon of what nodes have released so far: a reading, not a guarantee, which covers the whole plan.

    ``ledgers`` have the ``counts`` of their ``owner``. None without noise or where it is reproducible, and where nodes
    differ so much that reading them all would slow the run down.
    """
    spec = problem.spec
    if not (spec.private and spec.proved) or spec.reproducible:
        return None
    rows = spec.rows_per_person
    if spread(problem.spec, problem.holdings):
        try:
            return joint(problem, {ledger.owner: ledger.counts for ledger in ledgers}, _MOST_READINGS).epsilon
        except SpecError:  # nodes are further apart now than their plans are
            return None
    most = _undominated(ledger.counts for ledger in ledgers)
    if len(most) > _MOST_READINGS or not all(kind.mechanism.private for counts in most for kind in counts):
        return None
    worst = revealing(most, rows)
    return max((epsilon(counts, spec.delta, spec.privacy.relation, rows).epsilon for counts in worst), default=0.0)


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


def revealing(all_counts: Iterable[Counts], rows: int) -> list[Counts]:
    """Those of several nodes' counts that no other exceeds in rates and counts: what is revealed grows with both.

    That holds release by release, so also for nodes that release in several ways, such as a scale before the run.
    Where a person has several ``rows``, how many of them are drawn in batches of fixed size depends on more than the
    rate (`planner.calibrate` compares nodes likewise).
    """
    found: list[Counts] = []
    for counts in all_counts:
        if not any(_reveals_less(counts, other, rows) for other in found):
            found = [other for other in found if not _reveals_less(other, counts, rows)] + [counts]
    return found


def _reveals_less(some: Counts, others: Counts, rows: int) -> bool:
    """Whether each release of ``some`` has one of its own among ``others`` that reveals as much or more."""
    least, most = _families(some, rows), _families(others, rows)
    if least is None or most is None:  # several rates within one family: which goes with which is not said
        return _within(some, others)
    return all(
        family in most and kind.sampling.rate <= most[family][0].sampling.rate and count <= most[family][1]
        for family, (kind, count) in least.items()
    )


def _families(counts: Counts, rows: int) -> dict[Hashable, tuple[ReleaseKind, int]] | None:
    """Releases by what they have to have in common to be compared by rate; none where two have it in common."""
    found: dict[Hashable, tuple[ReleaseKind, int]] = {}
    for kind, count in counts.items():
        by_rate = rows == 1 or isinstance(kind.sampling, Poisson)
        found[(kind.mechanism, type(kind.sampling) if by_rate else kind.sampling, kind.size)] = kind, count
    return found if len(found) == len(counts) else None


def _within(some: Counts, others: Counts) -> bool:
    return all(count <= others.get(kind, 0) for kind, count in some.items())


def check_samples(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    privacy = spec.privacy
    if privacy.mechanism == "laplace":
        yield f"privacy.mechanism: laplace is of noise between servers; {settings.name} takes l2_laplace"
    if privacy.standard_deviation is not None:
        level = "epsilon" if privacy.mechanism == "l2_laplace" else "noise_multiplier"
        yield f"privacy.standard_deviation is of noise between servers; {settings.name} takes privacy.{level}"
    if privacy.agent_noise is not None:
        yield f"privacy.agent_noise is of agents in federated units; {settings.name} has none"


DEFAULT_EPOCHS = 20.0


def stop_of(spec: Spec) -> StopSettings:
    """The end of a run, where nothing is said after as many epochs as usual."""
    return spec.stop if spec.bounded else spec.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})


def plan_samples(problem: Problem[Any], observer: str = OTHER_NODES) -> Plan:
    """The plan of nodes that release noisy sums over samples of their own examples.

    Parameters
    ----------
    problem : Problem
        Problem that is planned for.
    observer : str
        Observer that the noise protects from, in the place of all other nodes.

    Raises
    ------
    SpecError
        If no node makes an update, or settings do not fit together.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    stop = stop_of(problem.spec)
    quotas = quotas_of(problem, stop)
    return plan_schedules(problem, stop, _schedules(problem, stop, quotas), observer=observer)


def plan_schedules(
    problem: Problem[Any],
    stop: StopSettings,
    schedules: Mapping[str, Schedule],
    steps: Mapping[str, int] | None = None,
    words: Words | None = None,
    observer: str = OTHER_NODES,
) -> Plan:
    """The plan of nodes that make so many releases.

    Parameters
    ----------
    problem : Problem
        Problem that is planned for.
    stop : StopSettings
        Conditions that end the run.
    schedules : mapping of str to Schedule
        The most releases of each node.
    steps : mapping of str to int, optional
        Number of releases in an update of each node; by default, one.
    words : Words
        Words for parties; by default, those of nodes.
    observer : str
        Observer that the noise protects from, in the place of all other nodes.

    Raises
    ------
    SpecError
        If there are none, or settings do not fit together.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    made = {name: sum(schedule.values()) for name, schedule in schedules.items()}
    if not any(made.values()):
        raise SpecError("no node makes an update before the run ends; raise stop or look at faults")
    check_room(problem)
    spec, words = problem.spec, words or Words()
    laws = choose_mechanisms(problem, schedules)
    counts = _counts(problem, schedules, laws)
    epsilons = _epsilons(problem, laws, counts)
    together = joint(problem, counts).epsilon if spec.proved and spread(spec, problem.holdings) else None
    check_budget(problem, schedules, epsilons, together)
    guarantee = _guarantee(problem, epsilons, laws, counts, together)
    if guarantee.observer == OTHER_NODES:  # persons with examples at several nodes have another
        guarantee = replace(guarantee, observer=observer)
    updates = sum(releases // (1 if steps is None else steps[name]) for name, releases in made.items())
    law = in_common(laws)
    noise = f"{len(set(laws.values()))} different noise laws" if law is None else law.words
    inside = "" if steps is None else f" in {counted(sum(made.values()), 'noisy step')}"
    line = f"{counted(updates, words.made)} of {counted(len(laws), words.party)}{inside}, {noise}"
    advice = (*advice_on_noise(problem, laws), *advice_on_persons(problem))
    return Plan(
        stop=stop,
        quotas=quotas_of(problem, stop),
        mechanisms=laws,
        epsilons=epsilons,
        guarantees={EVERYBODY: guarantee},
        sides={name: Samples(kinds, laws[name].private, observer=guarantee.observer) for name, kinds in counts.items()},
        releases={name: sum(kinds.values()) for name, kinds in counts.items()},
        updates=updates,
        noise=[law.describe() for law in laws.values()],
        figures={"mechanism": noise_of(laws, words.party), **_composed(problem, laws, counts, epsilons)},
        words=replace(words, plan=line, advice=advice),
        spent=partial(epsilon_so_far, problem),
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
    if quotas is not None and not cut_short and not problem.spec.away:
        taken = {name: problem.workload.counts(name, quotas[name]).items() for name in problem.names}
        return {name: {problem.sampling(name, batch): n for batch, n in counts} for name, counts in taken.items()}
    counts = problem.dry_run(stop, quotas).counts
    return {name: {kind.sampling: n for kind, n in counts.get(name, {}).items()} for name in problem.names}


def _counts(
    problem: Problem[Any], schedules: Mapping[str, Schedule], laws: Mapping[str, Mechanism]
) -> dict[str, Counts]:
    """The releases of each node, those before the run included; nodes alike have one value."""
    known: dict[tuple[Mechanism, frozenset[tuple[BatchSampling, int]]], Counts] = {}
    found = {}
    for name, schedule in schedules.items():
        key = laws[name], frozenset(schedule.items())
        if key not in known:
            known[key] = added(release_counts(schedule, laws[name], problem.size), problem.beforehand)
        found[name] = known[key]
    return found


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def _epsilons(problem: Problem[Any], laws: Mapping[str, Mechanism], counts: Mapping[str, Counts]) -> dict[str, float]:
    spec, rows = problem.spec, rows_at(problem)
    known: dict[tuple[Mechanism, frozenset[tuple[ReleaseKind, int]], int], float] = {}
    found = {}
    for name, kinds in counts.items():
        key = laws[name], frozenset(kinds.items()), rows[name]
        if key not in known:
            proved = laws[name].private and all(kind.sampling.proved for kind in kinds)
            known[key] = epsilon(kinds, spec.delta, spec.privacy.relation, rows[name]).epsilon if proved else math.inf
        found[name] = known[key]
    return found


def _parts(problem: Problem[Any], counts: Mapping[str, Counts]) -> list[Parts]:
    """Releases about each example or person, that the profile is of: of those alike once."""
    rows = rows_at(problem)
    persons = (
        persons_of(problem, counts) if spread(problem.spec, problem.holdings) else [((n, rows[n]),) for n in counts]
    )
    return [[(counts[name], most) for name, most in person] for person in persons]


def _composed(
    problem: Problem[Any], laws: Mapping[str, Mechanism], counts: Mapping[str, Counts], epsilons: Mapping[str, float]
) -> dict[str, Any]:
    """The releases of the node that spends most, composed in several ways, for single examples.

    Nothing for noise without a pure epsilon, and where persons' examples are counted together.
    """
    spec, worst = problem.spec, max(epsilons, key=lambda name: epsilons[name])
    if not isinstance(laws[worst], L2Laplace) or len(counts[worst]) != 1 or asked(spec):
        return {}
    ((kind, count),) = counts[worst].items()
    ways = compositions(kind, count, spec.delta, spec.privacy.relation)
    return {"would_be_compositions" if spec.reproducible else "compositions": ways}


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
    epsilons: Mapping[str, float],
    laws: Mapping[str, Mechanism],
    counts: Mapping[str, Counts],
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
    accountant = epsilon({next(iter(counts[worst])): 1}, spec.delta, relation).accountant
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
        f"each node's ledger enforces a plan fixed before the run; {laws[worst].words} on {samples} samples is "
        f"composed over the plan of the node that spends most ({accountant}){together_with}{moved}{before}; all a "
        "node sends is post-processing of its releases"
    )
    bound = epsilons[worst] if together is None else together
    planned = guarantees.planned(bound, spec.delta, relation, proof)
    planned = replace(planned, evidence=partial(worst_profile, _parts(problem, counts), relation, (bound, spec.delta)))
    if asked(spec):
        planned = guarantees.for_persons(planned, spec.rows_per_person, knowledge(problem.holdings))
    return remarked(planned, min(problem.shard_sizes.values()))
