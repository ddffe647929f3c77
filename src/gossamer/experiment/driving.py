"""Letting a simulation happen until something ends it."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import NamedTuple, Protocol

from gossamer.algorithms.problem import StopSettings
from gossamer.runtimes.simulator import Simulator


class Observer(Protocol):
    """Looks at a run from outside; nodes cannot tell whether it is there."""

    @property
    def timed(self) -> bool:
        """Whether it looks at moments of virtual time."""
        return False

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


class NullObserver(Observer):
    """An observer that does not look."""


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
        When to do so next, on the machine's clock (`time.monotonic`).
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
        What happens.
    stop : StopSettings
        The bounds.
    observer : Observer
        Who looks.
    keeper : Keeper
        Who keeps the state of the run.
    begun : Patience
        Of a run that goes on, as it was kept.

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
        simulator.step()
        idle += 1
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
