"""Advice on features that nobody scales, by what settings say of them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

import gossamer as gs
from gossamer.data.datasets import unscaled
from gossamer.data.settings import DatasetSettings

LARGE = {"range": [0, 100000]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing says how large numbers in its columns are"),
        ({"features": ("a", "b")}, "nothing says how large numbers in its columns are"),
        ({"scale": "none"}, None),
        ({"scale": {"range": [0, 255]}}, None),
        ({"divide_by": 1.0}, None),
        ({"normalise": "unit_norm"}, None),
        ({"columns": {"a": [0, 1], "b": LARGE}}, None),
        ({"columns": {"a": "boolean", "b": ["x", "z"]}}, None),
        ({"columns": {"a": [0, 1], "b": "number", "c": "number"}}, "how large numbers in b, c are"),
        ({"columns": {"a": [0, 1], "b": "number"}, "scale": "none"}, None),
        (
            {"columns": {"a": [0, 1], "b": LARGE}, "scale": "none"},
            "in b may be 1e[+]05 times as large as those in a",
        ),
        ({"columns": {"a": [-10, 1], "b": [0, 100]}, "scale": "none"}, None),
        ({"columns": {"a": [-10, 1], "b": [0, 101]}, "scale": "none"}, "in b may be 10.1 times"),
        ({"columns": {"a": "boolean", "b": {"mean": 50, "deviation": 5}}, "scale": "none"}, "b may be 55 times"),
        ({"columns": {"a": [0, 1], "b": LARGE}, "scale": "none", "normalise": "unit_norm"}, None),
    ],
)
def test_what_nobody_scales_is_said(options, message: str | None) -> None:
    (found,) = unscaled(DatasetSettings(name="mine", target="y", **options), "csv") or [None]
    assert (found is None) == (message is None)
    assert message is None or re.search(message, found)


def test_other_formats_say_themselves_what_they_hold() -> None:
    assert unscaled(DatasetSettings(name="digits"), "npz") == []
    assert unscaled(DatasetSettings(name="mine"), "libsvm") == []


def _run(folder: Path, rows: list[str], **dataset) -> gs.Result:
    path = folder / "mine.csv"
    path.write_text("\n".join(["a,b,y", *rows]))
    experiment = gs.Experiment(
        dataset={"name": "mine", "path": path, "target": "y", **dataset},
        objective="logistic",
        algorithm={"name": "gossip", "nodes": 2, "topology": "complete", "batch_size": 5, "updates_per_node": 2},
        privacy="none",
    )
    return gs.run(experiment)


ROWS = [f"{row % 7},{row * 1000},{row % 2}" for row in range(60)]


def test_a_run_warns_once(tmp_path: Path) -> None:
    with pytest.warns(gs.RunWarning, match=r"declare dataset\.columns .* or say dataset\.scale: none") as found:
        _run(tmp_path, ROWS)
    assert len([one for one in found if "columns" in str(one.message)]) == 1


def test_a_run_that_is_told_says_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    _run(tmp_path, ROWS, columns={"a": [0, 7], "b": [0, 60000]})
    assert not [one for one in recwarn if "dataset." in str(one.message)]


def test_rows_of_one_class_are_warned_of(tmp_path: Path) -> None:
    """Every model is right about them."""
    rows = [f"{row % 7},{row * 1000},no" for row in range(60)]
    columns = {"a": [0, 7], "b": [0, 60000]}
    with pytest.warns(gs.RunWarning, match="all 48 training examples are of the class 'no', so there is nothing to"):
        _run(tmp_path, rows, columns=columns, labels=["no", "yes"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _run(tmp_path, [*rows[:-30], *(row.replace("no", "yes") for row in rows[-30:])], columns=columns)


def test_the_warning_does_not_depend_on_values(tmp_path: Path) -> None:
    """Small numbers and large ones are warned of in the same words."""
    said = []
    for rows in (ROWS, [f"{row % 7 / 7},{row % 3 / 3},{row % 2}" for row in range(60)]):
        with pytest.warns(gs.RunWarning) as found:
            _run(tmp_path, rows)
        said.append([str(one.message) for one in found if "dataset." in str(one.message)])
    assert said[0] == said[1] != []
