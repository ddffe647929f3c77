"""Runs over several shards: whether a run can be one, and what each shard is made of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, cast

from gossamer.algorithms.plan import Plan, StopSettings
from gossamer.errors import CallerError, SpecError, counted
from gossamer.experiment.preparation.ending import NO_KEEPER, Keeper, Observer, Patience
from gossamer.experiment.preparation.objective import build_objective
from gossamer.experiment.preparation.prepare import Prepared, Sources, nodes_of, sides_of
from gossamer.protocol.node import Node
from gossamer.runtimes.shard import ShardBook, ShardSimulator
from gossamer.runtimes.shards import Engine, Shards, least_delay
from gossamer.sides.ledger import Ledger
from gossamer.sides.pool import Pool
from gossamer.sides.receipts import Book

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
