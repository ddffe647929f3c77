"""Seeds of faults with the data sides of a deployment: processes that are killed at any instant share no noise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.reference.graph_slow import noise_factor

from gossamer.deployment.computing import deployed_computer
from gossamer.experiment.reading import parse_spec
from gossamer.experiment.unit_plan import UnitPlan
from gossamer.privacy.data_side import Computer
from gossamer.privacy.unit_records import Record
from gossamer.testing import fault_trials
from gossamer.testing.fault_seeds import first_failure
from gossamer.testing.fault_trials import Trial

SAMPLES, NOISE = {"noise_multiplier": 1.0}, {"standard_deviation": 1.0}
UNITS = {"name": "graph_federated"}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gossip": ({"name": "gossip"}, SAMPLES),
    "a clip that follows a quantile": ({"name": "gossip"}, {**SAMPLES, "clip": {"policy": "quantile"}}),
    "pure": ({"name": "gossip"}, {"mechanism": "l2_laplace", "epsilon": 1.0}),
    "allreduce": ({"name": "allreduce", "timeout": 3.0}, SAMPLES),
    "audp": ({"name": "audp"}, SAMPLES),
    "increasing": ({"name": "increasing"}, SAMPLES),
    "independent": ({**UNITS, "temporal": "independent"}, NOISE),
    "random walk": ({**UNITS, "temporal": "random_walk"}, NOISE),
    "square root": ({**UNITS, "temporal": "sqrt_toeplitz"}, NOISE),
    "laplace": ({**UNITS, "temporal": "random_walk"}, {**NOISE, "mechanism": "laplace"}),
    "a stream a link": ({**UNITS, "noise": "random"}, NOISE),
    "masked": ({**UNITS, "masking": "secure"}, {**NOISE, "agent_noise": 5.0}),
}
SIMULATED = {name: getattr(fault_trials, name) for name in ("_Samples", "_Units")}


class Disk:
    """What a data side keeps, of a process that may be killed before it is kept."""

    def __init__(self, reaper: Callable[[str], None]) -> None:
        self.records: list[Record] = []
        self.all: dict[int, Record] = {}
        self.round, self._reaper = -1, reaper

    def kept(self) -> Sequence[Record]:
        return list(self.records)

    def keep(self, record: Record, most: int) -> None:
        self._reaper("keeping a record")
        assert record.number not in self.all, "a record is drawn again, though it was answered"
        self.all[record.number] = record
        self.records = [*self.records, record][-most:]

    def reached(self, round: int) -> None:
        self._reaper("marking a round")
        self.round = round


class Parties:
    """The data side of each process that is there."""

    def __init__(self) -> None:
        self.sides: dict[str, Computer] = {}

    def admit(self, node: str, task: Any) -> Any:
        return node, self.sides[node].admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        return ticket[0], self.sides[ticket[0]].amended(ticket[1], task)

    def compute(self, tickets: Any) -> Any:
        return [self.sides[node].compute([ticket])[0] for node, ticket in tickets]

    def releases(self, node: str) -> int:
        return self.sides[node].releases(node)


class Deployed:
    """Makes them, in the place of the simulated ones of `fault_trials`."""

    runs: list[Deployed]

    def __init__(self, run: Any, ledgers: Any, side: Any) -> None:
        self.run, self.ledgers = run, ledgers
        simulated = SIMULATED["_Units" if isinstance(run.plan, UnitPlan) else "_Samples"]
        self.simulated = simulated(run, ledgers, side)
        self.disks: dict[str, Disk] = defaultdict(lambda: Disk(ledgers.reaper))
        self.lives: dict[str, int] = defaultdict(int)
        self.runs.append(self)

    def computer(self) -> Any:
        parties = Parties()
        for name in self.run.names:
            self.renew(parties, name, 0)
        return parties

    def renew(self, computer: Any, name: str, seed: int) -> None:
        prepared, plan, disk = self.run.prepared, self.run.plan, self.disks[name]
        self.lives[name] += 1
        computer.sides[name] = deployed_computer(prepared, plan, name, self._ledger(name), mark=disk, records=disk)

    def charged(self, name: str) -> int | None:
        found: int | None = self.simulated.charged(name)
        return found

    def _ledger(self, name: str) -> Any:
        plan = self.run.plan
        if not isinstance(plan, UnitPlan):
            return self.ledgers.watched(self.simulated._ledger(name)) if name in self.run.prepared.names else None
        if name in plan.units:
            return self.ledgers.watched(self.simulated._ledger(name))
        return getattr(self.simulated._agents(0)[name], "ledger", None)


@pytest.fixture(autouse=True)
def deployed(monkeypatch: pytest.MonkeyPatch) -> list[Deployed]:
    Deployed.runs = []
    for made in SIMULATED:
        monkeypatch.setattr(fault_trials, made, Deployed)
    return Deployed.runs


@cache
def trial(name: str) -> Trial:
    algorithm, privacy = SPECS[name]
    return Trial.of(parse_spec({"algorithm": algorithm, "privacy": {"clip": 1.0, **privacy}}))


@pytest.mark.parametrize("name", SPECS)
def test_no_seed_of_faults_fails(name: str) -> None:
    failure = first_failure(trial(name), range(16))
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_no_seed_of_many_fails(name: str) -> None:
    failure = first_failure(trial(name), range(16, 1000))
    assert failure is None, str(failure)


@pytest.mark.parametrize("name", ["random walk", "square root"])
def test_what_servers_answer_over_kills_is_the_planned_stream(name: str, deployed: list[Deployed]) -> None:
    """Answers less states, of servers that were started again in 100 seeds, with B undone: independent normal numbers
    of the planned spread, and uncorrelated from one record to the next. False alarm 2e-6."""
    for seed in range(100):
        assert trial(name).problem(trial(name).schedule(seed)) is None
    fresh: list[np.ndarray] = []
    for run in deployed:
        for server in run.run.plan.units:
            records = sorted(run.disks[server].all.values(), key=lambda record: record.number)
            if run.lives[server] < 2 or not records:
                continue
            assert [record.number for record in records] == list(range(len(records)))
            noise = np.stack([record.answer - record.state for record in records])
            temporal = SPECS[name][0]["temporal"]
            fresh.append(np.linalg.solve(noise_factor(temporal, len(records), None), noise))
    z = np.concatenate([each.ravel() for each in fresh])
    assert len(z) > 100
    assert stats.kstest(z, stats.norm.cdf).pvalue > 1e-6
    products = np.concatenate([(each[1:] * each[:-1]).ravel() for each in fresh])
    assert abs(products.mean()) < 5 / np.sqrt(len(products))


def test_a_server_that_forgets_is_stopped(monkeypatch: pytest.MonkeyPatch, deployed: list[Deployed]) -> None:
    """Without records, a server of correlated noise ends with its budget after a restart, and nothing is wrong."""
    monkeypatch.setattr(Disk, "keep", lambda self, record, most: None)
    failure = first_failure(trial("random walk"), range(40))
    assert failure is None, str(failure)
