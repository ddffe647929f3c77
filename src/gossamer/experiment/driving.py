"""Letting a simulation happen until something ends it."""

from __future__ import annotations

from typing import Protocol

from gossamer.algorithms.stopping import StopSettings
from gossamer.runtimes.simulator import Simulator


class Observer(Protocol):
    """Looks at a run from outside; nodes cannot tell whether it is there."""

    def before(self, upcoming: float) -> None:
        """The next event happens at ``upcoming`` virtual seconds."""
        return None

    def after(self) -> None:
        """An event has happened."""
        return None

    @property
    def satisfied(self) -> bool:
        """Whether the run may end because of what was seen."""
        return False


class Blind(Observer):
    """An observer that does not look."""


def drive(simulator: Simulator, stop: StopSettings, observer: Observer) -> str:
    """Run until a bound is reached or nobody has anything left to do.

    Returns
    -------
    str
        Why it ended: ``updates``, ``virtual_seconds``, ``accuracy``, ``finished``, or ``stalled``, where things go on
        and on without an update, such as attempts to reach a node that is cut off for ever.
    """
    counters = simulator.counters
    patience = 100_000 + 1_000 * len(simulator.nodes)
    last_update, idle = 0, 0
    reached: float | None = None
    while (upcoming := simulator.next_time) is not None and not simulator.settled:
        if stop.virtual_seconds is not None and upcoming > stop.virtual_seconds:
            observer.before(stop.virtual_seconds)
            return "virtual_seconds"
        observer.before(upcoming)
        simulator.step()
        observer.after()
        idle = idle + 1 if counters.updates == last_update else 0
        last_update = counters.updates
        if stop.updates is not None and last_update >= stop.updates:
            reached = simulator.elapsed if reached is None else reached
            # A server that halts the run has the time to tell everybody that can be told.
            grace = simulator.grace if simulator.halts else 0.0
            if simulator.elapsed >= reached + grace:
                return "updates"
        if observer.satisfied:
            return "accuracy"
        if idle > patience:
            return "stalled"
    return "finished"
