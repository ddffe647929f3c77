"""Parties of a federation that release, once each, how the model scores their own held-out examples."""

from __future__ import annotations

import csv
import json
import random
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.founding.founding import found
from gossamer.deployment.party.agreement import PartyOptions, PolicyBroken, accept, check_newer
from gossamer.deployment.party.data_side import DataHeld, planned_divergence
from gossamer.deployment.party.reporting import evaluated, write_results
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.errors import BudgetSpent, CallerError, DataError, SpecError
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.released_scores import ReleasedScores, evaluation_lines
from gossamer.runtimes.mqtt.broker import EmbeddedBroker
from gossamer.runtimes.storage.ledger import DurableLedger
from gossamer.sides.ledger import MemoryLedger
from gossamer.sides.pool import Pool

pytestmark = pytest.mark.usefixtures("called_here")

ROWS, PARTIES = 900, 2
SPEC: dict[str, Any] = {
    "dataset": {"name": "wards", "path": "wards.csv", "target": "died", "owner": "ward", "labels": ["no", "yes"]},
    "partition": "natural",
    "objective": "logistic",
    "algorithm": {"name": "gossip", "nodes": PARTIES, "updates_per_node": 2, "batch_size": 20, "learning_rate": 1.0},
    "budget": {"epsilon": 3, "delta": 1e-5},
    "evaluation": {"release": "private", "epsilon": 2},
}
SPEC["dataset"] |= {"columns": {"age": [0, 100]}, "test_fraction": 0.4}


Joined = AbstractContextManager[tuple[StateFolder, DataHeld, Any]]


class Killed(BaseException):
    """The process of a party was killed."""


@pytest.fixture
def spec() -> dict[str, Any]:
    draw = random.Random(3)
    with Path("wards.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "ward", "died"])
        for number in range(ROWS):
            age = draw.randrange(101)
            writer.writerow([age, f"w{number % PARTIES}", "yes" if draw.random() * 100 < age else "no"])
    return json.loads(json.dumps(SPEC))


@pytest.fixture
def federation(spec: dict[str, Any]) -> LocalFederation:
    return LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")


def party(federation: LocalFederation, name: str = "node-0") -> Joined:
    place = federation.folder / name
    more = {"policy": place / "policy.yaml", "data": place / "data.npz"}
    return joined(PartyOptions(place / "invitation.yaml", organiser=federation.organiser, **more))


@contextmanager
def joined(options: PartyOptions) -> Iterator[tuple[StateFolder, DataHeld, Any]]:
    """A party whose part in the run has ended, as a process finds it."""
    folder, invited = StateFolder(options.state), accept(options)
    folder.take()
    with ExitStack() as stack:
        stack.callback(folder.give_back)
        held = DataHeld(options, invited, folder)
        stack.callback(held.close)
        held.charge()
        node = invited.agreed.nodes()[invited.agreed.me.name]
        yield folder, held, SimpleNamespace(finished="quota", node=node)


def test_a_party_releases_once_and_after_a_restart_the_same(federation: LocalFederation) -> None:
    with party(federation) as (folder, held, host):
        first = evaluated(folder, held, host)
        assert held.held_out is not None
        assert held.held_out.releases == 1
        kept = (folder.path / "evaluation.json").read_bytes()
    with party(federation) as (folder, held, host):
        assert evaluated(folder, held, host) == first
        assert held.held_out is not None
        assert held.held_out.releases == 1
        with pytest.raises(BudgetSpent):
            held.release_held_out(held.agreed.prepared.algorithm.model_of(host.node))
        assert (folder.path / "evaluation.json").read_bytes() == kept


def test_parties_know_how_common_the_outcome_is(spec: dict[str, Any]) -> None:
    """At 1 % about 4 of 360 held-out rows have it, less than the noise: no figure is shown, as in a simulation."""
    spec["dataset"]["prevalence"] = 0.01
    spec["objective"] = {"name": "logistic", "class_weight": "balanced"}
    federation = LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")
    with party(federation) as (folder, held, host):
        told = evaluated(folder, held, host)["private_evaluation"]
    assert {one["value"] for one in told["figures"].values()} == {None}


def test_parties_that_are_stopped_before_they_write_have_said_nothing(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where another one refuses the spec at once."""
    never = SimpleNamespace(Process=lambda **_: SimpleNamespace(start=lambda: None))
    monkeypatch.setattr("gossamer.cli.federation.local_federation._CONTEXT", never)
    for name in federation.members:
        federation.start(name)
    assert {*federation.outcome().failed.values()} == {"it says nothing"}


@pytest.mark.parametrize("where", [Pool, StateFolder])
def test_a_party_that_dies_between_charge_and_release_has_lost_its_part(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch, where: Any
) -> None:
    """Noise is never drawn again: before it is drawn, and before it is on disk."""

    def killed(*_: Any) -> None:
        raise Killed

    with party(federation) as (folder, held, host), monkeypatch.context() as patched:
        patched.setattr(where, "compute" if where is Pool else "write", killed)
        with pytest.raises(Killed):
            evaluated(folder, held, host)
    with party(federation) as (folder, held, host):
        assert evaluated(folder, held, host) == {}
        assert not (folder.path / "evaluation.json").exists()
        assert "charged and lost" in (folder.path / "node.log").read_text()
    with party(federation, "node-1") as (folder, held, host):
        evaluated(folder, held, host)
        (part,) = [one for name in federation.members if (one := ReleasedScores.read(Path("up", name, "state")))]
    told = ReleasedScores.together([part]).summary()
    assert [*told["parties"]] == ["node-1"]
    assert told["missing"] == ["node-0"]


def test_nobody_puts_another_file_in_the_place_of_a_part_that_is_lost(
    federation: LocalFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    with party(federation) as (folder, held, host):
        evaluated(folder, held, host)
        folder.remove("evaluation.json")
        assert "private_evaluation" not in write_results(folder, held.agreed, host, held, "")
    assert main(["verify", "up/node-0/state"]) == 0
    with party(federation, "node-1") as (other, held, host):
        evaluated(other, held, host)
    Path("up/node-0/state/evaluation.json").write_bytes(Path("up/node-1/state/evaluation.json").read_bytes())
    capsys.readouterr()
    assert main(["verify", "up/node-0/state"]) == 1
    assert "evaluation.json is not what was released" in capsys.readouterr().out


def test_a_party_that_dies_before_the_charge_releases_after_its_restart(
    federation: LocalFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with party(federation) as (folder, held, host), monkeypatch.context() as patched:
        patched.setattr(DurableLedger, "charge", killed)
        with pytest.raises(Killed):
            evaluated(folder, held, host)
    with party(federation) as (folder, held, host):
        assert evaluated(folder, held, host)["private_evaluation"]["figures"]


def test_the_owners_budget_counts_it(federation: LocalFederation, spec: dict[str, Any]) -> None:
    """Renyi divergence of N(0, z^2) against N(1, z^2) at order a is a/(2 z^2), which the plan has beside training's."""
    with party(federation) as (_, held, _host):
        plan = held.agreed.plan
        assert plan.held_out is not None
        ((kind, count),) = plan.held_out.kinds.items()
        assert count == 1
        ((name, spent),) = [(name, run.divergence) for name in ["node-0"] for run in held.spending.runs]
        order = held.spending.budget.order
        assert spent - planned_divergence(replace(plan, held_out=None), name, order, held.spending.budget.relation) == (
            pytest.approx(order / (2 * kind.mechanism.noise_multiplier**2))
        )
    rules = Path("up/node-0/policy.yaml")
    rules.write_text(re.sub(r"epsilon: .*\n +order: .*", "epsilon: 3", rules.read_text()))  # training takes 2.999
    with pytest.raises(PolicyBroken, match="epsilon"), party(federation):
        pass


def test_the_owners_least_noise_is_of_the_release_too(spec: dict[str, Any]) -> None:
    """At epsilon 100 the noise multiplier is about 0.1, and training's is above 1."""
    spec["evaluation"]["epsilon"] = 100
    federation = LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")
    rules = Path("up/node-0/policy.yaml")
    rules.write_text(rules.read_text().replace("smallest_noise_multiplier: 0.0", "smallest_noise_multiplier: 0.3"))
    with pytest.raises(PolicyBroken, match="smallest_noise_multiplier"), party(federation):
        pass


def test_figures_are_those_of_the_parties_own_rows(spec: dict[str, Any]) -> None:
    """At epsilon 100 the noise is about 0.1 of a row."""
    spec["evaluation"]["epsilon"] = 100
    federation = LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")
    with party(federation) as (folder, held, host):
        evaluated(folder, held, host)
        found = ReleasedScores.read(folder.path)
        assert found is not None
        assert held.test is not None
        (counts,) = found.counts["node-0"]
        assert counts.rows == len(held.test.targets)
        assert counts.counts.sum(axis=1) == pytest.approx(np.bincount(held.test.targets), abs=3)


def test_a_party_with_a_table_counts_its_groups_apart() -> None:
    """At epsilon 100 the noise is about 0.1 of a row: of 60 held-out rows 20 are of women, 15 of whom died."""
    rows = [("f" if n < 20 else "m", n % 4 != 0 if n < 20 else n % 4 == 0) for n in range(60)]
    for name in ("train.csv", "test.csv"):
        lines = [f"{n % 100},{sex},{'yes' if died else 'no'}" for n, (sex, died) in enumerate(rows)]
        Path(name).write_text("\n".join(["age,sex,died", *lines]) + "\n")
    dataset = {"name": "wards", "format": "csv", "target": "died", "labels": ["no", "yes"]}
    dataset |= {"columns": {"age": [0, 100], "sex": ["f", "m"]}}
    evaluation = {"release": "private", "epsilon": 100, "group": "sex"}
    spec = {**SPEC, "dataset": dataset, "partition": "iid", "evaluation": evaluation}
    founded = found(Path("f"), spec=json.dumps(spec), parties={"a": 60, "b": 60}, broker="mqtt://127.0.0.1:1")
    rules = {"data": {"wards": {"epsilon": 1000, "delta": 1e-5, "accept_weak": True}}, "algorithms": ["gossip"]}
    rules |= {"organisers": [founded.organiser.fingerprint], "smallest_noise_multiplier": 0.0}
    Path("f/a/policy.yaml").write_text(json.dumps(rules))
    place = Path("f/a")
    more = {"policy": place / "policy.yaml", "data": Path("train.csv"), "test": Path("test.csv")}
    options = PartyOptions(place / "invitation.yaml", organiser=founded.organiser.fingerprint, **more)
    with joined(options) as (folder, held, host):
        evaluated(folder, held, host)
        scores = ReleasedScores.read(folder.path)
    assert scores is not None
    assert scores.groups == ("sex=f", "sex=m")
    women, men = scores.counts["a"]
    assert women.counts.sum(axis=1) == pytest.approx([5, 15], abs=2)
    assert men.counts.sum(axis=1) == pytest.approx([30, 10], abs=2)


@pytest.fixture
def of_persons(spec: dict[str, Any]) -> LocalFederation:
    """Three rows of each person; a person's are all trained on, or all held out."""
    rows = [line.split(",") for line in Path("wards.csv").read_text().splitlines()]
    text = [",".join([*row, "patient" if not number else f"p{number // 3}"]) for number, row in enumerate(rows)]
    Path("wards.csv").write_text("\n".join(text) + "\n")
    dataset = {**spec["dataset"], "owner": None, "person": "patient"}
    changed = {"dataset": dataset, "partition": "by_person", "budget": {**spec["budget"], "rows_per_person": 3}}
    return LocalFederation.found(parse_spec({**spec, **changed}), Path("persons"), "mqtt://127.0.0.1:1")


def test_all_held_out_rows_of_a_person_are_covered(of_persons: LocalFederation, federation: LocalFederation) -> None:
    """Three rows move the sum by three times as much as one, so at one epsilon the noise is three times as large."""
    more, one = (found.plan.held_out for found in (of_persons, federation))
    assert more is not None
    assert one is not None
    ((three,), (alone,)) = ([kind.mechanism.noise_multiplier for kind in plan.kinds] for plan in (more, one))
    assert three == pytest.approx(3 * alone, rel=1e-4)  # noise has five digits
    with party(of_persons) as (folder, held, host):
        assert evaluated(folder, held, host)["private_evaluation"]["figures"]
        assert held.test is not None
        proved = held.guarantees[1]["held_out"]
        assert held.agreed.prepared.dataset.declaration.person == "patient"  # so intervals of its model go by persons
    assert proved.unit == "person with at most 3 held-out examples"
    assert any("which each party has checked of its own" in line for line in proved.assumptions)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (lambda found: {"test_persons": np.repeat("q", len(found["test_persons"]))}, "found a person with"),
        (lambda found: {"train_persons": np.append(found["test_persons"][:1], found["train_persons"][1:])}, "held out"),
        (lambda found: {"test_persons": None}, "whose examples are held out"),
    ],
    ids=["too many", "on both sides", "unknown"],
)
def test_persons_on_both_sides_are_refused_before_anything_is_charged(
    of_persons: LocalFederation, changed: Any, said: str
) -> None:
    file = Path("persons/node-0/data.npz")
    with np.load(file) as found:
        arrays = {**found, **changed(found)}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})
    with pytest.raises(DataError, match=said) as error, party(of_persons):
        pass
    assert "\n" not in str(error.value)
    assert not Path("persons/node-0/state/store.sqlite").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"privacy": "none", "budget": None}, "evaluation.release: private without noise is for simulations"),
        (
            {"algorithm": {"name": "fedavg", "nodes": 2, "rounds": 2, "masking": "secure", "noise_by": "client"}},
            "is deployed where",
        ),
    ],
)
def test_what_is_not_proved_is_refused(spec: dict[str, Any], changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError, match=said) as error:
        LocalFederation.found(parse_spec({**spec, **changed}), Path("up"), "mqtt://127.0.0.1:1")
    assert "\n" not in str(error.value)


def test_a_release_that_ledgers_would_count_as_one_of_training_is_refused(federation: LocalFederation) -> None:
    """A histogram has 124 numbers, as many as a model of 123 features, and training may be one release of all rows."""
    plan = federation.plan
    assert plan.held_out is not None
    same = replace(plan, held_out=replace(plan.held_out, kinds=plan.side("node-0").kinds))
    with pytest.raises(SpecError, match="counted as one of training") as error:
        same.counts("node-0")
    assert "\n" not in str(error.value)


def test_a_party_without_held_out_rows_is_refused_before_anything_is_charged(federation: LocalFederation) -> None:
    file = Path("up/node-0/data.npz")
    with np.load(file) as found:
        np.savez(file, **{name: found[name] for name in found.files if name.startswith("train")})
    with pytest.raises(DataError, match="give --test PATH"), party(federation):
        pass
    assert not Path("up/node-0/state/evaluation.json").exists()


def test_parts_of_another_run_and_damaged_ones_are_refused(federation: LocalFederation) -> None:
    with party(federation) as (folder, held, host):
        evaluated(folder, held, host)
        found = ReleasedScores.read(folder.path)
        assert found is not None
        with pytest.raises(DataError, match="twice"):
            ReleasedScores.together([found, found])
        with pytest.raises(DataError, match="another release"):
            ReleasedScores.together([found, replace(found, run="other")])
        for text in ("{", "3", (folder.path / "evaluation.json").read_text().replace('"groups": [""]', '"groups": []')):
            (folder.path / "evaluation.json").write_text(text)
            with pytest.raises(DataError, match="expected what a party released"):
                ReleasedScores.read(folder.path)


@pytest.mark.slow
@pytest.mark.parametrize(("by", "parties"), [("party", {"node-0", "node-1"}), ("federation", {"all"})])
def test_up_says_what_all_have_released_and_verify_follows(
    spec: dict[str, Any], by: str, parties: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    spec["evaluation"]["by"] = by
    with EmbeddedBroker() as broker:
        federation = LocalFederation.found(parse_spec(spec), Path("up"), broker.url)
        ended = federation.run(lambda line: None)
    assert not ended.failed
    assert set(ended.evaluation["parties"]) == parties
    assert "missing" not in ended.evaluation
    capsys.readouterr()
    for name in federation.members:
        state = Path("up", name, "state")
        assert main(["verify", str(state)]) == 0
        assert f"{name}/held-out" in capsys.readouterr().out
        ledger = json.loads((state / "summary.json").read_text())["privacy"]["ledger"]
        (line,) = [one for one in ledger if one.get("protects") == "held-out example"]
        assert (line["node"], line["releases"]) == (f"{name}/held-out", 1)
    kept = Path("up/node-0/state/evaluation.json")
    kept.write_text(kept.read_text().replace('"noise": ', '"noise": 1'))
    assert main(["verify", "up/node-0/state"]) == 1
    assert "evaluation.json is not what was released" in capsys.readouterr().out


def test_parties_of_up_count_their_groups_apart(spec: dict[str, Any]) -> None:
    """At epsilon 100 the noise is about 0.1 of a row; a third of the rows are of women."""
    rows = [line.split(",") for line in Path("wards.csv").read_text().splitlines()]
    text = [",".join([*row, "sex" if not number else "mfm"[number % 3]]) for number, row in enumerate(rows)]
    Path("wards.csv").write_text("\n".join(text) + "\n")
    spec["dataset"]["columns"]["sex"] = ["f", "m"]
    spec["evaluation"] |= {"epsilon": 100, "group": "sex"}
    federation = LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")
    dataset = federation.prepared.dataset
    with party(federation) as (folder, held, host):
        evaluated(folder, held, host)
        found = ReleasedScores.read(folder.path)
        card = write_results(folder, held.agreed, host, held, "")
    assert found is not None
    assert found.groups == ("sex=f", "sex=m")
    own = dataset.test_owners == "w0"
    for place, counts in enumerate(found.counts["node-0"]):
        of = own & (np.asarray(dataset.test.features)[:, 1 + place] > 0)
        assert of.sum() > 20
        assert counts.counts.sum(axis=1) == pytest.approx(np.bincount(dataset.test.targets[of]), abs=3)
    assert card
    # The party's model reads rows of the table, as that of a simulation does.
    assert main(["predict", "up/node-0/state", "wards.csv", "--out", "predicted.csv"]) == 0
    assert len(Path("predicted.csv").read_text().splitlines()) == ROWS + 1


@pytest.fixture
def masked(spec: dict[str, Any]) -> LocalFederation:
    """Parties that release their sum alone, at epsilon 100, where noise is about 0.1 of a row."""
    spec["evaluation"] |= {"epsilon": 100, "by": "federation", "honest": 1.0}
    return LocalFederation.found(parse_spec(spec), Path("up"), "mqtt://127.0.0.1:1")


def parts_of(federation: LocalFederation) -> list[ReleasedScores]:
    for name in federation.prepared.names:
        with party(federation, name) as (folder, held, host):
            write_results(folder, held.agreed, host, held, "")
    return [one for name in federation.prepared.names if (one := ReleasedScores.read(Path("up", name, "state")))]


def test_parties_release_their_sum_alone(masked: LocalFederation, capsys: pytest.CaptureFixture[str]) -> None:
    """One part says nothing, and both are the counts of all rows with the noise of two halves, 0.05 each."""
    first, second = parts_of(masked)
    assert not first.counts
    alone = first.opened().summary()
    assert alone["missing"] == ["node-1"]
    assert {one["value"] for one in alone["figures"].values()} == {None}
    told = ReleasedScores.together([first, second])
    assert [*told.counts] == ["all"]
    test = masked.prepared.dataset.test
    assert told.total.counts.sum(axis=1) == pytest.approx(np.bincount(test.targets), abs=3)
    assert told.total.variance == pytest.approx(
        sum(one.masked[name].noise ** 2 for one, name in zip((first, second), masked.prepared.names))
    )
    summary = told.summary()
    assert summary["together"]
    assert [*summary["parties"]] == ["all"]
    assert main(["report", "up/node-0/state", "up/node-1/state", "--out", "both"]) == 0
    assert "the sum of all parties&#39; histograms" in Path("both/report.html").read_text()
    assert main(["report", "up/node-0/state", "--out", "one"]) == 0
    assert (
        "node-1, whose part is not here, and without it the sum cannot be opened" in Path("one/report.html").read_text()
    )


def test_what_the_sum_and_the_own_noise_promise_is_told_apart(masked: LocalFederation) -> None:
    """Each adds half of the variance, so by its own noise alone mu is larger by the root of two."""
    with party(masked) as (_folder, held, _host):
        _, others = held.guarantees
        assert others["held_out_sum"].epsilon == pytest.approx(100, rel=1e-3)
        assert others["held_out"].epsilon > 130
        assert any("by the keys of their identities" in line for line in others["held_out_sum"].assumptions)


def test_a_sum_that_lacks_a_part_is_never_opened(
    masked: LocalFederation, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with party(masked) as (folder, held, host), monkeypatch.context() as patched:
        patched.setattr(StateFolder, "write", killed)
        with pytest.raises(Killed):
            evaluated(folder, held, host)
    (part,) = parts_of(masked)
    assert [*part.masked] == ["node-1"]
    assert "there are none" in Path("up/node-0/state/node.log").read_text()
    (_, line) = evaluation_lines(ReleasedScores.together([part]).summary(), "")
    assert line.endswith("without node-0, whose part is missing, without which the sum cannot be opened")
    assert main(["recalibrate", "up/node-1/state", "--out", "right"]) == 2
    assert "the sum of all parties' histograms cannot be opened without node-0" in capsys.readouterr().err


def test_masks_that_do_not_cancel_are_told(masked: LocalFederation) -> None:
    first, second = parts_of(masked)
    part = second.masked["node-1"]
    other = replace(second, masked={"node-1": part._replace(values=part.values + np.uint64(2**62))})
    with pytest.raises(DataError, match="do not fit together") as error:
        ReleasedScores.together([first, other])
    assert "\n" not in str(error.value)


def test_a_party_masks_one_histogram_in_a_run(masked: LocalFederation) -> None:
    """Two of one mask would tell their difference: neither other data, nor another spec of the run's name, has that."""
    first, _ = parts_of(masked)
    place = Path("up/node-0")
    with np.load(place / "data.npz") as data:
        others = {name: data[name] + 2 for name in ("train_features", "test_features")}
        np.savez(place / "second.npz", **{**data, **others})
    rules = yaml.safe_load((place / "policy.yaml").read_text())
    rules["data"]["second"] = {**rules["data"]["node-0"], "path": "second.npz"}
    (place / "policy.yaml").write_text(yaml.safe_dump(rules))
    more: Any = {"policy": place / "policy.yaml", "data": place / "second.npz", "store": place / "again"}
    again = joined(PartyOptions(place / "invitation.yaml", organiser=masked.organiser, **more))
    with pytest.raises(DataError, match="are in this run already, at node-0") as error, again:
        pass
    assert "\n" not in str(error.value)
    with party(masked, "node-1") as (_, held, host):
        anew: Any = held
        model, invitation = anew.agreed.prepared.algorithm.model_of(host.node), anew.agreed.invitation
        anew.receipts, found = None, []
        for text in (invitation.spec, f"{invitation.spec}# another"):
            anew.agreed = replace(anew.agreed, invitation=replace(invitation, spec=text))
            anew.held_out = MemoryLedger("node-1/held-out", anew.agreed.plan.held_out.charges())
            found.append(anew.release_held_out(model).masked["node-1"].values.view(np.int64) * first.step)
        assert np.abs(found[0] - found[1]).max() > 1e6


def test_nobody_joins_parties_that_release_a_sum(masked: LocalFederation) -> None:
    with party(masked) as (_folder, held, _host):
        agreed = held.agreed
    more = replace(agreed, prepared=replace(agreed.prepared, names=(*agreed.names, "node-2")))
    with pytest.raises(CallerError, match="nobody can join"):
        check_newer(agreed, more)
