"""A client whose single examples are protected: each step of its local training is a noisy gradient of its data side.

So nothing is raw, and nobody need be trusted: momentum, FedProx's term and the update are made here, of what was
released. An absence costs the step that was under way, which stays charged; the training then goes on where it was, as
the steps that are paid for would be lost with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.algorithms.clients.client import Pushed, TrainingNode, update_itself
from gossamer.algorithms.clients.messages import SERVER, Newest
from gossamer.algorithms.context import Context
from gossamer.algorithms.optimizer import Memory, Momentum, step
from gossamer.algorithms.worker import WorkerState
from gossamer.privacy.tasks import Gradient
from gossamer.privacy.unit_tasks import TrainingQuery
from gossamer.protocol.effects import Compute
from gossamer.protocol.events import Completed, Resumed, Started
from gossamer.protocol.messages import check_model, check_sender
from gossamer.protocol.node import Effects, on
from gossamer.vectors import Model


@dataclass
class SteppingState(WorkerState):
    """State of a client, with the training under way.

    Attributes
    ----------
    local : Public, Released or None
        Its model, [size]; None between trainings.
    steps : int
        Steps made in it.
    memory : Memory or None
        Of the momentum.
    """

    local: Model | None = None
    steps: int = 0
    memory: Memory | None = None


class SteppingClient(TrainingNode):
    """A client that trains in steps which are released one by one.

    Parameters
    ----------
    name : str
        Of the client.
    context : Context
        Of the run; its query says how each step samples and clips, and with what noise.
    training : TrainingQuery
        Steps, their size, momentum and FedProx's mu.
    makes : callable
        What is pushed.
    """

    state: SteppingState

    def __init__(self, name: str, context: Context, training: TrainingQuery, makes: Pushed = update_itself) -> None:
        super().__init__(name, context, makes)
        self.state = SteppingState(context.initial)
        self.training, self.query = training, context.queries[name]
        self.optimizer = Momentum(momentum=training.momentum) if training.momentum else None

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """Ask for a model, or go on with the training that was under way."""
        if self.state.local is None or self.state.finished:
            yield from super().pull(event, now)
        else:
            self.state.task += 1
            yield from self.ask(self.state.local)

    @on(Newest)
    def train(self, sender: str, newest: Newest, now: float) -> Effects:
        """Begin a training from the model that came."""
        s = self.state
        check_sender(sender, SERVER)
        check_model(newest.model, s.w)
        if self.takes(newest.request, newest):
            s.local, s.steps, s.memory = s.w, 0, None
            yield from self.ask(s.local)

    def ask(self, model: Model) -> Effects:
        """Have the data side compute the next step's gradient."""
        yield Compute(Gradient(self.state.task, model, self.query))

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
