"""Exported models: they take raw numbers, and say the same as Gossamer to 1e-6."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from tests.reference import wards

import gossamer as gs
from gossamer.errors import CallerError, ModelError, RunWarning
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.extras import install_line
from gossamer.trained import model as exporting

QUICK: dict[str, Any] = {
    "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 8},
    "privacy": "none",
    "stop": {"updates": 9},
}
TABLE = wards.rows()
COST = {"target": "cost", "task": "regression", "labels": None}
RANGED = {**COST, "target_range": [0, 4000]}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "logistic": ("logistic", {}),
    "softmax of two": ("softmax", {}),
    "hinge": ("hinge", {}),
    "squared": ("squared", COST),
    "squared, in a range": ("squared", RANGED),
    "squared, of a mean": ("squared", {**COST, "target_range": {"mean": 2000, "deviation": 800}}),
    "unit norm": ("logistic", {"normalise": "unit_norm"}),
    "unscaled": ("logistic", {"scale": "none", "normalise": "unit_norm"}),
    "mlp": ("mlp", {}),
    "mlp of real targets": ("mlp", COST),
    "mlp of a range": ("mlp", RANGED),
    "own module": ({"module": "tests.reference.own_module:Small"}, {}),
}
IN_TORCH = {"mlp", "mlp of real targets", "mlp of a range", "own module"}


def trained(tmp_path: Path, objective: Any, dataset: dict[str, Any]) -> gs.Model:
    algorithm = {**QUICK["algorithm"], "learning_rate": 0.01 if dataset.get("scale") or "task" in dataset else 0.3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        return gs.run(
            parse_spec({**QUICK, "algorithm": algorithm, "objective": objective, "dataset": dataset}), tmp_path / "out"
        ).model


def of_torch(path: Path, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    program = torch.export.load(path).module()
    return np.asarray(program(torch.tensor(inputs)).numpy())


def of_onnx(path: Path, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    session = onnxruntime.InferenceSession(path)
    return np.asarray(session.run(None, {"inputs": inputs})[0])


def expected(found: gs.Predictions) -> np.ndarray[Any, Any]:
    if found.classes is None:
        return found.values
    return found.scores if found.probabilities is None else found.probabilities


def assert_same(found: np.ndarray[Any, Any], predicted: gs.Predictions) -> None:
    """To 1e-6: of probabilities, and of real numbers in proportion."""
    right = expected(predicted)
    assert found.shape == right.shape
    np.testing.assert_allclose(found, right, rtol=0 if predicted.classes else 1e-6, atol=1e-6)


GRAPHS = [
    pytest.param(kind, to, marks=[] if to == "torch" or kind in ("logistic", "mlp of a range") else pytest.mark.slow)
    for kind in KINDS
    for to in ("torch", "onnx")
]
"""Graphs of ONNX take seconds each."""


@pytest.mark.some(3)
@pytest.mark.parametrize(("kind", "to"), GRAPHS)
@pytest.mark.filterwarnings("ignore:values outside")
def test_a_graph_takes_raw_numbers_of_a_table(kind: str, to: str, tmp_path: Path) -> None:
    objective, more = KINDS[kind]
    path = wards.write(tmp_path / "wards.csv", TABLE)
    model = trained(tmp_path, objective, wards.dataset(path, **more))
    place, of = model.export(to, tmp_path), {"torch": of_torch, "onnx": of_onnx}[to]
    assert place == tmp_path / {"torch": "model.pt2", "onnx": "model.onnx"}[to]
    assert_same(of(place, wards.inputs(TABLE)), model.predict(path))
    assert_same(of(place, wards.inputs(TABLE[:1])), model.predict(TABLE[:1]))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in IN_TORCH])
@pytest.mark.filterwarnings("ignore:values outside")
def test_a_pipeline_takes_cells_of_a_table(kind: str, tmp_path: Path) -> None:
    objective, more = KINDS[kind]
    path = wards.write(tmp_path / "wards.csv", TABLE)
    model = trained(tmp_path, objective, wards.dataset(path, **more))
    pipeline, predicted = joblib.load(model.export("sklearn", tmp_path)), model.predict(path)
    cells = wards.cells(TABLE)
    if model.output == "probabilities":
        assert_same(pipeline.predict_proba(cells), predicted)
    elif model.output == "scores":
        assert_same(pipeline.decision_function(cells)[:, None], predicted)
    if model.classes is None:
        assert_same(pipeline.predict(cells), predicted)
    else:
        np.testing.assert_array_equal(pipeline.predict(cells), predicted.values)
        with pytest.raises(ValueError, match="unknown categories"):
            pipeline.predict(np.where(cells == "male", "other", cells))


def pictures(path: Path, size: int) -> Path:
    generator = np.random.default_rng(1)
    targets = np.arange(60) % 3
    features = generator.integers(0, 256, (60, 1, size, size)) // 2 + 40 * targets[:, None, None, None]
    np.savez(path, features=features, targets=targets)
    return path


@pytest.mark.parametrize("to", ["torch", pytest.param("onnx", marks=pytest.mark.slow)])
def test_a_network_of_sequences_is_exported(to: str, tmp_path: Path) -> None:
    """The network `lstm`, whose states begin as zeros for as many rows as there are."""
    generator = np.random.default_rng(2)
    targets = np.arange(60) % 3
    features = (generator.standard_normal((60, 5, 4)) + targets[:, None, None]).astype(np.float32)
    np.savez(tmp_path / "frames.npz", features=features, targets=targets)
    dataset = {"name": "frames", "path": str(tmp_path / "frames.npz")}
    model = trained(tmp_path, {"module": "tests.reference.own_module:small_lstm"}, dataset)
    place, of = model.export(to, tmp_path), {"torch": of_torch, "onnx": of_onnx}[to]
    for rows in (features, features[:1]):
        assert_same(of(place, rows), model.predict(rows))


ALIKE = {
    "lenet5": ("lenet5", {"divide_by": 255}),
    "softmax": ("softmax", {"divide_by": 255, "normalise": "unit_norm"}),
    "by range": ("softmax", {"scale": {"range": [0, 200]}}),
    "by mean": ("hinge", {"scale": {"mean": 100, "deviation": 50}}),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "kind", [pytest.param("lenet5", marks=pytest.mark.slow), *(kind for kind in ALIKE if kind != "lenet5")]
)
def test_exports_of_pictures_take_their_pixels(kind: str, tmp_path: Path) -> None:
    objective, more = ALIKE[kind]
    path = pictures(tmp_path / "pictures.npz", 12)
    model = trained(tmp_path, objective, {"name": "pictures", "path": str(path), **more})
    with np.load(path) as archive:
        pixels = archive["features"].astype(np.float32)
    predicted = model.predict(path)
    assert len(predicted) == 60
    np.testing.assert_array_equal(model.predict(pixels).values, predicted.values)
    assert_same(of_torch(model.export("torch", tmp_path), pixels), predicted)
    assert_same(of_onnx(model.export("onnx", tmp_path), pixels), predicted)
    if objective != "lenet5":
        pipeline = joblib.load(model.export("sklearn", tmp_path))
        score = pipeline.predict_proba if objective == "softmax" else pipeline.decision_function
        assert_same(score(pixels.reshape(60, -1)), predicted)


def test_sparse_features_go_to_scikit_learn(tmp_path: Path) -> None:
    from sklearn.datasets import load_svmlight_file

    generator = np.random.default_rng(2)
    lines = []
    for row in range(60):
        chosen = np.sort(generator.choice(50, 3, replace=False)) + 1
        lines.append(f"{row % 2} " + " ".join(f"{index}:{generator.uniform(-2, 2):.3f}" for index in chosen))
    path = tmp_path / "few.libsvm"
    path.write_text("\n".join(lines) + "\n")
    model = trained(
        tmp_path, "logistic", {"name": "few", "path": str(path), "features": 50, "divide_by": 4, "layout": "sparse"}
    )
    matrix, _ = load_svmlight_file(str(path), n_features=50)
    assert_same(joblib.load(model.export("sklearn", tmp_path)).predict_proba(matrix), model.predict(path))
    assert_same(of_torch(model.export("torch", tmp_path), matrix.toarray().astype(np.float32)), model.predict(matrix))


def test_an_export_describes_itself(tmp_path: Path) -> None:
    model = trained(tmp_path, "logistic", wards.dataset(wards.write(tmp_path / "wards.csv", TABLE)))
    described: dict[str, Any] = {"gossamer.json": ""}
    torch.export.load(model.export("torch", tmp_path), extra_files=described)
    in_onnx = {item.key: item.value for item in onnx.load(model.export("onnx", tmp_path)).metadata_props}
    pipeline = joblib.load(model.export("sklearn", tmp_path))
    in_sklearn = pipeline.gossamer_
    assert pipeline.written_by_ == f"scikit-learn {version('scikit-learn')}"
    assert pipeline[-1].multi_class == "auto", "scikit-learn before 1.8 has no probabilities without it"
    for text in (described["gossamer.json"], in_onnx["gossamer"], in_sklearn):
        told = json.loads(text)["export"]
        assert told["inputs"] == wards.INPUTS
        assert (told["output"], told["classes"], told["dtype"]) == ("probabilities", ["no", "yes"], "float64")


def test_a_network_is_none_of_scikit_learns(tmp_path: Path) -> None:
    model = trained(tmp_path, "mlp", wards.dataset(wards.write(tmp_path / "wards.csv", TABLE)))
    with pytest.raises(CallerError, match=r"linear models alone .* take --to torch or --to onnx"):
        model.export("sklearn", tmp_path)


@pytest.mark.parametrize("to", exporting.TARGETS)
def test_a_missing_package_names_its_extra(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, extra = exporting.TARGETS[to].needs[-1], exporting.TARGETS[to].extra
    monkeypatch.setitem(sys.modules, gone, None)
    words = f"needs the optional package {gone}, which is not installed: {re.escape(install_line(extra))}"
    with pytest.raises(CallerError, match=words):
        exporting.check_target(to)


def test_other_programs_are_unknown() -> None:
    with pytest.raises(CallerError, match=r"that models are exported to, found 'sklern'; did you mean sklearn"):
        exporting.check_target("sklern")


def test_the_package_is_imported_without_them() -> None:
    program = "import gossamer.trained.model, sys; print({'onnx', 'sklearn', 'torch'} & set(sys.modules))"
    import subprocess

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.some(2)
@pytest.mark.parametrize("to", exporting.TARGETS)
def test_an_export_is_for_its_owner_and_names_no_file_of_the_machine(to: str, tmp_path: Path) -> None:
    kind = "logistic" if to == "sklearn" else "mlp"
    place = trained(tmp_path, kind, wards.dataset(wards.write(tmp_path / "wards.csv", TABLE))).export(to, tmp_path)
    if os.name == "posix":
        assert place.stat().st_mode & 0o777 == 0o600
    contents = [place.read_bytes()]
    if zipfile.is_zipfile(place):
        with zipfile.ZipFile(place) as archive:
            contents = [archive.read(name) for name in archive.namelist()]
    for word in (".py", str(tmp_path), str(Path.home()), str(Path(exporting.__file__).parent)):
        assert not any(word.encode() in content for content in contents), word


def test_an_export_replaces_nothing_unless_told(tmp_path: Path) -> None:
    model = trained(tmp_path, "logistic", wards.dataset(wards.write(tmp_path / "wards.csv", TABLE)))
    before = (tmp_path / "wards.csv").read_bytes(), (tmp_path / "out" / "model.safetensors").read_bytes()
    with pytest.raises(CallerError, match=r"wards\.csv exists; .* overwrite=True"):
        model.export("sklearn", tmp_path / "wards.csv")
    with pytest.raises(CallerError, match="a run's own file; choose another"):
        model.export("sklearn", tmp_path / "out" / "model.safetensors", overwrite=True)
    assert ((tmp_path / "wards.csv").read_bytes(), (tmp_path / "out" / "model.safetensors").read_bytes()) == before
    place = model.export("sklearn", tmp_path)
    assert model.export("sklearn", tmp_path, overwrite=True) == place


@pytest.mark.filterwarnings("ignore:values outside")
def test_a_pipeline_says_what_was_empty(tmp_path: Path) -> None:
    columns = {**wards.COLUMNS, **{name: {**wards.COLUMNS[name], "was_empty": True} for name in ("stay", "ward_type")}}
    path = wards.write(tmp_path / "wards.csv", TABLE)
    model = trained(tmp_path, "logistic", {**wards.dataset(path), "columns": columns})
    assert model.features[-1] == "ward_type was empty"
    pipeline = joblib.load(model.export("sklearn", tmp_path))
    assert_same(pipeline.predict_proba(wards.cells(TABLE)), model.predict(path))


def test_dates_are_numbers_of_a_graph_and_none_of_a_pipeline(tmp_path: Path) -> None:
    """Of 1 and 2 March 2024 (a Friday and a Saturday), and of an empty cell, which is read as 29 February."""
    given = {"kind": "date", "parts": ["days", "weekday"], "range": ["2024-01-01", "2024-12-31"]}
    columns = {"age": [0, 100], "seen": {**given, "missing": "2024-02-29", "was_empty": True}}
    seen = ["2024-03-01", "2024-03-02", ""]
    table = [{"age": number % 90, "seen": seen[number % 3], "ill": ["no", "yes"][number % 2]} for number in range(60)]
    path = wards.write(tmp_path / "t.csv", table)
    model = trained(tmp_path, "logistic", {**wards.dataset(path), "columns": columns})
    assert model.features[1] == "seen"
    friday, saturday, none = np.eye(7)[4], np.eye(7)[5], np.zeros(7)
    rows = [[0, 60, *friday, 0], [1, 61, *saturday, 0], [2, np.nan, *none, 1]]
    predicted = model.predict(table[:3])
    assert_same(of_torch(model.export("torch", tmp_path), np.array(rows)), predicted)
    with pytest.raises(ModelError, match="reads dates, and seen has some; take --to torch or --to onnx"):
        model.export("sklearn", tmp_path)
