"""Curves of a run's figures: over time, updates and bytes, of each run; and scores over the epsilon that is proved."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, listed, shortened
from gossamer.objectives.score_words import LABELS
from gossamer.report.drawing import DASHES, TICKS, Figure, Shown, altair, chart_of, told_apart, within_width
from gossamer.report.records import EPOCHS, Columns, RunRecord


class PricePoint(NamedTuple):
    """Scores of runs with one epsilon.

    Attributes
    ----------
    epsilon : float
        Proved of each of them.
    mean, low, high : float
        Mean, least and largest over seeds.
    """

    epsilon: float
    mean: float
    low: float
    high: float


def price_figure(kind: str, delta: float, points: Sequence[PricePoint], others: Mapping[str, float]) -> Figure:
    """Return the figure.

    Parameters
    ----------
    kind : str
        Name of the score, such as accuracy.
    delta : float
        The largest at which the epsilons are proved.
    points : sequence of PricePoint
        Points of the federation with noise, by increasing epsilon.
    others : mapping of str to float
        Mean scores of runs without noise, by what they are called: drawn as lines across.
    """
    alt = altair()
    rows: list[dict[str, Any]] = [{"run": _WITH_NOISE, **point._asdict()} for point in points]
    rows += [{"run": name, "mean": value} for name, value in others.items()]
    colour = alt.Color("run:N", title=None, sort=[_WITH_NOISE, *others], legend=alt.Legend(orient="bottom", columns=1))
    across = alt.X("epsilon:Q", title=f"epsilon proved, at delta {delta:.3g}", scale=alt.Scale(type="log", nice=False))
    upwards = alt.Y("mean:Q", title=f"{kind} on test examples", scale=alt.Scale(zero=False, padding=6))
    chart = chart_of(rows)
    noisy, clean = chart.transform_filter("isValid(datum.epsilon)"), chart.transform_filter("!isValid(datum.epsilon)")
    told = ["epsilon:Q", "mean:Q", "low:Q", "high:Q"]
    layers = [
        noisy.mark_area(opacity=0.25).encode(x=across, y="low:Q", y2="high:Q", color=colour),
        noisy.mark_line(point=True).encode(x=across, y=upwards, color=colour, tooltip=told),
        clean.mark_rule(strokeDash=[6, 3], size=2).encode(y=upwards, color=colour, tooltip=["run:N", "mean:Q"]),
    ]
    title = f"Price of privacy: {kind} against proved epsilon"
    said = ", ".join(f"{point.mean:.3g} at epsilon {point.epsilon:.3g}" for point in points)
    beside = "; ".join(f"{name}: {value:.3g}" for name, value in others.items())
    words = f"{title}. The federation with noise comes to {said}.{beside and f' Beside it, {beside}.'}"
    return Figure.of("price", title, words, Shown.PRIVATE, alt.layer(*layers), rows, 280)


_WITH_NOISE = "federation with noise"


# A figure is known at evaluations and holds until the next. So a run's value at any place of an axis is that of its
# last evaluation up to there, and series of several runs are compared on one grid, with no line between evaluations.

MEASURED: Mapping[str, str] = {
    "virtual_seconds": "virtual seconds",
    "updates": "updates",
    "bytes": "bytes sent",
    "messages": "messages sent",
}
"""Columns of a run's metrics that progress is measured by, and their names."""
AXES: Mapping[str, str] = {**MEASURED, EPOCHS: "epochs"}
"""The same, with what results folders tell besides."""
_POINTS, _ALL = 240, 9_600  # most points of a series, and of all series of a figure
_LEAST = 40


@dataclass(frozen=True)
class CurveSeries:
    """Values of one figure over one axis, for one run or for runs that differ in their seed alone.

    Attributes
    ----------
    setting : str
        Name of the run, or what the runs have in common.
    runs : int
        Number of runs.
    at : ndarray [points]
        Increasing places on the axis.
    middle, low, high : ndarray [points]
        Median, least and largest value of the runs.
    """

    setting: str
    runs: int
    at: FloatArray
    middle: FloatArray
    low: FloatArray
    high: FloatArray

    def rows(self, axis: str) -> list[dict[str, Any]]:
        """Return the points as rows of a table."""
        columns = zip(self.at.tolist(), self.middle.tolist(), self.low.tolist(), self.high.tolist(), strict=True)
        return [
            {"axis": axis, "setting": self.setting, "at": _short(at), "value": _short(value)}
            | ({"low": _short(low), "high": _short(high)} if self.runs > 1 else {})
            for at, value, low, high in columns
        ]


def series_of(records: Sequence[RunRecord], figure: str, axis: str) -> list[CurveSeries]:
    """Return the series of a figure over an axis, one for each setting in which it is known."""
    known: defaultdict[str, list[tuple[FloatArray, FloatArray]]] = defaultdict(list)
    for record in records:
        pairs = zip(record.metrics.get(axis, ()), record.metrics.get(figure, ()), strict=False)
        found = np.array([(at, value) for at, value in pairs if at is not None and value is not None], np.float64)
        if found.size:
            known[record.setting].append((found[:, 0], found[:, 1]))
    most = max(_LEAST, min(_POINTS, _ALL // max(1, len(known) * len(AXES))))
    return [_over_seeds(setting, runs, most) for setting, runs in known.items()]


def _over_seeds(setting: str, runs: Sequence[tuple[FloatArray, FloatArray]], most: int) -> CurveSeries:
    # A run that is over keeps nothing, so the band ends where the first of them does.
    end = min(at[-1] for at, _ in runs)
    everywhere = np.unique(np.concatenate([at[at <= end] for at, _ in runs]))
    grid = everywhere if everywhere.size <= most else np.linspace(everywhere[0], end, most)
    values = np.stack([_held(at, value, grid) for at, value in runs])
    return CurveSeries(setting, len(runs), grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0))


def _held(at: FloatArray, values: FloatArray, grid: FloatArray) -> FloatArray:
    """The last value up to each place of the grid; the first one before it."""
    return values[np.maximum(np.searchsorted(at, grid, side="right") - 1, 0)]


def _short(value: float) -> float:
    """Six digits: more than can be seen, in a third of the bytes."""
    return float(f"{value:.6g}")


USUAL = (
    *("mean_model_test_accuracy", "test_accuracy", "worst_node_test_accuracy"),
    *("mean_model_test_loss", "test_loss"),
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
        Axis that they are drawn over: a key of `MEASURED`.

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
    order = list(dict.fromkeys(map(_unit, points)))
    ordered = groupby(sorted(points, key=lambda name: order.index(_unit(name))), _unit)
    panels = [_panel(unit, [row for name in group for row in points[name]], across) for unit, group in ordered]
    return alt.vconcat(*panels).resolve_scale(color="independent", strokeDash="independent")


def _unit(name: str) -> str:
    """Unit that a figure is measured in."""
    return next((unit for unit in ("accuracy", "loss") if name.endswith(f"_{unit}")), name.replace("_", " "))


def _panel(unit: str, rows: list[dict[str, Any]], across: str) -> Any:
    alt, figures = altair(), list(dict.fromkeys(row["figure"] for row in rows))
    dashes = [DASHES[n % len(DASHES)] for n in range(len(figures))]  # few enough for a dash of each
    x, y = alt.X("at:Q", title=MEASURED[across]), alt.Y("value:Q", title=unit, scale=alt.Scale(zero=False))
    tooltip = ["figure:N", alt.Tooltip("at:Q", title=MEASURED[across]), alt.Tooltip("value:Q", title=unit)]
    apart = told_apart("figure", figures, dashes=dashes, columns=1, labelLimit=400)
    lines = chart_of(rows).mark_line(interpolate="step-after").encode(x=x, y=y, tooltip=tooltip, **apart)
    return lines.properties(width=480, height=200)


ACROSS = "across"
"""Parameter of a chart: name of the axis that it is drawn over. The page has one choice for all of them."""
_FEW = 30  # points that are drawn each


class Curve(NamedTuple):
    """A figure of a run that is drawn over an axis.

    Attributes
    ----------
    column : str
        Column in ``metrics.jsonl``.
    title : str
        Title in words.
    unit : str
        Unit of the values, as the axis is called.
    shown : Shown
        Audience of it.
    format : str
        Format of the axis' numbers, in d3's words.
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
    Curve("test_auroc", "Area under the ROC curve of the mean model", LABELS["auroc"].words, Shown.PRIVATE),
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
            ends = [one["interval"] for record in records if (one := _scored(record, curve)).get("interval")]
            yield _figure(curve, found, [end for pair in ends for end in pair])


def _scored(record: RunRecord, curve: Curve) -> Mapping[str, Any]:
    """The figure of a curve at the end of a run, with its interval, if it has one."""
    name = {"mean_model_test_accuracy": "accuracy", "test_auroc": "auroc"}.get(curve.column, "")
    return dict(record.scores.get("figures", {}).get(name, {}))


def axes_of(figures: Sequence[Figure]) -> list[str]:
    """Return the names of the axes that ``figures`` can be drawn over, in order."""
    known = {row.get("axis") for figure in figures for row in figure.rows}
    return [name for name in AXES.values() if name in known]


def _figure(curve: Curve, found: Mapping[str, Sequence[CurveSeries]], reached: Sequence[float]) -> Figure:
    """Draw a curve; the axis of its values has all that was ``reached`` by intervals at the end, too."""
    alt = altair()
    rows = [row for axis, series in found.items() for one in series for row in one.rows(AXES[axis])]
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    base = alt.Chart(alt.NamedData("rows")).transform_filter(f"datum.axis === {ACROSS}")
    longest = max(len(one.at) for series in found.values() for one in series)
    zero = longest == 1  # a lone value needs something to be seen against
    apart = told_apart("setting", settings, "run", symbolOpacity=1, **within_width(settings))
    ticks = alt.Axis(labelFlush=True, tickCount=alt.ExprRef(TICKS))
    x = alt.X("at:Q", title=ACROSS, scale=alt.Scale(nice=False, zero=zero), axis=ticks)
    values = [value for row in rows for key in ("value", "low", "high") if (value := row.get(key)) is not None]
    # An axis that is narrower than the interval would show differences that test rows do not tell.
    ends = {"domain": [min(*values, *reached), max(*values, *reached)]} if reached else {}
    form = alt.Axis(format=curve.format or alt.Undefined)
    value = alt.Y("value:Q", title=curve.unit, scale=alt.Scale(zero=zero, **ends), axis=form)
    tooltip = [
        alt.Tooltip("setting:N", title="run"),
        alt.Tooltip("at:Q", title="at", format=",.6~g"),
        alt.Tooltip("value:Q", title=curve.unit, format=".1%" if curve.format else ".4~g"),
    ]
    few = longest <= _FEW
    points = base.mark_circle(size=40 if few else 150, opacity=1 if few else 0)
    layers = [
        base.mark_line(interpolate="step-after").encode(x=x, y=value, **apart),
        points.encode(x=x, y=value, color=apart["color"], tooltip=tooltip),
    ]
    if any("low" in row for row in rows):
        band = base.mark_area(interpolate="step-after", opacity=0.2)
        low = alt.Y("low:Q", title=curve.unit)
        layers.insert(0, band.encode(x=x, y=low, y2="high:Q", color=apart["color"]))
    axis = alt.param(name=ACROSS, value=next(AXES[name] for name, series in found.items() if series))
    chart = alt.layer(*layers).add_params(axis).properties(width="container", height=260)
    # Altair would look at each row, and knows only titles that stay as they are: that of each axis follows the choice.
    spec = {**chart.to_dict(), "data": {"name": "rows", "values": rows}}
    for layer in spec["layer"]:
        layer["encoding"]["x"]["title"] = {"signal": ACROSS}
    return Figure(curve.column.replace("_", "-"), curve.title, _words(curve, found), curve.shown, spec, rows)


def _words(curve: Curve, found: Mapping[str, Sequence[CurveSeries]]) -> str:
    """First and last values, for whoever cannot see the chart."""
    axis, series = next((AXES[axis], series) for axis, series in found.items() if series)
    return f"{curve.title} ({curve.unit}). {listed([_said(curve, one, axis) for one in series], _SAID, '; ')}."


def _said(curve: Curve, one: CurveSeries, axis: str) -> str:
    begins = f"{curve.say(one.middle[0])} at {one.at[0]:.6g} and " if len(one.at) > 1 else ""
    ends = f"{curve.say(one.middle[-1])} at {one.at[-1]:.6g} {axis}"
    between = f" (from {curve.say(one.low[-1])} to {curve.say(one.high[-1])} over {one.runs} seeds)"
    return f"{one.setting}: {begins}{ends}{between if one.runs > 1 else ''}"


_SAID = 6
