"""Whole runs through the Python API and the command, on the bundled digits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.specs.spec_file import override, parse_spec, read_spec
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Computing
from gossamer.privacy.guarantee_card import read_guarantee_card

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = {
    "spec.yaml",
    "summary.json",
    "guarantee.json",
    "metrics.jsonl",
    "metrics.csv",
    "ledger.jsonl",
    "receipts.jsonl",
    "model.safetensors",
    "model.json",
    "nodes.json",
    "timing.json",
}
SECRET = gs.NoiseSecret(bytes(range(16)))
UNLIKE_HERE = {
    "PYTHONHASHSEED": "1" if os.environ.get("PYTHONHASHSEED") == "2" else "2",
    "OMP_NUM_THREADS": str(torch.get_num_threads() + 1),
}
"""A process with other hashes and more threads than this one."""

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "objective": "softmax",
    "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 50, "learning_rate": 1.0, "updates_per_node": 12},
    "privacy": {"clip": 1.0, "noise_multiplier": 2.0},
    "speeds": {"name": "lognormal", "scenario": "one_slow"},
}


def small(*settings: str) -> gs.Experiment:
    return parse_spec(override(SMALL, settings))


def gossamer(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gossamer", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("algorithm", ["gossip", "allreduce"])
def test_a_run_writes_the_whole_folder(tmp_path: Path, algorithm: str) -> None:
    out = tmp_path / "out"
    result = gs.run(small(f"algorithm.name={algorithm}"), out)
    assert {path.name for path in out.iterdir()} == FILES | {"noise_secret.json"}
    summary = json.loads((out / "summary.json").read_text())
    assert summary == json.loads(json.dumps(result.summary))
    card = read_guarantee_card((out / "guarantee.json").read_text(), out)
    (entry,), said = card.guarantees, summary["privacy"]["guarantee"]
    written = {key: value for key, value in entry.model_dump(mode="json").items() if key != "profile"}
    head = json.loads((out / "receipts.jsonl").read_text().splitlines()[0])
    assert written == {**said, "run": head["run"], "party": None}
    assert card.mechanism == summary["privacy"]["mechanism"]
    assert entry.profile.profile.mu == pytest.approx(result.guarantee.mu, rel=1e-3)
    assert (summary["algorithm"], summary["engine"], summary["nodes"]) == (algorithm, "simulator", 4)
    assert summary["updates"] == 4 * 12
    assert {"seed", "messages", "bytes", "virtual_seconds"} <= set(summary)
    assert {
        "test_accuracy",
        "mean_model_test_accuracy",
        "worst_node_test_accuracy",
        "test_loss",
        "consensus_distance",
    } <= set(summary["metrics"])
    guarantee = summary["privacy"]["guarantee"]
    keys = {"epsilon", "delta", "unit", "neighboring_relation", "observer", "assumptions", "proof"}
    assert keys <= set(guarantee)
    nodes = summary["privacy"]["nodes"]
    assert {entry["releases"] for entry in nodes.values()} == {12}
    assert guarantee["epsilon"] == max(entry["epsilon"] for entry in nodes.values())
    assert str(result.guarantee).startswith(f"Guarantee: ({guarantee['epsilon']:.4g}, 1e-05)-differential privacy")
    model = load_file(out / "model.safetensors")
    assert {name: part.shape for name, part in model.items()} == {"weight": (10, 64), "bias": (10,)}
    ledger = [json.loads(line) for line in (out / "ledger.jsonl").read_text().splitlines()]
    assert [(line["node"], line["releases"]) for line in ledger] == [(f"node-{i}", 12) for i in range(4)]
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert rows == json.loads(json.dumps(result.metrics))
    assert read_spec(out / "spec.yaml") == small(f"algorithm.name={algorithm}")


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_same_seed_same_bytes_in_other_processes(tmp_path: Path) -> None:
    """This process and one with another hash seed and number of threads write the same bytes, all but the times."""
    spec = write(tmp_path / "spec.yaml", {**SMALL, "objective": "mlp"})
    one, two = (
        ["run", spec, "--reproducible", "--out", tmp_path / name, "--trace", tmp_path / f"{name}.trace"]
        for name in ("one", "two")
    )
    assert main([*map(str, one)]) == 0
    done = gossamer(*two, **UNLIKE_HERE)
    assert done.returncode == 0, done.stderr
    for file in FILES - {"timing.json"}:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert (tmp_path / "one.trace").read_bytes() == (tmp_path / "two.trace").read_bytes()


@pytest.mark.usefixtures("called_here")
@pytest.mark.parametrize("objective", ["softmax", pytest.param("mlp", marks=pytest.mark.slow)])
def test_a_repeat_in_another_process_has_the_same_bytes(tmp_path: Path, objective: str) -> None:
    spec = write(tmp_path / "spec.yaml", {**SMALL, "objective": objective})
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(["run", str(spec), "--out", str(one), "--trace", str(one.with_suffix(".trace"))]) == 0
    done = gossamer("run", "--repeat", one, "--out", two, "--trace", two.with_suffix(".trace"), **UNLIKE_HERE)
    assert done.returncode == 0, done.stderr
    for file in FILES - {"timing.json"} | {"noise_secret.json"}:
        assert (one / file).read_bytes() == (two / file).read_bytes(), file
    assert one.with_suffix(".trace").read_bytes() == two.with_suffix(".trace").read_bytes()


def test_another_seed_gives_another_model() -> None:
    first, second = (gs.run(small(f"seed={seed}"), secret=SECRET).model["weight"] for seed in (1, 2))
    assert not np.any(first == second)


def noise_of(experiment: gs.Experiment, secret: gs.NoiseSecret | None) -> np.ndarray:
    """The noise of the first release: what is released without a clip worth mentioning."""
    tiny = {**experiment.privacy.model_dump(), "clip": 1e-6}
    trained = gs.run(experiment.model_copy(update={"privacy": gs.PrivacySettings(**tiny)}), secret=secret)
    return trained.model["weight"].ravel()


def test_nobody_who_knows_what_nodes_know_knows_the_noise() -> None:
    """The seed that nodes get is not the one of the noise, nor can either be had from the other."""
    from gossamer.experiment.preparation.planning import plan_run
    from gossamer.experiment.preparation.prepare import prepare, public_seed
    from gossamer.experiment.preparation.secrets import secret_seed

    prepared = prepare(small())
    plan = plan_run(prepared)
    secret = secret_seed(prepared, plan.noise, secret=SECRET)
    seeds = {small().seed, public_seed(small()), secret_seed(prepared, plan.noise), secret}
    assert len(seeds | {int.from_bytes(SECRET.value, order) for order in ("little", "big")}) == 6
    assert prepared.context(plan.mechanisms, plan.quotas).seed == public_seed(small()) == prepared.world.seed


@pytest.mark.parametrize("drawn", ["fresh", "reproducible"])
def test_runs_of_one_seed_with_other_noise_do_not_share_it_up_to_a_factor(drawn: str) -> None:
    """With almost nothing but noise in the model, the noise of two runs is uncorrelated, also if they have one secret:
    |r| < 0.25 for 640 numbers holds with probability 1 - 1e-10."""
    secret = SECRET if drawn == "fresh" else None
    settings = ["algorithm.nodes=1", "algorithm.updates_per_node=1", "algorithm.topology=line"]
    settings.append(f"privacy.noise_secret={drawn}")
    one, two = (noise_of(small(*settings, f"privacy.noise_multiplier={z}"), secret) for z in (1, 2))
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.25
    again = noise_of(small(*settings, "privacy.noise_multiplier=1", "compute.width=1", 'evaluation="off"'), secret)
    np.testing.assert_array_equal(one, again)


def test_evaluation_leaves_no_trace(tmp_path: Path) -> None:
    """The trace is the same bytes whether an observer looks often, seldom or never."""
    traces = set()
    for index, evaluation in enumerate(["off", "{every_updates: 1}", "{every_seconds: 0.7, nodes: 2}"]):
        path = tmp_path / f"{index}.trace"
        value = '"off"' if evaluation == "off" else evaluation
        gs.run(small(f"evaluation={value}"), trace=path, secret=SECRET)
        traces.add(path.read_bytes())
    assert len(traces) == 1


@pytest.mark.parametrize("algorithm", ["gossip", "allreduce"])
def test_a_recorded_run_replays_bit_for_bit(tmp_path: Path, algorithm: str) -> None:
    experiment = small(f"algorithm.name={algorithm}")
    gs.run(experiment, trace=tmp_path / "trace")
    assert gs.replay_run(experiment, tmp_path / "trace") is None
    other = gs.replay_run(small(f"algorithm.name={algorithm}", "algorithm.learning_rate=0.9"), tmp_path / "trace")
    assert other is not None  # a node that did anything else would be found out
    assert other.index > 0


def test_batched_and_unbatched_agree_after_200_updates() -> None:
    apart = gs.run(small("algorithm.updates_per_node=50", "compute.width=1"), secret=SECRET)
    together = gs.run(small("algorithm.updates_per_node=50"), secret=SECRET)
    assert apart.summary["updates"] == 200
    assert (apart.timing["mean_width"], together.timing["mean_width"] > 1.5) == (1.0, True)
    for part in apart.model:
        np.testing.assert_allclose(together.model[part], apart.model[part], rtol=1e-4, atol=1e-6)


OWN = ["objective={module: tests.oracle.own_model:Net}", "algorithm.updates_per_node=1"]


@pytest.mark.parametrize("command", ["check", "run"])
def test_kernels_that_a_module_has_not_are_refused_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    spec = write(tmp_path / "spec.yaml", override(SMALL, [*OWN, "compute.strategy=compiled"]))
    out = ["--out", str(tmp_path / "out")] * (command == "run")
    assert main([command, str(spec), *out]) == 2
    assert capsys.readouterr() == (
        "",
        f"gossamer: error: {spec}: strategy 'compiled' cannot be used, since the module (Net) has no kernel; "
        "choose 'auto'\n",
    )
    assert not (tmp_path / "out").exists()


def test_how_gradients_are_computed_is_told_once_and_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Computing("layers", unchained="layer '1' (GELU) has no kernel")
    monkeypatch.setattr(LinearModel, "computing", lambda self: told)
    assert main(["run", str(write(tmp_path / "spec.yaml", SMALL)), "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines.count(told.remark) == 1
    timing = json.loads((tmp_path / "out" / "timing.json").read_text())
    assert {key: timing[key] for key in told.figures()} == told.figures()


def test_exact_rounding_is_kept_in_the_spec_of_a_run(tmp_path: Path) -> None:
    exact = gs.run(small(*OWN, "compute.rounding=exact"), tmp_path / "exact", secret=SECRET)
    assert read_spec(tmp_path / "exact" / "spec.yaml").compute.rounding == "exact"
    usual = gs.run(small(*OWN), tmp_path / "usual", secret=SECRET)
    assert "rounding" not in (tmp_path / "usual" / "spec.yaml").read_text()
    for part in usual.model:
        np.testing.assert_allclose(exact.model[part], usual.model[part], rtol=1e-4, atol=1e-6)


def test_accuracy_stops_a_run_and_the_whole_plan_is_charged() -> None:
    result = gs.run(small("stop.accuracy=0.2", "privacy.noise_multiplier=0.7"))
    full = gs.run(small("privacy.noise_multiplier=0.7"))
    assert result.summary["status"] == "accuracy"
    assert result.summary["updates"] < full.summary["updates"]
    assert result.guarantee == full.guarantee


def test_a_budget_is_met_and_hardly_underspent() -> None:
    epsilon = gs.run(small("privacy.noise_multiplier=null", "budget={epsilon: 3, delta: 1e-4}")).guarantee.epsilon
    assert 0.98 * 3 < epsilon <= 3


def test_stop_updates_is_an_observers_cut() -> None:
    """No ledger charges more than was begun: what was made, and at most one computation under way per node."""
    result = gs.run(small("stop.updates=17"))
    assert result.summary["updates"] == 17
    nodes = result.summary["privacy"]["nodes"].values()
    assert 17 <= sum(entry["releases"] for entry in nodes) <= 17 + 4
    assert all(entry["releases"] == entry["planned_releases"] for entry in nodes)


def test_without_privacy_the_guarantee_is_none() -> None:
    result = gs.run(parse_spec({**SMALL, "privacy": "none"}))
    assert str(result.guarantee).startswith("Guarantee: none")
    privacy = result.summary["privacy"]
    assert (privacy["guarantee"]["epsilon"], privacy["guarantee"]["privacy"]) == (None, "none")
    assert {entry["epsilon"] for entry in privacy["nodes"].values()} == {None}


def test_virtual_seconds_end_a_run() -> None:
    result = gs.run(small("stop.virtual_seconds=5", "speeds.name=constant"))
    assert result.summary["virtual_seconds"] == 5
    assert result.summary["privacy"]["nodes"]["node-3"]["releases"] == 1  # ten times slower: begun, not made


def test_the_last_row_is_of_the_models_at_the_end() -> None:
    """Over links without delay the last update, and the word of the run's end with the last model, are one moment."""
    settings = {"name": "fedasync", "nodes": 4, "updates_per_node": 5}
    document = {"dataset": "digits", "algorithm": settings, "privacy": "none", "links": {"latency": 0.0}}
    found = gs.run(parse_spec(document)).metrics
    assert found[-1]["consensus_distance"] == 0.0  # all have the server's model
    # One model, but scored in a block of four and alone: products in single precision may round otherwise.
    assert found[-1]["test_loss"] == pytest.approx(found[-1]["mean_model_test_loss"], rel=1e-6)
    assert found[-1] != found[-2]  # both of the last moment
    assert found[-2]["virtual_seconds"] == found[-1]["virtual_seconds"]


def test_lossy_links_and_an_absence_do_not_stop_a_run() -> None:
    result = gs.run(
        small(
            "links={latency: 0.1, jitter: 0.2, loss: 0.2, duplicate: 0.1, silence: 5}",
            "faults.absences=[{node: 1, start: 3, end: 9}]",
        )
    )
    assert set(result.summary["finished"].values()) == {"quota"}


@pytest.mark.some(6)
@pytest.mark.usefixtures("called_here")
@pytest.mark.filterwarnings("ignore")  # advice, which the command prints and goes on
@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_sound(
    example: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES / "python"))  # for a module of one's own
    spec = gs.read_spec(example)
    shorter = [] if spec.terms.unit == "agent" else ["--set", "stop={updates: 20}"]
    status, (out, err) = main(["check", str(example), "--json", *shorter]), capsys.readouterr()
    assert status == 0, err
    assert spec.budget is not None
    assert json.loads(out)["guarantee"]["epsilon"] <= np.max(spec.budget.epsilon)
