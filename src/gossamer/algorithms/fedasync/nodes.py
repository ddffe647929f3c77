"""The nodes of FedAsync: clients that push models, and a server that mixes each of them into its own at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.clients.messages import Push
from gossamer.algorithms.clients.server import ClientServer, ServerState
from gossamer.algorithms.context import Context
from gossamer.algorithms.fedasync.settings import Settings
from gossamer.protocol.node import Effects, on


def whole_model(given: Any, update: Any) -> Any:
    """Line 4 of a client: the model which its training ended with, so that the server keeps no old ones.

    Everybody may know the model that it was given, so that the sum is post-processing of the noised update.
    """
    return given + update


@dataclass(kw_only=True)
class MixingState(ServerState):
    """State of the server; every model that it takes is a step.

    Attributes
    ----------
    staleness_sum, staleness_most : int
        Of the models taken.
    """

    staleness_sum: int = 0
    staleness_most: int = 0


class MixingServer(ClientServer):
    """The server: the model alone."""

    state: MixingState
    settings: Settings

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(MixingState(x=context.initial), context, settings)

    @on(Push)
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        """Lines 1 to 4; what is pushed is a model here."""
        s = self.state
        stale = self.checked(sender, push)
        if s.finished:
            return  # it has been told
        mixed = self.settings.mixing * self.settings.staleness_weight.of(stale)
        s.x = ((1 - mixed) * s.x + mixed * push.update).within()
        s.t += 1
        s.taken += 1
        s.staleness_sum += stale
        s.staleness_most = max(s.staleness_most, stale)
        if s.taken == self.last:
            yield from self.halt("updates")
        else:
            yield from self.answer(sender, push.request)
