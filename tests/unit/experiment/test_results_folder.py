"""The results folder: never half written, never somebody else's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from gossamer.errors import SpecError
from gossamer.experiment.results.results_folder import ResultsFolder, to_json
from gossamer.trained.card import Card, read_card


def cleared(path: Path) -> ResultsFolder:
    folder = ResultsFolder(path)
    folder.clear()
    return folder


def test_an_empty_or_new_folder_is_taken(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "deep" / "new"):
        cleared(path).write_json("summary.json", {"seed": 1})
        assert json.loads((path / "summary.json").read_text()) == {"seed": 1}


def test_an_earlier_run_is_replaced_only_on_request(tmp_path: Path) -> None:
    first = cleared(tmp_path)
    first.write_json("summary.json", {"seed": 1})
    first.append("metrics.jsonl", {"updates": 1})
    with pytest.raises(SpecError, match="not empty; choose another --out, or replace it with --overwrite"):
        ResultsFolder(tmp_path)
    second = ResultsFolder(tmp_path, overwrite=True)
    assert len(list(tmp_path.iterdir())) == 2  # untouched until the new run is known to be possible
    second.clear()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_things_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(SpecError, match="not the results folder of a run"):
        ResultsFolder(tmp_path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_what_a_run_did_not_write_survives_an_overwrite(tmp_path: Path) -> None:
    cleared(tmp_path).write_json("summary.json", {})
    (tmp_path / "notes.txt").write_text("mine")
    ResultsFolder(tmp_path, overwrite=True).clear()
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "results"
    path.write_text("")
    with pytest.raises(SpecError, match="is a file, expected a folder"):
        ResultsFolder(path, overwrite=True)


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.write_json("summary.json", {"updates": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        folder.write_json("summary.json", {"updates": float("nan")})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"updates": 1}


def test_models_are_stored_by_the_names_of_their_parts(tmp_path: Path) -> None:
    vector = np.arange(8, dtype=np.float32)
    card = Card(
        objective={"name": "hinge", "loss": "softmax"},
        parts=({"name": "weight", "shape": (2, 3)}, {"name": "bias", "shape": (2,)}),
        data={
            "name": "own",
            "task": "classification",
            "format": None,
            "shape": (3,),
            "layout": "dense",
            "classes": (("a",), ("b",)),
        },
    )
    ResultsFolder(tmp_path).write_model(vector, card)
    assert read_card((tmp_path / "model.json").read_text(), tmp_path) == card
    loaded = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(loaded["weight"], [[0, 1, 2], [3, 4, 5]])
    np.testing.assert_array_equal(loaded["bias"], [6, 7])


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_json_has_no_infinity(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json({"epsilon": value})
