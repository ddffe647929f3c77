"""Series of figures over a run, at few enough points to be drawn, and bands over runs that differ in their seed alone.

A figure is known at evaluations and holds until the next. So a run's value at any place of an axis is that of its last
evaluation up to there, and series of several runs are compared on one grid without drawing a line between evaluations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.report.records import EPOCHS, RunRecord

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
class Series:
    """Values of one figure over one axis, for one run or for runs that differ in their seed alone.

    Attributes
    ----------
    setting : str
        Name of the run, or what the runs have in common.
    runs : int
        How many.
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


def series_of(records: Sequence[RunRecord], figure: str, axis: str) -> list[Series]:
    """Return the series of a figure over an axis, one for each setting in which it is known."""
    known: defaultdict[str, list[tuple[FloatArray, FloatArray]]] = defaultdict(list)
    for record in records:
        at, values = _points(record, figure, axis)
        if at.size:
            known[record.setting].append((at, values))
    most = max(_LEAST, min(_POINTS, _ALL // max(1, len(known) * len(AXES))))
    return [_over_seeds(setting, runs, most) for setting, runs in known.items()]


def _points(record: RunRecord, figure: str, axis: str) -> tuple[FloatArray, FloatArray]:
    pairs = zip(record.metrics.get(axis, ()), record.metrics.get(figure, ()), strict=False)
    found = np.array([(at, value) for at, value in pairs if at is not None and value is not None], np.float64)
    return (found[:, 0], found[:, 1]) if found.size else (np.zeros(0), np.zeros(0))


def _over_seeds(setting: str, runs: Sequence[tuple[FloatArray, FloatArray]], most: int) -> Series:
    # A run that is over keeps nothing, so the band ends where the first of them does.
    end = min(at[-1] for at, _ in runs)
    everywhere = np.unique(np.concatenate([at[at <= end] for at, _ in runs]))
    grid = everywhere if everywhere.size <= most else np.linspace(everywhere[0], end, most)
    values = np.stack([_held(at, value, grid) for at, value in runs])
    return Series(setting, len(runs), grid, np.median(values, axis=0), values.min(axis=0), values.max(axis=0))


def _held(at: FloatArray, values: FloatArray, grid: FloatArray) -> FloatArray:
    """The last value up to each place of the grid; the first one before it."""
    held: FloatArray = values[np.maximum(np.searchsorted(at, grid, side="right") - 1, 0)]
    return held


def _short(value: float) -> float:
    """Six digits: more than can be seen, in a third of the bytes."""
    return float(f"{value:.6g}")
