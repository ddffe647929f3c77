"""``gossamer attack``: figures, files, and one clear line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from gossamer.cli import main

pytestmark = pytest.mark.usefixtures("called_here")

pytest.importorskip("PIL", reason="needs gossamer-fl[images]")
pytest.importorskip("matplotlib", reason="needs gossamer-fl[figures]")

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 20, "updates_per_node": 5},
    "privacy": {"noise_multiplier": 1.0},
}


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epsilon", "1e-300"], "--epsilon lies between 1e-9 and 10^12"),
        (["--epsilon", "nan"], "--epsilon lies between 1e-9 and 10^12"),
        (["--out", "spec.yaml"], "spec.yaml: File exists; correct its name, or choose another place"),
    ],
)
def test_what_cannot_be_attacked_gets_one_line(
    spec: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["attack", "inversion", str(spec), "--examples", "1", *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def document(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> dict[str, Any]:
    assert main(["attack", *map(str, arguments), "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def mistake(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["attack", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.strip().splitlines()
    assert line.startswith("gossamer: error: ")
    return line


def test_inversion(spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "inversion", spec, "--examples", 5, "--epsilon", 0.01, 1e7)
    levels = {level["level"]: level for level in found["levels"]}
    assert list(levels) == ["no noise", "the spec's noise", "epsilon 0.01", "epsilon 1e+07"]
    assert levels["no noise"]["ssim"] > 0.99
    assert levels["epsilon 1e+07"]["ssim"] > 0.99
    assert levels["epsilon 0.01"]["cosine"] < 0.5
    assert levels["the spec's noise"]["mechanism"]["noise_multiplier"] == 1.0
    assert len(levels["no noise"]["ssim_each"]) == found["examples"] == 5
    assert {path.name for path in (tmp_path / "runs" / "spec-inversion").iterdir()} == {
        "inversion.png",
        "inversion.json",
    }
    assert json.loads((tmp_path / "runs" / "spec-inversion" / "inversion.json").read_text()) == found
    again = document(capsys, "inversion", spec, "--examples", 5, "--epsilon", 0.01, 1e7, "--out", "again")
    assert again["levels"] == found["levels"]
    assert document(capsys, "inversion", spec, "--examples", 5, "--seed", 1)["levels"] != found["levels"][:2]


def test_a_batch_is_recovered_as_a_mixture(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = document(capsys, "inversion", spec)["levels"][0]
    mixed = document(capsys, "inversion", spec, "--batch-size", 10)["levels"][0]
    assert mixed["ssim"] < 0.8 < alone["ssim"]


def test_the_report_of_an_inversion(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "inversion", str(spec), "--set", "privacy={mechanism: none}"]) == 0
    out = capsys.readouterr().out
    assert "linear inversion of 8 batches of 1 at node-0" in out
    assert ["no", "noise", "1.000", "1.000"] in [line.split() for line in out.splitlines()]
    assert "the spec's noise" not in out
    assert "Figure: runs/spec-inversion/inversion.png" in out


@pytest.mark.slow
@pytest.mark.filterwarnings("default:privacy=none leaves behind")
def test_networks_are_matched(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="needs gossamer-fl[torch]")
    settings = ["--set", "objective=mlp", "--examples", 1]
    assert document(capsys, "inversion", spec, *settings)["method"] == "linear"
    found = document(capsys, "inversion", spec, *settings, "--method", "matching", "--set", "privacy=none")
    assert found["method"] == "matching"
    assert found["levels"][0]["cosine"] > 0.8


def test_examples_that_are_no_pictures_have_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["a,b,c", *(f"{i % 7 + 1},{i % 3},{i % 2}" for i in range(100))]
    (tmp_path / "data.csv").write_text("\n".join(rows))
    content = {
        **SPEC,
        "dataset": {"name": "own", "path": "data.csv", "scale": "none"},
        "objective": "logistic",
        "privacy": "none",
    }
    (tmp_path / "own.yaml").write_text(
        yaml.safe_dump({**content, "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 5}})
    )
    found = document(capsys, "inversion", "own.yaml")
    assert (found["figure"], found["levels"][0]["ssim"]) == (None, None)
    assert found["levels"][0]["cosine"] == pytest.approx(1.0)
    assert main(["attack", "inversion", "own.yaml"]) == 0
    assert "no pictures" in capsys.readouterr().out


def test_mistakes_of_an_inversion(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "node-0 holds" in mistake(capsys, "inversion", spec, "--examples", 5000)
    assert "--examples: expected a whole number, 1 or more" in mistake(capsys, "inversion", spec, "--examples", 0)
    assert "is for networks" in mistake(capsys, "inversion", spec, "--method", "matching")
    assert "epsilon" in mistake(capsys, "inversion", spec, "--epsilon", -1)
    assert "cannot read the spec" in mistake(capsys, "inversion", "absent.yaml")


CONVOLUTION = """
from torch import nn
class Convolution(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 10))
"""


@pytest.mark.slow
def test_linear_inversion_of_a_convolution(
    spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs gossamer-fl[torch]")
    (tmp_path / "convolution_of_a_test.py").write_text(CONVOLUTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = ["--set", "objective.module=convolution_of_a_test:Convolution"]
    assert "use gradient matching" in mistake(capsys, "inversion", spec, *module, "--method", "linear")
    assert "take 1" in mistake(capsys, "inversion", spec, *module, "--batch-size", 2)
    assert document(capsys, "inversion", spec, *module, "--examples", 1)["method"] == "matching"


@pytest.fixture
def results(spec: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["run", str(spec), "--out", "results"]) == 0
    capsys.readouterr()
    return Path("results")


def test_membership(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = json.loads((results / "summary.json").read_text())
    found = document(capsys, "membership", results)
    after = json.loads((results / "summary.json").read_text())
    assert after["privacy"].pop("audits") == {"membership": found}
    assert after == before
    assert (found["members"], found["non_members"]) == (1442, 355)
    assert 0.4 < found["auc"] < 0.6  # five noisy updates of a linear model
    assert found["epsilon_lower_bound"] is None
    assert "not independent runs" in found["how"]
    assert main(["attack", "membership", str(results)]) == 0
    assert "lower bound of epsilon" in capsys.readouterr().out


def test_membership_of_a_model_that_knows_its_examples_by_heart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """80 examples in 200 dimensions with labels from coins: all that can be learnt is the examples themselves."""
    generator = np.random.default_rng(1)
    features, labels = generator.standard_normal((100, 200)), generator.integers(0, 2, 100)
    np.savez(tmp_path / "coins.npz", features=features.astype(np.float32), targets=labels)
    content = {
        "dataset": {"name": "coins", "path": "coins.npz"},
        "objective": "logistic",
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 10, "learning_rate": 0.3, "updates_per_node": 200},
        "privacy": "none",
    }
    (tmp_path / "coins.yaml").write_text(yaml.safe_dump(content))
    assert main(["run", "coins.yaml", "--out", "coins"]) == 0
    capsys.readouterr()
    found = document(capsys, "membership", "coins")
    assert found["auc"] > 0.95
    assert found["advantage"] > 0.7


def test_mistakes_of_membership(results: Path, spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected the results folder" in mistake(capsys, "membership", "nowhere")
    model = load_file(results / "model.safetensors")
    save_file({"weight": model["weight"][:3].copy(), "bias": model["bias"]}, results / "model.safetensors")
    assert "model.safetensors" in mistake(capsys, "membership", results)


def test_an_audit_and_membership_beside_it(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["audit", spec, "--canaries", 50, "--guesses", 20]
    found = document(capsys, *options)["privacy"]
    folder = Path("runs/spec-audit-seed0")
    assert json.loads((folder / "summary.json").read_text())["privacy"] == found
    audit = found["audits"]["one_run"]
    assert audit["proved_epsilon"] == found["guarantee"]["epsilon"]
    assert 0 <= audit["epsilon_lower_bound"] <= audit["proved_epsilon"]
    assert (audit["canaries"], audit["guesses"], audit["canary"]) == (50, 20, "random")
    assert (audit["neighboring_relation"], audit["score"], audit["refuted"]) == ("add_or_remove_one", "gradient", False)
    beside = document(capsys, "membership", folder)
    assert beside["members"] == 1442 - 50
    assert beside["epsilon_lower_bound"] == audit["epsilon_lower_bound"]
    assert "Mahloujifar" in beside["how"]
    by_loss = ["--score", "loss", "--canary", "mislabelled", "--out", "other"]
    assert main(["attack", *map(str, [*options, *by_loss])]) == 0
    out = capsys.readouterr().out
    assert "measured: epsilon is at least" in out
    assert "proved: epsilon is at most" in out
    by_loss = json.loads((Path("other") / "summary.json").read_text())
    assert by_loss["privacy"]["audits"]["one_run"]["score"] == "loss"


@pytest.mark.slow
def test_a_reproducible_audit_is_the_same_again(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["audit", spec, "--canaries", 50, "--guesses", 20]
    found = document(capsys, *options)["privacy"]
    again = [document(capsys, *options, "--reproducible", "--overwrite")["privacy"] for _ in range(2)]
    assert again[0] == again[1] != found


@pytest.mark.slow
def test_an_audit_that_refutes_the_guarantee_says_so(
    spec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gossamer.privacy.mechanisms import Gaussian

    monkeypatch.setattr(Gaussian, "noise", lambda self, generator, size, dtype: np.zeros(size, dtype))
    options = ["--set", "privacy.noise_multiplier=50", "--set", "algorithm.updates_per_node=50"]
    found = document(capsys, "audit", spec, *options, "--canaries", 100, "--guesses", 40, status=1)
    assert found["privacy"]["audits"]["one_run"]["refuted"] is True


def test_mistakes_of_an_audit(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "expected 1 to 5 guesses" in mistake(capsys, "audit", spec, "--canaries", 5, "--guesses", 6)
    assert "canaries" in mistake(capsys, "audit", spec, "--canaries", 5000, "--guesses", 6)
    assert "confidence" in mistake(capsys, "audit", spec, "--canaries", 5, "--guesses", 5, "--confidence", 95)
    assert not Path("runs").exists()


def test_an_audit_by_an_observer(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Canaries are at other nodes, and its own examples are members like any others."""
    options = ["audit", spec, "--observer", "node:node-0", "--canaries", 50, "--guesses", 20, "--overwrite"]
    audit = document(capsys, *options)["privacy"]["audits"]["one_run"]
    assert audit["observer"] == "node:node-0"
    assert 0 <= audit["epsilon_lower_bound"] <= min(audit["proved_epsilon"], audit["gradients_fixed_epsilon"])
    assert document(capsys, "membership", "runs/spec-audit-seed0")["members"] == 1442 - 50
    assert main(["attack", *map(str, options)]) == 0
    assert "node:node-0: at most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("observer", "more"),
    [
        ("node:node-0", ["stop.accuracy=0.01", "evaluation.every_updates=12"]),  # fewer messages than are planned
        ("link:node-2,node-3", ["stop.accuracy=0.001", "evaluation.every_updates=1"]),  # none at all
        ("node:server", ["algorithm={name: increasing, nodes: 4}", "stop.updates=12"]),
    ],
    ids=["a run that stops early", "a run that stops at once", "a server"],
)
def test_who_may_audit_and_of_what(
    observer: str, more: list[str], spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--canaries", 50, "--guesses", 20, *(part for one in more for part in ("--set", one))]
    audit = document(capsys, "audit", spec, "--observer", observer, *options)["privacy"]["audits"]["one_run"]
    assert 0 <= audit["epsilon_lower_bound"] <= min(audit["proved_epsilon"], audit["gradients_fixed_epsilon"])


@pytest.mark.parametrize(
    ("observer", "more", "said"),
    [
        ("node:node-77", [], "the run has no node 'node-77'"),
        ("node:node-0+final", [], "audits are of observers of messages, found node:node-0+final; leave out final"),
        ("coalition:node-0,node-1,node-2,node-3", [], "nodes with examples that it is not, found coalition:"),
        ("link:node-0,node-2", [], "an observer that is sent something"),
        ("everyone", ["--score", "loss"], "--observer everyone guesses from messages, found --score loss"),
        ("everyone", ["--set", "privacy.clip={policy: quantile}"], "gradients of a fixed clip"),
        (
            "everyone",
            ["--set", "algorithm={name: allreduce, nodes: 4, updates_per_node: 2}"],
            "are of whole vectors, found parts of some; leave it out",
        ),
    ],
)
def test_observers_that_cannot_audit(
    observer: str, more: list[str], said: str, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in mistake(capsys, "audit", spec, "--observer", observer, *more)
    assert not Path("runs").exists()
