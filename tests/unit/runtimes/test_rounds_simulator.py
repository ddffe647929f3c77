"""Rounds on the virtual clock: models swapped in, waiting, and being cut short."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reference.pools import simulated
from tests.sampling import examples

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import Gaussian, NoNoise, Poisson
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.protocol.effects import Compute, Effect, Interrupt, SetTimer, Update
from gossamer.protocol.events import Completed, Elapsed, Event, Refused, Resumed, Started
from gossamer.protocol.node import Node
from gossamer.protocol.trace import TraceStep, read_steps, replay, write_step
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.speeds import SpeedSettings
from gossamer.runtimes.world import FaultSettings, World
from gossamer.sides.machine import SideAnswer
from gossamer.sides.pool import BlankSides
from gossamer.testing.contracts import FixedAnswers
from gossamer.vectors import Coordinates, Public

TOGETHER = SpeedSettings(stagger=0)
QUERY = Query(Poisson(0.5), NoNoise(), 1.0)


def model(value: float) -> Public:
    return Public(np.full(3, float(value)))


def a_round(number: int = 1, steps: int = 5, until: int | None = None, query: Query = QUERY) -> Round:
    until = steps if until is None else until
    return Round(number, (Swap(0, model(0)),), query, steps, until, StepSizes(0.1), "batch", Coordinates(1, 2))


@dataclass
class Seen:
    events: list[tuple[float, Event]] = field(default_factory=list)


class Scripted(Node):
    """Asks for tasks when it starts, and does what the script says so many seconds later."""

    def __init__(self, name: str, tasks: Sequence[Any], script: dict[float, Sequence[Effect]] | None = None) -> None:
        super().__init__(name, Seen())
        self.tasks, self.script = tasks, script or {}

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.state.events.append((now, event))
        if isinstance(event, Started):
            timers = [SetTimer(after, str(after)) for after in self.script]
            return [*(Compute(task) for task in self.tasks), *timers]
        return list(self.script[float(event.timer)]) if isinstance(event, Elapsed) else []


class Watched(FixedAnswers):
    """Remembers which tasks were computed together, as they became."""

    def __init__(self, most: int = 1 << 30) -> None:
        super().__init__(most)
        self.calls: list[list[Gradient | Round]] = []

    def admit(self, node: str, task: Gradient | Round) -> Any:
        super().admit(node, task)
        return task

    def amended(self, ticket: Any, task: Round) -> Any:
        assert ticket.id == task.id
        return task

    def compute(self, tickets: Sequence[Any]) -> list[SideAnswer]:
        self.calls.append(list(tickets))
        return BlankSides().compute(tickets)


def run(
    tasks: Sequence[Any],
    script: dict[float, Sequence[Effect]] | None = None,
    world: World | None = None,
    computer: Any = None,
    **options: Any,
) -> tuple[list[tuple[float, int, int]], list[list[Any]]]:
    """When which task was answered after how many steps, and what was computed together."""
    computer = computer or Watched()
    simulator = Simulator({"a": Scripted("a", tasks, script)}, computer, world or World(TOGETHER), **options)
    while simulator.next_time is not None:
        simulator.step()
    events = simulator.nodes["a"].state.events
    done = [(round(at - simulator.start, 9), e.id, e.steps) for at, e in events if isinstance(e, Completed)]
    return done, getattr(computer, "calls", [])


def swaps(task: Round) -> list[tuple[int, float]]:
    return [(swap.step, float(swap.model.values[0])) for swap in task.swaps]


def test_a_round_takes_the_nodes_seconds_for_each_step() -> None:
    done, calls = run([a_round(steps=5)], world=World(SpeedSettings(stagger=0, seconds=2.0)))
    assert done == [(10.0, 1, 5)]
    assert calls == [[a_round(steps=5)]]


def test_the_answer_has_the_size_of_its_coordinates() -> None:
    """The second of every two of three coordinates: one."""
    simulator = Simulator({"a": Scripted("a", [a_round()])}, FixedAnswers(), World(TOGETHER))
    while simulator.next_time is not None:
        simulator.step()
    (answer,) = [event for _, event in simulator.nodes["a"].state.events if isinstance(event, Completed)]
    assert answer.released.size == 1


@pytest.mark.parametrize(("at", "step"), [(0.5, 0), (2.0, 2), (2.5, 2), (4.75, 4)])
def test_a_model_is_swapped_in_after_the_steps_that_are_done(at: float, step: int) -> None:
    done, ((became,),) = run([a_round()], {at: [Update(1, model(7), 5)]})
    assert done == [(5.0, 1, 5)]
    assert swaps(became) == [(0, 0.0), (step, 7.0)]


def test_a_round_waits_where_it_may_not_go_on() -> None:
    """Two steps, then nothing until 3.5; the three others are done at 6.5."""
    done, ((became,),) = run([a_round(until=2)], {3.5: [Update(1, model(7), 5)]})
    assert done == [(6.5, 1, 5)]
    assert swaps(became) == [(0, 0.0), (2, 7.0)]


def test_a_round_that_is_let_on_in_time_does_not_wait() -> None:
    script = {0.5: [Update(1, model(1), 3)], 2.25: [Update(1, model(2), 4)], 3.9: [Update(1, model(3), 5)]}
    done, ((became,),) = run([a_round(until=2)], script)
    assert done == [(5.0, 1, 5)]
    assert swaps(became) == [(0, 0.0), (0, 1.0), (2, 2.0), (3, 3.0)]


def test_an_update_of_a_round_that_may_go_on_schedules_nothing() -> None:
    simulator = Simulator(
        {"a": Scripted("a", [a_round()], {2.5: [Update(1, model(7), 5)]})}, Watched(), World(TOGETHER)
    )
    while not any(isinstance(event, Completed) for _, event in simulator.nodes["a"].state.events):
        simulator.step()
    assert simulator.next_time is None


def test_a_round_waits_more_than_once_and_from_the_start() -> None:
    """From 4 it does one step, until 5; from 6 two more, until 8; from 10 the last two."""
    script = {float(at): [Update(1, model(at), until)] for at, until in {4: 1, 6: 3, 10: 5}.items()}
    done, ((became,),) = run([a_round(until=0)], script)
    assert done == [(12.0, 1, 5)]
    assert swaps(became) == [(0, 0.0), (0, 4.0), (1, 6.0), (3, 10.0)]


def test_a_waiting_round_is_charged_and_never_computed() -> None:
    computer = Watched()
    done, calls = run([a_round(until=4)], computer=computer)
    assert (done, calls) == ([], [])
    assert computer.releases("a") == 1


def test_an_update_never_takes_steps_back() -> None:
    done, ((became,),) = run([a_round(until=5)], {1.5: [Update(1, model(7), 1)]})
    assert done == [(5.0, 1, 5)]
    assert became.until == 5


@pytest.mark.parametrize(("at", "steps"), [(0.5, 0), (1.0, 1), (2.5, 2), (4.75, 4)])
def test_a_round_that_is_cut_short_answers_at_once(at: float, steps: int) -> None:
    done, ((became,),) = run([a_round()], {at: [Interrupt(1)]})
    assert done == [(at, 1, steps)]
    assert became == a_round().cut(steps)


def test_a_waiting_round_is_cut_where_it_waits() -> None:
    done, ((became,),) = run([a_round(until=2)], {9.0: [Interrupt(1)]})
    assert done == [(9.0, 1, 2)]
    assert became.until == 2


def test_after_an_interrupt_nothing_is_swapped_in() -> None:
    done, ((became,),) = run([a_round(until=2)], {9.0: [Interrupt(1), Update(1, model(7), 5), Interrupt(1)]})
    assert done == [(9.0, 1, 2)]
    assert became == a_round(until=2).cut(2)


def test_updates_and_interrupts_of_what_is_not_running_do_nothing() -> None:
    """An unknown task, a gradient, and a round that was completed."""
    gradient = Gradient(2, model(0), QUERY)
    script = {
        0.5: [Update(9, model(7), 5), Interrupt(9), Update(2, model(7), 5), Interrupt(2)],
        5.0: [Update(1, model(7), 5), Interrupt(1)],
    }
    done, calls = run([a_round(), gradient], script)
    assert done == [(1.0, 2, 1), (5.0, 1, 5)]
    assert calls == [[gradient], [a_round()]]


def test_a_round_is_computed_only_when_it_falls_due() -> None:
    """Gradients are computed together, and a round on its own, since until then a model may be swapped in."""
    gradients = [Gradient(number, model(0), QUERY) for number in (1, 2)]
    _, calls = run([gradients[0], a_round(3), gradients[1]])
    assert calls == [gradients, [a_round(3)]]


def test_tasks_of_one_node_run_side_by_side() -> None:
    done, _ = run([a_round(1, 5), a_round(2, 3)], {1.5: [Interrupt(1)]})
    assert done == [(1.5, 1, 1), (3.0, 2, 3)]


def away(start: float, end: float) -> World:
    absence = {"node": 0, "start": start, "end": end}
    return World(TOGETHER, faults=FaultSettings.model_validate({"absences": [absence]}))


@pytest.mark.parametrize("until", [2, 5])
def test_a_node_that_leaves_loses_its_rounds(until: int) -> None:
    computer = Watched()
    assert run([a_round(until=until)], world=away(2.5, 4.0), computer=computer) == ([], [])
    assert computer.releases("a") == 1


def test_a_lost_round_does_not_end_one_of_the_same_number() -> None:
    """Asked for again at 4, it ends at 9; at 5 the lost one would have."""

    class Persistent(Scripted):
        def handle(self, event: Event, now: float) -> list[Effect]:
            effects = super().handle(event, now)
            return [Compute(a_round())] if isinstance(event, Resumed) else effects

    simulator = Simulator({"a": Persistent("a", [a_round()])}, FixedAnswers(), away(2.5, 4.0))
    while simulator.next_time is not None:
        simulator.step()
    events = simulator.nodes["a"].state.events
    assert [at - simulator.start for at, event in events if isinstance(event, Completed)] == [9.0]


def test_a_refused_round_is_not_run() -> None:
    simulator = Simulator({"a": Scripted("a", [a_round()])}, FixedAnswers(most=0), World(TOGETHER))
    while simulator.next_time is not None:
        simulator.step()
    assert [event for _, event in simulator.nodes["a"].state.events] == [Started(), Refused(1, 0)]


def test_a_trace_with_rounds_replays() -> None:
    script = {2.5: [Update(1, model(7), 5)], 4.0: [Interrupt(1)]}
    steps: list[TraceStep] = []
    run([a_round(until=2)], script, computer=FixedAnswers(), watch=steps.append)
    assert {type(effect) for step in steps for effect in step.effects} == {Compute, SetTimer, Update, Interrupt}
    file = io.BytesIO()
    for step in steps:
        write_step(file, step)
    file.seek(0)
    assert list(read_steps(file)) == steps
    assert replay(steps, {"a": Scripted("a", [a_round(until=2)], script)}) is None
    assert replay(steps, {"a": Scripted("a", [a_round(until=3)], script)}) is not None


def test_values_follow_the_clock_and_nothing_else() -> None:
    """With a real data side: the same run twice, and another model swapped in gives another answer."""

    def answer(swapped: float) -> Any:
        data = Split(np.eye(3, dtype=np.float32), np.ones(3, np.float32))
        objective = LinearModel("squared", 3, None, intercept=False, dtype=np.float64)
        query = Query(Poisson(1.0), Gaussian(1.0, 1.0), 1.0)
        script = {0.5: [Update(1, model(swapped), 5)]}
        simulator = Simulator(
            {"a": Scripted("a", [a_round(query=query)], script)},
            simulated({"a": np.arange(3)}, objective, data, 1),
            World(TOGETHER),
        )
        while simulator.next_time is not None:
            simulator.step()
        (event,) = [event for _, event in simulator.nodes["a"].state.events if isinstance(event, Completed)]
        return event

    assert answer(7.0) == answer(7.0)
    # The swapped model is that of all slots but none was reached before: x = e_2 has residual 7 - 1, or 0.5 - 1, and
    # the gradient on coordinate 1, times 2, is clipped to 1.
    assert answer(7.0).released.values - answer(0.5).released.values == pytest.approx(2.0, rel=1e-12)


TICKS = 4  # a second


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(
    st.integers(1, 6),
    st.integers(0, 6),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6), st.booleans()), max_size=6, unique_by=lambda e: e[0]),
)
def test_any_schedule_is_as_if_step_by_step(steps: int, until: int, events: list[tuple[int, int, bool]]) -> None:
    """Against a clock that ticks four times a second; at a tick first the step ends, then what is asked happens.

    A model that is swapped in when all steps are done, in the instant before the round is completed, is left out.
    """
    until = min(until, steps)
    script: dict[float, Sequence[Effect]] = {}
    for tick, more, cut in events:
        script[tick / TICKS] = [Interrupt(1) if cut else Update(1, model(tick), min(more, steps))]
    expected = step_by_step(steps, until, sorted(events))
    done, calls = run([a_round(steps=steps, until=until)], script)
    if expected is None:
        assert (done, calls) == ([], [])
    else:
        at, taken, places = expected
        assert done == [(at / TICKS, 1, taken)]
        assert [swap for swap in swaps(calls[0][0]) if swap[0] < steps] == [(0, 0.0), *places]


def step_by_step(
    steps: int, until: int, events: Sequence[tuple[int, int, bool]]
) -> tuple[int, int, list[tuple[int, float]]] | None:
    """When the round ends, after how many steps, and which models were swapped in where; None if it never ends."""
    happens = {tick: (more, cut) for tick, more, cut in events}
    done = progress = 0
    places: list[tuple[int, float]] = []
    for tick in range(1, 200):
        if done < until:
            progress += 1
            if progress == TICKS:
                done, progress = done + 1, 0
        if done == steps:
            return tick, done, places
        if tick in happens:
            more, cut = happens[tick]
            if cut:
                return tick, done, places
            places.append((done, float(tick)))
            until = max(until, min(more, steps))
    return None
