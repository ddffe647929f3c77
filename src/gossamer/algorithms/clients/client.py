"""A client: it asks for a model, trains on its own data, and pushes the update, clipped as a whole.

Its data side clips, and adds noise where the client does that itself: then nothing that is raw ever comes to the node.
Otherwise the update is `Confined` to the client and its server. (Clients with noisy steps: `clients.stepping_client`.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.clients.messages import SERVER, Fetch, Halt, Leave, Newest, Push
from gossamer.algorithms.context import Context
from gossamer.algorithms.worker import Words, WorkerNode
from gossamer.privacy.unit_tasks import LocalUpdate, TrainingQuery
from gossamer.protocol.effects import Compute
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Answered
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Confined, Released


@register("task.noised_update")
@dataclass(frozen=True)
class NoisedUpdate(LocalUpdate):
    """A local training's update that the data side clips and noises as a whole: a release for everybody."""

    label = Released  # type: ignore[assignment]


Pushed = Callable[[Any, Any], Any]
"""Function of the model that was given and the update: the vector that is pushed, of the update's label."""


def update_itself(given: Any, update: Any) -> Any:
    """The update."""
    return update


class TrainingNode(WorkerNode):
    """A client of any kind: what it pushes, and how it ends."""

    def __init__(self, name: str, context: Context, makes: Pushed) -> None:
        super().__init__(name, context, SERVER, Words(Fetch, Push, Leave))
        self.makes = makes

    def pushed(self, task: int, answer: Released | Confined) -> Effects:
        """Hand in what is made of an update; everybody may know the model that it is of."""
        yield from super().pushed(task, self.makes(self.state.w, answer))

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(sender, halt)


class ShowingNode(TrainingNode):
    """A client that trains at its data side, and may show its server what comes of it."""

    def __init__(self, name: str, context: Context, query: TrainingQuery, makes: Pushed = update_itself) -> None:
        super().__init__(name, context, makes)
        self.query = query

    @on(Answered)
    def show(self, done: Answered, now: float) -> Effects:
        """Push an update without noise, which only the server may see."""
        if isinstance(done.vector, Confined):
            yield from self.pushed(done.id, done.vector)


class ClientNode(ShowingNode):
    """A client whose clip stays what it is."""

    def __init__(
        self, name: str, context: Context, query: TrainingQuery, task: type[LocalUpdate], makes: Pushed = update_itself
    ) -> None:
        super().__init__(name, context, query, makes)
        self.task = task

    @on(Newest)
    def train(self, sender: str, newest: Newest, now: float) -> Effects:
        """Train from the model that came, at the data side."""
        check_sender(sender, SERVER)
        check_model(newest.model, self.state.w)
        if self.takes(newest.request, newest):
            yield Compute(self.task(self.state.task, self.state.w, self.query))
