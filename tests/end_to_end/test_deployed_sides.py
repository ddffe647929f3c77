"""Every algorithm with the data sides of a deployment, one for each party on its own rows: charged as was planned."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gossamer.algorithms.plan import differing
from gossamer.data.examples import Split
from gossamer.deployment.party.data_side import (
    SideFile,
    deployed_computer,
    deployed_epsilon,
    deployed_guarantees,
    drawn_by,
    side_with_queries,
)
from gossamer.errors import BudgetSpent, DataError, SpecError
from gossamer.experiment.preparation.ending import Observer, drive
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, Sources, prepare, sides_of
from gossamer.experiment.preparation.secrets import secret_seed
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.keys.identity import Identity
from gossamer.privacy.mechanisms import OPEN_TIMES, PUBLIC_TIMES, Gaussian
from gossamer.privacy.tasks import LocalQuery, LocalUpdate
from gossamer.protocol.effects import Release
from gossamer.runtimes.simulator import Simulator
from gossamer.runtimes.storage.file import IN_MEMORY
from gossamer.sides.ledger import MemoryLedger, Receipt
from gossamer.sides.machine import Computer
from gossamer.sides.masked_side import Signing
from gossamer.sides.plan import Drawn, Nothing, Times
from gossamer.sides.sums import Filled
from gossamer.vectors import Confined

pytestmark = pytest.mark.filterwarnings("ignore:fedbuff. with noise_by:gossamer.errors.RunWarning")

BASE: dict[str, Any] = {"dataset": "digits", "seed": 3, "budget": {"epsilon": 4.0, "delta": 1e-5}}
UNITS = {
    "name": "graph_federated",
    "units": 2,
    "agents": 3,
    "rounds": 3,
    "local_steps": 2,
    "step_size": 0.5,
    "batch_size": 4,
}
TRUSTED = {"noise_by": "server", "trusted": "server"}
SPECS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": {"name": "gossip", "nodes": 4, "updates_per_node": 5}},
    "gossip adaptive": {
        "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4},
        "privacy": {"clip": {"policy": "quantile"}},
    },
    "gossip fixed size": {
        "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4},
        "privacy": {"sampling": "fixed_size", "neighboring_relation": "replace_one"},
    },
    "gossip l2 laplace": {
        "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4},
        "privacy": {"mechanism": "l2_laplace"},
        "budget": {"epsilon": 1000.0, "delta": 1e-5},
    },
    "gossip of whole gradients": {
        "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4, "privacy_unit": "client"}
    },
    "allreduce": {"algorithm": {"name": "allreduce", "nodes": 3, "updates_per_node": 4}},
    "audp": {"algorithm": {"name": "audp", "nodes": 3, "updates_per_node": 4}},
    "mapa": {"algorithm": {"name": "mapa", "nodes": 3, "updates_per_node": 9}},
    "mapa of whole edges": {"algorithm": {"name": "mapa", "nodes": 3, "updates_per_node": 4, "privacy_unit": "client"}},
    "increasing": {"algorithm": {"name": "increasing", "nodes": 3, "rounds": 4}},
    "units": {"algorithm": UNITS, "privacy": {"clip": 1.0}},
    "units hidden": {"algorithm": {**UNITS, "gradient_at": "hidden"}, "privacy": {"clip": 1.0}},
    "units random": {"algorithm": {**UNITS, "noise": "random"}, "privacy": {"clip": 1.0}},
    "units laplace": {"algorithm": UNITS, "privacy": {"clip": 1.0, "mechanism": "laplace"}},
    "units masked": {"algorithm": {**UNITS, "masking": "secure"}, "privacy": {"clip": 1.0}},
    "units masked noise": {
        "algorithm": {**UNITS, "agents": 4, "agents_sampled": 3, "masking": "secure"},
        "privacy": {"clip": 1.0, "agent_noise": 2.0},
    },
    "units of noisy agents": {
        "algorithm": {**UNITS, "agents": 4, "agents_sampled": 3, "masking": "secure", "noise": "none"},
        "privacy": {"clip": 1.0, "agent_noise": 2.0},
        "budget": None,
    },
    "fedavg trusted": {
        "algorithm": {"name": "fedavg", "nodes": 4, "rounds": 4, "clients_per_round": 3, "batch_size": 8, **TRUSTED},
        "privacy": {"clip": 0.5},
    },
    "fedbuff trusted": {
        "algorithm": {"name": "fedbuff", "nodes": 4, "buffer": 3, "updates_per_node": 4, "batch_size": 8, **TRUSTED},
        "privacy": {"clip": 0.5},
    },
    "fedavg masked": {
        "algorithm": {
            "name": "fedavg",
            "nodes": 5,
            "rounds": 4,
            "clients_per_round": 4,
            "batch_size": 8,
            "masking": {"name": "secure", "honest": 0.75},
        },
        "privacy": {"clip": 0.5},
    },
    "fedbuff masked": {
        "algorithm": {"name": "fedbuff", "nodes": 4, "buffer": 3, "updates_per_node": 4, "masking": "secure"},
        "privacy": {"clip": 0.5},
    },
    "none": {"algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 3}, "privacy": "none", "budget": None},
    "gossip mlp": {"objective": "mlp", "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4}},
    "gossip mlp laplace": {
        "objective": "mlp",
        "algorithm": {"name": "gossip", "nodes": 3, "updates_per_node": 4},
        "privacy": {"mechanism": "l2_laplace"},
        "budget": {"epsilon": 1e6, "delta": 1e-5},
    },
}


def prepared_of(name: str) -> Prepared:
    spec = {**BASE, **SPECS[name]}
    return prepare(parse_spec({key: value for key, value in spec.items() if value is not None}))


def own(prepared: Prepared, name: str) -> Prepared:
    """What the party ``name`` has: its own rows, and of others the number alone."""
    train = prepared.dataset.train
    rows = dict(zip(prepared.names, prepared.shards, strict=True)).get(name, np.arange(0))
    split = Split(train.features[rows], train.targets[rows])
    shards = tuple(
        np.arange(len(shard)) if other == name else np.broadcast_to(np.int64(0), len(shard))
        for other, shard in zip(prepared.names, prepared.shards, strict=True)
    )
    return replace(prepared, dataset=replace(prepared.dataset, train=split), shards=shards)


def ledger_of(prepared: Prepared, plan: Any, name: str) -> MemoryLedger | None:
    charges = plan.side(name).charges()
    return None if charges is None else MemoryLedger(name, charges)


def identity_of(name: str) -> Identity:
    return Identity.of_seed(name.encode().ljust(32))


def signing_of(prepared: Prepared, name: str) -> Signing | None:
    """Identities, which a run that has a name has."""
    if not prepared.run:
        return None
    return Signing(identity_of(name), {other: identity_of(other).public_key for other in prepared.names})


class Parties:
    """Each node's own data side."""

    def __init__(self, prepared: Prepared, plan: Any, names: list[str]) -> None:
        self.ledgers = {name: ledger_of(prepared, plan, name) for name in names}
        self.sides: dict[str, Computer] = {}
        for name in names:
            file = SideFile(IN_MEMORY, "run", name)
            mine = own(prepared, name)
            ledger, signing = self.ledgers[name], signing_of(prepared, name)
            self.sides[name] = deployed_computer(mine, plan, name, ledger, kept=file, signing=signing)

    def admit(self, node: str, task: Any) -> Any:
        return node, self.sides[node].admit(node, task)

    def amended(self, ticket: Any, task: Any) -> Any:
        return ticket[0], self.sides[ticket[0]].amended(ticket[1], task)

    def compute(self, tickets: Any) -> Any:
        return [self.sides[node].compute([ticket])[0] for node, ticket in tickets]

    def releases(self, node: str) -> int:
        return self.sides[node].releases(node)


def run(prepared: Prepared, plan: Any, computer: Any | None = None) -> tuple[Simulator, Any]:
    context = prepared.context(plan.mechanisms, plan.quotas)
    nodes = prepared.algorithm.build(prepared.experiment.algorithm, context)
    if computer is None:
        computer = Parties(prepared, plan, list(nodes))
    simulator = Simulator(nodes, computer, prepared.world, count=prepared.count)
    drive(simulator, plan.stop, Observer())
    return simulator, computer


@pytest.mark.some(5)
@pytest.mark.filterwarnings("ignore:mapa")
@pytest.mark.parametrize("name", SPECS)
def test_a_run_charges_what_the_simulated_one_charges(name: str) -> None:
    """The same nodes in the same world: kinds and numbers of charges do not depend on what was drawn."""
    prepared = prepared_of(name)
    plan = plan_run(prepared)
    simulator, parties = run(prepared, plan)
    sides = sides_of(prepared, plan, Sources(secret_seed(prepared, plan.noise, "run")))
    run(prepared, plan, sides)
    expected = {ledger.owner: ledger for ledger in sides.ledgers}
    charged = {owner: ledger for owner, ledger in parties.ledgers.items() if ledger is not None}
    assert set(charged) == set(expected)
    for owner, ledger in charged.items():
        assert ledger.releases == expected[owner].releases > 0
        assert ledger.counts == expected[owner].counts
        assert ledger.lines() == expected[owner].lines()
    model = np.asarray(prepared.algorithm.output(simulator.nodes).values)
    assert np.isfinite(model).all()


@pytest.mark.parametrize("name", ["gossip", "increasing", "gossip adaptive"])
def test_no_more_is_released_than_planned(name: str) -> None:
    prepared = prepared_of(name)
    plan = plan_run(prepared)
    _, parties = run(prepared, plan)
    node = prepared.names[0]
    ledger, side = parties.ledgers[node], parties.sides[node]
    queries = prepared.context(plan.mechanisms, plan.quotas).queries
    planned = ledger.charges.kinds
    for kind, most in planned.items():
        for _ in range(most - ledger.counts.get(kind, 0)):
            ledger.charge(Receipt(kind))
        assert ledger.counts[kind] == most
    assert queries[node].mechanism in plan.mechanisms.values()
    with pytest.raises(BudgetSpent):
        ledger.charge(Receipt(next(iter(planned))))
    assert side.releases(node) == sum(planned.values())


@pytest.mark.parametrize("name", ["fedavg trusted", "fedbuff trusted"])
def test_a_client_counts_what_it_hands_over_to_a_trusted_server(name: str) -> None:
    """Beside the line that the server keeps for it: each raw update as the sum that it goes into."""
    prepared = replace(prepared_of(name), run="run")
    plan = plan_run(prepared)
    simulator, parties = run(prepared, plan)
    server = parties.ledgers["server"]
    curator: Any = plan.side("server")
    (kind,) = curator.kinds
    for client in prepared.names:
        own = parties.ledgers[client]
        state = simulator.nodes[client].state
        # The run may end while the client makes one more.
        assert set(own.counts) == {kind}
        assert state.updates <= own.releases <= state.updates + 1
        # What did not get into a sum any more was handed over all the same.
        assert 0 < server.releases_of(client) <= own.releases <= curator.kinds[kind]
        for _ in range(curator.kinds[kind] - own.releases):
            own.charge(Receipt(kind))
        with pytest.raises(BudgetSpent):
            parties.sides[client].admit(client, LocalUpdate(99, state.w, plan.sides[client].query))
    assert simulator.finished["server"] in ("rounds", "all clients left", "too few clients left")


def test_servers_without_data_are_asked_nothing() -> None:
    prepared = prepared_of("audp")
    plan = plan_run(prepared)
    assert plan.side("server") == Nothing()
    side = deployed_computer(own(prepared, "server"), plan, "server", None)
    assert side.releases("server") == 0
    with pytest.raises(SpecError, match="server has no data in this run"):
        side.admit("server", 1)
    assert side.compute([]) == []


def test_masked_agents_need_a_mark_and_a_ledger() -> None:
    prepared = prepared_of("units masked noise")
    plan = plan_run(prepared)
    with pytest.raises(DataError, match="needs a durable mark"):
        deployed_computer(own(prepared, "node-0"), plan, "node-0", ledger_of(prepared, plan, "node-0"))
    with pytest.raises(DataError, match="needs a ledger"):
        deployed_computer(own(prepared, "node-0"), plan, "node-0", None, kept=SideFile(IN_MEMORY, "run", "node-0"))
    quiet = prepared_of("units masked")
    assert plan_run(quiet).side("node-0").charges() is None
    assert plan_run(prepared_of("units")).side("node-0").charges() is None


@pytest.mark.parametrize("name", ["units", "units masked"])
def test_agents_draw_what_nobody_can_repeat(name: str) -> None:
    prepared = prepared_of(name)
    plan = plan_run(prepared)
    task = LocalUpdate(0, prepared.initial, LocalQuery(2, 40, 0.1, 1.0))
    batches, secrets = set(), set()
    for _ in range(2):
        mark = SideFile(IN_MEMORY, "run", "node-0")
        computer: Any = deployed_computer(own(prepared, "node-0"), plan, "node-0", None, kept=mark)
        side = computer.sides["node-0"]
        masked = name == "units masked"
        of = (side.rule._shard, side.rule._sampling) if masked else (side.rule.shard, side.rule._sampling)
        updates = side.rule._updates if masked else side.rule.updates
        drawn = [updates.inputs(side.admit(task), *of).drawn for _ in range(2)]
        batches |= {rows.tobytes() for rows in drawn}
        secrets |= {side.rule._secret(0) for _ in range(2)} if masked else set(range(4))
    assert len(batches) == len(secrets) == 4


def test_a_restarted_server_without_records_is_refused_and_one_with_them_goes_on() -> None:
    prepared = prepared_of("units")
    plan = plan_run(prepared)
    state = Confined(np.zeros(prepared.objective.size))
    file = SideFile(IN_MEMORY, "run", "server-0")
    ledger = ledger_of(prepared, plan, "server-0")

    def side(records: Any) -> Computer:
        return deployed_computer(own(prepared, "server-0"), plan, "server-0", ledger, kept=records)

    side(file).compute([side(file).admit("server-0", Release(0, state))])
    with pytest.raises(BudgetSpent):
        side(None).admit("server-0", Release(1, state))
    side(file).admit("server-0", Release(1, state))
    assert ledger.releases == 2


# What is guaranteed


@pytest.mark.some(8)
@pytest.mark.filterwarnings("ignore:mapa")
@pytest.mark.parametrize("name", [name for name in SPECS if name != "none"])
def test_the_guarantee_is_the_planned_one_but_for_the_stated_terms(name: str) -> None:
    prepared = prepared_of(name)
    plan = plan_run(prepared)
    found, by_observer = deployed_guarantees(prepared, plan)
    assert plan.guarantee.epsilon <= found.epsilon <= plan.guarantee.epsilon * (1 + 1e-15)
    assert plan.guarantee.delta <= found.delta <= plan.guarantee.delta * (1 + 1e-9)
    assert not any("a simulation" in line for line in found.assumptions)
    assert set(by_observer) == set(differing(plan.guarantees))
    for observer, guarantee in by_observer.items():
        assert math.isinf(guarantee.epsilon) == math.isinf(plan.guarantees[observer].epsilon)
        assert not any("a simulation" in line for line in guarantee.assumptions)
    for node in prepared.names:
        assert plan.epsilons[node] <= deployed_epsilon(prepared, plan, node) <= plan.epsilons[node] * (1 + 1e-15)
    drawn = drawn_by(prepared, plan)
    assert drawn.floating_point == ("laplace" in name)
    assert (drawn.numbers > 0) != drawn.floating_point
    exact = "rounding of sums and noise is covered"
    assert (exact in found.proof) != drawn.floating_point


def test_all_numbers_and_samples_of_a_plan_are_counted() -> None:
    prepared = prepared_of("gossip adaptive")
    plan: Any = plan_run(prepared)
    releases, size = max(plan.releases.values()), prepared.objective.size
    at_once = Times(OPEN_TIMES)
    assert drawn_by(prepared, plan) == Drawn(releases * (size + 1), releases, times=at_once)  # with the count's
    fixed = prepared_of("gossip fixed size")
    assert drawn_by(fixed, plan_run(fixed)).samples == 0
    units = prepared_of("units random")
    unit_plan: Any = plan_run(units)
    assert drawn_by(units, unit_plan) == Drawn(3 * size)  # rounds, and one other unit
    masked = prepared_of("units masked noise")
    masked_plan = plan_run(masked)
    _, by_observer = deployed_guarantees(masked, masked_plan)
    for observer in ("own_server", "other_units"):
        assert by_observer[observer].delta > masked_plan.guarantees[observer].delta


TIMES = [
    # spec, release_deadline, whether answers have a deadline, Poisson samples that may miss it
    ("gossip mlp", "auto", True, 4),
    ("gossip mlp", "on", True, 4),
    ("gossip mlp", "off", False, 0),
    ("gossip mlp", 2, True, 4),
    ("gossip mlp laplace", "auto", True, 4),
    ("gossip", "auto", False, 0),
    ("gossip", "on", True, 5),
    ("gossip", 0.5, True, 5),
    ("gossip fixed size", "on", True, 0),
    ("units", "on", False, 0),
    ("none", "on", False, 0),
]


@pytest.mark.parametrize(("name", "wanted", "timed", "late"), TIMES)
def test_the_guarantee_says_whether_times_tell_anything(name: str, wanted: Any, timed: bool, late: int) -> None:
    spec = {**BASE, **SPECS[name], "deployment": {"release_deadline": wanted}}
    prepared = prepare(parse_spec({key: value for key, value in spec.items() if value is not None}))
    plan: Any = plan_run(prepared)
    found, _ = deployed_guarantees(prepared, plan)
    assert (PUBLIC_TIMES in found.assumptions) == timed
    assert drawn_by(prepared, plan).times.late == late
    if name != "none":
        assert (OPEN_TIMES in found.assumptions) == (not timed and name != "units")
        ledger = ledger_of(prepared, plan, "node-0")
        side = deployed_computer(own(prepared, "node-0"), plan, "node-0", ledger)
        assert isinstance(side.sums, Filled) == timed
        before = deployed_guarantees(*of_simulation(name))[0]
        assert found.epsilon == before.epsilon
        assert before.delta <= found.delta <= before.delta * (1 + 1e-12)


def of_simulation(name: str) -> tuple[Prepared, Any]:
    """What a spec comes to that says nothing of deadlines."""
    prepared = prepared_of(name)
    return prepared, plan_run(prepared)


@pytest.mark.parametrize("name", ["gossip", "gossip mlp"])
def test_a_simulation_is_the_same_whatever_is_said_of_deployments(name: str) -> None:
    seeds = set()
    for wanted in ("auto", "on", "off", 1.5):
        prepared = prepare(parse_spec({**BASE, **SPECS[name], "deployment": {"release_deadline": wanted}}))
        seeds.add(secret_seed(prepared, plan_run(prepared).noise))
    assert len(seeds) == 1


def test_what_will_be_asked_is_known_before_the_run() -> None:
    prepared = prepared_of("gossip adaptive")
    plan: Any = plan_run(prepared)
    context = prepared.context(plan.mechanisms, plan.quotas)
    (found,) = side_with_queries(prepared, plan, "node-0").queries()  # type: ignore[attr-defined]
    asked = prepared.clipping.query(context.queries["node-0"], prepared.clipping.initial(prepared.initial))
    assert replace(found, normaliser=asked.normaliser) == asked
    assert found.count_share > 0
    growing = prepared_of("increasing")
    growing_plan: Any = plan_run(growing)
    queries = side_with_queries(growing, growing_plan, "node-0").queries()  # type: ignore[attr-defined]
    assert {query.sampling for query in queries} == {
        kind.sampling for kind in growing_plan.side("node-0").charges().kinds
    }


def test_sums_with_noise_of_agents_have_room_for_it_in_their_rounding() -> None:
    found = []
    for name in ("units masked", "units masked noise"):
        prepared = prepared_of(name)
        plan: Any = plan_run(prepared)
        ledger = ledger_of(prepared, plan, "server-0")
        side: Any = deployed_computer(own(prepared, "server-0"), plan, "server-0", ledger)
        grid = side.sides["server-0"].rule._noise._noise.grid
        assert grid.clip == plan.side("server-0").moved
        found.append(grid.error / (1 + 64 * (prepared.experiment.privacy.agent_noise or 0.0)))
    assert found[1] == pytest.approx(found[0] * math.sqrt(650)) != 0


def test_without_privacy_there_is_no_guarantee() -> None:
    prepared = prepared_of("none")
    plan = plan_run(prepared)
    found, _ = deployed_guarantees(prepared, plan)
    assert found == plan.guarantee
    assert math.isinf(deployed_epsilon(prepared, plan, prepared.names[0]))


def test_noise_that_cannot_be_drawn_is_refused_before_the_run() -> None:
    prepared = prepared_of("gossip")
    plan: Any = plan_run(prepared)
    huge = replace(plan, mechanisms=dict.fromkeys(prepared.names, Gaussian(1.0, 1e9)))
    with pytest.raises(SpecError, match="times the clip"):
        deployed_computer(own(prepared, "node-0"), huge, "node-0", ledger_of(prepared, plan, "node-0"))
