"""The way of parties to their broker, which can be cut for each of them: what is under way then waits, as in TCP."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

HOST = "127.0.0.1"


class Network:
    """A port on the loopback interface that hands all on to a broker's.

    Who connects is told by the client identifier of MQTT's first packet, which ends with the party's name.

    Attributes
    ----------
    port : int
        Where parties connect.
    broker : callable
        Gives the broker's port.
    latency : float
        Seconds from a party to the broker, and from there to a party.
    """

    def __init__(self, broker: Callable[[], int], latency: float = 0.0) -> None:
        self.broker, self.latency = broker, latency
        self._there = threading.Condition()
        self._cut: set[str] = set()
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, party: str) -> None:
        """Let nothing of a party through, either way."""
        with self._there:
            self._cut.add(party)

    def heal(self, party: str) -> None:
        """Let through what has waited, and all that comes."""
        with self._there:
            self._cut.discard(party)
            self._there.notify_all()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            first, party = _first_packet(client)
            self._wait(party)
            broker = socket.create_connection((HOST, self.broker()), timeout=5.0)
            broker.settimeout(None)
            broker.sendall(first)
        except OSError:
            client.close()
            return
        threading.Thread(target=self._carry, args=(broker, client, party), daemon=True).start()
        self._carry(client, broker, party)

    def _carry(self, source: socket.socket, sink: socket.socket, party: str) -> None:
        """Hand on one direction of a connection until either end closes it."""
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.latency)  # what comes meanwhile is handed on together
                self._wait(party)
                sink.sendall(data)
        self._wait(party)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _wait(self, party: str) -> None:
        with self._there:
            self._there.wait_for(lambda: party not in self._cut)


def _first_packet(client: socket.socket) -> tuple[bytes, str]:
    """Return MQTT 3.1.1's CONNECT, and the name at the end of its client identifier."""
    found = _exactly(client, 2)
    while found[-1] & 0x80:
        found += _exactly(client, 1)
    length = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[1:]))
    body = _exactly(client, length)
    start = 2 + int.from_bytes(body[:2], "big") + 4  # the protocol's name, its level, flags and keep-alive
    size = int.from_bytes(body[start : start + 2], "big")
    return found + body, body[start + 2 : start + 2 + size].decode(errors="replace").rpartition("/")[2]


def _exactly(client: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (data := client.recv(count - len(found))):
            raise ConnectionError("it ends before its first packet does")
        found += data
    return found
