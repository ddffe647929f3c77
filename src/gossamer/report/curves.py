"""Curves of a run's figures over time, updates and bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair
from gossamer.report.look import TICKS, dash_of_each
from gossamer.report.records import RunRecord
from gossamer.report.series import AXES, Series, series_of

ACROSS = "across"
"""Parameter of a chart: name of the axis that it is drawn over. The page has one choice for all of them."""
_LETTER, _SYMBOL, _FEW = 7, 40, 30  # pixels of a letter and of a legend's symbol; points that are drawn each


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
    format : str
        Of the axis' numbers, in d3's words.
    """

    column: str
    title: str
    unit: str
    shown: Shown
    format: str = ""

    def say(self, value: float) -> str:
        """Return a value in words."""
        return f"{100 * value:.3g} %" if self.format else f"{value:.3g}"


_SHARE = ("correct test examples", Shown.PRIVATE, "%")

CURVES = (
    Curve("mean_model_test_accuracy", "Accuracy of the mean model", *_SHARE),
    Curve("worst_node_test_accuracy", "Accuracy of the worst node", *_SHARE),
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


def axes_of(figures: Sequence[Figure]) -> list[str]:
    """Return the names of the axes that ``figures`` can be drawn over, in order."""
    known = {row.get("axis") for figure in figures for row in figure.rows}
    return [name for name in AXES.values() if name in known]


def _figure(curve: Curve, found: Mapping[str, Sequence[Series]]) -> Figure:
    alt = altair()
    rows = [row for axis, series in found.items() for one in series for row in one.rows(AXES[axis])]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    base = alt.Chart(alt.NamedData("rows")).transform_filter(f"datum.axis === {ACROSS}")
    longest = max(len(one.at) for series in found.values() for one in series)
    zero = longest == 1  # a lone value needs something to be seen against
    shared = {"x": _across(zero), **_told_apart(settings)}
    value = alt.Y(
        "value:Q", title=curve.unit, scale=alt.Scale(zero=zero), axis=alt.Axis(format=curve.format or alt.Undefined)
    )
    tooltip = [
        alt.Tooltip("setting:N", title="run"),
        alt.Tooltip("at:Q", title="at", format=",.6~g"),
        alt.Tooltip("value:Q", title=curve.unit, format=".1%" if curve.format else ".4~g"),
    ]
    few = longest <= _FEW
    points = base.mark_circle(size=40 if few else 150, opacity=1 if few else 0)
    layers = [
        base.mark_line(interpolate="step-after").encode(y=value, **shared),
        points.encode(x=shared["x"], y=value, color=shared["color"], tooltip=tooltip),
    ]
    if any("low" in row for row in rows):
        band = base.mark_area(interpolate="step-after", opacity=0.2)
        layers.insert(
            0, band.encode(x=shared["x"], y=alt.Y("low:Q", title=curve.unit), y2="high:Q", color=shared["color"])
        )
    axis = alt.param(name=ACROSS, value=next(AXES[name] for name, series in found.items() if series))
    chart = alt.layer(*layers).add_params(axis).properties(width="container", height=260)
    # Altair would look at each row, and knows only titles that stay as they are.
    spec = _with_axis_titles({**chart.to_dict(), "data": {"name": "rows", "values": rows}})
    return Figure(curve.column.replace("_", "-"), curve.title, _words(curve, found), curve.shown, spec, rows)


def _across(zero: bool) -> Any:
    """The axis, which ends where the runs do."""
    alt = altair()
    return alt.X(
        "at:Q",
        title=ACROSS,
        scale=alt.Scale(nice=False, zero=zero),
        axis=alt.Axis(labelFlush=True, tickCount=alt.ExprRef(TICKS)),
    )


def _with_axis_titles(spec: dict[str, Any]) -> dict[str, Any]:
    """Let the title of each axis across follow the choice."""
    for layer in spec["layer"]:
        layer["encoding"]["x"]["title"] = {"signal": ACROSS}
    return spec


def _told_apart(settings: Sequence[str]) -> dict[str, Any]:
    """Colour and dash of each setting, in the order in which the runs were given, with one legend."""
    alt = altair()
    need = min(400, _SYMBOL + _LETTER * max(map(len, settings)))
    legend = None
    if len(settings) > 1:
        legend = alt.Legend(
            orient="bottom",
            columns=alt.ExprRef(f"max(1, floor(width / {need}))"),
            labelLimit=alt.ExprRef(f"min({need}, width) - {_SYMBOL}"),
            symbolOpacity=1,
            symbolType="stroke",
            symbolSize=400,
        )
    return {
        "color": alt.Color("setting:N", title="run", sort=None, scale=alt.Scale(domain=settings), legend=legend),
        "strokeDash": alt.StrokeDash(
            "setting:N", title="run", scale=alt.Scale(domain=settings, range=dash_of_each(len(settings))), legend=legend
        ),
    }


def _words(curve: Curve, found: Mapping[str, Sequence[Series]]) -> str:
    """First and last values, for whoever cannot see the chart."""
    axis, series = next((AXES[axis], series) for axis, series in found.items() if series)
    said = [_said(curve, one, axis) for one in series[:_SAID]]
    rest = [f"and {len(series) - _SAID} more"] if len(series) > _SAID else []
    return f"{curve.title} ({curve.unit}). {'; '.join([*said, *rest])}."


def _said(curve: Curve, one: Series, axis: str) -> str:
    begins = f"{curve.say(one.middle[0])} at {one.at[0]:.6g} and " if len(one.at) > 1 else ""
    ends = f"{curve.say(one.middle[-1])} at {one.at[-1]:.6g} {axis}"
    between = f" (from {curve.say(one.low[-1])} to {curve.say(one.high[-1])} over {one.runs} seeds)"
    return f"{one.setting}: {begins}{ends}{between if one.runs > 1 else ''}"


_SAID = 6
