"""How work is cut into pieces and spread over threads. Only `threads` is free of influence on rounding.

A piece is some examples of one node (or of a few nodes under ``vmap``), small enough for the memory setting.
Pieces are the same whatever the number of threads, each is computed by one thread with torch set to one thread, and
their sums are added in order. So results depend neither on cores, nor on load, nor on OMP_NUM_THREADS.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gossamer.arrays import IndexArray

Item = TypeVar("Item")
Result = TypeVar("Result")


class Piece(NamedTuple):
    """Which examples of which nodes are computed in one go."""

    nodes: list[int]
    indices: list[IndexArray]


def available_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Torch computes with one thread inside, as before outside."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def without_subnormals(wanted: bool) -> Iterator[None]:
    """This thread takes numbers below the normal ones of their type for zero, if that is wanted and it can."""
    wanted = wanted and torch.set_flush_denormal(True)
    try:
        yield
    finally:
        if wanted:
            torch.set_flush_denormal(False)


_WORKERS: dict[int, ThreadPoolExecutor] = {}
"""Threads by how many there are, kept: starting them takes as long as a small batch."""
_AT_WORK = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_WORKERS.clear)  # threads stay behind


def in_order(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> Iterator[Result]:
    """``function`` of each item, in the order of the items, by up to ``threads`` threads, of which this is one."""
    threads = 1 if getattr(_AT_WORK, "here", False) else min(threads, len(items))
    with one_torch_thread():
        yield from map(function, items) if threads <= 1 else _shared(function, items, _workers(threads - 1))


def _shared(function: Callable[[Item], Result], items: Sequence[Item], workers: ThreadPoolExecutor) -> Iterator[Result]:
    """Others begin with the second item; this thread with the first, and then takes the last that nobody has begun."""
    asked = [workers.submit(function, item) for item in items[1:]]
    own = {0: function(items[0])}
    last = len(items) - 1
    for number in range(len(items)):
        while number not in own and last >= number and not asked[number - 1].done():
            if asked[last - 1].cancel():
                own[last] = function(items[last])
            last -= 1
        yield own.pop(number) if number in own else asked[number - 1].result()


def _workers(count: int) -> ThreadPoolExecutor:
    if count not in _WORKERS:
        _WORKERS[count] = ThreadPoolExecutor(count, thread_name_prefix="gossamer", initializer=_begin)
    return _WORKERS[count]


def _begin() -> None:
    """Work in this thread is not spread over others, which may all be waiting for it."""
    _AT_WORK.here = True
    torch.set_num_threads(1)


def pieces(batches: Sequence[IndexArray], examples: int, nodes: int) -> list[Piece]:
    """Every index of ``batches`` in exactly one piece, of at most ``examples`` examples (padding included).

    Parameters
    ----------
    batches : sequence of index arrays
        One a node; an empty batch is in no piece.
    examples : int
        The most in one piece; a longer batch is cut into even runs.
    nodes : int
        The most nodes in one piece.
    """
    found: list[Piece] = []
    for node, batch in enumerate(batches):
        runs = np.array_split(batch, -(-len(batch) // examples)) if len(batch) else []
        for run in runs:
            last = found[-1] if found else Piece([], [])
            longest = max(map(len, (*last.indices, run)))
            if 0 < len(last.nodes) < nodes and longest * (len(last.nodes) + 1) <= examples:
                last.nodes.append(node)
                last.indices.append(run)
            else:
                found.append(Piece([node], [run]))
    return found


def activations(module: nn.Module, call: Callable[[], object]) -> int:
    """How many numbers the innermost layers of ``module`` put out during ``call``."""
    counts: list[int] = []

    def count(_layer: nn.Module, _inputs: object, output: object) -> None:
        counts.append(output.numel() if isinstance(output, Tensor) else 0)

    innermost = [layer for layer in module.modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(count) for layer in innermost]
    try:
        call()
    finally:
        for hook in hooks:
            hook.remove()
    return sum(counts)
