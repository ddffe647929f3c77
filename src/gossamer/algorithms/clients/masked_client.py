"""A client of masked sums: its update goes from its data side to the server under masks, with its share of the noise.

The server gives it a model whenever it is drawn; the steps of the sum follow (`algorithms.masking_messages`). Neither
the update nor the keys are ever in the node's state.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.algorithms.clients.messages import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.masked_steps import UPDATE, check_request, speakers_in, step_task
from gossamer.algorithms.masking_messages import MaskingReply, MaskingRequest, Withdrawn
from gossamer.algorithms.worker import Words, WorkerNode, WorkerState
from gossamer.privacy.masking import Group, Step
from gossamer.privacy.masking_step import REFUSED, step_of
from gossamer.privacy.unit_tasks import LocalUpdate, TrainingQuery
from gossamer.protocol.effects import Compute, Send
from gossamer.protocol.events import Answered, Resumed, Started
from gossamer.protocol.messages import check_count, check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Masked, Public


@dataclass
class MaskedClientState(WorkerState):
    """State of a client of masked sums; its ``version`` is the newest round that it is in.

    Attributes
    ----------
    step : int
        The newest step of the sum that it was asked to take; -1 for the update.
    asked : Public
        What it was sent for that.
    speakers : int
        Of how many clients its reply speaks.
    busy : bool
        Whether its data side is at it.
    """

    version: int = -1
    step: int = UPDATE
    asked: Public = field(default_factory=lambda: REFUSED)
    speakers: int = 0
    busy: bool = False


class MaskedClientNode(WorkerNode):
    """A client, with data of its own, that is in the sums of some rounds."""

    state: MaskedClientState

    def __init__(self, name: str, context: Context, query: TrainingQuery, group: Group) -> None:
        super().__init__(name, context, SERVER, Words(Fetch, Push, Leave))
        self.state = MaskedClientState(context.initial)
        self.query, self.group = query, group

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """Say that it is there, and take the step again that was lost."""
        yield from super().pull(event, now)
        if self.state.busy and not self.state.finished:
            yield from self.work()

    @on(Newest)
    def train(self, sender: str, newest: Newest, now: float) -> Effects:
        """Make the update of a round, at the data side; or the newest step again, of the round that it is in."""
        s = self.state
        check_sender(sender, SERVER)
        check_count(sender, "version", newest.version)
        check_model(newest.model, s.w)
        if s.finished or newest.request != s.request or newest.version < s.version:
            return
        if newest.version > s.version:
            s.w, s.version, s.step, s.asked = newest.model, newest.version, UPDATE, REFUSED
        s.busy = True
        yield from self.work()

    def work(self) -> Effects:
        """Ask the data side for the update, or for the message of a step."""
        s = self.state
        if s.step == UPDATE:
            yield Compute(LocalUpdate(s.version, s.w, self.query))
        else:
            yield Compute(step_task(self.group, s.version, s.step, s.asked, s.speakers))

    @on(MaskingRequest)
    def requested(self, sender: str, request: MaskingRequest, now: float) -> Effects:
        s = self.state
        check_sender(sender, SERVER)
        check_request(request, self.group)
        if not s.finished and request.round == s.version and request.step >= s.step:  # others have been given up
            s.updates += request.step == Step.REVEAL > s.step  # its update is in the sum
            s.step, s.asked, s.busy = request.step, request.content, True
            s.speakers = speakers_in(request, self.group, s.speakers)
            yield from self.work()

    @on(Answered)
    def answered(self, done: Answered, now: float) -> Effects:
        s = self.state
        if not s.busy or s.finished:
            return
        if s.step == UPDATE and done.id == s.version:  # it is there
            s.step = Step.ANNOUNCE.value
            yield from self.work()
        elif step_of(done.id) == (s.version, s.step):
            s.busy = False
            yield from self.say(done.vector)

    def say(self, answer: object) -> Effects:
        """Reply with what the data side says; where it says nothing, take no part in the sum."""
        s = self.state
        if not isinstance(answer, Public | Masked) or not answer.size:
            yield Send(SERVER, Withdrawn(s.version))
            return
        yield Send(SERVER, MaskingReply(s.version, s.step, answer))
        if s.step == Step.REVEAL and self.quota is not None and s.updates >= self.quota:
            yield from self.leave("quota")

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(sender, halt)
