"""Whether a party may join: its options, its identity, the invitation, and what the data's owner has ruled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gossamer.bounded import real_path
from gossamer.deployment.founding.invitations import Invitation, content_of, parse_invitation
from gossamer.deployment.owner.policy import OwnerPolicy, read_policy
from gossamer.deployment.owner.policy_rules import Asked, refusals
from gossamer.deployment.party.agreement import Agreed, RunTerms
from gossamer.errors import CallerError, counted
from gossamer.keys.errors import InvitationError
from gossamer.keys.identity import Identity
from gossamer.keys.membership import AGENT, Member
from gossamer.privacy.accounting import accountants
from gossamer.privacy.clipping import FixedClip
from gossamer.sides.plan import CountedOn, counts_of, smallest_sum

# Options for running a party's node.


@dataclass(frozen=True)
class PartyOptions:
    """Options for running a party.

    Attributes
    ----------
    invitation : Path
        The file. What else belongs to it lies in the same folder: ``identity.key``, and for a broker with TLS
        ``ca.crt`` and ``tls.crt``.
    organiser : str, optional
        The organiser's fingerprint, known by another way than the file came; by default those in the policy.
    identity : Path, optional
        The party's private key.
    data, test : Path, optional
        The training examples (by default where the policy says), and examples to test on.
    data_name : str, optional
        Name that the policy has for the data; needed where it knows several.
    policy : Path, optional
        The data owner's; needed with data.
    modules : sequence of str
        Code that a spec may have run, beside what the policy allows; see `OwnerPolicy.modules`.
    pretrained : Path, optional
        The model that all parties start from, where there is one; by default ``start.safetensors`` beside the
        invitation.
    store : Path, optional
        The state folder; by default ``state`` beside the invitation.
    resume : bool
        Whether to go on where an earlier process of this node ended.
    believe_store : bool
        Whether to go on even where peers know of more messages than the store.
    connect_timeout : float
        Seconds for which a broker that was never reached is tried.
    wait : float
        Seconds for which a new node waits for its neighbours before it starts.
    gone_after : float
        Seconds of silence after which a peer counts as gone, and is not waited for at the end.
    trace : Path, optional
        File for every event and effect.
    quiet : bool
        Whether the log alone is told what happens.
    """

    invitation: Path
    organiser: str | None = None
    identity: Path | None = None
    data: Path | None = None
    test: Path | None = None
    data_name: str | None = None
    policy: Path | None = None
    modules: Sequence[str] = ()
    pretrained: Path | None = None
    store: Path | None = None
    resume: bool = True
    believe_store: bool = False
    connect_timeout: float = 60.0
    wait: float = 60.0
    gone_after: float = 300.0
    trace: Path | None = None
    quiet: bool = False

    @property
    def folder(self) -> Path:
        """Folder in which the invitation lies."""
        return real_path(self.invitation).parent

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.store or self.folder / "state"

    @property
    def start(self) -> Path:
        """The model that all parties start from, where there is one."""
        return self.pretrained or self.folder / "start.safetensors"

    @property
    def key(self) -> Path:
        """The party's private key."""
        return self.identity or self.folder / "identity.key"


class PolicyBroken(CallerError):
    """The data's owner does not allow what an invitation asks for."""


@dataclass(frozen=True)
class Invited:
    """A party that may join.

    Attributes
    ----------
    identity : Identity
        The key.
    agreed : Agreed
        Terms that its invitation comes to; without data.
    policy : OwnerPolicy or None
        Policy of its data, if it has any.
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

    @property
    def state_key(self) -> bytes:
        """The secret that the files of the party's state are sealed with."""
        return self.identity.secret("state")


def accept(options: PartyOptions, text: bytes | None = None) -> Invited:
    """Read a party's invitation, or one that it accepted before, and see whether its policy lets it pass.

    Raises
    ------
    CallerError
        With one line: what cannot be read, is not genuine, does not fit, or is not allowed.
    """
    text = content_of(options.invitation) if text is None else text  # first, as the key is looked for beside it
    identity = Identity.load(options.key)
    policy = None if options.policy is None else read_policy(options.policy)
    try:
        modules = (*options.modules, *(() if policy is None else policy.modules))
        terms = RunTerms.of(_read(text, options, identity, policy), modules, options.start)
    except InvitationError as error:
        raise InvitationError(f"{options.invitation}: {error}") from None
    if options.pretrained is not None and terms.start is None:
        raise CallerError("all parties of this run start from a model that is drawn; leave out --pretrained")
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
    """File of the examples: the one that the caller names, or that of the policy."""
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
    """Return what an invitation asks of the data's owner; ``data`` is the data set's name in the policy."""
    terms, plan, spec = agreed.terms, agreed.plan, agreed.prepared.experiment
    me, law = terms.me, plan.mechanisms[terms.me.name]
    clip, side = spec.privacy.clip, plan.side(me.name)
    counted_on = side.trusted.counts_on(me.name)
    return Asked(
        algorithm=spec.algorithm.name,
        role=me.role,
        name=me.name,
        peers=terms.invitation.peers,
        organiser=terms.invitation.organiser,
        private=spec.private,
        clip=clip.bound if isinstance(clip, FixedClip) else None,
        noise_multiplier=None if law.normal is None else law.normal.noise_multiplier,
        epsilon=_epsilon(agreed),
        delta=spec.delta,
        relation=spec.privacy.relation,
        unit=spec.terms.unit,
        smallest_sum=smallest_sum(side),
        agent_noise=spec.privacy.agent_noise,
        shown_to=_shown_to(agreed),
        counted_on=() if counted_on is None else _others(agreed, counted_on),
        dishonest=0 if counted_on is None else counted_on.dishonest,
        data=data,
        planned=counts_of(side),
    )


def _shown_to(agreed: Agreed) -> tuple[Member, ...]:
    """Those that see what is raw of this party; of agents there are rules of their own."""
    me, peers = agreed.terms.me, agreed.terms.invitation.peers
    return (
        ()
        if me.role == AGENT
        else tuple(peer for peer in peers if peer.name in agreed.plan.side(me.name).trusted.scope)
    )


def _others(agreed: Agreed, counted_on: CountedOn) -> tuple[tuple[Member, ...], ...]:
    """The others of each group that shares its noise with this party."""
    peers = {peer.name: peer for peer in agreed.terms.invitation.peers}
    return tuple(tuple(peers[name] for name in group if name in peers) for group in sorted(counted_on.groups))


def _epsilon(agreed: Agreed) -> float:
    """Epsilon proved for this party's whole plan, of one example: policies and ledgers know no persons."""
    plan, me, spec = agreed.plan, agreed.terms.me.name, agreed.prepared.experiment
    found, planned = plan.epsilons[me], counts_of(plan.side(me))
    if planned is None or spec.rows_per_person == 1 or not math.isfinite(found):
        return found
    return accountants.epsilon(planned, spec.delta, spec.privacy.relation).epsilon
