"""Seeds of faults with the data sides of a deployment: processes that are killed at any instant share no noise."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.end_to_end.test_deployed_sides import own
from tests.reference.failing import first_failure
from tests.reference.graph_slow import noise_factor
from tests.sampling import examples

from gossamer.deployment.party import data_side
from gossamer.deployment.party.data_side import deployed_computer
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.faults.trials import Ledgers, SmallRun, Trial, small_runs
from gossamer.privacy.streams.correlated_noise import StreamRecord
from gossamer.sides.deployed import Deployed
from gossamer.sides.machine import Side
from gossamer.sides.sums import Filled, InPieces

pytestmark = pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning")

SAMPLES, NOISE = {"noise_multiplier": 1.0}, {"standard_deviation": 1.0}
UNITS = {"name": "graph_federated"}
TRUSTED = {"noise_by": "server", "trusted": "server"}
SPECS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "gossip": ({"name": "gossip"}, SAMPLES),
    "a clip that follows a quantile": ({"name": "gossip"}, {**SAMPLES, "clip": {"policy": "quantile"}}),
    "pure": ({"name": "gossip"}, {"mechanism": "l2_laplace", "epsilon": 1.0}),
    "allreduce": ({"name": "allreduce", "timeout": 3.0}, SAMPLES),
    "audp": ({"name": "audp"}, SAMPLES),
    "increasing": ({"name": "increasing"}, SAMPLES),
    "fedbuff": ({"name": "fedbuff"}, SAMPLES),
    "noisy steps": ({"name": "fedavg", "privacy_unit": "example", "local_momentum": 0.5}, SAMPLES),
    "fedbuff trusted": ({"name": "fedbuff", **TRUSTED}, SAMPLES),
    "fedavg": ({"name": "fedavg"}, SAMPLES),
    "fedavg trusted": ({"name": "fedavg", **TRUSTED}, SAMPLES),
    "fedavg trusted, a clip that moves": ({"name": "fedavg", **TRUSTED}, {**SAMPLES, "clip": {"policy": "quantile"}}),
    "fedasync": ({"name": "fedasync"}, SAMPLES),
    "independent": ({**UNITS, "temporal": "independent"}, NOISE),
    "random walk": ({**UNITS, "temporal": "random_walk"}, NOISE),
    "square root": ({**UNITS, "temporal": "sqrt_toeplitz"}, NOISE),
    "laplace": ({**UNITS, "temporal": "random_walk"}, {**NOISE, "mechanism": "laplace"}),
    "a stream a link": ({**UNITS, "noise": "random"}, NOISE),
    "masked": ({**UNITS, "masking": "secure"}, {**NOISE, "agent_noise": 5.0}),
    "fedavg masked": ({"name": "fedavg", "masking": {"name": "secure", "honest": 0.9}}, {"noise_multiplier": 5.0}),
    "fedbuff masked": ({"name": "fedbuff", "masking": "secure"}, {"noise_multiplier": 5.0}),
}


class Disk:
    """What a data side keeps, of a process that may be killed before it is kept."""

    def __init__(self, reaper: Callable[[str], None]) -> None:
        self.records: list[StreamRecord] = []
        self.all: dict[int, StreamRecord] = {}
        self.round, self._reaper = -1, reaper

    def kept(self) -> Sequence[StreamRecord]:
        return list(self.records)

    def keep(self, record: StreamRecord, most: int) -> None:
        self._reaper("keeping a record")
        assert record.number not in self.all, "a record is drawn again, though it was answered"
        self.all[record.number] = record
        self.records = [*self.records, record][-most:]

    def reached(self, round: int) -> None:
        self._reaper("marking a round")
        self.round = round


class Processes(Deployed):
    """Deployed data sides, whose processes are killed and come back."""

    runs: list[Processes]

    def __init__(self, ledgers: Ledgers) -> None:
        super().__init__(ledgers.open)
        self.ledgers, self.lives = ledgers, Counter[str]()
        self.disks: dict[str, Disk] = defaultdict(lambda: Disk(ledgers.reaper))
        self.runs.append(self)

    def kept(self, name: str) -> Disk:
        self.lives[name] += 1  # it is opened once a process
        return self.disks[name]

    def crashpoint(self, what: str) -> None:
        self.ledgers.reaper(what)


@pytest.fixture(autouse=True)
def deployed() -> list[Processes]:
    Processes.runs = []
    return Processes.runs


@cache
def trial(name: str) -> Trial:
    algorithm, privacy = SPECS[name]
    runs = small_runs(parse_spec({"algorithm": algorithm, "privacy": {"clip": 1.0, **privacy}}))[0]
    return Trial([named(run) if "trusted" in name else run for run in runs], home=Processes)


def named(run: SmallRun) -> SmallRun:
    """A run that has a name, as deployed ones do: clients that trust a server count what they hand over themselves."""
    prepared = replace(run.prepared, run="run")
    return replace(run, prepared=prepared, plan=plan_run(prepared))


@pytest.mark.some(9)
@pytest.mark.parametrize("name", SPECS)
def test_no_seed_of_faults_fails(name: str) -> None:
    failure = first_failure(trial(name), range(examples(16)))
    assert failure is None, str(failure)


@pytest.mark.slow
@pytest.mark.parametrize("name", SPECS)
def test_no_seed_of_many_fails(name: str) -> None:
    failure = first_failure(trial(name), range(16, 1000))
    assert failure is None, str(failure)


class Killable(Deployed):
    """As `deployed_computer` makes it, but that it may be killed."""

    reaper: Callable[[str], None]

    def crashpoint(self, what: str) -> None:
        Killable.reaper(what)


class Apart:
    """The data side of each party as its own process opens it, in each of its lives."""

    opened: list[Any]
    home = None  # each side has its own

    def __init__(self, run: SmallRun, ledgers: Ledgers) -> None:
        Killable.reaper = ledgers.reaper
        self._run, self._ledgers = run, ledgers
        self._disks: dict[str, Disk] = defaultdict(lambda: Disk(ledgers.reaper))
        self.sides = {name: self._open(name) for name in run.names}

    def _open(self, name: str) -> Any:
        run, plan = self._run, self._run.sides[name]
        ledger = None if plan.charges() is None else self._ledgers.open(name, plan)
        side = deployed_computer(own(run.prepared, name), run.plan, name, ledger, kept=self._disks[name])
        self.opened.append(side)
        return side

    def renew(self, name: str) -> None:
        self.sides[name] = self._open(name)

    def admit(self, node: str, task: Any) -> Any:
        return self.sides[node].admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        return self.sides[ticket.side.name].amended(ticket, task)

    def compute(self, tickets: Sequence[Any]) -> list[Any]:
        return [self.sides[ticket.side.name].compute([ticket])[0] for ticket in tickets]

    def releases(self, node: str) -> int:
        return self.sides[node].releases(node)


class RunApart(SmallRun):
    """A small run, each of whose parties opens its data side as it does in a deployment."""

    def pool(self, home: Any, machine: Any) -> Any:
        return Apart(self, home)


def apart(name: str) -> Trial:
    found = [named(run) if "trusted" in name else run for run in timed(name)]
    runs = [RunApart(run.prepared, run.plan, run.nodes, run.speeds) for run in found]
    return Trial(runs, home=lambda ledgers: ledgers)  # type: ignore[arg-type,return-value]


@cache
def timed(name: str) -> Sequence[SmallRun]:
    algorithm, privacy = SPECS[name]
    spec = {"algorithm": algorithm, "privacy": {"clip": 1.0, **privacy}, "deployment": {"release_deadline": "on"}}
    return small_runs(parse_spec(spec))[0]


@pytest.mark.some(3)
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("gossip", {Filled}),
        ("increasing", {Filled, InPieces}),
        ("random walk", {InPieces}),
        ("masked", {InPieces}),
        ("fedbuff trusted", {InPieces}),
        ("fedavg masked", {InPieces}),
        ("fedbuff masked", {InPieces}),
    ],
)
def test_no_seed_of_faults_fails_where_each_party_opens_its_own_side(
    name: str, kinds: set[type], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to samples have a deadline, and are computed on as many examples for each."""
    monkeypatch.setattr(data_side, "Deployed", Killable)
    Apart.opened = []
    trial = apart(name)
    seeds = range(examples(16))
    failure = first_failure(trial, seeds)
    assert failure is None, str(failure)
    assert {type(side.sums) for side in Apart.opened} == kinds
    assert len(Apart.opened) > len(seeds) * min(len(run.names) for run in trial.runs)  # some came back


def test_a_client_that_does_not_count_what_it_hands_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    charge = Side.charge
    monkeypatch.setattr(
        Side, "charge", lambda self, receipt: charge(self, receipt) if self.name == "server" else self.releases + 1
    )
    failure = first_failure(trial("fedavg trusted"), range(4))
    assert failure is not None
    assert re.search(r"the ledger of node-\d has 0 releases", str(failure))


def test_a_timed_side_that_does_not_charge_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_side, "Deployed", Killable)
    monkeypatch.setattr(Side, "charge", lambda self, receipt: self.releases + 1)
    Apart.opened = []
    failure = first_failure(apart("gossip"), range(4))
    assert failure is not None
    assert "noise was drawn for" in str(failure)


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["random walk", "square root"])
def test_what_servers_answer_over_kills_is_the_planned_stream(name: str, deployed: list[Processes]) -> None:
    """Answers less states, of servers that were started again in 100 seeds, with B undone: independent normal numbers
    of the planned spread, and uncorrelated from one record to the next. False alarm 2e-6."""
    for seed in range(100):
        assert trial(name).problem(trial(name).schedule(seed)) is None
    fresh: list[np.ndarray] = []
    for run in deployed:
        for server in [name for name in run.lives if name.startswith("server")]:
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


def test_a_server_that_forgets_is_stopped(monkeypatch: pytest.MonkeyPatch, deployed: list[Processes]) -> None:
    """Without records, a server of correlated noise ends with its budget after a restart, and nothing is wrong."""
    monkeypatch.setattr(Disk, "keep", lambda self, record, most: None)
    failure = first_failure(trial("random walk"), range(40))
    assert failure is None, str(failure)
