"""A page of what goes on, served to a browser on this machine by a process of its own, which ends with this one.

Drawing takes whole seconds of a processor. So neither a run, nor a node whose answers have deadlines, does it: another
process does, which reads the files that they write anyway, and has to wait for them where processors are scarce. What
fails in it, fails there alone.
"""

from __future__ import annotations

import errno
import os
import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from threading import Thread

from gossamer.errors import DataError
from gossamer.report.libraries import check_installed
from gossamer.report.live_page import LivePage
from gossamer.report.live_server import HOST, LiveServer

_WAIT = 5_000  # milliseconds until the page looks again
_NICE = 15  # leaves a run 97 % of a processor that both want
_PATIENCE = 5.0  # seconds for the process to end


@contextmanager
def served(page: LivePage, port: int = 0, *, wait: int = _WAIT) -> Iterator[str]:
    """Address at which a browser finds ``page``, until the block ends, or this process does.

    Parameters
    ----------
    page : LivePage
        What is shown.
    port : int, optional
        Where to listen; by default at a free port.
    wait : int, optional
        Milliseconds until a browser looks again.

    Raises
    ------
    DataError
        If the packages that draw it are not installed, or nothing can listen there.
    """
    check_installed()
    token = secrets.token_urlsafe(24)
    with _listening(port) as listening:
        address = f"http://{HOST}:{listening.getsockname()[1]}/{token}/"
        process = get_context("spawn").Process(target=_serve, args=(listening, token, page, wait), daemon=True)
        # An interrupt from the keyboard is for this process, whose end is the end of that one.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield address
    finally:
        process.kill()
        process.join(_PATIENCE)


def _listening(port: int) -> socket.socket:
    """A socket that takes connections, before anybody answers them."""
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        if port and error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "is in use" if error.errno == errno.EADDRINUSE else "is not for you to listen at"
            raise DataError(
                f"--live-port: port {port} of {HOST} {why}; give another, or leave it out for a free one"
            ) from None
        raise DataError(f"--live: cannot listen on {HOST} ({error.strerror}); leave it out") from None


def _serve(listening: socket.socket, token: str, page: LivePage, wait: int) -> None:
    """Answer browsers, in the process for that, until the one that started it is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(OSError):
        os.nice(_NICE)
    server = LiveServer(listening, token, page, wait)
    Thread(target=_end_with_parent, args=(server,), daemon=True).start()
    server.serve_forever()


def _end_with_parent(server: LiveServer) -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    server.shutdown()
