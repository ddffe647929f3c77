"""A Mosquitto with the configuration that founding a federation writes: it starts, and lets nobody else in."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.founded_broker import FoundedBroker, free_port
from tests.reference.lossy_relay import PUBACK, PUBLISH, Loses, LossyRelay
from tests.reference.mqtt_client import HOST, LONG, Client, talk
from tests.reference.reissued import reissue

from gossamer.deployment.founding.founding import found
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import read_signed
from gossamer.protocol.transports import BrokerUnreachable, TransportSettings, topic
from gossamer.runtimes.mqtt.broker import BrokerAddress, Mosquitto, Tls
from gossamer.runtimes.mqtt.certificates import Authority
from gossamer.runtimes.mqtt.transport import MqttTransport

pytestmark = [
    pytest.mark.slow,  # real brokers, which a busy machine keeps waiting
    # paho leaves the socket to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
PARTIES = {"a": 300, "b": 200}
PATIENT, QUICK = (TransportSettings(connect_timeout=seconds) for seconds in (10.0, 1.0))


@pytest.fixture(autouse=True)
def _sockets_are_collected() -> Iterator[None]:
    yield
    gc.collect()  # while their warnings are expected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    folder = tmp_path / "federation"
    found(folder, spec=SPEC, parties=PARTIES, broker=f"mqtts://{HOST}:{free_port()}")
    return folder


@pytest.fixture
def broker(folder: Path) -> Iterator[FoundedBroker]:
    with FoundedBroker(folder) as broker:
        yield broker


def tls(folder: Path, party: str) -> Tls:
    return Tls(*(folder / party / name for name in ("ca.crt", "tls.crt", "identity.key")))


def transport(
    folder: Path, node: str, files: Tls | None = None, settings: TransportSettings = PATIENT
) -> MqttTransport:
    """A node's connection with the files that its party got, or with others."""
    invitation = read_signed(folder / "federation.yaml")
    port = urlsplit(invitation.broker).port
    assert port is not None
    return MqttTransport(invitation.run, node, BrokerAddress(HOST, port, files or tls(folder, node)), settings)


def made(folder: Path, name: str, authority: Authority, until: datetime | None = None) -> Tls:
    """A certificate for a new identity."""
    place = folder / "made"
    place.mkdir()
    identity = Identity.create(place / "identity.key")
    (place / "tls.crt").write_bytes(authority.client_of(name, identity.public_key, until))
    return Tls(folder / "authority.crt", place / "tls.crt", place / "identity.key")


def authority(folder: Path) -> Authority:
    return Authority.load(*((folder / f"authority.{kind}").read_bytes() for kind in ("crt", "key")))


def test_parties_and_servers_talk(folder: Path, broker: FoundedBroker) -> None:
    with transport(folder, "a") as a, transport(folder, "server") as server:
        talk(a, server)
        talk(server, a)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (
            lambda kind, size: kind == PUBLISH and size > 4000,
            "perhaps too large: the broker confirms messages, ",
        ),
        (lambda kind, size: kind == PUBACK, "not acknowledged: the broker has confirmed nothing that was sent for "),
    ],
)
def test_what_is_lost_on_the_way_to_the_broker(lost: Loses, said: str, folder: Path, broker: FoundedBroker) -> None:
    with LossyRelay(folder, "a") as relay, transport(folder, "server"):
        address = BrokerAddress(HOST, relay.port, tls(folder, "a"))
        with MqttTransport(read_signed(folder / "federation.yaml").run, "a", address, PATIENT) as a:
            a.send("server", bytes(5000))
            a.flush(10.0)
            assert a.refusal("server") == ""
            relay.loses = lost
            until = time.monotonic() + 60.0
            while not a.refusal("server").startswith(said):
                assert time.monotonic() < until, a.refusal("server")
                a.send("server", bytes(5000))
                a.send("server", bytes(10))
                time.sleep(1.0)
            relay.loses = lambda kind, size: False
            while a.refusal("server"):
                assert time.monotonic() < until, a.refusal("server")
                a.send("server", bytes(5000))
                time.sleep(1.0)


def test_a_connection_that_is_made_anew_carries_what_the_one_before_kept_back(
    folder: Path, broker: FoundedBroker
) -> None:
    """None is confirmed of more messages than may be on their way; the new connection begins without them."""
    with LossyRelay(folder, "a") as relay, transport(folder, "server") as server:
        address = BrokerAddress(HOST, relay.port, tls(folder, "a"))
        with MqttTransport(read_signed(folder / "federation.yaml").run, "a", address, PATIENT) as a:
            relay.loses = lambda kind, size: kind == PUBACK
            for _ in range(30):
                a.send("server", b"before")
            while (came := server.receive(2.0)) is not None:
                assert came.payload == b"before"
            a.reconnect("a test wants it")
            until = time.monotonic() + LONG
            while not a.connected:
                assert time.monotonic() < until
                time.sleep(0.01)
            talk(a, server)
            time.sleep(5.1)
            assert a.refusal("server").startswith("not acknowledged: the broker has confirmed nothing")


def test_no_certificate(folder: Path, broker: FoundedBroker) -> None:
    with pytest.raises(BrokerUnreachable, match=r"(?i)refuses this node's certificate .*certificate required"):
        transport(folder, "a", Tls(folder / "authority.crt")).open()


def test_another_authoritys_certificate(folder: Path, broker: FoundedBroker) -> None:
    with pytest.raises(BrokerUnreachable, match=r"(?i)refuses this node's certificate .*unknown ca"):
        transport(folder, "a", made(folder, "a", Authority("another"))).open()


def test_an_expired_certificate(folder: Path, broker: FoundedBroker) -> None:
    expired = made(folder, "a", authority(folder), datetime.now(UTC) - timedelta(minutes=1))
    with pytest.raises(BrokerUnreachable, match=r"(?i)refuses this node's certificate .*expired"):
        transport(folder, "a", expired).open()


def test_another_partys_name(folder: Path, broker: FoundedBroker) -> None:
    """Party b, with its own certificate, says that it is a; and so does one that is in no access list."""
    for files in (tls(folder, "b"), made(folder, "c", authority(folder))):
        with pytest.raises(BrokerUnreachable, match="it passes nothing on; is 'a' in its access list"):
            transport(folder, "a", files, QUICK).open()


def test_unlisted_topics(folder: Path, broker: FoundedBroker) -> None:
    run = read_signed(folder / "federation.yaml").run
    with Client(broker.port, tls(folder, "a")) as a:
        assert a.publish(topic(run, "b", "a")) in ("Success", "No matching subscribers")
        for where in (topic(run, "a", "b"), topic("0" * 32, "b", "a"), topic(run, "nobody", "a"), "elsewhere"):
            assert a.publish(where) == "Not authorized", where


def test_a_member_cuts_nobody_off(folder: Path, broker: FoundedBroker) -> None:
    """Party b connects under the client identifier of a, as its transport says it and as the broker knows it."""
    with transport(folder, "a") as a, transport(folder, "server") as server:
        for name in (f"{a.run}/a", "a"):
            with Client(broker.port, tls(folder, "b"), client_id=name):
                talk(a, server)
                talk(server, a)
        assert (a.counts["disconnected"], server.counts["disconnected"]) == (0, 0)


@pytest.mark.parametrize("flags", [{"qos": 1, "retain": True}, {"qos": 2}])
def test_a_member_has_the_broker_keep_nothing(folder: Path, broker: FoundedBroker, flags: dict[str, Any]) -> None:
    """Who sends what is to be kept is disconnected."""
    with transport(folder, "a") as a, Client(broker.port, tls(folder, "b")) as b:
        ended = threading.Event()
        b.client.on_disconnect = lambda *_: ended.set()
        b.client.publish(topic(a.run, "a", "b"), b"x", **flags)
        assert ended.wait(LONG)
        assert a.receive(0.1) is None


def test_a_member_fills_no_room_of_others(folder: Path, broker: FoundedBroker) -> None:
    """Party a sends 300 MB to b, which takes none of it: the broker keeps b's share, and the others go on."""
    with transport(folder, "a") as a, transport(folder, "b") as b, transport(folder, "server") as server:
        sent = 0
        while sent < 300:
            sent += a.send("b", bytes(1 << 20))
            time.sleep(0)  # until the broker has some of it
        a.flush(LONG)
        talk(server, a)
        talk(a, server)
        assert "Outgoing messages are being dropped for client b" in broker.log()
        assert memory(broker) < 300 << 20
        assert b.receive(LONG) is not None
        assert {each.counts["disconnected"] for each in (a, b, server)} == {0}


def memory(broker: FoundedBroker) -> int:
    """Bytes that a broker has in memory."""
    assert broker.process is not None
    (line,) = (line for line in Path(f"/proc/{broker.process.pid}/status").read_text().splitlines() if "VmRSS" in line)
    return int(line.split()[1]) << 10


def test_a_party_that_joins_is_let_in_after_a_restart(folder: Path, broker: FoundedBroker) -> None:
    reissue(folder, {"d": 100})
    with pytest.raises(BrokerUnreachable, match="is 'd' in its access list"):
        transport(folder, "d", settings=QUICK).open()
    broker.stop()
    broker.start()
    with transport(folder, "a") as a, transport(folder, "d") as d:
        talk(a, d)


def test_what_expired_is_renewed(folder: Path) -> None:
    """The old certificate of the broker is refused, and the new one, for the same key, is not."""
    key, yesterday = (folder / "broker" / "broker.key").read_bytes(), datetime.now(UTC) - timedelta(minutes=1)
    (folder / "broker" / "broker.crt").write_bytes(
        authority(folder).renewed((folder / "broker" / "broker.crt").read_bytes(), yesterday)
    )
    line = r"its certificate is not the one expected \(.*expired"
    with FoundedBroker(folder), pytest.raises(BrokerUnreachable, match=line):
        transport(folder, "a").open()
    reissue(folder, {}, valid=timedelta(days=1))
    assert (folder / "broker" / "broker.key").read_bytes() == key
    with FoundedBroker(folder), transport(folder, "a") as a, transport(folder, "b") as b:
        talk(a, b)
