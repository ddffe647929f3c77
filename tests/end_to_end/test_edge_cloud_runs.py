"""Whole runs of edge-cloud learning, from spec to results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer as gs
from gossamer.cli import main
from gossamer.errors import DataError, RunWarning, SpecError
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.repeats import replay_run
from gossamer.experiment.specs.spec_file import parse_spec

BASE: dict[str, Any] = {
    **{"dataset": "digits", "budget": {"epsilon": 5, "delta": 1e-4}, "stop": {"updates": 60}},
    "evaluation": {"every_updates": 20},  # each look reads an epsilon, which takes a while
}
MAPA = {"name": "mapa", "nodes": 4, "gradient_sd": 4.5, "smoothness": 8.0, "loss_gap": 2.3}
ENDS_INSIDE = "ignore:mapa. :gossamer.errors.RunWarning"


def spec(**sections: Any) -> gs.Experiment:
    content = {**BASE, **sections}
    return parse_spec({key: value for key, value in content.items() if value is not None})


@pytest.mark.some(1)
@pytest.mark.parametrize("algorithm", ["audp", MAPA], ids=["audp", "mapa"])
@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_a_run_ends_after_exactly_t_updates_within_its_plan(algorithm: Any) -> None:
    result = gs.run(spec(algorithm=algorithm))
    summary = result.summary
    name = summary["algorithm"]
    assert summary["updates"] == summary[name]["updates_applied"] == 60
    assert summary["finished"].pop("server") == "updates"
    assert set(summary["finished"].values()) == {"halt"}  # and with that message everybody got the last model
    assert summary["metrics"]["consensus_distance"] == 0
    for node in summary["privacy"]["nodes"].values():
        assert node["releases"] == node["planned_releases"] > 0
        assert node["epsilon"] <= 5
    assert result.guarantee.epsilon == pytest.approx(5, rel=2e-3)


def test_every_edge_has_a_privacy_level_of_its_own() -> None:
    result = gs.run(spec(algorithm={"name": "audp", "nodes": 3}, budget={"epsilon": [1, 2, 8], "delta": 1e-4}))
    nodes = list(result.summary["privacy"]["nodes"].values())
    assert [node["epsilon"] for node in nodes] == pytest.approx([1, 2, 8], rel=3e-3)
    assert all(node["epsilon"] <= budget for node, budget in zip(nodes, (1, 2, 8)))
    multipliers = [node["noise_multiplier"] for node in nodes]
    assert multipliers[0] > multipliers[1] > multipliers[2]
    assert result.guarantee.epsilon == max(node["epsilon"] for node in nodes)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"budget": {"epsilon": [1, 2]}}, "budget.epsilon: expected one number for each of the 3 nodes, found 2"),
        ({"budget": None, "privacy": {"noise_multiplier": [1.0]}}, "privacy.noise_multiplier: expected one number"),
        ({"algorithm": {"name": "audp", "nodes": 30, "batch_size": 500}}, "fewer than algorithm.batch_size 500"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(sections: dict[str, Any], message: str) -> None:
    experiment = spec(**{"algorithm": {"name": "audp", "nodes": 3}, **sections})
    with pytest.raises((SpecError, DataError)) as caught:
        gs.run(experiment)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_what_is_not_said_is_estimated_and_written_down(tmp_path: Path) -> None:
    """The folder's own spec has the numbers, and gives the same run without estimating again; what is said stays."""
    experiment = spec(algorithm={"name": "mapa", "nodes": 4, "loss_gap": 0.5})
    prepared = prepare(experiment)
    assert re.findall(r"(\w+) \d", prepared.estimates) == ["on", "gradient_sd", "smoothness"]
    found = {name: getattr(prepared.experiment.algorithm, name) for name in ("gradient_sd", "smoothness")}
    first = gs.run(experiment, tmp_path / "first")
    written = (tmp_path / "first" / "spec.yaml").read_text()
    for name, value in {**found, "loss_gap": 0.5}.items():
        assert f"{name}: {value}" in written
    from gossamer.experiment.specs.spec_file import read_spec

    gs.run(read_spec(tmp_path / "first" / "spec.yaml"), tmp_path / "again", secret=first.secret)
    for name in ("spec.yaml", "summary.json", "metrics.jsonl", "model.safetensors"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


PAPER = {"mechanism": "l2_laplace", "epsilon": 0.1, "sampling": "fixed_size"}


@pytest.mark.parametrize("extra", [{"norm": "exponential"}, {"noise_scope": "first_layer"}], ids=str)
@pytest.mark.filterwarnings(ENDS_INSIDE, "ignore:l2_laplace:gossamer.errors.RunWarning")
def test_the_papers_noise_guarantees_nothing(extra: dict[str, str], tmp_path: Path) -> None:
    sections = {"algorithm": MAPA, "privacy": {**PAPER, **extra}, "budget": None}
    result = gs.run(spec(**sections), tmp_path / "run")
    assert str(result.guarantee).startswith("Guarantee: none.")
    privacy = json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]
    assert privacy["guarantee"]["epsilon"] is None
    claimed = {claim["theorem"]: claim["epsilon"] for claim in privacy["claims"]}
    assert 0.1 in claimed.values()
    assert not any(claim["valid"] for claim in privacy["claims"])
    assert all(row["epsilon_so_far"] is None for row in result.metrics)
    assert privacy["mechanism"]["mechanism"] == "PaperNoise"


@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_noise_larger_than_any_signal_is_warned_of_and_the_advice_helps() -> None:
    """d = 650, B = 64, replace-one: the noise is 650 * 2 / 64 / epsilon = 203 clips at 0.1, and one at 20.31."""
    sections = {"algorithm": MAPA, "privacy": PAPER, "budget": None}
    with pytest.warns(RunWarning, match="l2_laplace") as caught:
        gs.run(spec(**sections))
    (line,) = (str(item.message) for item in caught if "l2_laplace" in str(item.message))
    assert "203.1 times the clip" in line
    assert "3 parameters" in line
    needed = float(re.search(r"an epsilon of ([\d.]+)", line).group(1))  # type: ignore[union-attr]
    assert needed == pytest.approx(650 * 2 / 64, rel=1e-3)
    gs.run(spec(**{**sections, "privacy": {**PAPER, "epsilon": needed * 1.01}}))  # without the warning
    with pytest.warns(RunWarning, match="203.1 times the clip"):  # of the edge with the most noise
        gs.run(spec(**{**sections, "privacy": {**PAPER, "epsilon": [100, 0.1, 100, 100]}}))


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["l2_laplace", "gaussian"])
def test_pure_noise_of_a_total_budget_trains_about_as_well_as_gaussian_noise(noise: str) -> None:
    """papers.md, section 2: calibrated to a total, the L2-Laplace law costs about what Gaussian noise does."""
    sections = {"algorithm": {"name": "audp", "learning_rate": 0.5}, "privacy": {"mechanism": noise}}
    result = gs.run(spec(**sections, stop={"updates": 400}))
    assert result.summary["metrics"]["mean_model_test_accuracy"] > 0.85
    assert result.guarantee.epsilon <= 5
    ways = result.summary["privacy"].get("compositions")
    if noise == "gaussian":
        assert ways is None
    else:
        assert result.guarantee.epsilon == pytest.approx(ways["tight"])
        assert ways["tight"] < ways["optimal"] < ways["simple"]


def test_without_noise_there_is_no_guarantee_and_better_accuracy() -> None:
    for name in ("asgd", "csgd"):
        algorithm = {"name": name, "learning_rate": 0.5}
        result = gs.run(spec(algorithm=algorithm, privacy="none", budget=None, stop={"updates": 400}))
        assert str(result.guarantee).startswith("Guarantee: none.")
        assert result.summary["metrics"]["mean_model_test_accuracy"] > 0.9
        if name == "csgd":
            assert result.summary["csgd"]["staleness_max"] == 0


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "sections",
    [
        {"algorithm": MAPA},
        {"algorithm": "audp", "privacy": {"clip": "quantile"}},
        {"algorithm": "audp", "privacy": {"mechanism": "l2_laplace"}},
        {
            "algorithm": {"name": "audp", "staleness": {"on_stale": "wait", "bound": 2}},
            "privacy": "none",
            "budget": None,
        },
        {"algorithm": MAPA, "privacy": {**PAPER, "norm": "exponential"}, "budget": None},
    ],
    ids=["mapa", "quantile", "l2_laplace", "wait", "paper"],
)
@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_runs_repeat_and_replay(sections: dict[str, Any], tmp_path: Path) -> None:
    """Twice the same bytes, and the trace replays through fresh nodes."""
    experiment = spec(speeds={"name": "lognormal"}, links={"loss": 0.1, "jitter": 0.3}, **sections)
    secret = None
    for folder in ("one", "two"):
        secret = gs.run(experiment, tmp_path / folder, trace=tmp_path / f"{folder}.trace", secret=secret).secret
    assert (secret is not None) == experiment.private
    assert (tmp_path / "one.trace").read_bytes() == (tmp_path / "two.trace").read_bytes()
    for name in ("summary.json", "metrics.jsonl", "ledger.jsonl", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert replay_run(experiment, tmp_path / "one.trace") is None


def test_gradients_that_are_not_finite_are_in_the_nodes_own_log_only(tmp_path: Path) -> None:
    """One example in ten has features 3.4e38: its gradient, sqrt(1/2 * 3) times that, is no float32.

    About 6 of 64 are trained on, and 480 examples drawn; by chance there is none once in 1e20.
    """
    rows = np.random.default_rng(0).standard_normal((80, 3))
    rows[::10] = 3.4e38
    lines = [",".join(f"{value:.6g}" for value in row) + f",{i % 2}" for i, row in enumerate(rows)]
    (tmp_path / "data.csv").write_text("a,b,c,label\n" + "\n".join(lines) + "\n")
    dataset = {"name": "mine", "path": str(tmp_path / "data.csv"), "labels": [0, 1], "scale": "none"}
    algorithm = {"name": "audp", "nodes": 2, "batch_size": 8}
    gs.run(spec(dataset=dataset, algorithm=algorithm), tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "private.jsonl").read_text().splitlines()]
    assert {entry["name"] for entry in log} == {"gradients_not_finite"}
    assert "not_finite" not in (tmp_path / "run" / "summary.json").read_text()
    assert np.isfinite(gs.run(spec(dataset=dataset, algorithm=algorithm)).model["weight"]).all()


@pytest.mark.usefixtures("called_here")
@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_the_command_prints_warning_estimates_and_guarantee(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mapa.yaml"
    path.write_text("dataset: digits\nalgorithm: mapa\nbudget: {epsilon: 5, delta: 1.0e-4}\nstop: {updates: 60}\n")
    assert main(["run", str(path), "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert "estimated on 512 examples that are not the nodes'" in printed.err
    assert "Guarantee: (5, 0.0001)-differential privacy" in printed.out


def test_the_papers_claim_is_for_replacing_an_example_and_its_own_count() -> None:
    """Noise of scale C/eps, under add-or-remove-one, is for the paper's 2C an epsilon of 2 eps; T is the server's."""
    laws = {"mechanism": "l2_laplace", "epsilon": 30.0}
    result = gs.run(spec(algorithm="audp", privacy=laws, budget=None))
    single, total, _ = result.summary["privacy"]["claims"]
    assert single["epsilon"] == pytest.approx(60.0)
    assert total["epsilon"] == pytest.approx(60.0 * sum(n["planned_releases"] for n in _nodes(result)))
    assert single["valid"]


def _nodes(result: gs.Result) -> list[dict[str, Any]]:
    return list(result.summary["privacy"]["nodes"].values())


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "cut",
    [
        {"links": {"partitions": [{"group": [0], "start": 5}], "silence": 3}},
        {"faults": {"absences": [{"node": 3, "start": 20}]}, "links": {"silence": 3}},
    ],
    ids=["an edge is cut off", "the server is gone"],
)
@pytest.mark.filterwarnings("ignore:no node can make another update:gossamer.errors.RunWarning")
def test_a_run_ends_although_somebody_cannot_be_reached_for_ever(cut: dict[str, Any]) -> None:
    result = gs.run(spec(algorithm={"name": "audp", "nodes": 3}, **cut))
    server_gone = "faults" in cut
    assert result.summary["status"] == ("stalled" if server_gone else "updates")
    assert (result.summary["updates"] < 60) == server_gone


@pytest.mark.filterwarnings(ENDS_INSIDE)
def test_the_first_clip_of_mapa_is_recorded() -> None:
    """s / sqrt(1 - sqrt(1 - kappa)) with s = 4.5 and kappa = 0.1."""
    result = gs.run(spec(algorithm=MAPA))
    expected = 4.5 / np.sqrt(1 - np.sqrt(0.9))
    assert result.summary["privacy"]["mechanism"]["clip"] == pytest.approx(expected)
    assert result.summary["mapa"]["stages"][0]["clip"] == pytest.approx(expected)


def test_a_claim_beyond_all_numbers_is_null(tmp_path: Path) -> None:
    """Advanced composition at an epsilon of 1,000 a release overflows."""
    sections = {"algorithm": "audp", "privacy": {"mechanism": "l2_laplace", "epsilon": 1000.0}, "budget": None}
    gs.run(spec(**sections), tmp_path / "run")
    claims = json.loads((tmp_path / "run" / "summary.json").read_text())["privacy"]["claims"]
    assert [claim["epsilon"] is None for claim in claims] == [False, False, True]


def test_a_moving_clip_is_in_the_summary() -> None:
    result = gs.run(spec(algorithm="audp"))
    assert result.summary["audp"]["last_clip"] > 0.5  # from 0.1: the norms of digits' gradients are several
