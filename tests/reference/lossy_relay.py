"""A machine between one party and the broker that ends TLS, passes packets of MQTT on, and loses some of them.

It has the broker's certificate and the party's, as a proxy that an organisation runs before its network would.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from gossamer.deployment.founding import layout as papers
from gossamer.keys.invitations import read_signed

PUBLISH, PUBACK = 3, 4
"""Types of packets (MQTT 5, section 2.1.2)."""

Loses = Callable[[int, int], bool]
"""Whether a packet of a type, and of so many bytes, is lost; of either direction."""


class LossyRelay:
    """A relay for one party, from ``with`` to its end.

    Parameters
    ----------
    federation : Path
        The folder of the federation.
    name : str
        The party.

    Attributes
    ----------
    loses : callable
        What is lost from now on; nothing at first.
    port : int
        The port that it listens at.
    """

    def __init__(self, federation: Path, name: str) -> None:
        self.loses: Loses = lambda kind, size: False
        self.port, self._up, self._over = 0, threading.Event(), asyncio.Event()
        self._broker = urlsplit(read_signed(federation / papers.RECORD).broker)
        self._before = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._before.load_cert_chain(federation / papers.BROKER_CERTIFICATE, federation / papers.BROKER_KEY)
        place = federation / name
        self._behind = ssl.create_default_context(cafile=str(place / papers.AUTHORITY))
        self._behind.load_cert_chain(place / papers.CERTIFICATE, place / papers.IDENTITY)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._up.wait(10.0)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0, ssl=self._before)
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        await self._over.wait()
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.1)  # in which the loop closes what was aborted

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on one connection, until either end closes it."""
        writers = [writer]
        try:
            there = await asyncio.open_connection(self._broker.hostname, self._broker.port, ssl=self._behind)
            writers.append(there[1])
            ways = [self._pass(reader, there[1]), self._pass(there[0], writer)]
            await asyncio.wait([asyncio.ensure_future(way) for way in ways], return_when=asyncio.FIRST_COMPLETED)
        except (OSError, asyncio.CancelledError):
            pass  # as if the cable had been drawn
        finally:
            for one in writers:
                one.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                packet = await _packet(reader)
                if not self.loses(packet[0] >> 4, len(packet)):
                    writer.write(packet)
                    await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """The next packet: a byte, the length of what follows in groups of seven bits, and that (MQTT 5, section 2.1)."""
    head = await reader.readexactly(2)
    length, shift = head[1] & 127, 7
    while head[-1] & 128:
        head += await reader.readexactly(1)
        length |= (head[-1] & 127) << shift
        shift += 7
    return head + await reader.readexactly(length)
