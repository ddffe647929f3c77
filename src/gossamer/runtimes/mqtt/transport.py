"""Datagrams between named nodes over an MQTT broker.

A thin layer: it carries bytes and knows nothing of what is in them. Every datagram is published once with QoS 1 under
`gossamer/<run>/to/<node>/from/<node>`, so a broker's access list can hold each node to its own name. What is lost, on
the way or for want of room, is the session's business (`protocol.session`), so a connection begins with nothing kept by
the broker (a clean session), and a full queue drops and counts instead of growing or blocking.

Two threads: paho's does the network, and answers the broker's pings while the node computes for minutes; the node's
sends and receives. MQTT 5 is spoken over TLS: its acknowledgements say why something went no further,
and its greeting how long a message may be (an older one drops both in silence). A node handles one event at a time and
is busy with numbers in between, so an event loop would not serve it, and would miss those pings. Neither thread waits
for the other: `MqttTransport.send` hands bytes to paho, and `MqttTransport.receive` waits no longer than it is told.

The broker is told that a datagram has arrived when the node takes it, not before. So it holds back once a few dozen
are on their way, and a node that is slow makes the broker's queue grow and not its own.

A connection counts once a datagram that the node has sent to itself is back, since brokers drop in silence what they do
not allow. Nothing is retained and there is no last will: the broker keeps nothing that others could fill or forge, and
who is there is known from what the peers seal (`gossamer.deployment.peers`).
"""

# ruff: noqa: E402

from __future__ import annotations

import math
import secrets
import socket
import ssl
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from gossamer.extras import require

require("paho", "a node needs", "mqtt")  # one clear line where it is missing

# isort: split
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, LogLevel, MQTTProtocolVersion
from paho.mqtt.reasoncodes import ReasonCode

from gossamer.errors import CallerError, SpecError, failing_as
from gossamer.protocol.transports import (
    ITEM_OVERHEAD,
    BrokerUnreachable,
    Datagram,
    Transport,
    TransportSettings,
    is_name,
    topic,
)
from gossamer.runtimes.mqtt.broker import AUTHORITY, CERTIFICATE, BrokerAddress, Tls, has_tls, host_and_port

_REFUSALS = {  # by the reason codes of MQTT 5; others are of no help
    0x10: "{to} is not connected to the broker, or may receive nothing there",
    0x87: "not allowed: the broker's access list has {me} send nothing to {to} in this run",
    0x97: "the broker has no room left for what {me} sends",
}
_UNCONFIRMED = 5.0  # seconds
_SLOWEST = 32 << 10  # bytes a second of a slow line, for which an acknowledgement is waited longer
_BEFORE_IT = 8 << 20  # most bytes that a broker sends before an acknowledgement: what may be on its way to one node
_KEEPALIVE = 20  # seconds of silence after which the broker takes a node to be gone, and a node the broker
_LONGEST_RETRY = 30  # most seconds between two attempts to connect: the first come after 1, 2, 4, ...
_OF_SIZE = ("Packet too large", "Protocol error")  # the second is what Mosquitto says of its message_size_limit
_TOPIC = 256  # bytes that MQTT puts around a payload, at most: two names of a node, one of a run
_TEMPORARY = "Server unavailable"
_DEFAULTS = TransportSettings()


class MqttTransport(Transport):
    """One node's connection to its broker.

    Parameters
    ----------
    run, node : str
        The run's name and the node's.
    broker : BrokerAddress
        Address to connect to.
    settings, say
        The same as in `Transport`.

    Attributes
    ----------
    counts : Counter of str
        Of what was dropped: ``dropped_unconnected`` and ``dropped_outgoing`` of our own for want of a connection or of
        room, ``dropped_incoming`` of others' for want of room, ``dropped_too_large``, ``dropped_stranger`` (a topic
        that names no node).
    """

    def __init__(
        self,
        run: str,
        node: str,
        broker: BrokerAddress,
        settings: TransportSettings = _DEFAULTS,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        super().__init__(run, node, settings, say)
        self.broker = broker
        self._echo = secrets.token_bytes(16)  # of this process, among those with its name
        self._prefix = topic(run, node, "")
        self._unpublished: deque[tuple[paho.MQTTMessageInfo, int, str]] = deque()
        self._outgoing, self._confirmed = 0, time.monotonic()
        self._unconfirmed = False  # what an earlier connection dropped
        self._came = self._came_before = 0  # bytes of others, counted by paho's thread, and as the last was confirmed
        self._refusals: dict[str, str] = {}
        self._codes: dict[int, int] = {}  # of acknowledgements, by message, if they are not the usual
        self._largest: int | None = None  # that the broker takes, as it says
        self._over = 0  # bytes of the last message that was longer
        self._cut = 0  # bytes of the largest message that was on its way when the broker last ended the connection
        self._connection = 0  # changed by paho's thread in one assignment, as all that says whether there is one
        self._tls = None if broker.tls is None else _tls_context(broker.tls)
        self._client = self._make_client()

    def _begin(self) -> None:
        # Have the C library keep freed memory of up to 16 MiB for what comes next. It gives buffers as large as
        # datagrams back to the operating system and asks for them again, which takes more time than to fill them. From
        # the size of what is freed it learns to stop that (mallopt(3), M_MMAP_THRESHOLD).
        bytes(16 << 20)
        self._down_since = time.monotonic()
        self._connect()

    def _waiting(self) -> int:
        self._forget_published()
        return self._outgoing

    def _hand_over(self, to: str, payload: bytes, size: int) -> bool:
        if not self.connected:
            self.counts["dropped_unconnected"] += 1
            return False
        if self._largest is not None and len(payload) + _TOPIC > self._largest:  # it would end the connection for it
            self._over = len(payload)
            self.counts["dropped_outgoing"] += 1
            return False
        if not (self._unpublished or self._unconfirmed):
            self._confirmed, self._came_before = time.monotonic(), self._came
        info = self._client.publish(topic(self.run, to, self.node), payload, qos=1)
        if info.rc == paho.MQTT_ERR_SUCCESS:  # or else the connection ended just now, and paho keeps it for the next
            self._unpublished.append((info, size, to))
            self._outgoing += size
        self.counts["sent"] += 1
        return True

    def receive(self, timeout: float) -> Datagram | None:
        datagram = self._inbox.get(min(timeout, self._patience()))
        if datagram is not None:
            connection, mid = datagram.ticket
            if connection == self._connection:
                self._client.ack(mid, 1)
            self.counts["received"] += 1
            return datagram
        if self._fatal is not None or self._patience() <= 0:
            raise BrokerUnreachable(self._complaint())
        return None

    def refusal(self, to: str) -> str:
        why = self.unconfirmed(_UNCONFIRMED)
        if self._largest is not None and self._over + _TOPIC > self._largest:
            return f"too large: a message has {self._over} bytes, and the broker takes {self._largest} in all"
        if self._cut:
            return f"perhaps too large: the broker ended the connection over a message of {self._cut} bytes"
        if not (why or self.connected):
            return f"there is no connection to the broker ({self.reason})"
        return why or self._refusals.get(to, "")

    def unconfirmed(self, seconds: float) -> str:
        waits = self._waits()
        if waits <= seconds or not self._client.is_connected():
            return ""
        confirmed = max((size for info, size, _ in self._unpublished if info.is_published()), default=0)
        if not confirmed:
            told = f"not acknowledged: the broker has confirmed nothing that was sent for {waits:.0f} s"
            return told if waits > seconds + self._passing() else ""
        size = self._unpublished[0][1]  # which is sent once: without a newer connection it stays unconfirmed
        lost = f"perhaps too large: the broker confirms messages, and none of {size - ITEM_OVERHEAD} bytes"
        return lost if confirmed < size else ""

    def waits(self, to: str) -> float | None:
        waits, line = self._waits(), self._unpublished
        if not line or not (to in self._no_room or any(name == to for _, _, name in line)):
            return None
        return max(0.0, waits - self._passing())

    def _waits(self) -> float:
        """Seconds for which the broker has confirmed nothing of what is on its way to it."""
        self._forget_published()
        return time.monotonic() - self._confirmed if self._unpublished or self._unconfirmed else 0.0

    def _passing(self) -> float:
        """Seconds that a slow line takes for the oldest message, and for what comes before its acknowledgement."""
        size = self._unpublished[0][1] if self._unpublished else 0
        return (size + min(self._came - self._came_before, _BEFORE_IT)) / _SLOWEST

    def reconnect(self, why: str) -> None:
        """Make the connection anew, and drop what was on its way: what is amiss may be of this one alone."""
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            self._say(f"connects to the broker anew: {why}")
            self.anew = True
            self._client.disconnect()
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)  # paho's thread sees that it has ended
            self._client.loop_stop()
            # What is not confirmed would keep all else back, even the datagram by which a connection counts.
            self._unconfirmed = self._unconfirmed or bool(self._unpublished)
            self._unpublished.clear()
            self._no_room.clear()
            self._codes.clear()
            self._outgoing, self._connection = 0, self._connection + 1
            self._client = self._make_client()
            self._connect()

    def _make_client(self) -> paho.Client:
        # Of brokers without TLS, which serve one machine, the embedded one knows the older version alone.
        protocol = MQTTProtocolVersion.MQTTv311 if self.broker.tls is None else MQTTProtocolVersion.MQTTv5
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{self.run}/{self.node}",
            clean_session=None if self.broker.tls else True,
            protocol=protocol,
            manual_ack=True,
        )
        if self._tls is not None:
            client.tls_set_context(self._tls)
        client.reconnect_delay_set(1, _LONGEST_RETRY)
        client.max_queued_messages_set(0)  # the limit is on bytes, in `send`
        client.on_connect, client.on_connect_fail = self._on_connect, self._on_connect_fail
        client.on_disconnect, client.on_log = self._on_disconnect, self._on_log
        client.on_subscribe, client.on_message = self._on_subscribe, self._on_message
        client.on_publish, client.on_socket_open = self._on_publish, _send_at_once
        return client

    def _connect(self) -> None:
        clean = True if self.broker.tls else paho.MQTT_CLEAN_START_FIRST_ONLY
        self._client.connect_async(self.broker.host, self.broker.port, _KEEPALIVE, clean_start=clean)
        self._client.loop_start()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
        self.connected = False

    def _patience(self) -> float:
        """Seconds for which it makes sense to go on waiting: for ever, once there was a connection."""
        if self._fatal is not None:
            return 0.0
        was = self.connected or self.counts["connected"]
        return math.inf if was else self._down_since + self.settings.connect_timeout - time.monotonic()

    def _complaint(self) -> str:
        if self._fatal is not None:
            return f"{self.node} cannot use the broker {self.broker}: {self._fatal}"
        return (
            f"{self.node} has had no connection to the broker {self.broker} for {self.settings.connect_timeout:g} s "
            f"({self._reason}); is it running there, or is a longer {self.settings.option} needed?"
        )

    def _forget_published(self) -> None:
        while self._unpublished and self._unpublished[0][0].is_published():
            info, size, to = self._unpublished.popleft()
            self._outgoing -= size
            self._cut = 0 if size >= self._cut else self._cut
            self._refusals[to] = _REFUSALS.get(self._codes.pop(info.mid, 0), "").format(me=self.node, to=to)
            self._confirmed, self._unconfirmed = time.monotonic(), False
            self._came_before = self._came

    # What follows is called by paho's thread.

    def _on_connect(self, client: paho.Client, _: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if code.is_failure:
            self._reason = f"it answers {str(code).lower()!r}"
            if not self.counts["connected"] and str(code) != _TEMPORARY:
                self._fail(self._reason)
            return
        client.reconnect_delay_set(self.settings.rejoin, max(self.settings.rejoin, _LONGEST_RETRY))
        self._connection += 1
        self._largest = getattr(properties, "MaximumPacketSize", None)
        client.subscribe(topic(self.run, self.node, "+"), 1)

    def _on_subscribe(self, client: paho.Client, _: Any, mid: int, codes: list[ReasonCode], properties: Any) -> None:
        if any(code.is_failure for code in codes):
            why = "is the node in its access list, or was it removed?"
            self._fail(f"it lets no {self.node!r} receive in run {self.run!r}; {why}")
            return
        # Brokers drop in silence what they do not allow, so a connection counts when this comes back.
        self._reason = f"it passes nothing on; is {self.node!r} in its access list, and in this node's certificate?"
        client.publish(topic(self.run, self.node, self.node), self._echo, qos=1)

    def _on_publish(self, client: paho.Client, _: Any, mid: int, code: ReasonCode, properties: Any) -> None:
        if code.value:
            self._codes[mid] = code.value  # before the message counts as published

    def _on_connect_fail(self, client: paho.Client, _: Any) -> None:
        error = sys.exc_info()[1]  # paho calls this while it handles the error
        self._reason = str(error) or type(error).__name__
        self._not_yet(f"no connection to the broker {self.broker}")
        if isinstance(error, ssl.SSLCertVerificationError) and not self.counts["connected"]:
            self._fail(f"its certificate is not the one expected ({error.verify_message})")

    def _on_log(self, client: paho.Client, _: Any, level: int, line: str) -> None:
        if level == LogLevel.MQTT_LOG_ERR and line.startswith("failed to"):  # to send or to receive, and why
            self._reason = line

    def _on_disconnect(self, client: paho.Client, _: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if self.connected:
            why = "it is connected to anew" if self.anew else f"it ended: {str(code).lower()}"
            self._reason, self._down_since = why, time.monotonic()
            if not self.anew and (self.broker.tls is None or str(code) in _OF_SIZE):
                self._cut = max((size for _, size, _ in list(self._unpublished)), default=0)
            self.connected = False
            self.counts["disconnected"] += 1
            self._inbox.wake()  # the wait has an end now
        elif not self.counts["connected"] and "alert" in self._reason.lower():
            self._fail(f"it refuses this node's certificate ({self._reason})")

    def _on_message(self, client: paho.Client, _: Any, message: paho.MQTTMessage) -> None:
        name = message.topic.rpartition("/")[2]
        self._came += len(message.payload)
        if name == self.node and message.payload == self._echo:
            client.ack(message.mid, message.qos)
            self._establish()
            return
        dropped = self._take(message, name)
        if dropped is not None:
            self.counts[dropped] += 1
            client.ack(message.mid, message.qos)

    def _take(self, message: paho.MQTTMessage, sender: str) -> str | None:
        """Say why a message is dropped, if it is."""
        if message.topic != self._prefix + sender or not is_name(sender) or message.qos != 1:
            return "dropped_stranger"
        if len(message.payload) > self.settings.largest_datagram:
            return "dropped_too_large"
        datagram = Datagram(sender, bytes(message.payload), (self._connection, message.mid))
        return None if self._inbox.put(datagram) else "dropped_incoming"


def _send_at_once(client: paho.Client, _: Any, connection: Any) -> None:
    """Have small packets, such as answers, leave at once, and not when what left before has been confirmed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    expected = f"{tls.authority}: expected the certificate of who signs the broker's, in PEM: "
    with failing_as(SpecError, expected, of=(OSError, ValueError)):
        context.load_verify_locations(tls.authority)
    if tls.certificate is not None:
        expected = f"{tls.certificate}: expected a certificate in PEM, of the key in {tls.key}: "
        with failing_as(SpecError, expected, of=(OSError, ValueError)):
            context.load_cert_chain(tls.certificate, tls.key)
    return context


def connection(
    address: str, run: str, node: str, folder: Path, key: Path, settings: TransportSettings, say: Callable[[str], None]
) -> MqttTransport:
    """A node's connection to its broker; the files for TLS lie in the folder, and are for the key.

    Raises
    ------
    CallerError
        If a file is missing.
    """
    host, port = host_and_port(address)
    if not has_tls(address):
        return MqttTransport(run, node, BrokerAddress(host, port), settings, say)
    authority, certificate = folder / AUTHORITY, folder / CERTIFICATE
    missing = [str(file) for file in (authority, certificate) if not file.is_file()]
    if missing:
        raise CallerError(
            f"the broker {address} wants TLS, and there is no {' and no '.join(missing)}; put what the "
            "organiser handed over beside the invitation"
        )
    return MqttTransport(run, node, BrokerAddress(host, port, Tls(authority, certificate, key)), settings, say)
