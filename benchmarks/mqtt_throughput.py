"""A large model between two nodes over a broker on this machine, and the same chunks without nodes.

Two nodes as they are deployed: a session, sealed channels, and a host whose inputs are in a store on disk; each is a
process. The receiver asks for the sender's model. One transfer takes from the moment when the sender
takes up the question to the moment when the whole model is durable at the receiver. Beside it, in turns with it, a
publisher and a subscriber of the same chunks, without anything else, on the same broker and with the same QoS (1).

Peak memory is what a process had most above what it had when it was idle, as a multiple of the model.

    python benchmarks/mqtt_throughput.py [--json] [--values 11000000] [--frame BYTES] [--repeats 7]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from gossamer.federation.identity import Identity
from gossamer.federation.sealed_frames import OVERHEAD
from gossamer.federation.secure_channel import SecureChannel
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Received, Stop
from gossamer.protocol.frames import CHUNK_OVERHEAD, decode_frame, encode_frame
from gossamer.protocol.messages import Message, encoded_size, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.session import SessionSettings, Transmit
from gossamer.protocol.trace import Step
from gossamer.runtimes.broker import HOST, EmbeddedBroker, LocalBroker, Mosquitto
from gossamer.runtimes.host import Arrived, Host, Input, Outcome, Rejected, Wake
from gossamer.runtimes.mqtt import BrokerAddress, MqttTransport, TransportSettings
from gossamer.runtimes.storage import SqliteStore
from gossamer.vectors import Blank, Public

CONTEXT = multiprocessing.get_context("spawn")
MOST_DATAGRAMS, MOST_BYTES = 256, 8 << 20  # in a turn


@message("benchmark.ask")
@dataclass(frozen=True)
class Ask(Message):
    pass


@message("benchmark.model")
@dataclass(frozen=True)
class Model(Message):
    values: Public


@dataclass
class State:
    model: Public


class Party(Node):
    """Sends its model to whoever asks, takes what it is sent, and asks when it is told to."""

    @on(Stop)
    def ask(self, event: Stop, now: float) -> Effects:
        yield Send("source", Ask())

    @on(Ask)
    def answer(self, sender: str, ask: Ask, now: float) -> Effects:
        yield Send(sender, Model(self.state.model))

    @on(Model)
    def take(self, sender: str, model: Model, now: float) -> Effects:
        self.state.model = model.values
        yield from ()


@dataclass(frozen=True)
class Setting:
    """What the processes of one measurement share."""

    port: int
    folder: Path
    values: int
    frame: int
    digest: bytes

    @property
    def broker(self) -> BrokerAddress:
        return BrokerAddress(HOST, self.port)


def model(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).random(count, np.float32)


# Memory


def resident(name: str) -> int:
    """Bytes: VmRSS (now) or VmHWM (most since `forget_peak`)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) << 10


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


# Nodes


class PartyLoop:
    """The turns of one node, as a deployment takes them."""

    def __init__(self, name: str, peer: str, setting: Setting, transport: MqttTransport) -> None:
        identities = {who: Identity.of_seed(who.ljust(32).encode()) for who in ("source", "sink")}
        self.transport, self.peer = transport, peer
        self.channel = SecureChannel(identities[name], identities[peer].public_key, "run", name, peer)
        self.steps: list[Step] = []
        self.store = SqliteStore(setting.folder / f"{name}.store", "run", name)
        session = SessionSettings(5.0, 20.0, 60.0, largest_frame=setting.frame)
        node = Party(name, State(Public(np.zeros(1, np.float32))))
        self.host = Host(node, session, self.store, watch=self.steps.append)
        self.publish(self.channel.hello())

    def publish(self, datagrams: list[bytes]) -> None:
        for datagram in datagrams:
            self.transport.send(self.peer, datagram)

    def turn(self, patience: float) -> None:
        inputs: list[tuple[Input, float]] = []
        size = 0
        while len(inputs) < MOST_DATAGRAMS and size < MOST_BYTES:
            datagram = self.transport.receive(0.0 if inputs else patience)
            if datagram is None:
                break
            size += len(datagram.payload)
            opened = self.channel.open(datagram.payload)
            self.publish(opened.answers)
            frames = [decode_frame(plaintext) for plaintext in opened.plaintexts]
            inputs += [(Arrived(self.peer, frame), time.monotonic()) for frame in frames]
        due = self.host.deadline()
        if due is not None and due <= time.monotonic():
            inputs.append((Wake(), time.monotonic()))
        if inputs:
            self.carry_out(self.host.turn(inputs))
        else:
            self.host.rest()

    def carry_out(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Transmit):
                self.publish(self.channel.seal(encode_frame(outcome.frame)))
            else:
                assert not isinstance(outcome, Rejected), outcome


def node_process(name: str, peer: str, setting: Setting, commands: Connection) -> None:
    """A node that answers ``commands``: "idle", "ask" and "peak"."""
    limits = TransportSettings(largest_datagram=setting.frame + OVERHEAD)
    with MqttTransport("run", name, setting.broker, limits) as transport:
        loop = PartyLoop(name, peer, setting, transport)
        idle = 0
        while True:
            began = time.monotonic()
            loop.turn(0.05)
            for step in loop.steps:
                match step.event:
                    case Received(message=Ask()):
                        commands.send(("began", began))
                    case Received(message=Model(values)):
                        commands.send(("ended", time.monotonic()))
                        assert hashlib.blake2b(values.values).digest() == setting.digest
            loop.steps.clear()
            if not commands.poll():
                continue
            match commands.recv():
                case "idle":
                    assert loop.channel.session is not None
                    idle = resident("VmRSS")
                    loop.host.node.state.model = Public(model(setting.values if name == "source" else 1))
                    forget_peak()
                    commands.send(idle)
                case "ask":
                    loop.carry_out(loop.host.stop("", time.monotonic()))
                case "peak":
                    commands.send(resident("VmHWM") - idle)
                case _:
                    return


# Without nodes


def connected(setting: Setting) -> paho.Client:
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.connect(HOST, setting.port)
    client.loop_start()
    return client


def publisher_process(chunks: int, length: int, setting: Setting, commands: Connection) -> None:
    """Publishes the chunks when it is told to."""
    client, payload = connected(setting), np.random.default_rng(2).bytes(length)
    while commands.recv() == "go":
        commands.send(time.monotonic())
        for info in [client.publish("plain", payload, qos=1) for _ in range(chunks)]:
            info.wait_for_publish()
    client.disconnect()


def subscriber_process(chunks: int, length: int, setting: Setting, commands: Connection) -> None:
    """Says when all the chunks are there."""
    client, arrived = connected(setting), queue.SimpleQueue[int]()
    client.on_message = lambda client, _, message: arrived.put(len(message.payload))
    client.on_subscribe = lambda *_: arrived.put(0)
    client.subscribe("plain", qos=1)
    assert arrived.get() == 0
    commands.send("ready")
    while commands.recv() == "go":
        assert all(arrived.get() == length for _ in range(chunks))
        commands.send(time.monotonic())
    client.disconnect()


# Both


class Child:
    """A process, and the end of the pipe that it listens to."""

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=work, args=(*arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, command: str) -> Any:
        self.pipe.send(command)
        return self.pipe.recv()

    def close(self) -> None:
        self.pipe.send("end")
        self.process.join(10.0)


def measure(broker: type[LocalBroker], values: int, frame: int, repeats: int) -> dict[str, Any]:
    """Both ways on one broker, in turns."""
    size = encoded_size(Model(Public(Blank(values))))
    chunks = -(-size // (frame - CHUNK_OVERHEAD))
    with tempfile.TemporaryDirectory(prefix="gossamer-throughput-", dir=".") as folder, broker() as running:
        setting = Setting(running.port, Path(folder), values, frame, hashlib.blake2b(model(values)).digest())
        source = Child(node_process, "source", "sink", setting)
        sink = Child(node_process, "sink", "source", setting)
        subscriber = Child(subscriber_process, chunks, frame, setting)
        publisher = Child(publisher_process, chunks, frame, setting)
        assert subscriber.pipe.recv() == "ready"
        time.sleep(2.0)
        for node in (source, sink):
            node.ask("idle")
        plain, nodes = [], []
        for _ in range(repeats + 1):  # the first does not count
            subscriber.pipe.send("go")
            began = publisher.ask("go")
            plain.append(subscriber.pipe.recv() - began)
            sink.pipe.send("ask")
            (_, began), (_, ended) = source.pipe.recv(), sink.pipe.recv()
            nodes.append(ended - began)
            time.sleep(0.5)
        peaks = [node.ask("peak") / (4 * values) for node in (source, sink)]
        for child in (source, sink, publisher, subscriber):
            child.close()
    rates = {name: size / 1e6 / statistics.median(times[1:]) for name, times in (("plain", plain), ("nodes", nodes))}
    return {
        "broker": broker.__name__,
        "frame": frame,
        "chunks": chunks,
        "plain_MB_per_s": round(rates["plain"]),
        "nodes_MB_per_s": round(rates["nodes"]),
        "ratio": round(rates["nodes"] / rates["plain"], 2),
        "source_peak": round(peaks[0], 2),
        "sink_peak": round(peaks[1], 2),
        "plain_s": [round(t, 3) for t in plain],
        "nodes_s": [round(t, 3) for t in nodes],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=11_000_000, help="of the model, float32")
    parser.add_argument("--frame", type=int, nargs="+", default=[1 << 18], help="bytes of a frame")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--broker", choices=["mosquitto", "embedded"], nargs="+", default=["mosquitto", "embedded"])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    kinds = {"mosquitto": Mosquitto, "embedded": EmbeddedBroker}
    rows = []
    for name in arguments.broker:
        if (reason := kinds[name].missing()) is not None:
            print(f"left out: {reason}", file=sys.stderr)
            continue
        rows += [measure(kinds[name], arguments.values, frame, arguments.repeats) for frame in arguments.frame]
    if arguments.json:
        print(json.dumps({"benchmark": "mqtt_throughput", "rows": rows}))
        return
    for row in rows:
        print("  ".join(f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
