"""A simulation of a population: nodes that are numbers in arrays, and one compiled loop, as observers see it.

It is the `simulator.Simulator` of the same nodes, and has the same events at the same times; `population_loop` lets
them happen, some in a call, so that an interrupt is heard. What observers ask of one node is made when they
ask. All that changes is arrays, which a checkpoint keeps as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.population import COMPLETED, KINDS, STARTED, PopulationRules, PopulationStart
from gossamer.arrays import FloatArray, IndexArray
from gossamer.protocol.snapshots import Kept
from gossamer.runtimes import population_loop as loop
from gossamer.runtimes.activity import COMPUTING, SENDING, Histogram, Timeline, figures
from gossamer.runtimes.computations import Counters
from gossamer.runtimes.speeds import Speeds
from gossamer.runtimes.world import World, clock_start
from gossamer.sides.ledger import MOST_NAMED, Charges
from gossamer.vectors import Released

AT_ONCE = 100_000
"""Most events of one call of the loop."""
WORK = 2**32
"""Most products of numbers in one call, about a second: nobody is heard in between."""
_NOTED = 1 << 16


class PopulationSides(NamedTuple):
    """Numbers by which the data sides of a population answer.

    Attributes
    ----------
    sampling, noise : ndarray [nodes, 2] of uint64
        Keys of samples and of noise.
    terms : ndarray [queries, 6]
        Numbers of each query that some nodes ask, as `window.GradientTerms`.
    asked : ndarray [nodes] of int64
        The query that each node asks.
    starts, rows : ndarray of int64
        Where the rows of each node begin, and they.
    data : tuple
        Objective and examples, as `population_loop` takes them.
    charges : sequence of Charges
        What each node is charged to: one law.
    """

    sampling: npt.NDArray[np.uint64]
    noise: npt.NDArray[np.uint64]
    terms: npt.NDArray[np.float64]
    asked: IndexArray
    starts: IndexArray
    rows: IndexArray
    data: Any
    charges: Sequence[Charges]


@dataclass(frozen=True)
class _Seen:
    """A node of a population as observers see it."""

    population: Population
    name: str
    place: int
    rounds_made: ClassVar[None] = None
    awaited: ClassVar[frozenset[str]] = frozenset()

    @property
    def state(self) -> Any:
        """State that the Python node would have."""
        vectors = [Released(vector.copy()) for vector in self.population.vectors[self.place]]
        return self.population.rules.state(vectors, self.population.numbers[self.place])


class _Nodes(Mapping[str, Any]):
    """Nodes of a population by name, each made when it is asked for: nothing but its name and its state."""

    def __init__(self, population: Population) -> None:
        self._population = population
        self._places = {name: place for place, name in enumerate(population.names)}

    def __getitem__(self, name: str) -> Any:
        return _Seen(self._population, name, self._places[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    @property
    def models(self) -> FloatArray:
        """Models of all nodes, [nodes, size]."""
        return self._population.vectors[:, 0]

    @property
    def mean_model(self) -> Released:
        """Mean of all models, in double precision until it is made."""
        return Released(self.models.mean(axis=0, dtype=np.float64).astype(np.float32))

    def place(self, name: str) -> int:
        """Number of a node."""
        return self._places[name]

    def report(self) -> dict[str, Any]:
        """The algorithm's figures of the nodes."""
        return dict(self._population.rules.report(self._population.numbers))


@dataclass
class PopulationActivity(Kept):
    """Activity of the nodes of a population, as `activity.Activity` of others."""

    population: Population
    changing = ("ages", "timeline")

    def __post_init__(self) -> None:
        self.ages, self.timeline = Histogram(), Timeline(self.population.names)
        self.by_message = False

    def close(self, now: float) -> None:
        """Count what goes on at the end of the run, up to ``now``."""
        times, start = self.population.times, self.population.start
        going = np.flatnonzero(times[:, loop.SINCE] >= 0)
        seconds = np.minimum(now - times[going, loop.SINCE], times[going, loop.TOOK])
        times[going, loop.COMPUTING] += seconds
        for name, place in self.timeline.places.items():
            since = float(times[node := self.population.nodes.place(name), loop.SINCE])
            if since >= 0:
                self.timeline.add(place, COMPUTING, since - start, min(now - since, float(times[node, loop.TOOK])))
        times[going, loop.SINCE] = -1.0

    def table(self, elapsed: float) -> dict[str, npt.NDArray[Any]]:
        """Return the counts of all nodes, as `activity.Activity.table`."""
        computing = self.population.times[:, loop.COMPUTING]
        fields = (loop.AGED, loop.SENT, loop.SENT_BYTES, loop.AGE, loop.AGED)
        whole = [self.population.own[:, field] for field in fields]
        return figures(whole, computing, np.zeros_like(computing), elapsed)

    def computed_stale(self) -> tuple[float, int] | None:
        """Return the mean and the largest staleness; None before the first update."""
        made, old = (int(self.population.own[:, field].sum()) for field in (loop.AGED, loop.AGE))
        return (round(old / made, 9), self.ages.most) if made else None

    def staleness(self) -> dict[str, Any]:
        """Return how often updates were how stale, as plain data."""
        if not self.ages.counts:
            return {}
        return {"measured": "computing", "width": self.ages.width, "counts": self.ages.counts}


class Population(Kept):
    """A simulation of many nodes in one compiled loop; see `simulator.Simulator` for what observers may ask.

    Parameters
    ----------
    names : tuple of str
        The nodes.
    rules, begun : PopulationRules, PopulationStart
        Rules of the algorithm, and its nodes before the run.
    initial : ndarray [size] of float32
        The common starting model.
    sides : PopulationSides
        What data sides answer by.
    world : World
        Speeds and links.
    deadline : float, optional
        Seconds from a node's start to its end.
    record : callable
        The same as for a `simulator.Simulator`.
    traced : callable, optional
        Called with notes [events, 6] and moments [events, 3] on all that happened in a call, as `population_loop` has
        them.
    """

    changing = (
        *("counters", "finished", "activity", "clock", "tally", "noted"),
        *("heap", "own", "times", "vectors", "numbers"),
    )
    engine = "compiled"
    is_told, stalled = True, False
    """No event but an update leads to others, so that none can happen for ever without one."""

    def __init__(
        self,
        names: tuple[str, ...],
        rules: PopulationRules,
        begun: PopulationStart,
        initial: FloatArray,
        sides: PopulationSides,
        world: World,
        deadline: float | None,
        record: Callable[[float, str, str, float], None],
        traced: Callable[[IndexArray, FloatArray], None] | None = None,
    ) -> None:
        self.names, self.rules, self.sides, self._world = names, rules, sides, world
        self._record, self._traced = record, traced
        self.start = clock_start(world.seed)
        self.counters, self.finished, self.gone = Counters(), dict[str, str](), set[str]()
        count = len(names)
        self.clock, self.tally = np.array([self.start, -1.0]), np.zeros(11, np.int64)
        self.own, self.times = np.zeros((count, 12), np.int64), np.zeros((count, 3))
        self.vectors = np.empty((count, begun.vectors, len(initial)), np.float32)
        self.vectors[:] = initial
        self.numbers, self._facts = begun.numbers, begun.facts
        self.noted = np.zeros(count, np.int64)  # charges that were asked for
        self.nodes = _Nodes(self)
        self.activity, self.computer = PopulationActivity(self), _Ledgers(self)
        self.own[:, loop.MOST] = [np.iinfo(np.int64).max if (m := one.most) is None else m for one in sides.charges]
        self.own[:, loop.TERMS], self.times[:, loop.SINCE] = sides.asked, -1.0
        self.own[[self.nodes.place(name) for name in self.activity.timeline.places], loop.WATCHED] = 1
        self.own[:, loop.WATCHED] |= traced is not None
        speeds = Speeds(world.speeds, count, world.seed)
        table = speeds.table()
        assert table is not None, "the times of a population are constant or lognormal"
        self._speeds, self._lengths = table, np.array(begun.lengths, np.int64)
        self.heap = np.zeros((4 * count + 64, 4), np.int64)
        for node, time in enumerate(speeds.starts.tolist()):
            loop.push(self.heap, self.tally, self.start + time, node * KINDS + STARTED, 0)
        self.tally[loop.WORKING], self._known = count, np.zeros(count, np.bool_)
        drawn = float((sides.terms[sides.asked, 0] * np.diff(sides.starts)).max())  # examples of the largest sample
        self._at_once = max(1, min(AT_ONCE, int(WORK / (len(initial) * (1 + drawn)))))
        self._grace, self._deadline = 2 * world.links.silence, -1.0 if deadline is None else deadline
        self._buffers = (np.empty(AT_ONCE, np.int64), (np.empty((_NOTED, 6), np.int64), np.empty((_NOTED, 3))))

    @property
    def now(self) -> float:
        """Seconds on the clock."""
        return float(self.clock[loop.NOW])

    @property
    def elapsed(self) -> float:
        """Virtual seconds since the start."""
        return round(self.now - self.start, 9)

    @property
    def present(self) -> _Nodes:
        """All nodes."""
        return self.nodes

    @property
    def messages(self) -> int:
        """Messages transmitted so far."""
        return int(self.tally[loop.MESSAGES])

    @property
    def bytes(self) -> int:
        """Bytes transmitted so far."""
        return int(self.tally[loop.BYTES])

    @property
    def next_time(self) -> float | None:
        """Virtual seconds since the start at which the next event happens; None if nothing is left to happen."""
        if not self.tally[loop.SIZE]:
            return None
        return round(float(self.heap[0, loop.TIME : loop.TIME + 1].view(np.float64)[0]) - self.start, 9)

    @property
    def goes_on(self) -> bool:
        """Whether anything is left to happen that somebody waits for."""
        if self.tally[loop.WORKING]:
            return bool(self.tally[loop.SIZE])
        if self.clock[loop.SETTLING] < 0:
            self.clock[loop.SETTLING] = self.now
        waits = self.now - self.clock[loop.SETTLING] <= self._grace
        return bool(self.tally[loop.SIZE] and self.tally[loop.UNDER_WAY] and waits)

    def advance(self, *, updates: int | None = None, seconds: float | None = None, one: bool = False) -> None:
        """Let things happen, and not beyond the first place at which the caller looks, as `Simulator.advance`."""
        while len(self.heap) < self.tally[loop.SIZE] + 3:
            self.heap = np.concatenate([self.heap, np.zeros_like(self.heap)])
        counts, sides = self.tally, self.sides
        counts[[loop.AGES, loop.NOTES]] = 0
        until = np.inf if seconds is None else self.start + seconds - 1e-9  # observers round to so much
        try:
            loop.proceed(
                *(self.clock, counts, self.heap, self.own, self.times, self.vectors, self.numbers, self._facts),
                tuple(self._speeds),
                (sides.sampling, sides.noise, sides.terms, sides.starts, sides.rows),
                sides.data,
                (self._world.links.latency, self._lengths),
                self.rules.handle,
                (1 if one else self._at_once, -1 if updates is None else updates, until, self._grace, self._deadline),
                self._buffers,
            )
        finally:  # an interrupt is raised as soon as the loop is over, and what happened is told all the same
            self._told()

    def _told(self) -> None:
        """Tell others what happened in a call."""
        counts, (ages, (notes, moments)) = self.tally, self._buffers
        self.activity.ages.add_all(ages[: int(counts[loop.AGES])])
        self.counters.computed = int(counts[loop.CHARGES])
        self.counters.updates, self.counters.events = int(counts[loop.UPDATES]), int(counts[loop.EVENTS])
        self.counters.calls += 1
        noted = int(counts[loop.NOTES])
        if self._traced is not None:
            self._traced(notes[:noted].copy(), moments[:noted].copy())
        self._draw(notes[:noted], moments[:noted])
        if int(counts[loop.WORKING]) + len(self.finished) < len(self.names):
            self._end()

    def _draw(self, notes: IndexArray, moments: FloatArray) -> None:
        """Enter what watched nodes did into the timeline, and what went wrong into private logs."""
        places, draw = self.activity.timeline.places, self.activity.timeline.add
        for (node, event, _, _, to, wrong), (now, since, took) in zip(notes.tolist(), moments.tolist(), strict=True):
            name = self.names[node]
            if wrong:
                self._record(round(now - self.start, 9), name, "gradients_not_finite", float(wrong))
            if (place := places.get(name)) is None:
                continue
            if event == COMPLETED:
                draw(place, COMPUTING, since - self.start, took)
            if to >= 0:
                draw(place, SENDING, now - self.start)

    def _end(self) -> None:
        ended = np.flatnonzero((self.own[:, loop.FINISHED] > 0) & ~self._known)
        self._known[ended] = True
        for node, reason in zip(ended.tolist(), self.own[ended, loop.FINISHED].tolist(), strict=True):
            self.finished.setdefault(self.names[node], self.rules.reasons[reason])

    def fresh(self) -> Iterator[tuple[list[str], int]]:
        """Charges since they were asked for: nodes that were charged alike, before and since, and how often since."""
        charged = self.own[:, loop.CHARGED]
        for nodes in alike(self.sides.asked, self.noted, charged):
            if new := int(charged[nodes[0]] - self.noted[nodes[0]]):
                yield [self.names[node] for node in nodes.tolist()], new
        self.noted[:] = charged

    def stop(self, reason: str) -> None:
        """Tell every node that the run ends here."""
        for name in self.names:
            self.finished.setdefault(name, reason)
        self.counters.events += len(self.names)
        self.tally[loop.WORKING] = 0

    def close(self) -> None:
        """Let nothing happen any more."""
        self.tally[loop.SIZE] = 0


def alike(*columns: npt.NDArray[Any]) -> list[IndexArray]:
    """Numbers of nodes that have the same in all ``columns``, rising, by groups in the order of their first one."""
    _, first, which = np.unique(np.stack(columns), axis=1, return_index=True, return_inverse=True)
    order = np.argsort(first[which.ravel()], kind="stable")
    return np.split(order, np.flatnonzero(np.diff(first[which.ravel()][order])) + 1)


class NodeCharges(NamedTuple):
    """Charges of a node: its name, and how often each law was charged."""

    owner: str
    counts: Mapping[Any, int]


class _Ledgers:
    """Ledgers of a population: a law and a count for each node."""

    def __init__(self, population: Population) -> None:
        self._population = population

    def releases(self, node: str) -> int:
        """Number of charged releases with the data of ``node``."""
        return int(self._population.own[self._population.nodes.place(node), loop.CHARGED])

    @property
    def ledgers(self) -> list[NodeCharges]:
        """Ledgers, in the order of the parties."""
        names, found = self._population.names, dict[int, NodeCharges]()
        for nodes, counts in self._alike():
            found |= {node: NodeCharges(names[node], counts) for node in nodes.tolist()}
        return [found[node] for node in range(len(names))]

    def lines(self) -> Iterable[dict[str, Any]]:
        """Records for ``ledger.jsonl``, as `Pool.lines`."""
        names, charges = self._population.names, self._population.sides.charges
        if len(names) <= MOST_NAMED:
            for place, (name, counts) in enumerate(self.ledgers):
                yield from charges[place].lines(name, counts)
            return
        for nodes, counts in self._alike():
            for line in charges[nodes[0]].lines("", counts):
                yield line | {"node": [names[node] for node in nodes.tolist()]}

    def _alike(self) -> Iterator[tuple[IndexArray, dict[Any, int]]]:
        charged, sides = self._population.own[:, loop.CHARGED], self._population.sides
        for nodes in alike(sides.asked, charged):
            counts = dict[Any, int]()
            if count := int(charged[nodes[0]]):
                (kind,) = sides.charges[nodes[0]].kinds  # none of a node that begins after the run
                counts[kind] = count
            yield nodes, counts
