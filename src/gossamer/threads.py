"""Work shared by a few kept threads, whose number has no influence on what comes out.

Results come in the order of what was asked for, each made by one thread. So whatever is summed over them depends
neither on cores nor on load.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

_WORKERS: dict[int, ThreadPoolExecutor] = {}
"""Threads by how many there are, kept: starting them takes as long as a small batch."""
_AT_WORK = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WORKERS.clear)  # threads stay behind


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def replaced(values: MutableMapping[str, Any], **others: Any) -> Iterator[None]:
    """Have other values in a mapping, such as the environment of processes, for as long as the block takes."""
    before = {name: values[name] for name in others if name in values}
    values.update(others)
    try:
        yield
    finally:
        for name in others:
            values.pop(name, None)
        values.update(before)


def in_order(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """``function`` of each item, in the order of the items, by up to ``threads`` threads, of which this is one."""
    threads = 1 if getattr(_AT_WORK, "here", False) else min(threads, len(items))
    return map(function, items) if threads <= 1 else _shared(function, items, _workers(threads - 1))


_AHEAD = 32
"""Items that threads are given at once: what is done waits in memory for those before it."""


def _shared(function: Callable[[Item], Result], items: Sequence[Item], workers: ThreadPoolExecutor) -> Iterator[Result]:
    for start in range(0, len(items), _AHEAD):
        yield from _some(function, items[start : start + _AHEAD], workers)


def _some(function: Callable[[Item], Result], items: Sequence[Item], workers: ThreadPoolExecutor) -> Iterator[Result]:
    """Others begin with the second item; this thread with the first, and then takes the last that nobody has begun."""
    asked = [workers.submit(function, item) for item in items[1:]]
    try:
        own = {0: function(items[0])}
        last = len(items) - 1
        for number in range(len(items)):
            while number not in own and last >= number and not asked[number - 1].done():
                if asked[last - 1].cancel():
                    own[last] = function(items[last])
                last -= 1
            yield own.pop(number) if number in own else asked[number - 1].result()
    finally:  # whoever is interrupted waits at the end of the process for all that threads have still to do
        for one in asked:
            one.cancel()


def _workers(count: int) -> ThreadPoolExecutor:
    if count not in _WORKERS:
        _WORKERS[count] = ThreadPoolExecutor(count, thread_name_prefix="gossamer", initializer=keep_to_this)
    return _WORKERS[count]


def keep_to_this() -> None:
    """Spread no work of this thread over others, which may all be waiting for it, or have no core of their own."""
    _AT_WORK.here = True


_BLAS_LOCK = threading.Lock()
_BEFORE: list[tuple[Any, int]] = []
"""Libraries that have one thread now, and how many before; empty while nobody asks for one."""
_ASKING = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS computes with one thread inside, in the whole process, and as before outside: its rounding depends on it."""
    _ask_for_one_blas_thread(1)
    try:
        yield
    finally:
        _ask_for_one_blas_thread(-1)


def _ask_for_one_blas_thread(change: int) -> None:
    """Let the first who asks change the number of threads, and the last who no longer does put it back."""
    global _ASKING
    with _BLAS_LOCK:
        _ASKING += change
        if _ASKING == 1 and change == 1:
            _BEFORE[:] = [(library, library.num_threads) for library in _blas() if library.num_threads != 1]
            for library, _ in _BEFORE:
                library.set_num_threads(1)
        elif _ASKING == 0:
            for library, count in _BEFORE:
                library.set_num_threads(count)
            _BEFORE.clear()


@cache
def _blas() -> list[Any]:
    """Return the BLAS libraries that this process has loaded; looking for them takes milliseconds."""
    import scipy.linalg.cython_blas  # noqa: F401  (what kernels call)
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)
