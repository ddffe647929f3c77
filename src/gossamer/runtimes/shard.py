"""A shard of a simulation: an ordinary simulator of some of the nodes, which hands on what it sends to others.

It is asked in turns (`shards`): told what others have sent it, it says what it sees coming; then it lets everything
happen that is before a given place in the order of all events (`order`).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from typing import Any

import numpy as np

from gossamer.errors import CallerError, SpecError
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept, decode_snapshot, encode_snapshot
from gossamer.runtimes.mail import Action
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.turns import (
    ALWAYS,
    BEGUN,
    ENDED,
    RECEIPT,
    RECORD,
    Bound,
    Cause,
    Happened,
    Key,
    Orders,
    Outlook,
    Packed,
    Parcel,
    Ranks,
    final_rank,
    packed,
    parcel_of,
    unpacked,
)
from gossamer.runtimes.world import World
from gossamer.sides.ledger import MemoryLedger, Receipt
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Noting

_MOST_AHEAD = 1_000  # computations of one node that are looked ahead at


@dataclass
class _Drawn(Kept):
    """Stands in for the timeline, whose spans depend on the order of all shards' events."""

    changing = ()
    places: dict[str, int]
    spans: list[tuple[Any, ...]]
    at: Callable[[], int]

    def add(self, place: int, kind: str, start: float, seconds: float = 0.0, count: int = 1) -> None:
        self.spans.append((self.at(), place, kind, start, seconds, count))


class Shard(Simulator):
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
        self._drawn = _Drawn(self.activity.timeline.places, [], lambda: len(self._done) - 1)
        self.activity.timeline = self._drawn  # type: ignore[assignment]

    # Turns

    def deliver(self, orders: Orders) -> Outlook:
        """Begin a window: take what others have sent, and say what is to come before its limit."""
        self._rerank(orders.ranks)
        for parcel in orders.parcels:
            self._take(parcel)
        self._done, self._notes, self._drawn.spans, self._last = [], [], [], orders.last
        return self._outlook(orders.limit)

    def advance(self, bound: Bound) -> Happened:
        """Let everything happen that is before a place."""
        heap, log, asked, counters = self._heap, self._done, self._computations.asked, self.counters
        names: list[str] = []
        flags: list[int] = []
        at = math.nan
        while heap and heap[0] < bound:
            entry = heappop(heap)
            time, _, _, _, action, name, what = entry
            self._rank = self._rank + 1 if time == at else self._last[1] if time == self._last[0] else 0
            at = self._cause = self.now = time
            self._child = 0
            log.append(entry[:4])
            names.append(name)
            before, updates = asked(name), counters.updates
            action(name, what, time)
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
                found[time] = [key[1:] for key in keys]
        return found

    def completions(self, bound: Bound) -> list[Key]:
        """Return the places of computations that have begun and are completed before a place."""
        completes = self._computations.completes
        return [entry[:4] for entry in self._before(bound) if completes(entry[4])]

    def end(self, reason: str, now: float) -> Happened:
        """Tell its nodes that the run ends here."""
        self._done, self._notes, self._drawn.spans, self.now = [], [], [], now
        self.stop(reason)
        return self._happened([], [])

    def gathered(self) -> Packed:
        """Return states, counts of activity and charges of its nodes, in their order."""
        states = [node.state for node in self.nodes.values()]
        counts = [self.activity.counts[name] for name in self.nodes]
        ledgers = {ledger.owner: ledger for ledger in self._pool.ledgers if isinstance(ledger, MemoryLedger)}
        charged = {owner: (ledger.counts, ledger.releases) for owner, ledger in ledgers.items()}
        return packed((states, counts, charged))

    # Snapshots

    def kept(self) -> bytes | None:
        """Return its `snapshot` as bytes, for `set_back` of another one of the same; None where there can be none."""
        try:
            return b"".join(encode_snapshot(self.snapshot()))
        except (TypeError, SpecError):
            return None

    def set_back(self, kept: bytes) -> None:
        """Be as the shard was that was `kept`."""
        self.restore(decode_snapshot(kept))

    def snapshot(self) -> dict[str, Any]:
        """Return all that has changed since the start, between two windows: what happened in the last one was told."""
        assert not self._sent, "between two windows all was handed on"
        order = self._cause, self._rank, self._child
        return {**super().snapshot(), "order": order, "computing": sorted(self._computing)}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        super().restore(snapshot)
        self._cause, self._rank, self._child = snapshot["order"]
        self._computing = set(snapshot["computing"])
        self._told_finished = len(self.finished)

    # What it knows

    def _outlook(self, limit: float) -> Outlook:
        working, computations = self._working, self._computations
        first: dict[str, Key] = {}
        most = 0.0
        for entry in self._before((limit,)):
            name = entry[5]
            most += computations.completes(entry[4])
            if name in working and not (name in first and first[name] < entry):
                first[name] = entry[:4]
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
        return max((entry[:4] for entry in self._heap if arrives(entry[4])), default=None)

    @property
    def _next(self) -> Key | None:
        return self._heap[0][:4] if self._heap else None

    def _happened(self, names: Sequence[str], flags: Sequence[int]) -> Happened:
        numbers = self._numbers
        parcels = {home: parcel_of(sent) for home, sent in self._sent.items()}
        self._sent.clear()
        return Happened(
            np.array([key[0] for key in self._done]),
            np.array([numbers[name] for name in names], np.int32),
            np.array(flags, np.int8),
            parcels,
            self._notes,
            self._drawn.spans,
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
            heappush(self._heap, (time, self._cause, self._rank, self._child, action, name, what))
        elif what is not None:  # otherwise it is the beginning of another shard's node
            sender, message = what
            self._post.handed_on(sender, name)
            self._sent[home].append((time, self._cause, self._rank, self._child, sender, name, message))

    def _take(self, parcel: Parcel) -> None:
        keys = (parcel.times, parcel.causes, parcel.ranks, parcel.numbers)
        rows = zip(*(each.tolist() for each in keys), unpacked(parcel.content), strict=True)
        for time, cause, rank, number, (sender, to, message) in rows:
            arrive = self._post.taken_on(sender, to, message)
            heappush(self._heap, (time, cause, rank, number, arrive, to, (sender, message)))

    def _rerank(self, ranks: Ranks) -> None:
        """Put final ranks in the place of its own; the order of its events does not change."""
        if ranks:
            heap = self._heap
            for place, (time, cause, rank, *rest) in enumerate(heap):
                if cause in ranks:
                    heap[place] = (time, cause, final_rank(cause, rank, ranks), *rest)

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
        self.shard: Shard | None = None

    def add(self, name: str, task: Any, receipt: Receipt) -> None:
        """Note what party ``name`` was charged for a ``task``."""
        assert self.shard is not None, "a book belongs to a shard before anything is charged"
        self.shard.note(RECEIPT, name, type(task), receipt, self.shard.elapsed)
