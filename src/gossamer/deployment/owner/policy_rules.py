"""Rules of a policy that an invitation may break by what it asks for: one line a rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from gossamer.algorithms.problem import EXAMPLE as EXAMPLE
from gossamer.deployment.owner.policy import FINGERPRINT, OwnerPolicy
from gossamer.errors import AccountingError, counted
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountant_table import row_of
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts
from gossamer.strict_yaml import Key

if TYPE_CHECKING:
    from gossamer.keys.identity import PublicKey
    from gossamer.keys.membership import Member


@dataclass(frozen=True)
class Asked:
    """Requests of a run to one party's data.

    Attributes
    ----------
    algorithm, role, name : str
        Names of the run's algorithm, and of this party and its role.
    peers : tuple of Member
        The others.
    organiser : PublicKey
        Party who signed the invitation.
    private : bool
        Whether the spec adds noise at all.
    clip : float or None
        C, the largest of the run; None if there is none, or if it changes while the run goes on.
    noise_multiplier : float or None
        The smallest of the plan's Gaussian noise, standard deviation over C; None for other laws.
    epsilon, delta : float
        Guarantee that is proved for this party's whole plan, of one `unit`, by the run's own accountant; an infinite
        epsilon proves nothing.
    relation : NeighboringRelation
        Relation under which that epsilon is proved.
    unit : str
        Unit that it protects: ``example``, or more.
    smallest_sum : int or None
        Number of agents' updates that the sums are that its server sees; None if it sees single
        updates.
    agent_noise : float or None
        Noise that an agent adds itself, against its own server.
    shown_to : tuple of Member
        Members that see its updates, if it is no agent, without noise.
    counted_on : tuple of tuple of Member
        Others in a sum with this party whose noise is counted on to hide its update, of each sum with other members
        once; empty where its own noise alone is counted.
    dishonest : int
        Number of those in a sum who may leave their noise out, or tell it.
    data : str or None
        Name of the data set; None if the policy has one only.
    planned : mapping of ReleaseKind to int, or None
        The releases of this party's whole plan, where the ledger counts them by kind: what they reveal is then known
        under every relation that has a proof.
    """

    algorithm: str
    role: str
    name: str
    peers: tuple[Member, ...]
    organiser: PublicKey
    private: bool
    clip: float | None
    noise_multiplier: float | None
    epsilon: float
    delta: float
    relation: NeighboringRelation
    unit: str = EXAMPLE
    smallest_sum: int | None = None
    agent_noise: float | None = None
    shown_to: tuple[Member, ...] = ()
    counted_on: tuple[tuple[Member, ...], ...] = ()
    dishonest: int = 0
    data: str | None = None
    planned: Counts | None = None

    @property
    def proved(self) -> bool:
        """Whether there is an epsilon."""
        return self.private and math.isfinite(self.epsilon)


class Refusal(NamedTuple):
    """A broken rule: what a run asked for, and what the policy allows."""

    asked: str
    allowed: str


Rule = Callable[[OwnerPolicy, Asked], Refusal | None]


def _organiser(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    found = asked.organiser.fingerprint
    if found in policy.organisers:
        return None
    return Refusal(
        f"an invitation by {found} to be accepted",
        f"invitations by {', '.join(policy.organisers) or 'nobody'} (list a fingerprint that the organiser told you "
        "by another way than the file came)",
    )


def _algorithm(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    return _outside(asked.algorithm, policy.algorithms)


def _role(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    return _outside(asked.role, policy.roles)


def _peers(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    if policy.peers is None:
        return None
    others = [peer for peer in asked.peers if not _is_listed(peer, policy.peers)]
    if not others:
        return None
    named = ", ".join(f"{peer.name} ({peer.key.fingerprint})" for peer in others)
    return Refusal(f"{named} as peers", _listed(policy.peers))


def _without_privacy(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    if policy.without_privacy or asked.proved:
        return None
    what = "noise for which no epsilon is proved" if asked.private else "no noise at all (privacy: none)"
    return Refusal(what, "runs with a proved epsilon")


def _noise(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    least, found = policy.smallest_noise_multiplier, asked.noise_multiplier
    if not asked.private or found is None or found >= least:
        return None
    return Refusal(f"a noise multiplier of {found:g}", f"{least:g} and more")


def _clip(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    most, found = policy.largest_clip, asked.clip
    if most is None or not asked.private or (found is not None and found <= most):
        return None
    return Refusal("no fixed clip" if found is None else f"a clip of {found:g}", f"up to {most:g}")


def _own_server(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    if asked.role != "agent" or policy.trust_own_server or asked.agent_noise:
        return None
    return Refusal(
        f"{'sums of' if asked.smallest_sum else 'single'} updates to be shown to the own server without agents' noise",
        "agents' own noise (privacy.agent_noise), or trust_own_server: yes",
    )


def _sum(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    found = asked.smallest_sum or 1
    if asked.role != "agent" or found >= policy.smallest_sum:
        return None
    what = "single updates" if found == 1 else f"sums of {found} agents' updates"
    return Refusal(f"{what} to be shown to the own server", f"sums of {policy.smallest_sum} and more")


def _trusted_servers(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    others = [peer for peer in asked.shown_to if peer.key.fingerprint not in policy.trusted_servers]
    if not others:
        return None
    named = ", ".join(f"{peer.name} ({peer.key.fingerprint})" for peer in others)
    return Refusal(
        f"single updates without noise to be shown to {named}",
        f"them to be shown to {_listed(policy.trusted_servers).replace('none', 'nobody')} (list a fingerprint that the "
        "server's operator told you, or ask for noise_by: client)",
    )


def _trusted_clients(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    """Clients that the owner does not know may all be the server's; of those that it trusts so many as it says."""
    worst = max(asked.counted_on, key=lambda others: _dishonest(policy, others), default=())
    found = _dishonest(policy, worst)
    if not worst or found <= asked.dishonest:
        return None
    unknown = [f"{peer.name} ({peer.key.fingerprint})" for peer in _unknown(policy, worst)]
    more = f", {_some(unknown)} among them" if unknown else ""
    return Refusal(
        f"noise of others to be counted on in sums with {counted(len(worst), 'other client')}, of whom at most "
        f"{asked.dishonest} may be dishonest",
        f"that where it is true as far as this policy knows, and here {found} may be{more} (list fingerprints that "
        "clients' operators told you, or ask for masking without honest, where your own noise alone counts)",
    )


def relies(policy: OwnerPolicy, asked: Asked) -> bool:
    """Whether the policy lets others' noise be counted on, wherever it is; if it is not counted on anywhere, it does.

    A sum of which more may be dishonest than the run counts with has less noise for certain than is planned.
    """
    return _trusted_clients(policy, asked) is None


def _dishonest(policy: OwnerPolicy, others: Collection[Member]) -> int:
    """The most clients of a sum that may be dishonest, as far as the policy knows."""
    unknown = len(_unknown(policy, others))
    return unknown + min(policy.dishonest_clients, len(others) - unknown)


def _unknown(policy: OwnerPolicy, others: Collection[Member]) -> list[Member]:
    return [other for other in others if other.key.fingerprint not in policy.trusted_clients]


def _relation(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    relation = policy.data[policy.data_set(asked.data)].relation
    # What protects all that a party has protects one example more or less, and one replaced.
    if not asked.proved or asked.unit != EXAMPLE or asked.relation == relation:
        return None
    allowed = f"{relation}, under which this data is accounted for"
    if asked.planned is None:
        return Refusal(f"a guarantee under {asked.relation}", allowed)
    try:
        for kind in asked.planned:
            row_of(kind, relation)
    except AccountingError as error:
        return Refusal(f"a guarantee under {asked.relation}", f"{allowed} ({error})")
    return None


def _epsilon(policy: OwnerPolicy, asked: Asked) -> Refusal | None:
    rule = policy.data[policy.data_set(asked.data)]
    # An epsilon at a smaller delta is larger than the one that counts; then only the ledger can tell.
    if not asked.proved or asked.delta < rule.delta:
        return None
    # An example that comes or goes moves a whole update as far as one that is replaced.
    relation = rule.relation if asked.unit == EXAMPLE else NeighboringRelation.REPLACE_ONE
    found, under = asked.epsilon, ""
    if asked.relation != relation:
        if _relation(policy, asked) is not None or asked.planned is None:
            return None  # that is refused anyway
        found, under = accountants.epsilon(asked.planned, asked.delta, relation).epsilon, f" under {relation}"
    if found <= rule.epsilon:
        return None
    return Refusal(
        f"epsilon {found:.4g} at delta {asked.delta:g}{under}", f"{rule.epsilon:g} at {rule.delta:g}, over all runs"
    )


_RULES: tuple[tuple[str, Rule], ...] = (
    ("organisers", _organiser),
    ("algorithms", _algorithm),
    ("roles", _role),
    ("peers", _peers),
    ("without_privacy", _without_privacy),
    ("smallest_noise_multiplier", _noise),
    ("largest_clip", _clip),
    ("trust_own_server", _own_server),
    ("smallest_sum", _sum),
    ("trusted_servers", _trusted_servers),
    ("trusted_clients", _trusted_clients),
)
_DATA_RULES: tuple[tuple[str, Rule], ...] = (("relation", _relation), ("epsilon", _epsilon))
"""Of the data set that is asked for."""


def refusals(policy: OwnerPolicy, asked: Asked) -> list[str]:
    """Every rule that a run breaks, one line each; an empty list allows it.

    The budget of the data is the ledger's to keep: a run that breaks no rule is refused still if its plan does not fit
    into what is left.
    """
    name = policy.data_set(asked.data)
    keyed: list[tuple[Key, Rule]] = [((key,), rule) for key, rule in _RULES]
    keyed += [(("data", name, key), rule) for key, rule in _DATA_RULES]
    broken = ((key, found) for key, rule in keyed if (found := rule(policy, asked)) is not None)
    return [f"{policy.place(key)}: the run asks for {found.asked}; allowed: {found.allowed}" for key, found in broken]


def _outside(found: str, allowed: tuple[str, ...] | None) -> Refusal | None:
    return None if allowed is None or found in allowed else Refusal(found, _listed(allowed))


def _is_listed(peer: Member, allowed: tuple[str, ...]) -> bool:
    """By fingerprint, or by a name; a name that looks like a fingerprint is nobody's."""
    key = peer.key.fingerprint
    return key in allowed or (peer.name in allowed and not FINGERPRINT.fullmatch(peer.name))


def _some(names: list[str]) -> str:
    """The first of many names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
