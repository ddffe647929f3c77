"""Planning for clients: releases that each is in, the noise that they need, and what is guaranteed to whole clients."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from gossamer.algorithms import sample_planning as samples
from gossamer.algorithms.clients.nodes import SERVER, Waiting
from gossamer.algorithms.clients.settings import ClientSettings, Masking
from gossamer.algorithms.persons import asked
from gossamer.algorithms.plan import EVERYBODY, Plan, Problem, Spec, Words, in_words
from gossamer.algorithms.sample_planning import Schedule
from gossamer.errors import BudgetUnreachable, SpecError, counted
from gossamer.files import refusals
from gossamer.privacy.accounting.accountants import epsilon, worst_profile
from gossamer.privacy.clipping import QuantileClip, StageClip
from gossamer.privacy.guarantees import EXAMPLES, Guarantee, remarks
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation, Poisson, ReleaseKind
from gossamer.section import says
from gossamer.sides import guarantees as proofs
from gossamer.sides.plan import WHOLE, ClientUpdate, Curator, MaskedMember

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit

S = TypeVar("S", bound=ClientSettings)

RUN_ASSUMPTIONS = (
    "how many examples each client has is public, and so are numbers of features and classes and the choice of test "
    "examples",
    EXAMPLES,
)
"""Of a run's guarantee, beside those of clients' updates."""


def check(settings: ClientSettings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from samples.check_samples(settings, spec)
    yield from settings.wrong()
    rules = {"curated steps": settings.curated, "masked steps": settings.masking is not None}
    yield from refusals(__file__, rules) if settings.stepwise else check_updates(settings, spec)


def check_updates(settings: Any, spec: Spec) -> Iterator[str]:
    """The rules of whole updates."""
    replaced = spec.privacy.relation is NeighboringRelation.REPLACE_ONE
    rules = {
        "sampled": spec.privacy.sampling != "poisson" or says("sampling", spec.privacy),
        "not replaced": not replaced and not settings.curated,
        "persons": asked(spec),
    }
    return refusals(__file__, rules, s=settings, privacy=spec.privacy)


@dataclass(frozen=True)
class Participation:
    """Releases that clients are in.

    Attributes
    ----------
    most : dict of str to int
        The most of each client: its updates, the sums that they are in, or their steps; also of those that it may turn
        out not to be in.
    sums : int
        Number of sums that a trusted server makes of them.
    sampling : Poisson
        Sampling of the clients of a release: `WHOLE` where it is public who they are.
    cohort : int
        The most clients in one release.
    """

    most: dict[str, int]
    sums: int = 0
    sampling: Poisson = WHOLE
    cohort: int = 1


def participation_in_updates(
    problem: Problem[S], updates: Mapping[str, int], sums: int = 0, cohort: int = 1
) -> Participation:
    """Return what clients release in so many ``updates``, of which up to ``cohort`` are in each of ``sums``."""
    settings, sizes = problem.settings, problem.shard_sizes
    most = {name: made * settings.asks(sizes[name]) for name, made in updates.items()}
    return Participation(most, sums, cohort=cohort)


def participation_by_quota(problem: Problem[S]) -> Participation:
    """Return the updates of clients that go on until their quota, or the end of the run.

    Raises
    ------
    SpecError
        If there are none.
    """
    stop, quotas = problem.spec.ending, samples.quotas_of(problem)
    cut_short = stop.updates is not None or stop.virtual_seconds is not None
    if quotas is not None and not cut_short and not problem.spec.away:
        return participation_in_updates(problem, quotas)
    found = problem.dry_run(stop, quotas).asked
    if not any(found.values()):
        raise SpecError("no client makes an update before the run ends; raise stop or look at faults")
    return Participation({name: found.get(name, 0) for name in problem.names})


def participation_in_sums(problem: Problem[S], buffer: int) -> Participation:
    """Return the sums of a trusted server, of ``buffer`` clients each, of whom everybody sees who they are.

    Raises
    ------
    SpecError
        If there are none.
    """
    stop, made = problem.spec.ending, participation_by_quota(problem).most
    if (quotas := samples.quotas_of(problem)) is not None:  # what a client loses in an absence is in no sum
        made = {name: min(updates, quotas[name]) for name, updates in made.items()}
    sums = most_sums(made.values(), buffer)
    if sums == 0:
        raise SpecError(f"fewer than {buffer} clients make an update before the run ends; lower buffer, or raise stop")
    sums = sums if stop.updates is None else min(sums, stop.updates)
    most = {name: min(updates, sums) for name, updates in made.items()}
    return Participation(most, sum(most.values()) // buffer, cohort=buffer)


def most_sums(updates: Collection[int], buffer: int) -> int:
    """The most sums of ``buffer`` clients each that one client can be in, of those who make so many ``updates``.

    R sums take ``buffer`` R updates, R of each client at most; where these are too few, they are for more sums too.
    """
    rising = range(1, max(updates) + 1)
    return bisect_left(rising, True, key=lambda sums: sum(min(made, sums) for made in updates) < buffer * sums)


def plan_clients(problem: Problem[S], participation: Participation) -> Plan:
    """The plan of clients in so many releases.

    Raises
    ------
    SpecError
        If a value is out of its range, or persons have examples at several clients that are protected as such.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    if problem.settings.stepwise:
        return _stepping(problem, participation)
    check_persons(problem)
    return (_curated if problem.settings.curated else _noised)(problem, participation)


def check_persons(problem: Problem[S]) -> None:
    """Refuse data in which somebody is at several clients.

    Raises
    ------
    SpecError
        If somebody is, and there is noise.
    """
    if problem.spec.private and problem.holdings is not None and not problem.holdings.together:
        raise SpecError(
            "dataset.person: persons have examples at several clients, of which each is protected alone; keep them "
            "together (partition: by_person)"
        )


def _stepping(problem: Problem[S], participation: Participation) -> Plan:
    """The plan of clients whose local steps are noisy, and in which the privacy unit is one example, or a person's.

    Every step is an ordinary release of a sample of the client's own examples, and is planned like those of other
    algorithms: as many as there are steps in the updates that a client makes, each amplified by its own sampling.
    Whether a client is in a round amplifies nothing, as all may see it.
    """
    batch, asks = problem.settings.batch_size, problem.settings.asks
    schedules = {name: {problem.sampling(name, batch): steps} for name, steps in participation.most.items()}
    steps = {name: asks(size) for name, size in problem.shard_sizes.items()}
    return samples.plan_schedules(problem, schedules, steps, Words("client"))


def _noised(problem: Problem[S], participation: Participation) -> Plan:
    """The plan of clients that add the noise themselves."""
    settings, spec = problem.settings, problem.spec
    # All data of a client are in each of its updates; `ClientUpdate` says why.
    schedules: dict[str, Schedule] = {name: {WHOLE: count} for name, count in participation.most.items()}
    laws = samples.choose_mechanisms(problem, schedules)
    problem.check(laws)
    sides = {
        name: ClientUpdate(
            settings.query(problem.shard_sizes[name]),
            law.clip,
            law,
            participation.most[name],
            problem.size,
            follows=isinstance(spec.privacy.clip, StageClip),
        )
        for name, law in laws.items()
    }
    found = _guarantees(sides, spec)
    epsilons = {name: guarantee.epsilon for name, guarantee in found.items()}
    samples.check_budget(problem, schedules, epsilons, None)
    worst = most_exposed(sides.values(), found, spec)
    updates = sum(participation.most.values())
    return samples.plan_of(
        problem,
        laws,
        _words(laws, counted(updates, "update")),
        epsilons=epsilons,
        guarantees={EVERYBODY: remarked(worst, len(sides))},
        sides={**sides},
        releases=participation.most,
        updates=updates,
        spent=partial(samples.epsilon_so_far, problem),
    )


def _words(laws: Mapping[str, Mechanism], made: str) -> Words:
    return Words("client", plan=f"{made} of {counted(len(laws), 'client')}, {in_words(laws)}")


def _curated(problem: Problem[S], participation: Participation) -> Plan:
    """The plan of clients whose server adds the noise: one law, and for each client as many releases as for any."""
    settings, spec, names = problem.settings, problem.spec, problem.names
    most = max(participation.most.values())
    schedules: dict[str, Schedule] = {name: {participation.sampling: most} for name in names}
    laws = samples.choose_mechanisms(problem, schedules)
    problem.check(laws)
    law = one_law(laws, "a server adds one noise to the sum of all clients")
    kind = ReleaseKind(law.unit(), participation.sampling, problem.size)
    clip = spec.privacy.clip
    share = clip.count_share if isinstance(clip, QuantileClip) else 0.0
    curator = Curator({kind: most}, participation.cohort, names, law.clip, SERVER, share)
    found = proofs.curated_guarantees(curator, spec.delta, spec.privacy.relation)
    guarantee = in_run(found[proofs.OTHERS])
    epsilons = dict.fromkeys(names, guarantee.epsilon)
    samples.check_budget(problem, schedules, epsilons, None)
    # A deployed client has a ledger of its own; in a simulation its line is in the curator's.
    own, counts = (kind, most) if problem.run else (None, 0)
    raw = {
        name: ClientUpdate(
            settings.query(problem.shard_sizes[name]),
            law.clip,
            most_updates=counts,
            scope=frozenset((name, SERVER)),
            behind=curator,
            counted=own,
            follows=share > 0,
        )
        for name in names
    }
    words = _words(laws, f"{counted(participation.sums, 'sum')} of updates")
    return samples.plan_of(
        problem,
        laws,
        replace(words, made="sum", figures=_ALIKE),
        epsilons=epsilons,
        guarantees={proofs.OTHERS: remarked(guarantee, len(names)), proofs.CURATOR: found[proofs.CURATOR]},
        sides={SERVER: curator, **raw},
        releases=dict.fromkeys(names, most),
        updates=participation.sums,
        spent=partial(_curated_so_far, curator, spec),
    )


_ALIKE = (
    "These figures are the same for all clients: the server's noise covers each for as many sums as the client that "
    "may be in most, so one that is in fewer has spent less."
)


def _curated_so_far(curator: Curator, spec: Spec, ledgers: Iterable[Any]) -> float | None:
    """Epsilon of the sums released so far, of the client that has spent most."""
    if not curator.private or spec.reproducible:
        return None
    most = dict.fromkeys(curator.kinds, 0)
    for ledger in ledgers:
        # A curator's ledger has a line for each client; that there is but one kind is planned so.
        for (_, kind), count in ledger.counts.items():
            most[kind] = max(count, most[kind])
    return epsilon(most, spec.delta, spec.privacy.relation).epsilon


def one_law(laws: Mapping[str, Mechanism], why: str) -> Mechanism:
    """The law of all clients, whose sums have one noise.

    Raises
    ------
    SpecError
        If there are several; ``why`` says what one is needed for.
    """
    found = set(laws.values())
    if len(found) > 1:
        raise SpecError(f"algorithm.noise_by: {why}, found different amounts for them; give one number")
    return found.pop()


def _guarantees(sides: Mapping[str, ClientUpdate], spec: Spec) -> dict[str, Guarantee]:
    """Guarantees of each client; computed once for those that release alike, however they train."""
    alike = {(side.kind, side.most_updates): side for side in sides.values()}
    proved = {key: proofs.noised_guarantee(side, spec.delta, spec.privacy.relation) for key, side in alike.items()}
    known = {key: in_run(guarantee) for key, guarantee in proved.items()}
    return {name: known[side.kind, side.most_updates] for name, side in sides.items()}


def most_exposed(sides: Iterable[ClientUpdate], found: Mapping[str, Guarantee], spec: Spec) -> Guarantee:
    """Guarantee of the client of largest epsilon, with the largest profile of all: none need be largest everywhere."""
    worst = max(found.values(), key=lambda guarantee: guarantee.epsilon)
    released = {(side.kind, side.most_updates) for side in sides}
    if len(released) == 1 or worst.epsilon == math.inf:
        return worst
    parts = [[({kind: count}, 1)] for kind, count in released if kind is not None]
    bound = (worst.epsilon, worst.delta)
    return replace(worst, evidence=partial(worst_profile, parts, spec.privacy.relation, bound))


def in_run(guarantee: Guarantee) -> Guarantee:
    """Add what a run assumes beside what its updates do."""
    more = RUN_ASSUMPTIONS if math.isfinite(guarantee.epsilon) else ()
    return replace(guarantee, assumptions=(*guarantee.assumptions, *more))


def remarked(guarantee: Guarantee, clients: int) -> Guarantee:
    """Add what makes it weak: what counts against delta are clients, not examples."""
    found = remarks(guarantee.epsilon, guarantee.delta)
    if guarantee.delta > 1 / clients:
        found.append(f"delta {guarantee.delta:g} is above 1/{clients}, one over the number of clients")
    return replace(guarantee, remarks=tuple(found))


# Clients that share the noise of masked sums: how much each adds, and what is proved of the sums. The law that is
# planned is that of the noise which is counted: of h honest clients together, whom every sum has for certain. Each
# client adds 1/h of its variance, and so do all others in a sum; what they add beyond is not counted.
#
# Masks need cryptography, which is optional, so what does is imported only where masks are wanted.

ALONE = "all_others"
"""The observer against whom nobody's noise but a client's own is counted."""
_MORE, _TRIES = 1.001, 10


@dataclass(frozen=True)
class MaskedRounds:
    """Masked sums of a run.

    Attributes
    ----------
    cohort : callable
        The clients of a round, by public coins: they mask together, and are fixed before they do.
    clients : int
        L, how many these are.
    count : int
        T, rounds.
    waiting : Waiting
        Time that the server gives clients at each step of a sum.
    divisor : int, optional
        Number that each sum is divided by, however many updates are in it; by how many are where it is left out.
    """

    cohort: Callable[[int], tuple[str, ...]]
    clients: int
    count: int
    waiting: Waiting
    divisor: int | None = None


def masked_unit(masking: Masking, clients: int, law: Mechanism, size: int, run: str) -> SecureUnit:
    """Masking of updates of ``size`` numbers among so many clients.

    Each adds 1/sqrt(h) of the standard deviation of ``law``, so that the h honest ones that every sum has for certain
    add up to it (`Masking.counted`). They sign their keys for the deployed ``run``, if it has a name.

    Raises
    ------
    CallerError
        If clip, clients and the settings of `Masking` do not fit together, or cryptography is missing.
    """
    noise = 0.0 if law.normal is None else law.normal.noise_multiplier / math.sqrt(masking.counted(clients))
    return masking.unit(SERVER, law.clip, clients, size, agent_noise=noise, run=run)


def plan_masked(problem: Problem[S], rounds: MaskedRounds) -> Plan:
    """The plan of clients whose updates are masked in the rounds that public coins draw them for: never amplified.

    Raises
    ------
    CallerError
        If a value is out of its range, cryptography is missing, or persons have examples at several clients.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    from gossamer.sides.secure_unit import RoundTerms

    settings, names = problem.settings, problem.names
    assert settings.masking is not None
    check_persons(problem)
    cohorts = Counter(map(rounds.cohort, range(rounds.count)))
    drawn: Counter[str] = Counter()
    for cohort, times in cohorts.items():
        drawn.update(dict.fromkeys(cohort, times))
    most = max(drawn.values())
    schedules: dict[str, Schedule] = {name: {WHOLE: most} for name in names}
    law = one_law(samples.choose_mechanisms(problem, schedules), "clients of a masked sum share its noise")
    masking, honest = settings.masking, settings.masking.counted(rounds.clients)
    sharing = proofs.Sharing(rounds.clients, masking.colluders(rounds.clients), honest, bool(problem.run))
    law, unit = _meeting(problem, law, sharing, most)
    problem.check(dict.fromkeys(names, law))
    queries = {name: settings.query(problem.shard_sizes[name]) for name in names}
    terms = RoundTerms(problem.agreed, queries, rounds.count, float("inf"))
    groups = frozenset(cohorts if honest > 1 else ())
    members = {
        name: MaskedMember(unit, rounds.cohort, terms, 0 if unit.noise is None else drawn[name], honest, groups)
        for name in names
    }
    proved = cache(lambda sums: _proved(problem, unit, sums, sharing))
    epsilons = {name: proved(drawn[name]).epsilon for name in names}
    samples.check_budget(problem, {name: {WHOLE: drawn[name]} for name in names}, epsilons, None)
    guarantee = remarked(proved(most), len(names))
    guarantees = {EVERYBODY: guarantee}
    if honest > 1 and unit.noise is not None:
        guarantee = replace(guarantee, remarks=(*guarantee.remarks, *masking.remarks(rounds.clients)))
        alone = remarked(_proved(problem, unit, most, replace(sharing, honest=1)), len(names))
        # Another client knows its own noise, so what counts others' does not hold against everybody.
        guarantees = {proofs.SERVER: guarantee, ALONE: alone}
    limit = problem.spec.ending.updates
    updates = rounds.count if limit is None else min(rounds.count, limit)
    shared = f" by {counted(honest, 'honest client')}" if unit.noise is not None else ""
    line = f"{counted(updates, 'masked sum')} of {counted(rounds.clients, 'client')}, {law.words}{shared}"
    return samples.plan_of(
        problem,
        dict.fromkeys(names, law),
        Words("client", "masked sum", plan=line),
        epsilons=epsilons,
        guarantees=guarantees,
        sides={**members},
        releases={name: member.sums for name, member in members.items()},
        updates=updates,
        noise=[{"mechanism": "none"} if unit.noise is None else unit.noise.describe()] * len(members),
        figures={"masked_sums_of": rounds.clients, "honest_clients_counted": honest},
        spent=partial(_sums_so_far, problem, unit, sharing),
    )


def _sums_so_far(
    problem: Problem[S], unit: SecureUnit, sharing: proofs.Sharing, ledgers: Iterable[Any]
) -> float | None:
    """Epsilon of the sums so far, of the client that was in most of them."""
    if unit.noise is None or problem.spec.reproducible:
        return None
    most = max((ledger.releases for ledger in ledgers), default=0)
    return proofs.masked_guarantee(unit.noise, most, problem.spec.delta, sharing).epsilon


def _proved(problem: Problem[S], unit: SecureUnit, sums: int, sharing: proofs.Sharing) -> Guarantee:
    return in_run(proofs.masked_guarantee(unit.noise, sums, problem.spec.delta, sharing))


def _meeting(problem: Problem[S], law: Mechanism, sharing: proofs.Sharing, sums: int) -> tuple[Mechanism, SecureUnit]:
    """``law`` and what each client adds of it; a little more, where noise of whole steps needs it for the budget."""
    masking, spec = problem.settings.masking, problem.spec
    assert masking is not None
    unit = masked_unit(masking, sharing.clients, law, problem.size, problem.run)
    if spec.budget is None or spec.privacy.level is not None or (normal := law.normal) is None:
        return law, unit
    # One number: laws are the same for all.
    most = spec.budget.epsilon if isinstance(spec.budget.epsilon, float) else min(spec.budget.epsilon)
    for _ in range(_TRIES):
        if _proved(problem, unit, sums, sharing).epsilon <= most:
            return normal, unit
        normal = replace(normal, noise_multiplier=_MORE * normal.noise_multiplier)
        unit = masked_unit(masking, sharing.clients, normal, problem.size, problem.run)
    raise BudgetUnreachable(
        f"noise of the few steps that masking.bits {masking.bits} leave needs more than epsilon {most:g}; use 64 bits"
    )
