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
from typing import TYPE_CHECKING, Any, NamedTuple

from gossamer.algorithms.plan import StopSettings
from gossamer.errors import counted
from gossamer.protocol.node import Node, RoundsMade
from gossamer.runtimes.simulator import Simulator

if TYPE_CHECKING:
    from gossamer.runtimes.shards import Observed


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
        # Between two updates only who goes by the clock, or waits for the end, has something to look at.
        singly = timed or (stop.updates is not None and last_update >= stop.updates)
        idle += simulator.proceed(1 if singly else min(100, patience + 1 - idle))
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
