"""Noisy sums over samples: the machine of `sides` answers, charges and refuses as the sides before it, bit for bit.

The data sides of before are the reference, in a simulation, in one with blank slots, in a deployment with known
randomness, and in a laboratory whose processes come back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.reference.data_sides import BlankingSide, DataSide, DataSides
from tests.reference.deployed_sides import DeployedSide, FilledSide
from tests.reference.ledgers import Ledger, Unlimited
from tests.reference.side_scripts import Runner, Script, known_randomness
from tests.sampling import examples

from gossamer.data.examples import Split
from gossamer.faults.checks import Laboratory
from gossamer.faults.checks import renew as renewed
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.accounting.filters import ReleasePlan
from gossamer.privacy.mechanisms import (
    BallGaussian,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.tasks import Gradient, Query, Round, StepSizes, Swap
from gossamer.randomness import derive
from gossamer.sides.deployed import Deployed
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.plan import Samples
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.sides.sums import Filled, InPieces
from gossamer.vectors import Coordinates, Public

SOME = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
N, FEATURES, SEED = 24, 4, 11
SHARDS = {"a": np.arange(12), "b": np.arange(12, N)}
BLANK = np.array([1, 4, 5, 20])
NODES = tuple(SHARDS)
DATA = Split(
    np.random.default_rng(3).normal(0, 2, (N, FEATURES)).astype(np.float32), (np.arange(N) % 3).astype(np.int64)
)

LAWS = [
    Gaussian(1.0, 0.7),
    Gaussian(0.25, 2.0),
    Laplace(1.0, 0.5),
    L2Laplace(1.0, 2.0, NeighboringRelation.ADD_OR_REMOVE_ONE),
    NoNoise(1.0),
    NoNoise(),
]
SAMPLINGS = [Poisson(0.5), Poisson(1.0), Poisson(1e-9), FixedSize(12, 4), WithReplacement(12, 4)]


def objective(l2: float, dtype: str) -> LinearModel:
    return LinearModel("softmax", FEATURES, 3, l2=l2, dtype=np.dtype(dtype))


def model(size: int, dtype: str, start: float) -> Public:
    return Public(np.linspace(-1, 1, size).astype(dtype) * np.dtype(dtype).type(start))


@st.composite
def gradients(draw: st.DrawFn, size: int, dtype: str) -> Gradient:
    law = draw(st.sampled_from(LAWS))
    counted = isinstance(law, Gaussian | NoNoise) and draw(st.booleans())
    query = Query(
        draw(st.sampled_from(SAMPLINGS)),
        law,
        draw(st.sampled_from([1.0, 5.0])),
        count_share=0.1 if counted else 0.0,
        unit=draw(st.sampled_from([1.0, 0.3])),
    )
    return Gradient(draw(st.integers(0, 3)), model(size, dtype, draw(st.sampled_from([0.5, 3.0, 1e3]))), query)


@st.composite
def rounds(draw: st.DrawFn, size: int, dtype: str) -> Round:
    update = draw(st.sampled_from(["batch", "clipped_sum", "sequential"]))
    laws: list[Any] = {
        "batch": LAWS,
        "clipped_sum": [BallGaussian(1.0, 0.7), NoNoise(1.0)],
        "sequential": [NoNoise(1.0), NoNoise()],
    }[update]
    law = draw(st.sampled_from(laws))
    sampling = draw(
        st.sampled_from([Poisson(0.5), Poisson(1.0)] if update != "sequential" else [WithReplacement(12, 6)])
    )
    where = (
        draw(st.sampled_from([Coordinates(), Coordinates(1, 3)])) if type(law) in (Gaussian, NoNoise) else Coordinates()
    )
    steps = 6
    rates = draw(st.sampled_from([StepSizes(0.3), StepSizes(0.3, beta=0.5)]))
    return Round(
        draw(st.integers(0, 3)),
        (Swap(0, model(size, dtype, 0.5)),),
        Query(sampling, law, 1.0),
        steps,
        draw(st.sampled_from([2, 6])),
        rates,
        update,
        where,
    )


@st.composite
def scripts(draw: st.DrawFn, size: int, dtype: str, *, restarts: bool = False, alone: bool = False) -> Script:
    """Tasks that are admitted, amended or not, computed together or apart, once or twice, over several processes."""
    script: Script = []
    pending: list[int] = []
    for key in range(draw(st.integers(1, 6))):
        task = draw(st.one_of(gradients(size, dtype), rounds(size, dtype)))
        node = NODES[0] if alone else draw(st.sampled_from(NODES))
        script.append(("admit", key, node, task))
        pending.append(key)
        if isinstance(task, Round) and draw(st.booleans()):
            became = task.swapped(2, model(size, dtype, 1.5), 6).cut(draw(st.sampled_from([0, 3, 6])))
            script.append(("amend", key, became))
        if isinstance(task, Round) and draw(st.integers(0, 4)) == 0:
            script.append(("amend", key, replace(task, id=task.id + 1)))
        if restarts and draw(st.integers(0, 3)) == 0:
            script.append(("restart", draw(st.sampled_from(NODES))))
        if draw(st.booleans()):
            script += [("compute", [at]) for at in pending] if alone else [("compute", pending)]
            if draw(st.integers(0, 3)) == 0:
                script.append(("compute", pending[:1]))  # again
            pending = []
    return script


def plans_of(script: Script, most: int | None) -> tuple[dict[str, Any], dict[str, Samples]]:
    """The policies of before, and the plans: for so many releases of each kind that is asked for at first."""
    if most is None:
        return dict.fromkeys(NODES, Unlimited()), dict.fromkeys(NODES, Samples({}, enforced=False))
    kinds: dict[Any, int] = {}
    for operation in script:
        if operation[0] == "admit" and len(kinds) < 2:
            kinds[operation[3].release] = most
    return dict.fromkeys(NODES, ReleasePlan(kinds)), dict.fromkeys(NODES, Samples(kinds))


def shards(blank: np.ndarray | None = None) -> dict[str, ShardRows]:
    return {name: ShardRows(rows) if blank is None else ShardRows(rows, blank) for name, rows in SHARDS.items()}


def lines_of(ledgers: dict[str, Any]) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [line for ledger in ledgers.values() for line in ledger.lines()]


def compare(old: Runner, new: Runner, script: Script, nodes: tuple[str, ...] = NODES) -> list[Any]:
    with known_randomness():
        before = old.run(script, nodes)
    with known_randomness():
        after = new.run(script, nodes)
    assert after == before
    return after


CASES = st.tuples(st.sampled_from([0.0, 0.1]), st.sampled_from(["float32", "float64"]), st.sampled_from([None, 1, 2]))


@SOME
@given(CASES, st.booleans(), st.data())
def test_in_a_simulation(case: tuple[float, str, int | None], blank: bool, data: st.DataObject) -> None:
    l2, dtype, most = case
    goal = objective(l2, dtype)
    script = data.draw(scripts(goal.size, dtype))
    policies, plans = plans_of(script, most)
    ledgers = {name: Ledger(name, policies[name]) for name in NODES}
    before: dict[str, Any] = {
        name: BlankingSide(BLANK, ledgers[name], rows, SEED) if blank else DataSide(ledgers[name], rows, SEED)
        for name, rows in SHARDS.items()
    }
    pool = open_pool(plans, shards(BLANK if blank else None), goal, DATA, Simulated(SEED))
    compare(
        Runner(DataSides(before, goal, DATA), lines_of(ledgers)),
        Runner(pool, lambda: [line for ledger in pool.ledgers for line in ledger.lines()]),
        script,
    )


@SOME
@given(CASES, st.booleans(), st.data())
def test_in_a_deployment(case: tuple[float, str, int | None], timed: bool, data: st.DataObject) -> None:
    """One party, on examples that nobody has beside its own or not; randomness is used in the same order."""
    l2, dtype, most = case
    goal = objective(l2, dtype)
    script = data.draw(scripts(goal.size, dtype, alone=True))
    policies, plans = plans_of(script, most)
    queries = tuple(operation[3].query for operation in script if operation[0] == "admit")
    ledger, kept = Ledger("a", policies["a"]), MemoryLedger("a", plans["a"].charges())
    with known_randomness():
        kind = FilledSide if timed else DeployedSide
        old = Runner(kind(ledger, SHARDS["a"], goal, DATA, queries), ledger.lines)
    with known_randomness():
        planned = {"a": replace(plans["a"], queries=lambda: queries)}
        sums = partial(Filled, count=len(SHARDS["a"])) if timed else InPieces
        home = Deployed(lambda name, plan: kept, sums=sums)
        new = Runner(open_pool(planned, shards(), goal, DATA, home), kept.lines)
    compare(old, new, script, ("a",))


@SOME
@given(CASES, st.data())
def test_in_a_laboratory(case: tuple[float, str, int | None], data: st.DataObject) -> None:
    """Ledgers outlive processes, and every life has noise of its own."""
    l2, dtype, most = case
    goal = objective(l2, dtype)
    script = data.draw(scripts(goal.size, dtype, restarts=True))
    policies, plans = plans_of(script, most)
    ledgers = {name: Ledger(name, policies[name]) for name in NODES}
    lives = dict.fromkeys(NODES, 0)

    def restart(computer: Any, name: str) -> Any:
        lives[name] += 1
        computer.sides[name] = DataSide(ledgers[name], SHARDS[name], derive(lives[name], "life", name))
        return computer

    def renew(pool: Any, name: str) -> Any:
        renewed(pool, name)
        return pool

    before = DataSides({name: DataSide(ledgers[name], rows, 0) for name, rows in SHARDS.items()}, goal, DATA)
    kept = {name: MemoryLedger(name, plans[name].charges()) for name in NODES}
    home = Laboratory(lambda name, plan: kept[name], lambda what: None)
    pool = open_pool(plans, shards(), goal, DATA, home)
    compare(Runner(before, lines_of(ledgers), restart), Runner(pool, lines_of(kept), renew), script)


@pytest.mark.parametrize("world", ["simulation", "deployment"])
def test_the_comparison_sees_a_bit(world: str) -> None:
    """With another seed, or one number drawn before, transcripts differ."""
    goal = objective(0.0, "float64")
    task = Gradient(0, model(goal.size, "float64", 0.5), Query(Poisson(0.5), LAWS[0], 5.0))
    script: Script = [("admit", 0, "a", task), ("compute", [0])]
    plans = {"a": Samples({}, enforced=False)}

    def runner(other: bool) -> Runner:
        home: Any = Simulated(SEED + other)
        if world == "deployment":
            ledger = MemoryLedger("a", plans["a"].charges())
            home = Deployed(lambda name, plan: ledger)
        pool = open_pool(plans, shards(), goal, DATA, home)
        if world == "deployment" and other:
            pool.compute([pool.admit("a", task)])
        return Runner(pool, list)

    transcripts = []
    for other in (False, True):
        with known_randomness():
            transcripts.append(runner(other).run(script, ()))
    assert transcripts[0] != transcripts[1]
