"""A client that speaks MQTT 5, where a broker says what it refuses."""

from __future__ import annotations

import queue
import ssl

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from gossamer.runtimes.mqtt.broker import Tls
from gossamer.runtimes.mqtt.transport import MqttTransport

HOST, LONG = "127.0.0.1", 15.0


class Client:
    """A connection to a broker on this machine, and the broker's answers, in order."""

    def __init__(self, port: int, tls: Tls, client_id: str = "") -> None:
        self.answers: queue.Queue[object] = queue.Queue()
        self.client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5)
        self.client.tls_set(str(tls.authority), str(tls.certificate), str(tls.key), tls_version=ssl.PROTOCOL_TLS_CLIENT)
        self.client.on_publish = lambda client, _, mid, code, properties: self.answers.put(str(code))
        self.client.on_subscribe = lambda client, _, mid, codes, properties: self.answers.put(str(codes[0]))
        self.client.on_connect = lambda client, _, flags, code, properties: self.answers.put(str(code))
        self.client.connect(HOST, port)
        self.client.loop_start()
        assert self.answers.get(timeout=LONG) == "Success"

    def publish(self, where: str) -> object:
        self.client.publish(where, b"x", qos=1)
        return self.answers.get(timeout=LONG)

    def subscribe(self, where: str) -> object:
        self.client.subscribe(where, 1)
        return self.answers.get(timeout=LONG)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def talk(one: MqttTransport, other: MqttTransport) -> None:
    """Send one greeting, which arrives."""
    one.send(other.node, b"hello")
    datagram = other.receive(LONG)
    assert datagram is not None
    assert datagram[:2] == (one.node, b"hello")
