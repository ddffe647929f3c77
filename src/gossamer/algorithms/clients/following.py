"""A clip that follows a quantile of the norms of clients' updates, which a server that adds the noise has counted.

The clip goes with the model to the clients of a round, so all updates of one sum were clipped alike. The server's data
side tells from the norm of each whether it was shorter than the clip, and counts these as one more coordinate of the
sum: one release, charged as every other (`privacy.clipping`). Clients that add noise themselves, or mask, are not
followed, and neither are updates that may be of an older clip.

References
----------
Andrew, Thakkar, McMahan and Ramaswamy, "Differentially private learning with adaptive clipping", NeurIPS 2021,
algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gossamer.algorithms.clients.client import ShowingNode
from gossamer.algorithms.clients.messages import SERVER, NewestAtClip
from gossamer.algorithms.clients.rounds import RoundSettings
from gossamer.algorithms.context import Context
from gossamer.algorithms.problem import Spec
from gossamer.privacy.clipping import QuantileClip, bound_of
from gossamer.privacy.unit_tasks import ClippedUpdate, TrainingQuery
from gossamer.protocol.effects import Compute
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on


class FollowingClient(ShowingNode):
    """A client that clips each update to what goes with its model, and shows it to the server."""

    def __init__(self, name: str, context: Context, query: TrainingQuery) -> None:
        super().__init__(name, context, query)
        self.log_clip = context.clipping.initial(context.initial)

    @on(NewestAtClip)
    def train(self, sender: str, newest: NewestAtClip, now: float) -> Effects:
        """Train from the model that came, at the data side."""
        check_sender(sender, SERVER)
        check_model(newest.model, self.state.w)
        check_model(newest.log_clip, self.log_clip)
        if self.takes(newest.request, newest):
            bound = bound_of(newest.log_clip)
            yield Compute(ClippedUpdate(self.state.task, self.state.w, self.query, bound))


def check_followed(settings: RoundSettings, spec: Spec) -> Iterator[str]:
    """The rules that a clip which follows a quantile breaks, a line each."""
    if not isinstance(spec.privacy.clip, QuantileClip):
        return
    if settings.stepwise:
        yield (
            f"privacy.clip.policy: {settings.name} knows fixed, found quantile, which follows whole updates; take "
            "privacy_unit: client"
        )
    elif not settings.curated:
        yield (
            "privacy.clip.policy: quantile needs a server that counts updates and adds the noise; take noise_by: "
            "server, or fixed"
        )
    if settings.weights == "declared":
        yield "privacy.clip.policy: quantile counts updates that are alike; take weights: equal, or fixed"


def final_clip(state: Any) -> dict[str, float]:
    """The clip that a run ended with, where it moved: it follows from what was released."""
    return {} if state.log_clip is None else {"clip": bound_of(state.log_clip)}
