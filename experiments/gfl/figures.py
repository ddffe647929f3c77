"""The studies as pictures."""

from __future__ import annotations

import re
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
    "at each receiver": "tab:orange",
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
STATES = {
    "hidden": "homomorphic, hidden",
    "random, same guarantee": "random, hidden, same guarantee",
    "released, same noise": "homomorphic, released, same noise",
    "released, same guarantee": "homomorphic, released, same guarantee",
}
CUT = 0.25
"""Of the seeds at either end of a band, where each is a single look: squares of a few numbers, often nearly 0."""
MIDDLE = "Lines: medians of {seeds} seeds; bands: the middle half of them"
WHOLE = "Lines: medians of {seeds} seeds; bands: the least to the most of them"
DOTS = "Dots: {seeds} seeds; bars: their medians"


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    return DRAWS[study](records)


def decibels(value: float | None) -> float:
    """10 log10 of a squared deviation; infinite where models diverged."""
    return np.inf if value is None else float(10 * np.log10(value))


def _level(key: str) -> Callable[[Record], float]:
    """A measure of a look, in decibels."""
    return lambda row: decibels(row[key])


def _values(records: Sequence[Record], axis: str) -> list[str]:
    """The places on an axis, in their order."""
    return list(dict.fromkeys(record[axis] for record in records))


def _at(records: Sequence[Record], **place: str) -> list[Record]:
    return [record for record in records if place.items() <= record.items()]


def _draw(axis: Any, records: Sequence[Record], shown: Callable[[Record], float], cut: float = 0, **style: Any) -> None:
    """A measure over rounds: the median over the seeds, in a band of them without ``cut`` of them at either end."""
    curves = [{row["round"]: shown(row) for row in record["curve"]} for record in records if "curve" in record]
    rounds = sorted(set.intersection(*map(set, curves)))  # runs that diverged end early, and are looked at more often
    values = [sorted(curve[one] for curve in curves) for one in rounds]
    axis.plot(rounds, [statistics.median(one) for one in values], **style)
    out = int(cut * len(curves))
    lows, highs = [one[out] for one in values], [one[-1 - out] for one in values]
    axis.fill_between(rounds, lows, highs, color=style["color"], alpha=0.13, lw=0)


def _label(name: str, records: Sequence[Record]) -> str:
    """The name, with what is proved of such runs with a noise secret: the least to the most of them."""
    proved = [record["epsilon"] for record in records]
    if None in proved:
        return f"{name} (guarantee: none)"
    ends = dict.fromkeys(_short(one) for one in (min(proved), max(proved)))
    deltas = {_short(record["delta"]) for record in records if record["delta"]}
    return f"{name} (epsilon {' to '.join(ends)}{''.join(f' at delta {one}' for one in deltas)})"


def _short(value: float) -> str:
    """Two digits, such as 2.6e4."""
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{value:.2g}")


def _note(figure: Any, records: Sequence[Record], shows: str, whose: str = "a unit's, against other units") -> None:
    """Notes on what the figure shows, and on what the runs guarantee."""
    seeds = len(_values(records, "seed"))
    proved = any(record["epsilon"] for record in records)
    ends = f";\nan epsilon is {whose}, in such a run with a noise secret" if proved else ""
    figure.supxlabel(
        f"{shows.format(seeds=seeds)}. Noise is reproducible, so these runs guarantee nothing{ends}. "
        "The paper prints no numbers.",
        fontsize=8,
    )


def _shortest(records: Sequence[Record]) -> list[Record]:
    """Runs that are not made for a longer time than the others."""
    return _at(records, length=_values(records, "length")[0])


def _over_rounds(records: Sequence[Record]) -> Any:
    """Deviations over rounds, a line a noise; a column a measure, a row a graph."""
    graphs, records = _values(records, "graph"), _shortest(records)
    size = (11.8, 3.2 * len(graphs) + 0.8)
    figure, axes = plt.subplots(len(graphs), 2, figsize=size, sharex=True, sharey=True, layout="constrained")
    for row, graph in zip(axes, graphs, strict=True):
        for axis, (key, title) in zip(row, TITLES.items(), strict=True):
            for noise in _values(records, "noise"):
                rows = _at(records, graph=graph, noise=noise)
                style = {"color": COLORS[noise], "label": _label(noise, rows)}
                _draw(axis, rows, _level(key), CUT, **style)
            axis.set_title(f"{title} / {graph}", fontsize=10)
            axis.grid(alpha=0.3)
        axis.legend(title=f"noise / {graph}", loc="upper left", bbox_to_anchor=(1.02, 1), fontsize=8)
        row[0].set_ylabel("MSD in dB")
    for axis in axes[-1]:
        axis.set_xlabel("round")
    _note(figure, records, MIDDLE)
    return figure


def _over_variance(records: Sequence[Record]) -> Any:
    """Steady-state deviations over the variance of the noise, a panel a measure; without noise a line across."""
    records = _shortest(records)
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 4.4), sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        _by_variance(axis, records, lambda record, key=key: decibels(record["steady"][key]))
        axis.set(title=title)
    axes[0].set_ylabel("steady-state MSD in dB")
    axes[0].legend(title="noise", fontsize=8)
    _note(figure, records, WHOLE, "a unit's, against other units (released: an agent's)")
    return figure


def _by_variance(axis: Any, records: Sequence[Record], level: Callable[[Record], float]) -> None:
    """Medians over the variance, in bands of all seeds, a line a noise; without noise a line across."""
    variances = _values(_at(records, noise="random"), "variance")
    for noise in _values(records, "noise"):
        rows, style = _at(records, noise=noise), {"color": COLORS[noise], "alpha": 0.13, "lw": 0}
        if noise == "none":
            levels = [level(record) for record in rows]
            axis.axhline(statistics.median(levels), color=COLORS[noise], label="none (guarantee: none)")
            axis.axhspan(min(levels), max(levels), **style)
            continue
        found = [[level(record) for record in _at(rows, variance=variance)] for variance in variances]
        places, middle = [float(value) for value in variances], [statistics.median(one) for one in found]
        axis.semilogx(places, middle, label=_label(noise, rows), color=COLORS[noise], marker="o")
        axis.fill_between(places, [min(one) for one in found], [max(one) for one in found], **style)
    axis.set(xlabel="variance of the noise")
    axis.grid(alpha=0.3)


def _levels_of_errors(records: Sequence[Record]) -> Any:
    """The centroid's test error in the steady state over the variance of the noise, a panel a data set."""
    problems = _values(records, "problem")
    figure, axes = plt.subplots(1, len(problems), figsize=(9.4, 4.4), layout="constrained")
    for axis, problem in zip(axes, problems, strict=True):
        rows = _at(records, problem=problem)
        _by_variance(axis, rows, lambda record: 100 * (1 - record["steady"]["centroid_test_accuracy"]))
        axis.set(title=problem, ylim=(0, None))
        axis.legend(title="noise", fontsize=8, loc="lower right")
    axes[0].set_ylabel("test errors of the centroid in percent")
    _note(figure, records, WHOLE)
    return figure


def _averaged(records: Sequence[Record]) -> Any:
    """The units' own models over rounds in which they average them after the run, a panel a variance."""
    variances = _values(records, "variance")
    figure, axes = plt.subplots(1, len(variances), figsize=(9.4, 4.4), sharey=True, layout="constrained")
    for axis, variance in zip(axes, variances, strict=True):
        for noise in _values(records, "noise"):
            rows = _at(records, noise=noise, **({} if noise == "none" else {"variance": variance}))
            curves = [[decibels(look["individual_msd"]) for look in record["curve"]] for record in rows]
            places, values = [look["averaged"] for look in rows[0]["curve"]], list(zip(*curves, strict=True))
            dashed = "--" if noise == "at each receiver" else "-"
            style = {"color": COLORS[noise], "label": noise, "marker": "o", "linestyle": dashed}
            axis.plot(places, [statistics.median(one) for one in values], **style)
            lows, highs = [min(one) for one in values], [max(one) for one in values]
            axis.fill_between(places, lows, highs, color=COLORS[noise], alpha=0.13, lw=0)
        axis.set(title=f"variance {variance}", xlabel="rounds of averaging models, after the run")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("MSD of the units' own models in dB")
    axes[-1].legend(title="noise (guarantee: none)", fontsize=8)
    _note(figure, records, WHOLE)
    return figure


def _over_steps(records: Sequence[Record]) -> Any:
    """The centroid's deviation over rounds, a line a step size, a panel a noise."""
    noises, records = _values(records, "noise"), _shortest(records)
    figure, axes = plt.subplots(1, len(noises), figsize=(10.4, 4.2), sharey=True, layout="constrained")
    for axis, noise in zip(axes, noises, strict=True):
        for mu in _values(records, "mu"):
            rows = _at(records, noise=noise, mu=mu)
            _draw(axis, rows, _level("centroid_msd"), CUT, color=COLORS[mu], label=_step(mu, records))
        # What diverges leaves the picture at once.
        axis.set(xlabel="round", ylim=(-60, 20))
        axis.set_title(_label(noise, _at(records, noise=noise)), fontsize=10)
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), title="mu", loc="outside right upper", fontsize=8)
    axes[0].set_ylabel("MSD of the centroid in dB")
    _note(figure, records, MIDDLE)
    return figure


def _step(mu: str, records: Sequence[Record]) -> str:
    """A step size, with whether its runs diverged, and its seeds where there are fewer."""
    rows = _at(records, mu=mu)
    seeds = len(_values(rows, "seed"))
    notes = [f"{seeds} seeds"] if seeds < len(_values(records, "seed")) else []
    notes += ["diverges"] if any(row["last_stable_round"] is not None for row in rows) else []
    return f"{mu} ({', '.join(notes)})" if notes else mu


def _errors(records: Sequence[Record]) -> Any:
    """The centroid's test error over rounds, a line a noise, a panel a data set."""
    problems, records = _values(records, "problem"), _shortest(records)
    size = (7.8 * len(problems), 4.4)
    figure, axes = plt.subplots(1, len(problems), figsize=size, layout="constrained", squeeze=False)
    for axis, problem in zip(axes[0], problems, strict=True):
        for noise in _values(records, "noise"):
            rows = _at(records, problem=problem, noise=noise)
            style = {"color": COLORS[noise], "label": _label(noise, rows)}
            _draw(axis, rows, lambda row: 100 * (1 - row["centroid_test_accuracy"]), **style)
        axis.set(title=problem, xlabel="round", ylabel="test errors of the centroid in percent", ylim=(0, None))
        axis.grid(alpha=0.3)
        axis.legend(title="noise", fontsize=8)
    _note(figure, records, WHOLE)
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
                label = _label(noise, _at(records, noise=noise)) if place == 0 else None
                axis.plot([x - 0.08, x + 0.08], [statistics.median(found)] * 2, color=COLORS[noise], label=label)
        axis.set_xticks(range(len(losses)), losses)
        axis.set_title(title)
        axis.grid(alpha=0.3, axis="y")
    axes[0].set_ylabel("steady-state MSD in dB")
    axes[0].legend(title="noise", fontsize=8)
    _note(figure, records, DOTS)
    return figure


def _states(records: Sequence[Record]) -> Any:
    """Steady-state deviations of every seed, a line a state."""
    states, records = _values(records, "state"), _shortest(records)
    figure, axes = plt.subplots(1, 2, figsize=(9.4, 3.8), sharex=True, sharey=True, layout="constrained")
    for axis, (key, title) in zip(axes, TITLES.items(), strict=True):
        for place, state in enumerate(states):
            found = [decibels(record["steady"][key]) for record in _at(records, state=state)]
            axis.plot(found, [place] * len(found), "o", color=COLORS[state], alpha=0.4)
            axis.plot([statistics.median(found)] * 2, [place - 0.25, place + 0.25], color=COLORS[state])
        axis.set(title=title, xlabel="steady-state MSD in dB")
        axis.grid(alpha=0.3)
    names = [_label(STATES.get(state, state), _at(records, state=state)).replace(" (", "\n(") for state in states]
    axes[0].set_yticks(range(len(states)), names, fontsize=8)
    axes[0].invert_yaxis()
    _note(figure, records, DOTS, "a unit's, against other units (released: an agent's)")
    return figure


DRAWS: dict[str, Callable[[Sequence[Record]], Any]] = {
    "figure-2": _over_rounds,
    "figure-3": _over_variance,
    "figure-4": _over_steps,
    "figure-5": _errors,
    "levels": _levels_of_errors,
    "consensus": _averaged,
    "guarantees": _states,
    "whole-loss": _levels,
}
