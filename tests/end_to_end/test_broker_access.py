"""A Mosquitto with TLS, client certificates and an access list: who is let in, and to what."""

from __future__ import annotations

import queue
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.certificates import client, written
from tests.reference.mqtt_client import HOST, LONG, Client

from gossamer.errors import SpecError
from gossamer.protocol.transports import BrokerUnreachable, TransportSettings, topic
from gossamer.runtimes.mqtt.broker import BrokerAddress, Mosquitto, Tls, access_list, mosquitto_config
from gossamer.runtimes.mqtt.certificates import Authority
from gossamer.runtimes.mqtt.transport import MqttTransport

pytestmark = pytest.mark.slow  # real brokers, which a busy machine keeps waiting

QUICK = TransportSettings(connect_timeout=5.0)


@dataclass(frozen=True)
class Federation:
    """A broker, and the files of everyone who might like to use it."""

    broker: Mosquitto
    folder: Path

    def tls(self, name: str | None, authority: str = "authority") -> Tls:
        certificate = (None, None) if name is None else (self.folder / f"{name}.crt", self.folder / f"{name}.key")
        return Tls(self.folder / f"{authority}.crt", *certificate)

    def client(self, name: str) -> Client:
        return Client(self.broker.port, self.tls(name))

    def transport(
        self, node: str, certificate: str | None, authority: str = "authority", settings: TransportSettings = QUICK
    ) -> MqttTransport:
        there = BrokerAddress(HOST, self.broker.port, self.tls(certificate, authority))
        return MqttTransport("run", node, there, settings)


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("federation")
    ours, other = Authority("federation"), Authority("another")
    (folder / "authority.crt").write_bytes(ours.certificate)
    (folder / "another.crt").write_bytes(other.certificate)
    certificate, key = written(ours.server("broker", [HOST, "localhost"]), folder, "broker")
    for node in ("a", "b", "unlisted"):
        written(client(ours, node), folder, node)
    written(client(other, "a"), folder, "forged")
    tls = Tls(folder / "authority.crt", certificate, key)
    with Mosquitto(tls, access_list("run", ["a", "b"])) as broker:
        yield Federation(broker, folder)


def test_those_on_the_list_talk(federation: Federation) -> None:
    with federation.transport("a", "a") as a, federation.transport("b", "b") as b:
        a.send("b", b"hello")
        datagram = b.receive(LONG)
        assert datagram is not None
        assert datagram[:2] == ("a", b"hello")
        assert str(a.broker).startswith("mqtts://")


@pytest.mark.parametrize(
    ("certificate", "line"),
    [
        (None, "refuses this node's certificate .*certificate required"),
        ("forged", "refuses this node's certificate .*unknown ca"),
    ],
)
def test_without_a_certificate_of_the_federation(federation: Federation, certificate: str | None, line: str) -> None:
    with pytest.raises(BrokerUnreachable, match=f"(?i){line}"):
        federation.transport("a", certificate).open()


@pytest.mark.parametrize(("node", "certificate"), [("a", "b"), ("b", "unlisted"), ("unlisted", "unlisted")])
def test_with_a_wrong_identity(federation: Federation, node: str, certificate: str) -> None:
    """Its datagrams reach no one, and none reach it; the transport sees that when it opens."""
    with pytest.raises(BrokerUnreachable, match=f"it passes nothing on; is '{node}' in its access list"):
        federation.transport(node, certificate, settings=TransportSettings(connect_timeout=1.0)).open()


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # paho leaves the socket to the collector
def test_another_brokers_certificate(federation: Federation) -> None:
    with pytest.raises(BrokerUnreachable, match="its certificate is not the one expected"):
        federation.transport("a", "a", authority="another").open()


def test_what_a_client_may_publish_and_read(federation: Federation) -> None:
    with federation.client("a") as a, federation.client("unlisted") as unlisted:
        assert a.publish(topic("run", "b", "a")) in ("Success", "No matching subscribers")
        for where in (
            topic("run", "a", "b"),  # in another's name
            topic("run", "b", "a") + "/more",
            topic("run", "nobody", "a"),
            topic("other", "b", "a"),
            "elsewhere",
        ):
            assert a.publish(where) == "Not authorized", where
        assert unlisted.publish(topic("run", "a", "unlisted")) == "Not authorized"


@pytest.mark.parametrize("name", ["a", "unlisted"])
def test_what_a_client_may_read(federation: Federation, name: str) -> None:
    """An access list of Mosquitto 2.0 lets everyone subscribe, and holds back on delivery."""
    with federation.client(name) as client, federation.transport("b", "b") as b:
        seen: queue.Queue[str] = queue.Queue()
        client.client.on_message = lambda client, _, message: seen.put(message.topic)
        for where in ("#", topic("run", "b", "+"), topic("run", "b", "b")):
            client.subscribe(where)
        b.send("b", b"for b alone")
        assert b.receive(LONG) is not None
        b.send("a", b"for a")
        b.send("b", b"for b alone")
        assert b.receive(LONG) is not None
        client.publish(topic("run", "b", name))  # whose answer comes after everything before
        topics = {seen.get() for _ in range(seen.qsize())}
    assert (topic("run", "a", "b") in topics) == (name == "a")
    assert topics <= {topic("run", "a", "b")}


def test_keys_are_for_their_owner_alone(federation: Federation) -> None:
    assert stat.S_IMODE((federation.folder / "a.key").stat().st_mode) == 0o600


def test_files_that_are_no_certificates(federation: Federation) -> None:
    with pytest.raises(SpecError, match=r"missing\.crt: expected a certificate in PEM, of the key in .*: No such file"):
        federation.transport("a", "missing")


def test_a_certificate_of_another_key(federation: Federation) -> None:
    tls = replace(federation.tls("a"), key=federation.folder / "b.key")
    with pytest.raises(SpecError, match=r"a\.crt: expected a certificate in PEM, of the key in .*b\.key: .*MISMATCH"):
        MqttTransport("run", "a", BrokerAddress(HOST, federation.broker.port, tls), QUICK)


def test_the_configuration() -> None:
    tls = Tls(Path("/x/ca.crt"), Path("/x/broker.crt"), Path("/x/broker.key"))
    lines = mosquitto_config(8883, tls=tls, access=Path("/x/access"), largest_payload=5).splitlines()
    assert lines[0] == "listener 8883"
    for line in (
        "allow_anonymous false",
        "require_certificate true",
        "use_identity_as_username true",
        "use_username_as_clientid true",
        "max_qos 1",
        "retain_available false",
        "cafile /x/ca.crt",
        "acl_file /x/access",
        "max_packet_size 4101",
    ):
        assert line in lines
    assert access_list("r", ["n", "m"], str.upper).split("\n\n")[0].splitlines() == [
        "user N",
        "topic read gossamer/r/to/n/from/+",
        "topic write gossamer/r/to/n/from/n",
        "topic write gossamer/r/to/m/from/n",
    ]


@pytest.mark.parametrize("members", [1, 8, 64, 1000])
def test_all_that_a_broker_keeps_is_bounded(members: int) -> None:
    """Every member's share fits in the memory there is, and a few members have no less than many."""
    said = (line.split() for line in mosquitto_config(8883, members=members).splitlines())
    limits = {words[0]: int(words[1]) for words in said if words[-1].isdecimal()}
    most = limits["max_queued_bytes"] + limits["max_inflight_bytes"]
    assert 16 << 20 <= limits["max_queued_bytes"] <= 256 << 20
    assert members * most < limits["memory_limit"] <= max(2 << 30, members * (32 << 20))
    assert limits["max_connections"] >= 2 * members
