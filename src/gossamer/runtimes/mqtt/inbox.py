"""The boundary between a transport's thread and the node's: a queue with a limit, which makes only the node wait."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import NamedTuple

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
