#!/usr/bin/env bash
# What amqtt's broker keeps for a client that is away comes back flagged as "retained", and at a QoS that it was never sent with.
#
# Versions: amqtt 0.12.1 (broker, with its own plugin for passwords), paho-mqtt 2.2.0 (clients, MQTT 3.1.1).
# Input:    a client with a persistent session (clean_session=False) subscribes at QoS 1 and disconnects; another publishes three
#           messages at QoS 1 and two at QoS 0, none of them retained; the first connects again, and hears one more.
# Expected: the three come with RETAIN 0, since they match a subscription that stands (MQTT 3.1.1, 3.3.1-9); of those at QoS 0 a
#           broker may keep none, and if it sends them, then at QoS 0, the lower of the two (3.8.4-6).
# Seen:     all five come, all at QoS 1 and all with RETAIN 1, by which a client takes new word for old state. What comes later is
#           flagged as it should be.
# Moral:    never tell live messages from kept ones by the RETAIN flag, and never rely on a broker's queue: number messages, and send
#           them again until their receiver itself has acknowledged them.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/env"
"$work/env/bin/python" -m pip install --quiet --disable-pip-version-check amqtt==0.12.1 paho-mqtt==2.2.0
cd "$work"
"$work/env/bin/python" -W ignore - <<'P'
import asyncio
import logging
import socket
import threading
import time
from importlib.metadata import version
from pathlib import Path

import paho.mqtt.client as mqtt
from amqtt.broker import Broker
from argon2 import PasswordHasher

logging.disable(logging.CRITICAL)
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def running(plugins):
    async def begin():
        broker = Broker({"listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}}, "plugins": plugins})
        await broker.start()
        return broker

    port = free_port()
    return port, asyncio.run_coroutine_threadsafe(begin(), loop).result(20)


class Client:
    def __init__(self, name, port, clean, password):
        self.got, self.ready, self.asked = [], threading.Event(), threading.Event()
        self.paho = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, clean_session=clean, protocol=mqtt.MQTTv311)
        self.paho.username_pw_set("somebody", password)
        self.paho.on_connect = self.connected
        self.paho.on_subscribe = lambda *given: self.asked.set()
        self.paho.on_message = lambda client, data, it: self.got.append((it.payload.decode(), it.qos, it.retain))
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        assert self.ready.wait(10)

    def connected(self, client, data, flags, reason, properties):
        self.present = flags.session_present
        self.ready.set()

    def away(self):
        self.paho.disconnect()
        self.paho.loop_stop()


def tried(plugins, password):
    port, broker = running(plugins)
    first = Client("reader", port, False, password)
    first.paho.subscribe("news", 1)
    assert first.asked.wait(10)
    other = Client("writer", port, True, password)
    first.away()
    time.sleep(0.5)
    for text, qos in (("a", 1), ("b", 1), ("c", 1), ("d", 0), ("e", 0)):
        other.paho.publish("news", text, qos).wait_for_publish(10)
    time.sleep(0.5)
    again = Client("reader", port, False, password)
    time.sleep(1)
    kept = sorted(again.got)
    other.paho.publish("news", "live", 1).wait_for_publish(10)
    time.sleep(1)
    live = [one for one in again.got if one[0] == "live"]
    for client in (again, other):
        client.away()
    asyncio.run_coroutine_threadsafe(broker.shutdown(), loop).result(20)
    return again.present, kept, live


Path("passwords").write_text(f"somebody:{PasswordHasher().hash('sesame')}\n")
print("amqtt", version("amqtt"), "| paho-mqtt", version("paho-mqtt"))
present, kept, live = tried({"amqtt.plugins.authentication.FileAuthPlugin": {"password_file": "passwords"}}, "sesame")
print(f"session present {present}; kept (text, QoS, RETAIN) {kept}; then {live}")
assert (present, kept, live) == (True, [(text, 1, True) for text in "abcde"], [("live", 1, False)]), "another behaviour"
P
