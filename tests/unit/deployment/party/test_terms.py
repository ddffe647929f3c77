"""What an invitation settles is what a simulation of the same spec has; one that fits no run is refused."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.datasets import load_dataset
from gossamer.data.examples import Split
from gossamer.deployment.founding.founding import draft
from gossamer.deployment.party.agreement import Agreed, experiment_of
from gossamer.deployment.party.data import shard_settings
from gossamer.deployment.party.data_side import unit_terms
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import CallerError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec, write_spec
from gossamer.keys.identity import Identity
from gossamer.keys.invitations import Invitation
from gossamer.protocol.encoding import encode
from gossamer.protocol.node import state_of

BUDGET = {"epsilon": 8, "delta": 1e-4}
SPECS = {
    "gossip": {"algorithm": {"name": "gossip", "nodes": 4, "topology": "ring", "updates_per_node": 5}},
    "allreduce": {"algorithm": {"name": "allreduce", "nodes": 3, "updates_per_node": 5}},
    "audp": {"algorithm": {"name": "audp", "nodes": 3, "updates_per_node": 5}},
    "increasing": {"algorithm": {"name": "increasing", "nodes": 4, "aggregators": [2], "gradients": 400}},
    "fedavg": {
        "algorithm": {"name": "fedavg", "nodes": 3, "rounds": 4, "noise_by": "server", "trusted": "server"},
        "privacy": {"clip": 0.5},
    },
    "graph_federated": {
        "algorithm": {"name": "graph_federated", "units": 3, "agents": 2, "rounds": 3, "topology": "ring"},
        "privacy": {"clip": 1.0},
        "budget": {"epsilon": 500, "delta": 1e-4},
    },
}


def simulated(name: str) -> Prepared:
    return prepare(parse_spec({"dataset": "digits", "budget": BUDGET, "partition": "dirichlet", **SPECS[name]}))


def invitation(prepared: Prepared) -> Invitation:
    dataset = shard_settings(prepared.dataset)
    text = write_spec(prepared.experiment.model_copy(update={"dataset": dataset}))
    return draft(spec=text, parties=prepared.shard_sizes, broker="mqtt://127.0.0.1:1883").invitation


@pytest.mark.some(3)
@pytest.mark.parametrize("name", SPECS)
class TestEverythingIsAsSimulated:
    def test_names_sizes_graph_and_model(self, name: str) -> None:
        one = simulated(name)
        other = Agreed.by(invitation(one)).prepared
        assert (other.names, other.shard_sizes, other.units) == (one.names, one.shard_sizes, one.units)
        np.testing.assert_array_equal(other.initial.values, one.initial.values)
        assert list(map(other.graph.neighbours, range(other.graph.nodes))) == list(
            map(one.graph.neighbours, range(one.graph.nodes))
        )

    def test_the_plan(self, name: str) -> None:
        one = simulated(name)
        plan, agreed = plan_run(one), Agreed.by(invitation(one))
        assert agreed.plan.noise == plan.noise
        assert agreed.plan.epsilons == plan.epsilons
        assert {n: agreed.plan.releases[n] for n in one.names} == {n: plan.releases[n] for n in one.names}

    def test_the_nodes(self, name: str) -> None:
        one = simulated(name)
        plan, agreed = plan_run(one), Agreed.by(invitation(one))
        nodes = one.algorithm.build(one.experiment.algorithm, one.context(plan.mechanisms, plan.quotas))
        mine = agreed.nodes()
        assert mine.keys() == nodes.keys() == {member.name for member in agreed.invitation.members}
        assert all(encode(state_of(mine[n])) == encode(state_of(nodes[n])) for n in nodes)

    def test_neighbours_know_each_other(self, name: str) -> None:
        agreed = Agreed.by(invitation(simulated(name)))
        near = {member.name: set(agreed.prepared.contacts(member.name)) for member in agreed.invitation.members}
        assert all(me in near[peer] for me, peers in near.items() for peer in peers)
        assert all(peers and me not in peers for me, peers in near.items())


def test_neighbours_in_a_tree() -> None:
    prepared = simulated("increasing")
    assert prepared.contacts("node-0") == ("aggregator-1-0",)
    assert prepared.contacts("aggregator-1-1") == ("node-2", "node-3", "server")
    assert prepared.contacts("server") == ("aggregator-1-0", "aggregator-1-1")


def test_neighbours_in_units() -> None:
    prepared = simulated("graph_federated")
    assert prepared.contacts("node-3") == ("server-1",)
    assert prepared.contacts("server-1") == ("node-2", "node-3", "server-0", "server-2")


class TestOwnData:
    def test_they_are_the_whole_shard(self) -> None:
        agreed = Agreed.by(invitation(simulated("gossip")))
        size = agreed.invitation.sizes[agreed.me.name]
        train = load_dataset(parse_spec({"privacy": "none"}).dataset).train
        with_data = agreed.with_data(Split(train.features[:size], train.targets[:size]))
        own, other, *_ = with_data.prepared.shards
        assert with_data.prepared.names[0] == agreed.me.name
        np.testing.assert_array_equal(own, np.arange(size))
        assert len(other) == agreed.invitation.sizes[with_data.prepared.names[1]]
        assert with_data.plan is agreed.plan

    def test_only_the_unit_hears_what_is_confined(self) -> None:
        found = invitation(simulated("graph_federated"))
        agreed = Agreed.by(replace(found, invited="server-1"))
        assert [name for name in agreed.nodes() if agreed.may_hear(name)] == ["node-2", "node-3", "server-1"]

    def test_without_units_nobody_does(self) -> None:
        agreed = Agreed.by(invitation(simulated("gossip")))
        assert [name for name in agreed.nodes() if agreed.may_hear(name)] == []

    def test_a_trusted_server_hears_each_client_and_tells_none(self) -> None:
        found = invitation(simulated("fedavg"))
        for name in ("node-0", "node-2"):
            agreed = Agreed.by(replace(found, invited=name))
            assert [other for other in agreed.nodes() if agreed.may_hear(other)] == ["server"]
            assert agreed.plan.side(name).scope == {name, "server"}
        agreed = Agreed.by(replace(found, invited="server"))
        assert [other for other in agreed.nodes() if agreed.may_hear(other)] == []


class TestRefused:
    def test_too_few_members_with_data(self) -> None:
        found = invitation(simulated("gossip"))
        with pytest.raises(CallerError, match=r"wants algorithm.nodes = 4 parties with data, and 3 members"):
            experiment_of(replace(found, members=found.members[:3]))

    def test_a_server_is_missing(self) -> None:
        found = invitation(simulated("audp"))
        with pytest.raises(CallerError, match="its spec and its members disagree on server: "):
            experiment_of(replace(found, members=found.members[:-1]))

    def test_a_server_too_many(self) -> None:
        found, more = invitation(simulated("gossip")), invitation(simulated("audp"))
        with pytest.raises(CallerError, match="its spec and its members disagree on server: "):
            experiment_of(replace(found, members=(*found.members, more.members[-1])))

    @pytest.mark.parametrize(
        ("number", "changes", "said"),
        [
            (2, {"role": "worker", "unit": None}, "disagree on node-2: on who is there, on a role or on a unit"),
            (2, {"unit": "server-0"}, "disagree on node-2: "),
            (-1, {"role": "worker"}, "disagree on server-2: "),
        ],
    )
    def test_parts_that_the_spec_does_not_give(self, number: int, changes: dict[str, Any], said: str) -> None:
        """A policy for agents must not be passed by by calling one something else."""
        found = invitation(simulated("graph_federated"))
        members = list(found.members)
        members[number] = replace(members[number], **changes)
        with pytest.raises(CallerError, match=said):
            experiment_of(replace(found, members=tuple(members)))

    def test_noise_that_somebody_could_draw_again(self) -> None:
        """An organiser could then subtract it; no deployed party draws such noise, nor says that it does."""
        found = invitation(simulated("gossip"))
        text = found.spec.replace("noise_secret: fresh", "noise_secret: reproducible")
        assert text != found.spec
        with pytest.raises(CallerError, match=r"reproducible is for simulations"):
            experiment_of(replace(found, spec=text))

    def test_a_clock_that_nobody_tells(self) -> None:
        """No message has the number of updates of all nodes."""
        found = invitation(simulated("gossip"))
        text = found.spec.replace("    schedule: constant", "    schedule: constant\n    clock: global")
        assert text != found.spec
        with pytest.raises(CallerError, match=r"clock: global is for simulations, and deployed nodes of gossip"):
            experiment_of(replace(found, spec=text))

    def test_a_promise_that_is_less_than_what_parties_keep(self) -> None:
        """Each computes an example for itself, whatever the spec has others believe."""
        found = invitation(simulated("gossip"))
        text = found.spec.replace("  memory_mib:", "  rounding: reproducible\n  memory_mib:")
        assert text != found.spec
        with pytest.raises(CallerError, match=r"compute.rounding: reproducible is for simulations"):
            experiment_of(replace(found, spec=text))
        experiment_of(replace(found, spec=text.replace("rounding: reproducible", "rounding: exact")))

    def test_what_no_deployment_proves_though_it_was_founded_elsewhere(self) -> None:
        """An organiser may have a version, or code, that founds such a federation; parties read the spec themselves."""
        found = invitation(simulated("fedavg"))
        assert "  cohorts: public\n" in found.spec
        text = found.spec.replace("  cohorts: public\n", "  cohorts: secret\n  clients_per_round: 2\n")
        with pytest.raises(CallerError, match="cohorts: secret is for simulations: the broker, and whoever sees its"):
            experiment_of(replace(found, spec=text))

    def test_a_spec_that_is_none(self) -> None:
        found = invitation(simulated("gossip"))
        with pytest.raises(CallerError, match=r"the spec of the invitation: unknown key nonsense"):
            experiment_of(replace(found, spec=f"{found.spec}\nnonsense: 1\n"))


def test_an_agents_ledger_is_for_a_spec_a_server_and_a_state_folder(tmp_path: Path) -> None:
    """What a unit's server releases is not counted at the agent: another run must not pass for the one it paid for."""
    found = replace(invitation(simulated("graph_federated")), invited="node-3")
    folders = [StateFolder(tmp_path / name) for name in "ab"]
    for folder in folders:
        folder.path.mkdir()
    key = Identity.generate().public_key
    stranger = tuple(replace(m, key=key) if m.name == "server-1" else m for m in found.members)
    elsewhere = tuple(replace(m, key=key) if m.name == "server-0" else m for m in found.members)
    others = [replace(found, members=stranger), replace(found, spec=found.spec.replace("rounds: 3", "rounds: 2"))]

    def terms(invited: Invitation, folder: StateFolder = folders[0]) -> bytes:
        return unit_terms(Agreed.by(invited), folder)

    assert terms(found) == terms(found) == terms(replace(found, members=elsewhere))
    assert len({terms(found), terms(found, folders[1]), *map(terms, others)}) == 4


class TestCodeOfItsOwn:
    """Whoever signs an invitation does not decide what code runs here."""

    @pytest.fixture
    def found(self) -> Invitation:
        found = invitation(simulated("gossip"))
        return replace(found, spec=found.spec.replace("objective:\n", "objective:\n  module: os:abort\n"))

    @pytest.mark.parametrize("allowed", [(), ("os:getpid", "os")])
    def test_it_is_refused_before_it_runs(self, found: Invitation, allowed: tuple[str, ...]) -> None:
        assert "os:abort" in found.spec
        with pytest.raises(CallerError, match=r"objective.module: os:abort; if that is the model .* --module os:abort"):
            experiment_of(found, allowed)

    def test_it_runs_where_it_is_allowed(self, found: Invitation) -> None:
        found = replace(found, spec=found.spec.replace("os:abort", "torch.nn:Identity"))
        assert experiment_of(found, ["torch.nn:Identity"]).objective.module == "torch.nn:Identity"


FROZEN = """
import torch
from torch import nn

class Net(nn.Sequential):
    def __init__(self, input_shape, classes):
        super().__init__(nn.Flatten(), nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, classes))
        self[1].requires_grad_(False).weight.fill_({})
"""


class TestNumbersThatNobodyTrains:
    @pytest.fixture
    def module(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        pytest.importorskip("torch", reason="needs the extra torch")
        monkeypatch.syspath_prepend(str(tmp_path))
        return tmp_path / f"frozen_{tmp_path.name}.py"

    def invited(self, module: Path) -> Invitation:
        prepared = prepare(parse_spec({"dataset": "digits", "budget": BUDGET, **SPECS["gossip"]}))
        settings = prepared.experiment.objective.model_copy(update={"module": f"{module.stem}:Net"})
        return invitation(replace(prepared, experiment=prepared.experiment.model_copy(update={"objective": settings})))

    def test_are_the_same_at_every_party_or_nobody_joins(self, module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        module.write_text(FROZEN.format(1))
        found = self.invited(module)
        Agreed.by(found, [f"{module.stem}:Net"])
        monkeypatch.delitem(sys.modules, module.stem)
        module.write_text(FROZEN.format("1.5"))
        with pytest.raises(CallerError, match=r"^objective\.frozen: expected the SHA-256 [0-9a-f]{64} of .*, found "):
            Agreed.by(found, [f"{module.stem}:Net"])

    def test_are_none_at_every_party_where_the_organiser_has_none(
        self, module: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is trained is what parties send each other, so it needs no hash."""
        module.write_text(FROZEN.format(1).replace("self[1].requires_grad_(False).weight.fill_(1)", "pass"))
        found = self.invited(module)
        assert "frozen: nothing" in found.spec
        Agreed.by(found, [f"{module.stem}:Net"])
        monkeypatch.delitem(sys.modules, module.stem)
        module.write_text(FROZEN.format(1))
        with pytest.raises(CallerError, match=r"expected the SHA-256 nothing of what .*, found [0-9a-f]{64};"):
            Agreed.by(found, [f"{module.stem}:Net"])

    def test_are_not_asked_of_an_organiser_without_the_code(self, module: Path) -> None:
        found = self.invited(module)
        assert "frozen" not in found.spec.replace(module.stem, "")
        module.write_text(FROZEN.format(1))
        Agreed.by(found, [f"{module.stem}:Net"])
