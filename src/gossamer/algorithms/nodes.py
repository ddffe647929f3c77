"""Nodes that several algorithms have: those that end once, that move models of their own, and that work for one server.

A worker pulls the model, has its data side compute at it, and pushes the answer. It joins by pulling, at any time, and
may leave or die at any time. What is computed is its algorithm's own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import Field

from gossamer.algorithms.context import Context, mean, updates_per_epoch
from gossamer.algorithms.optimizer import ConstantRate, EpochRate, LearningRate, Memory, Optimizer, step
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Compute, Finish, Record, Send, SetTimer
from gossamer.protocol.events import Completed, Counted, Elapsed, PeerDown, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.section import Composite
from gossamer.vectors import Confined, Model, Released

MOST_DOUBLINGS = 10
"""Most doublings of the patience with those who are waited for."""


@message("sender.waits")
class Probe(Message):
    """Others wait for the receiver. It need not answer: that it was received shows that it is there."""


class EndingNode(Node):
    """A node whose state says why it has ``finished``, and of one with a ``deadline`` when it ``ends``."""

    patience: float
    """Seconds to wait for others, of a node whose state counts in ``probes`` how often that was in vain."""

    deadline: float | None = None
    """Seconds from the start to the end, on the node's clock."""

    peers: Collection[str] = ()
    """Names of those who may wait for this node."""

    def set_deadline(self, now: float) -> Effects:
        """Have the timer ``deadline`` ring, from the start on."""
        if self.deadline is None:
            return []
        self.state.ends = now + self.deadline
        return [SetTimer(self.deadline, "deadline")]

    def reset_deadline(self, now: float) -> Effects:
        """Set the timer again after an absence, when all timers are gone."""
        if self.deadline is None or self.state.finished:
            return []
        return [SetTimer(max(self.state.ends - now, 0.0), "deadline")]

    def wait_for(self, timer: str) -> SetTimer:
        """Timer for those who are waited for, until it is time to see who is there: each time twice as long."""
        return SetTimer(self.patience * 2 ** min(self.state.probes, MOST_DOUBLINGS), timer)

    def sound_out(self, peers: Iterable[str]) -> Effects:
        """Have the session find out who is lost of those that are waited for."""
        self.state.probes += 1
        return [Send(peer, Probe()) for peer in peers]

    @on(Started)
    def start(self, event: Started, now: float) -> Effects:
        yield from self.set_deadline(now)
        yield from self.begin()

    @on(Resumed)
    def resume(self, event: Resumed, now: float) -> Effects:
        """Set the timers again and go on; what was being computed is lost."""
        yield from self.reset_deadline(now)
        yield from self.begin()

    def begin(self) -> Effects:
        """Begin, or go on, with what this node does by itself: nothing, or the next update or round."""
        return []

    @on(Probe, by="peers")
    def probed(self, sender: str, probe: Probe, now: float) -> Effects:
        return []

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        return self.end(event.reason)

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        """The plan, or the budget, covers no more."""
        return self.end("budget")

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        return self.end("deadline") if event.timer == "deadline" else self.rang(event.timer)

    def rang(self, timer: str) -> Effects:
        """Another timer than the deadline's rings."""
        return []

    def end(self, reason: str) -> Effects:
        """Make no more updates, and tell those who would wait for them."""
        return self.finish(reason)

    def finish(self, reason: str) -> Effects:
        """No more updates."""
        if self.state.finished:
            return []
        self.state.finished = reason
        return [Finish(reason)]


class LearnerSettings(Composite):
    """Settings that all learners have.

    Attributes
    ----------
    nodes : int
        K, the number of nodes.
    learning_rate : float or schedule
        eta, for the mean gradient.
    optimizer : str or mapping, optional
        Rule for what becomes of the noisy gradient; ``sgd`` takes it as it is. Each node has a memory of its own.
    batch_size : int
        B, the expected number of examples in a batch; a node samples each of its n examples with probability B/n.
    updates_per_node : int, optional
        Quota of updates of each node.
    """

    name: str
    nodes: int = Field(default=8, ge=1, le=1_000_000)
    learning_rate: LearningRate = ConstantRate(initial=0.5)
    optimizer: Optimizer = None
    batch_size: int = Field(default=32, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1, le=10_000_000)


@dataclass
class LearnerState:
    """State of a learner.

    ``w`` is its model and ``log_clip`` the logarithm of its clip, ``task`` counts its computations, ``memory`` is the
    optimizer's, and ``counted`` are the updates of all nodes, where the learning rate goes by them.
    """

    w: Model
    log_clip: Model
    task: int = 0
    ends: float | None = None
    finished: str = ""
    memory: Memory | None = None
    counted: int | None = None


class LearningNode(EndingNode):
    """A node that moves a model of its own by released gradients, at a scheduled rate; it ends when its budget does."""

    state: Any

    def __init__(self, name: str, context: Context, settings: Any, state: type[LearnerState] = LearnerState) -> None:
        self.clipping, self.query = context.clipping, context.queries[name]
        super().__init__(name, state(context.initial, self.clipping.initial(context.initial)))
        self.schedule: EpochRate = settings.learning_rate
        self.by_all = self.schedule.by_all
        self.optimizer: Optimizer = settings.optimizer
        self.epoch = updates_per_epoch(context, name, by_all=self.by_all)
        self.quota = context.quota(name)
        self.deadline = context.deadline

    @property
    def updates_made(self) -> int:
        """Number of updates that the learning rate goes by."""
        s = self.state
        return (s.counted or 0) if self.by_all else s.updates

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self.schedule.at(self.updates_made / self.epoch)

    def compute(self) -> Compute:
        """Ask the data side for the noisy gradient at the model of this moment."""
        s = self.state
        s.task += 1
        return Compute(Gradient(s.task, s.w, self.clipping.query(self.query, s.log_clip)))

    @on(Completed)
    def moved(self, done: Completed, now: float) -> Effects:
        """Make an update of the answer to the newest task."""
        s = self.state
        if done.id != s.task or s.finished:
            return []
        s.log_clip, gradient = self.clipping.moved(s.log_clip, done.released)
        s.memory, move = step(self.optimizer, s.memory, gradient)
        return self.update(move)

    @abstractmethod
    def update(self, move: Model) -> Effects:
        """Take the gradient, or the optimizer's move, times the learning rate off the model, and go on."""

    @on(Counted)
    def count(self, event: Counted, now: float) -> Effects:
        """Remember how many updates came before the one that is about to be made."""
        self.state.counted = event.updates
        return []


class RoundNode(LearningNode):
    """A learner in rounds with others, each of which is an update of every node."""

    def __init__(self, name: str, context: Context, settings: Any, state: type[LearnerState]) -> None:
        super().__init__(name, context, settings, state)
        if self.by_all:
            self.epoch /= len(context.names)

    @property
    @abstractmethod
    def round(self) -> int:
        """Rounds that are over."""

    @property
    def updates_made(self) -> int:
        return self.round

    @abstractmethod
    def advance(self) -> Effects:
        """Go on with the average, as far as one can."""

    def refused(self, event: Refused, now: float) -> Effects:
        """The budget is spent. Where rounds are numbered, the node goes on averaging."""
        if self.quota is None:
            yield from self.end("budget")
        else:
            yield from self.finish("budget")
            yield from self.begin()
            yield from self.advance()


def goes_by_all(settings: Any) -> bool:
    """Whether the learning rate of some settings goes by the updates of all nodes."""
    rate: EpochRate = settings.learning_rate
    return rate.by_all


@dataclass
class WorkerState:
    """State of a worker: the model that it has, of which version, what it waits for, and what its updates lacked."""

    w: Model
    version: int = 0
    request: int = 0
    task: int = 0
    updates: int = 0
    finished: str = ""
    lacking: Model | None = None


class Words(NamedTuple):
    """Messages of an algorithm to its server.

    Attributes
    ----------
    pull : callable
        Message of a request, which asks for the newest model.
    push : callable
        Message of a request, a version and what was computed at it: hands that in, and asks for the newest model too.
    leave : callable
        Says that there will be no more.
    """

    pull: Callable[[int], Message]
    push: Callable[[int, int, Any], Message]
    leave: Callable[[], Message]


class WorkerNode(EndingNode):
    """A node with data of its own, and a server that it talks to."""

    state: WorkerState

    def __init__(self, name: str, context: Context, server: str, words: Words) -> None:
        super().__init__(name, WorkerState(context.initial))
        self.server, self.words, self.peers = server, words, (server,)
        self.quota = context.quota(name)

    @on(Started, Resumed)
    def pull(self, event: Started | Resumed, now: float) -> Effects:
        """After an absence what was being computed is lost, and it stays charged."""
        if self.state.finished:
            return []
        self.state.request += 1
        return [Send(self.server, self.words.pull(self.state.request))]

    def takes(self, request: int, newest: Any) -> bool:
        """Take a ``model`` of a ``version``, unless it was asked for before a crash; whether to compute at it."""
        s = self.state
        if request != s.request:
            return False
        s.w, s.version = newest.model, newest.version
        if s.finished:
            return False
        s.task += 1
        return True

    @on(Completed)
    def push(self, done: Completed, now: float) -> Effects:
        return self.pushed(done.id, done.released)

    def pushed(self, task: int, answer: Released | Confined) -> Effects:
        """Hand in the answer to the newest task."""
        s = self.state
        if task != s.task or s.finished:
            return []
        s.updates += 1
        s.request += 1
        handed = Send(self.server, self.words.push(s.request, s.version, self.handed(answer.within())))
        over = self.quota is not None and s.updates >= self.quota
        return [handed, *self.end("quota")] if over else [handed]

    def handed(self, answer: Any) -> Any:
        """Vector that is handed in."""
        return answer

    def halted(self, last: Any) -> Effects:
        """The server says that the run is over."""
        s = self.state
        check_model(last.model, s.w)
        if last.version >= s.version:
            s.w, s.version = last.model, last.version
        return self.finish("halt")

    @on(PeerDown)
    def peer_down(self, event: PeerDown, now: float) -> Effects:
        """Nothing to be done but say so: what was sent to the server is sent again once it is back."""
        return [Record("server_lost", 1.0)]

    def end(self, reason: str) -> Effects:
        return [] if self.state.finished else [Send(self.server, self.words.leave()), *self.finish(reason)]


def model_of(node: Node) -> Model:
    """The model this node would deploy: its own, or the newest that it has; a server's is x."""
    model: Model = node.state.w if hasattr(node.state, "w") else node.state.x
    return model


def mean_model(nodes: Mapping[str, Node]) -> Model:
    """The mean of all models; a population has it without a vector for each."""
    found: Model | None = getattr(nodes, "mean_model", None)
    return found if found is not None else mean([model_of(node) for node in nodes.values()])


def output(nodes: Mapping[str, Node]) -> Model:
    """The server's model, or where it is gone the newest that a worker has."""
    servers = [node for node in nodes.values() if not isinstance(node, WorkerNode)]
    return model_of(servers[0] if servers else max(nodes.values(), key=lambda node: int(node.state.version)))
