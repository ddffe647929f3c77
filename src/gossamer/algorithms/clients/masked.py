"""Masked rounds of clients: in each the server learns the sum of a cohort's updates, with their noise, and no more.

The server gives a client a model whenever it is drawn; the steps of the sum follow (`algorithms.masked_round`), and the
update goes to it from the client's data side, with its share of the noise. The timeout runs for each step anew; where
there is none, a step ends when the session has lost those who have not replied. A round without a sum leaves the model
as it is. So does one whose sum is longer than honest clients can make it (`SecureUnit.longest_sum`), which is counted.
Where late clients are skipped, or there is no timeout, those who vanished are neither asked nor waited for until they
are heard of again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gossamer.algorithms.clients.nodes import CohortServer, CohortState, Leave, Newest, Push, TrainingNode
from gossamer.algorithms.clients.planning import MaskedRounds
from gossamer.algorithms.clients.settings import ClientSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.masked_round import MaskedRound, MaskingRequest, MemberState, RoundMember, SumState
from gossamer.algorithms.nodes import WorkerState
from gossamer.errors import PeerError
from gossamer.privacy.masking import Group, MaskedSum, Phase
from gossamer.privacy.tasks import TrainingQuery
from gossamer.protocol.effects import CancelTimer, Record, Send
from gossamer.protocol.events import Resumed, Started
from gossamer.protocol.messages import check_count, check_model
from gossamer.protocol.node import Effects, RoundsMade, on
from gossamer.sides.secure_unit import SecureUnit


@dataclass(kw_only=True)
class MaskedState(SumState, CohortState):
    """State of the server.

    Attributes
    ----------
    there : dict of str to int
        Newest request of each client.
    summed : int
        Updates in all sums.
    sums_out_of_range : int
        Sums that are longer than honest clients can make them, which changed nothing.
    unasked : set of str
        Late clients that the round under way was drawn without, and that were not asked for an update since.
    """

    there: dict[str, int] = field(default_factory=dict)
    summed: int = 0
    sums_out_of_range: int = 0
    unasked: set[str] = field(default_factory=set)


class MaskedServer(MaskedRound, CohortServer):
    """The server: the model, and the sum under way.

    Parameters
    ----------
    context, settings
        Arguments of `ClientServer`.
    rounds : MaskedRounds
        Sums of the run: who is in which, and how many there are.
    unit : SecureUnit
        Masking of the clients.
    """

    state: MaskedState
    timer = "step"

    def __init__(self, context: Context, settings: ClientSettings, rounds: MaskedRounds, unit: SecureUnit) -> None:
        self.rounds, self.unit = rounds, unit
        super().__init__(MaskedState(x=context.initial), context, settings, rounds.waiting)

    @property
    def awaited(self) -> Set[str]:
        return self.state.waiting - self.skipped

    @property
    def summing(self) -> bool:
        """Whether a sum is under way."""
        return self.state.sum is not None and not self.state.finished

    @property
    def round(self) -> int:
        """The round under way."""
        return self.state.t

    @property
    def members(self) -> tuple[str, ...]:
        """The clients of the round."""
        return self.rounds.cohort(self.state.t)

    @property
    def gone(self) -> Set[str]:
        """Clients that make no more updates, or were lost and not heard of since, of which nobody tells again."""
        lost = {client for client, heard in (self.state.late or {}).items() if not heard}
        return self.state.left | lost if self.asks else self.state.left

    @property
    def rounds_made(self) -> RoundsMade:
        return RoundsMade(self.state.taken, self.state.empty + self.state.sums_out_of_range, self.rounds.count)

    def begin(self) -> Effects:
        """Begin the first round; after an absence timers are gone, and what clients were told may be lost."""
        if self.state.finished:
            return
        if self.state.sum is None:
            yield from self.draw()
        else:
            yield from self.set_timers()
            yield from self.ask_again()

    def draw(self) -> Effects:
        """Begin the next round of which a sum can come, if there is one."""
        s = self.state
        self.forget_heard()
        while True:
            if s.t == self.rounds.count:
                yield from self.end("rounds")
                return
            s.waiting = set(self.rounds.cohort(s.t)) - s.left
            if len(s.waiting) >= self.unit.group.minimum:
                break
            s.t, s.empty = s.t + 1, s.empty + 1
        self.open_sum(s.x)
        s.unasked = set(self.skipped)
        yield from self.set_timers()
        yield from self.ask_again()

    def ask_for_update(self, client: str) -> Effects:
        """Give the model of the round to a client that is there."""
        s = self.state
        if client in s.there:
            s.unasked.discard(client)
            yield Send(client, Newest(s.there[client], s.t, s.x))

    def ask_joining(self) -> Effects:
        """Ask late clients that the round was drawn without, once too few others are left for a sum.

        They are there for the session, which acknowledges for them, so they would be waited for without end.
        """
        for client in sorted(self.awaited & self.state.unasked):
            yield from self.ask_for_update(client)

    @property
    def skipped(self) -> Set[str]:
        """Late clients whom nobody waits for in this round, and who join with the next one that they are heard before.

        Asked in the one under way they would hold up a second round. Nobody, where too few others are left for a sum:
        then it may be the server that nobody reaches.
        """
        s = self.state
        if not s.late or s.sum is None or s.sum.step != Phase.ANNOUNCE:
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

    def offer(self, client: str, request: int) -> Effects:
        """Give a model to whoever is in the round and has not announced itself; others wait until they are drawn."""
        s = self.state
        s.there[client] = request
        self.hear(client)
        if client in s.waiting - self.skipped and s.sum.step == Phase.ANNOUNCE:
            yield from self.ask_for_update(client)

    @on(Push, by="clients")
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        raise PeerError(f"{sender} sends an update without masks")

    @on(Leave, by="clients")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.there.pop(sender, None)
        yield from super().leaves(sender, leave, now)
        yield from self.lost(sender)
        yield from self.ask_joining()

    def time_is_up(self) -> Effects:
        if self.state.late is not None:
            self.state.late |= dict.fromkeys(self.state.waiting - self.skipped, False)
        self.state.waiting = set()
        yield from self.heard()

    def lost_client(self, client: str) -> Effects:
        if self.state.sum is not None and self.state.sum.step != Phase.ANNOUNCE:
            self.state.waiting.discard(client)
        yield from ()

    def unmasked(self, total: MaskedSum | None, updates: int) -> Effects:
        """Take a step with the mean of the sum, or with the sum over the divisor.

        Not if somebody's vector in it was none that an honest client sends.
        """
        s = self.state
        try:
            released = self.unit.released(total)
        except PeerError:
            s.t, s.sums_out_of_range = s.t + 1, s.sums_out_of_range + 1
            yield Record("masked_sum_out_of_range", float(updates))
        else:
            s.taken, s.summed = s.taken + 1, s.summed + updates
            # Everybody sees how many are in it, unless there is a divisor.
            self.move((released / (self.rounds.divisor or updates)).astype(s.x.values.dtype).within())
        yield from self.go_on()

    def refused_sum(self) -> Effects:
        """Nothing is unmasked: a round without updates."""
        s = self.state
        s.t, s.empty = s.t + 1, s.empty + 1
        yield from self.go_on()

    def go_on(self) -> Effects:
        """On to the next round, if there is one."""
        s = self.state
        yield CancelTimer(self.timer)
        if s.taken == self.last:
            yield from self.end("updates")
        else:
            yield from self.draw()

    def end(self, reason: str) -> Effects:
        """End the run, and the sum under way."""
        self.state.waiting = set()
        yield from super().end(reason)


@dataclass
class MaskedClientState(MemberState, WorkerState):
    """State of a client of masked sums; its ``version`` is the newest round that it is in."""

    version: int = -1


class MaskedClientNode(RoundMember, TrainingNode):
    """A client, with data of its own, that is in the sums of some rounds."""

    state: MaskedClientState

    def __init__(self, name: str, context: Context, query: TrainingQuery, group: Group) -> None:
        super().__init__(name, context)
        self.state = MaskedClientState(context.initial)
        self.query, self.group = query, group

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """Say that it is there, and take the step again that was lost."""
        yield from super().pull(event, now)
        if self.state.busy and not self.state.finished:
            yield from self.work()

    @on(Newest, by="server")
    def train(self, sender: str, newest: Newest, now: float) -> Effects:
        """Make the update of a round, at the data side; or the newest step again, of the round that it is in."""
        s = self.state
        check_count(sender, "version", newest.version)
        check_model(newest.model, s.w)
        if s.finished or newest.request != s.request or newest.version < s.version:
            return
        if newest.version > s.version:
            s.w, s.version = newest.model, newest.version
            self.enter()
        s.busy = True
        yield from self.work()

    @property
    def round(self) -> int:
        """The newest round that it is in."""
        return self.state.version

    def requested(self, sender: str, request: MaskingRequest, now: float) -> Effects:
        s, before = self.state, self.state.step
        yield from super().requested(sender, request, now)
        s.updates += s.step == Phase.REVEAL > before  # its update is in the sum

    def said(self) -> Effects:
        s = self.state
        if s.step == Phase.REVEAL and self.quota is not None and s.updates >= self.quota:
            yield from self.end("quota")
