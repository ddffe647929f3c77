"""Models whose data or modules were given from memory, and modules of unusual kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import gossamer as gs
from gossamer.errors import DataError, ModelError

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(120, 4)).astype(np.float32)
Y = np.where(X[:, 0] > 0, "up", "down")
WORDS = GENERATOR.integers(0, 10, size=(120, 7)).astype(np.float32)
QUICK = gs.Experiment(algorithm=gs.Gossip(nodes=2, batch_size=8), privacy="none", stop={"updates": 6})


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.there = nn.Linear(input_shape[0], input_shape[0])
        self.back = nn.Linear(input_shape[0], input_shape[0])
        self.back.weight = self.there.weight
        self.last = nn.Linear(input_shape[0], classes)

    def forward(self, rows: Tensor) -> Tensor:
        return self.last(self.back(torch.tanh(self.there(rows))))  # type: ignore[no-any-return]


class Named(nn.Module):
    """A mapping of outputs, of which the scores are one."""

    def __init__(self, input_shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(input_shape[0], classes)

    def forward(self, rows: Tensor) -> dict[str, Tensor]:
        return {"logits": self.layer(rows), "features": rows}


class Reader(nn.Module):
    """An embedding of whole numbers, and a GRU over them."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 5)
        self.gru = nn.GRU(5, 6, batch_first=True)
        self.last = nn.Linear(6, 2)

    def forward(self, words: Tensor) -> Tensor:
        states, _ = self.gru(self.embedding(words.long()))
        return self.last(states[:, -1])  # type: ignore[no-any-return]


class Fixed(nn.Module):
    """A network that follows how many rows there are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows) + rows.new_zeros(len(rows), 2)


@pytest.mark.parametrize(
    ("module", "x"),
    [pytest.param(Tied, X, marks=pytest.mark.slow), (Named, X), pytest.param(Reader(), WORDS, marks=pytest.mark.slow)],
)
def test_a_given_module_is_asked_for_again(module: Any, x: np.ndarray[Any, Any], tmp_path: Path) -> None:
    result = gs.run(QUICK, tmp_path / "out", data=gs.Data(x, Y), module=module)
    with pytest.raises(ModelError, match=r"module from memory, .*gs\.load_model\(folder, module=\.\.\.\)"):
        gs.load_model(tmp_path / "out")
    loaded = gs.load_model(tmp_path / "out", module=module)
    found, figures = result.predict(x), result.model.evaluate(x, Y)
    np.testing.assert_array_equal(loaded.predict(x).scores, found.scores)
    assert figures["figures"]["accuracy"]["value"] == np.mean(found.values == Y)
    right = found.probabilities
    program = torch.export.load(loaded.export("torch", tmp_path)).module()
    np.testing.assert_allclose(program(torch.tensor(x)).numpy(), right, rtol=0, atol=1e-6)
    session = onnxruntime.InferenceSession(loaded.export("onnx", tmp_path))
    np.testing.assert_allclose(session.run(None, {"inputs": x})[0], right, rtol=0, atol=1e-6)


def test_another_module_is_refused(tmp_path: Path) -> None:
    gs.run(QUICK, tmp_path / "out", data=gs.Data(X, Y), module=Tied)
    with pytest.raises(ModelError, match=r"the model has there\.weight \[4, 4\], which the module has not"):
        gs.load_model(tmp_path / "out", module=Named)


def test_a_graph_for_one_number_of_rows_is_refused(tmp_path: Path) -> None:
    model = gs.run(QUICK, data=gs.Data(X, Y), module=Fixed).model
    for to in ("torch", "onnx"):
        with pytest.raises(ModelError, match=r"for any number of rows \(x\.shape\[0\] in the place of len\(x\)\)"):
            model.export(to, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_all_kinds() -> None:
    result = gs.run(QUICK, data=gs.Data(X, Y, feature_names=["a", "b", "c", "d"]))
    right = result.predict(X).scores
    alike: list[Any] = [X.tolist(), torch.tensor(X), [dict(zip("dcba", row[::-1])) for row in X.tolist()]]
    for rows in alike:
        np.testing.assert_allclose(result.predict(rows).scores, right, rtol=1e-6)
    assert result.model.features == ("a", "b", "c", "d")
    with pytest.raises(DataError, match="expected a target for each of 120 rows, found 3"):
        result.model.evaluate(X, Y[:3])
    with pytest.raises(DataError, match="the label left, which is none of the 2 classes down, up"):
        result.model.evaluate(X[:1], ["left"])


def test_a_regression_from_memory() -> None:
    model = gs.run(QUICK, data=gs.Data(X, X[:, 1], task="regression")).model
    found = model.evaluate(X, X[:, 1])
    errors = model.predict(X).values - X[:, 1]
    assert found["figures"]["rmse"]["value"] == pytest.approx(np.sqrt(np.square(errors).mean()), rel=1e-6)
    with pytest.raises(DataError, match="expected numbers as targets"):
        model.evaluate(X[:1], ["much"])
