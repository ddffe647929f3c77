"""Connections to a broker that is not there."""

from __future__ import annotations

import socket
import threading

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")

from gossamer.protocol.transports import BrokerUnreachable, TransportSettings
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
