"""A client, and its messages: it asks for a model, trains on its own data, and pushes the update, clipped as a whole.

Its data side clips, and adds noise where the client does that itself: then nothing that is raw ever comes to the node.
Otherwise the update is `Confined` to the client and its server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gossamer.algorithms.context import Context
from gossamer.algorithms.nodes import Words, WorkerNode, WorkerState
from gossamer.algorithms.optimizer import Memory, Momentum, step
from gossamer.errors import PeerError
from gossamer.privacy.tasks import Gradient
from gossamer.privacy.unit_tasks import LocalUpdate, TrainingQuery
from gossamer.protocol.effects import Compute, Task
from gossamer.protocol.encoding import register
from gossamer.protocol.events import Answered, Completed, Resumed, Started
from gossamer.protocol.messages import Message, check_model, check_sender, message
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Confined, Model, Public, Released

SERVER = "server"


@message("client.fetch")
@dataclass(frozen=True)
class Fetch(Message):
    """The sender is there, and wants a model, as its ``request``: the newest, or one to train from once it is drawn."""

    request: int


@message("client.newest")
@dataclass(frozen=True)
class Newest(Message):
    """The model after ``version`` steps of the server."""

    request: int
    version: int
    model: Public | Released


@message("client.newest_at_clip")
@dataclass(frozen=True)
class NewestAtClip(Message):
    """`Newest`, and the logarithm [1] of the clip to use for the update from this model."""

    request: int
    version: int
    log_clip: Public | Released
    model: Public | Released


@message("client.push")
@dataclass(frozen=True)
class Push(Message):
    """The update of a local training from the model of ``version``; it asks for a model too.

    The update is `Released` where the client added noise itself, and `Confined` where its server is trusted with it.
    """

    request: int
    version: int
    update: Released | Confined


@message("client.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more updates."""


@message("client.halt")
@dataclass(frozen=True)
class Halt(Message):
    """The run is over, and this is its model, after ``version`` steps of the server."""

    version: int
    model: Public | Released


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

    def __init__(self, name: str, context: Context, makes: Pushed = update_itself) -> None:
        super().__init__(name, context, SERVER, Words(Fetch, Push, Leave))
        self.makes = makes

    def pushed(self, task: int, answer: Released | Confined) -> Effects:
        """Hand in what is made of an update; everybody may know the model that it is of."""
        yield from super().pushed(task, self.makes(self.state.w, answer))

    @on(Halt)
    def halt(self, sender: str, halt: Halt, now: float) -> Effects:
        yield from self.halted(sender, halt)


# A clip that follows a quantile of the norms of clients' updates, which a server that adds the noise has counted, goes
# with the model to the clients of a round, so all updates of one sum were clipped alike. The server's data side tells
# from the norm of each whether it was shorter than the clip, and counts these as one more coordinate of the sum: one
# release, charged as every other (`privacy.clipping`; Andrew et al., NeurIPS 2021, algorithm 1). Clients that add noise
# themselves, or mask, are not followed, and neither are updates that may be of an older clip.

Asks = Callable[[int, Model, Any], Task]
"""Function of a task's number, the model that came, and the logarithm of the clip with it, if any: the task."""


class ClientNode(TrainingNode):
    """A client that has its data side work at each model that comes, and may show its server what comes of it.

    Parameters
    ----------
    name : str
        Name of the client.
    context : Context
        Context of the run.
    asks : callable
        Function that says what the data side is asked for.
    makes : callable
        Function that says what is pushed.
    follows : bool
        Whether a clip comes with each model.
    """

    def __init__(
        self, name: str, context: Context, asks: Asks, makes: Pushed = update_itself, *, follows: bool = False
    ) -> None:
        super().__init__(name, context, makes)
        self.asks = asks
        self.log_clip = context.clipping.initial(context.initial) if follows else None

    @on(Newest, NewestAtClip)
    def train(self, sender: str, newest: Newest | NewestAtClip, now: float) -> Effects:
        """Train from the model that came, at the data side."""
        check_sender(sender, SERVER)
        check_model(newest.model, self.state.w)
        log_clip = newest.log_clip if isinstance(newest, NewestAtClip) else None
        if (log_clip is None) != (self.log_clip is None):
            raise PeerError(f"{self.name} expects no {type(newest).__name__}")
        if log_clip is not None and self.log_clip is not None:
            check_model(log_clip, self.log_clip)
        if self.takes(newest.request, newest):
            yield from self.begin(log_clip)

    def begin(self, log_clip: Model | None) -> Effects:
        """Begin with the model that came, at the clip that came with it."""
        yield Compute(self.asks(self.state.task, self.state.w, log_clip))

    @on(Answered)
    def show(self, done: Answered, now: float) -> Effects:
        """Push an update without noise, which only the server may see."""
        if isinstance(done.vector, Confined):
            yield from self.pushed(done.id, done.vector)


# A client whose single examples are protected: each step of its local training is a noisy gradient of its data side.
#
# So nothing is raw, and nobody need be trusted: momentum, FedProx's term and the update are made here, of what was
# released. An absence costs the step that was under way, which stays charged; the training then goes on where it was,
# as the steps that are paid for would be lost with it.


@dataclass
class SteppingState(WorkerState):
    """State of a client, with the training under way.

    Attributes
    ----------
    local : Public, Released or None
        Model of the training under way, [size]; None between trainings.
    steps : int
        Steps made in it.
    memory : Memory or None
        Memory of the momentum.
    """

    local: Model | None = None
    steps: int = 0
    memory: Memory | None = None


class SteppingClient(ClientNode):
    """A client that trains in steps which are released one by one.

    Parameters
    ----------
    name : str
        Name of the client.
    context : Context
        Context of the run; its query says how each step samples and clips, and with what noise.
    training : TrainingQuery
        Steps, their size, momentum and FedProx's mu.
    makes : callable
        Function that says what is pushed.
    """

    state: SteppingState

    def __init__(self, name: str, context: Context, training: TrainingQuery, makes: Pushed = update_itself) -> None:
        query = context.queries[name]
        super().__init__(name, context, lambda task, model, log_clip: Gradient(task, model, query), makes)
        self.state, self.training = SteppingState(context.initial), training
        self.optimizer = Momentum(momentum=training.momentum) if training.momentum else None

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """Ask for a model, or go on with the training that was under way."""
        if self.state.local is None or self.state.finished:
            yield from super().pull(event, now)
        else:
            self.state.task += 1
            yield from self.ask(self.state.local)

    def begin(self, log_clip: Model | None) -> Effects:
        s = self.state
        s.local, s.steps, s.memory = s.w, 0, None
        yield from self.ask(s.local)

    def ask(self, model: Model) -> Effects:
        """Have the data side compute the next step's gradient."""
        yield Compute(self.asks(self.state.task, model, None))

    @on(Completed)
    def take_step(self, done: Completed, now: float) -> Effects:
        """v = m v + g~ + mu (w - x), w = w - eta v; after the last step w - x is the update."""
        s = self.state
        if done.id != s.task or s.finished or s.local is None:
            return
        direction: Model = done.released
        if self.training.proximal:
            direction = direction + self.training.proximal * (s.local - s.w)
        s.memory, move = step(self.optimizer, s.memory, direction)
        s.local, s.steps = (s.local - self.training.rate * move).within(), s.steps + 1
        if s.steps < self.training.steps:
            s.task += 1
            yield from self.ask(s.local)
        else:
            update, s.local, s.memory = s.local - s.w, None, None
            yield from self.pushed(s.task, update)
