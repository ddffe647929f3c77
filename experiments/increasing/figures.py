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
    "diminishing1, tuned": "tab:blue",
    "diminishing2, tuned": "tab:orange",
    "constant, tuned": "tab:red",
    "diminishing1 from 0.1": "tab:cyan",
    "diminishing2 from 0.1": "tab:pink",
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
    "increasing, tuned": "tab:cyan",
    "s = 16, tuned": "tab:red",
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


PAPERS = {
    "a9a strongly convex": (0.8418, 0.8443, 0.8386, 0.8333, 0.8298, 0.7271),
    "a9a convex": (0.8409, 0.8415, 0.8417, 0.8299, 0.8346, 0.7276),
    "mnist LeNet-5 tanh": (0.9450, 0.9470, 0.9180, 0.8740, 0.8700, 0.7080),
}
"""The paper's Table 3, by size."""


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``, of the runs that are as long as the paper's."""
    records = [record for record in records if record.get("length") == records[0].get("length")]
    return DRAWS[study](records) if study in DRAWS else _curves(records, *LINES[study])


def _values(records: Sequence[Record], axis: str | None) -> list[str]:
    """The places on an axis, in their order; one without a name where there is no such axis."""
    return list(dict.fromkeys(record[axis] for record in records)) if axis is not None else [""]


def _at(records: Sequence[Record], place: dict[str | None, str]) -> list[Record]:
    return [r for r in records if all(r[axis] == value for axis, value in place.items() if axis is not None)]


def _band(axis: Any, records: Sequence[Record], **style: Any) -> None:
    """The median accuracy over the seeds a line, the least and the most a band; all seeds look at the same rounds."""
    looks = list(zip(*(record["curve"] for record in records), strict=True))
    gradients = [rows[0]["gradients"] for rows in looks]
    heights = np.array([[row[ACCURACY] for row in rows] for rows in looks])
    axis.plot(gradients, np.median(heights, axis=1), **style)
    axis.fill_between(
        gradients, heights.min(axis=1), heights.max(axis=1), color=style["color"], alpha=0.15, linewidth=0
    )


def _guarantee(records: Sequence[Record]) -> str:
    """What is proved of runs, for a title."""
    found = sorted({record["epsilon"] for record in records if record["epsilon"] is not None})
    if not found:
        return "guarantee: none"
    none = " or none" if any(record["epsilon"] is None for record in records) else ""
    return f"proved epsilon {' or '.join(f'{epsilon:.3g}' for epsilon in found)}{none}"


def _sizes(records: Sequence[Record], line: str = "problem") -> Any:
    """Final accuracy over the size of rounds: the median a line, the seeds as dots; the number of rounds below."""
    figure, axis = plt.subplots(figsize=(7.2, 5.2), layout="constrained")
    sizes = _values(records, "size")
    for marker, name in zip(MARKERS, _values(records, line)):
        rows = _at(records, {line: name})
        heights = [[row["curve"][-1][ACCURACY] for row in _at(rows, {"size": size})] for size in sizes]
        middle = [statistics.median(found) if found else np.nan for found in heights]  # no line where a size is missing
        (drawn,) = axis.plot(range(len(sizes)), middle, marker=marker, label=name)
        for place, found in enumerate(heights):
            axis.plot([place] * len(found), found, ".", color=drawn.get_color(), alpha=0.4, markersize=4)
        if line == "problem" and name in PAPERS:
            axis.plot(
                range(len(sizes)), PAPERS[name], "--", color=drawn.get_color(), alpha=0.7, label=f"{name}: the paper"
            )
    rounds = [_at(records, {"size": size})[0]["rounds"] for size in sizes]
    axis.set_xticks(range(len(sizes)), [f"{size}\n{number} rounds" for size, number in zip(sizes, rounds, strict=True)])
    axis.set(xlabel="gradients of a client in each round", ylabel="test accuracy after 20,000 gradients")
    axis.set_title(_guarantee(records), fontsize=10)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
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
    """Accuracy over gradients, a line a place on ``line``; legends say how many rounds there were.

    There is a panel for every place on ``column`` and ``row`` that has runs, and none besides.
    """
    places = [{column: at, row: below} for at in _values(records, column) for below in _values(records, row)]
    places = [place for place in places if _at(records, place)]
    wide = min(len(places), 3 if row is None else 4)
    tall = -(-len(places) // wide)
    size = (4.2 * wide + (2.4 if wide == 1 else 0), 3.4 * tall + 0.4)
    figure, axes = plt.subplots(tall, wide, figsize=size, layout="constrained", squeeze=False)
    for axis, place in zip(axes.flat, places):
        here = _at(records, place)
        for name in _values(here, line):
            runs = _at(here, {line: name})
            label = f"{name} ({runs[0]['rounds']} rounds)"
            _band(axis, runs, color=COLORS[name], label=label, marker=".", markersize=4)
        title = " / ".join(filter(None, place.values()))
        axis.set_title(f"{title}\n{_guarantee(here)}".strip(), fontsize=9)
        axis.set(xlabel="gradients, all clients together", ylabel="test accuracy")
        axis.grid(alpha=0.3)
        axis.legend(fontsize=6, loc="lower right")
    for axis in axes.flat[len(places) :]:
        figure.delaxes(axis)
    return figure


def _schedules(records: Sequence[Record]) -> Any:
    """Accuracy of every seed of the proved runs, a panel a problem; below each schedule its rounds and noise."""
    proved = [{**one, "problem": f"{one['problem']}, {one['steps']}"} for one in _at(records, {"update": "batch"})]
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
