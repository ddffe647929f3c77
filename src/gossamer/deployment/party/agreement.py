"""Terms that an invitation settles for all, and whether a party may join: its options, identity and policy."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np

from gossamer.algorithms.plan import Plan
from gossamer.data.datasets import blank_dataset
from gossamer.data.examples import Split
from gossamer.deployment.founding.federation_spec import check_deployed, check_no_files, roster, with_start
from gossamer.deployment.founding.layout import IDENTITY, INVITATION, place_of
from gossamer.deployment.owner.policy import Asked, OwnerPolicy, read_policy, refusals
from gossamer.errors import CallerError, SpecError, beginning, counted, failing_as
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, assemble, nodes_of, servers
from gossamer.experiment.specs.spec import Experiment
from gossamer.experiment.specs.spec_file import read_text
from gossamer.files import real_path
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import (
    AGENT,
    Invitation,
    InvitationError,
    Member,
    check_further,
    content_of,
    parse_invitation,
    read_signed,
)
from gossamer.objectives.objective import Foreign, Objective
from gossamer.privacy.accounting import accountants
from gossamer.privacy.clipping import FixedClip
from gossamer.protocol.messages import may_hear
from gossamer.protocol.node import Node
from gossamer.protocol.session import SessionSettings
from gossamer.protocol.trace import TraceStep
from gossamer.protocol.transports import slowness, times_of
from gossamer.runtimes.host import Host
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.section import allowing
from gossamer.sides.ledger import Charges
from gossamer.sides.plan import CountedOn, smallest_sum

# What follows from an invitation: public facts that every party derives alike, before it opens its own data.

_THERE_AND_BACK = 2.5  # times that it takes, for a message and its acknowledgement
LARGEST_FRAME = 512 << 10
"""Most bytes of a frame; longer messages travel in chunks."""
_ROOM = 1 << 20  # of a message, for all that is no vector
_ROOM_A_MEMBER = 1 << 12  # keys and shares of secret sums


def experiment_of(invitation: Invitation, modules: Collection[str] = (), start: Path | None = None) -> Experiment:
    """The experiment that an invitation is to.

    Parameters
    ----------
    invitation : Invitation
        Verified.
    modules : collection of str
        Models that the spec may name by ``objective.module``, and distributions whose algorithms it may name: to build
        one is to run whatever code is called so on this machine, and who signed the invitation is not who decides on
        that.
    start : Path, optional
        This party's copy of the model that all start from, where the spec has its hash (``objective.pretrained``).

    Raises
    ------
    CallerError
        If its spec is not sound, or its members are not those that the spec's algorithm has.
    """
    with failing_as(InvitationError, "the spec of the invitation: ", of=SpecError):
        experiment = read_text(invitation.spec, modules=modules)
    if (module := experiment.objective.module) is not None and module not in modules:
        raise InvitationError(
            f"its spec would have code of its own run on this machine, objective.module: {module}; "
            f"{allowing(module, 'model')}"
        )
    check_no_files(experiment)
    check_deployed(experiment)
    experiment = with_start(experiment, path=start)
    _check_members(invitation, experiment)
    return experiment


@dataclass(frozen=True)
class Agreed:
    """Terms that follow from an invitation, for one of its parties.

    Attributes
    ----------
    invitation : Invitation
        Verified.
    experiment : Experiment
        Its spec, with this party's copy of the model that all start from.
    prepared : Prepared
        Run with this party's own examples, if it has any and they were given; of other shards there is the length.
    plan : Plan
        Plan of the whole run: fixed before the first release, and the same at every party.
    """

    invitation: Invitation
    experiment: Experiment
    prepared: Prepared
    plan: Plan

    @classmethod
    def by(cls, invitation: Invitation, modules: Collection[str] = (), start: Path | None = None) -> Agreed:
        """All that an invitation comes to; see `experiment_of`."""
        return cls.on(invitation, experiment_of(invitation, modules, start))

    @classmethod
    def on(cls, invitation: Invitation, experiment: Experiment) -> Agreed:
        """Return the terms of an invitation whose experiment is known.

        Raises
        ------
        CallerError
            If the spec does not fit together, or no noise meets the budget.
        """
        # Rows as many as those of another party's shard, with nothing in them.
        shards = tuple(np.broadcast_to(np.int64(0), size) for size in invitation.sizes.values())
        prepared = assemble(experiment, tuple(invitation.sizes), blank_dataset(experiment.dataset), shards)
        prepared = replace(prepared, run=invitation.run)
        return cls(invitation, experiment, prepared, plan_run(prepared))

    @property
    def me(self) -> Member:
        """The party itself."""
        return self.invitation.me

    @property
    def names(self) -> tuple[str, ...]:
        """The parties with data, in the order of their numbers."""
        return self.prepared.names

    @property
    def holds_data(self) -> bool:
        """Whether this party has examples."""
        return self.me.examples is not None

    def of(self, name: str) -> Agreed:
        """The same for another party."""
        return replace(self, invitation=replace(self.invitation, invited=name))

    def with_data(self, train: Split, test: Split | None = None) -> Agreed:
        """The same with this party's own examples, all of them its shard."""
        prepared, me = self.prepared, self.me.name
        dataset = replace(prepared.dataset, train=train, test=test or prepared.dataset.test, source="a party's own")
        own = np.arange(len(train.targets))
        shards = tuple(own if name == me else shard for name, shard in zip(prepared.names, prepared.shards))
        return replace(self, prepared=replace(prepared, dataset=dataset, shards=shards))

    def nodes(self) -> dict[str, Node]:
        """Fresh nodes of the run, by name."""
        return nodes_of(self.prepared, self.plan)

    def host(self, store: SqliteStore, watch: Callable[[TraceStep], None] | None = None) -> Host:
        """This party's node as its store has it."""
        node = self.nodes()[self.me.name]
        return Host(node, self.session, store, watch=watch, may_hear=self.may_hear)

    @cached_property
    def session(self) -> SessionSettings:
        """Settings by which messages are retried; the same at every party."""
        links, size = self.prepared.experiment.links, self.prepared.objective.size
        members, broker = len(self.invitation.members), self.invitation.broker
        retry_after = max(links.retry_after, _THERE_AND_BACK * max(times_of(broker)))
        return SessionSettings(
            retry_after=retry_after,
            longest_retry=8 * retry_after,
            silence=links.silence * slowness(broker),
            largest_frame=LARGEST_FRAME,
            # A few vectors of eight bytes a number.
            largest_message=4 * 8 * size + _ROOM + _ROOM_A_MEMBER * members,
            learns=True,
        )

    def may_hear(self, to: str) -> bool:
        """Whether the party ``to`` may be sent what is raw of this one."""
        return may_hear(self.prepared.units, self.me.name, to)


def _check_members(invitation: Invitation, experiment: Experiment) -> None:
    """The members with examples are as many as the spec wants, and the others are the algorithm's servers."""
    sizes, wanted = invitation.sizes, experiment.algorithm.nodes
    if len(sizes) != wanted:
        raise InvitationError(
            f"the spec of the invitation wants algorithm.nodes = {wanted} parties with data, and {len(sizes)} members "
            "have a number of examples; ask the organiser for a new one"
        )
    # A policy goes by roles and units, so they are not the organiser's to choose.
    keys = {member.name: member.key for member in invitation.members}
    differ = keys.keys() ^ {*sizes, *servers(experiment)}
    differ = differ or {one.name for one in {*roster(experiment, sizes, keys)} ^ {*invitation.members}}
    if differ:
        raise InvitationError(
            f"its spec and its members disagree on {', '.join(sorted(differ))}: on who is there, on a role or on a "
            "unit; ask the organiser for a new one"
        )


def check_newer(earlier: Agreed, agreed: Agreed, parties: Iterable[str] | None = None) -> None:
    """Whether parties that are in a run by one invitation may go on by another; by default the one it is for.

    Raises
    ------
    InvitationError
        If that one is to another run, is older, or differs in more than who joins.
    """
    old, new = earlier.invitation, agreed.invitation
    if (old.run, old.organiser) != (new.run, new.organiser):
        raise InvitationError(
            "the invitation is to another run than the one in the store; give another --store, if that is meant"
        )
    if new.issued < old.issued:
        raise InvitationError(
            f"the store was written by an invitation issued at {old.issued.isoformat()}, and this one is older; "
            "take the newest"
        )
    if _without_nodes(earlier.experiment) != _without_nodes(agreed.experiment):
        raise InvitationError("the spec of a run never changes, but for its parties; found a new federation")
    kept = {member.name: member for member in new.members}
    changed = [member.name for member in old.members if kept.get(member.name) != member]
    if changed:
        raise InvitationError(
            f"who is in a run stays what they were, and {', '.join(changed)} left, or got another key, role, unit or "
            "number of examples; found a new federation"
        )
    if earlier.names == agreed.names:
        return
    name = agreed.experiment.algorithm.name
    # Who masks with whom is known of all parties before the run, and the owners' trust is in those.
    masked = agreed.experiment.terms.hiding or agreed.experiment.evaluation.by == "federation"
    if masked or not agreed.prepared.algorithm.grows:
        raise InvitationError(f"nobody can join a run of {name} that has begun; found a new federation")
    if agreed.names[: len(earlier.names)] != earlier.names:
        raise InvitationError("who joins comes after those who were there")
    for party in parties or [agreed.me.name]:
        if _planned(earlier, party) != _planned(agreed, party):
            raise InvitationError(
                f"with the parties that join, {party} would release something else than was planned, and the plan of a "
                "run is fixed. Noise that is calibrated to a budget depends on the party with fewest examples, and "
                "stop.updates is shared by all: let somebody join with as many examples, or found a new federation "
                "(there with privacy.noise_multiplier in the place of a budget, and updates_per_node)"
            )


def _planned(agreed: Agreed, name: str) -> Charges | None:
    """Charges that the ledger is opened for."""
    return agreed.plan.side(name).charges()


def _without_nodes(experiment: Experiment) -> dict[str, object]:
    document = experiment.model_dump(mode="json")
    document["algorithm"].pop("nodes", None)
    return document


# Whether a party may join: its options, its identity, the invitation, and what the data's owner has ruled.


@dataclass(frozen=True)
class PartyOptions:
    """Options for running a party.

    Attributes
    ----------
    invitation : Path
        The file. What else belongs to it lies in the same folder: ``identity.key``, and for a broker with TLS
        ``ca.crt`` and ``tls.crt``.
    run : str, optional
        The further run to take part in: its invitation and certificates are in ``runs/NAME`` beside that file, which is
        the one to the first run.
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
    trainer : callable, optional
        Maker of what trains at this party, where that is code of its own: of what all have agreed on, the number of
        the party, and how many there are.
    pretrained : Path, optional
        The model that all parties start from, where there is one; by default ``start.safetensors`` beside the
        invitation.
    store : Path, optional
        The state folder; by default ``state`` beside the invitation. That of a further run is ``runs/NAME`` in it.
    resume : bool
        Whether to go on where an earlier process of this node ended.
    believe_store : bool
        Whether to go on even where peers know of more messages than the store.
    broker : str, optional
        Place where this party has the broker, in place of the invitation's: a store may lie elsewhere at each.
    connect_timeout : float
        Seconds for which a broker that was never reached is tried.
    wait : float
        Seconds for which a new node waits for its neighbours before it starts.
    gone_after : float
        Seconds of silence after which a peer counts as gone, and is not waited for at the end.
    rehearse : bool
        Whether to begin nothing, and tell those who watch the federation whether the node could.
    trace : Path, optional
        File for every event and effect.
    quiet : bool
        Whether the log alone is told what happens.
    """

    invitation: Path
    run: str | None = None
    organiser: str | None = None
    identity: Path | None = None
    data: Path | None = None
    test: Path | None = None
    data_name: str | None = None
    policy: Path | None = None
    modules: Sequence[str] = ()
    trainer: Callable[[Objective, int, int], Foreign] | None = None
    pretrained: Path | None = None
    store: Path | None = None
    resume: bool = True
    believe_store: bool = False
    broker: str | None = None
    connect_timeout: float = 60.0
    wait: float = 60.0
    gone_after: float = 300.0
    rehearse: bool = False
    trace: Path | None = None
    quiet: bool = False

    @property
    def file(self) -> Path:
        """Invitation to the run."""
        return self.invitation if self.run is None else self.founding / place_of(self.run) / INVITATION

    @property
    def founding(self) -> Path:
        """Folder in which the invitation to the first run lies."""
        return real_path(self.invitation).parent

    @property
    def folder(self) -> Path:
        """Folder in which the invitation lies."""
        return real_path(self.file).parent

    @property
    def state(self) -> Path:
        """The state folder."""
        return self.folder / "state" if self.store is None else self.store / place_of(self.run)

    @property
    def start(self) -> Path:
        """The model that all parties start from, where there is one."""
        return self.pretrained or self.folder / "start.safetensors"

    @property
    def key(self) -> Path:
        """The party's private key."""
        return self.identity or self.founding / IDENTITY


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
    data : Path or None
        The party's examples, if it has any.
    """

    identity: Identity
    agreed: Agreed
    policy: OwnerPolicy | None
    data: Path | None

    @property
    def state_key(self) -> bytes:
        """The secret that the files of the party's state are sealed with."""
        return self.identity.secret("state")


def accept(options: PartyOptions, before: Path | None = None, plans: Callable[[], object] = int) -> Invited:
    """Read a party's invitation, or the copy of one that it accepted before, and see whether its policy lets it pass.

    Called once all is read, before the noise is planned, is ``plans``.

    Raises
    ------
    CallerError
        With one line: what cannot be read, is not genuine, does not fit, or is not allowed.
    """
    file = options.file if before is None else before
    content = content_of(file)  # first, as the key is looked for beside it
    identity = Identity.load(options.key)
    policy = None if options.policy is None else read_policy(options.policy)
    first = None if options.run is None else read_signed(options.invitation)
    with beginning(str(file), InvitationError):
        modules = (*options.modules, *(() if policy is None else policy.modules))
        invitation = _read(content, options, identity, policy)
        if first is not None and options.run is not None:
            check_further(first, invitation, options.run)
        experiment = experiment_of(invitation, modules, options.start)
    if options.pretrained is not None and experiment.objective.pretrained is None:
        raise CallerError("all parties of this run start from a model that is drawn; leave out --pretrained")
    me = invitation.me
    data = None if me.examples is None else _data(options, policy)
    if me.examples is not None and (policy is None or data is None):
        missing = "--policy FILE" if policy is None else "--data PATH, or a path in its policy"
        raise CallerError(f"{me.name} has {counted(me.examples, 'example')} in this run, so it needs {missing}")
    if me.examples is None and options.data is not None:
        raise CallerError(f"{me.name} is the {me.role} of this run and has no examples; leave out --data")
    plans()
    agreed = Agreed.on(invitation, experiment)
    broken = []
    if policy is not None and agreed.holds_data:
        broken = refusals(policy, asked(agreed, policy.data_set(options.data_name, data)))
    if broken:
        raise PolicyBroken(f"{options.policy} does not allow this run, and nothing was joined: {'; '.join(broken)}")
    return Invited(identity, agreed, policy, data)


def _data(options: PartyOptions, policy: OwnerPolicy | None) -> Path | None:
    """File of the examples: the one that the caller names, or that of the policy."""
    if options.data is not None or policy is None:
        return options.data
    return policy.data_path(policy.data_set(options.data_name))


def _read(content: bytes, options: PartyOptions, identity: Identity, policy: OwnerPolicy | None) -> Invitation:
    """The invitation, of an organiser that the caller or the policy names."""
    known = [options.organiser] if options.organiser else (() if policy is None else policy.organisers)
    if not known:
        raise InvitationError(
            "whose invitation is it? give --organiser FINGERPRINT, as the organiser told you by "
            "another way than the file came, or list it under organisers: in the policy"
        )
    return parse_invitation(content, identity, known, datetime.now(UTC))


def asked(agreed: Agreed, data: str | None = None) -> Asked:
    """Return what an invitation asks of the data's owner; ``data`` is the data set's name in the policy."""
    plan, spec, me = agreed.plan, agreed.prepared.experiment, agreed.me
    laws = [plan.mechanisms[me.name], *(kind.mechanism for kind in (plan.held_out.kinds if plan.held_out else ()))]
    clip, side, peers = spec.privacy.clip, plan.side(me.name), agreed.invitation.peers
    counted_on = side.trusted.counts_on(me.name)
    return Asked(
        algorithm=spec.algorithm.name,
        role=me.role,
        name=me.name,
        peers=peers,
        organiser=agreed.invitation.organiser,
        private=spec.private,
        clip=clip.bound if isinstance(clip, FixedClip) else None,
        noise_multiplier=min((law.normal.noise_multiplier for law in laws if law.normal is not None), default=None),
        epsilon=_epsilon(agreed),
        delta=spec.delta,
        relation=spec.privacy.relation,
        unit=spec.terms.unit,
        smallest_sum=smallest_sum(side),
        agent_noise=spec.privacy.agent_noise,
        # Those that see what is raw of this party; of agents there are rules of their own.
        shown_to=tuple(peer for peer in peers if peer.name in side.trusted.scope and me.role != AGENT),
        counted_on=() if counted_on is None else _others(agreed, counted_on),
        dishonest=0 if counted_on is None else counted_on.dishonest,
        data=data,
        planned=plan.counts(me.name),
    )


def _others(agreed: Agreed, counted_on: CountedOn) -> tuple[tuple[Member, ...], ...]:
    """The others of each group that shares its noise with this party."""
    peers = {peer.name: peer for peer in agreed.invitation.peers}
    return tuple(tuple(peers[name] for name in group if name in peers) for group in sorted(counted_on.groups))


def _epsilon(agreed: Agreed) -> float:
    """Epsilon proved for this party's whole plan, of one example: policies and ledgers know no persons."""
    plan, me, spec = agreed.plan, agreed.me.name, agreed.prepared.experiment
    found, planned = plan.epsilons[me], plan.counts(me)
    together = spec.rows_per_person == 1 and plan.held_out is None
    if planned is None or together or not math.isfinite(found):
        return found
    return accountants.epsilon(planned, spec.delta, spec.privacy.relation).epsilon
