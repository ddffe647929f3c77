"""Populations: the compiled loop makes the run that the simulator makes, event for event and number for number."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numba import njit

from gossamer.algorithms.gossip import population
from gossamer.algorithms.gossip.exchange import Offer
from gossamer.algorithms.gossip.population import EXCHANGES, OFFERED
from gossamer.algorithms.population import COMPLETED, HANDLER, MODEL, RECEIVED, PopulationRules
from gossamer.data.memory import Data
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.experiment.preparation.engines import chosen, population_of
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import FromMemory, NoiseSecret, prepare
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import Listeners
from gossamer.experiment.specs.spec_file import spec_of
from gossamer.protocol.effects import Send
from gossamer.protocol.events import Completed, Elapsed, Received, Refused, Started
from gossamer.protocol.trace import TraceStep

SECRET = NoiseSecret(b"population tests")
EVENTS = Started, Completed, Received, Refused, Elapsed


def spec_of_seed(seed: int) -> tuple[dict[str, Any], Data]:
    """A spec that the compiled loop takes, and its examples."""
    r = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[r.integers(len(values))]

    nodes, loss = int(r.integers(2, 14)), pick("logistic", "softmax", "squared", "hinge")
    rows, features = nodes * int(r.integers(5, 15)), int(r.integers(1, 9))
    x = r.normal(size=(rows, features)).astype(np.float32) * (r.random((rows, features)) < 0.5)
    real = loss == "squared"
    y = r.normal(size=rows) if real else np.arange(rows) % pick(2, 2 if loss == "logistic" else 3)
    x = pick(x, sp.csr_array(x))
    data = Data(x, y, x_test=x[:4], y_test=y[:4], **({"task": "regression"} if real else {}))
    shape = pick("ring", "complete", "star", "line") if nodes > 2 else "complete"
    ends: dict[str, Any] = pick(
        {"epochs": pick(2, 3.5)}, {"virtual_seconds": pick(4.0, 7.3)}, {"updates": int(r.integers(5, 60))}, {}
    )
    rate = pick(
        0.1,
        {"schedule": "step", "initial": 0.5, "epochs": [1, 2]},
        {"schedule": "cosine", "initial": 0.3, "total": 3},
        {"schedule": "constant", "initial": 0.1, "peak": 0.4, "warmup": 2},
    )
    scenario = pick("even", "one_slow", {"name": "some_slow", "share": 0.5, "factor": 3})
    speeds = pick(
        {"name": "constant", "scenario": scenario, "stagger": pick(0, 1)},
        {"name": "lognormal", "spread": pick(0, 0.5, 1.5), "scenario": scenario, "stagger": pick(0, 1)},
        {"name": "cyclic"},
    )
    level = pick({"noise_multiplier": pick(0.3, 2.0)}, {})
    return {
        "objective": {"name": loss, "l2": pick(0, 0.1), "intercept": bool(pick(True, False))},
        "partition": "iid" if real else pick("iid", {"name": "dirichlet", "alpha": 5.0, "min_examples": 3}),
        "algorithm": {
            "name": "gossip",
            "nodes": nodes,
            "topology": shape,
            "batch_size": pick(1, 3),
            "learning_rate": rate,
            "exchange": pick("any", "any", "bipartite"),
            **({} if ends and pick(True, False) else {"updates_per_node": int(r.integers(1, 12))}),
        },
        "privacy": {"clip": pick(0.1, 1.0, 1e6), **level},
        **({} if level else {"budget": {"epsilon": pick(2.0, 20.0), "delta": 1e-4}}),
        "speeds": speeds,
        "links": {"latency": pick(0.0, 0.01, 0.4, 1.0, 2.5)},
        "stop": ends,
        "evaluation": "off",
        "seed": seed,
    }, data


Trace = list[tuple[Any, ...]]


def numbers_of(step: TraceStep, names: dict[str, int]) -> tuple[Any, ...]:
    """A step of the simulator as the compiled loop notes it: when, who, what, from whom and what, to whom."""
    event, sends = step.event, [effect for effect in step.effects if isinstance(effect, Send)]
    heard = isinstance(event, Received)
    return (
        step.now,
        names[step.node],
        EVENTS.index(type(event)),
        names[event.sender] if heard else -1,
        int(heard and not isinstance(event.message, Offer)),
        names[sends[0].to] if sends else -1,
    )


def both(seed: int, rules: PopulationRules = population.RULES) -> tuple[Any, Trace, Any, Trace, Any]:
    """The ended simulator and its trace, the population and its, and the plan of the run."""
    given, data = spec_of_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        memory = FromMemory(data)
        prepared = prepare(spec_of(given), memory)
        plan = plan_run(prepared)
        sources = sources_of(prepared, plan, SECRET)
        names = {name: number for number, name in enumerate(prepared.names)}
        seen: Trace = []
        run = Run(prepared, plan, sources, listeners=Listeners(watch=lambda step: seen.append(numbers_of(step, names))))
    simulator = run.simulator
    assert chosen(replace_engine(prepared), plan, sources, watched=False)[0]
    drive(simulator, plan.stop, Observer())

    noted: Trace = []

    def traced(notes: Any, moments: Any) -> None:
        noted.extend((moment[0], *note[:5]) for note, moment in zip(notes.tolist(), moments.tolist(), strict=True))

    algorithm = replace(prepared.algorithm, population=lambda: rules)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(type(prepared), "algorithm", algorithm)
        compiled = population_of(prepared, plan, sources, lambda *what: None, traced)
    drive(compiled, plan.stop, Observer())
    return simulator, seen, compiled, noted, (plan, run.sides)


def replace_engine(prepared: Any) -> Any:
    spec = prepared.experiment
    compute = spec.compute.model_copy(update={"engine": "compiled"})
    return replace(prepared, experiment=spec.model_copy(update={"compute": compute}))


def difference(seed: int, rules: PopulationRules = population.RULES) -> str:
    """What differs first between the two; empty if nothing does."""
    simulator, seen, compiled, noted, (plan, sides) = both(seed, rules)
    if seen != noted:
        place = next(i for i in range(len(seen) + len(noted)) if seen[i : i + 1] != noted[i : i + 1])
        return f"event {place}: {seen[place : place + 1]} and {noted[place : place + 1]}"
    figures = [
        (one.counters.updates, one.counters.events, one.messages, one.bytes, one.elapsed, dict(one.finished))
        for one in (simulator, compiled)
    ]
    figures[0] += (plan.spent(sides.ledgers), [*sides.lines()])
    figures[1] += (plan.spent(compiled.computer.ledgers), [*compiled.computer.lines()])
    for one, other in zip(*figures, strict=True):
        if one != other:
            return f"{one} and {other}"
    for name, node in simulator.nodes.items():
        mine, theirs = compiled.nodes[name].state, node.state
        if not np.allclose(mine.w.values, theirs.w.values, rtol=1e-6, atol=1e-6):
            return f"the models of {name}"
        for field in ("updates", "exchanges", "task", "asked", "busy", "finished"):
            if getattr(mine, field) != getattr(theirs, field):
                return f"{field} of {name}: {getattr(theirs, field)} and {getattr(mine, field)}"
        shares = [[(one.exchange, one.share) for one in state.promises] for state in (mine, theirs)]
        if shares[0] != shares[1]:
            return f"promises of {name}: {shares}"
    tables = [one.activity.table(one.elapsed) for one in (simulator, compiled)]
    for key in tables[0].keys() | tables[1].keys():
        if not np.array_equal(tables[0][key], tables[1][key], equal_nan=key == "staleness"):
            return f"activity: {key}"
    if compiled.activity.staleness() != simulator.activity.staleness():
        return "staleness"
    if compiled.activity.timeline.as_dict() != simulator.activity.timeline.as_dict():
        return "timelines"
    return ""


@pytest.mark.some(20)
@pytest.mark.parametrize("seed", range(200))
def test_the_compiled_loop_makes_the_run_of_the_simulator(seed: int) -> None:
    assert difference(seed) == ""


def _mutant(change: Any) -> PopulationRules:
    """Rules after each event of which ``change`` happens."""
    handle = population.handle

    @njit(HANDLER.signature)
    def wrong(vectors, numbers, facts, event, node, sender, message, asks):  # type: ignore[no-untyped-def]
        handle(vectors, numbers, facts, event, node, sender, message, asks)
        change(vectors, numbers, event, node, message)

    return replace(population.RULES, handle=wrong)


@njit
def _counted_twice(vectors, numbers, event, node, message):  # type: ignore[no-untyped-def]
    if event == RECEIVED and message == 1:
        numbers[node, EXCHANGES] += 1


@njit
def _draw_reused(vectors, numbers, event, node, message):  # type: ignore[no-untyped-def]
    if event == RECEIVED and message == 1:
        numbers[node, EXCHANGES] -= 1


@njit
def _stale_model(vectors, numbers, event, node, message):  # type: ignore[no-untyped-def]
    if event == COMPLETED:
        vectors[node, MODEL] = vectors[node, OFFERED]


@pytest.mark.parametrize("change", [_counted_twice, _draw_reused, _stale_model])
def test_what_is_wrong_in_the_compiled_rules_is_found(change: Any) -> None:
    assert any(difference(seed, _mutant(change)) for seed in range(10))
