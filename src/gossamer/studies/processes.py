"""Work spread over processes of this machine, each of which computes with one thread."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import TypeVar

from gossamer.errors import CallerError

Result = TypeVar("Result")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def results(work: Sequence[Callable[[], Result]], jobs: int, *, in_order: bool = True) -> Iterator[Result]:
    """Yield what each piece of ``work`` returns, computed by so many processes; by this one where ``jobs`` is 1.

    Pieces and their results are pickled. An interrupt ends the processes where they are.

    Parameters
    ----------
    work : sequence of callable
        The pieces.
    jobs : int
        Processes at work.
    in_order : bool
        Whether results come in the order of ``work``; otherwise as they are done.

    Raises
    ------
    CallerError
        If a process was killed from outside, as systems do that have no memory left.
    """
    if jobs == 1:
        yield from (piece() for piece in work)
        return
    others = {*active_children()}
    with ProcessPoolExecutor(min(jobs, max(1, len(work))), mp_context=get_context("spawn")) as pool:
        asked: list[Future[Result]] = []
        try:
            with _deaf_children(), _single_threaded():
                for piece in work:
                    asked.append(pool.submit(piece))
            yield from (found.result() for found in (asked if in_order else as_completed(asked)))
        except BrokenProcessPool:
            raise CallerError(
                f"one of {jobs} processes was killed, as happens where memory runs out; take fewer --jobs"
            ) from None
        except (KeyboardInterrupt, GeneratorExit):  # what they are at takes longer than anybody waits
            if not all(future.done() for future in asked):
                for process in {*active_children()} - others:
                    process.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Start processes that leave an interrupt from the keyboard to this one, which ends them, from their beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Start processes whose libraries take one thread each, so that they do not take each other's cores."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
