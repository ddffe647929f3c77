"""Losses that other distributions register: trained with, named, hashed, allowed, predicted with, exported, refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.metrics import r2_score, root_mean_squared_error
from tests.reference import wards
from tests.reference.outside import installed, written
from tests.reference.refusals import refusal

import gossamer as gs
from gossamer.cli import main
from gossamer.deployment.founding.federation_spec import own_code
from gossamer.errors import CallerError
from gossamer.experiment.specs.spec import of_others
from gossamer.experiment.specs.spec_file import parse_spec, read_text, write_spec
from gossamer.objectives.network_settings import KIND

QUICK: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 8, "updates_per_node": 3, "learning_rate": 0.01},
    "privacy": {"noise_multiplier": 2.0},
    "evaluation": "off",
}
TABLE = wards.rows(150)
COST = {"target": "cost", "task": "regression", "labels": None, "target_range": [0, 4000]}
BAD = """
from typing import ClassVar, Literal
import numpy as np
import torch
from gossamer import OwnLoss

SEEN = []

class Bad(OwnLoss):
    task: ClassVar[str] = "classification"
    name: Literal["bad"] = "bad"

    def loss(self, outputs, target):
        BODY
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("robust_losses", tmp_path_factory.mktemp("outside"))


@pytest.fixture
def losses(site: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(site)
    return site


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    KIND.loaded.clear()
    for name in ("robust_losses", "bad_losses"):
        sys.modules.pop(name, None)


def spec(loss: Any, *, network: Any = "mlp", **changes: Any) -> dict[str, Any]:
    objective = {**(network if isinstance(network, dict) else {"name": network}), "loss": loss}
    return {**QUICK, "dataset": "digits", "objective": objective, **changes}


def of_wards(tmp_path: Path, loss: Any, **keys: Any) -> dict[str, Any]:
    wards.write(tmp_path / "wards.csv", TABLE)
    return spec(loss, dataset={**wards.dataset(tmp_path / "wards.csv"), **keys})


def test_a_run_names_and_hashes_it_and_the_guarantee_trusts_it(losses: Path, tmp_path: Path) -> None:
    made = parse_spec(spec({"name": "focal", "gamma": 1.5}))
    result = gs.run(made, tmp_path / "out")
    ((_, found),) = of_others(made)
    assert result.summary["other_code"] == [
        {
            "kind": "loss",
            "name": "focal",
            "distribution": "robust-losses",
            "version": "1.0",
            "sha256": found.source,
        }
    ]
    said = (
        "the code of robust-losses 1.0 is trusted: its loss of an example depends on that alone, and it does nothing "
        "else"
    )
    assert said in result.guarantee.assumptions
    assert own_code(made) == [found.code]
    assert read_text(write_spec(made)) == made
    assert "gamma: 1.5" in write_spec(made)
    usual = gs.run(parse_spec(spec("cross_entropy")))
    assert "other_code" not in usual.summary
    assert result.guarantee.epsilon == usual.guarantee.epsilon


def test_noise_depends_on_its_source(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BAD.replace("BODY", "return torch.nn.functional.cross_entropy(outputs, target)")
    monkeypatch.syspath_prepend(tmp_path)
    written(tmp_path, "bad-losses", "1.0", {"bad": "bad_losses:Bad"}, "gossamer.losses", bad_losses=text)
    content = spec("bad", privacy={"noise_multiplier": 2.0, "noise_secret": "reproducible"})
    first, again = gs.run(parse_spec(content)).model, gs.run(parse_spec(content)).model
    assert all((first[part] == again[part]).all() for part in first)
    KIND.loaded.clear()
    (tmp_path / "bad_losses.py").write_text(text + "# changed\n")
    changed = gs.run(parse_spec(content)).model
    assert any((first[part] != changed[part]).any() for part in first)


def test_it_is_listed_and_code_that_is_not_allowed_is_not_imported(
    losses: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["algorithms", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["losses"]
    assert [one["name"] for one in listed] == ["focal", "huber", "laplace", "single"]
    assert {one["problem"] for one in listed} == {None}
    assert main(["algorithms"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["focal", "(loss)", listed[0]["code"]] in rows
    found = KIND.find("focal")
    assert found is not None
    assert found.code == listed[0]["code"]
    said = refusal(spec("focal"), modules=())
    assert "focal would have code run on this machine, of robust-losses 1.0; if that is the loss that was" in said
    assert f"--module {found.code}" in said
    assert "robust_losses" not in sys.modules
    for allowed in (found.distribution, f"{found.distribution}==1.0", found.code):
        assert parse_spec(spec("focal"), modules=[allowed]).objective.loss == parse_spec(spec("focal")).objective.loss


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("loss", "keys", "output"),
    [("huber", COST, "prediction"), ("laplace", COST, "prediction"), ("single", {}, "probabilities")],
)
def test_its_model_predicts_and_is_exported(
    losses: Path, tmp_path: Path, loss: str, keys: dict[str, Any], output: str
) -> None:
    """A model of two outputs, and of one for two classes, says what its loss makes of them."""
    run = gs.run(parse_spec(of_wards(tmp_path, loss, **keys)), tmp_path / "out")
    with pytest.warns(gs.RunWarning, match="outside"):
        expected = run.model.predict(tmp_path / "wards.csv")
    KIND.loaded.clear()
    model = gs.load_model(tmp_path / "out")
    told = json.loads((tmp_path / "out" / "model.json").read_text())["objective"]
    assert (told["loss"], told["registered"]["settings"]["name"]) == ("registered", loss)
    with pytest.warns(gs.RunWarning, match="outside"):
        found = model.predict(tmp_path / "wards.csv")
    np.testing.assert_array_equal(found.scores, expected.scores)
    inputs = wards.inputs(TABLE)
    assert model.output == output
    model.export("torch", tmp_path)
    model.export("onnx", tmp_path)
    program = torch.export.load(tmp_path / "model.pt2").module()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (there,) = session.run(None, {"inputs": inputs})
    wanted = found.values if found.probabilities is None else found.probabilities
    close = {"rtol": 0 if found.classes else 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(program(torch.tensor(inputs)).numpy(), wanted, **close)
    np.testing.assert_allclose(there, wanted, **close)


@pytest.mark.parametrize("loss", ["huber", {"name": "huber", "delta": 0.1}, "laplace"])
def test_its_regressions_have_the_figures_that_people_know(losses: Path, tmp_path: Path, loss: Any) -> None:
    """In the target's own unit, as scikit-learn has them of the predictions; two outputs predict one number."""
    run = gs.run(parse_spec({**of_wards(tmp_path, loss, **COST, test_path=tmp_path / "wards.csv"), "privacy": "none"}))
    with pytest.warns(gs.RunWarning, match="outside"):
        predicted = run.predict(tmp_path / "wards.csv").values
    cost = [float(row["cost"]) for row in TABLE]
    metrics = run.summary["metrics"]
    assert metrics["test_rmse"] == pytest.approx(root_mean_squared_error(cost, predicted), rel=1e-5)
    assert metrics["test_r2"] == pytest.approx(r2_score(cost, predicted), abs=1e-5)


def test_a_model_whose_loss_is_not_there(
    losses: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, site: Path
) -> None:
    gs.run(parse_spec(spec("focal")), tmp_path / "out")
    KIND.loaded.clear()
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(site)])
    with pytest.raises(CallerError, match=r"loss focal of robust-losses 1\.0, and here nobody registers it; install"):
        gs.load_model(tmp_path / "out")


def test_mistakes_are_said_as_of_any_other(losses: Path, tmp_path: Path) -> None:
    assert "unknown key objective.loss.gama; did you mean gamma?" in refusal(spec({"name": "focal", "gama": 1}))
    assert "objective.loss.gamma: input should be greater than or equal to 0" in refusal(
        spec({"name": "focal", "gamma": -1})
    )
    assert "objective.loss: unknown name 'focl'; did you mean focal?" in refusal(spec("focl"))
    assert "objective.loss: huber is for regression, and the targets are 10 classes" in refusal(spec("huber"))
    assert "focal is for classification, and the targets are real" in refusal(of_wards(tmp_path, "focal", **COST))
    assert "objective.loss is for networks; softmax is a loss itself" in refusal(spec("focal", network="softmax"))
    for strategy in ("layers", "compiled"):
        said = refusal(spec("focal", compute={"strategy": strategy}))
        assert f"strategy '{strategy}' cannot be used, since" in said
    assert "the module must return outputs [examples, 2]" in refusal(
        {**of_wards(tmp_path, "laplace", **COST), "objective": {"module": f"{__name__}:one_output", "loss": "laplace"}}
    )


def one_output(input_shape: tuple[int, ...], classes: int) -> torch.nn.Module:
    return torch.nn.Linear(input_shape[0], 1)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return outputs", "must give one number as a loss of an example, found shape [10] of float32"),
        ("return target", "must give one number as a loss of an example, found shape [] of int64"),
        ("return outputs.sum() / 0", "gives no finite number or gradient for finite outputs"),
        ("return (outputs - outputs.detach()).square().sum().sqrt()", "gives no finite number or gradient for"),
        ("return 1.0", "cannot be computed one example at a time"),
        ("return 1 / 0", "cannot be computed one example at a time: ZeroDivisionError: division by zero"),
        ("return outputs.sum() if outputs[0] > 0 else -outputs.sum()", "torch.where in the place of if"),
        ("return outputs.sum() + torch.rand(())", "cannot be computed one example at a time"),
        ("return outputs.sum() + np.random.default_rng().normal()", "gives another loss asked again, or beside others"),
        ("SEEN.append(1); return outputs.sum() * len(SEEN)", "gives another loss asked again, or beside others"),
    ],
)
def test_a_loss_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, said: str) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = BAD.replace("BODY", body)
    written(tmp_path, "bad-losses", "1.0", {"bad": "bad_losses:Bad"}, "gossamer.losses", bad_losses=text)
    found = refusal(spec("bad"))
    assert found.startswith("objective.loss: bad ")
    assert said in found


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ClassVar[str] =", "ClassVar[str]  #", "must have task classification or regression, found"),
        ("def loss(", "def outputs(self, classes): return 0\n    def loss(", "must need 1 output or more, found 0"),
        (
            "def loss(",
            "def outputs(self, classes): return 1\n    def loss(",
            "must give 10 numbers (one a class)",
        ),
        ("def loss(", "def outputs(self): return 1\n    def loss(", "cannot say its outputs: TypeError"),
        ("(OwnLoss)", "", "expected a class of settings that derives from"),
    ],
)
def test_a_class_that_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    text = BAD.replace("BODY", "return outputs.sum()").replace(old, new)
    written(tmp_path, "bad-losses", "1.0", {"bad": "bad_losses:Bad"}, "gossamer.losses", bad_losses=text)
    assert said in refusal(spec("bad"))
