"""A masked round, whatever the algorithm: the five steps of its sum, as their server and the members take them.

| step | the server asks with | the member replies with |
|---|---|---|
| 0 announce | the model, before the update is made | its public keys |
| 1 share | everybody's keys | shares of its secrets, encrypted for each member |
| 2 mask | the shares for this member | its update, `Masked` |
| 3 confirm | whose updates arrived | its signature of that |
| 4 reveal | all signatures | one share for each participant |

A step ends when all that were asked have replied, have left or withdrawn, are known to be away, or are late; who has
not replied by then has vanished from this sum. Where too few are left, or too few of their shares are right, nothing is
unmasked. What the steps say is opaque to nodes (`gossamer.privacy.masking`): a member's messages come from its data
side, which holds its keys and its update, and the server's side of a sum is plain data in its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gossamer.errors import PeerError, TooFewAgents
from gossamer.privacy.masking import Group, MaskingServer, Phase, messages
from gossamer.privacy.masking.sums import reply_bytes
from gossamer.privacy.tasks import REFUSED, LocalUpdate, MaskingStep, step_of
from gossamer.protocol.effects import Compute, Record, Send
from gossamer.protocol.events import Answered
from gossamer.protocol.messages import Message, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Blank, Masked, Model, Public

UPDATE = -1
"""Before the steps of the sum: the update is made."""


@message("graph.masking_request")
class MaskingRequest(Message):
    """Request of the server: take ``step`` of the sum of ``round``; ``content`` is a packed message about masks."""

    round: int
    step: int
    content: Public


@message("graph.masking_reply")
class MaskingReply(Message):
    """Reply of a member: its message of ``step``, packed; at the step that masks, the masked update itself."""

    round: int
    step: int
    content: Public | Masked


@message("graph.withdrawn")
class Withdrawn(Message):
    """Notice of a member: it takes no further part in the sum of ``round``, because its data side will not."""

    round: int


def _check_content(step: int, content: Any, kinds: Mapping[int, type[messages.MaskingMessage]], group: Group) -> None:
    """Refuse content that is no message of its step; a masked vector is for the sum to check."""
    kind = kinds.get(step)
    if kind is None:
        if kinds is messages.REQUESTS or step != Phase.MASK or type(content) is not Masked:
            raise PeerError(f"no message belongs to step {step}, or it is another than the one found")
    elif type(content) is not Public:
        raise PeerError(f"step {step} has {kind.__name__}, found {type(content).__name__}")
    elif isinstance(content.values, np.ndarray):
        messages.unpacked(content, kind, group)


@dataclass(kw_only=True)
class SumState:
    """State of a server on the sum under way.

    Attributes
    ----------
    sum : MaskingServer or None
        The sum: what the members have said, none of which is an update. Another one after every message.
    asked : dict of str to Public
        Request that each member was sent last, after the update.
    waiting : set of str
        Members that have not replied at this step.
    """

    sum: Any = None
    asked: dict[str, Public] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)


class MaskedRound:
    """Part of a node that is the server of masked rounds, with a `SumState` and a ``unit`` that says how members mask.

    The node says whether it is ``summing``, which ``round``, and who are its ``members`` in the order of their numbers;
    who of them is ``gone``; how it does `set_timers` and `ask_for_update`; and what becomes of a sum,
    `unmasked` or `refused_sum`. So ``self`` is any such node.
    """

    def open_sum(self: Any, model: Model) -> None:
        """Begin the sum of the round, without content where models have none."""
        s, group = self.state, self.unit.group
        total = Blank(group.length, group.dtype) if isinstance(model.values, Blank) else None
        s.sum, s.asked = MaskingServer(group, self.round, total=total), {}

    @on(MaskingReply, by="clients")
    def replied(self: Any, sender: str, reply: MaskingReply, now: float) -> Effects:
        s = self.state
        _check_content(reply.step, reply.content, messages.REPLIES, self.unit.group)
        self.hear(sender)
        if not self.summing or (reply.round, reply.step) < (self.round, s.sum.step):
            return  # it came too late, or again
        if (reply.round, reply.step) != (self.round, s.sum.step):
            raise PeerError(f"{sender} replies to step {reply.step} of round {reply.round}, which was not asked yet")
        if sender in s.waiting:
            server = copy(s.sum)
            server.take(self.members.index(sender) + 1, reply.content)
            s.sum = server
            yield from self.lost(sender)

    @on(Withdrawn, by="clients")
    def withdrawn(self: Any, sender: str, message: Withdrawn, now: float) -> Effects:
        self.hear(sender)
        if message.round == self.round:
            yield from self.lost(sender)

    def hear(self, member: str) -> None:
        """Note that a member is there."""

    def lost(self: Any, member: str) -> Effects:
        """Wait for ``member`` no longer."""
        if self.summing and member in self.state.waiting:
            self.state.waiting.discard(member)
            yield from self.close_if_whole()

    def close_if_whole(self: Any) -> Effects:
        """Close the step under way if nobody is waited for."""
        if self.summing and not self.awaited:
            yield from self.heard()

    def ask_again(self: Any) -> Effects:
        """Ask those who have not replied, for an update first."""
        s = self.state
        for member in sorted(self.awaited):
            if s.sum.step == Phase.ANNOUNCE:
                yield from self.ask_for_update(member)
            else:
                yield Send(member, MaskingRequest(self.round, s.sum.step, s.asked[member]))

    def heard(self: Any) -> Effects:
        """Close the step: ask for the next one, or unmask. Too few members, or too few right shares, are no sum."""
        s = self.state
        server, total, requests = copy(s.sum), None, None
        try:
            if s.sum.step < Phase.REVEAL:
                requests = server.advance()
            else:
                total = server.unmask()
        except (TooFewAgents, PeerError):
            yield Record("masked_sum_refused", float(len(server.heard)))
            yield from self.refused_sum()
            return
        if requests is None:
            yield from self.unmasked(total, len(s.sum.survivors))
            return
        s.sum, members = server, self.members
        s.asked = {members[number - 1]: messages.packed(content) for number, content in requests.items()}
        s.waiting = s.asked.keys() - self.gone
        yield from self.set_timers()
        yield from self.ask_again()
        if not s.waiting:
            yield from self.heard()


@dataclass(kw_only=True)
class MemberState:
    """State of a member on the sum that it is in.

    Attributes
    ----------
    step : int
        The newest step that it was asked to take; `UPDATE` before.
    asked : Public
        Request that it was sent for that.
    speakers : int
        Number of members that its reply speaks of.
    busy : bool
        Whether its data side is at it.
    """

    step: int = UPDATE
    asked: Public = field(default_factory=lambda: REFUSED)
    speakers: int = 0
    busy: bool = False


class RoundMember:
    """Part of a node that is a member of masked rounds: neither its update nor its keys are ever in its state.

    The node has a `MemberState`, its ``server``, the ``query`` for its updates and the ``group`` of its sums. It says
    which ``round`` it is in. So ``self`` is any such node.
    """

    def enter(self: Any) -> None:
        """Forget the steps of the round before."""
        self.state.step, self.state.asked = UPDATE, REFUSED

    def work(self: Any) -> Effects:
        """Ask the data side for the update, or for the message of a step."""
        s, group = self.state, self.group
        if s.step == UPDATE:
            yield Compute(LocalUpdate(self.round, s.w, self.query))
            return
        bits = group.bits if s.step == Phase.MASK else 8
        size = reply_bytes(group, s.step, s.speakers) // (bits // 8)
        yield Compute(MaskingStep(self.round, s.step, s.asked, size, bits))

    @on(MaskingRequest, by="server")
    def requested(self: Any, sender: str, request: MaskingRequest, now: float) -> Effects:
        s = self.state
        _check_content(request.step, request.content, messages.REQUESTS, self.group)
        if not s.finished and request.round == self.round and request.step >= s.step:  # others have been given up
            s.step, s.asked, s.busy = request.step, request.content, True
            if request.step == Phase.SHARE:
                s.speakers = messages.agents_in(messages.AgentRoster, request.content.size, signed=self.group.signed)
            elif request.step == Phase.MASK:
                s.speakers = messages.agents_in(messages.DeliveredShares, request.content.size) + 1
            yield from self.work()

    def said(self) -> Effects:
        """Go on after a reply."""
        yield from ()

    @on(Answered)
    def answered(self: Any, done: Answered, now: float) -> Effects:
        """Announce keys once the update is there; then reply with what the data side says, if it says anything."""
        s = self.state
        if not s.busy or s.finished:
            return
        if s.step == UPDATE and done.id == self.round:
            s.step = Phase.ANNOUNCE.value
            yield from self.work()
        elif step_of(done.id) == (self.round, s.step):
            s.busy = False
            if isinstance(done.vector, Public | Masked) and done.vector.size:
                yield Send(self.server, MaskingReply(self.round, s.step, done.vector))
                yield from self.said()
            else:
                yield Send(self.server, Withdrawn(self.round))
