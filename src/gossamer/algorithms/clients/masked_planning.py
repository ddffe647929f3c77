"""The plan of clients that share the noise of masked sums: how much each adds, and what is proved of the sums.

The law that is planned is that of the noise which is counted: of h honest clients together, whom every sum has for
certain. Each client adds 1/h of its variance, and so do all others in a sum; what they add beyond is not counted.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeVar

from gossamer.algorithms.clients.planning import check_persons, in_run, one_law, remarked
from gossamer.algorithms.clients.rounds import MaskedRounds, masked_unit
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.node_plan import EVERYBODY, NodePlan
from gossamer.algorithms.problem import Problem
from gossamer.algorithms.sample_noise import Schedule, check_budget, choose_mechanisms, describe_law
from gossamer.algorithms.sample_planning import quotas_of
from gossamer.algorithms.stopping import StopSettings
from gossamer.errors import BudgetUnreachable, counted
from gossamer.privacy.guarantees import Guarantee, assuming, reproducible
from gossamer.privacy.mechanisms import Gaussian, Mechanism
from gossamer.protocol.encoding import encode
from gossamer.sides.client_guarantees import SERVER, Sharing, masked_guarantee, no_masked_guarantee
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.plan import WHOLE, MaskedMember, Nothing, SidePlan

if TYPE_CHECKING:
    from gossamer.sides.secure_unit import SecureUnit

S = TypeVar("S", bound=ClientSettings)
ALONE = "all_others"
"""The observer against whom nobody's noise but a client's own is counted."""
_MORE, _TRIES = 1.001, 10


@dataclass(frozen=True, kw_only=True)
class MaskedPlan(NodePlan):
    """The plan of a run of clients whose updates are masked.

    Attributes
    ----------
    rounds : MaskedRounds
        Its sums.
    unit : SecureUnit
        How clients mask, and what each adds.
    members : dict of str to MaskedMember
        What leaves each client.
    sharing : Sharing
        Whose noise is counted.
    alone : Guarantee or None
        What is proved by a client's own noise alone, where others' is counted above.
    """

    rounds: MaskedRounds
    unit: SecureUnit
    members: dict[str, MaskedMember]
    sharing: Sharing
    alone: Guarantee | None = None

    called = "client"
    made = "masked sum"
    timed = False
    """All updates take as many examples."""

    @property
    def sides(self) -> dict[str, SidePlan]:
        """Plans of what leaves each client."""
        return {**self.members}

    @property
    def guarantees(self) -> dict[str, Guarantee]:
        """By observer: everybody; where others are trusted to add noise, the server with the rest, and all others.

        Another client knows its own noise, so what counts others' does not hold against everybody.
        """
        return {EVERYBODY: self.guarantee} if self.alone is None else {SERVER: self.guarantee, ALONE: self.alone}

    def reproducible(self) -> Self:
        found = super().reproducible()
        return found if found.alone is None else replace(found, alone=reproducible(found.alone))

    def assuming(self, line: str) -> Self:
        found = super().assuming(line)
        return found if found.alone is None else replace(found, alone=assuming(found.alone, line))

    @property
    def updates(self) -> int:
        """Sums of the server: what is counted in a run."""
        return self.rounds.count if self.stop.updates is None else min(self.rounds.count, self.stop.updates)

    def __str__(self) -> str:
        law, honest = describe_law(next(iter(self.mechanisms.values()))), self.sharing.honest
        shared = f" by {counted(honest, 'honest client')}" if self.unit.noise is not None else ""
        return f"{counted(self.updates, 'masked sum')} of {counted(self.rounds.clients, 'client')}, {law}{shared}"

    @property
    def noise(self) -> list[dict[str, Any]]:
        """Noise of each client."""
        return [{"mechanism": "none"} if self.unit.noise is None else self.unit.noise.describe()] * len(self.members)

    def releases(self, name: str) -> int:
        """Sums that client ``name`` may be in."""
        return self.members[name].sums

    def counts(self, name: str) -> None:
        """Return None: sums are charged as such, and not by kinds of releases."""

    def side(self, name: str) -> SidePlan:
        """Return what leaves the data of ``name``: nothing of the server, which has none."""
        return self.members.get(name) or Nothing()

    def outside(self, name: str) -> SidePlan:
        """Plan of what leaves the client: nobody is trusted with what is raw."""
        return self.members[name]

    def smallest_sum(self, name: str) -> int:  # type: ignore[override]
        """Least number of updates in a sum."""
        return self.unit.group.minimum

    def drawn(self, *, network: bool, deadline: bool) -> dict[str, Drawn]:
        """Nothing that is not drawn by the exact law."""
        return dict.fromkeys(self.guarantees, Drawn())

    @property
    def figures(self) -> dict[str, Any]:
        """Numbers of clients in a sum, and of those whose noise is counted."""
        return {"masked_sums_of": self.rounds.clients, "honest_clients_counted": self.sharing.honest}

    def spent(self, ledgers: Iterable[Any]) -> float | None:
        """Epsilon of the sums so far, of the client that was in most of them."""
        noise, spec = self.unit.noise, self.problem.spec
        if noise is None or spec.reproducible:
            return None
        return masked_guarantee(noise, max((x.releases for x in ledgers), default=0), spec.delta, self.sharing).epsilon


def plan_masked(problem: Problem[S], rounds: MaskedRounds, stop: StopSettings) -> MaskedPlan:
    """The plan of clients whose updates are masked in the rounds that public coins draw them for: never amplified.

    Raises
    ------
    CallerError
        If a value is out of its range, cryptography is missing, or persons have examples at several clients.
    BudgetUnreachable
        If no noise meets the budget, or the noise asked for does not.
    """
    from gossamer.sides.round_terms import RoundTerms

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
    agreed = hashlib.sha256(encode((problem.text, problem.run))).digest()
    terms = RoundTerms(agreed, queries, rounds.count, float("inf"))
    groups = frozenset(cohorts if honest > 1 else ())
    members = {
        name: MaskedMember(unit, rounds.cohort, terms, 0 if unit.noise is None else drawn[name], honest, groups)
        for name in names
    }
    proved = cache(lambda sums: _proved(problem, unit, sums, sharing))
    epsilons = {name: proved(drawn[name]).epsilon for name in names}
    check_budget(problem, {name: {WHOLE: drawn[name]} for name in names}, epsilons, None)
    guarantee, alone = remarked(proved(most), len(names)), None
    if honest > 1 and unit.noise is not None:
        guarantee = replace(guarantee, remarks=(*guarantee.remarks, *masking.remarks(rounds.clients)))
        alone = remarked(_proved(problem, unit, most, replace(sharing, honest=1)), len(names))
    return MaskedPlan(
        problem=problem,
        stop=stop,
        quotas=quotas_of(problem, stop),
        mechanisms=dict.fromkeys(names, law),
        epsilons=epsilons,
        guarantee=guarantee,
        rounds=rounds,
        unit=unit,
        members=members,
        sharing=sharing,
        alone=alone,
    )


def _proved(problem: Problem[S], unit: SecureUnit, sums: int, sharing: Sharing) -> Guarantee:
    if unit.noise is None:
        return no_masked_guarantee()
    return in_run(masked_guarantee(unit.noise, sums, problem.spec.delta, sharing))


def _meeting(problem: Problem[S], law: Mechanism, sharing: Sharing, sums: int) -> tuple[Mechanism, SecureUnit]:
    """``law`` and what each client adds of it; a little more, where noise of whole steps needs it for the budget."""
    masking, spec = problem.settings.masking, problem.spec
    assert masking is not None
    unit = masked_unit(masking, sharing.clients, law, problem.size, problem.run)
    if spec.budget is None or spec.privacy.level is not None or not isinstance(law, Gaussian):
        return law, unit
    # One number: laws are the same for all.
    most = spec.budget.epsilon if isinstance(spec.budget.epsilon, float) else min(spec.budget.epsilon)
    for _ in range(_TRIES):
        if _proved(problem, unit, sums, sharing).epsilon <= most:
            return law, unit
        law = replace(law, noise_multiplier=_MORE * law.noise_multiplier)
        unit = masked_unit(masking, sharing.clients, law, problem.size, problem.run)
    raise BudgetUnreachable(
        f"noise of the few steps that masking.bits {masking.bits} leave needs more than epsilon {most:g}; use 64 bits"
    )
