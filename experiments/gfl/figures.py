"""The studies as pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

Record = dict[str, Any]
COLORS = {
    "none": "tab:blue",
    "homomorphic": "tab:green",
    "hidden": "tab:green",
    "random": "tab:red",
    "released": "tab:purple",
    "random, same guarantee": "tab:red",
    "released, same noise": "tab:olive",
    "released, same guarantee": "tab:purple",
    "0.1": "tab:blue",
    "0.5": "tab:green",
    "1": "tab:orange",
    "5": "tab:red",
    "20": "black",
}
TITLES = {"centroid_msd": "centroid", "individual_msd": "units' own models"}


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    return DRAWS[study](records)


def decibels(value: float | None) -> float:
    """10 log10 of a squared deviation; infinite where models diverged."""
    return np.inf if value is None else float(10 * np.log10(value))


def _values(records: Sequence[Record], axis: str) -> list[str]:
    """The places on an axis, in their order."""
    return list(dict.fromkeys(record[axis] for record in records))


def _at(records: Sequence[Record], **place: str) -> list[Record]:
    return [record for record in records if place.items() <= record.items()]


def _middle(records: Sequence[Record], key: str, shown: Callable[[Any], float]) -> tuple[list[int], list[float]]:
    """(rounds, median over the seeds that have a curve) of a measure."""
    curves = [record["curve"] for record in records if "curve" in record]
    looks = list(zip(*curves, strict=False))  # what diverged ends early
    return [rows[0]["round"] for rows in looks], [statistics.median(shown(row[key]) for row in rows) for rows in looks]


def _over_rounds(records: Sequence[Record]) -> Any:
    """Deviations over rounds, a line a noise; a column a measure, a row a graph."""
    graphs = _values(records, "graph")
    size = (9.4, 3.2 * len(graphs) + 0.4)
    figure, axes = plt.subplots(len(graphs), 2, figsize=size, sharex=True, sharey=True, layout="constrained")
    for row, graph in zip(axes, graphs, strict=True):
        for axis, (key, title) in zip(row, TITLES.items(), strict=True):
            for noise in _values(records, "noise"):
                rows = _at(records, graph=graph, noise=noise)
                axis.plot(*_middle(rows, key, decibels), color=COLORS[noise], label=noise)
            axis.set_title(f"{title} / {graph}", fontsize=10)
            axis.grid(alpha=0.3)
        row[0].set_ylabel("MSD in dB, median of 5 seeds")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), title="noise", loc="outside right upper")
    return figure


def _over_variance(records: Sequence[Record]) -> Any:
    """Steady-state deviations over the variance of the noise, a panel a measure; without noise a line across."""
    variances = [value for value in _values(_at(records, noise="random"), "variance")]
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.8), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for noise in _values(records, "noise"):
            if noise == "none":
                levels = [decibels(record["steady"][key]) for record in _at(records, noise=noise)]
                axis.axhline(statistics.median(levels), color=COLORS[noise], label=noise)
                continue
            found = [[decibels(r["steady"][key]) for r in _at(records, noise=noise, variance=v)] for v in variances]
            places = [float(value) for value in variances]
            axis.semilogx(places, [statistics.median(one) for one in found], "o-", color=COLORS[noise], label=noise)
        axis.set(title=title, xlabel="variance of the noise")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("steady-state MSD in dB")
    axes[0].legend(title="noise")
    return figure


def _over_steps(records: Sequence[Record]) -> Any:
    """The centroid's deviation over rounds, a line a step size, a panel a noise."""
    noises = _values(records, "noise")
    figure, axes = plt.subplots(1, len(noises), figsize=(10.4, 3.6), sharey=True, layout="constrained")
    for axis, noise in zip(axes, noises, strict=True):
        for mu in _values(records, "mu"):
            rows = _at(records, noise=noise, mu=mu)
            diverged = any(row["last_stable_round"] is not None for row in rows)
            label = f"{mu} (diverges)" if diverged else mu
            axis.plot(*_middle(rows, "centroid_msd", decibels), color=COLORS[mu], label=label)
        axis.set(title=noise, xlabel="round", ylim=(-50, 20))
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), title="mu", loc="outside right upper")
    axes[0].set_ylabel("MSD of the centroid in dB")
    return figure


def _errors(records: Sequence[Record]) -> Any:
    """The centroid's test error over rounds, a line a noise, a panel a data set."""
    problems = _values(records, "problem")
    size = (5.8 * len(problems), 3.8)
    figure, axes = plt.subplots(1, len(problems), figsize=size, layout="constrained", squeeze=False)
    for axis, problem in zip(axes[0], problems, strict=True):
        for noise in _values(records, "noise"):
            rows = _at(records, problem=problem, noise=noise)
            found = _middle(rows, "centroid_test_accuracy", lambda accuracy: 1 - accuracy)
            axis.plot(*found, color=COLORS[noise], label=noise)
        axis.set(title=problem, xlabel="round", ylabel="test error of the centroid", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(title="noise")
    return figure


def _states(records: Sequence[Record]) -> Any:
    """Steady-state deviations of every seed, a place a state."""
    states = _values(records, "state")
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.8), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for place, state in enumerate(states):
            found = [decibels(record["steady"][key]) for record in _at(records, state=state)]
            axis.plot([place] * len(found), found, "o", color=COLORS[state], alpha=0.4)
            axis.plot([place - 0.2, place + 0.2], [statistics.median(found)] * 2, color=COLORS[state])
        axis.set_xticks(range(len(states)), [state.replace(", ", ",\n") for state in states], fontsize=8)
        axis.set_title(title)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("steady-state MSD in dB")
    return figure


DRAWS: dict[str, Callable[[Sequence[Record]], Any]] = {
    "figure-2": _over_rounds,
    "figure-3": _over_variance,
    "figure-4": _over_steps,
    "figure-5": _errors,
    "guarantees": _states,
}
