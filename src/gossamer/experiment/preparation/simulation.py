"""Letting a simulation happen until something ends it, in one process or over several shards."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gossamer.algorithms.plan import Plan, StopSettings
from gossamer.errors import CallerError, SpecError, counted
from gossamer.experiment.preparation.objective import build_objective
from gossamer.experiment.preparation.prepare import Prepared, Sources, nodes_of, sides_of
from gossamer.protocol.node import Node, RoundsMade
from gossamer.runtimes.shard import ShardBook, ShardSimulator
from gossamer.runtimes.shards import Engine, Shards, least_delay
from gossamer.runtimes.simulator import Simulator
from gossamer.sides.ledger import Ledger
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Book

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed


# Nodes that are there, have not finished and have nothing left to do wait for somebody: more time changes nothing. And
# rounds may have passed in which nobody, or too few for a sum, answered.

STALLED, INCOMPLETE = "stalled", "incomplete"
"""Statuses of runs that ended before their plan: nobody could go on, or rounds came to nothing."""


def rounds_of(nodes: Collection[Node]) -> RoundsMade | None:
    """Rounds of whoever is furthest behind its plan; None where no node's plan has a number of them."""
    found = [rounds for node in nodes if (rounds := node.rounds_made) is not None]
    return min(found, key=lambda rounds: rounds.made - rounds.planned, default=None)


def ending(
    simulator: Observed, workers: Collection[str], parents: Mapping[str, str], status: str
) -> tuple[str, dict[str, Any]]:
    """End of a run that `drive` says ended by ``status``, and how far short of the end of its plan it is.

    Parameters
    ----------
    simulator : Observed
        Simulator of the run.
    workers : collection of str
        Nodes with data.
    parents : mapping of str to str
        Nodes above others.
    status : str
        Status as `drive` gives it.
    """
    found = _status(simulator, workers, status)
    return found, _shortfall(simulator, parents) if found in (STALLED, INCOMPLETE) else {}


def _status(simulator: Observed, workers: Collection[str], status: str) -> str:
    if status != "finished":
        return status
    rounds = rounds_of(simulator.present.values())
    left = {name: node for name, node in simulator.present.items() if name not in simulator.finished}
    behind = [one for node in left.values() if (one := node.rounds_made) and one.made + one.empty < one.planned]
    if behind or not left.keys().isdisjoint(workers):
        return STALLED
    return INCOMPLETE if rounds is not None and rounds.empty else status


def _shortfall(simulator: Observed, parents: Mapping[str, str]) -> dict[str, Any]:
    rounds = rounds_of(simulator.present.values())
    left = {name: node for name, node in simulator.present.items() if name not in simulator.finished}
    awaited = set[str]().union(*(node.awaited or {parents.get(name, name)} - {name} for name, node in left.items()))
    waits_for = sorted(awaited & simulator.gone or awaited)
    made = {} if rounds is None else {"rounds": rounds.made, "planned": rounds.planned, "empty": rounds.empty}
    return {**made, **({"waits_for": waits_for} if waits_for else {})}


def in_words(found: Mapping[str, Any], status: str, seconds: float, settings: Any) -> str:
    """One line on a shortfall, with what to do."""
    if status == INCOMPLETE:
        return (
            f"{made(found)}: in {counted(found['empty'], 'round')} nobody answered, or there was no sum that could be "
            "used; look at faults and links, or wait longer for those who are late (algorithm.timeout)"
        )
    waits = f"waits for {named(found['waits_for'])}" if found.get("waits_for") else "can make no other update"
    bounded = "timeout" in type(settings).model_fields and settings.timeout is None
    remedy = "algorithm.timeout bounds such waits" if bounded else "look at faults and links"
    return f"{made(found)}: from virtual second {seconds:g} on it {waits}, and more time changes nothing; {remedy}"


def made(found: Mapping[str, Any]) -> str:
    """Say in brief how far a run came."""
    return (
        f"the run made {found['rounds']} of {counted(found['planned'], 'round')}"
        if "planned" in found
        else "the run stopped"
    )


def named(names: Collection[str], most: int = 5) -> str:
    """Names, of many the first few."""
    shown = sorted(names)
    return ", ".join(shown[:most]) + (f" and {len(shown) - most} more" if len(shown) > most else "")


class Observer:
    """Looks at a run from outside; nodes cannot tell whether it is there. This one does not look."""

    @property
    def timed(self) -> bool:
        """Whether it looks at moments of virtual time."""
        return False

    @property
    def next_update(self) -> int | None:
        """Number of the update after which it looks; None if it does not go by them."""
        return None

    @property
    def next_seconds(self) -> float | None:
        """Moment of virtual time at which it looks; None if it does not go by it."""
        return None

    def before(self, upcoming: float) -> None:
        """The next event happens at ``upcoming`` virtual seconds; told only who is ``timed``."""
        return None

    def after(self) -> None:
        """An update has been made."""
        return None

    @property
    def satisfied(self) -> bool:
        """Whether the run may end because of what was seen."""
        return False


class Patience(NamedTuple):
    """State of `drive` between two events.

    Attributes
    ----------
    updates : int
        Made when it looked last.
    idle : int
        Events since the last update.
    reached : float or None
        Virtual seconds at which there were updates enough.
    """

    updates: int = 0
    idle: int = 0
    reached: float | None = None


class Keeper:
    """Keeps the state of a run at moments when nothing happens; this one never does.

    Attributes
    ----------
    due : float
        Moment to do so next, on the machine's clock (`time.monotonic`).
    """

    due = math.inf

    def begin(self) -> None:
        """Note that the run is about to begin."""
        return None

    def keep(self, patience: Patience) -> None:
        """Keep the state now: the run is between two events."""
        return None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Have an interrupt that comes in the block wait for `keep`, if anything is kept."""
        yield


NO_KEEPER = Keeper()


@contextmanager
def few_collections() -> Iterator[None]:
    """Have Python look for unreachable cycles rarely: in a run nearly everything stays, or goes when it is let go."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def drive(
    simulator: Simulator,
    stop: StopSettings,
    observer: Observer,
    keeper: Keeper = NO_KEEPER,
    begun: Patience = Patience(),  # noqa: B008  # it never changes
) -> str:
    """Run until a bound is reached or nobody has anything left to do.

    Parameters
    ----------
    simulator : Simulator
        Simulator of what happens.
    stop : StopSettings
        The bounds.
    observer : Observer
        Observer that looks.
    keeper : Keeper
        Keeper of the state of the run.
    begun : Patience
        Patience of a run that goes on, as it was kept.

    Returns
    -------
    str
        Why it ended: ``updates``, ``virtual_seconds``, ``accuracy``, ``finished``, or ``stalled``, where things go on
        and on without an update, such as attempts to reach a node that is cut off for ever.
    """
    counters = simulator.counters
    patience = 100_000 + 1_000 * len(simulator.nodes)
    last_update, idle, reached = begun
    timed = observer.timed or stop.virtual_seconds is not None
    while simulator.goes_on:
        if monotonic() >= keeper.due:  # the clock decides when, and nothing that happens
            keeper.keep(Patience(last_update, idle, reached))
        if timed and (upcoming := simulator.next_time) is not None:
            if stop.virtual_seconds is not None and upcoming > stop.virtual_seconds:
                observer.before(stop.virtual_seconds)
                return "virtual_seconds"
            observer.before(upcoming)
        # Between two updates only who goes by the clock, or counts them, has something to look at.
        idle += simulator.proceed(1 if timed or stop.updates is not None else min(100, patience + 1 - idle))
        if counters.updates != last_update:
            last_update, idle = counters.updates, 0
            observer.after()
        if stop.updates is not None and last_update >= stop.updates:
            reached = simulator.elapsed if reached is None else reached
            # A server that halts the run has the time to tell everybody that can be told.
            grace = simulator.grace if simulator.halts else 0.0
            if simulator.elapsed >= reached + grace:
                return "updates"
        if (timed or not idle) and observer.satisfied:
            return "accuracy"
        if idle > patience:
            return "stalled"
    return "finished"


# Runs over several shards: whether a run can be one, and what each shard is made of.

_SHORTEST = 1e-9  # seconds: what is less may vanish beside the time on a clock


def _bits_by_company(prepared: Prepared) -> bool:
    compute = prepared.experiment.compute
    return compute.rounding != "exact" and prepared.objective.computing().strategy not in ("linear", "compiled")


_ALONE: tuple[tuple[Callable[[Prepared], Any], str], ...] = (
    (lambda p: p.cast.servers, "its nodes talk to a server, whose updates are not known ahead"),
    (lambda p: p.algorithm.figures.count is not None, "its updates are counted by its nodes' states"),
    (lambda p: p.cast.trust, "its nodes form units, whose data sides are one"),
    (lambda p: p.world.told, "its learning rates go by the updates of all nodes"),
    (lambda p: callable(p.algorithm.figures.staleness), "the staleness of its updates is read off its nodes"),
    (lambda p: p.world.faults.away, "nodes are away at times"),
    (lambda p: not p.world.links.reliable, "its links have jitter, losses, duplicates or partitions"),
    (lambda p: least_delay(p.world.links) < _SHORTEST, "its messages have no least delay: links.latency is 0"),
    (lambda p: p.code, "its module was given from memory"),
    (lambda p: p.experiment.compute.device, "a device's gradients round by what is computed beside them"),
    (_bits_by_company, "its network's gradients round by what is computed beside them; compute.rounding: exact helps"),
)
"""Conditions under which a run is not one for shards, and what is said of each."""


def check_number(shards: int | None, nodes: int) -> None:
    """Raise SpecError unless so many nodes can be dealt out to so many shards; None is as many as fit."""
    if shards is not None and not 1 <= shards <= nodes:
        raise SpecError(
            f"expected from 1 to {nodes} shards for {counted(nodes, 'node')}, found {shards}; correct --shards"
        )


def reason_against(prepared: Prepared) -> str | None:
    """Return why a run is made in one process, in words; None if shards can make it."""
    return next((why for found, why in _ALONE if found(prepared)), None)


def _unread(ledgers: Iterable[Any]) -> None:
    """A reading of ledgers that shards never take, and that can be pickled."""


@dataclass(frozen=True)
class Making:
    """All that a shard is made of, except the seed of its noise.

    Attributes
    ----------
    prepared : Prepared
        Run, without its objective, which may hold what cannot be pickled; each shard builds its own.
    plan : Plan
        Plan of the run, without its reading of ledgers.
    homes : tuple of int
        The shard of each node.
    ledgers : mapping of str to Ledger
        Ledgers that were charged before the run.
    samples : int or None
        Seed of samples, where that is another one.
    receipts : bool
        Whether anybody wants to know of each charge.
    """

    prepared: Prepared
    plan: Plan
    homes: tuple[int, ...]
    ledgers: Mapping[str, Ledger]
    samples: int | None
    receipts: bool

    @classmethod
    def of(cls, prepared: Prepared, plan: Plan, shards: int, sources: Sources) -> Making:
        """Deal out a run's nodes, as many to each shard, neighbours by number together.

        Raises
        ------
        SpecError
            If there are fewer nodes than shards.
        """
        nodes = len(prepared.names)
        check_number(shards, nodes)
        homes = tuple(number * shards // nodes for number in range(nodes))
        bare = replace(prepared, objective=cast(Any, None))
        return cls(
            bare, replace(plan, spent=_unread), homes, dict(sources.ledgers), sources.samples, sources.book is not None
        )

    def shard(self, seed: int, number: int) -> ShardSimulator:
        """Make one shard; ``seed`` is that of all noise."""
        prepared = self.prepared
        prepared = replace(prepared, objective=build_objective(prepared.experiment, prepared.dataset))
        own = {name for name, home in zip(prepared.names, self.homes, strict=True) if home == number}
        plan = replace(self.plan, sides={name: side for name, side in self.plan.sides.items() if name in own})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is to be said was, when the run was prepared
            nodes = nodes_of(prepared, plan)
        book = ShardBook() if self.receipts else None
        sides = sides_of(prepared, plan, Sources(seed, self.samples, ledgers=self.ledgers, book=book))
        shard = ShardSimulator(nodes, sides, prepared.world, self.homes, number)
        if book is not None:
            book.shard = shard
        return shard


def drive_shards(shards: Shards, stop: StopSettings, observer: Observer, keeper: Keeper = NO_KEEPER) -> str:
    """Run as `drive` does, a window at a time; why it ended."""
    counters, made = shards.counters, shards.counters.updates
    patience = 100_000 + 1_000 * len(shards.nodes)
    timed = observer.timed or stop.virtual_seconds is not None
    while shards.goes_on:
        if monotonic() >= keeper.due:  # the clock decides when, and nothing that happens
            keeper.keep(Patience(made, shards.idle))
        upcoming = shards.next_time
        if timed and upcoming is not None:
            over = stop.virtual_seconds is not None and upcoming > stop.virtual_seconds
            moment = stop.virtual_seconds if over and stop.virtual_seconds is not None else upcoming
            if over or (observer.next_seconds is not None and observer.next_seconds < moment):
                shards.gather()
            observer.before(moment)
            if over:
                return "virtual_seconds"
        satisfied = observer.satisfied  # then the next event, or the next update, is the last
        places = [observer.next_update, stop.updates, counters.updates + 1 if satisfied else None]
        moments = [observer.next_seconds, stop.virtual_seconds]
        shards.advance(
            updates=min((place for place in places if place is not None), default=None),
            seconds=min((moment for moment in moments if moment is not None), default=None),
            one=satisfied and timed,
        )
        if shards.idle > patience:
            raise CallerError(
                f"{patience} events went by without an update, which shards cannot tell the end of; run in one process"
            )
        updated, made = counters.updates != made, counters.updates
        if updated:
            if observer.next_update is not None and made >= observer.next_update:
                shards.gather()
            observer.after()
        if stop.updates is not None and made >= stop.updates:
            shards.gather()
            return "updates"
        if (timed or updated) and observer.satisfied:
            shards.gather()
            return "accuracy"
    shards.gather()
    return "finished"


def sharded(
    engine: Engine,
    prepared: Prepared,
    plan: Plan,
    nodes: Mapping[str, Node],
    sides: Pool,
    sources: Sources,
    record: Any,
) -> Shards:
    """Make the simulation of a run over the shards of an engine.

    Raises
    ------
    CallerError
        If the engine is not there, or has more shards than there are nodes.
    """

    def deal(shards: int) -> Making:
        return Making.of(prepared, plan, shards, sources)

    crew = engine.crew(deal, len(prepared.names), sources.noise)
    charged = sources.book.told if isinstance(sources.book, Book) else None
    return Shards(nodes, sides, prepared.world, crew, record, prepared.algorithm.figures.staleness, charged)
