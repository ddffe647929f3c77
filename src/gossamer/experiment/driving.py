"""Letting a simulation happen until something ends it."""

from __future__ import annotations

from typing import Protocol

from gossamer.errors import GossamerError
from gossamer.experiment.spec import StopSettings
from gossamer.runtimes.simulator import Simulator


class Observer(Protocol):
    """Looks at a run from outside; nodes cannot tell whether it is there."""

    def before(self, upcoming: float) -> None:
        """The next event happens at ``upcoming`` virtual seconds."""
        ...

    def after(self) -> None:
        """An event has happened."""
        ...

    @property
    def satisfied(self) -> bool:
        """Whether the run may end because of what was seen."""
        ...


class Blind:
    """An observer that does not look."""

    satisfied = False

    def before(self, upcoming: float) -> None:
        pass

    def after(self) -> None:
        pass


def drive(simulator: Simulator, stop: StopSettings, observer: Observer) -> str:
    """Run until a bound is reached or nobody has anything left to do.

    Returns
    -------
    str
        Why it ended: ``updates``, ``virtual_seconds``, ``accuracy`` or ``finished``.

    Raises
    ------
    GossamerError
        If events go on and on without an update.
    """
    counters = simulator.counters
    patience = 100_000 + 1_000 * len(simulator.nodes)
    last_update, last_event = 0, 0
    while (upcoming := simulator.next_time) is not None and not simulator.settled:
        if stop.virtual_seconds is not None and upcoming > stop.virtual_seconds:
            observer.before(stop.virtual_seconds)
            return "virtual_seconds"
        observer.before(upcoming)
        simulator.step()
        observer.after()
        if counters.updates != last_update:
            last_update, last_event = counters.updates, counters.events
        elif counters.events - last_event > patience:
            raise GossamerError(
                f"no node has made an update for {patience} events, at virtual second {simulator.elapsed:g}; "
                "look at faults and links, or give stop.virtual_seconds"
            )
        if stop.updates is not None and counters.updates >= stop.updates and not simulator.halts:
            return "updates"
        if observer.satisfied:
            return "accuracy"
    return "finished"
