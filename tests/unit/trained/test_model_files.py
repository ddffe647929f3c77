"""A model's card and files: what a run writes is read back as the same function, and nothing else is taken for it."""

from __future__ import annotations

import json
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tests.reference import wards

import gossamer as gs
from gossamer.data.datasets import load_dataset
from gossamer.errors import CallerError
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.trained.model import predictions

QUICK: dict[str, Any] = {"algorithm": {"name": "gossip", "nodes": 3}, "privacy": "none", "stop": {"updates": 6}}
ONE_OF_TWO = {"dataset": {"name": "digits", "positive": [3, 5, 8]}}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "float64": {"objective": {"name": "softmax", "dtype": "float64"}},
    "hinge": {"objective": "hinge"},
    "logistic": {"objective": "logistic", **ONE_OF_TWO},
    "no bias": {"objective": {"name": "logistic", "intercept": False}, **ONE_OF_TWO},
    "hinge of two": {"objective": "hinge", **ONE_OF_TWO},
    "mlp": {"objective": "mlp"},
    "own module": {"objective": {"module": "tests.reference.own_module:Small"}},
    "squared": {"dataset": {"name": "graph_regression", "synthetic": {"owners": 3}}, "partition": "natural"},
}


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_a_model_is_read_back_and_predicts_as_the_run_tested_it(kind: str, tmp_path: Path) -> None:
    experiment = parse_spec({**QUICK, **OBJECTIVES[kind]})
    result = gs.run(experiment, tmp_path / "out")
    loaded = gs.load_model(tmp_path / "out")
    assert dict(loaded).keys() == load_file(tmp_path / "out" / "model.safetensors").keys()
    np.testing.assert_array_equal(loaded.vector, result.model.vector)
    test = load_dataset(experiment.dataset).test
    found = predictions(loaded.card, loaded.objective.scores(loaded.vector, test.features))
    again = predictions(result.model.card, result.model.objective.scores(result.model.vector, test.features))
    np.testing.assert_array_equal(found.values, again.values)
    metrics = result.summary["metrics"]
    if loaded.classes is None:
        half_square = np.square(found.values - test.targets).mean() / 2
        assert half_square == pytest.approx(metrics["mean_model_test_loss"], rel=1e-5)
        assert found.probabilities is None
    else:
        right = np.mean(found.values == np.array(loaded.classes)[test.targets])
        assert right == pytest.approx(metrics["mean_model_test_accuracy"], abs=1e-12)
    if found.probabilities is not None:
        np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
        own = found.probabilities[np.arange(len(test)), test.targets]
        assert -np.log(own).mean() == pytest.approx(metrics["mean_model_test_loss"], rel=1e-5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "out"
    gs.run(parse_spec({**QUICK, **ONE_OF_TWO, "objective": "logistic"}), out)
    return out


def test_the_card_is_in_the_metadata_and_names_no_file(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "np") as file:
        metadata = file.metadata()
    assert list(metadata) == ["gossamer"]
    card = json.loads((folder / "model.json").read_text())
    assert json.loads(metadata["gossamer"]) == card
    assert card["format"] == 2
    assert str(folder) not in metadata["gossamer"]
    assert card["data"]["classes"] == [["0", "1", "2", "4", "6", "7", "9"], ["3", "5", "8"]]


def test_a_file_handed_on_alone_is_enough(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "model.safetensors", tmp_path / "theirs.safetensors")
    alone = gs.load_model(tmp_path / "theirs.safetensors")
    assert alone.card == gs.load_model(folder).card
    np.testing.assert_array_equal(alone.vector, gs.load_model(folder).vector)


def edited(folder: Path, out: Path, **changes: Any) -> Path:
    """The folder with another card, in both places; of ``data`` some keys are changed, and the others stay."""
    shutil.copytree(folder, out)
    card = json.loads((out / "model.json").read_text())
    changes["data"] = card["data"] | changes.get("data", {})
    card |= changes
    (out / "model.json").write_text(json.dumps(card))
    save_file(load_file(folder / "model.safetensors"), out / "model.safetensors", {"gossamer": json.dumps(card)})
    return out


CARDS: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"format": 3, "gossamer": "9.1"}, r"expected a model of format 2, found format 3, .* 9\.1; "),
    "no version": ({"format": None}, r"damaged \(format: "),
    "a version that is true": ({"format": True}, r"damaged \(format: input should be a number"),
    "unknown key": ({"colour": "red"}, r"damaged \(colour: extra inputs"),
    "other loss": ({"objective": {"name": "x", "loss": "gamma"}}, r"damaged \(objective\.loss: "),
    "squared of classes": ({"objective": {"name": "squared", "loss": "squared"}}, r"damaged \(the squared loss is for"),
    "other parts": ({"parts": [{"name": "weight", "shape": [1, 63]}, {"name": "bias", "shape": [1]}]}, "damaged"),
    "a part with another key": (
        {"parts": [{"name": "bias", "shape": [1], "unit": "m"}]},
        r"damaged \(parts\.0\.unit",
    ),
    "a part without a name": ({"parts": [{"name": "", "shape": [1, 64]}]}, r"damaged \(parts\.0\.name"),
    "a size that is true": ({"parts": [{"name": "bias", "shape": [True]}]}, r"damaged \(parts\.0\.shape"),
    "other shape": ({"data": {"shape": [65]}}, r"the model has weight \[1, 64\], which logistic has not"),
    "one class": ({"data": {"classes": [["yes"]]}}, r"damaged \(.*data\.classes must be two or more"),
    "three classes": ({"data": {"classes": [["a"], ["b"], ["c"]]}}, r"damaged \(the logistic loss is for 2 classes"),
    "huge": ({"data": {"shape": [2**40]}}, r"damaged \(.*data\.shape must"),
    "unknown network": ({"objective": {"name": "lenet6", "loss": "cross_entropy"}}, "did you mean lenet5"),
    "module gone": ({"objective": {"module": "no.such:Thing", "loss": "cross_entropy"}}, r"cannot import 'no\.such'"),
    "from memory": ({"objective": {"loss": "cross_entropy"}}, r"gs\.load_model\(folder, module=\.\.\.\)"),
}


@pytest.mark.parametrize("kind", CARDS)
def test_other_cards_are_refused_in_one_line(kind: str, folder: Path, tmp_path: Path) -> None:
    changes, words = CARDS[kind]
    with pytest.raises(CallerError, match=words) as refused:
        gs.load_model(edited(folder, tmp_path / "out", **changes))
    assert "\n" not in str(refused.value)


def _truncate(out: Path) -> None:
    (out / "model.safetensors").write_bytes((out / "model.safetensors").read_bytes()[:-10])


def _other_run(out: Path) -> None:
    card = json.loads((out / "model.json").read_text())
    (out / "model.json").write_text(json.dumps(card | {"note": "no, mine"}))


def _without_card(out: Path) -> None:
    (out / "model.json").unlink()
    save_file(load_file(out / "model.safetensors"), out / "model.safetensors")


def _not_finite(out: Path) -> None:
    arrays, card = load_file(out / "model.safetensors"), (out / "model.json").read_text()
    save_file({**arrays, "bias": np.array([np.nan], np.float32)}, out / "model.safetensors", {"gossamer": card})


def _renamed(out: Path) -> None:
    arrays, card = load_file(out / "model.safetensors"), (out / "model.json").read_text()
    save_file({"weights": arrays["weight"], "bias": arrays["bias"]}, out / "model.safetensors", {"gossamer": card})


DAMAGES: dict[str, tuple[Any, str]] = {
    "cut short": (_truncate, "damaged"),
    "of another run": (_other_run, "model.json and model.safetensors are not of one run"),
    "older": (
        _without_card,
        "found arrays without one; give the results folder or file of a run of this Gossamer",
    ),
    "diverged": (_not_finite, "the run diverged"),
    "other names": (_renamed, r"arrays \['bias', 'weights'\] in the place of"),
    "no model": (lambda out: (out / "model.safetensors").unlink(), "expected the folder of a run"),
    "not JSON": (lambda out: (out / "model.json").write_text("{"), "damaged"),
    "nested": (lambda out: (out / "model.json").write_text("[" * 100_000), "damaged"),
    "no text": (lambda out: (out / "model.json").write_bytes(b"\xff\xfe"), "not UTF-8"),
    "a list": (lambda out: (out / "model.json").write_text("[]"), r"damaged \(its keys: "),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damage_is_told_in_one_line(kind: str, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(folder, out)
    damage, words = DAMAGES[kind]
    damage(out)
    with pytest.raises(CallerError, match=words) as refused:
        gs.load_model(out)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("place", ["nowhere", "x" * 5000, "with\0zero"])
def test_a_folder_that_is_none(place: str, tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="give a run's results"):
        gs.load_model(tmp_path / place)


def test_frozen_numbers_that_changed_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.reference import own_module

    gs.run(parse_spec({**QUICK, "objective": {"module": "tests.reference.own_module:Small"}}), tmp_path / "out")
    monkeypatch.setattr(own_module, "CENTRE", 0.25)
    with pytest.raises(CallerError, match=r"numbers of .*own_module:Small that are not trained, such as buffers"):
        gs.load_model(tmp_path / "out")


def test_owners_are_named_where_the_spec_names_them(tmp_path: Path) -> None:
    rows = [{**row, "ward": ["north", "south"][number % 2]} for number, row in enumerate(wards.rows(80))]
    dataset = wards.dataset(wards.write(tmp_path / "wards.csv", rows), owner="ward")
    spec = {
        **QUICK,
        "dataset": dataset,
        "objective": "logistic",
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 8},
    }
    silent = gs.run(parse_spec({**spec, "partition": "natural"}), tmp_path / "silent")
    named = gs.run(parse_spec({**spec, "partition": {"name": "natural", "owners": ["south", "north"]}}))
    assert named.model.card.owners == ("south", "north")
    assert named.summary["owners"] == {"node-0": "south", "node-1": "north"}
    assert "owners" not in silent.summary
    for name in ("model.json", "summary.json", "spec.yaml", "model.safetensors"):
        assert b"north" not in (tmp_path / "silent" / name).read_bytes()


def test_a_private_scale_is_in_the_card(tmp_path: Path) -> None:
    """So raw rows are scaled as the run scaled its own."""
    rows = wards.rows(400)
    columns = {"age": "number", "income": "number", "sex": ["female", "male"]}
    train, test = wards.write(tmp_path / "a.csv", rows[:300]), wards.write(tmp_path / "b.csv", rows[300:])
    dataset = {
        **wards.dataset(train, test_path=str(test)),
        "columns": columns,
        "scale": {"name": "private", "share": 0.3},
    }
    algorithm = {"name": "gossip", "nodes": 2, "batch_size": 20, "updates_per_node": 5}
    budget = {"epsilon": 20, "delta": 1e-4}
    result = gs.run(parse_spec({"dataset": dataset, "objective": "logistic", "algorithm": algorithm, "budget": budget}))
    said = result.model.card.data.columns
    assert said is not None
    assert said["age"].range is not None
    with pytest.warns(gs.RunWarning, match="values outside") if _outside(said, rows[300:]) else nullcontext():
        found = result.model.evaluate(test)
    assert found["figures"]["accuracy"]["value"] == result.summary["metrics"]["mean_model_test_accuracy"]
    assert found["loss"] == pytest.approx(result.summary["metrics"]["mean_model_test_loss"], rel=1e-5)


def _outside(columns: Any, rows: list[dict[str, Any]]) -> bool:
    return any(abs(float(row[name])) > columns[name].range[1] for name in ("age", "income") for row in rows)


@pytest.mark.parametrize("place", [5, None, [], b"x"])
def test_what_is_no_path_is_no_model(place: Any) -> None:
    with pytest.raises(CallerError, match=r"^expected a run's results folder, or a model's file, found \w+; give its"):
        gs.load_model(place)


def test_an_export_to_no_path_or_no_program_is_refused(folder: Path) -> None:
    model = gs.load_model(folder)
    with pytest.raises(CallerError, match=r"^expected a file or a folder to write to, found int; give its path"):
        model.export("sklearn", 5)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match=r"^expected a program that models are exported to, found '\[\]'; exp"):
        model.export([], folder)  # type: ignore[arg-type]


def test_a_linear_model_has_no_module(folder: Path) -> None:
    with pytest.raises(CallerError, match=r"the model is linear \(logistic\), and has no module; leave module= out"):
        gs.load_model(folder, module=5)
