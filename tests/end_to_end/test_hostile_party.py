"""Real processes over a broker, of which one is hostile and a member; and someone who publishes under any name."""

from __future__ import annotations

import itertools
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import experiment, parties, until
from tests.reference.hostile_inputs import Junk

from gossamer.algorithms.gossip.box import Answer, Offer
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.peers.peers import Peers, PeerSettings
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import parse_invitation
from gossamer.protocol.messages import MessageFrame
from gossamer.runtimes.mqtt.broker import BrokerAddress, EmbeddedBroker
from gossamer.runtimes.mqtt.transport import MqttTransport
from gossamer.vectors import Public, Released

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 3, topology: complete, batch_size: 32, updates_per_node: 150}
budget: {epsilon: 20, delta: 1.0e-4}
links: {retry_after: 0.5, silence: 5}
"""
A, B, HOSTILE = "node-0", "node-1", "node-2"


class Attacker:
    """Knows the identity of one member, and no other; publishes under every name."""

    def __init__(self, federation: LocalFederation, broker: str) -> None:
        place = federation.folder / HOSTILE
        identity = Identity.load(place / "identity.key")
        invitation = parse_invitation(
            (place / "invitation.yaml").read_bytes(), identity, [federation.organiser], datetime.now(UTC)
        )
        self.size = federation.prepared.objective.size
        host, port = urlsplit(broker).hostname, urlsplit(broker).port
        assert host is not None
        assert port is not None
        self.transport = MqttTransport(invitation.run, HOSTILE, BrokerAddress(host, port))
        self.peers = Peers(
            identity, invitation.run, HOSTILE, invitation.members, PeerSettings(), time.monotonic(), contacts=(A, B)
        )
        self.junk = Junk(1, self.size, "f4")
        self.seen: list[bytes] = []
        self.over = threading.Event()

    def run(self) -> None:
        """Until it is over, a hundred datagrams a second."""
        with self.transport:
            for number in itertools.count():
                if self.over.is_set():
                    return
                self.publish(self.peers.wake(time.monotonic()))
                while (datagram := self.transport.receive(0.01)) is not None:
                    self.seen = [*self.seen[-20:], datagram.payload]
                    self.publish(self.peers.open(datagram.sender, datagram.payload, time.monotonic())[1])
                self.attack(number)

    def publish(self, datagrams: list[tuple[str, bytes]]) -> None:
        for to, datagram in datagrams:
            self.transport.send(to, datagram)

    def attack(self, number: int) -> None:
        """What a member can seal; and junk that is said to come from the other honest party."""
        now, junk = time.monotonic(), self.junk
        for to, other in ((A, B), (B, A)):
            models = [
                Released(np.full(self.size, np.nan, np.float32)),
                Public(np.full(self.size, 3e38, np.float32)),
                Released(np.zeros(self.size + 1, np.float32)),
                junk.vector([Public, Released]),
            ]
            kind = (Offer, Answer)[number % 2]
            frame = MessageFrame(number % 9, 0, 0, kind(junk.integer(), models[number % 4]))  # type: ignore[arg-type]
            self.publish(self.peers.seal(to, frame, now))
            channel = self.peers._channel(self.peers._peer(to))
            if channel.session is not None and number % 3 == 0:
                self.publish([(to, datagram) for datagram in channel.seal(junk.random.randbytes(50))])
            forged = junk.mutated(junk.random.choice(self.seen or [b"GSS"]))
            topic = f"gossamer/{self.transport.run}/to/{to}/from/{other}"
            self.transport._client.publish(topic, forged, qos=1)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_hostile_party_stops_no_process(tmp_path: Path) -> None:
    """The two others make all their updates, stay in touch, and know who it was."""
    with EmbeddedBroker() as broker:
        federation = LocalFederation.found(experiment(SPEC), tmp_path / "f", broker.url)
        attacker = Attacker(federation, broker.url)
        thread = threading.Thread(target=attacker.run)
        with parties(federation) as there:
            thread.start()
            try:
                there.start(A, B)
                for name in (A, B):
                    until(lambda name=name: there.peer(HOSTILE, of=name) == "quarantined", "quarantine")
                there.finish(A, B)
            finally:
                attacker.over.set()
                thread.join()
            for name, other in ((A, B), (B, A)):
                peers = there.status(name)["peers"]
                assert there.status(name)["updates"] == 150
                blamed = peers[HOSTILE]["dropped"]
                assert blamed.get("rejected by the node", 0) + blamed.get("malformed content", 0) >= 20
                assert "in quarantine" in there.log(name)
                forged = peers[other]["dropped"]
                assert sum(forged.values()) > 20
                assert not {"rejected by the node", "malformed content", "quarantined"} & set(forged)
                assert "Traceback" not in there.output(name)
                assert len(there.log(name)) < 20_000
