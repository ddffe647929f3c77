"""Everything between a datagram and a node's handler, under inputs that are nearly right: one layer at a time.

    python -m tests.reference.hostile_layers 1000000 [seed] [layer ...]

tries so many inputs at each layer and says how fast (by the processor's time). A *layer* has `attempt`, which tries
one input and raises if anything happens that must not: an exception that is no refusal, a state that has changed by
what was refused, or more memory than a peer is allowed.
"""

from __future__ import annotations

import faulthandler
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tests.reference.hostile_inputs import INTEGERS, Junk
from tests.reference.hostile_nodes import SETTINGS as ALGORITHMS
from tests.reference.hostile_nodes import HostileMembers
from tests.reference.linked_peers import SETTINGS, Linked

from gossamer.algorithms.gossip.box import Answer, Offer
from gossamer.deployment.peers.peers import Heartbeat, encode_content
from gossamer.errors import PeerError
from gossamer.privacy.tasks import MaskingStep
from gossamer.protocol.encoding import encode
from gossamer.protocol.messages import (
    Acknowledge,
    ChunkFrame,
    Frame,
    MessageFrame,
    ProgressFrame,
    decode_frame,
    decode_message,
    encode_frame,
    encode_message,
)
from gossamer.protocol.session import Session, SessionSettings, Transmit
from gossamer.testing.contracts import WORLDS
from gossamer.vectors import Public, Released

MODEL = Released(np.linspace(-1, 1, 20).astype(np.float32))
MESSAGES = [Offer(3, MODEL), Answer(7, Public(np.zeros(3)))]
FRAMES: list[Frame] = [
    MessageFrame(2, 1, 5, MESSAGES[0]),
    Acknowledge(5, 6),
    ChunkFrame(2, 1, 5, 4, 4, 51, encode_message(MESSAGES[1])[:12]),
    ProgressFrame(2, 4, 1, 6),
]


class Layer(Protocol):
    """What inputs are tried at."""

    tried: int
    refused: int

    def attempt(self) -> None:
        """Try some inputs."""
        ...


class Datagrams:
    """Datagrams of an attacker on the broker, who knows all that was ever published and has no key."""

    def __init__(self, seed: int) -> None:
        self.junk, self.tried, self.refused = Junk(seed), 0, 0
        self.pair = Linked("a", "b", "c")
        for _ in range(3):
            for frame in FRAMES:
                self.pair.send("a", "b", frame), self.pair.send("b", "a", frame)
        self.genuine = [datagram for _, _, datagram in self.pair.carried]
        self.pair.arrived["b"].clear()
        self.lines = len(self.pair.lines["b"])

    def attempt(self) -> None:
        random, pair = self.junk.random, self.pair
        pick = random.random()
        datagram = random.choice(self.genuine)
        if pick < 0.7:
            datagram = self.junk.mutated(datagram, random.choice(self.genuine))
        elif pick < 0.8:
            datagram = b"GSS\x02" + bytes([random.randrange(5)]) + random.randbytes(random.choice([30, 120, 168, 500]))
        elif pick < 0.9:
            datagram = random.randbytes(random.randrange(300))
        sender = random.choice(["a", "a", "a", "a", "c", "b", "stranger"])
        self.tried += 1
        pair.now += 0.001
        frames, answers = pair.peers["b"].open(sender, datagram, pair.now)
        assert not frames, "a frame of the attacker's"
        assert len(answers) <= 1
        if self.tried % 1000 == 0:
            self._look()

    def _look(self) -> None:
        """What a sends still comes, a is not blamed, and the log is short."""
        pair = self.pair
        pair.send("a", "b", FRAMES[1])
        assert pair.arrived["b"].pop() == ("a", FRAMES[1])
        assert pair.peers["b"].states(pair.now)["a"].state == "up"
        assert sum(map(len, (pair.lines[name] for name in "b"))) < 200
        self.refused = sum(sum(pair.dropped(name, "b").values()) for name in "ac")
        self.refused += pair.peers["b"].strangers.total()
        pair.carried.clear()


class Contents:
    """What a member seals: anything."""

    def __init__(self, seed: int) -> None:
        self.junk, self.tried, self.refused = Junk(seed), 0, 0
        self.pair = Linked("a", "b", settings=SETTINGS)
        vars(self.pair.peers["b"]._peers["a"].standing)["offend"] = lambda now: None  # no quarantine would end
        for _ in range(2):
            self.pair.send("a", "b", FRAMES[1]), self.pair.send("b", "a", FRAMES[1])
        self.pair.arrived["b"].clear()
        self.genuine = [encode_content(content) for content in [*FRAMES, Heartbeat(1.0, "quota")]]

    def attempt(self) -> None:
        random, pair = self.junk.random, self.pair
        content = self.junk.mutated(random.choice(self.genuine), random.choice(self.genuine))
        channel = pair.peers["a"]._peers["b"].channel
        assert channel is not None
        pair.now += 0.001
        self.tried += 1
        for datagram in channel.seal(content[: SETTINGS.largest]):
            frames, answers = pair.peers["b"].open("a", datagram, pair.now)
            for _, frame in frames:
                assert encode_content(frame) == content, "two encodings of one frame"
            pair.carry("b", answers)
        if self.tried % 1000 == 0:
            self.refused = pair.dropped("a", "b").get("malformed content", 0)
            pair.carried.clear()
            assert len(pair.lines["b"]) < 100


class Frames:
    """Frames of a member, to a session that has messages of its own under way."""

    def __init__(self, seed: int) -> None:
        self.junk, self.tried, self.refused = Junk(seed), 0, 0
        self.settings = SessionSettings(1.0, 8.0, 30.0, largest_frame=200, largest_message=4000)
        self.encoded = [encode_frame(frame) for frame in FRAMES]
        self.messages = [encode_message(message) for message in MESSAGES]
        self.messages += [self.junk.mutated(data) for data in self.messages]
        self._begin()

    def _begin(self) -> None:
        self.now = 0.0
        self.session = Session("b", self.settings)
        for peer in ("a", "c"):
            for message in (MESSAGES[0], Offer(1, Released(np.ones(400))), MESSAGES[1]):
                self.session.send(peer, message, self.now)

    def _frame(self) -> Frame:
        random, junk = self.junk.random, self.junk
        link = self.session.links["a"]
        near = [link.delivered, link.delivered + 1, link.acknowledged, link.transmitted]

        def number(right: int) -> int:
            """The right one, or one near some other right one, or one far off."""
            pick = random.random()
            if pick < 0.8:
                return right
            return random.choice(near) + random.randrange(-1, 3) if pick < 0.95 else random.choice(INTEGERS)

        following, settled = number(link.delivered + random.choice([1, 1, 2, 5])), number(link.delivered)
        acknowledged = number(min(link.acknowledged + random.randrange(2), link.transmitted))
        match random.randrange(4):
            case 0:
                return MessageFrame(following, settled, acknowledged, junk.message(random.choice([Offer, Answer])))
            case 1:
                return Acknowledge(acknowledged, number(random.choice([0, 0, 1, 2])))
            case 2:
                data = random.choice(self.messages)
                chunks = number(5)
                length = -(-len(data) // 5)
                chunk = random.randrange(1, 6)
                content = data[(chunk - 1) * length : chunk * length]
                content = content if random.random() < 0.9 else self.junk.mutated(content)
                return ChunkFrame(
                    number(link.delivered + 1), settled, acknowledged, number(chunk), chunks, number(len(data)), content
                )
            case _:
                number_out = link.outgoing.number if link.outgoing else 1
                chunks = link.outgoing.chunks if link.outgoing else 1
                return ProgressFrame(
                    number(number_out),
                    number(chunks),
                    number(random.randrange(chunks + 1)),
                    number(random.randrange(8)),
                )

    def attempt(self) -> None:
        random = self.junk.random
        if self.tried % 500 == 0:
            self._begin()
        self.tried += 1
        self.now += random.choice([0.0, 0.01, 0.5])
        try:
            if random.random() < 0.3:
                data = self.junk.mutated(random.choice(self.encoded), random.choice(self.encoded))
                frame = decode_frame(data, 300)
                assert encode_frame(frame) == data, "two encodings of one frame"
            else:
                frame = self._frame()
            before = encode(self.session.links) if random.random() < 0.05 else None
            outputs = self._receive(frame, before)
        except PeerError:
            self.refused += 1
            return
        for output in outputs:
            if isinstance(output, Transmit):
                encode_frame(output.frame)
        self.session.wake(self.now)
        if random.random() < 0.02:
            self._look()

    def _receive(self, frame: Frame, before: bytes | None) -> list[Any]:
        chunked = isinstance(frame, ChunkFrame)  # chunks which make up no message are gone
        try:
            return self.session.receive("a", frame, self.now)
        except PeerError:
            assert chunked or before is None or encode(self.session.links) == before, f"{frame} was refused and kept"
            raise

    def _look(self) -> None:
        encode(self.session.links)
        link = self.session.links["a"]
        assert len(link.early) <= 32
        assert link.incoming is None or link.incoming.buffer.size <= 4000


class Messages:
    """Bytes that chunks made up."""

    def __init__(self, seed: int) -> None:
        self.junk, self.tried, self.refused = Junk(seed), 0, 0
        self.genuine = [encode_message(message) for message in MESSAGES]
        for name in ("allreduce", "increasing, aggregators", "graph_federated, masked"):
            self.genuine += [encode_message(message) for message in HostileMembers(name, seed).genuine]

    def attempt(self) -> None:
        random = self.junk.random
        data = self.junk.mutated(random.choice(self.genuine), random.choice(self.genuine))
        self.tried += 1
        try:
            message = decode_message(data, 10_000)
        except PeerError:
            self.refused += 1
        else:
            assert encode_message(message) == data, "two encodings of one message"


class MaskedSides:
    """Agents' data sides, which hold the keys of masked sums, below a server that sends them anything."""

    def __init__(self, seed: int) -> None:
        self.junk, self.tried, self.refused = Junk(seed), 0, 0
        self.members = HostileMembers("graph_federated, masked", seed)
        self.tasks: dict[str, list[Any]] = {}
        recorded = self.members.answers()
        admit = recorded.admit

        def record(node: str, task: Any) -> Any:
            self.tasks.setdefault(node, []).append(task)
            return admit(node, task)

        recorded.admit = record
        self.members.contract.run(WORLDS["uneven"], computer=recorded)
        self.agents = [node for node, tasks in self.tasks.items() if any(isinstance(t, MaskingStep) for t in tasks)]
        self.contents = [t.incoming for tasks in self.tasks.values() for t in tasks if isinstance(t, MaskingStep)]

    def attempt(self) -> None:
        """An honest beginning of some length, and then a few steps with wrong contents."""
        random = self.junk.random
        node = random.choice(self.agents)
        side, tasks = self.members.answers().sides[node], self.tasks[node]
        last = random.randrange(len(tasks))
        for task in tasks[:last]:
            if isinstance(task, MaskingStep):
                side.admit(task).answer()
            else:
                side.answer(task, np.zeros(self.junk.size))
        rounds = [task.round for task in tasks[: last + 1] if isinstance(task, MaskingStep)] or [0]
        for step in random.choices(range(1, 5), k=4):
            content = random.choice([task.incoming for task in tasks if isinstance(task, MaskingStep)])
            if random.random() < 0.7:
                data = self.junk.mutated(content.values.tobytes(), random.choice(self.contents).values.tobytes())
                content = Public(np.frombuffer(data, np.uint8).copy())
            right = isinstance(tasks[last], MaskingStep) and random.random() < 0.7
            task = MaskingStep(rounds[-1], tasks[last].step if right else step, content, 10, 8)
            self.tried += 1
            self.refused += side.admit(task).answer().released.size == 0


@dataclass
class Nodes:
    """Handlers of one algorithm's nodes."""

    members: HostileMembers

    @property
    def tried(self) -> int:
        return self.members.sent

    @property
    def refused(self) -> int:
        return self.members.refused

    def attempt(self) -> None:
        self.members.attempt()


LAYERS: dict[str, Callable[[int], Layer]] = {
    "datagrams": Datagrams,
    "contents": Contents,
    "frames": Frames,
    "messages": Messages,
    "masked sides": MaskedSides,
    **{
        f"nodes: {name}": lambda seed, name=name: Nodes(HostileMembers(name, seed, ["uneven", "lossy"][seed % 2]))
        for name in ALGORITHMS
    },
}


def main(inputs: int, seed: int, chosen: list[str]) -> None:
    """Try ``inputs`` at each layer; the nodes share theirs, and masked sides, which are slow, have a hundredth."""
    total = 0
    for name, make in LAYERS.items():
        if chosen and not any(name.startswith(some) for some in chosen):
            continue
        share_of = len(ALGORITHMS) if name.startswith("nodes") else 100 if name == "masked sides" else 1
        layer, wanted = make(seed), inputs // share_of
        began, least = time.process_time(), 0
        while layer.tried < wanted:
            if layer.tried >= least:  # an input that takes minutes is a bug, too
                faulthandler.dump_traceback_later(600, exit=True)
                least = layer.tried + 10_000
            layer.attempt()
        seconds = time.process_time() - began
        total += layer.tried
        share = layer.refused / layer.tried
        print(f"{name:40s} {layer.tried:>10,} inputs, {share:4.0%} refused, {layer.tried / seconds:>7,.0f} a second")
        sys.stdout.flush()
    faulthandler.cancel_dump_traceback_later()
    print(f"{total:,} inputs, nothing but refusals")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0, sys.argv[3:])
