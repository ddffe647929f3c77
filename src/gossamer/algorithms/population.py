"""Contract of nodes that are numbers in arrays, for runs of populations: what an algorithm hands to a compiled loop.

A *handler* is shown an event of one node, and writes down what that node asks for: at most one computation, one end and
one message, in the order of `Asks`. Of a node's vectors the loop knows two: it computes at `MODEL`, and the answer of
the data side is in `ANSWER` when the event `COMPLETED` comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import float32, float64, int64, types, uint64, void
from numba.extending import overload, register_jitable

from gossamer import vector_loops, vectors
from gossamer.algorithms.context import Context
from gossamer.algorithms.optimizer import ConstantRate, EpochRate
from gossamer.arrays import IndexArray
from gossamer.machine_code import compiled
from gossamer.vectors import Released

STARTED, COMPLETED, RECEIVED, REFUSED, ELAPSED = range(5)
"""Events of a node."""
COMPUTE, FINISH, SEND, MESSAGE = range(4)
"""Places of what a node asks for: whether it computes, the number of the reason why it ends or 0, to whom it sends or
-1, and which kind of message."""
MODEL, ANSWER = 0, 1
"""Places of a node's vectors."""
KINDS = 8
"""Kinds of events, and of messages, are fewer."""

VECTORS, NUMBERS = float32[:, :, ::1], int64[:, ::1]
tuple_of: Any = types.Tuple  # it has no types of its own
FACTS = tuple_of((int64[::1], int64[::1], uint64[:, ::1], float64[:, ::1]))
"""What a handler is told of a run: where the peers of each node begin, and they; keys of its draws; and learning rates,
by a row and the number of updates."""
HANDLER = types.FunctionType(void(VECTORS, NUMBERS, FACTS, int64, int64, int64, int64, int64[::1]))
"""(vectors [nodes, kinds, size], numbers [nodes, fields], facts, event, node, sender, message, what it asks for)."""


@dataclass(frozen=True)
class PopulationStart:
    """Nodes of a run before it.

    Attributes
    ----------
    vectors : int
        Vectors of a node; all are the initial model at first.
    numbers : ndarray [nodes, fields] of int64
        Numbers of each node.
    facts : tuple of ndarray
        As in `FACTS`.
    lengths : tuple of int
        Bytes of each kind of message.
    """

    vectors: int
    numbers: IndexArray
    facts: tuple[IndexArray, IndexArray, npt.NDArray[np.uint64], npt.NDArray[np.float64]]
    lengths: tuple[int, ...]


@dataclass(frozen=True)
class PopulationRules:
    """Rules of an algorithm for populations.

    Attributes
    ----------
    handle : compiled function
        A handler.
    reasons : tuple of str
        Reasons why a node ends, by number from 1; the first place is empty.
    start : callable
        (settings, context, most updates of a node) -> the nodes before the run.
    state : callable
        (vectors of a node, its numbers) -> its state, as its Python node has it.
    report : callable
        numbers -> figures of its own for the summary, as plain data.
    against : callable
        (settings, most learning rates of all nodes) -> the key of a setting that they do not cover, or None.
    """

    handle: Any
    reasons: tuple[str, ...]
    start: Callable[[Any, Context, int], PopulationStart]
    state: Callable[[Sequence[Released], IndexArray], Any]
    report: Callable[[IndexArray], Mapping[str, Any]]
    against: Callable[[Any, int], str | None]


MOST_RATES = 2**24
"""Most learning rates that are computed before a run."""
FloatMatrix = npt.NDArray[np.float64]


def is_steady(schedule: EpochRate) -> bool:
    """Whether a learning rate never changes."""
    return isinstance(schedule, ConstantRate) and schedule.warmup is None


def rates_of(schedule: EpochRate, epochs: FloatMatrix, updates: int) -> tuple[IndexArray, FloatMatrix]:
    """The row of each node, and rates [rows, updates] by the number of updates made, of nodes with such ``epochs``."""
    if is_steady(schedule):
        return np.zeros(len(epochs), np.int64), np.array([[schedule.at(0.0)]])
    lengths, rows = np.unique(epochs, return_inverse=True)
    table = [[schedule.at(made / length) for made in range(updates)] for length in lengths.tolist()]
    return rows.astype(np.int64), np.array(table, np.float64)


# Functions of vectors, as compiled rules call them: of arrays, by the loops that vectors of small models use, too.


@compiled()
def hold(values, square):  # type: ignore[no-untyped-def]
    """Have ``values``, whose squares have the sum ``square``, be `vectors.Vector.within` bounds."""
    if square <= vectors.LARGEST_VALUE * vectors.LARGEST_VALUE:
        return
    most = values.dtype.type(vectors.LARGEST_VALUE)
    for j in range(values.size):
        value = values[j]
        values[j] = values.dtype.type(0) if value != value else min(max(value, -most), most)


def _have_arrays(rule: Any, loop: Any) -> None:
    """Let compiled functions call a rule of vectors, with arrays, by the loop that it has."""

    @overload(rule)
    def of_arrays(*given):  # type: ignore[no-untyped-def]
        def made(*given):  # type: ignore[no-untyped-def]
            found = np.empty_like(given[0])
            hold(found, loop(*given, found))
            return found

        return made


_have_arrays(vectors.moved, vector_loops.shifted)
_have_arrays(vectors.stepped, vector_loops.stepped)
_have_arrays(vectors.parted, vector_loops.parted)


def as_it_stands(*rules: Any) -> None:
    """Let compiled functions call rules that are written in Python, in terms of numbers and functions of vectors."""
    for rule in rules:
        register_jitable(rule)
