"""A simulation over several shards: windows in which each lets its own events happen, in the order of one process.

A message takes at least the *least delay* of the links. So what is sent from time T on arrives at T plus that delay or
later, and up to there (the *limit*) no shard can be told anything that it does not know: conservative look-ahead. In a
window all shards let happen what is before one *bound*. That is the limit, or an earlier place at which somebody looks:

- an update of a certain number. Which event it is can be told before, as long as no computation is completed that
  has not begun: each shard knows of a time before which none is (its horizon);
- a moment of virtual time;
- the end of a run whose nodes have all finished, which is no earlier than some node's next event, and then the last
  arrival of a message.

After a window the events of all are put in order (`shard`), and what depends on that order is found: how stale updates
were, the timeline, private logs.

References
----------
Chandy and Misra, "Distributed simulation: A case study in design and verification of distributed programs", IEEE
Transactions on Software Engineering 5, 1979; Fujimoto, "Parallel discrete event simulation", Communications of the ACM
33 (10), 1990, section "Conservative mechanisms".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.context import Staleness
from gossamer.arrays import IndexArray
from gossamer.errors import CallerError
from gossamer.protocol.node import Node
from gossamer.protocol.snapshots import Kept
from gossamer.runtimes.activity import Activity
from gossamer.runtimes.computations import Counters
from gossamer.runtimes.loop import patience
from gossamer.runtimes.shard import (
    BEGUN,
    ENDED,
    NEVER,
    RECEIPT,
    RECORD,
    SPAN,
    Bound,
    Happened,
    Key,
    Orders,
    Outlook,
    Parcel,
    Ranks,
    ShardSimulator,
    after,
    in_order,
    last_moment,
    ranked,
    tied,
    unpacked,
)
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.world import LinkSettings, World, clock_start
from gossamer.sides.ledger import MemoryLedger, Receipt
from gossamer.sides.pool import Pool

Maker = Callable[[int, int], ShardSimulator]
"""Makes a shard of a run, from the seed of all noise and the shard's number. It can be pickled, and knows no secret."""


class Crew(Protocol):
    """A place for the shards of a run, which are asked together, wherever they are.

    Attributes
    ----------
    shards : int
        Number that a run is dealt out to.
    """

    shards: int

    def start(self, maker: Maker, seed: int) -> None:
        """Make the shards of a run; ``seed`` is that of all noise.

        Raises
        ------
        CallerError
            If the place is not there.
        """
        ...

    def ask(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of all shards, each with arguments of its own; what they return, in order."""
        ...

    def close(self) -> None:
        """Let go of the shards."""
        ...


def least_delay(links: LinkSettings) -> float:
    """Seconds that every message takes at least."""
    exceptions = [one.latency for one in links.exceptions or () if one.latency is not None]
    return min([links.latency, *exceptions])


class Shards(Kept):
    """A simulation over several shards, as its observers see it.

    Nodes, ledgers and activity are those of the moment that was `gather`ed last.

    Attributes
    ----------
    windows : int
        Number of windows.

    Parameters
    ----------
    nodes : mapping of str to Node
        Nodes by name, in the order of their numbers; the observers' own, which take the states of those on the shards.
    computer : Pool
        Data sides whose ledgers observers read; nothing is charged to them here.
    world : World
        World that all shards share.
    crew : Crew
        The shards.
    record : callable
        The same as for a `simulator.Simulator`.
    charged : callable
        Called with (name, task's type, receipt, virtual seconds) for everything that is charged.
    staleness : ``"computing"`` or None
        Way in which the staleness of updates is measured.
    """

    engine = "simulator"
    is_told, stalled = True, False
    changing = (
        *("now", "finished", "messages", "bytes", "windows", "counters", "activity"),
        *("_before", "_ages", "_aged", "_last", "_waited", "_settling", "_working", "_under_way", "_shards"),
    )

    def __init__(
        self,
        nodes: Mapping[str, Node],
        computer: Pool,
        world: World,
        crew: Crew,
        record: Callable[[float, str, str, float], None],
        staleness: Staleness = None,
        charged: Callable[[str, type, Receipt, float], None] | None = None,
    ) -> None:
        self.nodes, self.computer, self.crew = dict(nodes), computer, crew
        self.counters, self.finished, self.gone = Counters(), dict[str, str](), set[str]()
        self.messages = self.bytes = 0
        self.start = self.now = clock_start(world.seed)
        self.activity = Activity(self.nodes, self.start, staleness)
        self.windows = 0
        self._shards: list[Any] = []  # their states, where these are to be kept or were
        self._delay, self._grace = least_delay(world.links), 2 * world.links.silence
        self._channels: dict[str, Callable[..., None] | None] = {RECORD: record, RECEIPT: charged}
        self._channels[SPAN] = self.activity.timeline.add
        self._aging = staleness == "computing"
        # Of each node: the updates of all before its computation, and the sum and number of its updates' staleness.
        self._before, self._ages, self._aged = ([0] * len(nodes) for _ in range(3))
        self._parcels: list[list[Parcel]] = [[] for _ in range(crew.shards)]
        self._ranks: list[Ranks] = [{} for _ in range(crew.shards)]
        self._last = (-math.inf, 0)
        self._waited = 0  # events since the last update
        self._settling: float | None = None
        self._working, self._under_way = len(nodes), 0
        self._hand_over()

    # What an observer may ask

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        return round(self.now - self.start, 9)

    @property
    def present(self) -> dict[str, Node]:
        """All nodes."""
        return self.nodes

    @property
    def next_time(self) -> float | None:
        """Virtual seconds since the start at which the next event happens; None if nothing is left to happen."""
        time = self._first_time
        return None if time is None else round(time - self.start, 9)

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to happen that somebody waits for."""
        if self._first_time is None:
            return False
        if self._working:
            return True
        if self._settling is None:
            self._settling = self.now
        return bool(self._under_way) and self.now - self._settling <= self._grace

    # Turns

    def advance(self, *, updates: int | None = None, seconds: float | None = None, one: bool = False) -> None:
        """Let things happen for a window, and not beyond the first place at which the caller looks.

        Parameters
        ----------
        updates : int, optional
            A number of updates of the whole run, right after which somebody looks.
        seconds : float, optional
            A moment of virtual time up to which something happens.
        one : bool
            Whether only the next event is to happen.
        """
        time = self._first_time
        assert time is not None, "nothing is left to happen"
        limit = time + self._delay
        outlooks = self._deliver(limit)
        first = min(outlook.next for outlook in outlooks if outlook.next is not None)
        bound = after(first) if one else min(self._bounds(limit, outlooks, updates, seconds))
        self._take(self.crew.ask("reach", [(max(bound, after(first)),)] * self.crew.shards))
        self.windows += 1

    def gather(self) -> None:
        """Have the nodes, ledgers and activity of this moment."""
        ledgers = {ledger.owner: ledger for ledger in self.computer.ledgers if isinstance(ledger, MemoryLedger)}
        places = iter(enumerate(self.nodes))
        for found in self.crew.ask("gathered", [()] * self.crew.shards):
            states, counts, charged = unpacked(found)
            for state, count, (place, name) in zip(states, counts, places, strict=False):
                self.nodes[name].state = state
                if self._aging:
                    count.ages, count.aged = self._ages[place], self._aged[place]
                self.activity.counts[name] = count
            for owner, (of_laws, releases) in charged.items():
                ledgers[owner].counts, ledgers[owner].releases = of_laws, releases

    def stop(self, reason: str) -> None:
        """Tell every node that the run ends here."""
        ended = self.crew.ask("end", [(reason, self.now)] * self.crew.shards)
        self._count(ended)
        for happened in ended:  # shards have the nodes in their order
            self._tell(note[1:] for note in happened.notes)
        self.gather()

    def close(self) -> None:
        """Let go of the shards."""
        self.crew.close()

    # Snapshots, between two windows: the nodes, ledgers and activity are those of this moment then

    def before_snapshot(self) -> None:
        self._hand_over()  # what is on its way is in the shards, then
        self.gather()
        self._shards = self.crew.ask("kept", [()] * self.crew.shards)

    def after_restore(self) -> None:
        if len(self._shards) != self.crew.shards:
            raise ValueError(f"expected snapshots of {self.crew.shards} shards, found {len(self._shards)}")
        self.crew.ask("set_back", [(snapshot,) for snapshot in self._shards])
        self._hand_over()
        self.gather()

    # Windows

    @property
    def _first_time(self) -> float | None:
        """Time of the next event."""
        times = [key[0] for key in self._next if key is not None]
        times += [min(parcel.keys)[0] for parcels in self._parcels for parcel in parcels]
        return min(times, default=None)

    def _hand_over(self) -> None:
        """Tell shards what is on its way, and nothing else."""
        self._next = [outlook.next for outlook in self._deliver(-math.inf)]

    def _deliver(self, limit: float) -> list[Outlook]:
        given = zip(self._parcels, self._ranks, strict=True)
        orders = [(Orders(parcels, ranks, self._last, limit),) for parcels, ranks in given]
        self._parcels = [[] for _ in orders]
        self._ranks = [{} for _ in orders]
        found: list[Outlook] = self.crew.ask("deliver", orders)
        return found

    def _bounds(
        self, limit: float, outlooks: Sequence[Outlook], updates: int | None, seconds: float | None
    ) -> Iterator[Bound]:
        yield (limit,)
        if seconds is not None:
            yield (math.nextafter(last_moment(self.start, seconds), math.inf),)
        if updates is not None and self.counters.updates + sum(outlook.most for outlook in outlooks) >= updates:
            yield from self._until(updates - self.counters.updates, min(limit, *(one.horizon for one in outlooks)))
        if self._working:
            working = [outlook.working_until for outlook in outlooks]
            yield (
                max((until for until in working if until is not None), default=NEVER) if None not in working else NEVER
            )
        else:
            arrivals = [one.last_arrival for one in outlooks if one.last_arrival is not None]
            yield after(max(arrivals)) if arrivals else NEVER
            assert self._settling is not None
            yield (self._settling + self._grace,)

    def _until(self, remaining: int, horizon: float) -> Iterator[Bound]:
        """Yield the place right after so many updates, or where it becomes unknown."""
        yield (horizon,)
        known = self.crew.ask("completions", [((horizon,),)] * self.crew.shards)
        places: list[Key] = sorted(key for keys in known for key in keys)
        if len(places) >= remaining:
            yield after(places[remaining - 1])

    def _take(self, happened: Sequence[Happened]) -> None:
        """Take what happened in a window."""
        times = [each.times for each in happened]
        ranks = self._ranked(times)
        self._ranks = ranks
        self._next = [each.next for each in happened]
        order = in_order(times, ranks)
        updates = self.counters.updates
        self._count(happened)
        for own, each in zip(ranks, happened, strict=True):
            for home, parcel in each.parcels.items():
                self._parcels[home].append(parcel.ranked(own))
                self._under_way += len(parcel.keys)
        flags = np.concatenate([each.flags for each in happened])[order]
        ended = flags & ENDED > 0
        if self._aging:
            self._age(np.concatenate([each.nodes for each in happened])[order], flags, updates)
        waited = np.diff([-1 - self._waited, *np.flatnonzero(ended).tolist(), len(ended)]) - 1
        if waited.max() > (most := patience(len(self.nodes))):
            raise CallerError(
                f"{most} events went by without an update, which shards cannot tell the end of; run in one process"
            )
        self._waited = int(waited[-1])
        self._replay(happened, order)
        latest = float(max(each[-1] for each in times if len(each)))
        count = sum(int(np.count_nonzero(each == latest)) for each in times)
        self._last = (latest, count + (self._last[1] if self._last[0] == latest else 0))

    def _age(self, nodes: IndexArray, flags: npt.NDArray[np.int8], updates: int) -> None:
        """Count how stale updates are: how many others were made while each was computed."""
        places = np.flatnonzero(flags)
        for node, flag in zip(nodes[places].tolist(), flags[places].tolist(), strict=True):
            if flag & ENDED:
                age = updates - self._before[node]
                self.activity.ages.add(age)
                self._ages[node] += age
                self._aged[node] += 1
                updates += 1
            if flag & BEGUN:
                self._before[node] = updates

    def _ranked(self, times: Sequence[Any]) -> list[Ranks]:
        common = tied(times)
        if not common:
            return [{} for _ in times]
        last, before = self._last
        causes = self.crew.ask("causes", [(common,)] * self.crew.shards)
        return ranked(common, causes, lambda time: before if time == last else 0)

    def _count(self, happened: Sequence[Happened]) -> None:
        """Add up what shards count."""
        for name in vars(self.counters):
            setattr(self.counters, name, sum(getattr(each.counters, name) for each in happened))
        self.messages, self.bytes = sum(each.messages for each in happened), sum(each.bytes for each in happened)
        self._working, self._under_way = sum(e.working for e in happened), sum(e.under_way for e in happened)
        for each in happened:
            self.finished.update(each.finished)
        self.now = max(self.now, *(each.now for each in happened))

    # What depends on the order of all events

    def _replay(self, happened: Sequence[Happened], order: IndexArray) -> None:
        """Tell what was noted, in the order of all events."""
        starts = [0, *accumulate(len(each.times) for each in happened)]
        positions = np.argsort(order)
        pairs = zip(starts, happened, strict=False)
        notes = [(positions[start + note[0]], note[1:]) for start, each in pairs for note in each.notes]
        notes.sort(key=itemgetter(0))
        self._tell(note for _, note in notes)

    def _tell(self, notes: Iterable[tuple[Any, ...]]) -> None:
        for channel, *note in notes:
            if (hears := self._channels[channel]) is not None:
                hears(*note)


Observed = Simulator | Shards
"""A simulation as those see it who look at it from outside."""
