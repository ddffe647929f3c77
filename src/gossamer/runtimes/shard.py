"""A shard of a simulation: an ordinary simulator of some of the nodes, which hands on what it sends to others.

It is asked in turns (`shards`): told what others have sent it, it says what it sees coming; then it lets everything
happen that is before a given place in the order of all events.
"""

from __future__ import annotations

import heapq
import io
import math
import pickle
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappush
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray
from gossamer.errors import CallerError
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept, decode_snapshot, encode_snapshot, restore
from gossamer.runtimes.computations import Counters
from gossamer.runtimes.loop import Action
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.world import World
from gossamer.sides.ledger import MemoryLedger, Receipt
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Noting
from gossamer.vectors import Vector

# The order of events that several shards of a simulation let happen: that of one process, ties included.
#
# One process orders events by time, and ties by who was scheduled first. A shard cannot count what others schedule, but
# it can say who scheduled: let an event's *cause* be the event in which it was scheduled, and its *rank* how many
# events of the same time happened before it, anywhere. Then
#
#     (its time, (its cause's time, its cause's rank, how many its cause had scheduled before))
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
Cause = tuple[float, int, float]
"""Order of an event among those of its time: its cause's time and rank, and its number among what that scheduled."""
Key = tuple[float, Cause]
"""Place of an event, which begins its entry in the heap of a loop."""
Bound = tuple[float] | Key
"""A place between events; an event is before it if its key is less."""
Ranks = dict[float, tuple[int, list[int]]]
"""Of each time that several shards had events of: the first rank of one of them, and the ranks of its events."""
NEVER: Bound = (math.inf,)
ALWAYS: Bound = (-math.inf,)


def after(key: Key) -> Bound:
    """Return the place right after an event."""
    time, (cause, rank, number) = key
    return time, (cause, rank, number + 0.5)


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
                waiting.append((*final(of_shard[time][0], found[shard]), shard, 0))
        heapq.heapify(waiting)
        while waiting:
            *_, shard, place = heapq.heappop(waiting)
            found[shard][time][1].append(count)
            count += 1
            if place + 1 < len(causes[shard][time]):
                # What it scheduled for this very time comes later, so the rank of that cause is known by now.
                heapq.heappush(waiting, (*final(causes[shard][time][place + 1], found[shard]), shard, place + 1))
    return found


def final(cause: Cause, ranks: Ranks) -> Cause:
    """Return a cause of which a shard knows its own rank with its final one."""
    time, rank, number = cause
    if (known := ranks.get(time)) is None or rank < known[0]:
        return cause
    return time, known[1][rank - known[0]], number


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


# Messages, states and ledgers on their way between the shards of one simulation are pickled. Both ends are processes of
# one run and of one user, which trust each other with everything; nothing here is for peers.


class _Packer(pickle.Pickler):
    """Writes the numbers of vectors as bytes: an array's own pickle takes longer than what was computed."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Vector) or type(obj.values) is not np.ndarray:
            return NotImplemented
        return _vector, (type(obj), obj.values.dtype.str, obj.values.tobytes())


def _vector(label: type[Vector], dtype: str, content: bytes) -> Vector:
    return label(np.frombuffer(content, dtype).copy())


def packed(what: Any) -> bytes:
    """Return objects as they travel; a vector that is in them twice is one vector in what is `unpacked`."""
    file = io.BytesIO()
    _Packer(file, protocol=pickle.HIGHEST_PROTOCOL).dump(what)
    return file.getvalue()


def unpacked(found: bytes) -> Any:
    """Return the objects again."""
    return pickle.loads(found)


RECORD, RECEIPT, SPAN = "record", "receipt", "span"
"""Channels of notes: private logs, what was charged, and what is drawn in the timeline."""
BEGUN, ENDED = 1, 2
"""Flags of an event in which a computation was begun, or completed."""


class Parcel(NamedTuple):
    """Messages from one shard to another.

    Attributes
    ----------
    keys : sequence of Key
        The arrivals' places.
    content : bytes
        Senders, recipients and messages.
    """

    keys: Sequence[Key]
    content: bytes

    def ranked(self, ranks: Ranks) -> Parcel:
        """The parcel with final ranks of its causes."""
        return self._replace(keys=[(time, final(cause, ranks)) for time, cause in self.keys]) if ranks else self


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
        (place among its events, channel, and the arguments of who hears of such).
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
    next: Key | None
    working: int
    under_way: int
    counters: Counters
    messages: int
    bytes: int
    finished: Mapping[str, str]
    now: float


_MOST_AHEAD = 1_000  # computations of one node that are looked ahead at


@dataclass
class _Drawn(Kept):
    """Stands in for the timeline, whose spans depend on the order of all shards' events."""

    places: dict[str, int]
    add: Callable[..., None]


class ShardSimulator(Simulator):
    """A simulator of the nodes of one shard.

    Parameters
    ----------
    nodes : mapping of str to Node
        All nodes of the run, by name, in the order of their numbers.
    computer : Pool
        The data sides of its own.
    world : World
        World without servers, and with links that are reliable.
    homes : sequence of int
        The shard of each node; those of one shard follow each other.
    number : int
        Number of this shard.
    """

    changing = (*Simulator.changing, "_cause", "_rank", "_child", "_computing")

    def __init__(
        self, nodes: Mapping[str, Node], computer: Pool, world: World, homes: Sequence[int], number: int
    ) -> None:
        self._homes, self._number = dict(zip(nodes, homes, strict=True)), number
        self._cause, self._rank, self._child = -math.inf, 0, 0  # of what is scheduled now
        self._sent: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
        self._done: list[Key] = []
        self._notes: list[tuple[Any, ...]] = []
        self._last = (-math.inf, 0)
        self._computing: set[str] = set()
        self._told_finished = 0
        self._pool = computer
        super().__init__(nodes, computer, world, record=partial(self.note, RECORD))
        for name in [name for name, home in self._homes.items() if home != number]:
            del self.nodes[name], self.activity.counts[name]
        self._working &= self.nodes.keys()
        drawn: Any = _Drawn(self.activity.timeline.places, partial(self.note, SPAN))
        self.activity.timeline = drawn

    # Turns

    def deliver(self, orders: Orders) -> Outlook:
        """Begin a window: take what others have sent, and say what is to come before its limit."""
        self._rerank(orders.ranks)
        for parcel in orders.parcels:
            self._take(parcel)
        self._done, self._notes, self._last = [], [], orders.last
        return self._outlook(orders.limit)

    def reach(self, bound: Bound) -> Happened:
        """Let everything happen that is before a place."""
        heap, asked, counters = self._heap, self._computations.asked, self.counters
        names: list[str] = []
        flags: list[int] = []
        at = math.nan
        while heap and heap[0] < bound:
            time, order, _, name, _ = heap[0]
            self._rank = self._rank + 1 if time == at else self._last[1] if time == self._last[0] else 0
            at = self._cause = time
            self._child = 0
            self._done.append((time, order))
            names.append(name)
            before, updates = asked(name), counters.updates
            self.step()
            begun, ended = asked(name) - before, counters.updates - updates
            if begun or ended:
                self._check_turns(name, begun, ended)
            flags.append(begun * BEGUN + ended * ENDED)
        return self._happened(names, flags)

    def causes(self, times: Sequence[float]) -> dict[float, list[Cause]]:
        """Return the causes of the window's events of each of these times, in order."""
        own = [key[0] for key in self._done]
        found = {}
        for time in times:
            if keys := self._done[bisect_left(own, time) : bisect_right(own, time)]:
                found[time] = [order for _, order in keys]
        return found

    def completions(self, bound: Bound) -> list[Key]:
        """Return the places of computations that have begun and are completed before a place."""
        completes = self._computations.completes
        return [(time, order) for time, order, action, *_ in self._before(bound) if completes(action)]

    def end(self, reason: str, now: float) -> Happened:
        """Tell its nodes that the run ends here."""
        self._done, self._notes, self.now = [], [], now
        self.stop(reason)
        return self._happened([], [])

    def gathered(self) -> bytes:
        """Return states, counts of activity and charges of its nodes, in their order."""
        states = [node.state for node in self.nodes.values()]
        counts = [self.activity.counts[name] for name in self.nodes]
        ledgers = {ledger.owner: ledger for ledger in self._pool.ledgers if isinstance(ledger, MemoryLedger)}
        charged = {owner: (ledger.counts, ledger.releases) for owner, ledger in ledgers.items()}
        return packed((states, counts, charged))

    # Snapshots

    def kept(self) -> bytes:
        """Return its state as bytes, for `set_back` of another one of the same.

        Between two windows: what happened in the last one was told.

        Raises
        ------
        TypeError, SpecError
            If it cannot be kept.
        """
        assert not self._sent, "between two windows all was handed on"
        return b"".join(encode_snapshot(self))

    def set_back(self, kept: bytes) -> None:
        """Be as the shard was that was `kept`."""
        restore(self, decode_snapshot(kept, self))

    def after_restore(self) -> None:
        super().after_restore()
        self._told_finished = len(self.finished)

    # What it knows

    def _outlook(self, limit: float) -> Outlook:
        working, computations = self._working, self._computations
        first: dict[str, Key] = {}
        most = 0.0
        for time, order, action, name, _ in self._before((limit,)):
            most += computations.completes(action)
            if name in working and not (name in first and first[name] < (time, order)):
                first[name] = time, order
        horizon = math.inf
        for name, key in first.items():
            further, end = 0, key[0] + computations.ahead(name, 0)
            horizon = min(horizon, end)
            while end < limit and most < math.inf:
                further += 1
                most = most + 1 if further < _MOST_AHEAD else math.inf
                end += computations.ahead(name, further)
        until: Bound | None = max(first.values(), default=ALWAYS)
        if len(first) < len(working):
            until = None
        return Outlook(self._next, most, horizon, until, None if working else self._last_arrival())

    def _before(self, bound: Bound) -> list[tuple[Any, ...]]:
        """Entries of the heap that are before a place, in no order."""
        heap, found, places = self._heap, [], [0]
        while places:
            place = places.pop()
            if place < len(heap) and heap[place] < bound:
                found.append(heap[place])
                places += (2 * place + 1, 2 * place + 2)
        return found

    def _last_arrival(self) -> Key | None:
        arrives = self._post.arrives
        return max(((time, order) for time, order, action, *_ in self._heap if arrives(action)), default=None)

    @property
    def _next(self) -> Key | None:
        return self._heap[0][:2] if self._heap else None

    def _happened(self, names: Sequence[str], flags: Sequence[int]) -> Happened:
        numbers = self._numbers
        sent = {home: zip(*messages, strict=True) for home, messages in self._sent.items()}
        parcels = {home: Parcel(keys, packed(content)) for home, (keys, content) in sent.items()}
        self._sent.clear()
        return Happened(
            np.array([key[0] for key in self._done]),
            np.array([numbers[name] for name in names], np.int32),
            np.array(flags, np.int8),
            parcels,
            self._notes,
            self._next,
            len(self._working),
            self._post.under_way,
            replace(self.counters),
            self.messages,
            self.bytes,
            self._finished(),
            self.now,
        )

    def _finished(self) -> dict[str, str]:
        """Reasons of nodes that have finished since it was asked last."""
        found = dict(islice(self.finished.items(), self._told_finished, None))
        self._told_finished = len(self.finished)
        return found

    # Order, and messages to and from others

    def _schedule(self, time: float, action: Action, name: str, what: Any) -> None:
        self._scheduled += 1
        self._child += 1
        home = self._homes[name]
        if home == self._number:
            heappush(self._heap, (time, (self._cause, self._rank, self._child), action, name, what))
        elif what is not None:  # otherwise it is the beginning of another shard's node
            sender, message = what
            self._post.handed_on()
            self._sent[home].append(((time, (self._cause, self._rank, self._child)), (sender, name, message)))

    def _take(self, parcel: Parcel) -> None:
        for key, (sender, to, message) in zip(parcel.keys, unpacked(parcel.content), strict=True):
            heappush(self._heap, (*key, self._post.taken_on(), to, (sender, message)))

    def _rerank(self, ranks: Ranks) -> None:
        """Put final ranks in the place of its own; the order of its events does not change."""
        if ranks:
            heap = self._heap
            for place, (time, cause, *rest) in enumerate(heap):
                if cause[0] in ranks:
                    heap[place] = (time, final(cause, ranks), *rest)

    def _check_turns(self, name: str, begun: int, ended: int) -> None:
        """Raise unless a node computes one thing after the other: by that it is known when an update can be."""
        if begun > 1 or ended > 1 or (begun and not ended and name in self._computing):
            raise CallerError(f"{name} computes several things at a time, which shards cannot do; run in one process")
        if begun:
            self._computing.add(name)
        else:
            self._computing.discard(name)

    def note(self, channel: str, *note: Any) -> None:
        """Note something for the coordinator, who hears it in the order of all events."""
        self._notes.append((len(self._done) - 1, channel, *note))


class ShardBook(Noting):
    """Receipts of a shard's parties, which the coordinator's book is told of."""

    def __init__(self) -> None:
        self.shard: ShardSimulator | None = None

    def add(self, name: str, task: Any, receipt: Receipt) -> None:
        """Note what party ``name`` was charged for a ``task``."""
        assert self.shard is not None, "a book belongs to a shard before anything is charged"
        self.shard.note(RECEIPT, name, type(task), receipt, self.shard.elapsed)
