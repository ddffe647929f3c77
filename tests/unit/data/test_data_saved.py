"""Folders that ``save_to_disk`` of Hugging Face's package datasets wrote: tables, pictures and arrays of numbers."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import gossamer as gs
from gossamer.cli.main import main
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.deployment.owner.fingerprints import content_of, examples_at
from gossamer.errors import DataError

RNG = np.random.default_rng(4)
ROWS = 12
LABELS = [row % 3 for row in range(ROWS)]
TOKENS = RNG.integers(0, 50, (ROWS, 5))
PIXELS = RNG.integers(0, 256, (ROWS, 6, 4, 3), np.uint8)
AGES = [20 + 7 * (row % 5) for row in range(ROWS)]


def saved(folder: Path, columns: Mapping[str, Any], several: bool = True) -> Path:
    """A folder as the package writes it: Arrow's streams in batches of rows, here of 4, and which files these are."""
    folder.mkdir(parents=True)
    table = pa.table(dict(columns))
    parts = [table.slice(0, 7), table.slice(7)] if several else [table]
    names = [f"data-{part:05}-of-{len(parts):05}.arrow" for part in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(part, max_chunksize=4)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "1", "_format_type": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def encoded(pixels: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """A picture as the package keeps it."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return {"bytes": file.getvalue(), "path": None}


COLUMNS = {
    "table": {"age": AGES, "sex": ["f", "m"] * (ROWS // 2), "label": LABELS},
    "tokens": {"text": ["a"] * ROWS, "tokens": TOKENS.tolist(), "mask": [[1] * (1 + k % 2) for k in LABELS]},
    "pictures": {"image": [encoded(each) for each in PIXELS]},
}
COLUMNS["tokens"]["label"] = COLUMNS["pictures"]["label"] = LABELS
WANTED = {"tokens": TOKENS, "pictures": PIXELS.transpose(0, 3, 1, 2)}


def settings(path: Path, **others: Any) -> DatasetSettings:
    return DatasetSettings(**({"name": "mine", "path": path, "test_path": path, "labels": [0, 1, 2]} | others))


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    return {name: saved(tmp_path / name, columns) for name, columns in COLUMNS.items()}


@pytest.mark.parametrize("kind", WANTED)
def test_arrays_and_pictures_are_features_in_their_own_shape(kind: str, folders: Mapping[str, Path]) -> None:
    """The only column beside the target, once the others are ignored; those are not looked at, ragged or not."""
    ignore = ["text", "mask"] if kind == "tokens" else []
    data = load_dataset(settings(folders[kind], target="label", ignore=ignore))
    assert np.array_equal(data.train.features, WANTED[kind].astype(np.float32))
    assert data.train.targets.tolist() == LABELS


def test_columns_of_numbers_and_texts_are_a_table(folders: Mapping[str, Path]) -> None:
    columns = {"age": [0, 100], "sex": ["f", "m"]}
    data = load_dataset(settings(folders["table"], target="label", columns=columns))
    ages = (np.array(AGES) - 50) / 50
    assert np.allclose(data.train.features[:, 0], ages, atol=1e-6)
    assert data.train.targets.tolist() == LABELS
    assert data.declaration is not None
    assert data.declaration.features[0] == "age"


def test_rows_without_a_label_are_left_out_of_arrays(tmp_path: Path) -> None:
    path = saved(tmp_path / "some", {"tokens": TOKENS.tolist(), "label": [None, *LABELS[1:]]})
    with pytest.warns(gs.RunWarning, match="1 row without a target is left out"):
        data = load_dataset(settings(path, drop_unlabelled=True))
    assert np.array_equal(data.train.features, TOKENS[1:].astype(np.float32))


def test_the_one_split_of_a_dictionary_is_taken_and_of_several_one_is_asked_for(tmp_path: Path) -> None:
    for split in ("train", "test"):
        saved(tmp_path / "both" / split, COLUMNS["table"])
    listed = tmp_path / "both" / "dataset_dict.json"
    listed.write_text('{"splits": ["train", "test"]}')
    with pytest.raises(
        DataError, match=r"expected one split, found train, test; give the folder of one, such as path: "
    ):
        load_dataset(settings(tmp_path / "both", target="label", ignore=["sex"]))
    listed.write_text('{"splits": ["train"]}')
    assert len(load_dataset(settings(tmp_path / "both", target="label", ignore=["sex"])).train) == ROWS


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        ("tokens", {"target": "labels"}, "no column 'labels'; its columns are text, tokens, mask, label"),
        (
            "tokens",
            {"target": "label"},
            "column 'tokens': expected numbers or texts, found arrays, which may only be all the features",
        ),
        ("tokens", {"target": "label", "features": ["tokens"]}, "and none as a feature"),
        ("tokens", {"target": "label", "ignore": ["text"]}, "arrays, which may only be all the features"),
        (
            "tokens",
            {"target": "label", "ignore": ["text", "tokens"]},
            "column 'mask': expected arrays, or pictures with their bytes, of one shape in all rows .*; pad, cut",
        ),
        (
            "tokens",
            {"target": "mask", "ignore": ["text", "label"]},
            "column 'mask': expected numbers or texts, found arrays",
        ),
        ("table", {"target": "label"}, "expected a number, found 'f'"),
    ],
)
def test_what_is_not_there_or_no_feature_is_said_in_a_line(
    kind: str, given: Mapping[str, Any], said: str, folders: Mapping[str, Path]
) -> None:
    with pytest.raises(DataError, match=said):
        load_dataset(settings(folders[kind], **given))


def test_two_files_with_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    """Cells are taken by their place, so ages would be weights from the second file on."""
    folder = saved(tmp_path / "first", {"age": AGES, "weight": AGES, "label": LABELS})
    other = saved(tmp_path / "second", {"weight": AGES, "age": AGES, "label": LABELS})
    name = "data-00001-of-00002.arrow"
    (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(DataError, match="expected files with the same columns in the same order"):
        load_dataset(settings(folder, target="label"))


def test_rows_that_an_old_version_of_the_package_kept_though_they_were_left_out_are_not_read(
    folders: Mapping[str, Path],
) -> None:
    """Before it wrote chosen rows alone, it wrote all of them, and a file of those that were chosen beside."""
    listed = folders["table"] / "state.json"
    state = json.loads(listed.read_text()) | {"_indices_data_files": [{"filename": "indices.arrow"}]}
    listed.write_text(json.dumps(state))
    with pytest.raises(DataError, match="expected all rows of its files, found a choice of them; save flatten_indices"):
        load_dataset(settings(folders["table"], target="label", ignore=["sex"]))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("[" * 100_000, id="deep"),
        "{",
        "{}",
        '{"_data_files": []}',
        '{"_data_files": [{"filename": "none.arrow"}]}',
    ],
)
def test_damaged_folders_are_refused_in_a_line(damage: str, folders: Mapping[str, Path]) -> None:
    (folders["table"] / "state.json").write_text(damage)
    with pytest.raises(DataError, match="expected a folder that datasets saved"):
        load_dataset(settings(folders["table"], target="label"))


def test_what_reads_folders_may_be_missing(folders: Mapping[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        DataError, match="a folder that datasets saved needs the optional package pyarrow, which is not"
    ):
        load_dataset(settings(folders["table"], target="label"))


def test_an_owner_notices_that_a_row_of_a_folder_changed(tmp_path: Path, folders: Mapping[str, Path]) -> None:
    key = bytes(32)
    first = content_of(examples_at(folders["tokens"]), key)
    again = saved(tmp_path / "again", COLUMNS["tokens"], several=False)
    assert content_of(examples_at(again), key) == first
    other = saved(tmp_path / "other", {**COLUMNS["tokens"], "tokens": [[0] * 5, *TOKENS[1:].tolist()]})
    assert content_of(examples_at(other), key) != first


def test_a_first_spec_is_made_of_a_table_and_run(
    tmp_path: Path, folders: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    spec, rows = tmp_path / "spec.yaml", 40 * COLUMNS["table"]["label"]
    table = saved(tmp_path / "more", {"age": 40 * AGES, "sex": 20 * ROWS * ["f", "m"], "label": rows})
    declared = ["--labels", "0,1,2", "--range", "age=0..100", "--categories", "sex=f,m", "--rows-per-person", "1"]
    given = ["--target", "label", *declared, "--set", "objective.l2=0.1"]
    assert main(["new", "mine", "--data", str(table), "--out", str(spec), *given]) == 0, capsys.readouterr().err
    assert main(["check", str(spec)]) == 0
    assert main(["new", "other", "--data", str(folders["tokens"]), "--out", str(tmp_path / "b")]) == 2
    assert "found a folder (format datasets), whose features have no names to declare: write" in capsys.readouterr().err


@pytest.mark.parametrize("kind", WANTED)
def test_a_model_of_arrays_reads_folders_and_parquet_files_with_other_columns_or_without_labels(
    kind: str, tmp_path: Path, folders: Mapping[str, Path]
) -> None:
    """Columns that the spec had to ignore are passed over, and a label that is not known yet is not asked for."""
    column = {"tokens": "tokens", "pictures": "image"}[kind]
    table = pa.table({"words": ["a"] * ROWS, column: pa.array(COLUMNS[kind][column])})
    pq.write_table(table, tmp_path / "rows.parquet")
    ignore = ["text", "mask"] if kind == "tokens" else []
    data = settings(folders[kind], target="label", ignore=ignore, scale="none").model_dump(exclude_unset=True)
    run = {
        "algorithm": {"name": "gossip", "nodes": 2, "batch_size": 2},
        "privacy": {"mechanism": "none"},
        "stop": {"updates": 2},
    }
    gs.run(gs.Experiment.model_validate({"dataset": data, **run}), tmp_path / "out")
    model = gs.load_model(tmp_path / "out")
    unlabelled = saved(tmp_path / "new", {column: COLUMNS[kind][column]})
    wanted = model.predict(WANTED[kind].astype(np.float32)).scores
    for place in (unlabelled, tmp_path / "rows.parquet"):
        assert np.array_equal(model.predict(place).scores, wanted)


def test_the_package_itself_writes_such_folders(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c"])})
    whole = datasets.Dataset.from_dict({"image": [*map(Image.fromarray, PIXELS)], "label": LABELS}, features=features)
    datasets.DatasetDict(train=whole.select(range(3, ROWS))).save_to_disk(tmp_path / "saved")
    data = load_dataset(settings(tmp_path / "saved"))
    assert np.array_equal(data.train.features, WANTED["pictures"][3:].astype(np.float32))
    assert data.train.targets.tolist() == LABELS[3:]
