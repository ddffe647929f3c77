"""A real Mosquitto that two federations share: each talks, and neither hears of the other."""

from __future__ import annotations

import gc
import os
import queue
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.founded_broker import free_port
from tests.reference.mqtt_client import HOST, LONG, Client, talk

from gossamer.deployment.founding.founding import found, join, share
from gossamer.keys.invitations import read_signed
from gossamer.protocol.transports import BrokerUnreachable, TransportSettings, topic
from gossamer.runtimes.mqtt.broker import BrokerAddress, LocalBroker, Mosquitto, Tls
from gossamer.runtimes.mqtt.transport import MqttTransport

pytestmark = [
    pytest.mark.slow,  # a real broker, which a busy machine keeps waiting
    # paho leaves the socket to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
PATIENT, QUICK = (TransportSettings(connect_timeout=seconds) for seconds in (10.0, 1.0))


class SharedMosquitto(LocalBroker):
    """Mosquitto with the files of a shared broker, started in another folder than theirs."""

    def __init__(self, hub: Path) -> None:
        super().__init__()
        self.config = hub / "broker" / "mosquitto.conf"
        if os.geteuid() == 0:  # who starts it as root gives the files to the user that it becomes
            self.config.write_text(self.config.read_text() + "user root\n")

    missing = staticmethod(Mosquitto.missing)

    def _command(self, port: int, folder: Path) -> list[str]:
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
        return ["env", "-C", "/", f"PATH={path}", "mosquitto", "-c", str(self.config)]

    def reload(self) -> None:
        """Have it read the access list again, and wait until it has."""
        assert self.process is not None
        said = len(self.log())
        os.kill(self.process.pid, signal.SIGHUP)
        until = time.monotonic() + LONG
        while "Reloading config" not in self.log()[said:] and time.monotonic() < until:
            time.sleep(0.02)
        assert "Reloading config" in self.log()[said:]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Two federations, ``one`` and ``other``, with parties of the same names."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    url = f"mqtts://{HOST}:{free_port()}"
    for name in ("one", "other"):
        found(tmp_path / name, spec=SPEC, parties={"a": 300, "b": 200}, broker=url)
    yield tmp_path
    gc.collect()  # sockets, while their warnings are expected


def port(home: Path) -> int:
    return int(read_signed(home / "one" / "federation.yaml").broker.rpartition(":")[2])


def run(home: Path, federation: str) -> str:
    return read_signed(home / federation / "federation.yaml").run


def tls(home: Path, federation: str, party: str) -> Tls:
    issued = home / "hub" / "parties" / run(home, federation) / party
    return Tls(issued / "ca.crt", issued / "tls.crt", home / federation / party / "identity.key")


def transport(
    home: Path, federation: str, party: str, files: Tls | None = None, settings: TransportSettings = PATIENT
) -> MqttTransport:
    there = BrokerAddress(HOST, port(home), files or tls(home, federation, party))
    return MqttTransport(run(home, federation), party, there, settings)


def test_two_federations_share_a_broker(home: Path) -> None:
    share([home / "one", home / "other"], home / "hub").write(home / "hub")
    broker = SharedMosquitto(home / "hub")
    broker.start(port(home))
    try:
        with transport(home, "one", "a") as a, transport(home, "one", "server") as server:
            talk(a, server)
            _other_neither_reads_nor_writes(home, a, server)
        with transport(home, "other", "a") as a, transport(home, "other", "server") as server:
            talk(server, a)
        # With the papers of one, as the party of the same name of the other; and with those it was founded with.
        with pytest.raises(BrokerUnreachable, match="it passes nothing on; is 'a' in its access list"):
            transport(home, "one", "a", tls(home, "other", "a"), QUICK).open()
        old = Tls(*(home / "one" / "a" / name for name in ("ca.crt", "tls.crt", "identity.key")))
        with pytest.raises(BrokerUnreachable, match="its certificate is not the one expected"):
            transport(home, "one", "a", old, QUICK).open()
    finally:
        broker.stop()


def _other_neither_reads_nor_writes(home: Path, a: MqttTransport, server: MqttTransport) -> None:
    """A client with papers of the other federation, of the name of the party that it tries to be."""
    one, other = run(home, "one"), run(home, "other")
    seen: queue.Queue[str] = queue.Queue()
    with Client(port(home), tls(home, "other", "server"), client_id=f"{one}/server") as client:  # as transports name it
        client.client.on_message = lambda client, _, message: seen.put(message.topic)
        for where in ("#", topic(one, "server", "+")):
            client.subscribe(where)
        talk(a, server)
        for where in (topic(one, "a", "server"), topic(one, "server", "server"), topic(one, "server", "a")):
            assert client.publish(where) == "Not authorized", where
        # What it may read comes after everything before, so that nothing can still be on its way.
        client.subscribe(topic(other, "server", "+"))
        assert client.publish(topic(other, "server", "server")) in ("Success", "No matching subscribers")
        topics = {seen.get(timeout=LONG)}
        topics |= {seen.get() for _ in range(seen.qsize())}
    assert topics == {topic(other, "server", "server")}
    assert (a.counts["disconnected"], server.counts["disconnected"]) == (0, 0)


def test_a_federation_that_comes_later(home: Path) -> None:
    """The broker reloads its access list; who is connected stays so, and goes on with the papers that it had."""
    share([home / "one"], home / "hub").write(home / "hub")
    broker = SharedMosquitto(home / "hub")
    broker.start(port(home))
    try:
        with transport(home, "one", "a") as a, transport(home, "one", "server") as server:
            join([home / "other"], home / "hub").write(home / "hub")
            with pytest.raises(BrokerUnreachable, match="it passes nothing on"):
                transport(home, "other", "a", settings=QUICK).open()
            broker.reload()
            with transport(home, "other", "a") as late, transport(home, "other", "b") as later:
                talk(late, later)
            talk(a, server)
            assert a.counts["disconnected"] == 0
    finally:
        broker.stop()
