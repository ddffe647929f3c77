"""The studies as pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

Record = dict[str, Any]
ACCURACY = "mean_model_test_accuracy"
COLORS = {
    # growth of rounds
    "c = 0": "black",
    "c = 0.25": "tab:gray",
    "c = 0.5": "tab:olive",
    "c = 0.75": "tab:green",
    "c = 1": "tab:blue",
    "i/ln i": "tab:orange",
    # step sizes
    "diminishing1": "tab:blue",
    "diminishing2": "tab:orange",
    "diminishing1 from 0.01": "tab:blue",
    "diminishing1 from 0.0025": "tab:cyan",
    "constant 0.0025": "tab:brown",
    "constant 0.1": "tab:green",
    "constant 0.01": "tab:olive",
    "constant 0.005": "tab:brown",
    "constant 0.001": "tab:gray",
    # partitions
    "dealt at random": "black",
    "one a client": "tab:blue",
    "two a client": "tab:blue",
    # with noise
    "increasing, diminishing": "tab:blue",
    "s = 16, constant 0.01": "tab:olive",
    "s = 16, constant 0.001": "tab:gray",
    "increasing": "tab:blue",
    "s = 16, same claim": "tab:red",
    "s = 16, same proof": "tab:green",
}
MARKERS = ("o", "s", "^", "v", "D", "x", "+")
LINES = {
    "figures-4-5": ("growth", "problem"),
    "figures-6-7": ("steps", "problem"),
    "figure-8": ("steps", None),
    "figure-9": ("steps", "problem"),
    "figures-10-11": ("digits", "problem"),
    "figures-12-13": ("steps", "problem", "noise"),
}
"""By study: the axis with a line a place, and those with a panel a place (columns, rows)."""


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    return DRAWS[study](records) if study in DRAWS else _curves(records, *LINES[study])


def _values(records: Sequence[Record], axis: str | None) -> list[str]:
    """The places on an axis, in their order; one without a name where there is no such axis."""
    return list(dict.fromkeys(record[axis] for record in records)) if axis is not None else [""]


def _at(records: Sequence[Record], place: dict[str | None, str]) -> list[Record]:
    return [r for r in records if all(r[axis] == value for axis, value in place.items() if axis is not None)]


def _median_curve(records: Sequence[Record]) -> tuple[list[int], list[float]]:
    """(gradients, median accuracy over the seeds) of each look; all seeds look at the same rounds."""
    looks = list(zip(*(record["curve"] for record in records), strict=True))
    heights = [statistics.median(row[ACCURACY] for row in rows) for rows in looks]
    return [rows[0]["gradients"] for rows in looks], heights


def _sizes(records: Sequence[Record], line: str = "problem") -> Any:
    """Final accuracy over the size of rounds: the median a line, the seeds as dots; the number of rounds below."""
    figure, axis = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    sizes = _values(records, "size")
    for marker, name in zip(MARKERS, _values(records, line)):
        rows = _at(records, {line: name})
        heights = [[row["curve"][-1][ACCURACY] for row in _at(rows, {"size": size})] for size in sizes]
        middle = [statistics.median(found) if found else np.nan for found in heights]  # no line where a size is missing
        (drawn,) = axis.plot(range(len(sizes)), middle, marker=marker, label=name)
        for place, found in enumerate(heights):
            axis.plot([place] * len(found), found, ".", color=drawn.get_color(), alpha=0.4, markersize=4)
    rounds = [_at(records, {"size": size})[0]["rounds"] for size in sizes]
    axis.set_xticks(range(len(sizes)), [f"{size}\n{number} rounds" for size, number in zip(sizes, rounds, strict=True)])
    axis.set(xlabel="gradients of a client in each round", ylabel="test accuracy after 20,000 gradients")
    axis.grid(alpha=0.3)
    axis.legend()
    return figure


def _rounds(records: Sequence[Record]) -> Any:
    """Bars: how many rounds the gradients take."""
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    names = [record["growth"] for record in records]
    bars = axis.bar(names, [record["rounds"] for record in records], color=[COLORS[name] for name in names])
    axis.bar_label(bars)
    axis.margins(y=0.1)
    axis.set(ylabel="rounds for 20,000 gradients", xlabel="s_i = 50 i^c, or 50 i/ln i")
    return figure


def _curves(records: Sequence[Record], line: str, column: str | None, row: str | None = None) -> Any:
    """Accuracy over gradients, a line a place on ``line``; legends say how many rounds there were."""
    columns, rows = _values(records, column), _values(records, row)
    wide = len(columns) if len(columns) <= 3 else 2
    tall = len(rows) * -(-len(columns) // wide)
    size = (4.2 * wide + (2.4 if wide == 1 else 0), 3.2 * tall + 0.6)
    figure, axes = plt.subplots(tall, wide, figsize=size, layout="constrained", squeeze=False)
    panels = [({column: at, row: below}, " / ".join(filter(None, (at, below)))) for below in rows for at in columns]
    for axis, (place, title) in zip(axes.flat, panels):
        if not _at(records, place):
            axis.set_visible(False)
            continue
        for name in _values(_at(records, place), line):
            rows = _at(records, {**place, line: name})
            label = f"{name} ({rows[0]['rounds']} rounds)"
            axis.plot(*_median_curve(rows), color=COLORS[name], label=label, marker=".", markersize=4)
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.3)
        _magnify(axis)
        axis.legend(fontsize=7, loc="lower right")
    for axis in axes.flat[len(panels) :]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("gradients, all clients together")
    for axis in axes[:, 0]:
        axis.set_ylabel("test accuracy")
    return figure


def _magnify(axis: Any) -> None:
    """Show the upper part, where the lines part; what starts low comes in from below."""
    heights = np.concatenate([line.get_ydata() for line in axis.get_lines()])
    low, high = np.quantile(heights, 0.1), heights.max()
    room = max(0.1 * (high - low), 0.002)
    axis.set_ylim(low - 3 * room, high + room)


def _schedules(records: Sequence[Record]) -> Any:
    """Accuracy of every seed of the proved runs, a panel a problem; below each schedule its rounds and noise."""
    proved = _at(records, {"update": "batch"})
    problems = _values(proved, "problem")
    wide, tall = 3, -(-len(problems) // 3)
    figure, axes = plt.subplots(tall, wide, figsize=(4.2 * wide, 3.4 * tall), layout="constrained", squeeze=False)
    for axis, problem in zip(axes.flat, problems):
        labels = []
        for number, name in enumerate(_values(_at(proved, {"problem": problem}), "schedule")):
            rows = _at(proved, {"problem": problem, "schedule": name})
            ends = [row["curve"][-1] for row in rows]
            found = [end.get("balanced_accuracy", end[ACCURACY]) for end in ends]
            axis.plot([number] * len(found), found, "o", color=COLORS[name], alpha=0.5)
            axis.plot([number - 0.2, number + 0.2], [statistics.median(found)] * 2, color=COLORS[name])
            labels.append(_schedule(name, rows[0]))
        two = "balanced_accuracy" in _at(proved, {"problem": problem})[0]["curve"][-1]
        axis.set_xticks(range(len(labels)), labels, fontsize=7)
        axis.set(title=problem, xlim=(-0.5, len(labels) - 0.5), ylabel="balanced accuracy" if two else "test accuracy")
        axis.set_ylim(0, 1)
        axis.grid(alpha=0.3, axis="y")
    for axis in axes.flat[len(problems) :]:
        axis.set_visible(False)
    return figure


def _schedule(name: str, record: Record) -> str:
    sigma, rounds = record["noise_multiplier"], record["rounds"]
    noise = f"sigma {sigma:.3g}, in all {sigma * rounds**0.5:.0f}"
    return f"{name}\n{rounds} rounds\n{noise}\nproved {record['epsilon']:.3g}"


DRAWS: dict[str, Callable[[Sequence[Record]], Any]] = {
    "table-3": _sizes,
    "table-3-large": partial(_sizes, line="change"),
    "figure-3": _rounds,
    "dp": _schedules,
}
