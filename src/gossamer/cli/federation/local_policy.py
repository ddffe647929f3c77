"""Policies of a federation on one machine: what owners would write who want just this run."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import yaml

from gossamer.algorithms.plan import Plan
from gossamer.deployment.founding.federation_spec import own_code
from gossamer.deployment.founding.invitations import Invitation
from gossamer.deployment.party.data_side import planned_divergence
from gossamer.experiment.prepared import Prepared
from gossamer.keys.membership import AGENT
from gossamer.privacy.accounting.release_times import without_late
from gossamer.privacy.accounting.renyi import renyi_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation

ORDERS = range(2, 129)


class Asking(NamedTuple):
    """Request to one party: a run as a simulation has it, and its invitation."""

    prepared: Prepared
    plan: Plan
    invitation: Invitation
    name: str


def policy_for(asked: Asking, data: str) -> str:
    """Policy of the owner of a party's data, which lie in the file ``data``."""
    spec, plan, name = asked.prepared.experiment, asked.plan, asked.name
    rule = {"path": data, "delta": spec.delta, "relation": str(_relation(asked)), **_budget(asked)}
    rule |= {"accept_weak": True} if spec.privacy.accept_weak else {}
    rules: dict[str, Any] = {
        "data": {name: rule},
        "organisers": [asked.invitation.organiser.fingerprint],
        "algorithms": [spec.algorithm.name],
        "smallest_noise_multiplier": 0.0,
    }
    if code := own_code(spec):
        rules |= {"modules": code}
    scope, members = plan.side(name).scope, {member.name: member for member in asked.invitation.members}
    if scope and members[name].role == AGENT:
        rules |= {"trust_own_server": True, "smallest_sum": 1}
    elif scope:
        rules |= {"trusted_servers": [members[other].key.fingerprint for other in sorted(scope - {name})]}
    if (others_noise := plan.side(name).counts_on(name)) is not None:
        others = sorted({other for group in others_noise.groups for other in group} - {name})
        rules |= {"trusted_clients": [members[other].key.fingerprint for other in others]}
        rules |= {"dishonest_clients": others_noise.dishonest}
    if not (spec.private and math.isfinite(plan.epsilons[name])):
        rules |= {"without_privacy": True}
    return "# The owner of this party's data allows one run, and no more.\n" + yaml.safe_dump(rules, sort_keys=False)


def _relation(asked: Asking) -> NeighboringRelation:
    """Relation by which examples are accounted for: those of whole clients take one alone."""
    spec = asked.prepared.experiment
    return NeighboringRelation.REPLACE_ONE if spec.terms.unit == "client" else spec.privacy.relation


def _budget(asked: Asking) -> dict[str, float]:
    """An order, and the epsilon that the run's plan takes of a budget that is kept at that order."""
    delta, relation = asked.prepared.experiment.delta, _relation(asked)
    found = [
        # The share of delta that a Renyi filter has.
        (renyi_epsilon(order, spent, without_late(delta) / 2), float(order))
        for order in ORDERS
        if math.isfinite(spent := planned_divergence(asked.prepared, asked.plan, asked.name, order, relation))
    ]
    if not found:
        return {"epsilon": 1.0}  # nothing is proved, so no budget is enough, and none is asked
    epsilon, order = min(found)
    return {"epsilon": float(f"{epsilon * 1.001 + 1e-9:.4g}"), "order": order}
