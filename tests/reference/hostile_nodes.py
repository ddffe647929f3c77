"""Nodes of every algorithm among members that send anything at all."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.hostile_inputs import Junk
from tests.reference.masked_sides import MaskedAnswers, client_sides, masked_sides

from gossamer.algorithms.allreduce import box as allreduce
from gossamer.algorithms.clients.settings import Masking
from gossamer.algorithms.context import Context
from gossamer.algorithms.edge_cloud import box as edge_cloud
from gossamer.algorithms.fedasync import box as fedasync
from gossamer.algorithms.fedavg import box as fedavg
from gossamer.algorithms.fedbuff import box as fedbuff
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.graph_federated import box as graph_federated
from gossamer.algorithms.increasing import box as increasing
from gossamer.algorithms.mapa import box as mapa
from gossamer.algorithms.push_sum import box as push_sum
from gossamer.algorithms.synchronous_gossip import box as synchronous_gossip
from gossamer.errors import PeerError
from gossamer.privacy.clipping import Clipping, QuantileClip, StageClip
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import MaskingStep, Query
from gossamer.protocol.effects import Compute, Effect, Send, SetTimer
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.events import (
    Answered,
    Completed,
    Elapsed,
    Event,
    PeerDown,
    PeerUp,
    Received,
    Refused,
    Resumed,
    Stop,
)
from gossamer.protocol.messages import Message, check
from gossamer.protocol.node import Node, state_of
from gossamer.protocol.trace import TraceStep
from gossamer.testing.contracts import WORLDS, AlgorithmContract, FixedAnswers, Stranger
from gossamer.vectors import LARGEST_VALUE, Released, Vector


def _units(noise: str, **settings: Any) -> Any:
    return graph_federated.Settings.model_validate(
        {"units": 3, "agents": (2, 1, 3), "rounds": 6, "noise": noise, **settings}
    ).decided(private=noise != "none")


TRUSTED: dict[str, Any] = {"noise_by": "server", "trusted": "server"}
SETTINGS: dict[str, tuple[Any, Clipping]] = {
    "gossip": (gossip.Settings(nodes=5, topology="ring"), Clipping()),
    "gossip, moving clip": (gossip.Settings(nodes=4, topology="ring", exchange="bipartite"), Clipping(QuantileClip())),
    "allreduce": (allreduce.Settings(nodes=5, timeout=30.0), Clipping()),
    "allreduce, no timeout": (allreduce.Settings(nodes=3), Clipping(QuantileClip())),
    "d_psgd": (synchronous_gossip.Settings(nodes=4), Clipping(QuantileClip())),
    "push_sum": (push_sum.Settings(nodes=5), Clipping()),
    "muffliato": (synchronous_gossip.Settings(name="muffliato", nodes=5, gossip_steps=2), Clipping()),
    "audp": (edge_cloud.Settings(nodes=4), Clipping(QuantileClip())),
    "audp, waits": (edge_cloud.Settings(nodes=5, staleness={"bound": 2, "on_stale": "wait"}), Clipping()),
    "fedasync": (fedasync.Settings(nodes=4), Clipping()),
    "fedbuff": (fedbuff.Settings(nodes=4, buffer=3), Clipping()),
    "fedbuff, trusted": (fedbuff.Settings(nodes=4, buffer=3, **TRUSTED), Clipping()),
    "fedavg": (fedavg.Settings(nodes=4, rounds=6, timeout=30.0), Clipping()),
    "fedavg, trusted": (fedavg.Settings(nodes=4, rounds=6, clients_per_round=3, timeout=30.0, **TRUSTED), Clipping()),
    "fedavg, secret": (
        fedavg.Settings(nodes=4, rounds=6, clients_per_round=3, cohorts="secret", **TRUSTED),
        Clipping(),
    ),
    "fedavg, more asked": (
        fedavg.Settings(nodes=4, rounds=6, timeout=30.0, clients_per_round=2, over_selection=1.5, weights="declared"),
        Clipping(),
    ),
    "fedavg, examples": (
        fedavg.Settings(
            nodes=4, rounds=6, timeout=30.0, local_steps=3, local_momentum=0.5, proximal=0.1, privacy_unit="example"
        ),
        Clipping(),
    ),
    "fedavg, masked": (
        fedavg.Settings(nodes=4, rounds=6, timeout=300.0, masking=Masking(name="secure", honest=1.0)),
        Clipping(),
    ),
    "mapa": (mapa.Settings(nodes=4, gradient_sd=1.0, smoothness=1.0, loss_gap=0.5), Clipping(StageClip())),
    "increasing": (increasing.Settings(nodes=4, sizes={"name": "power", "a": 4, "b": 8}), Clipping()),
    "increasing, aggregators": (
        increasing.Settings(
            nodes=5, sizes={"name": "power", "a": 4, "b": 8}, aggregators=[1, 3], delay={"rule": "rounds", "d": 2}
        ),
        Clipping(),
    ),
    "increasing, parts": (
        increasing.Settings(
            nodes=3,
            sizes={"name": "power", "a": 2, "b": 8},
            delay={"rule": "tau", "tau": {"name": "power", "constant": 12, "factor": 0.9, "exponent": 1}},
            parts=3,
        ),
        Clipping(),
    ),
    "graph_federated": (_units("homomorphic", timeout=30.0), Clipping()),
    "graph_federated, random noise": (_units("random", topology="complete", synchronous=False), Clipping()),
    "graph_federated, consensus": (_units("none", consensus=4), Clipping()),
    "graph_federated, masked": (
        unit_settings(4, 3).model_copy(update={"timeout": 300.0}),
        Clipping(),
    ),
}


@dataclass
class Moment:
    """A node's state at some time in an honest run, and what it would hear next."""

    name: str
    state: dict[str, Any]
    next: Event


class HostileMembers:
    """One algorithm's nodes, at moments of an honest run, and from then on among members that send anything.

    Parameters
    ----------
    chosen : str
        One of `SETTINGS`.
    seed : int
        Of all that is sent.
    """

    def __init__(self, chosen: str, seed: int, world: str = "uneven", dtype: str = "f8") -> None:
        self.chosen, (algorithm_settings, used) = chosen, SETTINGS[chosen]

        class Chosen(AlgorithmContract):
            settings = algorithm_settings
            clipping = used

            def context(self, **options: Any) -> Context:
                found = super().context(**options)
                if "masked" not in chosen:
                    return found
                clipped = Query(Poisson(0.5), Gaussian(1.0, 1.0), 4.0)
                return replace(found, queries=dict.fromkeys(found.queries, clipped))

        self.contract = Chosen()
        self.junk = Junk(seed, dtype=dtype)
        self.nodes = self.contract.nodes(dtype="float64" if dtype == "f8" else "float32")
        self.names = [*self.nodes, "stranger"]
        self.size = len(self.nodes)
        self.moments: list[Moment] = []
        self.genuine: list[Message] = []
        self._observe(WORLDS[world], dtype)
        modules = {type(message).__module__ for message in self.genuine}
        self.kinds = [kind for kind in Message.__subclasses__() if kind.__module__ in modules] + [Stranger]
        self.largest_state = max(len(encode(state_of(self._at(moment)))) for moment in self.moments)
        self.sent = self.refused = 0

    def answers(self) -> Any:
        """Fresh data sides."""
        if "masked" not in self.chosen:
            return FixedAnswers()
        contract = self.contract
        if isinstance(contract.settings, fedavg.Settings):
            context = contract.context()
            rounds = fedavg.masked_rounds(contract.settings, context)
            sides = client_sides(contract.settings, context, rounds, 1.0)
        else:
            sides = masked_sides(contract.settings, contract.names, 5, self.junk.size, 1.0)
        return MaskedAnswers(FixedAnswers(), sides)

    def _observe(self, world: Any, dtype: str) -> None:
        """Run honest nodes, and keep some of their states."""
        nodes = self.contract.nodes(dtype="float64" if dtype == "f8" else "float32")
        before = {name: _copied(node) for name, node in nodes.items()}
        _, steps = self.contract.run(world, nodes=nodes, computer=self.answers())
        nodes = self.contract.nodes(dtype="float64" if dtype == "f8" else "float32")
        seen: dict[tuple[str, str], int] = {}
        for step in steps:
            assert isinstance(step, TraceStep)
            self.moments.append(Moment(step.node, before[step.node], step.event))
            nodes[step.node].handle(step.event, step.now)
            before[step.node] = _copied(nodes[step.node])
            if isinstance(step.event, Received):
                kind = type(step.event.message).__name__
                seen[step.node, kind] = seen.get((step.node, kind), 0) + 1
                if seen[step.node, kind] <= 3:
                    self.genuine.append(step.event.message)
        self.moments += [Moment(name, state, Stop("over")) for name, state in before.items()]

    def _at(self, moment: Moment) -> Node:
        node = self.nodes[moment.name]
        for name, value in moment.state.items():
            setattr(node.state, name, value.copy() if isinstance(value, (dict, list, set)) else value)
        return node

    def attempt(self, inputs: int | None = None) -> None:
        """Send a node ``inputs`` messages, a few by default or a few hundred, and check what it does.

        Among them other things happen to it, as they do in honest runs.

        Raises
        ------
        Exception
            Whatever a handler raises that is no PeerError, and AssertionError for what must not happen.
        """
        inputs = inputs or self.junk.random.choice([8] * 50 + [100] * 4 + [500])
        moment = self.junk.random.choice(self.moments)
        node = self._at(moment)
        happening = _Happening(self, node)
        for _ in range(inputs):
            happening.hear(moment.next)
            if self.junk.random.random() < 0.3:
                happening.happen()
        if self.junk.random.random() < 0.1:
            self.check_state(node)

    def check_state(self, node: Node, most: float = 20.0) -> None:
        """Its state can be stored, and is not much larger than it ever is."""
        encoded = encode(state_of(node))
        assert encode(decode(encoded)) == encoded
        assert len(encoded) <= most * self.largest_state, f"{node.name} keeps {len(encoded)} bytes"
        model = self.contract.algorithm.model_of(node)
        assert model.is_within(LARGEST_VALUE), f"{node.name} is at {model.values}"


class _Happening:
    """A node, its open tasks and its timers, among hostile members."""

    def __init__(self, members: HostileMembers, node: Node) -> None:
        self.members, self.node, self.random = members, node, members.junk.random
        self.tasks: list[Any] = []
        self.timers: set[str] = set()
        self.now = 100.0

    def hear(self, genuine: Event) -> None:
        """One message of a member."""
        members, random = self.members, self.random
        pick = random.random()
        if pick < 0.1 and isinstance(genuine, Received):
            event = genuine
        elif pick < 0.3 and isinstance(genuine, Received):
            event = Received(genuine.sender, members.junk.message(type(genuine.message), genuine.message))
        elif pick < 0.6:
            like = random.choice(members.genuine)
            event = Received(self.someone(), members.junk.message(type(like), like))
        else:
            event = Received(self.someone(), members.junk.message(random.choice(members.kinds)))
        members.sent += 1
        before = encode(state_of(self.node)) if random.random() < 0.05 else None
        self.now += random.random()
        try:
            effects = self.node.handle(event, self.now)
        except PeerError:
            members.refused += 1
            kept = before is None or encode(state_of(self.node)) == before
        else:
            kept = True
            self.carry_out(effects)
        assert kept, f"{self.node.name} refused {event} and is another"

    def someone(self) -> str:
        """Whoever it is; datagrams under a node's own name never get to it."""
        return self.random.choice([name for name in self.members.names if name != self.node.name])

    def happen(self) -> None:
        """Something that is nobody's fault."""
        self.now += self.random.random()
        event = self._event()
        encode(event)  # it is stored before it is handled
        self.carry_out(self.node.handle(event, self.now))

    def _event(self) -> Event:
        random, others = self.random, self.members.names[:-1]
        pick = random.randrange(12)
        if self.tasks and pick < 7:
            return self._answer(self.tasks.pop(random.randrange(len(self.tasks))))
        if self.timers and pick < 9:
            return Elapsed(random.choice(sorted(self.timers)))
        peer = random.choice([name for name in others if name != self.node.name] or ["nobody"])
        if pick < 11 and peer != "nobody":
            return PeerDown(peer, "silent") if pick == 9 else PeerUp(peer)
        return Resumed(1.0)

    def _answer(self, effect: Any) -> Event:
        task = effect.task
        if self.random.random() < 0.05:
            return Refused(task.id, 3)
        if isinstance(task, MaskingStep):
            label: Any = task.label
            return Answered(task.id, label(np.zeros(task.answer_size, task.dtype)))
        computer = FixedAnswers(scale=self.random.choice([1.0, 1.0, 1e3, 1e11]))
        vector: Any = computer.admit(self.node.name, task)
        return Completed(task.id, vector, 1) if isinstance(vector, Released) else Answered(task.id, vector)

    def carry_out(self, effects: list[Effect]) -> None:
        """Check what a node says, and keep what is open."""
        for effect in effects:
            encode(effect)
            match effect:
                case Send(to, message):
                    assert to in self.members.nodes, f"{self.node.name} sends to {to}"
                    assert to != self.node.name
                    check(message)
                    for value in vars(message).values():
                        if isinstance(value, Vector) and value.values.dtype.kind == "f":
                            assert value.is_within(LARGEST_VALUE * self.members.size), f"{message} of {self.node.name}"
                case Compute():
                    self.tasks = [*self.tasks[-7:], effect]
                case SetTimer(_, name):
                    self.timers.add(name)


def _copied(node: Node) -> dict[str, Any]:
    values = {field.name: getattr(node.state, field.name) for field in fields(node.state)}
    return {name: value.copy() if isinstance(value, (dict, list, set)) else value for name, value in values.items()}
