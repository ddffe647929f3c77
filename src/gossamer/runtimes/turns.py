"""Turns of the coordinator and the shards of a simulation: the order of events, and what each says, as data."""

from __future__ import annotations

import heapq
import io
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray, IndexArray
from gossamer.runtimes.computations import Counters
from gossamer.vectors import Confined, Masked, Public, Released, Vector

# The order of events that several shards of a simulation let happen: that of one process, ties included.
#
# One process orders events by time, and ties by who was scheduled first. A shard cannot count what others schedule, but
# it can say who scheduled: let an event's *cause* be the event in which it was scheduled, and its *rank* how many
# events of the same time happened before it, anywhere. Then
#
#     (its time, its cause's time, its cause's rank, how many its cause had scheduled before)
#
# orders events as one process does. *Proof.* One process schedules while it handles one event after the other, so of
# two events the one whose cause was handled earlier was scheduled first, and among those of one cause the order is that
# of its effects. Which cause was earlier is said by its time, and at one time by its rank. What is there from the start
# has no cause: its cause's time is minus infinity, and its number the place among all that was there.
#
# A rank counts events of all shards. A shard counts its own while it goes; once all have reached the same moment,
# `ranked` says where events of several shards had one time, and what their ranks are. Until then no shard compares
# causes of two shards: what one sends another arrives later than that moment. A shard's own events keep their order
# under their final ranks, so heaps stay heaps. Where a moment lies between events of one time, ranks of the rest go on
# from there.

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


# Messages, states and ledgers on their way between the shards of one simulation.
#
# Objects are pickled without their vectors, which travel as matrices, one of each size: a pickle of thousands of small
# arrays would take longer than what was computed. Both ends are processes of one run and of one user, which trust each
# other with everything; nothing here is for peers.

_LABELS: tuple[type[Vector], ...] = (Public, Released, Masked, Confined)
_CODES = {label: code for code, label in enumerate(_LABELS)}


class Packed(NamedTuple):
    """Objects as bytes, and their vectors as matrices.

    Attributes
    ----------
    content : bytes
        The pickle.
    vectors : tuple of ndarray [vectors, size]
        Vectors by size and type.
    labels : tuple of bytes
        Label of each row.
    """

    content: bytes
    vectors: tuple[FloatArray, ...]
    labels: tuple[bytes, ...]


class _Packer(pickle.Pickler):
    """Puts a place in a matrix where there was a vector."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._groups: dict[tuple[int, str], int] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self.rows: list[list[Vector]] = []

    def persistent_id(self, obj: Any) -> tuple[int, int] | None:
        if type(obj) not in _CODES or type(obj.values) is not np.ndarray:
            return None
        place = self._places.get(id(obj))  # which nobody else gets: `rows` has it until all is packed
        if place is None:
            group = self._groups.setdefault((obj.values.size, obj.values.dtype.str), len(self.rows))
            if group == len(self.rows):
                self.rows.append([])
            place = self._places[id(obj)] = group, len(self.rows[group])
            self.rows[group].append(obj)
        return place


class _Unpacker(pickle.Unpickler):
    def __init__(self, packed: Packed) -> None:
        super().__init__(io.BytesIO(packed.content))
        self._vectors = [
            # Each with memory of its own: a view would keep the whole matrix as long as anybody has one of its rows.
            [_LABELS[code](row.copy()) for code, row in zip(codes, rows, strict=True)]
            for codes, rows in zip(packed.labels, packed.vectors, strict=True)
        ]

    def persistent_load(self, pid: tuple[int, int]) -> Vector:
        group, row = pid
        return self._vectors[group][row]


def packed(what: Any) -> Packed:
    """Return objects as they travel."""
    file = io.BytesIO()
    packer = _Packer(file)
    packer.dump(what)
    vectors = tuple(np.stack([vector.values for vector in rows]) for rows in packer.rows)
    labels = tuple(bytes(_CODES[type(vector)] for vector in rows) for rows in packer.rows)
    return Packed(file.getvalue(), vectors, labels)


def unpacked(found: Packed) -> Any:
    """Return the objects again; a vector that was in them twice is one vector in them."""
    return _Unpacker(found).load()


RECORD, RECEIPT = "record", "receipt"
"""Channels of notes: private logs, and what was charged."""
BEGUN, ENDED = 1, 2
"""Flags of an event in which a computation was begun, or completed."""


@dataclass(frozen=True)
class Parcel:
    """Messages from one shard to another.

    Attributes
    ----------
    times, causes, ranks, numbers : ndarray [messages]
        The arrivals' keys.
    content : Packed
        Senders, recipients and messages.
    """

    times: Times
    causes: Times
    ranks: IndexArray
    numbers: IndexArray
    content: Packed

    def ranked(self, final: Ranks) -> Parcel:
        """The parcel with final ranks of its causes."""
        if not final:
            return self
        pairs = zip(self.causes.tolist(), self.ranks.tolist(), strict=True)
        return replace(self, ranks=np.array([final_rank(time, rank, final) for time, rank in pairs], np.int64))


@dataclass(frozen=True)
class Orders:
    """Orders to a shard at the beginning of a window.

    Attributes
    ----------
    parcels : sequence of Parcel
        Messages that others have sent it.
    ranks : Ranks
        Final ranks of what it let happen in the last window.
    last : (float, int)
        The time of the last event of all shards, and how many there were of it.
    limit : float
        No event before this time is unknown to it, except those that follow from its own.
    """

    parcels: Sequence[Parcel] = ()
    ranks: Ranks = field(default_factory=dict)
    last: tuple[float, int] = (-math.inf, 0)
    limit: float = -math.inf


class Outlook(NamedTuple):
    """Outlook of a shard up to the limit of a window.

    Attributes
    ----------
    next : Key or None
        The next event's place.
    most : float
        Most computations that will be completed.
    horizon : float
        A time before which none is completed that has not begun.
    working_until : Bound or None
        A place before which some of its nodes may compute again for sure; None if that is beyond the limit.
    last_arrival : Key or None
        The last place at which a message arrives that was sent; looked for where nobody works any more.
    """

    next: Key | None
    most: float
    horizon: float
    working_until: Bound | None
    last_arrival: Key | None


@dataclass(frozen=True)
class Happened:
    """Account of what happened on a shard in a window.

    Attributes
    ----------
    times, nodes, flags : ndarray [events]
        Times, nodes and flags of its events in order: when, at which node, by number, and whether a computation was
        begun or completed.
    parcels : mapping of int to Parcel
        Messages that it sent, by shard.
    notes : sequence of tuple
        (place among its events, `RECORD` or `RECEIPT`, and the arguments of who hears of such).
    drawn : sequence of tuple
        (place among its events, arguments of `Timeline.add`).
    next : Key or None
        The next event's place, as far as it knows.
    working, under_way : int
        Nodes that may compute again; messages that it has sent or got, and that have not been received.
    counters : Counters
        Counters of all that it did so far.
    messages, bytes : int
        Sent by its nodes so far.
    finished : mapping of str to str
        Reason why nodes make no more updates; of those that have finished since the last window.
    now : float
        The time of its last event.
    """

    times: Times
    nodes: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int8]
    parcels: Mapping[int, Parcel]
    notes: Sequence[tuple[Any, ...]]
    drawn: Sequence[tuple[Any, ...]]
    next: Key | None
    working: int
    under_way: int
    counters: Counters
    messages: int
    bytes: int
    finished: Mapping[str, str]
    now: float


def parcel_of(sent: Sequence[tuple[Any, ...]]) -> Parcel:
    """Return messages as they travel: (time, cause, rank, number, sender, recipient, message) of each."""
    times, causes, ranks, numbers, senders, recipients, messages = zip(*sent, strict=True)
    content = packed(list(zip(senders, recipients, messages, strict=True)))
    return Parcel(np.array(times), np.array(causes), np.array(ranks, np.int64), np.array(numbers, np.int64), content)
