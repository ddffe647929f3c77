"""Persons with several examples: whose they are, where they lie, and guarantees that cover all of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.algorithms.persons import MOST_KINDS, kinds_of_persons
from gossamer.algorithms.plan import Holdings, Plan
from gossamer.algorithms.sample_planning import epsilon_so_far, release_counts
from gossamer.cli.federation.local_federation import DATA, POLICY, LocalFederation
from gossamer.cli.main import main
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.examples import Split, check_persons
from gossamer.data.partition import ByPerson, Iid, partition
from gossamer.deployment.owner.policy import read_policy, refusals
from gossamer.deployment.party.agreement import Agreed, asked
from gossamer.deployment.party.data import load_party_split, write_party_file
from gossamer.errors import BudgetUnreachable, DataError, RunWarning, SpecError
from gossamer.experiment.preparation.planning import plan_run, problem_of
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.keys.invitations import read_signed
from gossamer.privacy.accounting.accountants import epsilon, joint_epsilon
from gossamer.privacy.accounting.planner import calibrate_jointly, gaussian_family
from gossamer.privacy.mechanisms import NeighboringRelation, Poisson
from gossamer.sides.ledger import MemoryLedger, Receipt
from gossamer.sides.plan import counts_of

ADD = NeighboringRelation.ADD_OR_REMOVE_ONE


def patients(folder: Path, rows: int = 240, each: int = 3) -> DatasetSettings:
    """A file of persons with up to ``each`` examples, some of which are held out."""
    draws = np.random.default_rng(1)
    lines = [f"{draws.normal():.3f},p{row // each},{row % 2}" for row in range(rows)]
    (folder / "patients.csv").write_text("\n".join(["stay,who,died", *lines]) + "\n")
    data = {"path": folder / "patients.csv", "target": "died", "labels": (0, 1), "person": "who", "scale": "none"}
    return DatasetSettings(name="patients", **data)


def spec(data: DatasetSettings, rows: int | None, **other: Any) -> gs.Experiment:
    budget = {"epsilon": 4, "delta": 1e-4, "rows_per_person": rows}
    settings: dict[str, Any] = {
        "dataset": data,
        "partition": "by_person",
        "objective": "logistic",
        "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 12, "updates_per_node": 25},
        "budget": budget,
        "evaluation": {"every_updates": 50},  # each look reads an epsilon, which takes a while
    }
    return gs.Experiment.model_validate({**settings, **other})


def planned(data: DatasetSettings, rows: int | None, **other: Any) -> tuple[Prepared, Plan]:
    prepared = prepare(spec(data, rows, **other))
    plan = plan_run(prepared)
    return prepared, plan


# Data


def test_files_say_which_person_an_example_is_about(tmp_path: Path) -> None:
    data = load_dataset(patients(tmp_path))
    assert data.train.features.shape[1] == 1  # the column is no feature
    assert data.persons is not None
    assert len(data.persons) == len(data.train)
    assert set(Counter(data.persons.tolist()).values()) <= {1, 2, 3}
    np.savez(
        tmp_path / "some.npz",
        features=np.ones((10, 2)),
        targets=np.arange(10) % 2,
        persons=np.repeat([3, 4, 5, 6, 7], 2),
    )
    found = load_dataset(DatasetSettings(name="some", path=tmp_path / "some.npz")).persons
    assert found is not None
    assert set(found.tolist()) <= {"3", "4", "5", "6", "7"}


def test_a_person_without_a_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,who,y\n1,p,0\n2,,1\n")
    settings = DatasetSettings(name="a", path=tmp_path / "a.csv", person="who")
    with pytest.raises(DataError, match="line 3, column 'who': the person is empty"):
        load_dataset(settings)
    with pytest.raises(DataError, match="no column 'nobody'"):
        load_dataset(settings.model_copy(update={"person": "nobody"}))


@pytest.mark.parametrize("nodes", [1, 3, 7])
def test_by_person_keeps_persons_together_and_sizes_alike(nodes: int) -> None:
    persons = np.random.default_rng(2).integers(0, 40, size=150)
    targets = np.zeros(150, np.int64)
    parts = partition(ByPerson(), targets, nodes, np.random.default_rng(3), persons=persons)
    assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(150))
    at = [set(persons[part].tolist()) for part in parts]
    assert sum(map(len, at)) == len(set(persons.tolist()))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= max(Counter(persons.tolist()).values())
    again = partition(ByPerson(), targets, nodes, np.random.default_rng(3), persons=persons)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again))


def test_by_person_needs_persons_and_enough_of_them() -> None:
    with pytest.raises(DataError, match=r"dataset\.person"):
        partition(ByPerson(), np.zeros(9), 3, np.random.default_rng(0))
    with pytest.raises(DataError, match="2 persons for 3 nodes"):
        partition(ByPerson(), np.zeros(9), 3, np.random.default_rng(0), persons=np.arange(9) % 2)


def test_holdings_are_what_counting_says() -> None:
    persons = np.random.default_rng(4).integers(0, 30, size=90).astype(str)
    shards = partition(Iid(), np.zeros(90), 4, np.random.default_rng(5))
    found = Holdings.of(persons, shards)
    slow = {
        tuple((node, n) for node, n in enumerate(sum(persons[row] == who for row in shard) for shard in shards) if n)
        for who in set(persons.tolist())
    }
    assert found.held == slow
    assert found.most == max(Counter(persons.tolist()).values())
    assert found.most_nodes == max(map(len, slow))
    assert not found.together
    assert Holdings.of(persons, [np.arange(90)]).together


def test_too_many_examples_of_a_person_are_counted_and_nobody_is_named() -> None:
    persons = np.array(["anna", "anna", "anna", "anna", "bert", "bert", "carl", "bert", "bert"])
    check_persons(persons, 4, "a.csv")
    with pytest.raises(DataError) as caught:
        check_persons(persons, 3, "a.csv")
    assert "found 2 persons with more, up to 4" in str(caught.value)
    assert "anna" not in str(caught.value)


# Plans


def test_three_examples_of_a_person_cost_the_budget_and_four_are_refused(tmp_path: Path) -> None:
    prepared, plan = planned(patients(tmp_path), 3)
    name = max(plan.epsilons, key=lambda name: plan.epsilons[name])
    counts = counts_of(plan.side(name))
    assert plan.guarantee.epsilon == epsilon(counts, 1e-4, ADD, 3).epsilon
    assert 3.98 < plan.guarantee.epsilon <= 4
    # far more noise than a guarantee for each example, and more than that for 3 epsilon's third
    assert epsilon(counts, 1e-4, ADD).epsilon < 4 / 3
    with pytest.raises(
        DataError, match=r"at most 3 training examples of one person.*found \d+ persons with more, up to [45];"
    ):
        prepare(spec(patients(tmp_path, each=5), 3))
    assert prepared.holdings is not None
    assert prepared.holdings.together


def test_more_examples_of_a_person_than_there_are_are_refused(tmp_path: Path) -> None:
    """They would cost noise for nobody."""
    data = patients(tmp_path)
    most = max(prepare(spec(data, 3)).shard_sizes.values())
    with pytest.raises(SpecError, match=rf"rows_per_person: the largest shard has {most} .* to have up to {most + 1};"):
        planned(data, most + 1)
    all_of_them = sum(prepare(spec(data, 3, partition="iid")).shard_sizes.values())
    with pytest.raises(SpecError, match=rf"rows_per_person: all nodes have {all_of_them} "):
        planned(data, all_of_them + 1, partition="iid")


SMOOTH = {"gradient_sd": 1.0, "smoothness": 1.0, "loss_gap": 1.0}
ALGORITHMS = {
    "allreduce": {"algorithm": {"name": "allreduce", "nodes": 4, "batch_size": 12, "updates_per_node": 5}},
    "audp": {"algorithm": {"name": "audp", "nodes": 4, "batch_size": 12, "updates_per_node": 5}},
    "mapa": {"algorithm": {"name": "mapa", "nodes": 4, "batch_size": 12, **SMOOTH}, "stop": {"epochs": 1}},
    "batch": {"algorithm": {"name": "increasing", "nodes": 4, "round_update": "batch"}, "stop": {"epochs": 2}},
    "clipped_sum": {
        "algorithm": {"name": "increasing", "nodes": 4, "round_update": "clipped_sum"},
        "stop": {"epochs": 2},
    },
    "replaced": {"privacy": {"neighboring_relation": "replace_one"}},
    "fixed_size": {"privacy": {"sampling": "fixed_size"}},
    "l2_laplace": {"privacy": {"mechanism": "l2_laplace"}},
}


@pytest.mark.some(4)
@pytest.mark.parametrize("case", ALGORITHMS)
@pytest.mark.filterwarnings("ignore::gossamer.errors.RunWarning")
def test_every_algorithm_takes_rows_per_person(tmp_path: Path, case: str) -> None:
    """And what the spec's budget has is what is proved for two rows at every node."""
    prepared, plan = planned(patients(tmp_path, each=2), 2, **ALGORITHMS[case])
    relation = prepared.experiment.privacy.relation
    for name in prepared.names:
        counts = counts_of(plan.side(name))
        assert plan.epsilons[name] == epsilon(counts, 1e-4, relation, 2).epsilon
        assert plan.epsilons[name] > 1.2 * epsilon(counts, 1e-4, relation).epsilon
    assert 3.9 < plan.guarantee.epsilon <= 4
    assert plan.guarantee.rows_per_person == 2


def test_the_guarantee_says_whose_it_is(tmp_path: Path) -> None:
    _, plan = planned(patients(tmp_path), 3)
    guarantee = plan.guarantee
    assert guarantee.unit == "person with at most 3 examples, all at one node"
    assert "whether any one person was present or absent" in str(guarantee)
    assert guarantee.as_dict()["rows_per_person"] == 3
    assert any("which has been checked" in line for line in guarantee.assumptions)
    assert not any("one example" in line for line in guarantee.assumptions)
    unknown = patients(tmp_path).model_copy(update={"person": None, "ignore": ("who",)})
    _, assumed = planned(unknown, 3, partition="iid")
    assert "each person has at most 3 examples, all at one node" in assumed.guarantee.assumptions
    assert assumed.guarantee.unit == guarantee.unit


def test_without_rows_per_person_the_guarantee_is_for_examples_and_says_so(tmp_path: Path) -> None:
    prepared = prepare(spec(patients(tmp_path), None))
    with pytest.warns(RunWarning, match=r"up to 3 training examples, and .*rows_per_person: 3"):
        plan = plan_run(prepared)
    assert plan.guarantee.unit == "example of a node's shard"
    assert any("each person has one example, at one node" in line for line in plan.guarantee.assumptions)
    assert plan.guarantee.rows_per_person == 1


def test_one_row_per_person_is_what_it_was(tmp_path: Path) -> None:
    unknown = patients(tmp_path).model_copy(update={"person": None, "ignore": ("who",)})
    _, plain = planned(unknown, None, partition="iid")
    _, one = planned(unknown, 1, partition="iid")
    assert one.mechanisms == plain.mechanisms
    assert one.epsilons == plain.epsilons


def test_examples_at_several_nodes_are_covered_jointly(tmp_path: Path) -> None:
    """Against the composition for every person, one after the other."""
    prepared, plan = planned(patients(tmp_path), 3, partition="iid")
    assert prepared.holdings is not None
    assert prepared.holdings.most_nodes > 1
    persons = prepared.dataset.persons
    assert persons is not None
    counts: Any = [counts_of(plan.side(n)) for n in prepared.names]
    slow = 0.0
    for who in set(persons.tolist()):
        held = [int(np.sum(persons[shard] == who)) for shard in prepared.shards]
        parts = [(of, rows) for of, rows in zip(counts, held) if rows]
        slow = max(slow, joint_epsilon(parts, 1e-4, ADD).epsilon)
    assert plan.guarantee.epsilon == pytest.approx(slow, rel=1e-9)
    assert 3.98 < plan.guarantee.epsilon <= 4
    assert plan.guarantee.unit == "person with at most 3 examples, wherever they are"
    assert "hold none of the person's examples" in plan.guarantee.observer
    assert max(plan.epsilons.values()) <= plan.guarantee.epsilon


def test_a_row_at_each_of_two_nodes_costs_more_than_at_one(tmp_path: Path) -> None:
    """Persons with one example at each of two owners: noise that meets the budget of either is not enough."""
    draws = np.random.default_rng(1)
    lines = [f"{draws.normal():.3f},p{row // 2},w{row % 2},{row // 4 % 2}" for row in range(240)]
    (tmp_path / "a.csv").write_text("\n".join(["stay,who,ward,died", *lines]) + "\n")
    keys = {"target": "died", "labels": (0, 1), "person": "who", "owner": "ward", "scale": "none"}
    data = DatasetSettings(name="a", path=tmp_path / "a.csv", **keys)
    algorithm = {"name": "gossip", "topology": "complete", "nodes": 2, "batch_size": 12, "updates_per_node": 25}
    apart = {"partition": "natural", "algorithm": algorithm}
    _, jointly = planned(data, 2, **apart)
    owners = data.model_copy(update={"person": None, "ignore": ("who",)})
    _, alone = planned(owners, None, **apart)
    one, both = (plan.describe()["noise_multiplier"] for plan in (alone, jointly))
    assert one < both < 2 * one
    given = {"privacy": {"noise_multiplier": one * 1.01}}
    with pytest.raises(BudgetUnreachable, match="persons with examples at several nodes"):
        planned(data, 2, **apart, **given)
    planned(owners, None, **apart, **given)
    with pytest.raises(SpecError, match="give one number"):
        planned(data, 2, **apart, budget={"epsilon": [4, 5], "delta": 1e-4, "rows_per_person": 2})


def test_a_joint_calibration_meets_the_budget_of_every_person() -> None:
    few, many = {Poisson(0.3): 10}, {Poisson(0.1): 40}
    holdings = [[(few, 2)], [(few, 1), (many, 1)], [(many, 3)]]
    found = calibrate_jointly(3.0, 1e-5, ADD, holdings, gaussian_family())

    def spent(noise: float) -> float:
        law = gaussian_family()(noise)
        return max(
            joint_epsilon([(release_counts(s, law, 1), rows) for s, rows in holding], 1e-5, ADD).epsilon
            for holding in holdings
        )

    assert spent(found.noise) <= 3.0 < spent(found.noise * 0.997)
    assert found.epsilon == spent(found.noise)


def test_only_persons_that_no_other_exceeds_are_asked(tmp_path: Path) -> None:
    prepared = prepare(spec(patients(tmp_path), 3, partition="iid"))
    alike = dict.fromkeys(prepared.names, "all nodes")
    assert sorted(len(parts) for parts in kinds_of_persons(problem_of(prepared), alike)) == [1, 2, 3]
    each = {name: name for name in prepared.names}
    assert len(kinds_of_persons(problem_of(prepared), each)) <= len(prepared.holdings.held)  # type: ignore[union-attr]


def test_persons_who_are_spread_in_too_many_ways_are_refused(tmp_path: Path) -> None:
    prepared = prepare(spec(patients(tmp_path), 3, partition="iid"))
    many = frozenset(((0, rows), (1, 2 * MOST_KINDS - rows)) for rows in range(1, MOST_KINDS + 2))
    with pytest.raises(SpecError, match="by_person"):
        kinds_of_persons(
            replace(problem_of(prepared), holdings=Holdings(many)), {name: name for name in prepared.names}
        )


def test_no_reading_is_taken_where_nodes_are_too_far_apart(tmp_path: Path) -> None:
    """A run goes on: what was planned is proved, whatever has been released so far."""
    prepared, plan = planned(patients(tmp_path), 3, partition="iid")
    ledgers = [MemoryLedger(name, plan.side(name).charges()) for name in prepared.names]
    for number, (name, ledger) in enumerate(zip(prepared.names, ledgers, strict=True)):
        (kind,) = counts_of(plan.side(name))
        for _ in range(number + 1):
            ledger.charge(Receipt(kind))
    reading = plan.spent(ledgers)
    assert reading is not None
    assert 0 < reading < plan.guarantee.epsilon
    many = frozenset(((0, rows), (1, 100 - rows)) for rows in range(1, 50))
    assert epsilon_so_far(replace(problem_of(prepared), holdings=Holdings(many)), ledgers) is None


@pytest.mark.some(1)
@pytest.mark.parametrize("scheme", ["by_person", "iid"])
def test_a_run_ends_with_what_was_planned(tmp_path: Path, scheme: str) -> None:
    result = gs.run(spec(patients(tmp_path), 3, partition=scheme), out=tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["privacy"]["guarantee"]["rows_per_person"] == 3
    last = json.loads((tmp_path / "out" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["epsilon_so_far"] == pytest.approx(result.guarantee.epsilon, rel=1e-9)


GRAPH = {
    "objective": {"name": "logistic", "l2": 0.1},
    "algorithm": {
        "name": "graph_federated",
        "units": 2,
        "agents": 2,
        "rounds": 5,
        "batch_size": 5,
    },
    "privacy": {"clip": 1.0},
}


def test_a_guarantee_for_agents_covers_their_persons(tmp_path: Path) -> None:
    prepared = prepare(spec(patients(tmp_path), 3, **GRAPH))
    guarantee = plan_run(prepared).guarantee
    unit = guarantee.unit.removeprefix("federated ")
    assert (
        f"what protects the {unit} protects all examples that a person has there, however many" in guarantee.assumptions
    )
    assert guarantee.rows_per_person is None
    with pytest.raises(SpecError, match="partition: by_person"):
        plan_run(prepare(spec(patients(tmp_path), 3, **GRAPH, partition="iid")))


def test_an_agents_own_noise_covers_no_person_at_two_agents_of_a_unit(tmp_path: Path) -> None:
    """Noise between units protects such a person; what is proved against the own server is for one agent."""
    algorithm = {**GRAPH["algorithm"], "gradient_at": "hidden", "masking": "secure"}
    prepared = prepare(spec(patients(tmp_path), 3, **{**GRAPH, "algorithm": algorithm}))
    together = replace(prepared, holdings=Holdings(frozenset({((0, 2), (1, 1))})))
    assert plan_run(together).guarantee.unit == "federated unit"
    noisy = {**GRAPH, "algorithm": algorithm, "privacy": {"clip": 1.0, "agent_noise": 1.0}}
    prepared = prepare(spec(patients(tmp_path), 3, **noisy))
    with pytest.raises(SpecError, match="several agents"):
        plan_run(replace(prepared, holdings=together.holdings))


# Deployments


def test_a_party_checks_its_own_persons(tmp_path: Path) -> None:
    data = load_dataset(patients(tmp_path))
    shard = np.arange(12)
    own = Split(data.train.features[shard], data.train.targets[shard])
    assert data.persons is not None
    settings = write_party_file(tmp_path / "own.npz", own, data, persons=data.persons[shard])
    most = max(Counter(data.persons[shard].tolist()).values())
    train, _ = load_party_split(settings, tmp_path / "own.npz", rows_per_person=most)
    assert train.targets.tolist() == own.targets.tolist()
    with pytest.raises(DataError, match=f"own.npz: expected at most {most - 1} training example"):
        load_party_split(settings, tmp_path / "own.npz", rows_per_person=most - 1)
    # what a party does not know it cannot check, and then it is assumed
    write_party_file(tmp_path / "own.npz", own, data)
    load_party_split(settings, tmp_path / "own.npz", rows_per_person=1)


def test_a_party_with_named_columns_reads_persons_where_they_count(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("died,age,who\n0,61,p\n1,70,p\n0,50,q\n")
    settings = DatasetSettings(name="a", format="csv", target="died", features=("age",), labels=(0, 1), person="who")
    load_party_split(settings, tmp_path / "own.csv", rows_per_person=2)
    with pytest.raises(DataError, match="found 1 person with more, up to 2"):
        load_party_split(settings, tmp_path / "own.csv", rows_per_person=1)
    (tmp_path / "own.csv").write_text("died,age\n0,61\n1,70\n")
    load_party_split(settings, tmp_path / "own.csv")  # nobody asks
    with pytest.raises(DataError, match="no column 'who'"):
        load_party_split(settings, tmp_path / "own.csv", rows_per_person=2)


def test_parties_with_persons_of_their_own_get_them_and_the_same_noise(tmp_path: Path) -> None:
    federation = LocalFederation.found(spec(patients(tmp_path), 3), tmp_path / "fed", "mqtt://localhost:1")
    persons = federation.prepared.dataset.persons
    assert persons is not None
    for name, shard in zip(federation.prepared.names, federation.prepared.shards, strict=True):
        with np.load(tmp_path / "fed" / name / DATA) as own:
            assert own["train_persons"].tolist() == persons[shard].tolist()
    invitation = read_signed(tmp_path / "fed" / federation.prepared.names[0] / "invitation.yaml", federation.organiser)
    agreed = Agreed.by(invitation)
    assert agreed.plan.mechanisms == federation.plan.mechanisms
    assert agreed.plan.guarantee.epsilon == federation.plan.guarantee.epsilon
    assert "each person has at most 3 examples, all at one node" in agreed.plan.guarantee.assumptions


def test_a_policy_that_counts_examples_allows_the_run_it_was_written_for(tmp_path: Path) -> None:
    federation = LocalFederation.found(spec(patients(tmp_path), 3), tmp_path / "fed", "mqtt://localhost:1")
    for name in federation.prepared.names:
        place = tmp_path / "fed" / name
        agreed = Agreed.by(read_signed(place / "invitation.yaml", federation.organiser))
        wanted, policy = asked(agreed, name), read_policy(place / POLICY)
        assert refusals(policy, wanted) == []
        assert wanted.epsilon < agreed.plan.epsilons[name] / 2  # of one example, and of a person with three
        text = (place / POLICY).read_text()
        (place / POLICY).write_text(re.sub(r"epsilon: \S+", f"epsilon: {0.99 * wanted.epsilon:.4g}", text))
        (line,) = refusals(read_policy(place / POLICY), wanted)
        assert f"epsilon {wanted.epsilon:.4g}" in line


def test_parties_that_share_persons_get_no_joint_guarantee(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"several parties.*by_person"):
        LocalFederation.found(spec(patients(tmp_path), 3, partition="iid"), tmp_path / "fed", "mqtt://localhost:1")


# The command


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_command_gives_no_unproved_figure(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # Below what double precision can tell from 0.
    releases = ["--sampling-rate", "0.1", "--steps", "100", "--delta", "1e-300", "--group", "3"]
    assert main(["account", "--noise-multiplier", "4", *releases, *form]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "no epsilon is proved at --delta 1e-300 for these releases; take a larger delta" in said.err


def test_the_command_accounts_for_groups(capsys: pytest.CaptureFixture[str]) -> None:
    releases = ["--sampling-rate", "0.335", "--steps", "300", "--delta", "1e-4"]
    assert main(["account", "--noise-multiplier", "4.708627", *releases, "--group", "3", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["epsilon"] == pytest.approx(20.42, abs=0.02)
    assert document["rows_per_person"] == 3
    assert main(["calibrate", "--epsilon", "20.43", *releases, "--group", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["noise_multiplier"] == pytest.approx(4.7086, rel=2e-3)
    assert main(["account", "--noise-multiplier", "4", *releases, "--group", "3"]) == 0
    assert "add_or_remove_one, 3 rows of one person" in capsys.readouterr().out
    assert main(["account", "--noise-multiplier", "4", *releases, "--group", "0"]) == 2
    assert "--group: expected a whole number, 1 to 10000, found '0'" in capsys.readouterr().err
