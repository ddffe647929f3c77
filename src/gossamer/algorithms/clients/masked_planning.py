"""The plan of clients that share the noise of masked sums: how much each adds, and what is proved of the sums.

The law that is planned is that of the noise which is counted: of h honest clients together, whom every sum has for
certain. Each client adds 1/h of its variance, and so do all others in a sum; what they add beyond is not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from gossamer.algorithms.clients.planning import check_persons, in_run, one_law, remarked
from gossamer.algorithms.clients.rounds import MaskedRounds, masked_unit
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.plan import EVERYBODY, Plan, Words, noise_of
from gossamer.algorithms.problem import Problem, StopSettings
from gossamer.algorithms.sample_noise import Schedule, check_budget, choose_mechanisms
from gossamer.algorithms.sample_planning import quotas_of
from gossamer.errors import BudgetUnreachable, counted
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import Mechanism
from gossamer.sides.client_guarantees import SERVER, Sharing, masked_guarantee, no_masked_guarantee
from gossamer.sides.plan import WHOLE, MaskedMember

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit

S = TypeVar("S", bound=ClientSettings)
ALONE = "all_others"
"""The observer against whom nobody's noise but a client's own is counted."""
_MORE, _TRIES = 1.001, 10


def plan_masked(problem: Problem[S], rounds: MaskedRounds, stop: StopSettings) -> Plan:
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
    law = one_law(choose_mechanisms(problem, schedules), "clients of a masked sum share its noise")
    masking, honest = settings.masking, settings.masking.counted(rounds.clients)
    sharing = Sharing(rounds.clients, masking.colluders(rounds.clients), honest, bool(problem.run))
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
    check_budget(problem, {name: {WHOLE: drawn[name]} for name in names}, epsilons, None)
    guarantee = remarked(proved(most), len(names))
    guarantees = {EVERYBODY: guarantee}
    if honest > 1 and unit.noise is not None:
        guarantee = replace(guarantee, remarks=(*guarantee.remarks, *masking.remarks(rounds.clients)))
        alone = remarked(_proved(problem, unit, most, replace(sharing, honest=1)), len(names))
        # Another client knows its own noise, so what counts others' does not hold against everybody.
        guarantees = {SERVER: guarantee, ALONE: alone}
    updates = rounds.count if stop.updates is None else min(rounds.count, stop.updates)
    shared = f" by {counted(honest, 'honest client')}" if unit.noise is not None else ""
    line = f"{counted(updates, 'masked sum')} of {counted(rounds.clients, 'client')}, {law.words}{shared}"
    laws = dict.fromkeys(names, law)
    return Plan(
        stop=stop,
        quotas=quotas_of(problem, stop),
        mechanisms=laws,
        epsilons=epsilons,
        guarantees=guarantees,
        sides={**members},
        releases={name: member.sums for name, member in members.items()},
        updates=updates,
        noise=[{"mechanism": "none"} if unit.noise is None else unit.noise.describe()] * len(members),
        figures={
            "mechanism": noise_of(laws, "client"),
            "masked_sums_of": rounds.clients,
            "honest_clients_counted": honest,
        },
        words=Words("client", "masked sum", plan=line),
        spent=partial(_sums_so_far, problem, unit, sharing),
    )


def _sums_so_far(problem: Problem[S], unit: SecureUnit, sharing: Sharing, ledgers: Iterable[Any]) -> float | None:
    """Epsilon of the sums so far, of the client that was in most of them."""
    if unit.noise is None or problem.spec.reproducible:
        return None
    most = max((ledger.releases for ledger in ledgers), default=0)
    return masked_guarantee(unit.noise, most, problem.spec.delta, sharing).epsilon


def _proved(problem: Problem[S], unit: SecureUnit, sums: int, sharing: Sharing) -> Guarantee:
    if unit.noise is None:
        return no_masked_guarantee()
    return in_run(masked_guarantee(unit.noise, sums, problem.spec.delta, sharing))


def _meeting(problem: Problem[S], law: Mechanism, sharing: Sharing, sums: int) -> tuple[Mechanism, SecureUnit]:
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
