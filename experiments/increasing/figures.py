"""The studies as pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.drawn import NOTE

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

Record = dict[str, Any]
ACCURACY, BALANCED = "mean_model_test_accuracy", "balanced_accuracy"
NAMES = {ACCURACY: "test accuracy", BALANCED: "balanced accuracy"}
SPAN = 0.04
"""Accuracies that an axis shows at least: less is no difference that should look like one."""
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


@dataclass(frozen=True)
class Curves:
    """Accuracy over gradients.

    Attributes
    ----------
    line : str
        The axis with a line a place.
    panels : list of str
        The axes with a panel a place.
    groups : dict of str to list of str
        Lines that have a panel of their own, by its title: the others would hide them, or be hidden.
    balanced : bool
        Whether the balanced accuracy is below each panel.
    """

    line: str
    panels: Sequence[str] = ()
    groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    balanced: bool = False


TUNED = ("diminishing1, tuned", "diminishing2, tuned", "constant, tuned")
STATED = ("diminishing1 from 0.1", "diminishing2 from 0.1", "constant 0.1", "constant 0.01", "constant 0.001")
SMALL = ("diminishing1", "diminishing2", "constant 0.01", "constant 0.005", "constant 0.001")
CURVES = {
    "figures-4-5": Curves("growth", ("problem",), balanced=True),
    "figures-6-7": Curves("steps", ("problem",), {"tuned": TUNED, "the paper's steps": STATED}, balanced=True),
    "figure-8": Curves("steps"),
    "figure-9": Curves("steps", ("problem",), {"": SMALL, "constant 0.1": ("constant 0.1",)}, balanced=True),
    "figures-10-11": Curves("digits", ("problem",)),
    "figures-12-13": Curves("steps", ("problem", "noise")),
}
PAPERS = {
    "a9a strongly convex": (0.8418, 0.8443, 0.8386, 0.8333, 0.8298, 0.7271),
    "a9a convex": (0.8409, 0.8415, 0.8417, 0.8299, 0.8346, 0.7276),
    "mnist LeNet-5 tanh": (0.9450, 0.9470, 0.9180, 0.8740, 0.8700, 0.7080),
}
"""The paper's Table 3, by size."""
PAPERS |= {f"a9a standardised {kind}": PAPERS[f"a9a {kind}"] for kind in ("strongly convex", "convex")}


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``, of the runs that are as long as the paper's."""
    records = [record for record in records if record.get("length") == records[0].get("length")]
    figure = DRAWS[study](records) if study in DRAWS else _curves(records, CURVES[study])
    if any(record.get("epsilon") for record in records):
        figure.suptitle(NOTE, fontsize="small", color="gray")
    return figure


def _values(records: Sequence[Record], axis: str) -> list[str]:
    """The places on an axis, in their order."""
    return list(dict.fromkeys(record[axis] for record in records))


def _at(records: Sequence[Record], place: Mapping[str, str]) -> list[Record]:
    return [record for record in records if place.items() <= record.items()]


def _band(axis: Any, records: Sequence[Record], quantity: str, color: str) -> None:
    """The median over the seeds a line, the least and the most a band; all seeds look at the same rounds."""
    looks = list(zip(*(record["curve"] for record in records), strict=True))
    gradients = [rows[0]["gradients"] for rows in looks]
    heights = np.array([[row[quantity] for row in rows] for rows in looks])
    axis.plot(gradients, np.median(heights, axis=1), color=color, marker=".", markersize=4)
    axis.fill_between(gradients, heights.min(axis=1), heights.max(axis=1), color=color, alpha=0.15, linewidth=0)


def _widen(axis: Any) -> None:
    """Let an axis of accuracies show `SPAN` at least, and nothing above 1."""
    low, high = axis.dataLim.intervaly
    spare = max(0.0, SPAN - (high - low)) / 2
    low, high = low - spare, min(high + spare, 1.0)
    edge = 0.05 * (high - low)
    axis.set_ylim(low - edge, high + edge)


def _guarantee(records: Sequence[Record]) -> str:
    """What is proved of runs, for a title."""
    found = sorted({record["epsilon"] for record in records if record["epsilon"] is not None})
    if not found:
        return "guarantee: none"
    none = " or none" if any(record["epsilon"] is None for record in records) else ""
    return f"proved epsilon {' or '.join(f'{epsilon:.3g}' for epsilon in found)}{none}"


def _sizes(records: Sequence[Record], line: str = "problem") -> Any:
    """Final accuracy over the size of rounds: the median a line, the seeds as dots; the number of rounds below.

    Problems have a panel a data set, with the paper's figures as broken lines.
    """
    panels: dict[str, list[Record]] = {}
    for record in records:
        panels.setdefault(_data_set(record.get("problem", "")), []).append(record)
    size = (4.6 * len(panels) + (2.4 if len(panels) == 1 else 0), 4.4)
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    for axis, (title, rows) in zip(axes.flat, panels.items(), strict=True):
        _sizes_of(axis, rows, line, _values(records, "size"))
        axis.set_title(f"{title}\n{_guarantee(rows)}".strip(), fontsize=10)
    axes[0, 0].set_ylabel("test accuracy after 20,000 gradients")
    return figure


def _data_set(problem: str) -> str:
    """What a panel is about."""
    return problem.partition(" LeNet-5")[0].removesuffix(" strongly convex").removesuffix(" convex")


def _sizes_of(axis: Any, records: Sequence[Record], line: str, sizes: Sequence[str]) -> None:
    """A panel: lines beside each other, so that they do not hide their dots."""
    names = _values(records, line)
    for number, name in enumerate(names):
        rows = _at(records, {line: name})
        places = np.arange(len(sizes)) + 0.05 * (number - (len(names) - 1) / 2)
        heights = [[row["curve"][-1][ACCURACY] for row in _at(rows, {"size": size})] for size in sizes]
        middle = [statistics.median(found) if found else np.nan for found in heights]  # no line where a size is missing
        (drawn,) = axis.plot(places, middle, marker=MARKERS[number], markersize=5, label=name)
        for place, found in zip(places, heights, strict=True):
            axis.plot([place] * len(found), found, ".", color=drawn.get_color(), alpha=0.5, markersize=4)
        if name in PAPERS:
            axis.plot(places, PAPERS[name], "--", color=drawn.get_color(), alpha=0.7, label=f"{name}: the paper")
    rounds = [_at(records, {"size": size})[0]["rounds"] for size in sizes]
    labels = [f"{size}\n{number} rounds" for size, number in zip(sizes, rounds, strict=True)]
    axis.set_xticks(range(len(sizes)), labels, fontsize=8)
    axis.set_xlabel("gradients of a client in each round")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="lower left")


def _rounds(records: Sequence[Record]) -> Any:
    """Bars: how many rounds the gradients take."""
    figure, axis = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    names = [record["growth"] for record in records]
    bars = axis.bar(names, [record["rounds"] for record in records], color=[COLORS[name] for name in names])
    axis.bar_label(bars)
    axis.margins(y=0.1)
    axis.set(ylabel="rounds for 20,000 gradients", xlabel="s_i = 50 i^c, or 50 i/ln i")
    return figure


def _curves(records: Sequence[Record], how: Curves) -> Any:
    """Accuracy over gradients; the legend, of all panels together, says how many rounds there were.

    There is a panel for every place that has runs, and none besides.
    """
    panels = _panels(records, how)
    quantities = (ACCURACY, BALANCED) if how.balanced else (ACCURACY,)
    wide = len(panels) if how.balanced else min(len(panels), 3)
    tall = -(-len(panels) // wide) * len(quantities)
    size = (4.0 * wide + (2.4 if wide == 1 else 0), 3.2 * tall + 0.7)
    figure, axes = plt.subplots(tall, wide, figsize=size, layout="constrained", squeeze=False)
    cells = [(title, here, quantity) for quantity in quantities for title, here in panels.items()]
    for axis, (title, here, quantity) in zip(axes.flat, cells):
        for name in _values(here, how.line):
            _band(axis, _at(here, {how.line: name}), quantity, COLORS[name])
        _widen(axis)
        axis.set_title(f"{title}\n{_guarantee(here)}".strip(), fontsize=9)
        axis.set(xlabel="gradients, all clients together", ylabel=NAMES[quantity])
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(cells) :]:
        figure.delaxes(axis)
    names = _values(records, how.line)
    lines = [Line2D([], [], color=COLORS[name], marker=".", label=_legend(records, how.line, name)) for name in names]
    figure.legend(handles=lines, fontsize=8, loc="outside lower center", ncols=min(len(lines), 2 + wide // 2))
    return figure


def _panels(records: Sequence[Record], how: Curves) -> dict[str, list[Record]]:
    """Records of each panel, by its title."""
    panels: dict[str, list[Record]] = {}
    groups = how.groups or {"": _values(records, how.line)}
    for record in records:
        group = next(title for title, names in groups.items() if record[how.line] in names)
        title = " / ".join(filter(None, (*(record[axis] for axis in how.panels), group)))
        panels.setdefault(title, []).append(record)
    return panels


def _legend(records: Sequence[Record], line: str, name: str) -> str:
    """A line's name, and its rounds."""
    rounds = sorted({record["rounds"] for record in _at(records, {line: name})})
    return f"{name} ({' or '.join(map(str, rounds))} rounds)"


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
    return f"{name}\n{rounds} rounds\n{noise}\nproved epsilon {record['epsilon']:.3g}"


def _readings(records: Sequence[Record]) -> Any:
    """Accuracy of every seed by reading, the median a bar; the paper's a line for each size."""
    figure, axis = plt.subplots(figsize=(8.2, 5.2), layout="constrained")
    names, papers = _values(records, "reading")[::-1], dict(zip(("200", "1000"), PAPERS["mnist LeNet-5 tanh"][2::3]))
    for size, color in (("1000", "tab:blue"), ("200", "tab:orange")):
        for number, name in enumerate(names):
            found = [row["curve"][-1][ACCURACY] for row in _at(records, {"reading": name, "size": size})]
            height = number + (0.18 if size == "200" else 0)
            axis.plot(found, [height] * len(found), "o", color=color, alpha=0.4, markersize=4)
            if found:
                axis.plot([statistics.median(found)] * 2, [height - 0.2, height + 0.2], color=color)
        axis.axvline(papers[size], color=color, linestyle="--", alpha=0.7, label=f"the paper, size {size}")
    axis.set_yticks(range(len(names)), names, fontsize=8)
    axis.set(xlabel="test accuracy after 20,000 gradients", xlim=(0, 1))
    axis.set_title(f"mnist LeNet-5, sizes 1000 (blue) and 200 (orange)\n{_guarantee(records)}", fontsize=10)
    axis.grid(alpha=0.3)
    figure.legend(fontsize=8, loc="outside lower center", ncols=2)
    return figure


DRAWS: dict[str, Callable[[Sequence[Record]], Any]] = {
    "table-3": _sizes,
    "table-3-large": partial(_sizes, line="change"),
    "figure-3": _rounds,
    "lenet-readings": _readings,
    "dp": _schedules,
}
