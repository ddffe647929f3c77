"""The server of a live page, which answers its owner's browser and nobody else.

It listens on the loopback address alone. Whoever asks has to know a token, which is in the address that the owner is
told; and since pages of other sites can make a browser ask too, the host has to be named as the owner was told it, and
requests that other origins cause are refused.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from gossamer.report.libraries import jinja2
from gossamer.report.live_page import LivePage

HOST = "127.0.0.1"
"""The only address that is listened on."""
_PATIENCE = 10.0  # seconds for a request to come whole
_EVERY = 2.0  # seconds between two drawings, at least
_COST = 4.0  # and so many times the processor time of a drawing
_HTML, _JSON = "text/html; charset=utf-8", "application/json"
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "SAMEORIGIN",
}


class LiveServer(ThreadingHTTPServer):
    """Server of one page.

    Parameters
    ----------
    listening : socket
        That takes its connections.
    token : str
        Known by whoever may see the page.
    page : LivePage
        What is shown.
    wait : int
        Milliseconds until a browser looks again.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, listening: socket.socket, token: str, page: LivePage, wait: int) -> None:
        address = listening.getsockname()
        super().__init__(address, _Request, bind_and_activate=False)
        self.socket.close()
        self.socket, self.server_address, self.server_port = listening, address, address[1]
        self.token, self.wait = token, wait
        self._page = page
        self._drawing = threading.Lock()
        self._drawn: tuple[str, str] | None = None
        self._next = 0.0

    @property
    def mark(self) -> str:
        """Mark of the report that `report` would give: another one than before only when it is time to draw it."""
        early = self._drawn is not None and time.monotonic() < self._next
        return self._drawn[0] if early and self._drawn is not None else self._page.mark()

    def report(self) -> str:
        """The page, drawn once for all who ask."""
        with self._drawing:
            mark = self.mark
            if self._drawn is None or self._drawn[0] != mark:
                self._drawn = mark, self._draw() if mark else _words(self._page.nothing)
            return self._drawn[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away: the terminal shows the run."""

    def _draw(self) -> str:
        # Both take seconds to load, and only once somebody looks.
        from gossamer.report.page import html

        before = time.process_time()
        try:
            return html(self._page.page())
        except Exception as error:  # files of another version, say: a page that fails must go on, as the run does
            return _words(f"There is nothing that can be shown: {error}")
        finally:
            self._next = time.monotonic() + max(_EVERY, _COST * (time.process_time() - before))


def _words(text: str) -> str:
    """Page that only says something."""
    page = "<!doctype html><html lang=en><title>Nothing yet</title><p>{{ text }}</p></html>"
    return str(jinja2().Environment(autoescape=True).from_string(page).render(text=text))


def _around(wait: int) -> str:
    """Page that has the report in a frame, and draws it anew once there is more."""
    environment = jinja2().Environment(autoescape=True)
    template = environment.from_string(resources.files(__package__).joinpath("live.html").read_text("utf-8"))
    return str(template.render(nonce=secrets.token_urlsafe(16), wait=wait))


class _Request(BaseHTTPRequestHandler):
    """Request of a browser."""

    server: LiveServer
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
            self._answer(HTTPStatus.OK, _JSON, json.dumps({"shown": self.server.mark}))
        elif rest[0] == "" and len(rest) > 1:
            self._answer(HTTPStatus.OK, _HTML, _around(self.server.wait))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "not found")

    def _from_here(self) -> bool:
        """Whether the address was the owner's, and no other site's page asked."""
        own = f"{HOST}:{self.server.server_port}"
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
