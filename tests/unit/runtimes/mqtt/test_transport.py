"""Connections to a broker that is not there, and what one confirms late or never."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")

from gossamer.protocol.transports import BrokerUnreachable, TransportSettings
from gossamer.runtimes.mqtt import transport as module
from gossamer.runtimes.mqtt.broker import BrokerAddress
from gossamer.runtimes.mqtt.transport import MqttTransport


def test_a_signals_handler_ends_the_wait_at_whatever_moment_it_comes() -> None:
    """Also while the waiting thread, in which it runs, has the lock of what it waits for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    transport = MqttTransport("run", "node", BrokerAddress("127.0.0.1", port), TransportSettings(connect_timeout=600.0))
    ended = []

    class Interrupted(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            with self._cond:  # type: ignore[attr-defined]
                handler = threading.Thread(target=transport.wake, daemon=True)
                handler.start()
                handler.join(5.0)
                ended.append(not handler.is_alive())
            return super().wait(timeout)

    transport._settled = Interrupted()
    with pytest.raises(BrokerUnreachable):
        transport.open()
    assert ended == [True]


CHUNK = 512 << 10  # bytes of a frame
MODEL = 88  # of them, some 44 MB


class Line:
    """A transport whose connection confirms what it is told to, on a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.confirmed, self.sent = 0.0, set[int](), 0
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))
        self.transport = MqttTransport("run", "node", BrokerAddress("127.0.0.1", 1))
        self.transport.connected = True
        self.transport._client = SimpleNamespace(  # type: ignore[assignment]
            publish=self._publish, is_connected=lambda: True, ack=lambda mid, qos: None
        )

    def _publish(self, topic: str, payload: bytes, qos: int) -> Any:
        self.sent += 1
        number = self.sent
        return SimpleNamespace(rc=0, mid=number, is_published=lambda: number in self.confirmed)

    def hear(self, size: int) -> None:
        message = SimpleNamespace(topic="gossamer/run/to/node/from/b", payload=bytes(size), mid=1, qos=1)
        self.transport._on_message(None, None, message)  # type: ignore[arg-type]
        assert self.transport.receive(0.0) is not None

    def told(self, until: float, come: int = 0) -> float | None:
        """The first second at which it says that nothing is confirmed; so many bytes come each second."""
        while self.now < until:
            if self.transport.unconfirmed(20.0):
                return self.now
            self.now += 1.0
            if come:
                self.hear(come)
        return None


@pytest.mark.parametrize("megabits", [10.0, 1.0, 0.2])
def test_a_large_message_on_a_slow_line_is_not_lost(megabits: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of so many Mbit/s has sent the k-th chunk after k times the time for one, and it is confirmed then."""
    line, second = Line(monkeypatch), CHUNK * 8 / (megabits * 1e6)
    for _ in range(MODEL):
        assert line.transport.send("b", bytes(CHUNK))
    assert line.transport.send("c", b"hello")
    for number in range(1, MODEL + 1):
        assert line.told(number * second) is None
        waits = line.transport.waits("b"), line.transport.waits("c")
        assert all(wait is not None and wait < 7.0 for wait in waits), waits
        line.confirmed.add(number)
    assert line.transport.waits("b") is None  # which had all of it
    assert line.transport.waits("c") == 0.0
    assert line.transport.waits("d") is None


def test_what_is_lost_is_told_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Line(monkeypatch)
    assert small.transport.send("b", bytes(100))
    assert small.told(60.0, come=200) == 21.0  # heartbeats of others say nothing about it
    large = Line(monkeypatch)
    assert large.transport.send("b", bytes(CHUNK))
    assert large.told(60.0, come=200) == 37.0  # 20 s, and 16 s for 512 KiB
    assert large.transport.waits("b") == pytest.approx(21.0, abs=0.5)
    passed = Line(monkeypatch)  # what is sent later and confirmed has overtaken it
    assert passed.transport.send("b", bytes(CHUNK))
    assert passed.transport.send("b", bytes(100))
    passed.confirmed.add(2)
    assert passed.told(60.0) == 21.0


def test_an_acknowledgement_comes_after_what_the_broker_sent_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 MiB of others', which are on the way already, take 67 s at 1 Mbit/s. It is lost if much more comes."""
    slow = Line(monkeypatch)
    assert slow.transport.send("b", bytes(CHUNK))
    assert slow.told(100.0, come=125_000) is None
    quick = Line(monkeypatch)
    assert quick.transport.send("b", bytes(CHUNK))
    assert quick.told(600.0, come=1 << 20) == pytest.approx(20 + 256 + 16, abs=1.5)


def test_what_has_no_room_waits_too(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(monkeypatch)
    line.transport.settings = TransportSettings(most_outgoing=2 * CHUNK)
    assert line.transport.send("b", bytes(CHUNK))
    assert not line.transport.send("c", bytes(CHUNK))
    assert line.transport.waits("c") == 0.0
    line.confirmed.add(1)
    assert line.transport.waits("c") is None
