"""The report of what is under way, shown to a browser on this machine and to nobody else.

It listens on the loopback address alone. Whoever asks has to know a token, which is in the address that the owner is
told; and since pages of other sites can make a browser ask too, the host has to be named as the owner was told it, and
requests that other origins cause are refused.
"""

from __future__ import annotations

import hmac
import json
import math
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gossamer.errors import DataError, GossamerError
from gossamer.report.drawing import needed, require_libraries
from gossamer.report.page import STATUS, Page, html
from gossamer.report.records import SUMMARY

_HOST = "127.0.0.1"
_PATIENCE = 10.0  # seconds for a request to come whole
_CLOCKS = 20_000_000  # nanoseconds that a file system's clock may be behind
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}
_CHANGES = 1000  # changes of parties that are shown
_WAIT = 5_000  # milliseconds until the page looks again
_REST = 9.0  # times the processor time of a drawing nothing is drawn: a tenth of a processor is for the page
_NOTHING = "<!doctype html><html lang=en><title>Nothing yet</title><p>Nothing has been written yet.</p></html>"


@dataclass(frozen=True)
class Door:
    """A place to listen at.

    Attributes
    ----------
    socket : socket
        Bound to a port of the loopback address.
    token : str
        Secret of those who may look.
    """

    socket: socket.socket
    token: str = field(repr=False)

    @classmethod
    def opened(cls, port: int = 0) -> Door:
        """A new one, at a port that is free unless one is given.

        Raises
        ------
        DataError
            If the packages that draw are not installed, or nothing can listen there.
        """
        require_libraries()
        try:
            return cls(socket.create_server((_HOST, port)), secrets.token_urlsafe(24))
        except OSError as error:
            where, why = f"{_HOST}:{port}" if port else _HOST, os.strerror(error.errno or 0)
            raise DataError(f"--live: cannot listen on {where} ({why}); give another port, or leave it out") from None

    @property
    def address(self) -> str:
        """Address that the owner is told."""
        return f"http://{_HOST}:{self.socket.getsockname()[1]}/{self.token}/"


@dataclass(frozen=True)
class ShownFolders:
    """Folders whose report is served.

    Attributes
    ----------
    folders : sequence of Path
        Folders of runs, or states of parties: the report is drawn anew once there is more in one of them.
    page : callable
        Reads the report of those of them that are there.
    since : int
        Nanoseconds of the clock; what was written before is of another run.
    """

    folders: Sequence[Path]
    page: Callable[[Sequence[Path]], Page]
    since: int = 0

    @property
    def mark(self) -> int:
        """Moment of the last change; 0 while there is nothing."""
        return max((self._changed(folder) for folder in self.folders), default=0)

    def draw(self) -> str:
        """The page; words in its place where a folder cannot be read, as it may not be whole yet."""
        there = [folder for folder in self.folders if self._changed(folder)]
        try:
            return html(self.page(there)) if there else _NOTHING
        except GossamerError:
            return _NOTHING

    def _changed(self, folder: Path) -> int:
        marks = [0]
        for name in (SUMMARY, STATUS):
            with suppress(OSError):
                marks.append((folder / name).stat().st_mtime_ns)
        return max(marks) if max(marks) >= self.since - _CLOCKS else 0


class ShownParties:
    """Parties as who watches sees them: lamps, who hears whom, and what changed when.

    Attributes
    ----------
    mark : int
        How often they were shown.
    """

    def __init__(self) -> None:
        self.mark, self._text = 0, _NOTHING
        self._changes: list[tuple[float, str, Mapping[str, Any]]] = []

    def show(self, run: str, found: Mapping[str, Mapping[str, Any]], rows: Sequence[Sequence[str]]) -> None:
        """Draw statuses by name, and the ``rows`` of their table, the first of which are its heads."""
        now, before = time.time(), {name: (one["level"], one["state"]) for _, name, one in self._changes}
        news = [(now, name, one) for name, one in found.items() if before.get(name) != (one["level"], one["state"])]
        self._changes = [*self._changes, *news][-_CHANGES:]
        turns = {name: math.tau * number / len(found) for number, name in enumerate(found)}
        places = {name: (50 + 38 * math.sin(turn), 50 - 38 * math.cos(turn)) for name, turn in turns.items()}
        said = {"run": run, "found": found, "rows": rows, "places": places, "changes": self._changes, "now": now}
        self._text = _drawn("parties.html", clock=lambda at: time.strftime("%H:%M:%S", time.localtime(at)), **said)
        self.mark += 1

    def draw(self) -> str:
        """The page."""
        return self._text


class Server(ThreadingHTTPServer):
    """Server of one report, until `shutdown`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, door: Door, shown: ShownFolders | ShownParties) -> None:
        super().__init__((_HOST, 0), _Request, bind_and_activate=False)
        self.socket.close()
        self.socket, self.token, self._shown = door.socket, door.token, shown
        self.server_port = door.socket.getsockname()[1]
        self._drawing = threading.Lock()
        self._drawn = 0, _NOTHING
        self._rested = 0.0

    @property
    def mark(self) -> int:
        """Mark of what the page shows, or of more once it is time to draw it."""
        resting = time.monotonic() < self._rested
        return self._drawn[0] if resting else self._shown.mark

    def report(self) -> str:
        """The page, drawn once for each mark."""
        with self._drawing:
            mark = self.mark
            if self._drawn[0] != mark:
                first, before = self._drawn[0] == 0, time.process_time()
                self._drawn = mark, self._shown.draw()
                # The first one loads what draws, which is not done again.
                rest = 0.0 if first else _REST * (time.process_time() - before)
                self._rested = time.monotonic() + rest
            return self._drawn[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that went away: the terminal shows the run."""


def _around() -> str:
    """Page that has the report in a frame, and draws it anew once there is more."""
    return _drawn("live.html", nonce=secrets.token_urlsafe(16), wait=_WAIT)


def _drawn(name: str, **said: object) -> str:
    environment = needed("jinja2").Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return str(environment.from_string(resources.files(__package__).joinpath(name).read_text("utf-8")).render(said))


class _Request(BaseHTTPRequestHandler):
    """Request of a browser."""

    server: Server
    timeout = _PATIENCE
    server_version, sys_version = "gossamer", ""

    def do_GET(self) -> None:
        """Answer whoever knows the token."""
        _, token, *rest = (*self.path.split("/"), "")
        if not self._from_here():
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "refused")
        elif not hmac.compare_digest(token.encode(), self.server.token.encode()):
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found")
        elif rest[0] == "report":
            self._answer(HTTPStatus.OK, _HTML, self.server.report())
        elif rest[0] == "state":
            self._answer(HTTPStatus.OK, _JSON, json.dumps({"mark": str(self.server.mark)}))
        elif rest[0] == "" and len(rest) > 1:
            self._answer(HTTPStatus.OK, _HTML, _around())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found")

    def _from_here(self) -> bool:
        """Whether the address was the owner's, and no other site's page asked."""
        own = f"{_HOST}:{self.server.server_port}"
        asked_by = self.headers.get("Origin", f"http://{own}")
        site = self.headers.get("Sec-Fetch-Site", "none")
        return self.headers.get_all("Host") == [own] and asked_by == f"http://{own}" and site in ("none", "same-origin")

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal shows the run."""


@contextmanager
def served_here(shown: ShownFolders | ShownParties, door: Door) -> Iterator[None]:
    """Have a browser find what is shown, by a thread of this process, until the block ends."""
    with Server(door, shown) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


# A process of its own for what a command does, so that nothing of it holds the command up

_NICENESS = 10  # what is shown may come later, what is computed may not
_ENDING = 5.0  # seconds for it to end


@contextmanager
def served_beside(shown: ShownFolders, door: Door) -> Iterator[str]:
    """Address at which a browser finds the report, until the block or this process ends."""
    address = door.address
    ours, theirs = Pipe()
    process = get_context("spawn").Process(target=_serve, args=(door, shown, theirs), daemon=True)
    with door.socket, theirs:  # the process has its own: of ours the port would stay taken, and the end be unheard
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it is deaf to that from its beginning
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield address
    finally:
        ours.close()
        process.join(_ENDING)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(door: Door, shown: ShownFolders, command: Connection) -> None:
    """Serve until the other end of ``command`` is closed, as it also is when that process is killed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a terminal's Ctrl-C is for the command, and this ends with it
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICENESS)
    server = Server(door, shown)

    def wait() -> None:
        command.poll(None)
        server.shutdown()

    threading.Thread(target=wait, daemon=True).start()
    with server:
        server.serve_forever(0.1)
