"""The data side of a member of masked sums: its part as it leaves, behind masks, of an update that is never shown."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, PeerError, SpecError
from gossamer.keys.identity import Identity, PublicKey
from gossamer.privacy.masking import MaskingAgent, Phase
from gossamer.privacy.masking.fixed_point import UintArray
from gossamer.privacy.masking.keys import reproducible_secret
from gossamer.privacy.masking.messages import REQUESTS, check_identities, packed, unpacked
from gossamer.privacy.masking.sums import STEPS
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep
from gossamer.protocol.snapshots import kept_whole
from gossamer.sides.client import SLACK, RawUpdate, Updates, clipped
from gossamer.sides.home import Home, MarkInMemory, RoundMark, numbers_in
from gossamer.sides.ledger import Ledger, Receipt
from gossamer.sides.machine import Due, Rule, SideAnswer
from gossamer.sides.plan import MaskedMember
from gossamer.sides.samples import ShardRows
from gossamer.sides.secure_unit import inputs_digest
from gossamer.sides.sums import Inputs, Ticket
from gossamer.vectors import Public, Sendable


@dataclass(frozen=True)
class Signing:
    """Identity and public keys that sign the keys of masked sums, so that a server cannot put its own in their place.

    Attributes
    ----------
    identity : Identity
        The agent's own.
    keys : mapping of str to PublicKey
        Keys by name, of all agents of the unit, known from elsewhere than from the server.
    """

    identity: Identity
    keys: Mapping[str, PublicKey]


@kept_whole
@dataclass(slots=True)
class _Round:
    """State kept of a round: the update, the keys, and what was asked and answered."""

    number: int
    update: FloatArray
    agent: MaskingAgent
    answers: dict[int, tuple[Public, Sendable]] = field(default_factory=dict)
    charged: bool = False


class MemberRule(Rule):
    """The updates of one member, and its messages of the sums that they are in.

    Its keys of a round bear a digest of all public inputs of its update, the model that it was asked about among them
    (`RoundTerms`). It takes no part where the model is too far out, or where it is asked otherwise than was agreed.

    It keeps the newest round: its update, the agent's secret keys, and its answers, so that a step asked for again is
    answered with the same bytes, and one that is asked for otherwise not at all. None of that is stored. A round in
    which it has said what depends on a secret is marked before, and after a restart not entered again.

    Raises
    ------
    DataError
        If a mark, a ledger or identities are missing, or there are identities and the unit's keys are not signed.
    """

    changing = ("_mark", "_round")

    def __init__(
        self, name: str, plan: MaskedMember, shard: ShardRows, updates: Updates, home: Home, ledger: Ledger | None
    ) -> None:
        shard.check_whole()
        self._seed, self._signing, mark = home.seed(name), home.signing(name), home.kept(name)
        if self._seed is None and mark is None:
            raise DataError(f"{name}: an agent of masked sums needs a durable mark of the rounds it took part in")
        if plan.noise is not None and ledger is None:
            raise DataError(f"{name}: an agent that adds noise needs a ledger to charge it to")
        check_identities(plan.bound.group, None if self._signing is None else {})
        self.unit, self.terms, self._members = plan.bound, plan.terms, plan.coins
        self._receipt = None if plan.noise is None else Receipt(plan.noise)
        self._name, self._updates, self._shard = name, updates, shard
        self._sampling, self._noise = numbers_in(home, name, "sampling"), numbers_in(home, name, "agent noise")
        self._mark: RoundMark = MarkInMemory() if mark is None else mark
        self._round: _Round | None = None

    def due(self, task: Any, charged: int) -> Due:
        if isinstance(task, MaskingStep):
            return Due(self._receipt if self._costs(task) else None)
        if not isinstance(task, LocalUpdate):
            raise SpecError(f"{self._name} makes local updates for masked sums, found {type(task).__name__}")
        return Due(None)

    def _costs(self, task: MaskingStep) -> bool:
        """Whether noise is to be drawn for a step that was not charged: once a round, when its turn has come."""
        kept = self._kept(task)
        # A step out of turn is refused, and costs nothing.
        return kept is not None and task.step == Phase.MASK == kept.agent.step and not kept.charged

    def admitted(self, task: MaskingStep) -> None:
        kept = self._kept(task)
        assert kept is not None, "only a step that costs something is charged"
        kept.charged = True

    def number(self, task: Any, charged: int) -> int:
        return int(task.id)

    def draw(self, ticket: Ticket) -> Inputs | None:
        """Rows of the local steps; a message of a sum draws nothing from the data."""
        # An update is not even made, if it is of a round that the member takes no part in.
        if not isinstance(ticket.task, LocalUpdate) or not self.taking_part(ticket.task):
            return None
        return self._updates.inputs(ticket, self._shard, self._sampling)

    def release(self, ticket: Ticket, raw: RawUpdate | None) -> SideAnswer:
        """The message of a step; of an update nothing, but that it is there: the node learns no more of it."""
        if isinstance(ticket.task, MaskingStep):
            return SideAnswer(self.step(ticket.task))
        if raw is None:
            return SideAnswer(REFUSED)
        self.keep(ticket.task, self._whole(raw.update))
        return SideAnswer(REFUSED, raw.not_finite)

    def _whole(self, update: FloatArray) -> FloatArray:
        """The update in its own direction, where it is longer than the bound by more than rounding.

        The encoding bounds each coordinate first, and would turn it. Steps with a clip of their own are never so long.
        """
        too_long = float(np.linalg.norm(update.astype(np.float64))) > self.unit.reach * (1 + SLACK)
        return clipped(update, self.unit.reach) if too_long else update

    def taking_part(self, task: LocalUpdate) -> Sequence[str]:
        """The members of the round of ``task``, if it is a new one and this agent is to take part; none otherwise."""
        new = (self._round is None or task.id > self._round.number) and task.id > self._mark.round
        members = self._members(task.id) if new else ()
        # Otherwise the public coins are against it, or the terms are, whatever the server says.
        return members if self._name in members and self.terms.allow(self._name, task) else ()

    def keep(self, task: LocalUpdate, update: FloatArray) -> None:
        """Keep the update, if its round is still one to take part in."""
        if members := self.taking_part(task):
            numbers = {name: number for number, name in enumerate(members, 1)}
            signing = self._signing
            agent = MaskingAgent(
                self.unit.group,
                numbers[self._name],
                task.id,
                None if signing is None else {number: signing.keys[name] for name, number in numbers.items()},
                self._secret(task.id),
                inputs_digest(self.unit, self.terms, members, task),
            )
            self._round = _Round(task.id, update.copy(), agent)

    def _secret(self, round: int) -> bytes:
        """32 bytes for a round that nobody else can guess, if there is no seed."""
        return secrets.token_bytes(32) if self._seed is None else reproducible_secret(self._seed, self._name, round)

    def step(self, task: MaskingStep) -> Sendable:
        """The agent's message of a step, or `REFUSED`."""
        kept = self._kept(task)
        if kept is None:
            return REFUSED
        asked, answer = kept.answers.get(task.step, (None, REFUSED))
        if asked is None:
            try:
                answer = self._say(kept, task)
            except PeerError:
                return REFUSED  # the server said what it must not; nothing has changed
            kept.answers[task.step] = task.incoming, answer
        elif asked != task.incoming:
            return REFUSED
        return answer

    def _kept(self, task: MaskingStep) -> _Round | None:
        """The round of a step, if it is the newest."""
        return self._round if self._round is not None and self._round.number == task.round else None

    def _say(self, kept: _Round, task: MaskingStep) -> Sendable:
        agent, step = kept.agent, task.step
        if step == Phase.ANNOUNCE:
            return packed(agent.announce(None if self._signing is None else self._signing.identity))
        if self._mark.round < kept.number:
            self._mark.reached(kept.number)
        incoming: Any = unpacked(task.incoming, REQUESTS[step], self.unit.group)
        if step == Phase.MASK:
            return agent.mask(incoming, self._encoded(kept)).values
        return packed(STEPS[step](agent, incoming))

    def _encoded(self, kept: _Round) -> UintArray:
        if self.unit.noise is None:
            return self.unit.encode(kept.update)
        if not kept.charged:
            raise PeerError(f"round {kept.number}: a masked vector was asked for before shares were sent")
        return self.unit.encode(kept.update, self._noise.at(kept.number))
