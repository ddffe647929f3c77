"""The order of events that several shards of a simulation let happen: that of one process, ties included.

One process orders events by time, and ties by who was scheduled first. A shard cannot count what others schedule, but
it can say who scheduled: let an event's *cause* be the event in which it was scheduled, and its *rank* how many events
of the same time happened before it, anywhere. Then

    (its time, its cause's time, its cause's rank, how many its cause had scheduled before)

orders events as one process does. *Proof.* One process schedules while it handles one event after the other, so of two
events the one whose cause was handled earlier was scheduled first, and among those of one cause the order is that of
its effects. Which cause was earlier is said by its time, and at one time by its rank. What is there from the start has
no cause: its cause's time is minus infinity, and its number the place among all that was there.

A rank counts events of all shards. A shard counts its own while it goes; once all have reached the same moment,
`ranked` says where events of several shards had one time, and what their ranks are. Until then no shard compares causes
of two shards: what one sends another arrives later than that moment. A shard's own events keep their order under their
final ranks, so heaps stay heaps. Where a moment lies between events of one time, ranks of the rest go on from there.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray

Times = npt.NDArray[np.float64]
Key = tuple[float, float, int, float]
"""Place of an event: its time, its cause's time and rank, and its number among what that scheduled."""
Bound = tuple[float, ...]
"""A place between events; an event is before it if its key is less."""
Cause = tuple[float, int, float]
"""A key without its time."""
Ranks = dict[float, tuple[int, list[int]]]
"""Of each time that several shards had events of: the first rank of one of them, and the ranks of its events."""
NEVER: Bound = (math.inf,)
ALWAYS: Bound = (-math.inf,)


def after(key: Key) -> Bound:
    """Return the place right after an event."""
    return (*key[:3], key[3] + 0.5)


def in_order(times: Sequence[Times], ranks: Sequence[Ranks]) -> IndexArray:
    """Return the order of all shards' events, as places in their concatenation.

    Parameters
    ----------
    times : sequence of ndarray
        Times of each shard's events, in its order.
    ranks : sequence of mapping
        Ranks from `ranked`.
    """
    joined = np.concatenate(times)
    if not any(ranks):
        return np.argsort(joined, kind="stable")
    found = np.zeros(len(joined), np.int64)
    start = 0
    for own, of_times in zip(times, ranks, strict=True):
        for time, (_, values) in of_times.items():
            first = start + int(np.searchsorted(own, time))
            found[first : first + len(values)] = values
        start += len(own)
    return np.lexsort((found, joined))


def tied(times: Sequence[Times]) -> list[float]:
    """Return the times that events of several shards have, in order."""
    own = [np.unique(each) for each in times]
    joined = np.sort(np.concatenate(own))
    return [float(time) for time in np.unique(joined[1:][joined[1:] == joined[:-1]])]


def ranked(
    times: Sequence[float], causes: Sequence[Mapping[float, Sequence[Cause]]], first: Callable[[float], int]
) -> list[Ranks]:
    """Return the ranks of events that have one of ``times`` in common with others.

    Parameters
    ----------
    times : sequence of float
        Times in order.
    causes : sequence of mapping
        Causes of each shard: the causes of its events of these times, in its order.
    first : callable
        Number of events of a time happened before all of these.
    """
    found: list[Ranks] = [{} for _ in causes]
    for time in times:
        for shard, of_shard in enumerate(causes):
            if time in of_shard:
                found[shard][time] = (first(time), [])
        waiting: list[tuple[float, int, float, int, int]] = []
        count = first(time)
        for shard, of_shard in enumerate(causes):
            if of_shard.get(time):
                waiting.append((*_final(of_shard[time][0], found[shard]), shard, 0))
        heapq.heapify(waiting)
        while waiting:
            *_, shard, place = heapq.heappop(waiting)
            found[shard][time][1].append(count)
            count += 1
            if place + 1 < len(causes[shard][time]):
                # What it scheduled for this very time comes later, so the rank of that cause is known by now.
                heapq.heappush(waiting, (*_final(causes[shard][time][place + 1], found[shard]), shard, place + 1))
    return found


def final_rank(time: float, rank: int, ranks: Ranks) -> int:
    """Return the final rank of a cause of which a shard knows its own."""
    if (known := ranks.get(time)) is None or rank < known[0]:
        return rank
    return known[1][rank - known[0]]


def _final(cause: Cause, ranks: Ranks) -> Cause:
    return cause[0], final_rank(cause[0], cause[1], ranks), cause[2]


def last_moment(start: float, seconds: float) -> float:
    """Return the latest time on a clock that began at ``start`` of which runs say that it is within ``seconds``.

    Runs give virtual seconds to nine digits, and what they look at is what happened up to such a figure.
    """
    middle = start + seconds
    if not math.isfinite(middle):
        return middle
    margin = 2e-9 + 4 * math.ulp(middle)
    low, high = middle - margin, middle + margin
    while (middle := (low + high) / 2) not in (low, high):
        if round(middle - start, 9) <= seconds:
            low = middle
        else:
            high = middle
    return low
