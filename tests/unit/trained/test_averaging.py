"""The mean of saved models: that of their numbers, the same bytes for all who compute it, and of one run alone."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.trained.averaging import Saved, average
from gossamer.trained.card import read_model, saved

SPEC: dict[str, Any] = {
    "dataset": "digits",
    "algorithm": {"name": "gossip", "topology": "complete", "nodes": 2, "batch_size": 20, "updates_per_node": 2},
    "privacy": {"noise_multiplier": 4.0},
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of three runs of one spec but for the seed, which is in no card: as three parties of a run would have."""
    place = tmp_path_factory.mktemp("models")
    for seed in range(3):
        gs.run(parse_spec({**SPEC, "seed": seed}), place / str(seed))
    gs.run(parse_spec({**SPEC, "objective": {"name": "softmax", "intercept": False}}), place / "other")
    return place


@pytest.fixture
def folders(made: Path, tmp_path: Path) -> list[Path]:
    for seed in range(3):
        shutil.copytree(made / str(seed), tmp_path / str(seed))
    return [tmp_path / str(seed) for seed in range(3)]


def say(folder: Path, **values: str) -> None:
    (folder / "summary.json").write_text(json.dumps(values))


def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> str:
    assert main(["average", *map(str, arguments), "--out", str(tmp_path / "mean")]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert not (tmp_path / "mean").exists()
    return err


@pytest.mark.parametrize("weights", [None, [200.0, 100.0, 700.0]])
def test_it_is_the_mean_of_the_numbers(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: list[float] | None
) -> None:
    chosen = [] if weights is None else ["--weights", ",".join(map(str, weights))]
    out = tmp_path / "mean"
    assert main(["average", *map(str, folders), "--out", str(out), "--json", *chosen]) == 0
    found = json.loads(capsys.readouterr().out)
    models = [load_file(folder / "model.safetensors") for folder in folders]
    mean = load_file(out / "model.safetensors")
    assert set(mean) == set(models[0])
    for part, array in mean.items():
        expected = np.average([model[part].astype(float) for model in models], axis=0, weights=weights)
        # Rounded once to float32, of 24 bits.
        np.testing.assert_allclose(array, expected, rtol=2.0**-23, atol=0)
    assert found["sha256"] == hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    vectors = [read_model(folder)[1] for folder in folders]
    distances = [float(np.linalg.norm(vector - read_model(out)[1])) for vector in vectors]
    assert [model["distance"] for model in found["models"]] == pytest.approx(distances, rel=1e-5)


def test_its_bytes_do_not_depend_on_the_order(folders: list[Path]) -> None:
    models = [Saved.read(folder) for folder in folders]
    weights = [0.1, 0.7, 0.3]
    found = {
        saved(*reversed(average([models[i] for i in order], [weights[i] for i in order])))
        for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0])
    }
    assert len(found) == 1


def test_it_can_be_used(folders: list[Path], tmp_path: Path) -> None:
    """A file that a party has handed on alone has what is needed."""
    assert main(["average", str(folders[0] / "model.safetensors"), str(folders[1]), "--out", str(tmp_path / "m")]) == 0
    model = gs.load_model(tmp_path / "m")
    assert len(model.classes or ()) == 10


def test_models_of_other_runs_are_refused(
    made: Path, folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "its objective is not that of" in refused(capsys, tmp_path, folders[0], made / "other")
    say(folders[0], run="a", node="hospital-a")
    say(folders[1], run="b", node="hospital-b")
    assert "of run b, expected a as" in refused(capsys, tmp_path, *folders[:2])
    say(folders[1], run="a", node="hospital-a")
    assert "hospital-a is named 2 times" in refused(capsys, tmp_path, *folders[:2])
    say(folders[1], run="a", node="hospital-b")
    assert main(["average", *map(str, folders[:2]), "--out", str(tmp_path / "mean")]) == 0
    assert "hospital-b" in capsys.readouterr().out


def test_a_personal_model_is_refused(folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is made of raw data, and a mean of it would be, too."""
    card, vector = read_model(folders[0])
    personal = tmp_path / "personal.safetensors"
    personal.write_bytes(saved(vector, card.model_copy(update={"note": "Not to be handed on."})))
    assert "found a personal one; Not to be handed on." in refused(capsys, tmp_path, personal, folders[1])


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ("1", "expected 2 weights, one a model, found 1"),
        ("0,0", "expected weights of 0 or more, and one above it"),
        ("1,-1", "expected weights of 0 or more, and one above it"),
        ("1,x", "expected numbers with commas between them"),
        ("1,nan", "expected numbers with commas between them"),
    ],
)
def test_weights_that_are_none(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], weights: str, said: str
) -> None:
    assert said in refused(capsys, tmp_path, *folders[:2], f"--weights={weights}")


def test_one_model_or_one_twice_is_no_average(
    folders: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "expected two models or more, found 1" in refused(capsys, tmp_path, folders[0])
    assert "is named 2 times" in refused(capsys, tmp_path, folders[0], folders[0])
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    assert main(["average", *map(str, folders), "--out", str(tmp_path / "there")]) == 2
    assert "expected a new folder for the model" in capsys.readouterr().err
