"""Guarantees that say little are said to, in words; a delta that says nothing is refused unless it is asked for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.deployment.owner.owned_data import OwnedData
from gossamer.deployment.owner.policy import read_policy
from gossamer.errors import SpecError
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import parse_spec, read_text, write_spec
from gossamer.privacy.accounting.accountants import delta as proved_delta
from gossamer.privacy.guarantees import KnownPersons, for_persons, planned, refused_delta, remarked, remarks
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation, Poisson, ReleaseKind

BASE: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 4, "topology": "ring", "updates_per_node": 4},
}
UNITS: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "graph_federated", "units": 2, "agents": 4, "rounds": 3, "masking": "secure"},
}


def spec(epsilon: float, delta: float, base: dict[str, Any] = BASE, **privacy: Any) -> gs.Experiment:
    return parse_spec({**base, "budget": {"epsilon": epsilon, "delta": delta}, "privacy": privacy})


@pytest.mark.parametrize(
    ("epsilon", "delta", "examples", "found"),
    [
        (10.0, 1e-5, 100, []),
        (10.01, 1e-5, 100, ["epsilon"]),
        (1.0, 0.01, 100, []),
        (1.0, 0.01, 101, ["delta"]),
        (50.0, 0.5, 1000, ["epsilon", "delta"]),
        (50.0, 0.5, None, ["epsilon"]),
        (math.inf, 0.5, 10, []),
        (3.0, 0.0, 10, []),
    ],
)
def test_what_is_remarked(epsilon: float, delta: float, examples: int | None, found: list[str]) -> None:
    assert [line.partition(" ")[0] for line in remarks(epsilon, delta, examples)] == found


def test_remarks_say_how_weak_in_figures() -> None:
    (large,) = remarks(50.0, 1e-5)
    assert "10^22 times likelier" in large  # exp(50) = 5.2e21
    (weak,) = remarks(1.0, 0.02, 180, "the smallest shard")
    assert "delta 0.02 is above 1/180" in weak
    assert "far below 0.0056" in weak


def test_of_persons_a_delta_is_weak_from_their_rows_over_the_examples_on() -> None:
    """Publishing one of n examples in full hits a person who has m of them with a probability of m/n."""
    assert remarks(1.0, 0.02, 180, rows=4) == []
    (weak,) = remarks(1.0, 0.023, 180, rows=4)
    assert "delta 0.023 is above 4/180" in weak
    assert "up to 4 of one person" in weak
    assert "far below 0.022" in weak
    one = planned(1.0, 0.02, NeighboringRelation.ADD_OR_REMOVE_ONE, "")
    assert len(remarked(one, 180).remarks) == 1
    assert remarked(for_persons(one, 4, KnownPersons.TOGETHER), 180).remarks == ()


def test_publishing_one_example_has_the_delta_that_is_remarked() -> None:
    """The (0, 1/n)-private mechanism that a delta above 1/n allows, by counting outcomes: n records, one of which is
    another in the neighbour, and one drawn at random is published."""
    n = 7
    first, second = [*range(n)], [*range(n - 1), "other"]
    outcomes = {*first, *second}
    distance = sum(max(first.count(x) / n - second.count(x) / n, 0) for x in outcomes)
    assert distance == pytest.approx(1 / n)


@pytest.mark.parametrize("base", [BASE, UNITS], ids=["samples", "units"])
def test_a_plans_guarantee_says_that_it_is_weak(base: dict[str, Any]) -> None:
    pytest.importorskip("cryptography", reason="needs the extra secure")
    experiment = spec(50, 0.009, base, clip=1.0)
    prepared = prepare(experiment)
    guarantee = plan_run(prepared).guarantee
    least = min(prepared.shard_sizes.values())
    assert [line.partition(" ")[0] for line in guarantee.remarks] == ["epsilon", "delta"]
    assert f"1/{least}" in guarantee.remarks[1]
    assert "But epsilon 50 is above 10" in str(guarantee).replace("49.99", "50").replace("49.98", "50")
    assert guarantee.as_dict()["remarks"] == guarantee.remarks


def test_a_strong_one_says_nothing_more() -> None:
    guarantee = plan_run(prepare(spec(1, 1e-5))).guarantee
    assert guarantee.remarks == ()
    assert "But" not in str(guarantee)


@pytest.mark.parametrize("delta", [0.0101, 0.5, 0.999])
def test_a_delta_that_says_nothing_is_refused_unless_asked_for(delta: float) -> None:
    with pytest.raises(SpecError, match=r"at most 0.01, found .*accept_weak: true \(--set privacy.accept_weak=true\)"):
        spec(1, delta)
    with pytest.raises(SpecError, match=r"at most 0\.01"):
        spec(1, delta, accept_weak=False)
    accepted = spec(1, delta, accept_weak=True)
    assert accepted.budget is not None
    assert accepted.budget.delta == delta
    assert read_text(write_spec(accepted)) == accepted


def test_it_is_refused_without_a_budget_too() -> None:
    noisy = {**BASE, "privacy": {"noise_multiplier": 1.0, "delta": 0.2}}
    with pytest.raises(SpecError, match=r"privacy: delta must be at most 0\.01"):
        parse_spec(noisy)
    parse_spec({**BASE, "privacy": {"noise_multiplier": 1.0, "delta": 0.2, "accept_weak": True}})


def test_where_nothing_is_promised_nothing_is_refused() -> None:
    parse_spec({**BASE, "privacy": {"mechanism": "none", "delta": 0.2}})
    exponential = {"mechanism": "l2_laplace", "norm": "exponential", "epsilon": 1.0, "delta": 0.2}
    parse_spec({**BASE, "privacy": exponential})


def test_the_boundary_is_allowed() -> None:
    assert refused_delta(0.01, None, "x") is None
    assert refused_delta(None, None, "x") is None
    assert refused_delta(0.5, True, "x") is None
    spec(1, 0.01)


def test_the_setting_changes_no_seed_of_a_run_that_does_not_have_it() -> None:
    """What is not set decides nothing (`experiment.secrets`)."""
    assert spec(1, 1e-5).privacy.accept_weak is None


# Commands


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, out, err


GAUSSIAN = ["--noise-multiplier", "0.5", "--sampling", "fixed_size", "--dataset-size", "100", "--batch-size", "10"]
MAPA = "mapa --batch-size 32 --gradient-sd 1 --smoothness 1 --loss-gap 1 --staleness 4 --size 100 --noise gaussian"
GRAPH = "graph_federated --rounds 5 --step 0.1 --bound 1 --size 10 --graph ring --units 4 --agents-sampled 3"
COMMANDS = {
    "account": ["account", *GAUSSIAN, "--steps", "100"],
    "calibrate": ["calibrate", *GAUSSIAN[2:], "--steps", "100", "--epsilon", "20"],
    "mapa": ["plan", *MAPA.split(), "--budget", "20", "--dataset-size", "1000"],
    "graph": ["plan", *GRAPH.split(), "--epsilon", "20"],
}
commands = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


@pytest.mark.some(2)
@commands
def test_commands_warn(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = called(capsys, *command, "--delta", "0.02", "--accept-weak", "--json")
    assert status == 0
    json.loads(out)
    assert "gossamer: warning: epsilon" in err
    assert ("gossamer: warning: delta 0.02" in err) == ("graph_federated" not in command)  # examples are not known


@commands
def test_commands_refuse_a_delta_that_says_nothing(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = called(capsys, *command, "--delta", "0.02")
    assert (status, out) == (2, "")
    assert "--delta must be at most 0.01, found 0.02" in err
    assert "--accept-weak" in err
    assert err.count("\n") == 1


WEAK = ("--set", "privacy.accept_weak=true")


def test_check_and_run_take_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(
        "dataset: digits\nalgorithm: {name: gossip, nodes: 2, topology: complete, updates_per_node: 2}\n"
        "budget: {epsilon: 50, delta: 0.5}\n"
    )
    status, out, err = called(capsys, "check", str(path))
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "at most 0.01, found 0.5" in err
    assert " ".join(WEAK) in err
    status, out, _ = called(capsys, "check", str(path), *WEAK)
    assert status == 0
    assert "But delta 0.5 is above 1/" in out
    status, out, err = called(capsys, "run", str(path), *WEAK, "--out", str(tmp_path / "run"), "--json")
    assert status == 0
    assert "gossamer: warning: delta 0.5" in err
    said = json.loads(out)["privacy"]["guarantee"]["remarks"]
    assert any(line.startswith("delta 0.5") for line in said)
    assert "accept_weak: true" in (tmp_path / "run" / "spec.yaml").read_text()


# Policies


def test_a_policy_refuses_and_warns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "policy.yaml"
    (tmp_path / "wards.csv").write_text("age,died\n" + "".join(f"{n},{n % 2}\n" for n in range(20)))
    place.write_text("data:\n  wards: {path: wards.csv, epsilon: 50, delta: 0.5}\n")
    with pytest.raises(SpecError, match=r"line 2: data.wards: delta must be at most 0\.01, found 0\.5.*accept_weak"):
        read_policy(place)
    place.write_text("data:\n  wards: {path: wards.csv, epsilon: 50, delta: 0.5, accept_weak: true}\n")
    data = OwnedData.open(read_policy(place))
    said = [line for line in data.check() if "ledger" not in line]
    data.close()
    assert [line.split(": ")[1].partition(" ")[0] for line in said] == ["epsilon", "delta"]
    assert "1/20" in said[1]
    status, out, _ = called(capsys, "data", "show", str(place))
    assert status == 0
    assert "but epsilon 50 is above 10" in out
    assert "but delta 0.5 is above 1/20" in out
    status, out, _ = called(capsys, "data", "show", str(place), "--json")
    assert len(json.loads(out)["data_sets"][0]["remarks"]) == 2


def test_what_is_weak_is_still_what_was_asked_for() -> None:
    """Accepting a weak guarantee changes no figure: epsilon is what the accountant proves at that delta."""
    prepared = prepare(spec(1, 0.3, accept_weak=True, noise_multiplier=1.0))
    plan = plan_run(prepared)
    ((kind, count),) = plan.side("node-0").charges().kinds.items()  # type: ignore[union-attr]
    assert kind == ReleaseKind(Gaussian(1.0, 1.0), Poisson(kind.sampling.rate), 650)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    assert proved_delta({kind: count}, plan.epsilons["node-0"], relation) <= 0.3 * (1 + 1e-9)
