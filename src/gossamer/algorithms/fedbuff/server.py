"""The server of FedBuff: it adds updates up in a buffer, takes a step whenever that is full, and waits for nobody."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.clients.messages import Push
from gossamer.algorithms.clients.server import ClientServer, ServerState
from gossamer.algorithms.clients.summing import SummingServer
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.settings import Settings
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Model


@dataclass(kw_only=True)
class BufferState(ServerState):
    """State of the server.

    Attributes
    ----------
    total : Public or Released
        The weighted sum of the ``held`` updates in the buffer.
    staleness_sum, staleness_most : int
        Of the updates taken.
    """

    total: Model
    held: int = 0
    staleness_sum: int = 0
    staleness_most: int = 0


class BufferServer(ClientServer):
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

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Lines 1 to 4."""
        s = self.state
        stale = self.checked(sender, push)
        if s.finished:
            return  # it has been told
        s.total = (s.total + self.settings.weight(stale) * push.update).within()
        s.held += 1
        s.taken += 1
        s.staleness_sum += stale
        s.staleness_most = max(s.staleness_most, stale)
        if s.held == self.settings.buffer:
            self.apply()
        if s.taken == self.last:
            yield from self.halt("updates")
        else:
            yield from self.answer(sender, push.request)

    def apply(self) -> None:
        """Take a step with the mean of the buffer, over K however many are in it, and empty it."""
        self.move(self.state.total / self.settings.buffer)
        self.state.total, self.state.held = self.empty, 0

    def halt(self, reason: str) -> Effects:
        """End the run, with what is left in the buffer."""
        if self.state.held and not self.state.finished:
            self.apply()
        yield from super().halt(reason)


class TrustedServer(SummingServer):
    """The server that adds the noise itself, to sums of the updates of K clients."""

    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(context, settings, settings.buffer)

    def weight(self, stale: int) -> float:
        return self.settings.weight(stale)
