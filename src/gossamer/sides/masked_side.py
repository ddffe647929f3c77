"""Data sides of agents that hide their updates from their own server: behind masks, or behind a paper's float noise.

A member's part of a masked sum, as it leaves: vectors behind masks, of an update that is never shown.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, PeerError, SpecError
from gossamer.keys.identity import Identity, PublicKey
from gossamer.privacy.masking import MaskingAgent, Phase
from gossamer.privacy.masking.fixed_point import UintArray
from gossamer.privacy.masking.keys import reproducible_secret
from gossamer.privacy.masking.messages import REQUESTS, Identities, check_identities, packed, unpacked
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep
from gossamer.protocol.snapshots import Kept, kept_whole
from gossamer.sides.client import SLACK, RawUpdate, Updates, clipped, steps_of
from gossamer.sides.home import Home, MarkInMemory, RoundMark, numbers_in, numbers_of
from gossamer.sides.ledger import Ledger, Receipt
from gossamer.sides.machine import Due, Rule, SideAnswer, Together
from gossamer.sides.plan import MaskedMember
from gossamer.sides.samples import ShardRows
from gossamer.sides.secure_unit import RoundTerms, SecureUnit, inputs_digest
from gossamer.sides.sums import Inputs, Ticket
from gossamer.vectors import Public, Sendable

Members = Callable[[int], Sequence[str]]
"""Who takes part in a round, in the order of their numbers: public coins."""


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


class MaskedSide(Kept):
    """The data side of one agent whose server is to see sums alone.

    Its keys of a round bear a digest of all public inputs of its update, the model that it was asked about among them
    (`RoundTerms`). It takes no part where the model is too far out, or where it is asked otherwise than was agreed.

    It keeps the newest round: its update, the agent's secret keys, and its answers, so that a step asked for again is
    answered with the same bytes, and one that is asked for otherwise not at all. None of that is stored. A round in
    which it has said what depends on a secret is marked before, and after a restart not entered again.

    Parameters
    ----------
    name : str
        Name of the agent.
    seed : int or None
        Seed of reproducible noise and secrets, good for simulation only; None draws them from the operating system.
    unit : SecureUnit
        Parameters that its unit agreed on.
    members : callable
        Function that names who takes part in a round.
    terms : RoundTerms
        Terms that the unit agreed on besides.
    secret : callable, optional
        32 bytes for a round that nobody else can guess, from elsewhere.
    mark : RoundMark, optional
        The newest round that it has said something secret in; durable in a deployment.
    signing : Signing, optional
        Needed if the unit's keys are signed.

    Raises
    ------
    DataError
        If identities are missing, or they are given and the unit's keys are not signed.
    """

    changing = ("_mark", "_round")
    __slots__ = ("_mark", "_members", "_name", "_noise", "_round", "_secret", "_signing", "terms", "unit")

    def __init__(
        self,
        name: str,
        seed: int | None,
        unit: SecureUnit,
        members: Members,
        terms: RoundTerms,
        secret: Callable[[int], bytes] | None = None,
        mark: RoundMark | None = None,
        signing: Signing | None = None,
    ) -> None:
        check_identities(unit.group, None if signing is None else {})
        self.unit, self.terms, self._signing = unit, terms, signing
        self._name, self._members = name, members
        self._noise = numbers_of(seed, name, "agent noise")
        self._secret = _secrets(seed, name) if secret is None else secret
        self._mark: RoundMark = MarkInMemory() if mark is None else mark
        self._round: _Round | None = None

    def answer(self, task: LocalUpdate, update: FloatArray) -> SideAnswer:
        """Keeps the update, if its round is still one to take part in: the node learns nothing of it."""
        if members := self.taking_part(task):
            numbers = {name: number for number, name in enumerate(members, 1)}
            agent = MaskingAgent.start(
                self.unit.group,
                numbers[self._name],
                task.id,
                self._identities(numbers),
                secret=self._secret(task.id),
                inputs=inputs_digest(self.unit, self.terms, members, task),
            )
            self._round = _Round(task.id, update.copy(), agent)
        return SideAnswer(REFUSED)

    def taking_part(self, task: LocalUpdate) -> Sequence[str]:
        """The members of the round of ``task``, if it is a new one and this agent is to take part; none otherwise."""
        new = (self._round is None or task.id > self._round.number) and task.id > self._mark.round
        members = self._members(task.id) if new else ()
        # Otherwise the public coins are against it, or the terms are, whatever the server says.
        return members if self._name in members and self.terms.allow(self._name, task) else ()

    def costs(self, task: MaskingStep) -> bool:
        """Whether noise is to be drawn for a step that was not charged: once a round, when its turn has come."""
        kept = self._kept(task)
        # A step out of turn is refused, and costs nothing.
        return kept is not None and task.step == Phase.MASK == kept.agent.state.step and not kept.charged

    def charged(self, task: MaskingStep) -> None:
        """Note that the noise of a step's round is charged."""
        kept = self._kept(task)
        assert kept is not None, "only a step that costs something is charged"
        kept.charged = True

    def step(self, task: MaskingStep) -> SideAnswer:
        """The agent's message of a step, or `REFUSED`."""
        kept = self._kept(task)
        if kept is None:
            return SideAnswer(REFUSED)
        asked, answer = kept.answers.get(task.step, (None, REFUSED))
        if asked is None:
            try:
                answer = self._say(kept, task)
            except PeerError:
                return SideAnswer(REFUSED)  # the server said what it must not; nothing has changed
            kept.answers[task.step] = task.incoming, answer
        elif asked != task.incoming:
            return SideAnswer(REFUSED)
        return SideAnswer(answer)

    def _identities(self, numbers: Mapping[str, int]) -> Identities | None:
        """Identities whose signatures the keys of a round have to bear."""
        if self._signing is None:
            return None
        return {number: self._signing.keys[name] for name, number in numbers.items()}

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
        return packed(_SAY[step](agent, incoming))

    def _encoded(self, kept: _Round) -> UintArray:
        if self.unit.noise is None:
            return self.unit.encode(kept.update)
        if not kept.charged:
            raise PeerError(f"round {kept.number}: a masked vector was asked for before shares were sent")
        return self.unit.encode(kept.update, self._noise.at(kept.number))


def _secrets(seed: int | None, name: str) -> Callable[[int], bytes]:
    """32 bytes for a round that nobody else can guess, if there is no seed."""
    if seed is None:
        return lambda round: secrets.token_bytes(32)
    return lambda round: reproducible_secret(seed, name, round)


_SAY: dict[int, Callable[[MaskingAgent, Any], Any]] = {
    Phase.SHARE: MaskingAgent.share,
    Phase.CONFIRM: MaskingAgent.confirm,
    Phase.REVEAL: MaskingAgent.reveal,
}


class MemberRule(Rule):
    """The updates of one member, and its messages of the sums that they are in.

    The conversation itself, with all that is refused in it, is `MaskedSide`, whatever the world; it is handed the
    world's numbers, mark and identities. Here is what it is charged, by the machine that charges everything.
    """

    changing = ("_talk",)

    def __init__(
        self, name: str, plan: MaskedMember, shard: ShardRows, updates: Updates, home: Home, ledger: Ledger | None
    ) -> None:
        shard.check_whole()
        mark, seed = home.kept(name), home.seed(name)
        if seed is None and mark is None:
            raise DataError(f"{name}: an agent of masked sums needs a durable mark of the rounds it took part in")
        if plan.noise is not None and ledger is None:
            raise DataError(f"{name}: an agent that adds noise needs a ledger to charge it to")
        self._receipt = None if plan.noise is None else Receipt(plan.noise)
        self._name, self._updates, self._reach = name, updates, plan.bound.reach
        self._shard, self._sampling = shard, numbers_in(home, name, "sampling")
        self._talk = MaskedSide(name, seed, plan.bound, plan.coins, plan.terms, mark=mark, signing=home.signing(name))

    def due(self, task: Any, charged: int) -> Due:
        if isinstance(task, MaskingStep) and self._receipt is not None and self._talk.costs(task):
            return Due(self._receipt)
        if not isinstance(task, MaskingStep | LocalUpdate):
            raise SpecError(f"{self._name} makes local updates for masked sums, found {type(task).__name__}")
        return Due(None)

    def admitted(self, task: MaskingStep) -> None:
        self._talk.charged(task)

    def number(self, task: Any, charged: int) -> int:
        return int(task.id)

    def draw(self, ticket: Ticket) -> Inputs | None:
        """Rows of the local steps; a message of a sum draws nothing from the data."""
        if self.together(ticket.task) is None:
            return None
        return steps_of(ticket, self._shard, self._sampling)

    def together(self, task: Any) -> Together | None:
        # An update is not even made, if it is of a round that the member takes no part in.
        made = isinstance(task, LocalUpdate) and bool(self._talk.taking_part(task))
        return self._updates.compute if made else None

    def _whole(self, update: FloatArray) -> FloatArray:
        """The update in its own direction, where it is longer than the bound by more than rounding.

        The encoding bounds each coordinate first, and would turn it. Steps with a clip of their own are never so long.
        """
        too_long = float(np.linalg.norm(update.astype(np.float64))) > self._reach * (1 + SLACK)
        return clipped(update, self._reach) if too_long else update

    def release(self, ticket: Ticket, raw: RawUpdate | None) -> SideAnswer:
        if raw is None:
            return SideAnswer(REFUSED) if isinstance(ticket.task, LocalUpdate) else self._talk.step(ticket.task)
        answer = self._talk.answer(ticket.task, self._whole(raw.update))
        return answer._replace(not_finite=raw.not_finite) if raw.not_finite else answer
