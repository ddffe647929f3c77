"""The report of what a command does, served by a process of its own, so that nothing of it holds the command up."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection

from gossamer.report.serving import Door, Server, Shown

_NICENESS = 10  # what is shown may come later, what is computed may not
_PATIENCE = 5.0  # seconds for it to end


@contextmanager
def served_beside(shown: Shown, door: Door) -> Iterator[str]:
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
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()


def _serve(door: Door, shown: Shown, command: Connection) -> None:
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
