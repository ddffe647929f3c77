"""Planning of FedBuff: each client's updates, the noise that they need, and what is guaranteed to whole clients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gossamer.algorithms import sample_rules
from gossamer.algorithms.fedbuff.plan import ClientPlan
from gossamer.algorithms.fedbuff.settings import Settings
from gossamer.algorithms.persons import asked
from gossamer.algorithms.problem import Problem, Spec
from gossamer.algorithms.sample_noise import Schedule, check_budget, choose_mechanisms
from gossamer.algorithms.sample_planning import DEFAULT_EPOCHS, quotas_of
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import SpecError
from gossamer.privacy.guarantees import EXAMPLES, Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import ReleaseKind
from gossamer.privacy.weakness import remarks
from gossamer.sides.client_guarantees import noised_guarantee
from gossamer.sides.plan import WHOLE, ClientUpdate

RUN_ASSUMPTIONS = (
    "how many examples each client has is public, and so are numbers of features and classes and the choice of test "
    "examples",
    EXAMPLES,
)
"""Of a run's guarantee, beside those of clients' updates."""


def check(settings: Settings, spec: Spec) -> Iterator[str]:
    """The rules that a spec breaks, a line each."""
    yield from sample_rules.check(settings, spec)
    if spec.privacy.sampling != "poisson":  # the default, which nobody need have said
        yield f"privacy.sampling: {settings.name} shuffles each client's examples, and takes them in turn; leave it out"
    if spec.privacy.relation is not NeighboringRelation.REPLACE_ONE:
        yield (
            f"privacy.neighboring_relation: {settings.name} protects clients whose data are replaced, found "
            f"{spec.privacy.relation.value}; leave it out"
        )
    if asked(spec):
        yield (
            f"budget.rows_per_person: {settings.name} protects all examples of a client, however many are one "
            "person's; leave it out"
        )


def plan_clients(problem: Problem[Settings]) -> ClientPlan:
    """The plan of clients that clip and noise their own updates.

    Raises
    ------
    SpecError
        If a value is out of its range, or persons have examples at several clients.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    spec, settings = problem.spec, problem.settings
    if spec.private and problem.holdings is not None and not problem.holdings.together:
        raise SpecError(
            f"dataset.person: persons have examples at several clients, and {settings.name} protects one client; keep "
            "them together (partition: by_person)"
        )
    stop = spec.stop if spec.bounded else spec.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})
    quotas = quotas_of(problem, stop)
    updates = _updates(problem, stop, quotas)
    # All data of a client are in each of its updates; `ClientUpdate` says why.
    schedules: dict[str, Schedule] = {name: {WHOLE: count} for name, count in updates.items()}
    laws = choose_mechanisms(problem, schedules)
    problem.check(laws)
    sides = {
        name: ClientUpdate(settings.query(problem.shard_sizes[name]), law.clip, law, updates[name], problem.size)
        for name, law in laws.items()
    }
    found = _guarantees(sides, spec)
    epsilons = {name: guarantee.epsilon for name, guarantee in found.items()}
    check_budget(problem, schedules, epsilons, None)
    worst = found[max(epsilons, key=lambda name: epsilons[name])]
    return ClientPlan(
        problem=problem,
        stop=stop,
        quotas=quotas,
        mechanisms=laws,
        sides=sides,
        epsilons=epsilons,
        guarantee=_remarked(worst, len(sides)),
    )


def _updates(problem: Problem[Settings], stop: StopSettings, quotas: dict[str, int] | None) -> dict[str, int]:
    """Updates charged to each client: its quota, or where something else ends the run, as many as it comes to.

    Raises
    ------
    SpecError
        If there are none.
    """
    cut_short = stop.updates is not None or stop.virtual_seconds is not None
    if quotas is not None and not cut_short and not problem.absences:
        return quotas
    asked = problem.asks(stop, quotas)
    if not any(asked.values()):
        raise SpecError("no client makes an update before the run ends; raise stop or look at faults")
    return {name: asked.get(name, 0) for name in problem.names}


def _guarantees(sides: Mapping[str, ClientUpdate], spec: Spec) -> dict[str, Guarantee]:
    """Guarantees of each client; computed once for those that release alike, however they train."""
    known: dict[tuple[ReleaseKind | None, int], Guarantee] = {}
    for side in sides.values():
        if (side.kind, side.most_updates) not in known:
            found = noised_guarantee(side, spec.delta, spec.privacy.relation)
            more = RUN_ASSUMPTIONS if math.isfinite(found.epsilon) else ()
            known[side.kind, side.most_updates] = replace(found, assumptions=(*found.assumptions, *more))
    return {name: known[side.kind, side.most_updates] for name, side in sides.items()}


def _remarked(guarantee: Guarantee, clients: int) -> Guarantee:
    """Add what makes it weak: what counts against delta are clients, not examples."""
    found = remarks(guarantee.epsilon, guarantee.delta)
    if guarantee.delta > 1 / clients:
        found.append(f"delta {guarantee.delta:g} is above 1/{clients}, one over the number of clients")
    return replace(guarantee, remarks=tuple(found))
