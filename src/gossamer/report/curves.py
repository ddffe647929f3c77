"""Curves of a run's figures over time, updates and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair
from gossamer.report.records import RunRecord
from gossamer.report.series import AXES, Series, series_of


class Curve(NamedTuple):
    """A figure of a run that is drawn over an axis.

    Attributes
    ----------
    column : str
        In ``metrics.jsonl``.
    title : str
        In words.
    unit : str
        Of the values, as the axis is called.
    shown : Shown
        Who may see it.
    logarithmic : bool
        Whether values are drawn by their size.
    """

    column: str
    title: str
    unit: str
    shown: Shown
    logarithmic: bool = False


CURVES = (
    Curve("mean_model_test_accuracy", "Accuracy of the mean model", "share of test examples", Shown.PRIVATE),
    Curve("worst_node_test_accuracy", "Accuracy of the worst node", "share of test examples", Shown.PRIVATE),
    Curve("mean_model_test_loss", "Loss of the mean model", "loss per test example", Shown.PRIVATE),
    Curve("epsilon_so_far", "Epsilon spent", "epsilon", Shown.RELEASED),
    Curve("consensus_distance", "Distance of nodes' models from their mean", "root mean square", Shown.PRIVATE),
)
"""Figures that are drawn, in order; those that no run has are left out."""


def curves(records: Sequence[RunRecord]) -> Iterator[Figure]:
    """Yield a figure for each of `CURVES` that a run has."""
    for curve in CURVES:
        found = {axis: series_of(records, curve.column, axis) for axis in AXES}
        if any(found.values()):
            yield _figure(curve, found)


def _figure(curve: Curve, found: dict[str, list[Series]]) -> Figure:
    alt = altair()
    rows = [row for axis, series in found.items() for one in series for row in one.rows(AXES[axis])]
    chosen = alt.param(
        name="across", value=AXES["virtual_seconds"], bind=alt.binding_select(options=[*AXES.values()], name="Across: ")
    )
    scale = alt.Scale(type="log") if curve.logarithmic else alt.Scale(zero=False)
    across = alt.X("at:Q", title=None)
    colour = alt.Color("setting:N", title="run", legend=alt.Legend(orient="bottom", labelLimit=260, columns=1))
    base = alt.Chart(alt.Data(values=rows)).transform_filter("datum.axis === across")
    tooltip: list[Any] = ["setting:N", "at:Q", alt.Tooltip("value:Q", title=curve.unit)]
    line = base.mark_line(interpolate="step-after").encode(
        x=across, y=alt.Y("value:Q", title=curve.unit, scale=scale), color=colour, tooltip=tooltip
    )
    layers = [line]
    if any("low" in row for row in rows):
        band = base.mark_area(interpolate="step-after", opacity=0.25).encode(
            x=across, y="low:Q", y2="high:Q", color=colour
        )
        layers.insert(0, band)
    chart = alt.layer(*layers).add_params(chosen).properties(width="container", height=260)
    return Figure(curve.column.replace("_", "-"), curve.title, _words(curve, found), curve.shown, chart.to_dict(), rows)


def _words(curve: Curve, found: dict[str, list[Series]]) -> str:
    """First and last values, for whoever cannot see the chart."""
    said = [
        f"{one.setting}: from {one.middle[0]:.3g} to {one.middle[-1]:.3g} at virtual second {one.at[-1]:.6g}"
        + (f" (between {one.low[-1]:.3g} and {one.high[-1]:.3g} over {one.runs} seeds)" if one.runs > 1 else "")
        for one in found["virtual_seconds"]
    ]
    return f"{curve.title}, {curve.unit}. {'; '.join(said[:12])}."
