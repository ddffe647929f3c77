"""Work spread over processes of this machine, each of which computes with one thread."""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from itertools import takewhile
from multiprocessing import active_children, get_context
from time import monotonic
from typing import Any, TypeVar

from gossamer.errors import CallerError
from gossamer.threads import replaced

Result = TypeVar("Result")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_INHERITED: list[Callable[[], Any]] = []


def results(
    work: Sequence[Callable[[], Result]],
    jobs: int,
    *,
    in_order: bool = True,
    inherited: bool = False,
    until: float = math.inf,
    fewer: str = "--jobs",
) -> Iterator[Result]:
    """Yield what each piece of ``work`` returns, computed by so many processes; by this one where ``jobs`` is 1.

    An interrupt ends the processes where they are, and so does the time.

    Parameters
    ----------
    work : sequence of callable
        The pieces.
    jobs : int
        Processes at work.
    in_order : bool
        Whether results come in the order of ``work``; otherwise as they are done.
    inherited : bool
        Whether processes are forked, and have the pieces and all that these need without a copy. Otherwise pieces are
        pickled, as results are. Where no fork is safe, outside Linux, this process computes them.
    until : float
        Moment of `time.monotonic` at which there are no more results, if some are not in order.
    fewer : str
        What to take fewer of where memory runs out.

    Raises
    ------
    CallerError
        If a process was killed from outside, as systems do that have no memory left.
    """
    if (jobs == 1 and until == math.inf) or (inherited and sys.platform != "linux"):
        yield from (piece() for piece in takewhile(lambda _: monotonic() < until, work))
        return
    others, jobs = {*active_children()}, min(jobs, max(1, len(work)))
    pieces: Sequence[Callable[[], Result]] = work
    if inherited:
        _INHERITED[:] = work
        pieces = [partial(_piece, place) for place in range(len(work))]
        gc.freeze()  # a search for cycles would write to what is shared, and so copy it
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork" if inherited else "spawn")) as pool:
        asked: list[Future[Result]] = []
        try:
            with _deaf_children(), replaced(os.environ, **dict.fromkeys(_THREADS, "1")):  # each takes no other's cores
                for piece in pieces:
                    asked.append(pool.submit(piece))
            left = None if until - monotonic() > 1e9 else max(until - monotonic(), 0.0)  # no lock waits longer
            yield from (found.result() for found in (asked if in_order else as_completed(asked, left)))
        except BrokenProcessPool:
            raise CallerError(
                f"one of {jobs} processes was killed, as happens where memory runs out; take fewer {fewer}"
            ) from None
        except (KeyboardInterrupt, GeneratorExit, TimeoutError) as error:  # what they are at takes longer
            if not all(future.done() for future in asked):
                for process in {*active_children()} - others:
                    # A forked one may have this one's handlers, which it would come to late.
                    process.kill() if inherited else process.terminate()
            if not isinstance(error, TimeoutError) or monotonic() < until:
                raise
        finally:
            pool.shutdown(cancel_futures=True)
            if inherited:
                gc.unfreeze()
                _INHERITED.clear()


def _piece(place: int) -> Any:
    return _INHERITED[place]()


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Start processes that leave an interrupt from the keyboard to this one, which ends them, from their beginning."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads beside a fork, which ask it for nothing
            yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
