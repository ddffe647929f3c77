"""Work of processes that are forked from this one, and have all that it has without a copy, until time is over."""

from __future__ import annotations

import gc
import math
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from time import monotonic
from typing import Any, TypeVar

from gossamer.errors import CallerError

Result = TypeVar("Result")
_WORK: list[Callable[[], Any]] = []


def forked(work: Sequence[Callable[[], Result]], jobs: int, until: float = math.inf) -> Iterator[tuple[int, Result]]:
    """Yield places and results of ``work`` as they are done, by so many processes, or threads where no fork is safe.

    Parameters
    ----------
    work : sequence of callable
        The pieces, of which nothing but results is pickled.
    jobs : int
        Processes at work.
    until : float
        Moment of `time.monotonic` at which they end where they are.

    Raises
    ------
    CallerError
        If a process was killed from outside, as systems do that have no memory left.
    """
    others, deaf = {*active_children()}, (signal.SIGINT, signal.SIG_IGN)  # which is for this process
    _WORK[:] = work
    gc.freeze()  # to look for cycles would write to what is shared
    fork, left = sys.platform == "linux", None if until == math.inf else max(until - monotonic(), 0.0)
    pool = ProcessPoolExecutor(jobs, get_context("fork"), signal.signal, deaf) if fork else ThreadPoolExecutor(jobs)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which no process asks for anything
            asked = [pool.submit(_piece, place) for place in range(len(work))]
        yield from (one.result() for one in as_completed(asked, left))
    except TimeoutError:
        if monotonic() < until:
            raise
    except BrokenProcessPool:
        raise CallerError("a process was killed, as happens where memory runs out; name fewer observers") from None
    finally:
        for process in {*active_children()} - others:
            process.kill()
        pool.shutdown(cancel_futures=True)
        gc.unfreeze()
        _WORK.clear()


def _piece(place: int) -> tuple[int, Any]:
    return place, _WORK[place]()
