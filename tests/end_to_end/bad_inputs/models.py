"""Models that were damaged, rows that do not fit a model, and commands for a first spec."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tests.end_to_end.bad_inputs.case import Case, Make, accepted
from tests.end_to_end.bad_inputs.paths import ODD, called
from tests.end_to_end.bad_inputs.tables import ROW, table

PREDICT = "predict wards rows.csv"
NEW_ROWS = "age,sex,smoker,weight\n40,female,yes,80\n"


def _npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _card(change: Callable[[dict[str, Any]], Any]) -> Make:
    """A model whose card says something else."""

    def make(folder: Path) -> None:
        path = folder / "wards" / "model.json"
        said = json.loads(path.read_text())
        change(said)
        path.write_text(json.dumps(said))
        (folder / "wards" / "model.safetensors").touch()

    return make


def _paper(name: str, content: bytes) -> Make:
    def make(folder: Path) -> None:
        (folder / "wards" / name).write_bytes(content)

    return make


def _without(name: str) -> Make:
    return lambda folder: (folder / "wards" / name).unlink()


def _cut(name: str, size: int) -> Make:
    return lambda folder: os.truncate(folder / "wards" / name, size)


ROWS: tuple[tuple[str, str | bytes, str], ...] = (
    ("nothing", "", "rows.csv"),
    ("a header alone", "age,sex,smoker,weight\n", "rows.csv"),
    ("a column too few", "age,sex,smoker\n40,female,yes\n", "weight"),
    ("another name", NEW_ROWS.replace("weight", "mass"), "weight"),
    ("a category that was not declared", NEW_ROWS.replace("female", "other"), "line 2, column 'sex'"),
    ("a text for a number", NEW_ROWS.replace("40", "forty"), "line 2, column 'age'"),
    ("an empty number", NEW_ROWS.replace("40", ""), "line 2, column 'age'"),
    ("a short row", NEW_ROWS + "1,2\n", "line 3"),
    ("bytes", bytes(range(256)), "rows.csv"),
    ("semicolons", NEW_ROWS.replace(",", ";"), "rows.csv"),
)
"""Rows that a model is to predict."""

MODELS: tuple[tuple[str, Make, str], ...] = (
    (
        "a later version",
        _card(lambda said: said.update({next(k for k in said if "version" in k or k == "format"): 99})),
        "99",
    ),
    ("no model", _without("model.safetensors"), "model.safetensors"),
    ("a card that is cut off", _cut("model.json", 40), "model"),
    ("a card that is a list", _paper("model.json", b"[1]"), "model"),
    ("a card of brackets", _paper("model.json", b"[" * 100_000), "model"),
    ("a card of bytes", _paper("model.json", bytes(range(256))), "model"),
    ("a model that is cut off", _cut("model.safetensors", 100), "model.safetensors"),
    ("a model of bytes", _paper("model.safetensors", bytes(range(256)) * 9), "model.safetensors"),
)

NEW = "new wards --data rows.csv --target outcome"
REAL = "new wards --data rows.csv --target weight --regression --drop sex smoker outcome"
DONE = "--range age=0..120 weight=0..200 --categories sex=female,male --boolean smoker --labels no,yes"
FIRST: tuple[tuple[str, str, str], ...] = (
    ("no name", "new", "NAME"),
    ("a path for a name", "new ../wards --data rows.csv", "expected a plain name such as wards, found '../wards'"),
    ("no file", f"new wards --data nowhere.csv --target outcome {DONE}", "nowhere.csv"),
    ("a file that is no table", f"new wards --data spec.yaml --target outcome {DONE}", "spec.yaml"),
    ("no such target", f"new wards --data rows.csv --target died {DONE}", "died"),
    ("no such owner", f"{NEW} --owner hospital {DONE}", "hospital"),
    ("a column that is not declared", f"{NEW} --range age=0..120 --rows-per-person 1", "more is to be declared"),
    ("a range of a column that is not there", f"{NEW} {DONE} --drop height", "height"),
    ("a range that is none", f"{NEW} --range age=young", "--range age: expected the least and the most"),
    ("a range upside down", f"{NEW} {DONE.replace('0..120', '120..0')}", "age"),
    ("a mean without deviation", f"{NEW} --mean age=40", "--mean age: expected a mean and a deviation"),
    ("one label", f"{NEW} {DONE.replace('no,yes', 'no')}", "label"),
    ("labels of a regression", f"{NEW} {DONE} --regression", "regression"),
    ("a regression without a range", f"{REAL} --range age=0..120", "weight has no range (--range weight=LOW..HIGH"),
    ("a target's range upside down", f"{REAL} --range age=0..120 weight=200..50", "--range weight: expected the least"),
    ("a target's range that is none", f"{REAL} --range age=0..120 weight=heavy", "--range weight: expected the least"),
    ("a range of classes", f"{NEW} {DONE} --range outcome=0..1", "outcome"),
    ("epsilon abc", f"{NEW} {DONE} --epsilon abc", "--epsilon: expected a number, above 0, found 'abc'"),
    ("epsilon 0", f"{NEW} {DONE} --epsilon 0", "epsilon"),
    ("delta 1", f"{NEW} {DONE} --delta 1", "delta"),
    ("a spec that is there", f"{NEW} {DONE} --out spec.yaml", "spec.yaml"),
    ("a folder for a spec", f"{NEW} {DONE} --out .", "expected a new file to write, found a folder there"),
    ("a folder that is not there", f"{NEW} {DONE} --out a/b.yaml", "a/b.yaml"),
    ("a name of 300 letters", f"new {'a' * 300} --data rows.csv --target outcome {DONE}", "File name too long"),
)
"""Commands that would write a first spec."""

PICTURE, FEW = np.zeros((3, 64)), np.zeros((3, 5))
ARRAYS: tuple[tuple[str, str, str | bytes, str], ...] = (
    ("of another size", "r.npz", _npz(features=FEW), "rows of shape [1, 8, 8], as the model was trained on"),
    ("without features", "r.npz", _npz(rows=PICTURE), "found rows"),
    ("with NaN", "r.npz", _npz(features=PICTURE * np.nan), "r.npz, row 1, feature 1"),
    ("of texts", "r.npz", _npz(features=np.full((3, 64), "a")), "r.npz: expected rows of numbers"),
    ("that are a table", "r.csv", "a,b\n1,2\n", "reads rows of shape [1, 8, 8] without names"),
    ("of an unknown kind", "r.odd", "1", "r.odd: expected an NPZ archive"),
    ("with too large an index", "r.svm", "1 65:1\n", "expected indices from 1 to 64"),
)
"""Rows for a model of pictures, which have no names of columns."""

CASES: tuple[Case, ...] = (
    *(
        Case(f"predict: rows {name}", "model", f"predict results {file}", says, {file: content}, of="results")
        for name, file, content, says in ARRAYS
    ),
    Case(
        "evaluate: rows without targets",
        "model",
        "evaluate results r.npz",
        "found features",
        {"r.npz": _npz(features=PICTURE)},
        of="results",
    ),
    Case(
        "predict: arrays for the model of a table",
        "model",
        "predict wards r.npz",
        "reads tables (CSV, Parquet) with the columns age, sex, smoker, weight, found npz",
        {"r.npz": _npz(features=FEW)},
        of="wards",
    ),
    *(Case(f"predict: {name}", "model", PREDICT, says, {"rows.csv": rows}, of="wards") for name, rows, says in ROWS),
    *(
        Case(f"predict by {name}", "model", PREDICT, says, {"rows.csv": NEW_ROWS}, make, of="wards")
        for name, make, says in MODELS
    ),
    *(
        Case(
            f"predict for {name}",
            "model",
            "predict wards odd.csv",
            "found a folder that `datasets` did not save" if name == "a folder" else says,
            {},
            called(make, "odd.csv"),
            of="wards",
        )
        for name, make, says in ODD
        if name not in ("a circle of links", "a link to nothing")
    ),
    Case("predict: no results", "model", "predict nowhere rows.csv", "nowhere", {"rows.csv": NEW_ROWS}),
    Case("predict: no rows", "model", "predict wards nowhere.csv", "nowhere.csv", of="wards"),
    Case(
        "predict: into a file that is there",
        "model",
        f"{PREDICT} --out rows.csv",
        "rows.csv",
        {"rows.csv": NEW_ROWS},
        of="wards",
    ),
    Case(
        "predict: into a folder that is not there",
        "model",
        f"{PREDICT} --out a/b.csv",
        "there is no folder a",
        {"rows.csv": NEW_ROWS},
        of="wards",
    ),
    Case("evaluate: no targets", "model", "evaluate wards rows.csv", "outcome", {"rows.csv": NEW_ROWS}, of="wards"),
    Case(
        "evaluate: a label that was not declared",
        "model",
        "evaluate wards rows.csv",
        "dead",
        {"rows.csv": table(ROW.replace(",no", ",dead"))},
        of="wards",
    ),
    Case("export: to nothing", "model", "export wards", "--to", of="wards"),
    Case("export: to an unknown one", "model", "export wards --to keras", "keras", of="wards"),
    Case(
        "export: into a file that is there",
        "model",
        "export wards --to torch --out wards/summary.json",
        "wards/summary.json",
        of="wards",
    ),
    Case("export: no results", "model", "export nowhere --to torch", "nowhere"),
    *(
        Case(f"new: {name}", "new", command, says, {"rows.csv": table(), "spec.yaml": "a: 1\n"})
        for name, command, says in FIRST
    ),
    accepted(
        Case(
            "predict: columns in another order, and one more",
            "model",
            PREDICT,
            "",
            {"rows.csv": "more,sex,age,weight,smoker\n1,male,30,60,no\n"},
            of="wards",
        ),
        "columns go by their names",
    ),
    accepted(
        Case("predict by no card", "model", PREDICT, "", {"rows.csv": NEW_ROWS}, _without("model.json"), of="wards"),
        "the file of the model has all that the card says",
    ),
)
