"""What an observer is told, and that Python's collector is left as it was."""

from __future__ import annotations

import gc
import math
from typing import Any

import pytest

from gossamer.algorithms.plan import StopSettings
from gossamer.experiment.preparation.ending import Observer, drive, few_collections
from gossamer.runtimes.computations import Counters


class Ticking:
    """Events a second apart, every third of which is an update."""

    def __init__(self, events: int) -> None:
        self.counters, self.stalled, self.grace = Counters(), False, 0.0
        self.events, self.left, self.enough = events, events, math.inf

    @property
    def elapsed(self) -> float:
        return float(self.events - self.left)

    @property
    def next_time(self) -> float | None:
        return self.elapsed + 1 if self.left else None

    @property
    def goes_on(self) -> bool:
        return self.left > 0

    @property
    def is_told(self) -> bool:
        self.enough = min(self.enough, self.elapsed)
        return self.elapsed >= self.enough + self.grace

    def gather(self) -> None:
        pass

    def step(self) -> None:
        self.left -= 1
        self.counters.updates += self.elapsed % 3 == 0

    def advance(self, updates: int | None, seconds: float | None, one: bool) -> None:
        before, singly = self.counters.updates, one or seconds is not None
        self.step()
        while self.left > 0 and self.counters.updates == before and not (singly or before >= (updates or math.inf)):
            self.step()


class Noting(Observer):
    def __init__(self, simulator: Any, timed: bool, enough: int = 10**9) -> None:
        self.simulator, self.looks, self.enough = simulator, timed, enough
        self.before_: list[float] = []
        self.after_: list[float] = []

    @property
    def timed(self) -> bool:
        return self.looks

    @property
    def next_seconds(self) -> float | None:
        return 0.0 if self.looks else None

    def before(self, upcoming: float) -> None:
        self.before_.append(upcoming)

    def after(self) -> None:
        self.after_.append(self.simulator.elapsed)

    @property
    def satisfied(self) -> bool:
        return len(self.before_) + len(self.after_) >= self.enough


@pytest.mark.parametrize("timed", [False, True])
def test_an_observer_hears_of_updates_and_of_times_only_if_it_asks(timed: bool) -> None:
    simulator: Any = Ticking(7)
    observer = Noting(simulator, timed)
    assert drive(simulator, StopSettings(), observer) == "finished"
    assert observer.after_ == [3.0, 6.0]
    assert observer.before_ == ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] if timed else [])


@pytest.mark.parametrize(("timed", "elapsed"), [(False, 6.0), (True, 2.0)])
def test_a_run_ends_with_the_look_that_satisfies(timed: bool, elapsed: float) -> None:
    simulator: Any = Ticking(9)
    assert drive(simulator, StopSettings(), Noting(simulator, timed, enough=2)) == "accuracy"
    assert simulator.elapsed == elapsed


def test_a_bound_of_virtual_time_is_looked_at_last() -> None:
    simulator: Any = Ticking(9)
    observer = Noting(simulator, False)
    assert drive(simulator, StopSettings(virtual_seconds=4.5), observer) == "virtual_seconds"
    assert (simulator.elapsed, observer.before_[-1]) == (4.0, 4.5)


@pytest.mark.parametrize(("updates", "grace", "elapsed"), [(1, 0.0, 3.0), (1, 2.0, 5.0), (2, 4.0, 10.0)])
def test_a_bound_of_updates_gives_a_server_time_to_tell_all_and_not_an_event_more(
    updates: int, grace: float, elapsed: float
) -> None:
    simulator: Any = Ticking(99)
    simulator.grace = grace
    assert drive(simulator, StopSettings(updates=updates), Observer()) == "updates"
    assert simulator.elapsed == elapsed


def test_the_collector_is_as_it_was_after_a_run_that_failed() -> None:
    before, during = gc.get_threshold(), []

    def fails() -> None:
        with few_collections():
            during.append(gc.get_threshold())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert during != [before]
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0
