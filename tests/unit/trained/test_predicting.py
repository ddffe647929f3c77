"""Predictions and tests of models, from files and from memory, against sums done by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.reference import wards

import gossamer as gs
from gossamer.data.columns import Column
from gossamer.data.declaration import Declaration
from gossamer.errors import CallerError, DataError, RunWarning
from gossamer.objectives.linear.model import LinearModel
from gossamer.trained.card import Card
from gossamer.trained.model import Model

COLUMNS = {name: Column.model_validate(said) for name, said in wards.COLUMNS.items()}
ROW = {"ward_type": "", "stay": "", "smoker": "YES", "sex": "male", "income": "36000", "age": "75"}
FEATURES = [0.5, 0.5, 0, 1, 1, 5 / 30 - 1, 0, 1, 0]
"""By hand: 75 of [0, 100] is (75 - 50) / 50; 36,000 is half a deviation above; an empty stay is 5 of [0, 60]."""
WEIGHT = np.array([0.5, -1.25, 2, -0.75, 1.5, 0.25, 3, -2, 1], np.float32)
BIAS = 0.125
SCORE = sum(w * x for w, x in zip(WEIGHT.tolist(), FEATURES)) + BIAS


def model(loss: str = "logistic", **more: Any) -> Model:
    """A linear model with known weights; of a softmax the second class has them, and the first has zeros."""
    classes = None if loss == "squared" else (("no",), ("yes",))
    task = "regression" if classes is None else "classification"
    told = {"name": "wards", "task": task, "format": "csv", "shape": (9,), "layout": "dense", "target": "ill"}
    declared = {"columns": COLUMNS, "declared": True, "features": tuple(wards.INPUTS), "classes": classes}
    objective = LinearModel(loss, 9, None if classes is None else 2)
    rows = [WEIGHT] if objective.outputs == 1 else [np.zeros(9), WEIGHT]
    bias = [BIAS] if objective.outputs == 1 else [0, BIAS]
    card = Card(
        objective={"name": loss, "loss": loss},
        parts=[{"name": part.name, "shape": part.shape} for part in objective.parts],
        data=Declaration(**{**told, **declared, **more}),
    )
    return Model(card, objective, np.concatenate([*rows, bias]).astype(np.float32))


def test_a_row_is_read_scaled_and_scored_as_by_hand() -> None:
    found = model().predict([ROW])
    assert found.scores[0, 0] == pytest.approx(SCORE, abs=1e-6)
    assert found.probabilities is not None
    assert found.probabilities[0].tolist() == pytest.approx([1 / (1 + math.exp(SCORE)), 1 / (1 + math.exp(-SCORE))])
    assert found.rows() == [
        {"row": 1, "prediction": "no", "probabilities": dict(zip(("no", "yes"), found.probabilities[0].tolist()))}
    ]


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
def test_other_losses(loss: str) -> None:
    found = model(loss).predict([ROW])
    if loss == "squared":
        assert found.probabilities is None
        assert found[0] == pytest.approx(SCORE, abs=1e-6)
        assert found.rows() == [{"row": 1, "prediction": found[0]}]
    else:
        assert list(found) == ["no"]
        assert found.scores[0, -1] == pytest.approx(SCORE, abs=1e-6)
    if loss == "softmax":
        assert found.probabilities is not None
        assert found.probabilities[0, 1] == pytest.approx(1 / (1 + math.exp(-SCORE)))
    if loss == "hinge":
        assert found.probabilities is None
        assert found.rows()[0]["scores"] == found.scores[0].tolist()


@pytest.mark.filterwarnings("ignore:values outside")
def test_all_kinds_of_rows_say_the_same(tmp_path: Path) -> None:
    table, of = wards.rows(40), model()
    path = wards.write(tmp_path / "wards.csv", table)
    right = of.predict(path)
    assert len(right) == 40
    names = list(wards.COLUMNS)
    alike: list[Any] = [
        str(path),
        wards.write(tmp_path / "no-target.csv", table, without=("ill", "cost")),
        wards.write(tmp_path / "empty-target.csv", [{**row, "ill": ""} for row in table]),
        table,
        [[row[name] for name in names] for row in table],
        [{**row, "smoker": row["smoker"] in ("yes", "TRUE"), "age": float(row["age"])} for row in table],
    ]
    for rows in alike:
        np.testing.assert_array_equal(of.predict(rows).scores, right.scores)


def test_parquet_and_frames(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.Table.from_pylist([ROW, {**ROW, "stay": "30", "sex": "female"}]), tmp_path / "w.parquet")
    found = model().predict(tmp_path / "w.parquet").scores[:, 0]
    assert found.tolist() == pytest.approx([SCORE, SCORE + 0.25 * (0 - FEATURES[5]) + 2 + 0.75], abs=1e-6)

    class Frame:
        columns = tuple(ROW)

        def to_dict(self, orient: str) -> list[dict[str, Any]]:
            assert orient == "records"
            return [{**ROW, "stay": float("nan"), "age": 75.0}]

    assert model().predict(Frame()).scores[0, 0] == pytest.approx(SCORE, abs=1e-6)


def test_values_outside_of_a_range_are_taken_for_its_end_and_counted() -> None:
    rows = [{**ROW, "age": "100"}, {**ROW, "age": "300"}, {**ROW, "age": "-1", "stay": "61"}]
    with pytest.warns(
        RunWarning, match=r"^values outside .* in so many of 3 rows: age \(2\), stay \(1\); a model"
    ) as said:
        found = model().predict(rows)
    assert len(said) == 1
    assert found.clipped == {"age": 2, "stay": 1}
    assert found.scores[0] == found.scores[1]


@pytest.mark.filterwarnings("error")
def test_an_evaluation_counts_what_is_right() -> None:
    table = [{**ROW, "ill": "no"}, {**ROW, "ill": "yes"}, {**ROW, "ill": "no", "sex": "female", "age": "100"}]
    scores = [SCORE, SCORE, SCORE + 2.75 + 0.25]
    losses = [math.log1p(math.exp(scores[0])), math.log1p(math.exp(-scores[1])), math.log1p(math.exp(scores[2]))]
    found = model().evaluate(table)
    assert SCORE < 0 < scores[2]
    assert (found["rows"], found["loss"]) == (3, pytest.approx(np.mean(losses), abs=1e-6))
    expected = {
        "accuracy": (1 / 3, 2 / 3),
        "balanced_accuracy": ((1 / 2 + 0) / 2, 1 / 2),
        "sensitivity": (0, 0),
        "auroc": ((1 / 2 + 0) / 2, 1 / 2),  # of the two who are not ill one has the same score, one a higher
    }
    for name, (value, constant) in expected.items():
        assert found["figures"][name]["value"] == pytest.approx(value)
        assert found["figures"][name]["constant"] == pytest.approx(constant)


def test_an_evaluation_of_a_regression() -> None:
    table = [{**ROW, "ill": "1.5"}, {**ROW, "ill": "-2"}]
    errors = np.array([SCORE - 1.5, SCORE + 2])
    found = model("squared").evaluate(table)
    value = {name: one["value"] for name, one in found["figures"].items()}
    assert value["rmse"] == pytest.approx(np.sqrt(np.square(errors).mean()), abs=1e-6)
    assert value["mae"] == pytest.approx(np.abs(errors).mean(), abs=1e-6)
    assert value["r2"] == pytest.approx(1 - np.square(errors).sum() / (2 * 1.75**2), abs=1e-6)
    assert found["loss"] == pytest.approx(np.square(errors).mean() / 2, abs=1e-6)
    assert model("squared").evaluate([{**ROW, "ill": "1"}])["figures"]["r2"]["value"] is None


def test_an_evaluation_by_groups_at_a_threshold_and_by_cost() -> None:
    table = [
        {
            **ROW,
            "ill": "yes" if i % 3 else "no",
            "sex": "female" if i % 2 else "male",
            "age": str(i),
            "ward": f"{i % 2}",
        }
        for i in range(60)
    ]
    with pytest.warns(RunWarning, match="no better than saying the same"):
        found = model().evaluate(table, by=["sex", "ward"], threshold=0.25, cost={"false_negative": 3})
    assert found["threshold"] == 0.25
    assert {name: one["rows"] for name, one in found["groups"]["sex"].items()} == {"female": 30, "male": 30}
    assert [*found["groups"]["ward"]] == ["0", "1"]  # a column that is no feature
    assert found["groups"]["sex"]["male"]["threshold"] == 0.25
    assert found["cost"]["false_negative"] == 3
    with pytest.warns(RunWarning, match="no better than saying the same"):
        cheapest = model().evaluate(table, cost={"false_negative": 3})
    assert cheapest["threshold"] == cheapest["cost"]["threshold"]
    with pytest.raises(DataError, match="no column 'region'; its columns are"):
        model().evaluate(table, by="region")
    with pytest.raises(CallerError, match=r"needs probabilities of two classes, found a model of real targets"):
        model("squared").evaluate([{**ROW, "ill": "1"}], threshold=0.5)


def test_an_evaluation_resamples_persons_where_rows_name_them() -> None:
    known = model()
    known.card = known.card.model_copy(update={"data": known.card.data.model_copy(update={"person": "who"})})
    table = [{**ROW, "ill": "yes" if i % 2 else "no", "age": str(i), "who": str(i // 4)} for i in range(20)]
    assert known.evaluate(table)["persons"] == 5
    assert known.evaluate([{name: row[name] for name in row if name != "who"} for row in table])["persons"] is None
    apart = [{name: row[name] for name in row if name != "ill"} for row in table]
    assert known.evaluate(apart, [row["ill"] for row in table])["persons"] == 5
    table[7]["who"] = ""
    with pytest.raises(DataError, match="row 8 of 20: 'who' names persons, and is empty; fill it in"):
        known.evaluate(table)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"threshold": 2}, "threshold: expected one from 0 to 1, found 2; correct it"),
        ({"threshold": math.nan}, "threshold: expected one from 0 to 1, found nan; correct it"),
        ({"threshold": "x"}, "threshold: expected one from 0 to 1, found 'x'; correct it"),
        ({"cost": {"false_negative": "x"}}, "cost: expected numbers above 0, found 'x'; correct it"),
        ({"least": 0.5}, "least must be a whole number > 0, found 0.5"),
    ],
)
def test_what_cannot_be_asked_of_an_evaluation_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError) as refused:
        model().evaluate([{**ROW, "ill": "yes"}, {**ROW, "ill": "no"}], **wrong)
    assert str(refused.value) == said


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in ROW.items() if key != name}


BAD: dict[str, tuple[Any, str]] = {
    "a column is missing": ([without("income")], r"no column 'income'; its columns are"),
    "another category": (
        [ROW, {**ROW, "sex": "divers"}],
        r"row 2, column 'sex': expected one of female, male, found",
    ),
    "no number": ([{**ROW, "age": "old"}], r"row 1, column 'age': expected a number, found 'old'"),
    "no filling": ([{**ROW, "age": ""}], r"row 1, column 'age': the cell is empty"),
    "no truth": ([{**ROW, "smoker": "maybe"}], r"column 'smoker': expected true or false"),
    "infinite": ([{**ROW, "income": "inf"}], r"column 'income': expected a finite number"),
    "no rows": ([], "expected rows, found none"),
    "too few cells": ([["75", "36000"]], r"row 1: expected a mapping of columns to cells, or 6 cells .* found 2 cells"),
    "no cells": ([75], r"row 1: .* found int"),
    "a number": (7, "expected a file, rows by the names of columns"),
    "nothing": (None, "expected a file, rows by the names of columns"),
    "uneven": ([ROW, without("age")], "row 2: expected the columns of the first row, found a difference in 'age'"),
    "no file": ("nowhere.csv", r"there is no file nowhere\.csv"),
}


@pytest.mark.parametrize("kind", BAD)
def test_rows_that_do_not_fit_are_named(kind: str) -> None:
    rows, words = BAD[kind]
    with pytest.raises(DataError, match=words) as refused:
        model().predict(rows)
    assert "\n" not in str(refused.value)


def test_an_evaluation_needs_known_targets() -> None:
    with pytest.raises(DataError, match="no column 'ill'"):
        model().evaluate([ROW])
    with pytest.raises(DataError, match=r"^row 1 has the label maybe, which is none of the 2 classes no, yes"):
        model().evaluate([{**ROW, "ill": "maybe"}])


def flat(**more: Any) -> Model:
    """A model of two numbers that have no names."""
    objective = LinearModel("squared", 2, None)
    told = {"name": "flat", "task": "regression", "format": "npz", "shape": (2,), "layout": "dense", "divisor": 10.0}
    card = Card(
        objective={"name": "squared", "loss": "squared"},
        parts=[{"name": "weight", "shape": (1, 2)}, {"name": "bias", "shape": (1,)}],
        data=Declaration(**{**told, **more}),
    )
    return Model(card, objective, np.array([2, -1, 0.5], np.float32))


def test_numbers_without_names() -> None:
    assert flat().predict([[10, 20], [5, 0]]).values.tolist() == pytest.approx([0.5, 1.5])
    assert flat(normalise="unit_norm").predict([[30, 40]]).values.tolist() == pytest.approx([2 * 0.6 - 0.8 + 0.5])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[1, 2, 3]], "expected rows of 2 features"),
        ([1, 2], r"expected rows \[n, \.\.\.\] of numbers \[2\], found an array \[2\]"),
        ([["a", "b"]], "found cells that are no numbers"),
        ([[1], [1, 2]], "found cells that are no numbers, or rows of several lengths"),
        ([[1, math.nan]], r"row 1, feature 2: expected a finite number"),
        ([{"a": 1}], "found cells that are no numbers"),
        (np.zeros((0, 2)), r"found an array \[0, 2\]"),
    ],
)
def test_numbers_that_do_not_fit(rows: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        flat().predict(rows)


def test_a_table_does_not_fit_a_model_without_columns(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match="this model reads rows of 2 features without names"):
        flat().predict(tmp_path / "rows.csv")


def test_a_single_column_is_enough_without_a_target(tmp_path: Path) -> None:
    """Also below a header of one name, in which no separator can be."""
    (tmp_path / "train.csv").write_text("x,y\n" + "".join(f"{x / 10},{x % 2}\n" for x in range(40)))
    (tmp_path / "new.csv").write_text("x\n0.5\n1\n")
    spec = gs.Experiment(
        dataset={"name": "own", "path": tmp_path / "train.csv", "target": "y", "columns": {"x": [0, 4]}},
        algorithm=gs.Gossip(nodes=2, batch_size=8),
        privacy="none",
        stop={"updates": 2},
    )
    assert len(gs.run(spec).predict(tmp_path / "new.csv")) == 2


def test_an_archive_needs_no_targets(tmp_path: Path) -> None:
    np.savez(tmp_path / "new.npz", features=np.array([[10.0, 20], [5, 0]]))
    assert flat().predict(tmp_path / "new.npz").values.tolist() == pytest.approx([0.5, 1.5])
    with pytest.raises(DataError, match="expected arrays train_features and train_targets"):
        flat().evaluate(tmp_path / "new.npz")
    np.savez(tmp_path / "both.npz", features=np.array([[10.0, 20], [5, 0]]), targets=[0.5, 1])
    assert flat().evaluate(tmp_path / "both.npz")["figures"]["rmse"]["value"] == pytest.approx(
        0.5 / math.sqrt(2), abs=1e-6
    )
