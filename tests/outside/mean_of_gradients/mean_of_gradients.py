"""Mean of gradients: a server takes a small step along each noisy gradient that a client sends, and waits for nobody.

Client: fetch x; g = noisy mean gradient at x; push g      Server: x = x - eta/n g, and answer with x
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from gossamer.algorithms.context import Context
from gossamer.algorithms.interface import Algorithm, Cast, Figures
from gossamer.privacy.tasks import Gradient
from gossamer.protocol.effects import Compute, Finish, Send, SetTimer
from gossamer.protocol.events import Completed, Elapsed, Refused, Resumed, Started, Stop
from gossamer.protocol.messages import Message, check_model, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.vectors import Model, Public, Released

SERVER = "server"


class Settings(BaseModel):
    """Settings of `mean`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["mean"] = "mean"
    nodes: int = Field(default=8, ge=1)
    learning_rate: float = Field(default=0.5, gt=0)
    batch_size: int = Field(default=32, ge=1)
    updates_per_node: int | None = Field(default=None, ge=1)


@message("mean.push")
@dataclass(frozen=True)
class Push(Message):
    """A noisy gradient, and the question for the newest model as ``request``."""

    request: int
    gradient: Released


@message("mean.fetch")
@dataclass(frozen=True)
class Fetch(Message):
    """The question alone."""

    request: int


@message("mean.newest")
@dataclass(frozen=True)
class Newest(Message):
    """The answer, after so many ``steps``; ``over`` is 1 at the end of the run."""

    request: int
    steps: int
    over: int
    model: Public | Released


@message("mean.leave")
@dataclass(frozen=True)
class Leave(Message):
    """The sender makes no more updates."""


@dataclass
class ClientState:
    x: Model
    steps: int = 0
    request: int = 0
    task: int = 0
    updates: int = 0
    finished: str = ""


class Client(Node):
    state: ClientState

    def __init__(self, name: str, context: Context) -> None:
        super().__init__(name, ClientState(context.initial))
        self.query, self.server = context.queries[name], SERVER
        self.quota = context.quotas[name] if context.quotas is not None else None

    @on(Started, Resumed)
    def fetch(self, event: Started | Resumed, now: float) -> Effects:
        s = self.state
        if not s.finished:
            s.request += 1
            yield Send(SERVER, Fetch(s.request))

    @on(Newest, by="server")
    def compute(self, sender: str, newest: Newest, now: float) -> Effects:
        s = self.state
        check_model(newest.model, s.x)
        if newest.steps >= s.steps:
            s.x, s.steps = newest.model, newest.steps
        if newest.over:
            yield from self.finish("halt")
        elif newest.request == s.request and not s.finished:
            s.task += 1
            yield Compute(Gradient(s.task, s.x, self.query))

    @on(Completed)
    def push(self, done: Completed, now: float) -> Effects:
        s = self.state
        if done.id != s.task or s.finished:
            return
        s.updates += 1
        s.request += 1
        yield Send(SERVER, Push(s.request, done.released.within()))
        if self.quota is not None and s.updates >= self.quota:
            yield from self.leave("quota")

    @on(Refused)
    def refused(self, event: Refused, now: float) -> Effects:
        yield from self.leave("budget")

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.leave(event.reason)

    def leave(self, reason: str) -> Effects:
        if not self.state.finished:
            yield Send(SERVER, Leave())
            yield from self.finish(reason)

    def finish(self, reason: str) -> Effects:
        if not self.state.finished:
            self.state.finished = reason
            yield Finish(reason)


@dataclass
class ServerState:
    x: Model
    steps: int = 0
    left: set[str] = field(default_factory=set)
    finished: str = ""


class Server(Node):
    state: ServerState

    def __init__(self, context: Context, settings: Settings) -> None:
        super().__init__(SERVER, ServerState(context.initial))
        self.clients = frozenset(context.names)
        self.rate = settings.learning_rate / len(self.clients)
        self.last, self.deadline = context.updates, context.deadline

    @on(Started, Resumed)
    def start(self, event: Started | Resumed, now: float) -> Effects:
        if self.deadline is not None and not self.state.finished:
            yield SetTimer(max(self.deadline - now, 0.0), "deadline")

    @on(Fetch, by="clients")
    def fetched(self, sender: str, fetch: Fetch, now: float) -> Effects:
        self.state.left.discard(sender)
        yield self.answer(sender, fetch.request)

    @on(Push, by="clients")
    def pushed(self, sender: str, push: Push, now: float) -> Effects:
        s = self.state
        check_model(push.gradient, s.x)
        if s.finished:
            return
        s.x = (s.x - self.rate * push.gradient).within()
        s.steps += 1
        if s.steps == self.last:
            yield from self.halt("updates")
        else:
            yield self.answer(sender, push.request)

    @on(Leave, by="clients")
    def leaves(self, sender: str, leave: Leave, now: float) -> Effects:
        self.state.left.add(sender)
        if self.state.left >= self.clients:
            yield from self.halt("all clients left")

    @on(Elapsed)
    def elapsed(self, event: Elapsed, now: float) -> Effects:
        yield from self.halt("deadline")

    @on(Stop)
    def stop(self, event: Stop, now: float) -> Effects:
        yield from self.halt(event.reason)

    def answer(self, client: str, request: int) -> Send:
        s = self.state
        return Send(client, Newest(request, s.steps, int(bool(s.finished)), s.x))

    def halt(self, reason: str) -> Effects:
        if not self.state.finished:
            self.state.finished = reason
            for client in sorted(self.clients):
                yield self.answer(client, 0)
            yield Finish(reason)


def build(settings: Settings, context: Context) -> dict[str, Node]:
    """The clients by name, and the server."""
    return {**{name: Client(name, context) for name in context.names}, SERVER: Server(context, settings)}


def model_of(node: Node) -> Model:
    """The newest model that the node has."""
    model: Model = node.state.x
    return model


def output(nodes: Mapping[str, Node]) -> Model:
    """The server's model, or where it is gone the newest that a client has."""
    return model_of(max(nodes.values(), key=lambda node: int(node.state.steps)))


def report(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Steps of the server."""
    return {"steps": nodes[SERVER].state.steps}


ALGORITHM = Algorithm(
    Settings=Settings,
    build=build,
    model_of=model_of,
    output=output,
    roles=("client", "server"),
    cast=lambda settings, names: Cast(names, (SERVER,), dict.fromkeys(names, SERVER)),
    figures=Figures(count=lambda nodes: int(nodes[SERVER].state.steps), report=report),
)
