"""The broker of a federation that was founded here, with the files that its operator gets."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, LocalBroker, Mosquitto


class FoundedBroker(LocalBroker):
    """Mosquitto, started in the folder that its operator got, with the files that are there."""

    def __init__(self, federation: Path) -> None:
        super().__init__()
        self.files = federation / "broker"
        if os.geteuid() == 0 and "user root" not in (self.files / "mosquitto.conf").read_text():
            # Who starts it as root gives the files to the user that it becomes; here they stay where they are.
            with (self.files / "mosquitto.conf").open("a") as config:
                config.write("user root\n")

    def start(self, port: int | None = None) -> None:
        super().start(port or urlsplit(read_signed(self.files.parent / "federation.yaml").broker).port)

    missing = staticmethod(Mosquitto.missing)

    def _command(self, port: int, folder: Path) -> list[str]:
        path = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/usr/local/sbin"])
        return ["env", "-C", str(self.files), f"PATH={path}", "mosquitto", "-c", "mosquitto.conf"]


def free_port() -> int:
    """A port for a broker's URL, which is signed before the broker runs."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
