"""``gossamer up``: the policies that it writes admit the run, and noise that could be drawn again is refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.end_to_end.regression_tables import MADE

from gossamer.cli import main
from gossamer.data.columns import TargetRange
from gossamer.data.datasets import blank_dataset
from gossamer.data.settings import DatasetSettings
from gossamer.deployment.owner.owned_data import spendings
from gossamer.deployment.owner.policy import read_policy
from gossamer.deployment.party.data import load_party_split
from gossamer.deployment.party.data_side import planned_divergence
from gossamer.experiment.specs.spec_file import parse_spec

pytest.importorskip("cryptography", reason="needs the extra secure")
pytestmark = pytest.mark.usefixtures("called_here")

SPEC = """
dataset: digits
algorithm: {name: audp, nodes: 2, batch_size: 32, updates_per_node: 20}
budget: {epsilon: 10, delta: %s}
"""


@pytest.mark.parametrize("delta", ["1.0e-4", "1.0e-12", "1.0e-15"])
def test_the_policies_it_writes_have_room_for_the_run(tmp_path: Path, delta: str) -> None:
    """Of a tiny delta late answers may take nearly all, and the policy's epsilon is for the rest of it."""
    from gossamer.cli.federation.local_federation import LocalFederation

    made = LocalFederation.found(parse_spec(yaml.safe_load(SPEC % delta)), tmp_path / "up", "mqtt://127.0.0.1:1")
    for name in made.prepared.names:
        policy = read_policy(made.folder / name / "policy.yaml")
        (shown,) = spendings(policy)
        assert shown.budget is not None
        assert shown.left is not None
        asked = planned_divergence(made.plan, name, shown.budget.order, shown.budget.relation)
        # A thousandth of epsilon is for rounding it to four digits.
        assert 0 <= shown.left - asked <= 2e-3 * shown.budget.epsilon


def test_parties_of_a_regression_have_its_range_and_the_targets_of_a_simulation(tmp_path: Path) -> None:
    """The files are in the target's own unit, and all parties scale by what the invitation says."""
    from gossamer.cli.federation.local_federation import LocalFederation

    made = MADE["price"]
    made.write(tmp_path / "price.csv", 1, 300)
    columns = {"area": [20, 200], "rooms": [1, 7], "place": list(made.categories["place"])}
    data = {
        "name": "price",
        "path": str(tmp_path / "price.csv"),
        "target": "price",
        "owner": "owner",
        "columns": columns,
    }
    spec = {
        "dataset": {**data, "columns": columns, "task": "regression", "target_range": [100_000, 500_000]},
        "partition": "natural",
        "objective": "squared",
        "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 20, "updates_per_node": 4, "topology": "complete"},
        "budget": {"epsilon": 4, "delta": 1e-4},
    }
    local = LocalFederation.found(parse_spec(spec), tmp_path / "up", "mqtt://127.0.0.1:1")
    invitation = yaml.safe_load((local.folder / "node-0" / "invitation.yaml").read_text())
    settings = DatasetSettings.model_validate(yaml.safe_load(invitation["spec"])["dataset"])
    assert settings.target_scale == TargetRange(range=(100_000, 500_000))
    whole = local.prepared.dataset
    for name, shard in zip(local.prepared.names, local.prepared.shards, strict=True):
        train, _ = load_party_split(settings, local.folder / name / "data.npz")
        np.testing.assert_array_equal(train.targets, whole.train.targets[shard])
    assert {-1, 1} & set(whole.train.targets.tolist())  # some prices are outside
    assert blank_dataset(settings).target_range == settings.target_scale


@pytest.mark.parametrize("how", [["--reproducible"], ["--set", "privacy.noise_secret=reproducible"]])
def test_noise_that_can_be_drawn_again_is_for_simulations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: list[str]
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC % "1.0e-4")
    assert main(["up", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "up"), *how]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == (
        "",
        f"gossamer: error: {tmp_path / 'spec.yaml'}: privacy.noise_secret: reproducible is for simulations, and "
        "deployed parties draw noise that nobody can repeat; leave it out\n",
    )
    assert not (tmp_path / "up").exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            "compute.rounding=reproducible",
            "compute.rounding: reproducible is for simulations, and deployed parties compute each example for itself, "
            "which is exact; leave it out",
        ),
        (
            "compute.device=cpu",
            "compute.device: cpu is for simulations, and deployed parties draw their noise exactly, on a grid, and not "
            "in floating point; leave it out",
        ),
        (
            "compute.strategy=vmap",
            "compute.strategy: vmap is for simulations, and deployed parties compute each example for itself, which is "
            "exact; leave it out",
        ),
        (
            "dataset={name: wards, path: wards.csv, target: ill, columns: {age: number}, scale: private}",
            "dataset.scale: private is for simulations, and parties of a federation agree on ranges before they "
            "start: declare one for age under dataset.columns; leave it out",
        ),
    ],
)
def test_what_parties_would_have_to_agree_on_in_the_run_is_for_simulations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, said: str
) -> None:
    (tmp_path / "spec.yaml").write_text(SPEC % "1.0e-4")
    assert main(["up", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "up"), "--set", setting]) == 2
    assert capsys.readouterr() == ("", f"gossamer: error: {tmp_path / 'spec.yaml'}: {said}\n")
    assert not (tmp_path / "up").exists()


SIMULATED = ["speeds=lognormal", "faults.availability=day_and_night", "links={latency: 0.1, silence: 9}"]
SIMULATED += ["compute.engine=simulator"]


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("settings", "losses", "lines"),
    [
        ([], 1.0, []),
        (["links={retry_after: 2, silence: 9}", "evaluation.every_seconds=20"], 1.0, []),
        (
            SIMULATED,
            3.0,
            [
                "speeds, links.latency, faults.availability, compute.engine are for simulations and left out: a "
                "federation's parties and networks are as they are, and nobody tests its model before the end; only a "
                "plan that goes by the clock counts on them",
                "the model is worse than before the run: the test loss began at 2.303, and ended at 3; lower the "
                "learning rates, or scale the features (dataset.columns, dataset.scale), or take less noise "
                "(a larger budget, or fewer updates)",
            ],
        ),
        (["stop.accuracy=0.9"], math.nan, ["stop.accuracy is for simulations and left out", "and ended at no number"]),
    ],
)
def test_it_says_what_is_for_simulations_alone_and_that_a_run_came_to_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: list[str],
    losses: float,
    lines: list[str],
) -> None:
    """In one line each, on stderr. No process is started: what comes of a federation is made up."""
    pytest.importorskip("amqtt", reason="needs the extra broker")
    from gossamer.cli.federation.local_federation import LocalFederation, LocalOutcome

    monkeypatch.setattr(LocalFederation, "run", lambda *_, **__: LocalOutcome({}, {}, {"test_loss": losses}))
    (tmp_path / "spec.yaml").write_text(SPEC % "1.0e-4")
    more = [word for setting in settings for word in ("--set", setting)]
    assert main(["up", str(tmp_path / "spec.yaml"), "--out", str(tmp_path / "up"), *more]) == 0
    out, err = capsys.readouterr()
    assert out.endswith(f"\nFolder: {tmp_path / 'up'}\nNext: gossamer report {tmp_path / 'up'}\n")
    said = [line.removeprefix("gossamer: warning: ") for line in err.splitlines()]
    found = [line for line in said if "for simulations" in line or "test loss" in line]
    assert len(found) == len(lines)
    assert all(line in one for line, one in zip(lines, found, strict=True))
