"""Ending of a simulation: what ends it, whether it is ``finished``, ``stalled`` or ``incomplete``, and who looks on.

Nodes that are there, have not finished and have nothing left to do wait for somebody: more time changes nothing. And
rounds may have passed in which nobody, or too few for a sum, answered.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar

from gossamer.algorithms.plan import StopSettings
from gossamer.errors import counted, listed
from gossamer.protocol.node import Node, RoundsMade
from gossamer.runtimes.simulator import Simulator

T = TypeVar("T")
STALLED, INCOMPLETE = "stalled", "incomplete"
"""Statuses of runs that ended before their plan: nobody could go on, or rounds came to nothing."""


def rounds_of(nodes: Collection[Node]) -> RoundsMade | None:
    """Rounds of whoever is furthest behind its plan; None where no node's plan has a number of them."""
    found = [rounds for node in nodes if (rounds := node.rounds_made) is not None]
    return min(found, key=lambda rounds: rounds.made - rounds.planned, default=None)


def ending(
    simulator: Simulator, workers: Collection[str], parents: Mapping[str, str], status: str
) -> tuple[str, dict[str, Any]]:
    """End of a run that `drive` says ended by ``status``, and how far short of the end of its plan it is.

    Parameters
    ----------
    simulator : Simulator
        Simulator of the run.
    workers : collection of str
        Nodes with data.
    parents : mapping of str to str
        Nodes above others.
    status : str
        Status as `drive` gives it.
    """
    if status not in ("finished", STALLED):
        return status, {}
    rounds = rounds_of(simulator.present.values())
    left = {name: node for name, node in simulator.present.items() if name not in simulator.finished}
    if status == "finished":
        behind = [one for node in left.values() if (one := node.rounds_made) and one.made + one.empty < one.planned]
        if behind or not left.keys().isdisjoint(workers):
            status = STALLED
        elif rounds is not None and rounds.empty:
            status = INCOMPLETE
        else:
            return status, {}
    awaited = set[str]().union(*(node.awaited or {parents.get(name, name)} - {name} for name, node in left.items()))
    waits_for = sorted(awaited & simulator.gone or awaited)
    made = {} if rounds is None else {"rounds": rounds.made, "planned": rounds.planned, "empty": rounds.empty}
    return status, {**made, **({"waits_for": waits_for} if waits_for else {})}


def in_words(found: Mapping[str, Any], status: str, seconds: float, settings: Any) -> str:
    """One line on a shortfall, with what to do."""
    if status == INCOMPLETE:
        return (
            f"{made(found)}: in {counted(found['empty'], 'round')} nobody answered, or there was no sum that could be "
            "used; look at faults and links, or wait longer for those who are late (algorithm.timeout)"
        )
    waits = f"waits for {listed(found['waits_for'])}" if found.get("waits_for") else "can make no other update"
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


class Observer:
    """Looks at a run from outside; nodes cannot tell whether it is there. This one does not look."""

    @property
    def next_update(self) -> int | None:
        """Number of the update after which it looks; None if it does not go by them."""
        return None

    @property
    def next_seconds(self) -> float | None:
        """Moment of virtual time at which it looks; None if it does not go by it."""
        return None

    def before(self, upcoming: float) -> None:
        """The next event happens at ``upcoming`` virtual seconds; told only who looks at moments."""

    def after(self) -> None:
        """An update has been made."""

    @property
    def satisfied(self) -> bool:
        """Whether the run may end because of what was seen."""
        return False


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

    def keep(self) -> None:
        """Keep the state now: the run is between two events."""

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


@few_collections()
def drive(simulator: Simulator, stop: StopSettings, observer: Observer, keeper: Keeper = NO_KEEPER) -> str:
    """Run until a bound is reached or nobody has anything left to do.

    Parameters
    ----------
    simulator : Simulator or Population
        Simulator of what happens.
    stop : StopSettings
        The bounds.
    observer : Observer
        Observer that looks.
    keeper : Keeper
        Keeper of the state of the run.

    Returns
    -------
    str
        Why it ended: ``updates``, ``virtual_seconds``, ``accuracy``, ``finished``, or ``stalled``, where things go on
        and on without an update, such as attempts to reach a node that is cut off for ever.
    """
    counters = simulator.counters
    timed = observer.next_seconds is not None or stop.virtual_seconds is not None
    while simulator.goes_on:
        if monotonic() >= keeper.due:  # the clock decides when, and nothing that happens
            keeper.keep()
        if timed and (upcoming := simulator.next_time) is not None:
            if stop.virtual_seconds is not None and upcoming > stop.virtual_seconds:
                observer.before(stop.virtual_seconds)
                return "virtual_seconds"
            observer.before(upcoming)
        made, satisfied = counters.updates, observer.satisfied  # then the next event, or the next update, is the last
        simulator.advance(
            updates=_first(observer.next_update, stop.updates, made + 1 if satisfied else None),
            seconds=_first(observer.next_seconds, stop.virtual_seconds) if timed else None,
            one=satisfied and timed,
        )
        if updated := counters.updates != made:
            observer.after()
        if stop.updates is not None and counters.updates >= stop.updates and simulator.is_told:
            return "updates"
        if (timed or updated) and observer.satisfied:
            return "accuracy"
        if simulator.stalled:
            return "stalled"
    return "finished"


def _first(*places: T | None) -> T | None:
    """The first of several places, of which some may not be."""
    there: list[Any] = [place for place in places if place is not None]
    return min(there, default=None)
