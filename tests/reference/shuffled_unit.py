"""One unit with masks, whose messages, computations and accidents happen in an order that a generator picks."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from tests.reference.agent_sides import AdmittedStep
from tests.reference.masked_sides import masked_sides

from gossamer.algorithms.context import Context
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.graph_federated.masking import MaskingServerNode
from gossamer.algorithms.graph_federated.nodes import Contribution
from gossamer.algorithms.graph_federated.settings import Sampling, Settings, units_of
from gossamer.privacy.mechanisms import NoNoise, Poisson
from gossamer.privacy.tasks import LocalUpdate, MaskingStep, Query
from gossamer.protocol.effects import CancelTimer, Compute, Record, Release, Send, SetTimer
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import Answered, Completed, Elapsed, PeerDown, Received, Resumed, Started
from gossamer.protocol.messages import decode_message, encode_message
from gossamer.protocol.node import Effects, Node, state_of
from gossamer.randomness import stream
from gossamer.topology.topologies import build_graph
from gossamer.vectors import Confined, Public, Released

CLIP = 2.0
SERVER = "server-0"


class RecordingServer(MaskingServerNode):
    """Notes every sum that it gets: the round, the sum, and whose updates are in it."""

    def gathered(self, total: Confined | None, answers: int) -> Effects:
        members = self.sampling.of(self.state.round)
        names = () if total is None else tuple(members[number - 1] for number in self.state.sum.survivors)
        self.sums.append((self.state.round, None if total is None else total.values, names))
        yield from super().gathered(total, answers)

    sums: list[tuple[int, Any, tuple[str, ...]]]


class ShuffledUnit:
    """The nodes and data sides of one unit, and what is under way between them.

    Messages between two nodes keep their order, as sessions see to; all else is up to ``generator``.
    """

    def __init__(self, settings: Settings, size: int, generator: np.random.Generator, agent_noise: float = 0.0) -> None:
        self.settings, self.size, self.generator, self.agent_noise = settings, size, generator, agent_noise
        self.names = tuple(f"node-{number}" for number in range(settings.nodes))
        (unit,) = units_of(settings, self.names)
        self.sampling = Sampling(1, SERVER, unit.agents, settings.sampled[0])
        self.unit = settings.unit(SERVER, settings.sampled[0], size, CLIP, agent_noise)
        self.sides = masked_sides(settings, self.names, 1, size, CLIP, agent_noise)
        self.initial = Public(np.zeros(size))
        self.sums: list[tuple[int, Any, tuple[str, ...]]] = []
        self.updates: dict[tuple[str, int], np.ndarray] = {}
        self.records: list[Record] = []
        self.nodes: dict[str, Node] = {name: self.fresh(name) for name in (*self.names, SERVER)}
        self.flying: dict[tuple[str, str], deque[bytes]] = {}
        self.computing: list[tuple[str, Any]] = []
        self.timer = False
        self.down: set[str] = set()
        self.gone: set[str] = set()
        for name in self.nodes:
            self.happen(name, Started())

    def fresh(self, name: str) -> Node:
        """A node as it was before the start."""
        found = graph_federated.build(self.settings, self.context)[name]
        if isinstance(found, MaskingServerNode):
            found.__class__ = RecordingServer
            found.sums = self.sums  # type: ignore[attr-defined]
        return found

    @property
    def context(self) -> Context:
        query = Query(Poisson(0.5), NoNoise(CLIP), 4.0)
        return Context(
            seed=1,
            names=self.names,
            graph=build_graph(self.settings.topology, 1, stream(2), (SERVER,)),
            initial=self.initial,
            queries=dict.fromkeys(self.names, query),
            shard_sizes=dict.fromkeys(self.names, 8),
            agent_noise=self.agent_noise,
        )

    @property
    def server(self) -> Any:
        return self.nodes[SERVER]

    def update(self, name: str, round: int) -> np.ndarray:
        """A fixed pseudo-random update, sometimes longer than it may be."""
        generator = np.random.default_rng([int(name[5:]), round])
        return generator.standard_normal(self.size) * self.unit.reach * generator.choice([0.1, 1.0, 5.0])

    def plain(self, round: int, names: tuple[str, ...]) -> np.ndarray:
        """The sum of the encoded updates of ``names``, added in the open."""
        total = sum(self.unit.encode(self.update(name, round)).view(f"i{self.unit.group.bits // 8}") for name in names)
        return np.asarray(total, np.float64) * self.unit.fixed.resolution

    # What happens

    def happen(self, name: str, event: Any) -> None:
        for effect in self.nodes[name].handle(event, 0.0):
            match effect:
                case Send(to, message):
                    assert not isinstance(message, Contribution)
                    self.flying.setdefault((name, to), deque()).append(encode_message(message))
                case Compute(task):
                    self.computing.append((name, task))
                case SetTimer(_, "agents"):
                    self.timer = True
                case CancelTimer("agents"):
                    self.timer = False
                case Record():
                    self.records.append(effect)

    def deliver(self, sender: str, to: str) -> None:
        message = decode_message(self.flying[sender, to].popleft())
        if to not in self.gone:
            self.happen(to, Received(sender, message))

    def complete(self, index: int) -> None:
        name, task = self.computing.pop(index)
        if isinstance(task, Release):
            self.happen(name, Completed(task.id, Released(task.vector.values), 1))
            return
        side = self.sides[name]
        if isinstance(task, LocalUpdate):
            answer = side.answer(task, self.update(name, task.id))
        else:
            assert isinstance(task, MaskingStep)
            ticket = side.admit(task)
            assert isinstance(ticket, AdmittedStep)
            answer = ticket.answer()
        self.happen(name, Answered(task.id, answer.released))

    def crash(self, name: str) -> None:
        """Only what the node stored is left: its state as bytes."""
        stored = encode(state_of(self.nodes[name]))
        before = self.nodes[name].state
        self.nodes[name] = self.fresh(name)
        for key, value in decode(stored).items():
            kept = set(value) if isinstance(getattr(before, key), set) else value
            setattr(self.nodes[name].state, key, kept)
        assert encode(state_of(self.nodes[name])) == stored
        self.computing = [item for item in self.computing if item[0] != name]
        self.timer = self.timer and name != SERVER
        self.down.add(name)

    def resume(self, name: str) -> None:
        self.down.discard(name)
        self.happen(name, Resumed(1.0))

    def vanish(self, name: str) -> None:
        """For good; the server is told sooner or later."""
        self.gone.add(name)
        self.computing = [item for item in self.computing if item[0] != name]

    def step(self, hasty: float = 0.0) -> bool:
        """One thing happens, if anything can; with probability ``hasty`` the timer runs out before its time."""
        if self.timer and SERVER not in self.down and self.generator.random() < hasty:
            self.ring()
            return True
        able = [pair for pair, queue in self.flying.items() if queue and pair[1] not in self.down]
        choices: list[tuple[Any, ...]] = [(self.deliver, *pair) for pair in able]
        choices += [(self.complete, index) for index in range(len(self.computing))]
        choices += [(self.resume, name) for name in sorted(self.down)]
        untold = sorted(self.gone - self.server.state.away) if SERVER not in self.down else []
        choices += [(self.happen, SERVER, PeerDown(name, "gone")) for name in untold]
        if not choices:
            if self.timer:
                self.ring()
            return self.timer or bool(able)
        action, *arguments = choices[self.generator.integers(len(choices))]
        action(*arguments)
        return True

    def ring(self) -> None:
        self.timer = False
        self.happen(SERVER, Elapsed("agents"))

    def run(self, accidents: dict[int, tuple[str, str]] | None = None, hasty: float = 0.0) -> None:
        """Until the server has made all its rounds; ``accidents`` are (what, who) by the number of the step."""
        for count in range(200_000):
            if self.server.state.finished:
                return
            if accidents and count in accidents:
                what, who = accidents[count]
                if who not in self.gone and who not in self.down:
                    getattr(self, what)(who)
            assert self.step(hasty) or not self.server.state.finished
            if not self.busy:
                raise AssertionError("nothing is left to happen, and the rounds are not done")
        raise AssertionError("the run does not end")

    @property
    def busy(self) -> bool:
        """Whether anything can still happen."""
        waiting = any(queue for queue in self.flying.values()) or self.computing or self.down or self.timer
        return bool(waiting or self.gone - self.server.state.away or self.server.state.finished)
