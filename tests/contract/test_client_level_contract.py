"""A client-level algorithm in every world: a simulation, deployed data sides, and hosts whose processes are killed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tests.reference.client_level import SERVER, ClientLevel, Update
from tests.reference.side_kinds import Kept

from gossamer.data.examples import Split
from gossamer.faults.checks import Laboratory, WatchedSides
from gossamer.faults.hosts import LinkedHosts, Reaper
from gossamer.faults.schedules import SETTINGS, FaultSchedule, Sieve
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation
from gossamer.protocol.effects import Send
from gossamer.protocol.encoding import decode, encode
from gossamer.protocol.trace import TraceStep
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.storage.ledger import LedgerFile, admits_all, stored_ledger
from gossamer.runtimes.world import World
from gossamer.sides.deployed import Deployed
from gossamer.sides.home import Home, Simulated
from gossamer.sides.ledger import Ledger
from gossamer.sides.machine import Side
from gossamer.sides.plan import SidePlan, Trust
from gossamer.sides.pool import Machine, Pool, open_pool
from gossamer.sides.samples import ShardRows
from gossamer.vectors import Confined, Released

CLIENTS, SIZE, ROUNDS, BOUND = ("a", "b", "c"), 4, 3, 0.5
LAW = Gaussian(BOUND, 2.0)
BUDGET = admits_all(NeighboringRelation.REPLACE_ONE)
OBJECTIVE = LinearModel("squared", SIZE, None, intercept=False, dtype=np.dtype(np.float64))
GENERATOR = np.random.default_rng(1)
DATA = Split(GENERATOR.standard_normal((24, SIZE)).astype(np.float32), GENERATOR.standard_normal(24).astype(np.float32))
ZEROS = Split(np.zeros((24, SIZE), np.float32), np.zeros(24, np.float32))
SHARDS = {name: ShardRows(np.arange(8 * at, 8 * at + 8)) for at, name in enumerate(CLIENTS)}


def run_of(curated: bool) -> ClientLevel:
    return ClientLevel(CLIENTS, SIZE, ROUNDS, LAW, curated)


def pool_of(run: ClientLevel, home: Home, data: Split = DATA, spare: int = 0) -> Pool:
    return open_pool(run.plans(spare), SHARDS, OBJECTIVE, data, home)


def on_disk(file: LedgerFile) -> Any:
    def opened(name: str, plan: SidePlan) -> Ledger:
        return stored_ledger(file, name, name, "run", BUDGET, plan, Trust.SCOPE)

    return opened


@pytest.mark.parametrize("world", ["simulation", "deployment"])
@pytest.mark.parametrize("curated", [False, True])
def test_a_run_charges_each_client_once_a_round_and_nothing_raw_leaves_its_scope(curated: bool, world: str) -> None:
    run, seen = run_of(curated), list[TraceStep]()
    home: Home = Simulated(3) if world == "simulation" else Deployed(on_disk(LedgerFile(":memory:")), Kept())
    pool = pool_of(run, home)
    simulator = Simulator(run.nodes(), pool, World(units=run.units), watch=seen.append)
    while simulator.next_time is not None:
        simulator.step()
    assert simulator.finished == {SERVER: "rounds"}
    lines = [line for ledger in pool.ledgers for line in ledger.lines()]
    assert [(line["node"], line["releases"], line["protects"]) for line in lines] == [
        (name, ROUNDS, "client") for name in CLIENTS
    ]
    model: Any = simulator.nodes[SERVER].state.model
    assert type(model) is Released
    assert np.isfinite(model.values).all()
    sent = [effect.message for step in seen for effect in step.effects if isinstance(effect, Send)]
    updates = [item.update for item in sent if isinstance(item, Update)]
    assert len(updates) == ROUNDS * len(CLIENTS)
    assert {type(update) for update in updates} == {Confined if curated else Released}
    if curated:  # each raw one is clipped as a whole, and there are some that had to be
        lengths = [float(np.linalg.norm(update.values)) for update in updates]
        assert max(lengths) <= BOUND * (1 + 1e-12)
    for step in seen:
        assert decode(encode(tuple(step.effects))) == tuple(step.effects)  # traces can hold what is asked


def finish(simulator: Simulator) -> None:
    while simulator.next_time is not None:
        simulator.step()


def test_raw_updates_do_not_leave_their_scope() -> None:
    """Without the scope, the very same nodes cannot send them; noised ones need none."""
    simulator = Simulator(run_of(False).nodes(), pool_of(run_of(False), Simulated(3)), World())
    finish(simulator)
    assert simulator.finished == {SERVER: "rounds"}
    raw = Simulator(run_of(True).nodes(), pool_of(run_of(True), Simulated(3)), World())
    with pytest.raises(TypeError, match="confined"):
        finish(raw)


def killed(run: ClientLevel, world: str, seed: int, machine: Machine = Side) -> tuple[str | None, int]:
    """What does not hold in a run whose processes are killed, and how often they were.

    All examples are zeros, so that what is released is its noise.
    """
    reaper, file = Reaper(), LedgerFile(":memory:")
    home: Home = Laboratory(on_disk(file), reaper) if world == "laboratory" else Killed(on_disk(file), reaper)
    plans = run.plans(spare=20)

    def charged(name: str) -> int | None:
        plan = plans.get(name)
        return None if plan is None or plan.charges() is None else on_disk(file)(name, plan).releases

    sides = WatchedSides(open_pool(plans, SHARDS, OBJECTIVE, ZEROS, home, machine), charged, True)
    steps: list[TraceStep] = []
    schedule = FaultSchedule.seeded(seed, [(*CLIENTS, SERVER)])
    for_ever = any(math.isinf(sieve.end) for sieve in schedule.of(Sieve))  # then a round need not end
    hosts = LinkedHosts(
        run.nodes(),
        sides,
        schedule,
        settings=SETTINGS,
        units=run.units,
        watch=steps.append,
        reaper=reaper,
    )
    while hosts.nodes[SERVER].state.finished != "rounds" and not hosts.gone:
        if hosts.events > 300:
            if for_ever:
                break
            return "not over after 300 events", 0
        hosts.step()
        if (problem := sides(steps)) is not None or hosts.rejected:
            return problem or hosts.rejected[0].reason, 0
        steps.clear()
    return None, sum(hosts._lives.values())


@pytest.mark.parametrize("world", ["laboratory", "deployment"])
@pytest.mark.parametrize("curated", [False, True])
def test_hosts_that_are_killed_share_no_noise_and_charge_no_less_than_they_drew(curated: bool, world: str) -> None:
    restarts = 0
    for seed in range(25):
        problem, lives = killed(run_of(curated), world, seed)
        assert problem is None, (seed, problem)
        restarts += lives
    assert restarts > 10


class ForgetsToCharge(Side):
    """A bug that must be found."""

    __slots__ = ()

    def charge(self, receipt: Any) -> int:
        return self.releases


@pytest.mark.parametrize("curated", [False, True])
def test_a_side_that_does_not_charge_is_found(curated: bool) -> None:
    problem, _ = killed(run_of(curated), "laboratory", 0, ForgetsToCharge)
    assert problem is not None
    assert "share their noise" in problem or "noise was drawn for" in problem


class Killed(Deployed):
    """Deployed data sides whose processes are killed."""

    def __init__(self, ledgers: Any, reaper: Reaper) -> None:
        super().__init__(ledgers, Kept())
        self._reaper = reaper

    def crashpoint(self, what: str) -> None:
        self._reaper(what)


@pytest.mark.parametrize("relation", list(NeighboringRelation))
def test_what_a_plan_reveals_is_what_its_scope_is_trusted_with(relation: NeighboringRelation) -> None:
    """Gaussian releases of sensitivity C or 2 C: order T (S/s)^2/2, by hand."""
    alpha, sensitivity = 8.0, BOUND * (2 if relation is NeighboringRelation.REPLACE_ONE else 1)
    expected = ROUNDS * alpha * (sensitivity / LAW.standard_deviation) ** 2 / 2
    noised = run_of(False).plans()["a"]
    curated = run_of(True).plans()
    for trust in Trust:
        assert noised.revealed(trust).divergence(alpha, relation) == pytest.approx(expected, rel=1e-9)
    for plan in (curated["a"], curated[SERVER]):
        assert plan.revealed(Trust.SCOPE).divergence(alpha, relation) == pytest.approx(expected, rel=1e-9)
        assert math.isinf(plan.revealed(Trust.NOBODY).divergence(alpha, relation))
