"""A chart of one run's figures as a value, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from gossamer.errors import DataError, shortened
from gossamer.report.libraries import altair
from gossamer.report.look import COLOURS
from gossamer.report.records import Columns, RunRecord
from gossamer.report.series import MEASURED, series_of

USUAL = (
    "mean_model_test_accuracy",
    "test_accuracy",
    "worst_node_test_accuracy",
    "mean_model_test_loss",
    "test_loss",
)
"""Figures that are drawn unless others are asked for, as far as a run has them."""


def chart(metrics: Columns, names: Sequence[str] = (), across: str = "virtual_seconds") -> Any:
    """Draw figures of a run over time: accuracies in one panel, losses in another, each other figure in its own.

    Parameters
    ----------
    metrics : mapping of str to sequence of float or None
        Figures by name, one for each evaluation.
    names : sequence of str
        Figures to draw; by default those of `USUAL` that the run has.
    across : str
        What they are drawn over: a key of `MEASURED`.

    Returns
    -------
    altair.VConcatChart

    Raises
    ------
    DataError
        If Altair is not installed, or there is no such figure.
    """
    alt = altair()
    if across not in MEASURED:
        raise DataError(f"across: expected one of {', '.join(MEASURED)}, found {shortened(across)}; give one")
    run = RunRecord("run", Path(), {}, metrics)
    found = {name: series_of([run], name, across) for name in names or USUAL}
    missing = [name for name in names if not found[name]]
    if missing or not any(found.values()):
        known = [name for name in metrics if name not in MEASURED and series_of([run], name, across)]
        what = shortened(missing[0]) if missing else "none of the usual ones"
        raise DataError(f"expected figures of the run to draw, found {what}; this run has {', '.join(known)}")
    points = {
        name: [{"figure": name, "at": row["at"], "value": row["value"]} for row in series[0].rows(across)]
        for name, series in found.items()
        if series
    }
    panels = [
        _panel(alt, unit, [row for name in group for row in points[name]], across) for unit, group in _by_unit(points)
    ]
    return alt.vconcat(*panels).resolve_scale(color="independent", strokeDash="independent")


def _by_unit(names: Any) -> list[tuple[str, list[str]]]:
    """Names of figures by what they are measured in; the order of first ones is kept."""
    order = list(dict.fromkeys(map(_unit, names)))
    ordered = sorted(names, key=lambda name: order.index(_unit(name)))
    return [(unit, list(group)) for unit, group in groupby(ordered, _unit)]


def _unit(name: str) -> str:
    return next((unit for unit in ("accuracy", "loss") if name.endswith(f"_{unit}")), name.replace("_", " "))


def _panel(alt: Any, unit: str, rows: list[dict[str, Any]], across: str) -> Any:
    figures = list(dict.fromkeys(row["figure"] for row in rows))
    legend = alt.Legend(orient="bottom", columns=1, labelLimit=400) if len(figures) > 1 else None
    scale = alt.Scale(domain=figures, range=[COLOURS[n % len(COLOURS)] for n in range(len(figures))])
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_line(interpolate="step-after")
        .encode(
            x=alt.X("at:Q", title=MEASURED[across]),
            y=alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False)),
            color=alt.Color("figure:N", title=None, scale=scale, legend=legend),
            strokeDash=alt.StrokeDash("figure:N", title=None, scale=alt.Scale(domain=figures), legend=legend),
            tooltip=["figure:N", alt.Tooltip("at:Q", title=MEASURED[across]), alt.Tooltip("value:Q", title=unit)],
        )
        .properties(width=480, height=200)
    )
