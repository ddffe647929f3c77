"""An edge server: it pulls the model, computes one noisy gradient at it, pushes that and gets the newest model for it.

It joins by pulling, at any time, and may leave or die at any time. The clip comes with the model. An edge calibrates
its noise to the clip it *uses*, so a server that lies about it harms the model, not the edge's examples.
"""

from __future__ import annotations

from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud.messages import SERVER, Halt, Leave, Newest, Pull, Push
from gossamer.algorithms.worker import Words, WorkerNode
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Compute
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on


class EdgeNode(WorkerNode):
    """An edge server k, with data of its own."""

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, context, SERVER, Words(Pull, Push, Leave))
        self.query = context.queries[name]
        self.clipping = context.clipping
        self.log_clip = context.clipping.initial(context.initial)

    @on(Newest)
    def compute(self, sender: str, newest: Newest, now: float) -> Effects:
        """The gradient at the model of this moment, clipped at what is the clip now."""
        s = self.state
        check_sender(sender, SERVER)
        check_model(newest.model, s.w)
        check_model(newest.log_clip, self.log_clip)
        if self.takes(newest.request, newest):
            yield Compute(Gradient(s.task, s.w, self.clipping.query(self.query, newest.log_clip)))

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(sender, halt)
