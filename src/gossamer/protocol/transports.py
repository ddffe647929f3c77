"""Transports of datagrams between named nodes: what all of them do, and which one an address is for.

A transport carries bytes and knows nothing of what is in them; what is lost, on the way or for want of room, is the
session's business (`protocol.session`). A new one is a room with a function ``connection`` and a line in `TRANSPORTS`.
"""

from __future__ import annotations

import re
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

from gossamer.errors import GossamerError, SpecError

_GLANCE = 0.2  # seconds between two looks whether to go on trying to connect
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


LARGEST_DATAGRAM = 1 << 20
"""Most bytes of a datagram of a party, which all on its way have to take."""


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
    rejoin : int
        Seconds before a connection that was lost is made anew.
    option : str
        Option of a command that gives ``connect_timeout``.
    """

    connect_timeout: float = 30.0
    largest_datagram: int = LARGEST_DATAGRAM
    most_incoming: int = 64 << 20
    most_outgoing: int = 64 << 20
    rejoin: int = 1
    option: str = "--connect-timeout"


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
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._awake, min(timeout, threading.TIMEOUT_MAX))
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


class Transport(ABC):
    """One node's way to the others.

    Parameters
    ----------
    run, node : str
        The run's name and the node's.
    settings : TransportSettings
        Limits.
    say : callable
        Called, by another thread, with a line about each attempt to connect that fails.

    Attributes
    ----------
    counts : Counter of str
        ``sent``, ``received``, ``connected``, ``disconnected``, and what was dropped, for whatever reason.
    connected : bool
        Whether there is a way now.
    anew : bool
        Whether this node ended the connection, to make it anew.

    Notes
    -----
    `open`, or ``with``, before anything else.
    """

    def __init__(self, run: str, node: str, settings: TransportSettings, say: Callable[[str], None]) -> None:
        self.run, self.node = check_name(run, "run"), check_name(node, "node")
        self.settings, self._say = settings, say
        self.counts: Counter[str] = Counter()
        self._no_room = set[str]()  # for whom something was dropped for want of it
        self.connected = self.anew = self._given_up = False
        self._reason, self._said = "no answer", ""  # why there is no connection, and as somebody was told
        self._fatal: str | None = None
        self._inbox, self._settled = Inbox(settings.most_incoming), threading.Event()

    def open(self) -> Self:
        """Connect, however often it takes.

        Raises
        ------
        BrokerUnreachable
            If there is no connection within ``connect_timeout``, or the broker refuses this node.
        """
        self._begin()
        until = time.monotonic() + self.settings.connect_timeout
        try:
            while not (self._settled.is_set() or self._given_up) and (left := until - time.monotonic()) > 0:
                self._settled.wait(min(left, _GLANCE))
        except BaseException:  # an interrupt
            self.close()
            raise
        if not self.connected:
            self.close()
            raise BrokerUnreachable(self._complaint())
        return self

    def send(self, to: str, payload: bytes) -> bool:
        """Hand ``payload`` over for the node named ``to``, without waiting; whether it was not dropped at once.

        Raises
        ------
        SpecError
            If it is longer than ``largest_datagram``, which is a mistake of the caller's settings.
        """
        if len(payload) > self.settings.largest_datagram:
            raise SpecError(
                f"expected a datagram of at most {self.settings.largest_datagram} bytes, found {len(payload)}; "
                f"raise largest_datagram at every node or lower the session's largest_frame"
            )
        size = len(payload) + ITEM_OVERHEAD
        if self._waiting() + size > self.settings.most_outgoing:
            self.counts["dropped_outgoing"] += 1
            self._no_room.add(to)
            return False
        self._no_room.discard(to)
        return self._hand_over(check_name(to, "node"), payload, size)

    @abstractmethod
    def receive(self, timeout: float) -> Datagram | None:
        """The next datagram, waiting for one up to ``timeout`` seconds; None after that, or after a `wake`.

        Raises
        ------
        BrokerUnreachable
            If there was no connection within ``connect_timeout``, or the broker has refused this node.
        """

    @abstractmethod
    def refusal(self, to: str) -> str:
        """Reason why what was last sent to a node went no further, as far as it is known; empty if it is not."""

    def unconfirmed(self, seconds: float) -> str:
        """Say what the broker has not confirmed for so many seconds, while there is a connection; empty if nothing."""
        return ""

    def waits(self, to: str) -> float | None:
        """Seconds for which what was sent to a node has waited here while nothing got on; None if nothing waits."""
        return None

    def reconnect(self, why: str) -> None:  # noqa: B027
        """Make the connection anew, where there is one: what is amiss may be of this one alone."""

    def flush(self, timeout: float) -> None:
        """Wait until the broker has all that was sent, at most so many seconds."""
        until = time.monotonic() + timeout
        while self.connected and self._waiting() and time.monotonic() < until:
            time.sleep(0.01)

    def wake(self) -> None:
        """Have the `receive` that waits, or else the next one, return at once, and `open` give up; from any thread."""
        self._given_up = True  # without a lock, which `open` may hold when a signal's handler calls this
        self._inbox.wake()

    @abstractmethod
    def close(self) -> None:
        """Disconnect."""

    @property
    def reason(self) -> str:
        """The reason why there is no connection, as far as it is known."""
        return self._fatal or self._reason

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _begin(self) -> None: ...

    @abstractmethod
    def _hand_over(self, to: str, payload: bytes, size: int) -> bool: ...

    @abstractmethod
    def _waiting(self) -> int: ...

    @abstractmethod
    def _complaint(self) -> str: ...

    def _establish(self) -> None:
        """Note that there is a connection."""
        if not self.connected:
            self.counts["connected"] += 1
            self.connected, self._said, self.anew = True, "", False
            self._settled.set()

    def _not_yet(self, what: str) -> None:
        """Say why there is no connection yet: once, and not for every attempt."""
        if self._said != self._reason:
            self._said = self._reason
            self._say(f"{what} yet ({self._reason}); goes on trying")

    def _fail(self, reason: str) -> None:
        """There will never be a connection."""
        self._fatal = reason
        self._settled.set()
        self._inbox.wake()


@dataclass(frozen=True)
class Kind:
    """A kind of transport.

    Attributes
    ----------
    module : str
        Module with the function ``connection``, imported when it is used.
    form : str
        Form of its addresses, as a regular expression.
    poll : float
        Seconds between two looks for what has come, unless an address says another number; 0 if a broker brings it,
        which is the federation's own, with papers: a configuration, certificates, an access list.
    """

    module: str
    form: str
    poll: float = 0.0


_TIMES = r"(\?((poll|delay)=\d{1,7}(\.\d{1,3})?(&|$)){1,2})?"
_QUICK = 5.0  # seconds
_STORE = "gossamer.runtimes.object_store.transport"
_MQTT = Kind("gossamer.runtimes.mqtt.transport", r"mqtts?://[^/?#@]+:[1-9]\d{0,4}")
TRANSPORTS = {
    "mqtt": _MQTT,
    "mqtts": _MQTT,
    "file": Kind(_STORE, rf"file:///[^?#]+{_TIMES}", poll=1.0),
    "s3": Kind(_STORE, rf"s3://[a-z0-9][a-z0-9.-]{{1,62}}(/[^?#@]*)?{_TIMES}", poll=5.0),
}
"""Kinds of transports, by the scheme of an address."""
EXAMPLES = "mqtts://broker.example.org:8883, file:///mnt/share/run or s3://bucket/run"


def kind_of(address: str) -> Kind:
    """The kind of transport that an address is for.

    Raises
    ------
    SpecError
        If it has not the form of any.
    """
    with suppress(ValueError):  # a port above 65535
        parts = urlsplit(address)
        kind = TRANSPORTS.get(parts.scheme)
        if kind is not None and re.fullmatch(kind.form, address) and parts.port != 0:
            return kind
    raise SpecError(f"expected a broker such as {EXAMPLES}, found {address[:80]!r}")


def times_of(address: str) -> tuple[float, float]:
    """Seconds between two looks for what has come, and most that it is on its way, as an address has them."""
    usual: dict[str, list[Any]] = {"poll": [kind_of(address).poll], "delay": [0.0]}
    said = usual | parse_qs(urlsplit(address).query)
    return float(said["poll"][0]), float(said["delay"][0])


def with_times(address: str, agreed: str) -> str:
    """Return a party's own address, with the times of the one that was agreed where it says none itself."""
    if kind_of(address).poll == 0:
        return address
    place, _, own = address.partition("?")
    times = {**parse_qs(urlsplit(agreed).query), **parse_qs(own)}
    return f"{place}?{'&'.join(f'{name}={value[0]}' for name, value in times.items())}" if times else place


def slowness(address: str) -> float:
    """Factor by which peers are waited for longer than on a broker: 1 where all is there within ten seconds."""
    return max(1.0, max(times_of(address)) / _QUICK)


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
        If it is no address, or a file, or an optional package, is missing.
    """
    made: Transport = import_module(kind_of(address).module).connection(address, run, node, folder, key, settings, say)
    return made
