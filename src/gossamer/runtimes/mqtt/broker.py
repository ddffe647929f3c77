"""Brokers on this machine, each a process of its own on a free loopback port, for trying out and for tests.

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
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from gossamer.errors import GossamerError
from gossamer.extras import install_line
from gossamer.runtimes.mqtt.broker_config import ServerTls, mosquitto_config

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
        On the loopback interface.
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
            self._launch(Path(self._folder.name))
            if self._runs():
                return
            said = self.log()
            self.stop()
        raise BrokerFailed(f"{type(self).__name__} does not start on port {self.port}: {_last_line(said)}")

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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _launch(self, folder: Path) -> None:
        with (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self._command(self.port, folder),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

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
    tls : ServerTls, optional
        With client certificates.
    access : str, optional
        Contents of an ACL file.
    largest_payload : int
        Most bytes of a payload.
    """

    def __init__(self, tls: ServerTls | None = None, access: str | None = None, largest_payload: int = 1 << 20) -> None:
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


def _last_line(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1] if lines else "it says nothing"
