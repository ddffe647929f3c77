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
    "random, literal": "tab:brown",
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


def _draw(axis: Any, records: Sequence[Record], key: str, shown: Callable[[Any], float], **style: Any) -> None:
    """A measure over rounds: the median over the seeds, in a band from the least to the most of them."""
    curves = [record["curve"] for record in records if "curve" in record]
    looks = list(zip(*curves, strict=False))  # what diverged ends early
    rounds = [rows[0]["round"] for rows in looks]
    values = [[shown(row[key]) for row in rows] for rows in looks]
    axis.plot(rounds, [statistics.median(one) for one in values], **style)
    axis.fill_between(
        rounds, [min(one) for one in values], [max(one) for one in values], color=style["color"], alpha=0.13, lw=0
    )


def _label(name: str, records: Sequence[Record]) -> str:
    """The name, with what is proved of such a run with a noise secret."""
    proved = [record["epsilon"] for record in records]
    return f"{name} (guarantee: none)" if None in proved else f"{name} (epsilon {statistics.median(proved):.2g})"


def _note(figure: Any, records: Sequence[Record]) -> None:
    """Notes on what bands are, and on what the runs guarantee."""
    seeds = len(_values(records, "seed"))
    figure.supxlabel(
        f"Lines: medians of {seeds} seeds; bands: the least to the most of them. Noise is reproducible, so these runs\n"
        "guarantee nothing; an epsilon is a unit's in such a run with a noise secret. The paper prints no numbers.",
        fontsize=8,
    )


def _shortest(records: Sequence[Record]) -> list[Record]:
    """Runs that are not made for a longer time than the others."""
    return _at(records, length=_values(records, "length")[0])


def _over_rounds(records: Sequence[Record]) -> Any:
    """Deviations over rounds, a line a noise; a column a measure, a row a graph."""
    graphs, records = _values(records, "graph"), _shortest(records)
    size = (11.4, 3.2 * len(graphs) + 0.8)
    figure, axes = plt.subplots(len(graphs), 2, figsize=size, sharex=True, sharey=True, layout="constrained")
    for row, graph in zip(axes, graphs, strict=True):
        for axis, (key, title) in zip(row, TITLES.items(), strict=True):
            for noise in _values(records, "noise"):
                rows = _at(records, graph=graph, noise=noise)
                _draw(axis, rows, key, decibels, color=COLORS[noise], label=_label(noise, rows))
            axis.set_title(f"{title} / {graph}", fontsize=10)
            axis.grid(alpha=0.3)
        row[0].set_ylabel("MSD in dB")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), title="noise", loc="outside right upper", fontsize=8)
    _note(figure, records)
    return figure


def _over_variance(records: Sequence[Record]) -> Any:
    """Steady-state deviations over the variance of the noise, a panel a measure; without noise a line across."""
    records = _shortest(records)
    variances = _values(_at(records, noise="random"), "variance")
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for noise in _values(records, "noise"):
            if noise == "none":
                levels = [decibels(record["steady"][key]) for record in _at(records, noise=noise)]
                axis.axhline(statistics.median(levels), color=COLORS[noise], label="none (guarantee: none)")
                axis.axhspan(min(levels), max(levels), color=COLORS[noise], alpha=0.13, lw=0)
                continue
            found = [[decibels(r["steady"][key]) for r in _at(records, noise=noise, variance=v)] for v in variances]
            places = [float(value) for value in variances]
            axis.semilogx(places, [statistics.median(one) for one in found], "o-", color=COLORS[noise], label=noise)
            axis.fill_between(
                places, [min(one) for one in found], [max(one) for one in found], color=COLORS[noise], alpha=0.13, lw=0
            )
        axis.set(title=title, xlabel="variance of the noise")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("steady-state MSD in dB")
    axes[0].legend(title="noise", fontsize=8)
    _note(figure, records)
    return figure


def _over_steps(records: Sequence[Record]) -> Any:
    """The centroid's deviation over rounds, a line a step size, a panel a noise."""
    noises, records = _values(records, "noise"), _shortest(records)
    figure, axes = plt.subplots(1, len(noises), figsize=(10.4, 4.2), sharey=True, layout="constrained")
    for axis, noise in zip(axes, noises, strict=True):
        for mu in _values(records, "mu"):
            rows = _at(records, noise=noise, mu=mu)
            diverged = any(row["last_stable_round"] is not None for row in rows)
            label = f"{mu} (diverges)" if diverged else mu
            _draw(axis, rows, "centroid_msd", decibels, color=COLORS[mu], label=label)
        # Steps differ 50 times, and so do the rounds that they take.
        axis.set(title=f"{noise} (guarantee: none)", xlabel="round", ylim=(-55, 20), xscale="log")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), title="mu", loc="outside right upper")
    axes[0].set_ylabel("MSD of the centroid in dB")
    _note(figure, records)
    return figure


def _errors(records: Sequence[Record]) -> Any:
    """The centroid's test error over rounds, a line a noise, a panel a data set."""
    problems, records = _values(records, "problem"), _shortest(records)
    size = (7.8 * len(problems), 4.4)
    figure, axes = plt.subplots(1, len(problems), figsize=size, layout="constrained", squeeze=False)
    for axis, problem in zip(axes[0], problems, strict=True):
        for noise in _values(records, "noise"):
            rows = _at(records, problem=problem, noise=noise)
            style = {"color": COLORS[noise], "label": _label(noise, rows)}
            _draw(axis, rows, "centroid_test_accuracy", lambda accuracy: 1 - accuracy, **style)
        axis.set(title=problem, xlabel="round", ylabel="test error of the centroid", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(title="noise", fontsize=8)
    _note(figure, records)
    return figure


def _levels(records: Sequence[Record]) -> Any:
    """Steady-state deviations of every seed with the whole loss and with half of it, a place a loss and a noise."""
    records = _shortest(records)
    losses, noises = _values(records, "loss"), _values(records, "noise")
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for shift, noise in enumerate(noises):
            for place, loss in enumerate(losses):
                rows = _at(records, loss=loss, noise=noise)
                found, x = [decibels(record["steady"][key]) for record in rows], place + 0.2 * (shift - 1)
                axis.plot([x] * len(found), found, "o", color=COLORS[noise], alpha=0.4)
                label = _label(noise, rows) if place == 0 else None
                axis.plot([x - 0.08, x + 0.08], [statistics.median(found)] * 2, color=COLORS[noise], label=label)
        axis.set_xticks(range(len(losses)), losses)
        axis.set_title(title)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("steady-state MSD in dB")
    axes[0].legend(fontsize=8)
    _note(figure, records)
    return figure


def _states(records: Sequence[Record]) -> Any:
    """Steady-state deviations of every seed, a place a state."""
    states, records = _values(records, "state"), _shortest(records)
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for place, state in enumerate(states):
            found = [decibels(record["steady"][key]) for record in _at(records, state=state)]
            axis.plot([place] * len(found), found, "o", color=COLORS[state], alpha=0.4)
            axis.plot([place - 0.2, place + 0.2], [statistics.median(found)] * 2, color=COLORS[state])
        names = [_label(state, _at(records, state=state)).replace(", ", ",\n").replace(" (", "\n(") for state in states]
        axis.set_xticks(range(len(states)), names, fontsize=7)
        axis.set_title(title)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("steady-state MSD in dB")
    _note(figure, records)
    return figure


DRAWS: dict[str, Callable[[Sequence[Record]], Any]] = {
    "figure-2": _over_rounds,
    "figure-3": _over_variance,
    "figure-4": _over_steps,
    "figure-5": _errors,
    "guarantees": _states,
    "whole-loss": _levels,
}
