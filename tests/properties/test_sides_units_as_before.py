"""Units: raw updates, streams and masked sums leave the machine of `sides` as they left the data sides before it.

The data sides of before are the reference, in a simulation, in a deployment with known randomness whose processes are
killed after a charge and come back, and in a laboratory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.properties.test_masked_units_properties import unit_settings
from tests.reference.agent_sides import AgentSide, ChargingMaskedSide
from tests.reference.deployed_sides import DeployedUnitSide
from tests.reference.ledgers import AgentLedger, UnitLedger
from tests.reference.side_kinds import Kept
from tests.reference.side_scripts import Runner, Script, known_randomness, seen
from tests.reference.unit_sides import UnitSide, UnitSides
from tests.sampling import examples

from gossamer.algorithms.graph_federated.box import local_queries
from gossamer.algorithms.graph_federated.settings import Sampling
from gossamer.data.examples import Split
from gossamer.errors import GossamerError
from gossamer.faults.checks import Laboratory
from gossamer.faults.checks import renew as renewed
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.masking import MaskingServer, Phase
from gossamer.privacy.masking.messages import REPLIES, MaskedVector, packed, unpacked
from gossamer.privacy.streams.correlated_noise import (
    CorrelatedNoise,
    Factorisation,
    NoiseLaw,
    StreamKind,
    StreamRecord,
    Temporal,
)
from gossamer.privacy.streams.graph_bounds import GradientAt, UpdateBound
from gossamer.privacy.tasks import REFUSED, LocalQuery, LocalUpdate, MaskingStep
from gossamer.protocol.effects import Release
from gossamer.randomness import derive
from gossamer.sides.deployed import Deployed
from gossamer.sides.home import Simulated
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.plan import ClientUpdate, MaskedMember, SidePlan, StreamPlan
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import ShardRows
from gossamer.sides.secure_unit import RoundTerms
from gossamer.vectors import LARGEST_VALUE, Confined, Masked, Public

SOME = settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
SIZE, SEED, RECORDS = 4, 7, 5
SERVER, AGENTS = "server-0", ("a", "b", "c")
SHARDS = {name: np.arange(10 * at, 10 * at + 10) for at, name in enumerate(AGENTS)}
BOUND = UpdateBound(0.5, 1.0, 3, GradientAt.RELEASED)
DATA = Split(
    np.random.default_rng(0).standard_normal((30, SIZE)).astype(np.float32),
    np.random.default_rng(1).standard_normal(30).astype(np.float32),
)
STREAMS: list[CorrelatedNoise | None] = [
    None,
    CorrelatedNoise(Factorisation(Temporal.INDEPENDENT, RECORDS), 2.0),
    CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, RECORDS), 2.0),
    CorrelatedNoise(Factorisation(Temporal.BANDED, RECORDS, 3), 1.0),
    CorrelatedNoise(Factorisation(Temporal.RANDOM_WALK, RECORDS), 1.0, NoiseLaw.LAPLACE),
]


def objective(dtype: str = "float64") -> LinearModel:
    return LinearModel("squared", SIZE, None, intercept=False, l2=0.1, dtype=np.dtype(dtype))


def members(round: int) -> Sequence[str]:
    return AGENTS if round % 2 else AGENTS[:2]


def stream_plan(noise: CorrelatedNoise | None) -> StreamPlan:
    return StreamPlan(noise, RECORDS, SIZE, BOUND.moved, BOUND.agents_sampled, 0.5, AGENTS)


@st.composite
def scripts(draw: st.DrawFn, *, restarts: bool = False, only: str | None = None) -> Script:
    """Updates of agents and records of their server: in turn, again, of another state, out of turn."""
    script: Script = []
    pending: list[int] = []
    record = 0
    states = [Confined(np.full(SIZE, value)) for value in (0.5, 2.0, np.inf)]
    for key in range(draw(st.integers(1, 8))):
        if only == SERVER or (only is None and draw(st.booleans())):
            number = draw(st.sampled_from([record] * 4 + [record - 1] * 3 + [record + 1, 0, -1]))
            script.append(("admit", key, SERVER, Release(number, draw(st.sampled_from(states)))))
            # Sometimes the process ends after the charge and before the answer.
            killed = restarts and draw(st.integers(0, 3)) == 0
            record += number == record and record < RECORDS
            if killed:
                script.append(("restart", SERVER))
                continue
            if draw(st.booleans()):
                script.append(("compute", [key]))
        else:
            query = LocalQuery(draw(st.sampled_from([1, 3])), 4, 0.5, draw(st.sampled_from([1.0, np.inf])))
            at = Public(np.full(SIZE, draw(st.sampled_from([0.0, 1.0]))))
            name = AGENTS[0] if only else draw(st.sampled_from(AGENTS[:2]))
            script.append(("admit", key, name, LocalUpdate(draw(st.integers(0, 3)), at, query)))
            pending.append(key)
            if draw(st.integers(0, 5)) == 0:
                script.append(("amend", key, script[-1][3]))
        if restarts and draw(st.integers(0, 3)) == 0:
            script.append(("restart", only or draw(st.sampled_from([SERVER, *AGENTS]))))
        if draw(st.booleans()):
            script.append(("compute", pending))
            pending = pending[:1]  # one of them again
    return script


def simulated(noise: CorrelatedNoise | None, seed_of: Any, ledger: UnitLedger) -> tuple[UnitSides, dict[str, SidePlan]]:
    """The data sides of before, and the same as plans."""

    def agent(name: str) -> AgentSide:
        return AgentSide(name, SHARDS[name], seed_of(name))

    units = {SERVER: UnitSide(ledger, SIZE, seed_of(SERVER))}
    old = UnitSides({name: agent(name) for name in AGENTS}, units, dict.fromkeys(AGENTS, SERVER), objective(), DATA)
    behind = stream_plan(noise)
    return old, {SERVER: behind} | {name: ClientUpdate(behind=behind) for name in AGENTS}


def shards() -> dict[str, ShardRows]:
    return {name: ShardRows(rows) for name, rows in SHARDS.items()}


def compare(old: Runner, new: Runner, script: Script, nodes: Sequence[str]) -> None:
    with known_randomness():
        before = old.run(script, nodes)
    with known_randomness():
        after = new.run(script, nodes)
    assert after == before


@SOME
@given(st.sampled_from(STREAMS), st.data())
def test_a_unit_in_a_simulation(noise: CorrelatedNoise | None, data: st.DataObject) -> None:
    script = data.draw(scripts())
    ledger = UnitLedger(SERVER, AGENTS, StreamKind(noise, RECORDS, SIZE))
    old, plans = simulated(noise, lambda name: SEED, ledger)
    pool = open_pool(plans, shards(), objective(), DATA, Simulated(SEED))
    after = Runner(pool, lambda: [line for ledger in pool.ledgers for line in ledger.lines()])
    compare(Runner(old, ledger.lines), after, script, (SERVER, *AGENTS))


@SOME
@given(st.sampled_from(STREAMS), st.data())
def test_a_unit_in_a_laboratory(noise: CorrelatedNoise | None, data: st.DataObject) -> None:
    """Every party may come back, with other numbers and the ledger that it had."""
    script = data.draw(scripts(restarts=True))
    ledger = UnitLedger(SERVER, AGENTS, StreamKind(noise, RECORDS, SIZE))
    lives = dict.fromkeys((SERVER, *AGENTS), 0)

    def seed_of(name: str) -> int:
        return derive(lives[name], "life", name) if lives[name] else 0

    old, plans = simulated(noise, seed_of, ledger)

    def restart(computer: Any, name: str) -> Any:
        lives[name] += 1
        fresh, _ = simulated(noise, seed_of, ledger)
        if name == SERVER:
            computer.units[name] = fresh.units[name]
        else:
            computer.agents[name] = fresh.agents[name]
        return computer

    def renew(pool: Any, name: str) -> Any:
        renewed(pool, name)
        return pool

    kept = MemoryLedger(SERVER, stream_plan(noise).charges())
    pool = open_pool(plans, shards(), objective(), DATA, Laboratory(lambda name, plan: kept, lambda what: None))
    compare(Runner(old, ledger.lines, restart), Runner(pool, kept.lines, renew), script, (SERVER, *AGENTS))


@pytest.mark.filterwarnings("ignore:invalid value")  # of states that are not finite, in both
@SOME
@given(st.sampled_from(STREAMS), st.booleans(), st.data())
def test_a_server_in_a_deployment(noise: CorrelatedNoise | None, durable: bool, data: st.DataObject) -> None:
    """It is killed after charges and after answers, with records that are kept and with none."""
    script = data.draw(scripts(restarts=True, only=SERVER))
    ledger = UnitLedger(SERVER, AGENTS, StreamKind(noise, RECORDS, SIZE))
    plan, charged = stream_plan(noise), MemoryLedger(SERVER, stream_plan(noise).charges())
    files = Kept(), Kept()

    def before(*_: Any) -> DeployedUnitSide:
        return DeployedUnitSide(ledger, SIZE, BOUND, 0.5, files[0] if durable else None)

    def after(*_: Any) -> Any:
        home = Deployed(lambda name, plan: charged, files[1] if durable else None)
        return open_pool({SERVER: plan}, {}, objective(), DATA, home)

    compare(Runner(before(), ledger.lines, before), Runner(after(), charged.lines, after), script, (SERVER,))
    assert [seen_record(record) for record in files[0].records] == [seen_record(record) for record in files[1].records]


def seen_record(record: StreamRecord) -> tuple[int, bytes, bytes]:
    return record.number, record.state.tobytes(), record.answer.tobytes()


def no_ledger(name: str, plan: SidePlan) -> Any:
    raise AssertionError("nothing is charged")


@SOME
@given(st.data())
def test_an_agent_in_a_deployment(data: st.DataObject) -> None:
    script = data.draw(scripts(only=AGENTS[0]))

    with known_randomness():
        alone = UnitSides({"a": AgentSide("a", SHARDS["a"], None)}, {}, {}, objective(), DATA)
    alone.releases = lambda node: 0  # type: ignore[method-assign]
    with known_randomness():
        new = open_pool({"a": ClientUpdate()}, shards(), objective(), DATA, Deployed(no_ledger))
    compare(Runner(alone, list), Runner(new, list), script, ("a",))


# Masked sums


class Conversation:
    """A unit's masked sums over some rounds, with questions that come again, out of turn or changed, and restarts."""

    def __init__(self, side_of: Any, nodes: Sequence[str], lines: Any) -> None:
        self.side_of, self.names, self.lines = side_of, list(nodes), lines
        self.computers = {name: side_of(name) for name in nodes}
        self.found: list[Any] = []

    def ask(self, name: str, task: Any) -> Any:
        """The answer, or None if it was refused; noted with all that is charged."""
        answer = None
        try:
            computer = self.computers[name]
            (answer,) = computer.compute([computer.admit(name, task)])
            self.found.append((name, *seen(answer)))
        except GossamerError as error:
            self.found.append((name, type(error).__name__, str(error)))
        self.found.append((self.computers[name].releases(name), self.lines()))
        return None if answer is None else answer.released

    def restart(self, name: str) -> None:
        self.computers[name] = self.side_of(name)

    def run(self, group: Any, queries: Any, rounds: int, odd: dict[tuple[int, int], str], victim: str) -> list[Any]:
        for round in range(rounds):
            start = Public(np.full(SIZE, 0.1 * round))
            for name in self.names:
                self.ask(name, LocalUpdate(round, start, queries[name]))
            server, sent = MaskingServer(group, round), dict.fromkeys(self.names, REFUSED)
            for step in range(5):
                heard = 0
                for number, name in enumerate(self.names, 1):
                    task = MaskingStep(round, step, sent.get(name, REFUSED), SIZE)
                    what = odd.get((round, step), "") if name == victim else ""
                    if what == "early":
                        self.ask(name, MaskingStep(round, min(step + 1, 4), REFUSED, SIZE))
                    if what == "restart":
                        self.restart(name)
                    if what == "charged and killed":
                        try:
                            self.computers[name].admit(name, task)
                        except GossamerError as error:
                            self.found.append(str(error))
                        self.restart(name)
                    answer = self.ask(name, task)
                    if what == "again":
                        self.ask(name, task)
                    if what == "changed":
                        self.ask(name, MaskingStep(round, step, Public(np.zeros(3, np.uint8)), SIZE))
                    if answer is not None and answer != REFUSED:
                        heard += self._hear(server, step, round, number, answer, group)
                try:
                    if step == Phase.REVEAL:
                        total = server.unmask()
                        self.found.append(None if total is None else total.values.tobytes())
                    else:
                        requests = server.advance()
                        sent = {self.names[number - 1]: packed(message) for number, message in requests.items()}
                except GossamerError as error:
                    self.found.append(str(error))
                    break
        return self.found

    def _hear(self, server: Any, step: int, round: int, number: int, answer: Any, group: Any) -> bool:
        masked = isinstance(answer, Masked)
        server.receive(MaskedVector(round, number, answer) if masked else unpacked(answer, REPLIES[step], group))
        return True


ODD = ["early", "restart", "charged and killed", "again", "changed"]


@pytest.mark.parametrize("world", ["simulation", "deployment", "laboratory"])
@settings(parent=SOME, max_examples=examples(15))
@given(st.sampled_from([0.0, 0.5]), st.integers(1, 2), st.data())
def test_masked_sums(world: str, agent_noise: float, most: int, data: st.DataObject) -> None:
    """Whole conversations of two rounds, of which the ledger covers one or both."""
    names = tuple(f"node-{number}" for number in range(3))
    spec = unit_settings(3, 2)
    odd = data.draw(st.dictionaries(st.tuples(st.integers(0, 1), st.integers(0, 4)), st.sampled_from(ODD), max_size=3))
    if world == "simulation":  # nobody comes back there
        odd = {at: what for at, what in odd.items() if what in ("early", "again", "changed")}
    victim = data.draw(st.sampled_from(names))
    queries = local_queries(spec, dict.fromkeys(names, 8), 1, dict.fromkeys(names, 10.0))
    terms = RoundTerms(b"", queries, 2, LARGEST_VALUE)
    unit = spec.unit(SERVER, 3, SIZE, 10.0, agent_noise)
    coins = Sampling(1, SERVER, names, 3).of
    rows = {name: np.arange(8 * at, 8 * at + 8) for at, name in enumerate(names)}
    goal = objective()

    def conversation(new: bool) -> list[Any]:
        plan = MaskedMember(unit, coins, terms, most)
        marks: dict[str, Any] = {name: Kept() for name in names}
        noisy = unit.noise is not None
        ledgers: dict[str, Any] = {}
        lives = dict.fromkeys(names, -1)
        if noisy:
            assert unit.noise is not None
            charges = plan.charges()
            assert charges is not None
            ledgers = {
                name: MemoryLedger(name, charges) if new else AgentLedger(name, unit.noise, most) for name in names
            }

        def seed_of(name: str) -> int | None:
            if world == "deployment":
                return None
            return derive(lives[name], "life", name) if lives[name] else 0

        def before(name: str) -> Any:
            lives[name] += 1
            mark = marks[name] if world == "deployment" else None
            side = ChargingMaskedSide(name, rows[name], seed_of(name), unit, coins, terms, ledgers.get(name), mark=mark)
            sides = UnitSides({name: side}, {}, {}, goal, DATA)
            sides.releases = lambda node: 0 if side.ledger is None else side.ledger.releases  # type: ignore[method-assign]
            return sides

        def after(name: str) -> Any:
            lives[name] += 1
            home: Any = Laboratory(lambda node, plan: ledgers[node], lambda what: None)
            for _ in range(lives[name]):
                home.restarted(name)
            if world == "deployment":
                home = Deployed(lambda node, plan: ledgers[node], marks[name])
            return open_pool({name: plan}, {name: ShardRows(rows[name])}, goal, DATA, home)

        def lines() -> list[Any]:
            return [line for ledger in ledgers.values() for line in ledger.lines()]

        with known_randomness():
            return Conversation(after if new else before, names, lines).run(unit.group, queries, 2, odd, victim)

    found = conversation(False)
    assert conversation(True) == found
    assert len(found) > 20
