"""Whether a party may join: its identity, the invitation, and what the data's owner has ruled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gossamer.algorithms.graph_settings import Settings
from gossamer.deployment.party_options import PartyOptions
from gossamer.deployment.policy import OwnerPolicy, read_policy
from gossamer.deployment.policy_rules import EXAMPLE, Asked, refusals
from gossamer.deployment.terms import Agreed, Terms
from gossamer.errors import CallerError, counted
from gossamer.experiment.agent_sides import samplings
from gossamer.experiment.sample_plan import SamplePlan, release_counts
from gossamer.federation.errors import InvitationError
from gossamer.federation.identity import Identity
from gossamer.federation.invitations import Invitation, content_of, parse_invitation
from gossamer.privacy import accountants
from gossamer.privacy.clipping import FixedClip
from gossamer.privacy.mechanisms import Gaussian
from gossamer.privacy.releases import Counts


class PolicyBroken(CallerError):
    """The data's owner does not allow what an invitation asks for."""


@dataclass(frozen=True)
class Invited:
    """A party that may join.

    Attributes
    ----------
    identity : Identity
        Its key.
    agreed : Agreed
        What its invitation comes to; without data.
    policy : OwnerPolicy or None
        Of its data, if it has any.
    text : bytes
        The invitation.
    data : Path or None
        The party's examples, if it has any.
    """

    text: bytes
    identity: Identity
    agreed: Agreed
    policy: OwnerPolicy | None
    data: Path | None


def accept(options: PartyOptions, text: bytes | None = None) -> Invited:
    """Read a party's invitation, or one that it accepted before, and see whether its policy lets it pass.

    Raises
    ------
    CallerError
        With one line: what cannot be read, is not genuine, does not fit, or is not allowed.
    """
    identity = Identity.load(options.key)
    policy = None if options.policy is None else read_policy(options.policy)
    text = content_of(options.invitation) if text is None else text
    try:
        modules = (*options.modules, *(() if policy is None else policy.modules))
        terms = Terms.of(_read(text, options, identity, policy), modules)
    except InvitationError as error:
        raise InvitationError(f"{options.invitation}: {error}") from None
    me = terms.me.name
    data = _data(options, policy) if terms.holds_data else None
    if terms.holds_data and (policy is None or data is None):
        missing = "--policy FILE" if policy is None else "--data PATH, or a path in its policy"
        raise CallerError(f"{me} has {counted(terms.sizes[me], 'example')} in this run, so it needs {missing}")
    if not terms.holds_data and options.data is not None:
        raise CallerError(f"{me} is the {terms.me.role} of this run and has no examples; leave out --data")
    agreed = Agreed.on(terms)
    broken = []
    if policy is not None and terms.holds_data:
        broken = refusals(policy, asked(agreed, policy.data_set(options.data_name, data)))
    if broken:
        raise PolicyBroken(f"{options.policy} does not allow this run, and nothing was joined: {'; '.join(broken)}")
    return Invited(text, identity, agreed, policy, data)


def _data(options: PartyOptions, policy: OwnerPolicy | None) -> Path | None:
    """Where the examples are: where the caller says, or the policy."""
    if options.data is not None or policy is None:
        return options.data
    return policy.data_path(policy.data_set(options.data_name))


def _read(text: bytes, options: PartyOptions, identity: Identity, policy: OwnerPolicy | None) -> Invitation:
    """The invitation, of an organiser that the caller or the policy names."""
    known = [options.organiser] if options.organiser else list(policy.organisers if policy is not None else ())
    if not known:
        raise InvitationError(
            "whose invitation is it? give --organiser FINGERPRINT, as the organiser told you by "
            "another way than the file came, or list it under organisers: in the policy"
        )
    now = datetime.now(UTC)
    for fingerprint in known[:-1]:
        try:
            return parse_invitation(text, identity, fingerprint, now)
        except InvitationError:
            continue
    return parse_invitation(text, identity, known[-1], now)


def asked(agreed: Agreed, data: str | None = None) -> Asked:
    """What an invitation asks of the data's owner; ``data`` is the data set's name in the policy."""
    terms, plan, spec = agreed.terms, agreed.plan, agreed.prepared.experiment
    me, law = terms.me, plan.mechanisms[terms.me.name]
    clip = spec.privacy.clip
    return Asked(
        algorithm=spec.algorithm.name,
        role=me.role,
        name=me.name,
        peers=terms.invitation.peers,
        organiser=terms.invitation.organiser,
        private=spec.private,
        clip=clip.bound if isinstance(clip, FixedClip) else None,
        noise_multiplier=law.noise_multiplier if isinstance(law, Gaussian) else None,
        epsilon=_epsilon(agreed),
        delta=spec.delta,
        relation=spec.privacy.relation,
        unit="agent" if agreed.prepared.units else EXAMPLE,
        smallest_sum=_smallest_sum(agreed),
        agent_noise=spec.privacy.agent_noise,
        data=data,
        planned=_planned(agreed),
    )


def _epsilon(agreed: Agreed) -> float:
    """What is proved for this party's whole plan, of one example: policies and ledgers know no persons."""
    found, planned, spec = agreed.plan.epsilons[agreed.terms.me.name], _planned(agreed), agreed.prepared.experiment
    if planned is None or spec.rows_per_person == 1 or not math.isfinite(found):
        return found
    return accountants.epsilon(planned, spec.delta, spec.privacy.relation).epsilon


def _planned(agreed: Agreed) -> Counts | None:
    """The releases of this party's plan, as its ledger counts them."""
    plan, me = agreed.plan, agreed.terms.me.name
    if not isinstance(plan, SamplePlan):
        return None
    return release_counts(plan.schedules[me], plan.mechanisms[me], plan.size)


def _smallest_sum(agreed: Agreed) -> int | None:
    """Of how many agents' updates the sums are that a server sees."""
    settings = agreed.prepared.experiment.algorithm
    if not isinstance(settings, Settings) or settings.masking.name != "secure":
        return None
    # Masks need cryptography, which is there, or no invitation could have been read.
    from gossamer.algorithms.graph_masking import unit_of

    me, clip = agreed.terms.me.name, agreed.plan.mechanisms[agreed.terms.me.name].clip
    (sampling,) = [found for found in samplings(agreed.prepared, settings) if me in found.agents]
    size = agreed.prepared.objective.size
    return unit_of(settings, sampling.server, sampling.sampled, size, clip, 0.0).group.minimum
