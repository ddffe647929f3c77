"""The compiled loop of a population: virtual time, a heap of events, latencies, charges and answers of data sides.

It is what `simulator.Simulator` does, for nodes whose state is numbers in arrays. Which node does what when an event
comes is its algorithm's, as a compiled `HANDLER`. Everything that is drawn or computed is by the loops that a
simulation of Python nodes calls, in the same order: events come by time, ties by the order of their scheduling.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import boolean, float32, float64, int32, int64, types, uint64

from gossamer.algorithms.population import (
    ANSWER,
    COMPLETED,
    COMPUTE,
    ELAPSED,
    FACTS,
    FINISH,
    HANDLER,
    KINDS,
    MESSAGE,
    MODEL,
    NUMBERS,
    RECEIVED,
    REFUSED,
    SEND,
    STARTED,
    VECTORS,
    tuple_of,
)
from gossamer.machine_code import compiled
from gossamer.philox import lognormal
from gossamer.sides.answers import answer

NOW, SETTLING = range(2)
"""Places of times of the clock: of the newest event, and when nobody worked any more."""
SIZE, SCHEDULED, UPDATES, EVENTS, WORKING, UNDER_WAY, MESSAGES, BYTES, CHARGES, AGES, NOTES = range(11)
"""Places of counts of the whole run, and of how much is in buffers."""
ASKED, CHARGED, MOST, TERMS, BEFORE, WRONG, AGE, AGED, SENT, SENT_BYTES, WATCHED, FINISHED = range(12)
"""Places of counts of a node: computations it asked for, charges, the most of them, the row of its terms; of its
computation, updates of all before it and gradients that were not finite; staleness of its updates in all and how many
they are, messages and bytes, whether what it does is noted, and the number of the reason why it ended."""
SINCE, TOOK, COMPUTING = range(3)
"""Places of times of a node: when its computation began, the seconds it takes, and those of all that were completed."""
TIME, ORDER, WHOSE, WHAT = range(4)
"""Places of an entry of the heap: bits of the time, order of scheduling, node and event, sender and message."""
EMPTY, PAUSED, REACHED, LATER, FULL = range(5)
"""Reasons why the loop returns: nothing is left that anybody waits for, so many events, an update, a time, the heap."""
AT_ONCE = 2
"""Entries of the heap that an event adds at most, beside a node's deadline."""

_LINES, _TABLE, _KEYS = int64[::1], float64[:, ::1], uint64[:, ::1]
_SPEEDS = tuple_of((_KEYS, float64[::1], float64, float64))
_SIDES = tuple_of((_KEYS, _KEYS, _TABLE, _LINES, _LINES))


def _fixed(kind: types.Type, dimensions: int = 1) -> types.Array:
    return types.Array(kind, dimensions, "C", readonly=True)


_LOSS = tuple_of((int64, _fixed(float64), _fixed(float64)))
_uniform: Any = types.UniTuple
_DATA = tuple_of(
    (
        tuple_of((_LOSS, tuple_of((int64, int64, boolean)), _fixed(float64), float64)),
        _uniform(_fixed(float32, 2), 1),
        tuple_of((_fixed(float32), _fixed(int32), _fixed(int64))),
    )
)
_LINKS = tuple_of((float64, _LINES))
_UNTIL = tuple_of((int64, int64, float64, float64, float64))
_NOTES = tuple_of((int64[:, ::1], float64[:, ::1]))
_BUFFERS = tuple_of((_LINES, _NOTES))
_SIGNATURE = int64(
    *(float64[::1], _LINES, int64[:, ::1], NUMBERS, _TABLE, VECTORS, NUMBERS),
    *(FACTS, _SPEEDS, _SIDES, _DATA, _LINKS, HANDLER, _UNTIL, _BUFFERS),
)
_compiled = compiled()


@_compiled
def _copy(heap, one, other):  # type: ignore[no-untyped-def]
    for field in range(4):
        heap[other, field] = heap[one, field]


@_compiled
def push(heap, counts, time, whose, what):  # type: ignore[no-untyped-def]
    """Schedule an event; bits of times of at least 0 are in the order of the times."""
    place, bits, order = counts[SIZE], np.float64(time).view(np.int64), counts[SCHEDULED]
    counts[SIZE], counts[SCHEDULED] = place + 1, order + 1
    while place > 0:
        above = (place - 1) >> 2
        if heap[above, TIME] <= bits:  # of two at one time the earlier one has the lower order
            break
        _copy(heap, above, place)
        place = above
    heap[place, TIME], heap[place, ORDER], heap[place, WHOSE], heap[place, WHAT] = bits, order, whose, what


@_compiled
def _before(heap, one, other):  # type: ignore[no-untyped-def]
    first, second = heap[one, TIME], heap[other, TIME]
    return first < second or (first == second and heap[one, ORDER] < heap[other, ORDER])


@_compiled
def pop(heap, counts):  # type: ignore[no-untyped-def]
    """Take the next event out: whose and what."""
    whose, what = heap[0, WHOSE], heap[0, WHAT]
    counts[SIZE] -= 1
    last, place = counts[SIZE], 0
    while True:
        first = 4 * place + 1
        if first >= last:
            break
        least = first
        for child in range(first + 1, min(first + 4, last)):
            if _before(heap, child, least):
                least = child
        if not _before(heap, least, last):
            break
        _copy(heap, least, place)
        place = least
    _copy(heap, last, place)
    return whose, what


@_compiled
def begin(now, node, own, spent, model, found, speeds, sides, data, scratch, counts):  # type: ignore[no-untyped-def]
    """Begin a computation: charge it, draw, sum and release it; its seconds, or below 0 where no plan covers it."""
    keys, factors, location, spread = speeds
    sampling, noise, terms, starts, rows = sides
    objective, dense, sparse = data
    drawn, noises, state = scratch
    own[ASKED] += 1
    if own[CHARGED] >= own[MOST]:
        return -1.0
    own[CHARGED] += 1  # before anything is drawn
    counts[CHARGES] += 1
    wait = location
    if spread >= 0:
        wait = lognormal((keys[node, 0], keys[node, 1]), own[ASKED], location, spread, state)
    own[BEFORE], spent[SINCE], spent[TOOK] = counts[UPDATES], now, wait * factors[node]
    pair = (sampling[node, 0], sampling[node, 1]), (noise[node, 0], noise[node, 1])
    query, shard = terms[own[TERMS]], rows[starts[node] : starts[node + 1]]
    if dense[0].shape[0] > 0:
        own[WRONG] = answer(pair, own[CHARGED], query, shard, objective, dense, model, drawn, noises, found)
    else:
        own[WRONG] = answer(pair, own[CHARGED], query, shard, objective, sparse, model, drawn, noises, found)
    return spent[TOOK]


@compiled(_SIGNATURE, takes="the loop of populations to machine code, which takes about a minute")
def proceed(  # type: ignore[no-untyped-def]
    clock, counts, heap, nodes, times, vectors, numbers, facts, speeds, sides, data, links, handler, until, buffers
):
    """Let events happen; why it returns.

    Parameters
    ----------
    clock, counts, heap, nodes, times : ndarray
        State of the loop, by the places above: [2], [11], [entries, 4], [nodes, 12], [nodes, 3].
    vectors, numbers, facts, handler
        State of the algorithm's nodes, and its rules.
    speeds : tuple
        Keys of update times, factors of nodes, and location and spread of their logarithm; a spread below 0 is none.
    sides : tuple
        Keys of samples and of noise, terms of queries, and where the rows of each node begin, and they.
    data : tuple
        Objective, dense examples and sparse ones, as `answers.answer` takes them; one of the two is empty.
    links : tuple
        Seconds that a message takes, and bytes of each kind.
    until : tuple
        Most events; number of updates after which it returns; time beyond which nothing happens but the first event;
        seconds after which nobody is waited for once all have finished; and those until a node's deadline, or below 0.
    buffers : tuple
        Places for staleness; and for notes [many, 6] on events of nodes that are watched, and their times [many, 3].
    """
    latency, lengths = links
    most, updates, seconds, grace, deadline = until
    ages, (notes, moments) = buffers
    starts, widest = sides[3], 0
    for node in range(nodes.shape[0]):
        widest = max(widest, starts[node + 1] - starts[node])
    scratch = np.empty(widest, np.int64), np.empty(vectors.shape[2], np.float32), np.empty(7, np.uint64)
    asks, happened = np.empty(4, np.int64), 0
    while True:
        if counts[WORKING] == 0:
            if clock[SETTLING] < 0:
                clock[SETTLING] = clock[NOW]
            if counts[UNDER_WAY] == 0 or clock[NOW] - clock[SETTLING] > grace:
                return EMPTY
        if counts[SIZE] == 0:
            return EMPTY
        if happened == most or counts[AGES] == ages.size or counts[NOTES] == notes.shape[0]:
            return PAUSED
        if counts[SIZE] + AT_ONCE + 1 > heap.shape[0]:
            return FULL
        now = np.int64(heap[0, TIME]).view(np.float64)
        if now > seconds and happened > 0:
            return LATER
        whose, what = pop(heap, counts)
        clock[NOW] = now
        node, event, sender, message = whose // KINDS, whose % KINDS, what // KINDS, what % KINDS
        own, spent = nodes[node], times[node]
        counts[EVENTS] += 1
        happened += 1
        since, took, wrong, before = -1.0, 0.0, 0, counts[UPDATES]
        if event == COMPLETED:
            since, took, wrong = spent[SINCE], spent[TOOK], own[WRONG]
            spent[COMPUTING] += took
            spent[SINCE] = -1.0
            age = before - own[BEFORE]
            own[AGE] += age
            own[AGED] += 1
            ages[counts[AGES]] = age
            counts[AGES] += 1
            counts[UPDATES] = before + 1
        elif event == RECEIVED:
            counts[UNDER_WAY] -= 1
        elif event == STARTED and deadline >= 0:
            push(heap, counts, now + deadline, node * KINDS + ELAPSED, 0)
        asks[COMPUTE], asks[FINISH], asks[SEND], asks[MESSAGE] = 0, 0, -1, 0
        handler(vectors, numbers, facts, event, node, sender, message, asks)
        if asks[COMPUTE]:
            model, found = vectors[node, MODEL], vectors[node, ANSWER]
            wait = begin(now, node, own, spent, model, found, speeds, sides, data, scratch, counts)
            if wait >= 0:
                push(heap, counts, now + wait, node * KINDS + COMPLETED, 0)
            else:
                push(heap, counts, now, node * KINDS + REFUSED, 0)
        if asks[SEND] >= 0:
            length = lengths[asks[MESSAGE]]
            own[SENT] += 1
            own[SENT_BYTES] += length
            counts[MESSAGES] += 1
            counts[BYTES] += length
            counts[UNDER_WAY] += 1
            push(heap, counts, now + latency, asks[SEND] * KINDS + RECEIVED, node * KINDS + asks[MESSAGE])
        if asks[FINISH] and not own[FINISHED]:
            own[FINISHED] = asks[FINISH]
            counts[WORKING] -= 1
        if own[WATCHED] or wrong:
            place = counts[NOTES]
            notes[place, 0], notes[place, 1], notes[place, 2] = node, event, sender if event == RECEIVED else -1
            notes[place, 3], notes[place, 4], notes[place, 5] = message, asks[SEND], wrong
            moments[place, 0], moments[place, 1], moments[place, 2] = now, since, took
            counts[NOTES] += 1
        if counts[UPDATES] == updates and counts[UPDATES] != before:
            return REACHED
