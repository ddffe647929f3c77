"""A broker: its address and topics, its configuration, and processes on this machine for trying out and for tests.

with EmbeddedBroker() as broker:
    transport = MqttTransport("run", "a", BrokerAddress(HOST, broker.port))
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from gossamer.errors import GossamerError
from gossamer.extras import install_line
from gossamer.protocol.transports import topic

# Address of a broker, and the files that its parties have for it.


@dataclass(frozen=True)
class Tls:
    """Files in PEM format: whom the other end's certificate has to be signed by, and who this end is.

    With ``whole_subject`` a broker knows clients by all that a certificate's subject says, not by its common name.
    """

    authority: Path
    certificate: Path | None = None
    key: Path | None = None
    whole_subject: bool = False


@dataclass(frozen=True)
class BrokerAddress:
    """Address of the broker; ``tls`` is None only where nobody else can listen."""

    host: str
    port: int
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


AUTHORITY, CERTIFICATE = "ca.crt", "tls.crt"
"""Files beside an invitation: whom the broker's certificate is signed by, and the party's own."""


def has_tls(broker: str) -> bool:
    """Whether the broker at this URL is reached with TLS."""
    return urlsplit(broker).scheme == "mqtts"


def host_and_port(broker: str) -> tuple[str, int]:
    """Host and port of a broker, from an invitation's URL."""
    parts = urlsplit(broker)  # which has both, as an invitation has been checked
    return str(parts.hostname), int(parts.port or 0)


# Configuration of a Mosquitto: its listener, who may connect, and who may publish and read what.


_AROUND = 1 << 12
"""Bytes of a packet beside its payload: its topic, of three names of at most 64, and what MQTT adds."""


_ROOM = 1 << 30
"""Bytes that wait in a broker for all its clients together, as long as each has `_LEAST` of them."""
_LEAST, _MOST = 16 << 20, 256 << 20
"""Bytes that may wait for one client: fewer, and a large model comes only by being sent again and again."""
_IN_FLIGHT = 8 << 20
"""Bytes on their way to a client that has not taken them."""


def access_list(run: str, nodes: Iterable[str], user: Callable[[str], str] = str) -> str:
    """An ACL file: each node reads what is for it, and writes to each of the others in its own name.

    Nobody else may do anything, and no topic may be written to that is not named here: a pattern would let a member
    fill the broker with topics of its own making. The broker knows a node by its name in its certificate, or as
    ``user`` calls it.
    """
    names = list(nodes)
    return "\n".join(
        f"user {user(node)}\ntopic read {topic(run, node, '+')}\n"
        + "".join(f"topic write {topic(run, to, node)}\n" for to in names)
        for node in names
    )


def mosquitto_config(
    port: int,
    host: str = "",
    tls: Tls | None = None,
    access: Path | None = None,
    largest_payload: int = 1 << 20,
    user: str | None = None,
    members: int | None = None,
) -> str:
    """A ``mosquitto.conf``. Nothing is kept on disk: what was under way is sent again by the nodes.

    What one client can make the broker keep is bounded, and so is all of it together: no client that does not take what
    is sent to it, or sends what nobody takes, leaves the others without room.

    Parameters
    ----------
    port, host : int, str
        Address to listen at; no host for everywhere.
    tls : Tls, optional
        Refuse clients without a certificate of that authority, and know the others by the name in it.
    access : Path, optional
        The ACL file.
    largest_payload : int
        Most bytes of a payload.
    user : str, optional
        User that a broker which root starts runs as; ``mosquitto`` if none is named.
    members : int, optional
        Number of clients that may be connected, on whom all that the broker keeps is bounded; by default any number.
    """
    room = _MOST if members is None else min(_MOST, max(_LEAST, _ROOM // members))
    lines = [
        f"listener {port} {host}".rstrip(),
        *([] if user is None else [f"user {user}"]),
        f"allow_anonymous {'false' if tls else 'true'}",
        "persistence false",
        f"max_packet_size {largest_payload + _AROUND}",  # who sends more is disconnected
        "max_qos 1",  # who sends with another is disconnected: it would have the broker keep a state for each message
        "retain_available false",  # who sends a message to be kept is disconnected
        "persistent_client_expiration 1h",  # of a session that its client does not come back to
        # What is on its way to a client that has not taken it, and what waits for one: a limit for a slow one.
        "max_inflight_messages 40",
        f"max_inflight_bytes {_IN_FLIGHT}",
        "max_queued_messages 4000",
        f"max_queued_bytes {room}",
        "set_tcp_nodelay true",
        "log_type error",
        "log_type warning",
        "log_type notice",
        "log_type information",
        "log_dest stderr",  # at once, while standard output would come in blocks
    ]
    if tls is not None:
        lines += [
            f"cafile {tls.authority}",
            f"certfile {tls.certificate}",
            f"keyfile {tls.key}",
            "require_certificate true",
            "use_subject_as_username true" if tls.whole_subject else "use_identity_as_username true",
            # So nobody can end another's connection by its client identifier.
            "use_username_as_clientid true",
            "tls_version tlsv1.2",  # or later
        ]
    if access is not None:
        lines.append(f"acl_file {access}")
    if members is not None:
        lines += [
            # Each once, its new connection beside the old one, and some that have not said yet who they are.
            f"max_connections {2 * members + 64}",
            f"memory_limit {(128 << 20) + members * (room + _IN_FLIGHT)}",
        ]
    return "\n".join(lines) + "\n"


HOST = "127.0.0.1"
_ATTEMPTS = 5  # another process may take a port between our finding and using it
_PATIENCE = 20.0  # seconds for a broker to start


class BrokerFailed(GossamerError):
    """A broker does not start."""


class LocalBroker(ABC):
    """A broker's process, from ``with`` to its end.

    Attributes
    ----------
    port : int
        Port on the loopback interface.
    process : Popen
        The broker's.
    """

    def __init__(self) -> None:
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @staticmethod
    @abstractmethod
    def missing() -> str | None:
        """Say why there can be no such broker here, if so."""

    @abstractmethod
    def _command(self, port: int, folder: Path) -> list[str]:
        """Return the command that starts it on a port."""

    def start(self, port: int | None = None) -> None:
        """Start the process, on a given port or a free one.

        Raises
        ------
        BrokerFailed
            If it does not come up.
        """
        if (reason := self.missing()) is not None:
            raise BrokerFailed(reason)
        said = ""
        for _ in range(_ATTEMPTS):
            self.port = _free_port() if port is None else port
            self._folder = tempfile.TemporaryDirectory(prefix="gossamer-broker-")
            folder = Path(self._folder.name)
            with (folder / "log").open("wb") as log:
                self.process = subprocess.Popen(
                    self._command(self.port, folder),
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "PYTHONUNBUFFERED": "1"},
                )
            if self._runs():
                return
            said = self.log()
            self.stop()
        (last,) = said.strip().splitlines()[-1:] or ("it says nothing",)
        raise BrokerFailed(f"{type(self).__name__} does not start on port {self.port}: {last}")

    def stop(self, patience: float = 5.0) -> None:
        """End the process, if there is one."""
        if self.process is None or self._folder is None:
            return
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.terminate()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()
        self.process = self._folder = None

    @property
    def url(self) -> str:
        """The address that it listens at, as invitations say it."""
        return f"mqtt://{HOST}:{self.port}"

    def log(self) -> str:
        """The output of the process since it was started."""
        return "" if self._folder is None else (Path(self._folder.name) / "log").read_text(errors="replace")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _runs(self) -> bool:
        until = time.monotonic() + _PATIENCE
        while self.process is not None and self.process.poll() is None and time.monotonic() < until:
            # Not by connecting: another process may be listening there.
            if "running" in self.log():
                return True
            time.sleep(0.02)
        return False


class EmbeddedBroker(LocalBroker):
    """A broker without anything to install or to configure, for one machine: no TLS, no identities (extra ``broker``).

    It ends with the process that started it, however that one ends.
    """

    @staticmethod
    def missing() -> str | None:
        return None if find_spec("amqtt") else f"no embedded broker: {install_line('broker')}"

    def _command(self, port: int, folder: Path) -> list[str]:
        return [sys.executable, "-m", "gossamer.runtimes.mqtt.broker_embedded", str(port)]


class Mosquitto(LocalBroker):
    """The system's Mosquitto.

    Parameters
    ----------
    tls : Tls, optional
        Files of TLS, with client certificates.
    access : str, optional
        Contents of an ACL file.
    largest_payload : int
        Most bytes of a payload.
    """

    def __init__(self, tls: Tls | None = None, access: str | None = None, largest_payload: int = 1 << 20) -> None:
        super().__init__()
        self._tls, self._access, self._largest_payload = tls, access, largest_payload

    @staticmethod
    def missing() -> str | None:
        return None if _mosquitto() else "no mosquitto on this machine: apt install mosquitto"

    def _command(self, port: int, folder: Path) -> list[str]:
        access = None
        if self._access is not None:
            access = folder / "access"
            access.write_text(self._access)
            access.chmod(0o600)
        config = folder / "mosquitto.conf"
        config.write_text(
            mosquitto_config(port, HOST, self._tls, access, self._largest_payload, user=getpass.getuser())
        )
        return [str(_mosquitto()), "-c", str(config)]


def _mosquitto() -> str | None:
    return shutil.which("mosquitto", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
