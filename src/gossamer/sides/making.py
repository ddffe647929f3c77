"""Opening data sides: the one place that looks at a plan's kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.objective import Objective
from gossamer.protocol.messages import confidants
from gossamer.sides.client import NoisedRule, UpdateRule, Updates
from gossamer.sides.curator import CuratorRule
from gossamer.sides.home import Home
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Rule, Side
from gossamer.sides.plan import (
    ClientUpdate,
    Curator,
    MaskedMember,
    Nothing,
    Samples,
    SidePlan,
    Stream,
)
from gossamer.sides.pool import NothingRule, Pool
from gossamer.sides.samples import SampleRule, Shard
from gossamer.sides.stream import StreamRule
from gossamer.sides.sums import Sums

if TYPE_CHECKING:
    from gossamer.sides.masked_side import MemberRule

Machine = Callable[[str, Rule, Ledger | None, Home], Side]


def open_pool(
    plans: Mapping[str, SidePlan],
    shards: Mapping[str, Shard],
    objective: Objective,
    data: Split,
    home: Home,
    machine: Machine = Side,
    trust: Mapping[str, str] | None = None,
) -> Pool:
    """The data sides of one process: of all parties in a simulation, of one in a deployment.

    Parameters
    ----------
    plans : mapping of str to SidePlan
        Plan of each party.
    shards : mapping of str to Shard
        Shard of each party with examples.
    objective : Objective
        Common to all.
    data : Split
        The training split that all shards are rows of.
    home : Home
        The world.
    machine : callable
        Function that makes a side; another one has a bug that tests are to find.
    trust : mapping of str to str, optional
        The trust scope of each party that is in one, to hold those of the plans against.

    Raises
    ------
    SpecError
        If the noise of a plan cannot be drawn in this world, or a plan's scope is no trust scope of the run.
    """
    if trust is not None:
        _check_scopes(plans, trust)
    share = _Shared(objective, data, home.sums(objective, data), Updates(objective, data))
    opened = {name: partial(_open, name, plan, shards.get(name), share, home, machine) for name, plan in plans.items()}
    charged = {name: plan.charges() for name, plan in plans.items()}
    counted_by = {owner: name for name, charges in charged.items() if charges is not None for owner in charges.owners}
    return Pool(home, opened, counted_by)


def _check_scopes(plans: Mapping[str, SidePlan], trust: Mapping[str, str]) -> None:
    """Refuse plans by which others hear what is raw than those whom the party trusts."""
    for name, plan in plans.items():
        trusted = confidants(trust, name)
        if (scope := plan.trusted.scope) and scope != trusted:
            raise SpecError(
                f"what is raw of {name} stays with {', '.join(sorted(trusted))}, and its plan shows it to "
                f"{', '.join(sorted(scope))}"
            )


class _Shared:
    """Things that all sides of a pool compute with."""

    def __init__(self, objective: Objective, data: Split, sums: Sums, updates: Updates) -> None:
        self.objective, self.data, self.sums, self.updates = objective, data, sums, updates


def _open(name: str, plan: SidePlan, shard: Shard | None, share: _Shared, home: Home, machine: Machine) -> Side:
    ledger = None if plan.charges() is None else home.ledger(name, plan)
    return machine(name, _rule(name, plan, shard, share, home, ledger), ledger, home)


def _rule(name: str, plan: SidePlan, shard: Shard | None, share: _Shared, home: Home, ledger: Ledger | None) -> Rule:
    match plan:
        case Samples():
            return SampleRule(name, plan, _held(name, shard), share.sums, home)
        case ClientUpdate(noise=None):
            return UpdateRule(name, plan, _held(name, shard), share.updates, home)
        case ClientUpdate():
            return NoisedRule(name, plan, _held(name, shard), share.updates, home)
        case MaskedMember():
            return _member(name, plan, _held(name, shard), share, home, ledger)
        case Stream():
            return StreamRule(name, plan, home)
        case Curator():
            return CuratorRule(name, plan, share.objective, home)
        case Nothing():
            return NothingRule(name)
    raise SpecError(f"no data side is known for the plan of {name}, found {type(plan).__name__}")


def _member(
    name: str, plan: MaskedMember, shard: Shard, share: _Shared, home: Home, ledger: Ledger | None
) -> MemberRule:
    # Masks need cryptography, which is optional, so it is imported only here.
    from gossamer.sides.masked_side import MemberRule

    return MemberRule(name, plan, shard, share.updates, home, ledger)


def _held(name: str, shard: Shard | None) -> Shard:
    if shard is None:
        raise SpecError(f"{name} needs examples for what is planned, and has none")
    return shard
