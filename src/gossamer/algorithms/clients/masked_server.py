"""A server of clients that mask: in each round it learns the sum of a cohort's updates, with their noise, and no more.

A round takes the five steps of a masked sum (`algorithms.masking_messages`). A step ends when all that were asked have
replied, have left or withdrawn, or are late by the timeout, which runs for each step anew, or where there is none when
the session has lost the others. Who has not replied by then has vanished from this sum. Where too few are left nothing
is unmasked, and the round leaves the model as it is. So it does where the sum is longer than honest clients can make it
(`SecureUnit.longest_sum`), which is counted. Where late clients are skipped, or there is no timeout, those who vanished
are neither asked nor waited for until they are heard of again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any

from gossamer.algorithms.clients.masked_rounds import MaskedRounds
from gossamer.algorithms.clients.messages import Leave, Newest, Push
from gossamer.algorithms.clients.server import ClientServer, ServerState
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.masked_steps import check_reply
from gossamer.algorithms.masking_messages import MaskingReply, MaskingRequest, Withdrawn
from gossamer.errors import PeerError, TooFewAgents
from gossamer.privacy.masking import MaskedSum, Step
from gossamer.privacy.masking.server import server_of, start_sum
from gossamer.protocol.effects import CancelTimer, Record, Send
from gossamer.protocol.events import Elapsed, PeerDown, PeerUp, Resumed, Started
from gossamer.protocol.node import NEWER, Effects, Rounds, on
from gossamer.sides.secure_unit import SecureUnit
from gossamer.vectors import Blank, Public, Released

STEP = "step"
"""Name of the timer."""


@dataclass(kw_only=True)
class MaskedState(ServerState):
    """State of the server.

    Attributes
    ----------
    sum : ServerState of `gossamer.privacy.masking`, or BlankState
        The sum under way: what the clients have said, none of which is an update.
    asked : dict of str to Public
        What each client was asked last, after the update.
    waiting : set of str
        Clients that have not replied at this step.
    there : dict of str to int
        Newest request of each client.
    summed : int
        Updates in all sums.
    sums_out_of_range : int
        Sums that are longer than honest clients can make them, which changed nothing.
    late : dict of str to bool, or None
        Clients that a step ended without, and whether they were heard of since; None where rounds wait for these too.
    """

    sum: Any = None
    asked: dict[str, Public] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    there: dict[str, int] = field(default_factory=dict)
    summed: int = 0
    sums_out_of_range: int = 0
    late: dict[str, bool] | None = field(default=None, metadata=NEWER)


class MaskedServer(ClientServer):
    """The server: the model, and the sum under way.

    Parameters
    ----------
    context, settings
        As for `ClientServer`.
    rounds : MaskedRounds
        Who is in which sum, and how many there are.
    unit : SecureUnit
        How clients mask.
    """

    state: MaskedState

    def __init__(self, context: Context, settings: ClientSettings, rounds: MaskedRounds, unit: SecureUnit) -> None:
        self.rounds, self.unit, self.asks = rounds, unit, rounds.timeout is None
        late: dict[str, bool] | None = {} if rounds.skips or self.asks else None
        super().__init__(MaskedState(x=context.initial, late=late), context, settings)

    @property
    def awaited(self) -> Set[str]:
        return self.state.waiting - self.skipped

    @property
    def rounds_made(self) -> Rounds:
        return Rounds(self.state.taken, self.state.empty + self.state.sums_out_of_range, self.rounds.count)

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from super().start(event, now)
        yield from self.draw()

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Timers are gone, and what clients were told may be lost."""
        yield from super().resume(event, now)
        if self.state.finished:
            return
        if self.state.sum is None:  # it had not begun
            yield from self.draw()
        else:
            yield from self.set_timer()
            yield from self.ask()

    def draw(self) -> Effects:
        """Begin the next round of which a sum can come, if there is one."""
        s = self.state
        if s.late is not None:
            s.late = {client: False for client, heard in s.late.items() if not heard}
        while True:
            if s.t == self.rounds.count:
                yield from self.halt("rounds")
                return
            s.waiting = set(self.rounds.cohort(s.t)) - s.left
            if len(s.waiting) >= self.unit.group.minimum:
                break
            s.t, s.empty = s.t + 1, s.empty + 1
        s.sum, s.asked = start_sum(self.unit.group, s.t, blank=isinstance(s.x.values, Blank)), {}
        yield from self.set_timer()
        yield from self.ask()

    def ask(self) -> Effects:
        """Ask those who have not replied, for an update first: those of them who are there."""
        s, skipped = self.state, self.skipped
        for client in sorted(s.waiting - skipped):
            if s.sum.step != Step.ANNOUNCE:
                yield Send(client, MaskingRequest(s.t, s.sum.step, s.asked[client]))
            elif client in s.there:
                yield Send(client, Newest(s.there[client], s.t, s.x))

    @property
    def skipped(self) -> Set[str]:
        """Late clients whom nobody waits for in this round, and who join with the next one that they are heard before.

        Asked in the one under way they would hold up a second round. Nobody, where too few others are left for a sum:
        then it may be the server that nobody reaches.
        """
        s = self.state
        if not s.late or s.sum is None or s.sum.step != Step.ANNOUNCE:
            return frozenset()
        others = set(self.rounds.cohort(s.t)) - s.left - s.late.keys()
        return s.late.keys() if len(others) >= self.unit.group.minimum else frozenset()

    def hear(self, client: str) -> None:
        """Note that a late client is there again: it joins with the next round, or with this one if that is held."""
        s = self.state
        if s.late and client in s.late:
            s.late[client] = True
            if self.asks and not self.skipped:
                del s.late[client]

    def answer(self, client: str, request: int) -> Effects:
        """Give a model to whoever is in the round and has not announced itself; others wait until they are drawn."""
        s = self.state
        if s.finished:
            yield from super().answer(client, request)
            return
        s.there[client] = request
        self.hear(client)
        if client in s.waiting - self.skipped and s.sum.step == Step.ANNOUNCE:
            yield Send(client, Newest(request, s.t, s.x))

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        raise PeerError(f"{sender} sends an update without masks")

    @on(MaskingReply)
    def replied(self, sender: str, reply: MaskingReply, now: float) -> Effects:
        s = self.state
        self.only_from_clients(sender)
        check_reply(reply, self.unit.group)
        self.hear(sender)
        if s.finished or s.sum is None or (reply.round, reply.step) < (s.t, s.sum.step):
            return  # it came too late, or again
        if (reply.round, reply.step) != (s.t, s.sum.step):
            raise PeerError(f"{sender} replies to step {reply.step} of round {reply.round}, which was not asked yet")
        if sender in s.waiting:
            server = server_of(s.sum)
            server.receive(self.rounds.cohort(s.t).index(sender) + 1, reply.content)
            s.sum = server.state
            yield from self.lost(sender)

    @on(Withdrawn)
    def withdrawn(self, sender: str, message: Withdrawn, now: float) -> Effects:
        self.only_from_clients(sender)
        self.hear(sender)
        if message.round == self.state.t:
            yield from self.lost(sender)

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.there.pop(sender, None)
        yield from super().leaves(sender, leave, now)
        yield from self.lost(sender)

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        if event.timer != STEP:
            yield from self.halt("deadline")
        elif self.asks and not self.state.finished:
            yield from self.probe()
            yield from self.wait(None, self.rounds.patience, STEP)
        elif not self.state.finished:
            if self.state.late is not None:
                self.state.late |= dict.fromkeys(self.state.waiting - self.skipped, False)
            self.state.waiting = set()
            yield from self.heard()

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Wait no longer for a client that the session has lost, unless a timeout decides."""
        s = self.state
        if self.asks and s.late is not None and not s.finished:
            s.late[event.peer] = False
            if s.sum is not None and s.sum.step != Step.ANNOUNCE:
                s.waiting.discard(event.peer)
            yield from self.close_if_whole()

    @on(PeerUp)
    def peer_up(self, event: PeerUp, now: float) -> Effects:
        self.hear(event.peer)
        yield from self.close_if_whole()

    def set_timer(self) -> Effects:
        self.state.probes = 0
        yield from self.wait(self.rounds.timeout, self.rounds.patience, STEP)

    def lost(self, client: str) -> Effects:
        """Wait for ``client`` no longer."""
        s = self.state
        if client in s.waiting and not s.finished:
            s.waiting.discard(client)
            yield from self.close_if_whole()

    def close_if_whole(self) -> Effects:
        """Close the step under way if nobody is waited for."""
        s = self.state
        if s.sum is not None and not s.finished and not self.awaited:
            yield from self.heard()

    def heard(self) -> Effects:
        """Close the step: ask for the next one, or unmask. Too few clients, or too few right shares, are no sum."""
        s = self.state
        server = server_of(s.sum)
        try:
            if s.sum.step < Step.REVEAL:
                requests = server.advance()
            else:
                total = server.unmask()
        except (TooFewAgents, PeerError):
            yield from self.refuse(server.left)
            return
        if s.sum.step == Step.REVEAL:
            yield from self.unmasked(total, len(s.sum.survivors))
            return
        s.sum, members = server.state, self.rounds.cohort(s.t)
        s.asked = {members[number - 1]: content for number, content in requests.items()}
        s.waiting = set(s.asked) - s.left
        yield from self.set_timer()
        yield from self.ask()
        if not s.waiting:
            yield from self.heard()

    def unmasked(self, total: MaskedSum | None, updates: int) -> Effects:
        """Take a step with the sum, unless somebody's vector in it was none that an honest client sends."""
        s = self.state
        try:
            released = self.unit.released(total)
        except PeerError:
            s.t, s.sums_out_of_range = s.t + 1, s.sums_out_of_range + 1
            yield Record("masked_sum_out_of_range", float(updates))
            yield from self.go_on()
        else:
            yield from self.step(released, updates)

    def refuse(self, left: int) -> Effects:
        """Nothing is unmasked: a round without updates."""
        s = self.state
        s.t, s.empty = s.t + 1, s.empty + 1
        yield Record("masked_sum_refused", float(left))
        yield from self.go_on()

    def step(self, total: Released, updates: int) -> Effects:
        """Take a step with the mean of the sum: everybody sees how many are in it. Or with the sum over the divisor."""
        s = self.state
        s.taken, s.summed = s.taken + 1, s.summed + updates
        self.move((total / (self.rounds.divisor or updates)).astype(s.x.values.dtype).within())
        yield from self.go_on()

    def go_on(self) -> Effects:
        """On to the next round, if there is one."""
        s = self.state
        yield CancelTimer(STEP)
        if s.taken == self.last:
            yield from self.halt("updates")
        else:
            yield from self.draw()

    def halt(self, reason: str) -> Effects:
        """End the run, and the sum under way."""
        self.state.waiting = set()
        yield from super().halt(reason)
