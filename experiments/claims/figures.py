"""The studies as pictures: medians over the seeds, with bands from the least to the most."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.checks import ACCURACY, QUANTITIES, until
from experiments.drawn import NOTE
from experiments.stored import Record

mpl.use("Agg")
from matplotlib import pyplot as plt

COLORS = {"allreduce": "tab:orange", "gossip": "tab:blue"}
TOPOLOGIES = {"ring": "tab:red", "random regular": "tab:green", "exponential": "tab:purple", "complete": "tab:gray"}
APART = {"ring": 0.91, "random regular": 0.97, "exponential": 1.03, "complete": 1.09}
"""By how much points of a topology are moved, so that none hides another."""
ERRORS = {"final_accuracy": [0.1, 0.12, 0.14, 0.16, 0.18], "worst_node_accuracy": [0.1, 0.2, 0.3, 0.4, 0.6]}
"""Labels of the axis of errors."""
DASHES = {"1": "-", "10": "--"}
REACHED = 0.85
REACHES = {"virtual_seconds": [1, 2, 5, 10, 20, 50, 100, 200], "updates": [50, 70, 100, 150, 200, 300, 500, 700, 1000]}
"""Labels of the axes of how long that takes."""
Measure = Callable[[Record], float]


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    draws = {"slow-links": _slow_links, "speed-up": _speed_up, "topologies": _topologies, "wall-clock": _wall_clock}
    figure = draws[study](records)
    seeds = f"Medians of {len(_places(records, 'seed'))} seeds, the least to the most."
    note = f"{seeds}\n{NOTE}" if study != "wall-clock" else seeds
    figure.supxlabel(note, fontsize="small", color="gray")
    return figure


def _slow_links(records: Sequence[Record]) -> Any:
    """Virtual seconds to an accuracy over how slow a link, or a node's links, are."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for axis, which, title in zip(axes, ("link", "node"), ("one link", "both links of one node"), strict=True):
        places = {1.0: "none", 10.0: f"{which} 10", 100.0: f"{which} 100"}
        for name, colour in COLORS.items():
            found = {x: _at(_usual(records), slow=slow, algorithm=name) for x, slow in places.items()}
            _band(axis, found, until(REACHED, "virtual_seconds"), color=colour, label=name)
        axis.set(xscale="log", yscale="log", xlabel="so many times slower than the other links", title=title)
        _ticks(axis, list(places), [50, 100, 200, 400, 800])
    axes[0].set_ylabel(f"virtual seconds to an accuracy of {REACHED}")
    axes[0].legend()
    return figure


def _speed_up(records: Sequence[Record]) -> Any:
    """Virtual seconds, and updates, to an accuracy over the number of nodes; a column without noise and one with."""
    noises = _places(records, "noise")
    figure, axes = plt.subplots(2, len(noises), figsize=(9, 7), sharex=True, sharey="row", layout="constrained")
    keys = {"virtual_seconds": f"virtual seconds to {REACHED}", "updates": f"updates of all nodes to {REACHED}"}
    for (key, label), row in zip(keys.items(), axes, strict=True):
        for axis, noise in zip(row, noises, strict=True):
            nodes = _places(records, "nodes")
            for name, colour in COLORS.items():
                found = {float(k): _at(_usual(records), noise=noise, nodes=k, algorithm=name) for k in nodes}
                _band(axis, found, until(REACHED, key), color=colour, label=name)
            one = [until(REACHED, key)(record) for record in _at(_usual(records), noise=noise, nodes="1")]
            if key == "virtual_seconds" and one and math.isfinite(statistics.median(one)):
                ideal = [statistics.median(one) / float(k) for k in nodes]
                axis.plot([float(k) for k in nodes], ideal, ":", color="black", label="K times sooner than one node")
            axis.set(xscale="log", yscale="log")
            _ticks(axis, [float(k) for k in nodes], REACHES[key])
        row[0].set_ylabel(label)
    for axis, noise in zip(axes[0], noises, strict=True):
        axis.set_title("no noise" if noise == "none" else f"{noise} for every example")
    for axis in axes[1]:
        axis.set_xlabel("nodes K")
    axes[0][0].legend()
    return figure


def _topologies(records: Sequence[Record]) -> Any:
    """Final accuracy of the mean model, and of the worst node's, over the number of nodes."""
    kinds, nodes = _places(records, "data"), _places(records, "nodes")
    figure, axes = plt.subplots(2, len(kinds), figsize=(9, 7), sharex=True, sharey="row", layout="constrained")
    takes = {"final_accuracy": "error of the mean model", "worst_node_accuracy": "error of the worst node's model"}
    for (take, label), row in zip(takes.items(), axes, strict=True):
        for axis, kind in zip(row, kinds, strict=True):
            for name, colour in TOPOLOGIES.items():
                found = {float(k) * APART[name]: _at(_usual(records), data=kind, nodes=k, topology=name) for k in nodes}
                _bars(axis, found, lambda record, take=take: 1 - QUANTITIES[take](record), color=colour, label=name)
            axis.set(xscale="log", yscale="log")
            _ticks(axis, [float(k) for k in nodes], ERRORS[take])
        row[0].set_ylabel(label)
    for axis, kind in zip(axes[0], kinds, strict=True):
        axis.set_title(f"{kind}, epsilon 5 for every example")
    for axis in axes[1]:
        axis.set_xlabel("nodes K")
    axes[0][0].legend()
    return figure


def _wall_clock(records: Sequence[Record]) -> Any:
    """Accuracy, and updates, over wall seconds."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for axis, key, label in zip(axes, (ACCURACY, "updates"), ("test accuracy of the model", "updates"), strict=True):
        for name, colour in COLORS.items():
            for slower, dash in DASHES.items():
                curves = [record["curve"] for record in _at(records, algorithm=name, slower=slower)]
                looks = range(1, min(len(curve) for curve in curves))
                values = np.array([[curve[look][key] for look in looks] for curve in curves])
                seconds = [curves[0][look]["wall_seconds"] for look in looks]
                said = name if slower == "1" else f"{name}, one process {slower} times slower"
                axis.plot(seconds, np.median(values, axis=0), dash, color=colour, label=said)
                axis.fill_between(seconds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.2)
        axis.set(xscale="log", xlabel="wall seconds since the first gradient", ylabel=label)
        axis.grid(alpha=0.3)
    axes[1].set_yscale("log")
    axes[0].legend()
    return figure


def _band(axis: Any, found: dict[float, Sequence[Record]], measure: Measure, **style: Any) -> None:
    """The median over the records at each place, and the least to the most; nothing where one never gets there."""
    values = {place: [measure(record) for record in records] for place, records in found.items() if records}
    shown = {place: some for place, some in values.items() if all(math.isfinite(one) for one in some)}
    axis.plot(list(shown), [statistics.median(some) for some in shown.values()], "o-", **style)
    ends = [min(some) for some in shown.values()], [max(some) for some in shown.values()]
    axis.fill_between(list(shown), *ends, color=style["color"], alpha=0.2)


def _bars(axis: Any, found: dict[float, Sequence[Record]], measure: Measure, **style: Any) -> None:
    """The same with a bar at each place, for more curves than bands can be told apart."""
    values = {place: [measure(record) for record in records] for place, records in found.items() if records}
    middles = [statistics.median(some) for some in values.values()]
    ends = [[middle - min(some), max(some) - middle] for middle, some in zip(middles, values.values(), strict=True)]
    axis.errorbar(list(values), middles, np.array(ends).T, fmt="o-", capsize=3, **style)


def _ticks(axis: Any, across: Sequence[float], up: Sequence[float]) -> None:
    """Plain numbers along both axes: those of ``up`` that are in view."""
    axis.set_xticks(across, [f"{place:g}" for place in across])
    low, high = axis.get_ylim()
    seen = [place for place in up if low <= place <= high]
    axis.set_yticks(seen, [f"{place:g}" for place in seen])
    axis.minorticks_off()
    axis.grid(alpha=0.3)


def _usual(records: Sequence[Record]) -> list[Record]:
    """Runs of the ordinary length."""
    return [record for record in records if record["length"] == records[0]["length"]]


def _at(records: Sequence[Record], **place: str) -> list[Record]:
    return [record for record in records if place.items() <= record.items()]


def _places(records: Sequence[Record], axis: str) -> list[str]:
    """Places on an axis, in order."""
    return list(dict.fromkeys(record[axis] for record in records))
