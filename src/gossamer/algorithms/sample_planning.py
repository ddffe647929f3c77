"""Planning for nodes that release noisy sums over samples of their own examples: how many, how noisy, what is proved.

Nodes make as many updates as their quotas say, where every node has one and nothing cuts the run short; else the same
nodes are run on the same virtual clock without data: the schedule of a run does not depend on what its models are. The
plan that each ledger commits to is that schedule, and the noise is calibrated so that the busiest node ends within the
budget, unless the spec says how much there is. A person may have rows at several nodes, which then count together:
`persons`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Any, TypeVar

from gossamer.algorithms import persons
from gossamer.algorithms.plan import EVERYBODY, Plan, Problem, Spec, Words, in_words, noise_of, sampling_of
from gossamer.errors import BudgetUnreachable, SpecError, counted
from gossamer.privacy import guarantees
from gossamer.privacy.accounting import planner
from gossamer.privacy.accounting.accountants import compositions, epsilon, most_revealing, worst_profile
from gossamer.privacy.clipping import QuantileClip
from gossamer.privacy.guarantees import OTHER_NODES, Guarantee, remarked
from gossamer.privacy.mechanisms import (
    BallGaussian,
    BatchSampling,
    Counts,
    Gaussian,
    L2Laplace,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    PaperNoise,
    RadialNoise,
    ReleaseKind,
    added,
)
from gossamer.sides.plan import Samples, counts_of

Schedule = Mapping[BatchSampling, int]
"""How many releases of each sampling a node makes."""

T = TypeVar("T")


def once(function: Callable[..., T]) -> Callable[..., T]:
    """A function that is called once for arguments that are the same objects: many nodes share theirs."""
    known: dict[tuple[int, ...], tuple[Any, T]] = {}

    def asked(*given: Any) -> T:
        key = tuple(map(id, given))
        if (found := known.get(key)) is None:
            found = known[key] = given, function(*given)  # which keeps the objects, so that no other has their place
        return found[1]

    return asked


def choose_mechanisms(problem: Problem[Any], schedules: Mapping[str, Schedule]) -> dict[str, Mechanism]:
    """The noise of each node.

    Raises
    ------
    SpecError
        If a list in the spec has another length than there are nodes.
    BudgetUnreachable
        If no noise meets a budget.
    """
    privacy, budget = problem.spec.privacy, problem.spec.budget
    if not problem.spec.private:
        bound = None if privacy.clip is None else privacy.clip.initial_bound
        clips = problem.spec.terms.sensitivity
        return dict.fromkeys(problem.names, NoNoise(math.inf if bound is None else clips * bound))
    if privacy.level is not None:
        key = "privacy.noise_multiplier" if privacy.mechanism == "gaussian" else "privacy.epsilon"
        law = cache(_law(problem))
        return {name: law(level) for name, level in _each(problem, key, privacy.level).items()}
    assert budget is not None  # the spec checks it
    delta, relation, rows = problem.spec.delta, privacy.relation, problem.spec.rows_per_person
    family, beside = _family(problem), problem.beforehand
    if persons.spread(problem.spec, problem.holdings):  # every person ends within the budget, at all nodes together
        level = _one_budget(problem, budget.epsilon)
        kinds = persons.kinds_of_persons(problem, {name: frozenset(of.items()) for name, of in schedules.items()})
        holdings = [[(schedules[name], rows) for name, rows in parts] for parts in kinds]
        joint = planner.calibrate_jointly(level, delta, relation, holdings, family, beside=beside)
        return dict.fromkeys(problem.names, joint.mechanism)
    budgets = _each(problem, "budget.epsilon", budget.epsilon)

    @cache
    def least(level: float) -> Mechanism:
        own = [schedules[name] for name in schedules if budgets[name] == level]
        return planner.calibrate(level, delta, relation, own, family, rows=rows, beside=beside).mechanism

    return {name: least(level) for name, level in budgets.items()}


def _each(problem: Problem[Any], key: str, values: T | tuple[T, ...]) -> dict[str, T]:
    """One value for each node."""
    names = problem.names
    if not isinstance(values, tuple):
        return dict.fromkeys(names, values)
    if len(values) != len(names):
        raise SpecError(f"{key}: expected one number for each of the {len(names)} nodes, found {len(values)}")
    return dict(zip(names, values, strict=True))


def _law(problem: Problem[Any]) -> Callable[[float], Mechanism]:
    """The mechanism of an amount of noise, as the spec gives it."""
    privacy, clip = problem.spec.privacy, _clip(problem)
    if privacy.mechanism == "gaussian":
        clips = problem.spec.terms.sensitivity  # a mechanism's clip is how far one example moves a release
        gaussian = _gaussian(problem)
        return lambda multiplier: gaussian(clips * clip, multiplier / clips)
    if privacy.proved:
        return lambda epsilon: L2Laplace(clip, epsilon, privacy.relation)
    scope = _first_layer(problem) if privacy.noise_scope == "first_layer" else 0
    return lambda epsilon: PaperNoise(clip, epsilon, privacy.relation, privacy.norm, scope)


def _clip(problem: Problem[Any]) -> float:
    """The first clip, of which noise is a multiple."""
    if problem.first_clip == math.inf:
        raise SpecError(
            "privacy.clip: noise is a multiple of the clip, found none; give a clip, or privacy.mechanism: none"
        )
    return problem.first_clip


def _gaussian(problem: Problem[Any]) -> type[Gaussian]:
    """The law of Gaussian noise; where one example comes or goes, sums clipped as a whole need none of their own."""
    spec = problem.spec
    several = spec.privacy.relation is NeighboringRelation.REPLACE_ONE or spec.rows_per_person > 1
    return BallGaussian if spec.terms.clipped_whole and several else Gaussian


def _first_layer(problem: Problem[Any]) -> int:
    """Number of leading coordinates that belong to the first layer."""
    parts = problem.parts
    layers = [part.name.rpartition(".")[0] for part in parts]
    return sum(part.size for part, layer in zip(parts, layers, strict=True) if layer == layers[0])


def _one_budget(problem: Problem[Any], epsilon: float | tuple[float, ...]) -> float:
    """The budget of persons whose examples are at several nodes."""
    if isinstance(epsilon, tuple):
        raise SpecError(
            "budget.epsilon: persons have examples at several nodes, whose budgets are one; give one number, or take "
            "partition: by_person, which keeps persons together"
        )
    return epsilon


def _family(problem: Problem[Any]) -> planner.NoiseFamily:
    """The noise laws that a budget chooses from."""
    spec, clip = problem.spec, _clip(problem)
    if spec.privacy.mechanism == "gaussian":
        return planner.gaussian_family(spec.terms.sensitivity * clip, _gaussian(problem))
    return planner.l2_laplace_family(problem.size, spec.privacy.relation, clip)


def check_budget(
    problem: Problem[Any], schedules: Mapping[str, Schedule], epsilons: Mapping[str, float], joint: float | None
) -> None:
    """Refuse noise that the spec gives and that does not meet its budget.

    ``joint`` is what is proved of several nodes together, where a person's examples are at more than one.

    Raises
    ------
    BudgetUnreachable
        For the node that exceeds it most.
    """
    budget, privacy = problem.spec.budget, problem.spec.privacy
    if budget is None:
        return
    level = "noise_multiplier" if privacy.mechanism == "gaussian" else "epsilon"
    if joint is not None and joint > (whole := _one_budget(problem, budget.epsilon)):
        raise BudgetUnreachable(
            f"privacy.{level} {privacy.level} needs epsilon {joint:.4g} at delta {budget.delta:g} for persons with "
            f"examples at several nodes, more than budget.epsilon {whole:g}; leave {level} out to calibrate it"
        )
    budgets = _each(problem, "budget.epsilon", budget.epsilon)
    worst = max(epsilons, key=lambda name: epsilons[name] / budgets[name])
    if epsilons[worst] > budgets[worst]:
        raise BudgetUnreachable(
            f"privacy.{level} {privacy.level} needs epsilon {epsilons[worst]:.4g} at delta {budget.delta:g} for the "
            f"{sum(schedules[worst].values())} releases of {worst}, more than budget.epsilon {budgets[worst]:g}; leave "
            f"{level} out to calibrate it"
        )


def advice_on_noise(problem: Problem[Any], mechanisms: Mapping[str, Mechanism]) -> list[str]:
    """A warning where noise of a pure epsilon is larger than any signal.

    The mean of clipped gradients is at most as long as the clip G. The noise on it has the expected norm
    d S/(B epsilon), with S the sensitivity of the sum: a ratio of d (S/G) / (B epsilon). (Where a paper's norm is
    exponential, 1 stands in the place of d, and where it leaves coordinates out, the number of the others.)
    """
    laws = {name: law for name, law in mechanisms.items() if isinstance(law, RadialNoise)}
    if not laws:
        return []
    size = problem.size
    name = min(laws, key=lambda name: laws[name].epsilon)
    batch = problem.workload.of(name, 0)
    law = laws[name]
    needed = law.epsilon * (law.shape(size) * law.scale) / (law.clip * batch)  # the mean norm of the noise
    if needed <= law.epsilon:
        return []
    proved = isinstance(law, L2Laplace)
    largest = math.floor(size * law.epsilon / needed) if proved else 0
    smaller = f", and so would a model of {largest} parameters at epsilon {law.epsilon:.4g}" if largest else ""
    whose = "" if len(set(laws.values())) == 1 else f" of {name}"
    return [
        f"l2_laplace: the expected norm of the noise{whose} is {needed / law.epsilon:.4g} times the clip, larger than "
        f"any gradient; for the {size} parameters of this model and batches of {batch}, an epsilon of {needed:.4g} a "
        f"release would make them equal{smaller}"
    ]


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
    if persons.spread(problem.spec, problem.holdings):
        try:
            return persons.joint(problem, {ledger.owner: ledger.counts for ledger in ledgers}, _MOST_READINGS).epsilon
        except SpecError:  # nodes are further apart now than their plans are
            return None
    single: dict[ReleaseKind, int] = {}
    mixed: dict[frozenset[tuple[ReleaseKind, int]], Counts] = {}
    for counts in (ledger.counts for ledger in ledgers):
        if len(counts) > 1:  # a node whose rates differ from one release to the next
            mixed[frozenset(counts.items())] = counts
        for kind, count in counts.items() if len(counts) == 1 else ():
            single[kind] = max(count, single.get(kind, 0))
    most = [*mixed.values(), *({kind: count} for kind, count in single.items())]
    if len(single) > _MOST_READINGS or not all(kind.mechanism.private for counts in most for kind in counts):
        return None
    worst = most_revealing(most, rows)
    if len(worst) > _MOST_READINGS:
        return None
    return max((epsilon(counts, spec.delta, spec.privacy.relation, rows).epsilon for counts in worst), default=0.0)


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
    return plan_schedules(problem, _schedules(problem, quotas_of(problem)), observer=observer)


def plan_schedules(
    problem: Problem[Any],
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
    persons.check_room(problem)
    spec, words = problem.spec, words or Words()
    laws = choose_mechanisms(problem, schedules)
    counts = _counts(problem, schedules, laws)
    epsilons = _epsilons(problem, laws, counts)
    spread = spec.proved and persons.spread(spec, problem.holdings)
    together = persons.joint(problem, counts).epsilon if spread else None
    check_budget(problem, schedules, epsilons, together)
    guarantee = _guarantee(problem, epsilons, laws, counts, together)
    if guarantee.observer == OTHER_NODES:  # persons with examples at several nodes have another
        guarantee = replace(guarantee, observer=observer)
    updates = sum(releases // (1 if steps is None else steps[name]) for name, releases in made.items())
    inside = "" if steps is None else f" in {counted(sum(made.values()), 'noisy step')}"
    line = f"{counted(updates, words.made)} of {counted(len(laws), words.party)}{inside}, {in_words(laws)}"
    advice = (*advice_on_noise(problem, laws), *persons.advice_on_persons(problem))
    side = once(lambda kinds, law: Samples(kinds, law.private, observer=guarantee.observer))
    return plan_of(
        problem,
        laws,
        replace(words, plan=line, advice=advice),
        epsilons=epsilons,
        guarantees={EVERYBODY: guarantee},
        sides={name: side(kinds, laws[name]) for name, kinds in counts.items()},
        releases={name: sum(kinds.values()) for name, kinds in counts.items()},
        updates=updates,
        figures=_composed(problem, laws, counts, epsilons),
        spent=partial(epsilon_so_far, problem),
    )


def guarantee_of(problem: Problem[Any], plan: Plan, law: Mechanism, observer: str) -> Guarantee:
    """The guarantee of a plan of one noise for all, against an observer to whom that is worth no more than ``law``."""
    laws = dict.fromkeys(problem.names, law)
    counts = {
        name: {
            replace(kind, mechanism=law.unit()) if kind.mechanism == plan.mechanisms[name].unit() else kind: count
            for kind, count in (counts_of(plan.side(name)) or {}).items()
        }
        for name in problem.names
    }
    return replace(_guarantee(problem, _epsilons(problem, laws, counts), laws, counts, None), observer=observer)


def plan_of(problem: Problem[Any], laws: Mapping[str, Mechanism], words: Words, **own: Any) -> Plan:
    """The plan of nodes that add noise of these ``laws``; the rest is their ``own``."""
    noise = own.pop("noise", [*map(once(lambda law: law.describe()), laws.values())])
    figures = {"mechanism": noise_of(laws, words.party), **own.pop("figures", {})}
    stop, quotas = problem.spec.ending, quotas_of(problem)
    return Plan(stop=stop, quotas=quotas, mechanisms=laws, noise=noise, figures=figures, words=words, **own)


def quotas_of(problem: Problem[Any]) -> dict[str, int] | None:
    """Return how many updates each node makes at most; None where only something else ends the run."""
    workload, stop = problem.workload, problem.spec.ending
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


def _schedules(problem: Problem[Any], quotas: dict[str, int] | None) -> dict[str, Schedule]:
    stop = problem.spec.ending
    cut_short = stop.updates is not None or stop.virtual_seconds is not None
    if quotas is not None and not cut_short and not problem.spec.away:

        @cache
        def taken(examples: int, counts: tuple[tuple[int, int], ...]) -> Schedule:
            return {sampling_of(problem.spec, examples, batch): number for batch, number in counts}

        counts_of = problem.workload.counts
        return {n: taken(size, tuple(counts_of(n, quotas[n]).items())) for n, size in problem.shard_sizes.items()}
    counts = problem.dry_run(stop, quotas).counts
    return {name: {kind.sampling: n for kind, n in counts.get(name, {}).items()} for name in problem.names}


def _counts(
    problem: Problem[Any], schedules: Mapping[str, Schedule], laws: Mapping[str, Mechanism]
) -> dict[str, Counts]:
    """The releases of each node, those before the run included; nodes that share a schedule have one value."""

    @once
    def counted_for(law: Mechanism, schedule: Schedule) -> Counts:
        return added(release_counts(schedule, law, problem.size), problem.beforehand)

    return {name: counted_for(laws[name], schedule) for name, schedule in schedules.items()}


def release_counts(schedule: Schedule, mechanism: Mechanism, size: int) -> Counts:
    """A schedule as counts of releases of vectors of ``size``."""
    return {ReleaseKind(mechanism.unit(), sampling, size): count for sampling, count in schedule.items()}


def _epsilons(problem: Problem[Any], laws: Mapping[str, Mechanism], counts: Mapping[str, Counts]) -> dict[str, float]:
    spec, rows = problem.spec, persons.rows_at(problem)

    @cache
    def proved_for(law: Mechanism, kinds: tuple[tuple[ReleaseKind, int], ...], most: int) -> float:
        proved = law.private and all(kind.sampling.proved for kind, _ in kinds)
        return epsilon(dict(kinds), spec.delta, spec.privacy.relation, most).epsilon if proved else math.inf

    alike = once(lambda law, kinds, most: proved_for(law, tuple(kinds.items()), most))
    return {name: alike(laws[name], kinds, rows[name]) for name, kinds in counts.items()}


def _composed(
    problem: Problem[Any], laws: Mapping[str, Mechanism], counts: Mapping[str, Counts], epsilons: Mapping[str, float]
) -> dict[str, Any]:
    """The releases of the node that spends most, composed in several ways, for single examples.

    Nothing for noise without a pure epsilon, and where persons' examples are counted together.
    """
    spec, worst = problem.spec, max(epsilons, key=lambda name: epsilons[name])
    if not isinstance(laws[worst], L2Laplace) or len(counts[worst]) != 1 or persons.asked(spec):
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
    planned = replace(
        planned, evidence=partial(worst_profile, persons.released_about(problem, counts), relation, (bound, spec.delta))
    )
    if persons.asked(spec):
        planned = guarantees.for_persons(planned, spec.rows_per_person, persons.knowledge(problem.holdings))
    return remarked(planned, min(problem.shard_sizes.values()))
