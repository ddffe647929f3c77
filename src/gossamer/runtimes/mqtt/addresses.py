"""Addresses on a broker: where it is, how long it is waited for, and the topics of a run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from gossamer.errors import SpecError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class Tls:
    """Files in PEM format: whom the broker's certificate has to be signed by, and who this node is."""

    authority: Path
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class BrokerAddress:
    """Address of the broker; ``tls`` is None only where nobody else can listen."""

    host: str
    port: int
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{'mqtts' if self.tls else 'mqtt'}://{self.host}:{self.port}"


@dataclass(frozen=True)
class TransportSettings:
    """Limits of a transport.

    Attributes
    ----------
    connect_timeout : float
        Seconds without a first connection after which the transport gives up; ``math.inf`` for never.
    reconnect_timeout : float
        The same for a connection that was there and is lost: by default never, since brokers are restarted and networks
        fail for longer than anybody is at a keyboard.
    longest_retry : int
        Most seconds between two attempts to connect. The first come after 1, 2, 4, ...
    keepalive : int
        Seconds of silence after which the broker takes a node to be gone, and a node the broker.
    largest_datagram : int
        Most bytes of one payload, either way.
    most_incoming, most_outgoing : int
        Most bytes that wait for the node, and for the broker.
    """

    connect_timeout: float = 30.0
    reconnect_timeout: float = math.inf
    longest_retry: int = 30
    keepalive: int = 20
    largest_datagram: int = 1 << 20
    most_incoming: int = 64 << 20
    most_outgoing: int = 64 << 20


def is_name(text: str) -> bool:
    """Whether a text can stand in a topic and an access list."""
    return _NAME.fullmatch(text) is not None


def check_name(name: str, what: str) -> str:
    """``name``, if it can stand in a topic and an access list.

    Raises
    ------
    SpecError
        If not.
    """
    if not is_name(name):
        raise SpecError(f"{what}: expected 1 to 64 of A-Z a-z 0-9 _ . - that begin with none of _ . -, found {name!r}")
    return name


def topic(run: str, to: str, sender: str) -> str:
    """Return the topic on which ``sender`` publishes what is for ``to``; either may be ``+``, for all."""
    return f"gossamer/{run}/to/{to}/from/{sender}"
