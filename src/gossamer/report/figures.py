"""Figures: panels of lines, as data, and drawing them.

Lines of the same label, such as the runs of several seeds, share a colour and an entry in the legend.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.errors import CallerError
from gossamer.report.folders import read_results

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as missing:
    if missing.name != "matplotlib":
        raise
    raise CallerError(
        'figures need the optional package matplotlib, which is not installed: pip install "gossamer[figures]"'
    ) from None

# Told apart by readers who see few colours; Okabe and Ito, "Color universal design", 2008.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = "osD^vP"
INCHES = (3.7, 3.1)
"""Size of a panel."""
PIXELS_PER_INCH = 120


@dataclass(frozen=True)
class Line:
    """Points that are joined.

    Attributes
    ----------
    label : str
        In the legend.
    x, y : sequence of float
        Of equal length.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    lines : sequence of Line
    title, x_label, y_label : str
    y_range : pair of float, optional
        By default what the lines need.
    ticks : mapping of float to str, optional
        Labels at places of the x axis; marks the points too.
    log_x : bool
        Logarithmic x axis; points at or below zero are left out.
    """

    lines: Sequence[Line]
    title: str = ""
    x_label: str = ""
    y_label: str = ""
    y_range: tuple[float, float] | None = None
    ticks: Mapping[float, str] | None = None
    log_x: bool = False


def draw(panels: Sequence[Sequence[Panel]], path: str | Path, title: str = "") -> None:
    """Draw rows of panels with one legend, to the format that the suffix of ``path`` names.

    Parameters
    ----------
    panels : sequence of sequences of Panel
        Rows of equal length.
    path : path
        Such as ``figure.png``.
    title : str
        Above all panels.
    """
    height, width = len(panels), len(panels[0])
    size = (INCHES[0] * width, INCHES[1] * height + 0.6)
    figure = Figure(figsize=size, dpi=PIXELS_PER_INCH, layout="constrained")
    axes = figure.subplots(height, width, squeeze=False)
    labels = list(dict.fromkeys(line.label for row in panels for panel in row for line in panel.lines))
    handles: dict[str, Any] = {}
    for row, row_axes in zip(panels, axes, strict=True):
        for panel, axis in zip(row, row_axes, strict=True):
            handles |= _draw_panel(panel, axis, labels)
    figure.suptitle(title)
    figure.legend([handles[label] for label in labels], labels, loc="outside lower center", ncols=len(labels))
    figure.savefig(path)


def _draw_panel(panel: Panel, axis: Any, labels: list[str]) -> dict[str, Any]:
    """The handle of each label, for the legend."""
    handles = {}
    for line in panel.lines:
        number = labels.index(line.label)
        points = [(x, y) for x, y in zip(line.x, line.y, strict=True) if x > 0 or not panel.log_x]
        (handles[line.label],) = axis.plot(
            *zip(*points),
            color=COLORS[number % len(COLORS)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=6 if panel.ticks else 2.5,
            linewidth=1.3,
        )
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.grid(alpha=0.3)
    if panel.log_x:
        axis.set_xscale("log")
    if panel.y_range is not None:
        axis.set_ylim(*panel.y_range)
    if panel.ticks is not None:
        axis.set_xticks(list(panel.ticks), list(panel.ticks.values()))
        axis.margins(x=0.1)
    return handles


def compare(
    runs: Mapping[str, Iterable[str | Path]],
    path: str | Path,
    *,
    x: str = "virtual_seconds",
    y: str = "mean_model_test_accuracy",
    title: str = "",
) -> None:
    """One column of results folders over another.

    Parameters
    ----------
    runs : mapping of str to paths
        Results folders by label; several folders a label are several lines of one colour.
    path : path
        Of the figure.
    x, y : str
        Columns, as `Results.column` knows them.
    title : str
        Above the panel.

    Raises
    ------
    SpecError
        If a folder holds no results, or lacks a column.

    Examples
    --------
    >>> compare({"gossip": ["runs/gossip"], "all-reduce": ["runs/allreduce"]}, "figure.png")  # doctest: +SKIP
    """
    results = [(label, read_results(folder)) for label, folders in runs.items() for folder in folders]
    lines = [Line(label, found.column(x), found.column(y)) for label, found in results]
    draw([[Panel(lines, x_label=x.replace("_", " "), y_label=y.replace("_", " "))]], path, title)
