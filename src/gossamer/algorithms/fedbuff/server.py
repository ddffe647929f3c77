"""The server of FedBuff: it adds updates up in a buffer, takes a step whenever that is full, and waits for nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gossamer.algorithms.clients.messages import Leave, Push
from gossamer.algorithms.clients.server import AtOnceServer, ClientServer, ServerState, sum_query
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.settings import Settings
from gossamer.errors import counted
from gossamer.privacy.unit_tasks import CuratedSum
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed, Resumed
from gossamer.protocol.node import Effects, Node, Rounds, on
from gossamer.vectors import Confined, Model


@dataclass(kw_only=True)
class SummingState(ServerState):
    """State of a server that adds the noise.

    Attributes
    ----------
    held : list of (str, int, vector)
        Updates that are in no sum yet, in the order in which they came: client, version and the raw update.
    task : int
        Newest sum that the data side was asked for.
    summing : bool
        Whether it is under way.
    owed : dict of str to int
        Request of each client that came meanwhile.
    summed : int
        Updates that were put into sums.
    able : int or None
        Number of clients, where updates were too few for another sum, that had, or would have made, another update.
    """

    held: list[tuple[str, int, Confined]] = field(default_factory=list)
    task: int = 0
    summing: bool = False
    owed: dict[str, int] = field(default_factory=dict)
    summed: int = 0
    able: int | None = None


MOST_HELD = 1000
"""Updates of a client that wait for a sum, where neither a quota nor the number of sums says how many there may be."""


class TrustedServer(ClientServer):
    """The server that adds the noise itself: whenever it has updates of K clients, its data side adds these up.

    The noise hides one update of length C, so a client is in a sum once: a second update of it stays here, for a later
    sum. Nobody waits for that, nor for anybody else: a client goes on at once from the newest model, which it is given
    a moment later where the data side is just computing that. Who is in a sum is public, so nothing is amplified.
    """

    state: SummingState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(SummingState(x=context.initial), context, settings)
        self.buffer, self.quotas = settings.buffer, context.quotas
        self.query = sum_query(context, settings.buffer)

    @property
    def updates(self) -> int:
        """Updates that were put into sums."""
        return self.state.summed

    @property
    def rounds_made(self) -> Rounds | None:
        """Sums, of as many as there can be of all clients' updates."""
        most = [] if self.last is None else [self.last]
        most += [] if self.quotas is None else [sum(self.quotas.values()) // self.buffer]
        return Rounds(self.state.taken, 0, min(most)) if most else None

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """A sum that was under way is lost: it may be charged, and nobody is to be in a sum with one update twice."""
        self.state.summing = False
        yield from super().resume(event, now)
        yield from self.go_on()

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Keep an update until the data side is handed K."""
        s = self.state
        self.checked(sender, push)
        if s.finished:
            return  # it has been told
        assert isinstance(push.update, Confined)
        if sum(client == sender for client, _, _ in s.held) < self.room(sender):
            s.held.append((sender, push.version, push.update))
        s.owed[sender] = push.request
        yield from self.go_on()

    def room(self, client: str) -> int:
        """Most updates of a client that may wait: no more than it makes, or than there will be sums."""
        quota = MOST_HELD if self.quotas is None else self.quotas[client]
        return quota if self.last is None else min(quota, self.last - self.state.taken)

    @on(Leave)
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.check_member(sender)
        self.state.left.add(sender)
        yield from self.go_on()

    def answer(self, client: str, request: int) -> Effects:
        """Give the newest model; while the data side computes it, once that is done."""
        if self.state.summing and not self.state.finished:
            self.state.owed[client] = request
        else:
            yield from super().answer(client, request)

    def go_on(self) -> Effects:
        """Ask for the next sum, or end a run that can have none, or answer those who wait; none of it during a sum."""
        s = self.state
        if s.finished or s.summing:
            return
        first: dict[str, tuple[int, Confined]] = {}
        for client, version, update in s.held:
            first.setdefault(client, (version, update))
        able = len(self.clients) - len(s.left - first.keys())
        if len(first) >= self.buffer:
            yield from self.ask(dict(islice(first.items(), self.buffer)))
        elif able < self.buffer:
            s.able = able
            yield from self.halt("all clients left" if s.left >= self.clients else "too few clients left")
        else:
            owed, s.owed = s.owed, {}
            for client, request in owed.items():
                yield from self.answer(client, request)

    def ask(self, buffer: dict[str, tuple[int, Confined]]) -> Effects:
        """Hand a buffer to the data side: from here on it is in no other sum, whatever becomes of this one."""
        s, weighted, kept = self.state, [], []
        for client, (version, update) in buffer.items():
            stale = s.t - version
            s.note(stale)
            weighted.append((client, self.settings.weight(stale) * update))
        for one in s.held:
            if buffer.pop(one[0], None) is None:  # the first of each client in it goes
                kept.append(one)
        s.held, s.summed = kept, s.summed + len(weighted)
        s.task, s.summing = s.task + 1, True
        yield Compute(CuratedSum(s.task, s.x, tuple(weighted), self.query))

    @on(Completed)
    def step(self, done: Completed, now: float) -> Effects:
        """Take a step with the sum."""
        s = self.state
        if done.id != s.task or not s.summing or s.finished:
            return
        s.summing, s.taken = False, s.taken + 1
        self.move(done.released.within())
        if s.taken == self.last:
            yield from self.halt("updates")
        yield from self.go_on()

    def halt(self, reason: str) -> Effects:
        """End the run, without what is left: the noise for K updates would drown fewer of them, at the same price."""
        self.state.held, self.state.owed = [], {}
        yield from super().halt(reason)


def left_over(server: Node) -> list[str]:
    """Reason for fewer sums than clients' quotas are enough for, where too few of them were left for another."""
    state = server.state
    if not isinstance(server, TrustedServer) or server.quotas is None or not state.able:
        return []
    enough = sum(server.quotas.values()) // server.buffer
    if state.taken >= enough:
        return []
    return [
        f"{server.settings.name}: with noise_by: server each client is in a sum once, and {state.taken} sums were made "
        f"of the {enough} that all updates are enough for: only {counted(state.able, 'client')} had updates left, and "
        f"a sum takes {server.buffer}; a smaller buffer leaves fewer"
    ]


@dataclass(kw_only=True)
class BufferState(ServerState):
    """State of the server.

    Attributes
    ----------
    total : Public or Released
        The weighted sum of the ``held`` updates in the buffer.
    """

    total: Model
    held: int = 0


class BufferServer(AtOnceServer):
    """The server: the model, and a buffer of updates."""

    state: BufferState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        self.empty: Model = 0.0 * context.initial
        super().__init__(BufferState(x=context.initial, total=self.empty), context, settings)

    @property
    def updates(self) -> int:
        """Updates that were put into the buffer."""
        return self.state.taken

    def take(self, update: Any, stale: int) -> None:
        """Lines 2 and 3."""
        s = self.state
        s.total, s.held = (s.total + self.settings.weight(stale) * update).within(), s.held + 1
        if s.held == self.settings.buffer:
            self.apply()

    def apply(self) -> None:
        """Take a step with the mean of the buffer, over K however many are in it, and empty it."""
        self.move(self.state.total / self.settings.buffer)
        self.state.total, self.state.held = self.empty, 0

    def halt(self, reason: str) -> Effects:
        """End the run, with what is left in the buffer."""
        if self.state.held and not self.state.finished:
            self.apply()
        yield from super().halt(reason)
