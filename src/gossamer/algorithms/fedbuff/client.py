"""A client: it fetches the newest model, trains on its own data, and pushes the update, clipped and noised as a whole.

Its data side clips and noises; nothing that is raw ever comes to the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.context import Context
from gossamer.algorithms.fedbuff.messages import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.worker import Words, WorkerNode
from gossamer.privacy.unit_tasks import LocalUpdate, TrainingQuery
from gossamer.protocol.effects import Compute
from gossamer.protocol.encoding import register
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Released


@register("task.noised_update")
@dataclass(frozen=True)
class NoisedUpdate(LocalUpdate):
    """A local training's update that the data side clips and noises as a whole: a release for everybody."""

    label = Released  # type: ignore[assignment]


class ClientNode(WorkerNode):
    """A client, with data of its own: `WorkerNode.pull` is line 1, and `WorkerNode.push` line 5."""

    def __init__(self, name: str, context: Context, query: TrainingQuery) -> None:
        super().__init__(name, context, SERVER, Words(Fetch, Push, Leave))
        self.query = query

    @on(Newest)
    def compute(self, sender: str, newest: Newest, now: float) -> Effects:
        """Lines 2 to 4, at the data side."""
        check_sender(sender, SERVER)
        check_model(newest.model, self.state.w)
        if self.takes(newest.request, newest):
            yield Compute(NoisedUpdate(self.state.task, self.state.w, self.query))

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(sender, halt)
