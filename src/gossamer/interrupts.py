"""Ctrl-C and SIGTERM, heard at every moment of a command.

A `KeyboardInterrupt` can get lost: raised in the middle of an import it leaves half a module, which whoever imports may
take for one that is not installed; raised in a destructor it is printed and forgotten; and code of others catches
everything. So in the middle of an import the process leaves at once, with one line, since nothing is being done yet;
and everywhere else the interrupt is raised, and raised again each second until something deals with it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

EXIT_CODE = 130
LINE = "gossamer: interrupted"

_AGAIN = 1.0
"""Seconds until an interrupt that nothing deals with is raised again."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class _State:
    """Facts about this process's command."""

    heard = False
    orderly = 0


def leave_at_once() -> None:
    """From now on have an interrupt end this process with one line; for the time before a command is there."""
    for number in _SIGNALS:
        signal.signal(number, _leave)


@contextmanager
def heard() -> Iterator[None]:
    """Have interrupts raise `KeyboardInterrupt` until it is dealt with, as long as the block runs."""
    _State.heard = False
    before = [(number, signal.signal(number, _interrupt)) for number in _SIGNALS]
    hook = sys.unraisablehook

    def unraisable(found: Any) -> None:
        if found.exc_type is KeyboardInterrupt:
            _raise_again(0.01)
        else:
            hook(found)

    sys.unraisablehook = unraisable
    try:
        yield
    finally:
        if _State.heard:
            _raise_again(0.0)
        sys.unraisablehook = hook
        for number, handler in before:
            signal.signal(number, handler)


@contextmanager
def orderly() -> Iterator[None]:
    """Have no interrupt leave at once, for a block that has to clean up behind it."""
    _State.orderly += 1
    try:
        yield
    finally:
        _State.orderly -= 1


@contextmanager
def heard_in_compilers() -> Iterator[None]:
    """Have an interrupt leave within half a second of a block in an import whose calls into C may take longer.

    Python runs a handler between two of its own steps, and a compiler makes large functions in one.
    """
    ours = signal.getsignal(signal.SIGINT) in (_leave, _interrupt) and hasattr(os, "set_blocking")
    if not ours or threading.current_thread() is not threading.main_thread():
        yield
        return
    told, tells = os.pipe()
    over = threading.Event()
    os.set_blocking(tells, False)

    def watch() -> None:
        while number := os.read(told, 1):
            # The handler may come first, and have the block left.
            if number[0] in _SIGNALS and not _State.orderly and not over.wait(0.3):
                _leave(number[0], None)
        os.close(told)

    threading.Thread(target=watch, name="interrupts", daemon=True).start()
    before = signal.set_wakeup_fd(tells)
    try:
        yield
    finally:
        over.set()
        signal.set_wakeup_fd(before)
        os.close(tells)


def was_heard() -> bool:
    """Whether an interrupt came since `heard`: an error that follows may come of it."""
    return _State.heard


def over() -> None:
    """Remind no more of an interrupt that was dealt with: to free what it has left may take longer than a second."""
    _raise_again(0.0)


def _leave(signum: int, frame: FrameType | None) -> NoReturn:
    os.write(2, f"{LINE}\n".encode())
    os._exit(EXIT_CODE)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    _State.heard = True
    if not _State.orderly and _imports(frame):
        _leave(signum, frame)
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, _remind)
        _raise_again(_AGAIN)
    raise KeyboardInterrupt


def _remind(signum: int, frame: FrameType | None) -> None:
    if not _is_dealt_with(sys.exc_info()[1]):
        raise KeyboardInterrupt


def _raise_again(after: float) -> None:
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, after, _AGAIN if after else 0.0)


def _is_dealt_with(error: BaseException | None) -> bool:
    """Whether ``error``, which is being handled, is an interrupt or came of one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error is not None


def _imports(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
        frame = frame.f_back
    return False
