"""Nodes that talk over a broker on this machine: what arrives, what is dropped, and what is said when nothing works."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from gossamer.errors import SpecError
from gossamer.protocol.events import Received
from gossamer.protocol.messages import Message, decode_frame, encode_frame, message
from gossamer.protocol.session import Output, Session, SessionSettings, Transmit
from gossamer.protocol.transports import BrokerUnreachable, Datagram, TransportSettings, topic
from gossamer.runtimes.mqtt.broker import BrokerAddress, BrokerFailed, EmbeddedBroker, LocalBroker, Mosquitto
from gossamer.runtimes.mqtt.transport import MqttTransport
from gossamer.vectors import Released

pytestmark = pytest.mark.slow  # real brokers, which a busy machine keeps waiting

HOST = "127.0.0.1"
LONG = 15.0  # seconds that no test waits unless it fails


@message("test.mqtt.model")
@dataclass(frozen=True)
class Model(Message):
    values: Released


def started(kind: type[LocalBroker]) -> Iterator[LocalBroker]:
    if (reason := kind.missing()) is not None:
        pytest.skip(reason)
    with kind() as broker:
        yield broker


@pytest.fixture(scope="module")
def mosquitto() -> Iterator[LocalBroker]:
    yield from started(Mosquitto)


@pytest.fixture(scope="module")
def embedded() -> Iterator[LocalBroker]:
    yield from started(EmbeddedBroker)


@pytest.fixture(params=["mosquitto", "embedded"])
def broker(request: pytest.FixtureRequest) -> LocalBroker:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, LocalBroker)
    return found


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A run of its own for each test."""
    return f"run-{abs(hash(request.node.nodeid))}"


def address(broker: LocalBroker) -> BrokerAddress:
    return BrokerAddress(HOST, broker.port)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def take(transport: MqttTransport) -> Datagram:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        if (datagram := transport.receive(1.0)) is not None:
            return datagram
    pytest.fail("nothing arrived")


class Stranger:
    """A client that publishes whatever it likes."""

    def __init__(self, broker: LocalBroker) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2)
        self.client.connect(HOST, broker.port)
        self.client.loop_start()

    def publish(self, where: str, payload: bytes, qos: int = 1) -> None:
        self.client.publish(where, payload, qos=qos).wait_for_publish(LONG)

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_small_packets_leave_at_once(broker: LocalBroker, run: str) -> None:
    """The operating system would hold an answer back until what left before has been confirmed: 40 ms each time."""
    with MqttTransport(run, "a", address(broker)) as transport:
        connection = transport._client.socket()
        assert connection is not None
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_datagrams_arrive_in_order_from_whom_they_come(broker: LocalBroker, run: str) -> None:
    with MqttTransport(run, "a", address(broker)) as a, MqttTransport(run, "b", address(broker)) as b:
        sent = [bytes([number]) * (number * 5000) for number in range(40)]
        assert all(a.send("b", payload) for payload in sent)
        arrived = [take(b) for _ in sent]
        assert [datagram.payload for datagram in arrived] == sent
        assert {datagram.sender for datagram in arrived} == {"a"}
        assert a.receive(0.0) is None
        b.send("b", b"to itself")
        assert take(b)[:2] == ("b", b"to itself")
        assert (a.counts["sent"], b.counts["received"]) == (40, 41)


def test_runs_do_not_hear_each_other(broker: LocalBroker, run: str) -> None:
    with MqttTransport(run, "a", address(broker)) as a, MqttTransport(run + "2", "a", address(broker)) as other:
        other.send("a", b"x")
        assert take(other).payload == b"x"
        assert a.receive(0.05) is None


def test_a_model_in_chunks_through_sessions(broker: LocalBroker, run: str) -> None:
    settings = SessionSettings(2.0, 8.0, 60.0, largest_frame=64 << 10)
    limits = TransportSettings(largest_datagram=64 << 10)
    with (
        MqttTransport(run, "a", address(broker), limits) as a,
        MqttTransport(run, "b", address(broker), limits) as b,
    ):
        ends = {transport.node: (transport, Session(transport.node, settings)) for transport in (a, b)}
        delivered: list[Message] = []

        def carry_out(name: str, outputs: list[Output]) -> None:
            for output in outputs:
                if isinstance(output, Transmit):
                    assert ends[name][0].send(output.to, encode_frame(output.frame))
                elif isinstance(output, Received):
                    delivered.append(output.message)

        model = Model(Released(np.arange(1_000_000, dtype=np.float32)))
        carry_out("a", ends["a"][1].send("b", model, time.monotonic()))
        while ends["a"][1].deadline() is not None:
            for name, (transport, session) in ends.items():
                while (datagram := transport.receive(0.002)) is not None:
                    carry_out(name, session.receive(datagram.sender, decode_frame(datagram.payload), time.monotonic()))
                carry_out(name, session.wake(time.monotonic()))
        (arrived,) = delivered
        assert isinstance(arrived, Model)
        assert np.array_equal(arrived.values.values, model.values.values)


def test_what_is_not_a_datagram_is_dropped_and_counted(mosquitto: LocalBroker, run: str) -> None:
    limits = TransportSettings(largest_datagram=1000)
    with MqttTransport(run, "b", address(mosquitto), limits) as b, Stranger(mosquitto) as stranger:
        stranger.publish(topic(run, "b", "a"), bytes(1001))
        stranger.publish(topic(run, "b", "no name"), b"x")
        stranger.publish(topic(run, "b", "a"), b"x", qos=0)
        stranger.publish(topic(run, "b", "a"), b"")
        stranger.publish(topic(run, "b", "a"), bytes(1000))
        assert [take(b).payload for _ in range(2)] == [b"", bytes(1000)]
        assert (b.counts["dropped_too_large"], b.counts["dropped_stranger"]) == (1, 2)


def test_a_node_that_does_not_take_holds_the_broker_back(mosquitto: LocalBroker, run: str) -> None:
    """No more than the broker has under way is here; the rest waits there and arrives later, nothing dropped."""
    with MqttTransport(run, "a", address(mosquitto)) as a, MqttTransport(run, "b", address(mosquitto)) as b:
        for number in range(200):
            a.send("b", bytes([number]))
        until(lambda: not a._unpublished or a._unpublished[-1][0].is_published())
        time.sleep(0.1)
        assert len(b._inbox._items) <= 40
        assert [take(b).payload[0] for _ in range(200)] == list(range(200))
        assert b.counts["dropped_incoming"] == 0


def test_a_full_queue_drops_and_counts(mosquitto: LocalBroker, run: str) -> None:
    limits = TransportSettings(largest_datagram=1000, most_incoming=5000)
    with MqttTransport(run, "a", address(mosquitto)) as a, MqttTransport(run, "b", address(mosquitto), limits) as b:
        for number in range(10):
            a.send("b", bytes([number]) * 1000)
        until(lambda: b.counts["dropped_incoming"] == 7)
        assert [take(b).payload[0] for _ in range(3)] == [0, 1, 2]
        a.send("b", b"and on")
        assert take(b).payload == b"and on"


def test_sending_never_waits(run: str) -> None:
    """A broker that accepts connections and says nothing more."""
    with socket.create_server((HOST, 0)) as server:
        there = BrokerAddress(HOST, server.getsockname()[1])
        transport = MqttTransport(run, "a", there, TransportSettings(connect_timeout=0.3))
        with pytest.raises(BrokerUnreachable, match=r"a has had no connection .* for 0.3 s"):
            transport.open()
        assert not transport.send("b", b"x")
        assert transport.counts["dropped_unconnected"] == 1


def test_outgoing_bytes_are_limited(mosquitto: LocalBroker, run: str) -> None:
    limits = TransportSettings(largest_datagram=1 << 20, most_outgoing=3 << 20)
    with MqttTransport(run, "a", address(mosquitto), limits) as a, MqttTransport(run, "b", address(mosquitto)) as b:
        took = sum(a.send("b", bytes(1 << 20)) for _ in range(50))
        assert took + a.counts["dropped_outgoing"] == 50
        assert 2 <= took < 50
        assert all(len(take(b).payload) == 1 << 20 for _ in range(took))
        until(lambda: a.send("b", b"there is room again"))


def test_two_processes_with_one_identity(mosquitto: LocalBroker, run: str) -> None:
    """The broker has one at a time; which of the two may stay is for those to say who know them by what they seal."""
    with MqttTransport(run, "a", address(mosquitto)) as first, MqttTransport(run, "a", address(mosquitto)) as second:
        until(lambda: first.counts["disconnected"] and first.connected)
        assert second.counts["disconnected"] > 0


def test_who_leaves_the_broker_to_others_of_its_name_stays_away_for_a_while(mosquitto: LocalBroker, run: str) -> None:
    """As who watches a federation, while somebody gives it an order."""
    there, limits = address(mosquitto), TransportSettings(rejoin=30)
    with MqttTransport(run, "a", there, limits) as old, MqttTransport(run, "a", there) as new:
        until(lambda: not old.connected)
        assert new.receive(3.0) is None  # by default the other would be back after a second, and put this one off
        assert (old.connected, new.connected, new.counts["disconnected"]) == (False, True, 0)


def test_closing_at_the_moment_that_the_connection_is_lost(mosquitto: LocalBroker, run: str) -> None:
    """The client knows of the loss before the transport does."""
    transport = MqttTransport(run, "a", address(mosquitto)).open()
    transport._client.disconnect()
    until(lambda: transport._client.socket() is None and not transport.connected)
    transport._connected = True
    transport.close()


def test_an_echo_of_another_process_is_a_datagram(mosquitto: LocalBroker, run: str) -> None:
    """What the broker or somebody else sends in the node's name neither makes a connection nor ends one."""
    with Stranger(mosquitto) as stranger, MqttTransport(run, "a", address(mosquitto)) as a:
        stranger.publish(topic(run, "a", "a"), bytes(16))
        assert take(a)[:2] == ("a", bytes(16))
        assert a.receive(0.05) is None
        assert a.connected


def test_nothing_is_left_at_the_broker(mosquitto: LocalBroker, run: str) -> None:
    with MqttTransport(run, "a", address(mosquitto)) as a:
        a.send("b", b"x")
        a.flush(LONG)
    with Stranger(mosquitto) as stranger:
        kept: list[str] = []
        stranger.client.on_message = lambda client, _, message: kept.append(message.topic)
        stranger.client.subscribe(f"gossamer/{run}/#", 1)
        stranger.publish(f"gossamer/{run}/last", b"x")
        until(lambda: kept)
    assert kept == [f"gossamer/{run}/last"]


def test_wake_from_another_thread(mosquitto: LocalBroker, run: str) -> None:
    with MqttTransport(run, "a", address(mosquitto)) as a:
        threading.Timer(0.1, a.wake).start()
        assert a.receive(LONG * 10) is None


def test_a_broker_that_comes_back(run: str) -> None:
    """What is sent meanwhile is dropped; afterwards everything goes on."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    with (
        Mosquitto() as broker,
        MqttTransport(run, "a", address(broker)) as a,
        MqttTransport(run, "b", address(broker)) as b,
    ):
        port = broker.port
        broker.stop()
        until(lambda: not a.connected and not b.connected)
        assert not a.send("b", b"lost")
        broker.start(port)
        until(lambda: a.connected and b.connected)
        assert a.send("b", b"found")
        assert take(b).payload == b"found"
        assert (a.counts["connected"], a.counts["disconnected"]) == (2, 1)


def test_no_broker(run: str) -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        there = BrokerAddress(HOST, unused.getsockname()[1])
        with pytest.raises(BrokerUnreachable, match=r"mqtt://127.0.0.1:\d+ for 0.2 s \(.*refused\)"):
            MqttTransport(run, "a", there, TransportSettings(connect_timeout=0.2)).open()


@pytest.mark.parametrize("name", ["", "a/b", "+", "#", "a b", ".a", "a" * 65, "a\n", "é"])
def test_names_that_would_be_something_else_in_a_topic(name: str) -> None:
    with pytest.raises(SpecError, match="expected 1 to 64"):
        MqttTransport("run", name, BrokerAddress(HOST, 1))


def test_a_datagram_that_is_too_large_is_a_mistake_of_ours() -> None:
    transport = MqttTransport("run", "a", BrokerAddress(HOST, 1), TransportSettings(largest_datagram=10))
    with pytest.raises(SpecError, match="at most 10 bytes, found 11"):
        transport.send("b", bytes(11))


def test_no_process_is_left() -> None:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    with Mosquitto() as broker:
        process = broker.process
        assert process is not None
        assert process.poll() is None
    assert process.poll() is not None
    assert broker.process is None


def test_the_embedded_broker_ends_with_its_parent() -> None:
    """Its standard input ends then."""
    if (reason := EmbeddedBroker.missing()) is not None:
        pytest.skip(reason)
    with EmbeddedBroker() as broker:
        assert broker.process is not None
        assert broker.process.stdin is not None
        broker.process.stdin.close()
        assert broker.process.wait(LONG) == 0


def test_a_port_that_is_taken() -> None:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    with socket.create_server((HOST, 0)) as server:
        broker = Mosquitto()
        with pytest.raises(BrokerFailed, match="does not start on port"):
            broker.start(server.getsockname()[1])
        assert broker.process is None
