"""A large model between two nodes over a broker on this machine, and the same chunks without nodes.

Two nodes as they are deployed: a session, sealed channels, and a host whose inputs are in a store on disk; each is a
process. The receiver asks for the sender's model. One transfer takes from the moment when the sender
takes up the question to the moment when the whole model is durable at the receiver. Beside it, in turns with it, a
publisher and a subscriber of the same chunks, without anything else, on the same broker and with the same QoS (1).

A machine that is busy with other things slows both ways down, but not by the same factor. So the time that the
processors worked, in all processes together, is given too: on a machine with nothing else to do and fewer processors
than processes, its ratio is what becomes of the other.

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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from gossamer.deployment.channel.secure_channel import OVERHEAD, SecureChannel
from gossamer.keys.identity import Identity
from gossamer.protocol.effects import Reject, Send
from gossamer.protocol.events import Received, Stop
from gossamer.protocol.messages import CHUNK_OVERHEAD, Message, decode_frame, encode_frame, encoded_size, message
from gossamer.protocol.node import Effects, Node, on
from gossamer.protocol.session import SessionSettings, Transmit
from gossamer.protocol.trace import TraceStep
from gossamer.protocol.transports import TransportSettings
from gossamer.runtimes.host import Arrived, Host, Input, Outcome, Wake
from gossamer.runtimes.mqtt.broker import HOST, BrokerAddress, EmbeddedBroker, LocalBroker, Mosquitto, Tls
from gossamer.runtimes.mqtt.certificates import Authority
from gossamer.runtimes.mqtt.transport import MqttTransport
from gossamer.runtimes.storage.store import SqliteStore
from gossamer.vectors import Blank, Public

CONTEXT = multiprocessing.get_context("spawn")
BROKERS: dict[str, type[LocalBroker]] = {
    "mosquitto": Mosquitto,
    "mosquitto-tls": Mosquitto,
    "embedded": EmbeddedBroker,
}
MOST_FRAME = 8 << 20
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
    encrypted: bool

    def tls(self, client: str) -> Tls | None:
        """As `make_certificates` leaves it: the broker has one connection of each client."""
        names = ("authority.crt", f"{client}.crt", f"{client}.key")
        return Tls(*(self.folder / name for name in names)) if self.encrypted else None


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
        self.steps: list[TraceStep] = []
        self.store = SqliteStore(setting.folder / f"{name}.store", "run", name, model=4 * setting.values)
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
                assert not isinstance(outcome, Reject), outcome


def node_process(name: str, peer: str, setting: Setting, commands: Connection) -> None:
    """A node that answers ``commands``: "idle", "ask", "cpu" and "peak"."""
    limits = TransportSettings(largest_datagram=setting.frame + OVERHEAD)
    with MqttTransport("run", name, BrokerAddress(HOST, setting.port, setting.tls(name)), limits) as transport:
        loop = PartyLoop(name, peer, setting, transport)
        idle = 0
        while True:
            began = time.monotonic()
            loop.turn(0.05)
            for step in loop.steps:
                match step.event:
                    case Received(message=Ask()):
                        commands.send(began)
                    case Received(message=Model(values)):
                        commands.send((time.monotonic(), time.process_time()))
                        assert hashlib.blake2b(values.values).digest() == setting.digest
            loop.steps.clear()
            if not commands.poll():
                continue
            match commands.recv():
                case "idle":
                    while loop.channel.session is None:
                        loop.turn(0.05)
                    idle = resident("VmRSS")
                    loop.host.node.state.model = Public(model(setting.values if name == "source" else 1))
                    forget_peak()
                    commands.send(idle)
                case "ask":
                    commands.send(time.process_time())
                    loop.carry_out(loop.host.stop("", time.monotonic()))
                case "cpu":
                    commands.send(time.process_time())
                case "peak":
                    commands.send(resident("VmHWM") - idle)
                case _:
                    return


# Without nodes


def connected(setting: Setting, name: str) -> paho.Client:
    client, done = paho.Client(CallbackAPIVersion.VERSION2), threading.Event()
    if (tls := setting.tls(name)) is not None:
        client.tls_set(*map(str, (tls.authority, tls.certificate, tls.key)))
    client.on_connect = lambda *_: done.set()
    client.connect(HOST, setting.port)
    client.loop_start()
    assert done.wait(10.0)
    return client


def publisher_process(chunks: int, length: int, setting: Setting, commands: Connection) -> None:
    """Publishes the chunks when it is told to: says when it begins, and how much time of processors it took."""
    client, payload = connected(setting, "publisher"), np.random.default_rng(2).bytes(length)
    while commands.recv() == "go":
        used = time.process_time()
        commands.send(time.monotonic())
        for info in [client.publish("plain", payload, qos=1) for _ in range(chunks)]:
            info.wait_for_publish()
        commands.send(time.process_time() - used)
    client.disconnect()


def subscriber_process(chunks: int, length: int, setting: Setting, commands: Connection) -> None:
    """Says when all the chunks are there, and how much time of processors it took."""
    client, arrived, done = connected(setting, "subscriber"), queue.SimpleQueue[int](), threading.Event()
    client.message_callback_add("plain", lambda client, _, message: arrived.put(len(message.payload)))
    client.on_subscribe = lambda *_: done.set()
    client.subscribe("plain", qos=1)
    assert done.wait(10.0)
    commands.send("ready")
    while commands.recv() == "go":
        used = time.process_time()
        assert all(arrived.get() == length for _ in range(chunks))
        commands.send((time.monotonic(), time.process_time() - used))
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


def make_certificates(folder: Path) -> Tls:
    """Of an authority, a broker and its clients; where the broker's are."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.reference.certificates import client, written

    authority = Authority("benchmark")
    (folder / "authority.crt").write_bytes(authority.certificate)
    for name in ("source", "sink", "publisher", "subscriber"):
        written(client(authority, name), folder, name)
    return Tls(folder / "authority.crt", *written(authority.server("broker", [HOST]), folder, "broker"))


def start_broker(name: str, folder: Path) -> LocalBroker:
    if name == "embedded":
        return EmbeddedBroker()
    tls = make_certificates(folder) if name == "mosquitto-tls" else None
    return Mosquitto(tls, largest_payload=MOST_FRAME)


def time_of(process: int) -> float:
    """Seconds of processors that another process has taken."""
    return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9


@dataclass
class Times:
    """Seconds, for each transfer: how long it took, and what it took of processors in all processes together."""

    wall: list[float] = field(default_factory=list)
    processors: list[float] = field(default_factory=list)


def plain_transfer(publisher: Child, subscriber: Child, broker: int, times: Times) -> None:
    used = time_of(broker)
    subscriber.pipe.send("go")
    began = publisher.ask("go")
    ended, receiving = subscriber.pipe.recv()
    sending = publisher.pipe.recv()
    times.wall.append(ended - began)
    times.processors.append(sending + receiving + time_of(broker) - used)


def node_transfer(source: Child, sink: Child, broker: int, times: Times) -> None:
    used, sending = time_of(broker), source.ask("cpu")
    receiving = sink.ask("ask")
    began, (ended, received) = source.pipe.recv(), sink.pipe.recv()
    time.sleep(0.2)
    sent = source.ask("cpu")
    times.wall.append(ended - began)
    times.processors.append(sent - sending + received - receiving + time_of(broker) - used)


def measure(broker: str, values: int, frame: int, repeats: int) -> dict[str, Any]:
    """Both ways on one broker, in turns."""
    size = encoded_size(Model(Public(Blank(values))))
    chunks = -(-size // (frame - CHUNK_OVERHEAD))
    with (
        tempfile.TemporaryDirectory(prefix="gossamer-throughput-", dir=".") as name,
        start_broker(broker, folder := Path(name).absolute()) as running,
    ):
        assert running.process is not None
        digest = hashlib.blake2b(model(values)).digest()
        setting = Setting(running.port, folder, values, frame, digest, broker == "mosquitto-tls")
        source = Child(node_process, "source", "sink", setting)
        sink = Child(node_process, "sink", "source", setting)
        subscriber = Child(subscriber_process, chunks, frame, setting)
        publisher = Child(publisher_process, chunks, frame, setting)
        assert subscriber.pipe.recv() == "ready"
        time.sleep(2.0)
        for node in (source, sink):
            node.ask("idle")
        plain, nodes = Times(), Times()
        for _ in range(repeats + 1):  # the first does not count
            plain_transfer(publisher, subscriber, running.process.pid, plain)
            node_transfer(source, sink, running.process.pid, nodes)
            time.sleep(0.5)
        peaks = [node.ask("peak") / (4 * values) for node in (source, sink)]
        for child in (source, sink, publisher, subscriber):
            child.close()
    wall = [statistics.median(times.wall[1:]) for times in (plain, nodes)]
    processors = [statistics.median(times.processors[1:]) for times in (plain, nodes)]
    return {
        "broker": broker,
        "frame": frame,
        "chunks": chunks,
        "plain_MB_per_s": round(size / 1e6 / wall[0]),
        "nodes_MB_per_s": round(size / 1e6 / wall[1]),
        "ratio": round(wall[0] / wall[1], 2),
        "plain_processor_s": round(processors[0], 3),
        "nodes_processor_s": round(processors[1], 3),
        "processor_ratio": round(processors[0] / processors[1], 2),
        "source_peak": round(peaks[0], 2),
        "sink_peak": round(peaks[1], 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=int, default=11_000_000, help="of the model, float32")
    parser.add_argument("--frame", type=int, nargs="+", default=[1 << 19], help="bytes of a frame")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--broker", choices=[*BROKERS], nargs="+", default=[*BROKERS])
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.broker:
        if (reason := BROKERS[name].missing()) is not None:
            print(f"left out: {reason}", file=sys.stderr)
            continue
        for frame in arguments.frame:
            rows.append(measure(name, arguments.values, frame, arguments.repeats))
            if not arguments.json:
                print("  ".join(f"{name} {value}" for name, value in rows[-1].items()), flush=True)
    if arguments.json:
        print(json.dumps({"benchmark": "mqtt_throughput", "rows": rows}))


if __name__ == "__main__":
    main()
