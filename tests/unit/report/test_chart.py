"""Charts of a run as values."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gossamer.errors import DataError
from gossamer.report.curves import chart

METRICS: dict[str, list[float | None]] = {
    "updates": [0, 5, 9],
    "virtual_seconds": [0.0, 1.0, 2.5],
    "mean_model_test_accuracy": [0.1, 0.5, None],
    "test_accuracy": [0.1, 0.4, 0.6],
    "mean_model_test_loss": [2.3, 1.5, 1.0],
    "recall": [0.0, 0.2, 0.3],
    "never": [None, None, None],
}


def drawn(*names: str, **how: Any) -> list[tuple[str, str, dict[str, list[tuple[float, float]]]]]:
    """Of each panel: titles of its axes, and points by figure."""
    spec = chart(METRICS, names, **how).to_dict()
    found = []
    for panel in spec["vconcat"]:
        points: dict[str, list[tuple[float, float]]] = {}
        for row in panel.get("data", spec.get("data"))["values"]:
            points.setdefault(row["figure"], []).append((row["at"], row["value"]))
        found.append((panel["encoding"]["x"]["title"], panel["encoding"]["y"]["title"], points))
    return found


def test_accuracies_share_a_panel_and_losses_another() -> None:
    assert drawn() == [
        (
            "virtual seconds",
            "accuracy",
            {
                "mean_model_test_accuracy": [(0, 0.1), (1, 0.5)],
                "test_accuracy": [(0, 0.1), (1, 0.4), (2.5, 0.6)],
            },
        ),
        ("virtual seconds", "loss", {"mean_model_test_loss": [(0, 2.3), (1, 1.5), (2.5, 1)]}),
    ]


def test_figures_that_are_asked_for_are_drawn_over_the_axis_that_is() -> None:
    (panel,) = drawn("recall", across="updates")
    assert panel == ("updates", "recall", {"recall": [(0, 0), (5, 0.2), (9, 0.3)]})


@pytest.mark.parametrize(
    ("names", "across", "says"),
    [
        (["acuracy"], "updates", "found 'acuracy'; this run has mean_model_test_accuracy, test_accuracy"),
        (["never"], "updates", "found 'never'"),
        ([], "days", "across: expected one of virtual_seconds, updates, bytes, messages, found 'days'"),
    ],
)
def test_what_cannot_be_drawn_is_said(names: list[str], across: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        chart(METRICS, names, across)


def test_a_run_without_usual_figures_names_those_it_has() -> None:
    with pytest.raises(DataError, match="found none of the usual ones; this run has recall"):
        chart({"virtual_seconds": [0.0], "recall": [0.5]})


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(DataError, match=r'altair, which is not installed: .* -m pip install "altair>='):
        chart(METRICS)
