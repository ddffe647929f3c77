"""The report of a run under way, shown to a browser on this machine and to nobody else.

It listens on the loopback address alone. Whoever asks has to know a token, which is in the address that the owner is
told; and since pages of other sites can make a browser ask too, the host has to be named as the owner was told it, and
requests that other origins cause are refused.
"""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path

from gossamer.errors import DataError
from gossamer.report.libraries import altair, jinja2, vl_convert
from gossamer.report.page import html, page_of_runs
from gossamer.report.records import read_record

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
_WAIT = 5_000  # milliseconds until the page looks again
_NOTHING = "<!doctype html><html lang=en><title>Nothing yet</title><p>Nothing has been evaluated yet.</p></html>"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Address at which a browser finds the report of the run that writes to ``folder``, until the block ends.

    Raises
    ------
    DataError
        If the packages that draw it are not installed, or nothing can listen here.
    """
    for library in (altair, jinja2, vl_convert):
        library()
    try:
        server = _Server(folder)
    except OSError as error:
        raise DataError(f"--live: cannot listen on {_HOST} ({error.strerror}); leave it out") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://{_HOST}:{server.server_port}/{server.token}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    """Server of one folder's report."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path) -> None:
        super().__init__((_HOST, 0), _Request)
        self.folder, self.token = folder, secrets.token_urlsafe(24)
        self._began = time.time_ns()
        self._drawing = threading.Lock()
        self._drawn: tuple[int, str] | None = None

    @property
    def evaluated(self) -> int:
        """Mark of the last evaluation; 0 before the first, when results of an earlier run may lie there."""
        try:
            mark = (self.folder / "summary.json").stat().st_mtime_ns
        except OSError:
            return 0
        return mark if mark >= self._began - _CLOCKS else 0

    def report(self) -> str:
        """The page, drawn once an evaluation."""
        with self._drawing:
            mark = self.evaluated
            if self._drawn is None or self._drawn[0] != mark:
                self._drawn = mark, self._draw() if mark else _NOTHING
            return self._drawn[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a browser that went away: the terminal shows the run."""

    def _draw(self) -> str:
        try:
            return html(page_of_runs([read_record(self.folder)]))
        except DataError:
            return _NOTHING


def _around() -> str:
    """Page that has the report in a frame, and draws it anew once there is more."""
    environment = jinja2().Environment(autoescape=True)
    template = environment.from_string(resources.files(__package__).joinpath("live.html").read_text("utf-8"))
    return str(template.render(nonce=secrets.token_urlsafe(16), wait=_WAIT))


class _Request(BaseHTTPRequestHandler):
    """Request of a browser."""

    server: _Server
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
            self._answer(HTTPStatus.OK, _JSON, json.dumps({"evaluated": str(self.server.evaluated)}))
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
