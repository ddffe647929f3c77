"""Transports of datagrams between named nodes: what all of them do, and which one an address is for.

A transport carries bytes and knows nothing of what is in them; what is lost, on the way or for want of room, is the
session's business (`protocol.session`). A new one is a room with a function ``connection`` and a line in `TRANSPORTS`.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, Self
from urllib.parse import urlsplit

from gossamer.errors import GossamerError, SpecError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


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
    """Return the topic, or the folder, of what ``sender`` publishes for ``to``; either may be ``+``, for all."""
    return f"gossamer/{run}/to/{to}/from/{sender}"


@dataclass(frozen=True)
class TransportSettings:
    """Limits of a transport.

    Attributes
    ----------
    connect_timeout : float
        Seconds without a first connection after which the transport gives up; ``math.inf`` for never. A connection that
        is lost is waited for without end: brokers are restarted, and networks fail for long.
    largest_datagram : int
        Most bytes of one payload, either way.
    most_incoming, most_outgoing : int
        Most bytes that wait for the node, and for the broker.
    """

    connect_timeout: float = 30.0
    largest_datagram: int = 1 << 20
    most_incoming: int = 64 << 20
    most_outgoing: int = 64 << 20


# The boundary between a transport's thread and the node's: a queue with a limit, which makes only the node wait.

ITEM_OVERHEAD = 512
"""Bytes that a datagram is taken to need besides its payload, so that many empty ones are a limited number too."""


class Datagram(NamedTuple):
    """Bytes that the broker says came from ``sender``. ``ticket`` is the transport's own."""

    sender: str
    payload: bytes
    ticket: tuple[int, int] = (0, 0)


class Inbox:
    """Datagrams in order, of at most ``most_bytes`` bytes in all.

    Parameters
    ----------
    most_bytes : int
        Payloads, with `ITEM_OVERHEAD` for each.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._items: deque[Datagram] = deque()
        self._awake = False
        self._changed = threading.Condition()

    def put(self, datagram: Datagram) -> bool:
        """Add a datagram, from any thread, without waiting; whether there was room for it."""
        size = len(datagram.payload) + ITEM_OVERHEAD
        with self._changed:
            if self._bytes + size > self._most_bytes:
                return False
            self._bytes += size
            self._items.append(datagram)
            self._changed.notify()
            return True

    def get(self, timeout: float) -> Datagram | None:
        """The oldest datagram, waiting for one up to ``timeout`` seconds; None after that, or after a `wake`."""
        until = time.monotonic() + timeout
        with self._changed:
            while not self._items and not self._awake and (left := until - time.monotonic()) > 0:
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            self._awake = False
            if not self._items:
                return None
            datagram = self._items.popleft()
            self._bytes -= len(datagram.payload) + ITEM_OVERHEAD
            return datagram

    def wake(self) -> None:
        """Have the `get` that waits, or else the next one, return at once; from any thread."""
        with self._changed:
            self._awake = True
            self._changed.notify()


class BrokerUnreachable(GossamerError):
    """There is no connection to the broker, and it makes no sense to wait for one any longer."""


class Transport(Protocol):
    """One node's way to the others.

    Attributes
    ----------
    counts : Counter of str
        ``sent``, ``received``, and what was dropped: of our own for want of room, and of others'.
    connected : bool
        Whether there is a way now.
    anew : bool
        Whether this node ended the connection, to make it anew.
    reason : str
        Reason why there is none, as far as it is known.
    """

    counts: Counter[str]
    connected: bool
    anew: bool

    @property
    def reason(self) -> str: ...

    def open(self) -> Self:
        """Connect, however often it takes; raises BrokerUnreachable if there is no connection in time."""
        ...

    def send(self, to: str, payload: bytes) -> bool:
        """Hand bytes over for a node, without waiting; whether they were not dropped at once."""
        ...

    def receive(self, timeout: float) -> Datagram | None:
        """The next datagram, waiting for one so many seconds; None after that, or after a `wake`."""
        ...

    def refusal(self, to: str) -> str:
        """Reason why what was last sent to a node went no further, as far as it is known."""
        ...

    def unconfirmed(self, seconds: float) -> str:
        """Say what the broker has not confirmed for so many seconds, while there is a connection; empty if nothing."""
        ...

    def reconnect(self, why: str) -> None:
        """Make the connection anew, where there is one."""
        ...

    def flush(self, timeout: float) -> None:
        """Wait until all that was sent is with the broker, at most so many seconds."""
        ...

    def wake(self) -> None:
        """Have a `receive` or an `open` that waits return at once; from any thread."""
        ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


@dataclass(frozen=True)
class Kind:
    """A kind of transport.

    Attributes
    ----------
    module : str
        Module with the function ``connection``, imported when it is used.
    form : str
        Form of its addresses, as a regular expression.
    served : bool
        Whether it takes a broker of the federation's own, with papers: a configuration, certificates, an access list.
    """

    module: str
    form: str
    served: bool = False


_MQTT = Kind("gossamer.runtimes.mqtt.transport", r"mqtts?://[^/?#@]+:[1-9]\d{0,4}", served=True)
TRANSPORTS = {"mqtt": _MQTT, "mqtts": _MQTT}
"""Kinds of transports, by the scheme of an address."""


def kind_of(address: str) -> Kind | None:
    """The kind of transport that an address is for; None if it has not the form of any."""
    try:
        parts = urlsplit(address)
        kind = TRANSPORTS.get(parts.scheme)
        fits = kind is not None and re.fullmatch(kind.form, address) and parts.port != 0
    except ValueError:  # a port above 65535
        return None
    return kind if fits else None


def connection(
    address: str, run: str, node: str, folder: Path, key: Path, settings: TransportSettings, say: Callable[[str], None]
) -> Transport:
    """A node's way to the others, to be opened.

    Parameters
    ----------
    address : str
        Address of the broker, as an invitation says it.
    run, node : str
        Name of the run, and of the node.
    folder, key : Path
        Folder with what the organiser handed over, and the node's private key.
    settings : TransportSettings
        Limits.
    say : callable
        Called, by another thread, with a line about each attempt to connect that fails.

    Raises
    ------
    CallerError
        If a file, or an optional package, is missing.
    """
    kind = kind_of(address)
    assert kind is not None  # an invitation has been checked
    made: Transport = import_module(kind.module).connection(address, run, node, folder, key, settings, say)
    return made
