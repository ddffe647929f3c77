"""The studies as pictures."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.checks import seconds_to
from experiments.stored import Record

mpl.use("Agg")
from matplotlib import pyplot as plt

ACCURACY, LOSS = "mean_model_test_accuracy", "mean_model_test_loss"
OWN_ACCURACY, OWN_LOSS = "test_accuracy", "test_loss"
COLORS = {"allreduce": "tab:orange", "gossip": "tab:blue"}
TITLES = {
    "figure-2": "In each iteration a random node is 2 times slower",
    "figure-3": "One node is 10 times slower",
}
READINGS = {
    "clipped sum": "times the clip, on the sum of\nclipped gradients (as here)",
    "clipped batch": "on a clipped\nbatch",
    "sum": "absolute, on the sum,\nwithout a clip",
    "twice the rate": "the same, at\ntwice the rate",
    "mean": "on the\nmean",
}
NOTE = "Reproducible noise: these runs guarantee nothing."
REACHED = 0.85
EPOCHS = 6
"""Length of the shorter runs of Table 1, and of those of the LSTM."""


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    draws: dict[str, Callable[[Sequence[Record]], Any]] = {
        "table-1": _noise_levels,
        "table-2": _sizes,
        "figure-2": partial(_slow, "figure-2"),
        "figure-3": partial(_slow, "figure-3"),
        "figure-2-networks": partial(_both_models, "model", TITLES["figure-2"]),
        "figure-3-networks": partial(_both_models, "model", TITLES["figure-3"]),
        "figure-9": partial(_both_models, "scenario", "The LSTM at noise 0.16, on generated frames"),
        "figure-4": _doubled,
        "stragglers": _stragglers,
        "lstm": _frames,
        "sigma": _readings,
    }
    figure = draws[study](records)
    if study != "table-2":
        figure.supxlabel(f"{_seeds(records)}. {NOTE}", fontsize="small", color="gray")
    return figure


def _places(records: Sequence[Record], axis: str) -> list[str]:
    """Places on an axis, in order."""
    return list(dict.fromkeys(record[axis] for record in records))


def _noise_levels(records: Sequence[Record]) -> Any:
    """Final accuracy over noise levels, and accuracy over epochs, a column a model: medians, and least to most."""
    models, noises, length = _places(records, "model"), _places(records, "noise"), _places(records, "length")[0]
    figure, axes = plt.subplots(2, len(models), figsize=(3.4 * len(models), 7.4), sharey=True, layout="constrained")
    for (ends, curves), model in zip(axes.T, models, strict=True):
        ours = [record for record in records if record["model"] == model]
        _ends(ends, ours)
        _over_epochs(curves, [record for record in ours if record["length"] == length], noises)
        ends.set(title=model)
    for row in axes:
        row[0].set_ylabel("test accuracy of the mean model")
    handles = [axis.get_legend_handles_labels() for axis in axes[:, 0]]
    figure.legend(*map(sum, zip(*handles, strict=True), ([], [])), loc="outside upper center", ncols=4)
    return figure


def _ends(axis: Any, ours: Sequence[Record]) -> None:
    """Bars of a model's final accuracies over noise levels; marks of the longer runs."""
    noises, lengths = _places(ours, "noise"), _places(ours, "length")
    for shift, name in ((-0.2, "allreduce"), (0.2, "gossip")):
        places = np.arange(len(noises)) + shift
        by_noise = [_finals(ours, noise=noise, algorithm=name, length=lengths[0]) for noise in noises]
        _bars(axis, places, by_noise, name, f"{name}, {lengths[0]}")
        for length in lengths[1:]:
            longer = [_finals(ours, noise=noise, algorithm=name, length=length)[0] for noise in noises]
            axis.plot(places, longer, "k_", markersize=11, label=f"{length}, one seed" if shift > 0 else None)
    axis.set_xticks(range(len(noises)), [f"{noise}\n{_proved(ours, noise, lengths[0])}" for noise in noises])
    proves = f"the epsilon (delta 1e-5)\nthat {lengths[0]} would prove"
    axis.set(xlabel=f"noise multiplier, and {proves}", ylim=(0, 1))


def _bars(axis: Any, places: Any, found: Sequence[Sequence[float]], name: str, label: str) -> None:
    """Medians of what was ``found`` at each place, and the least to the most."""
    middle = [statistics.median(each) for each in found]
    spread = [[m - min(f) for m, f in zip(middle, found)], [max(f) - m for m, f in zip(middle, found)]]
    axis.bar(places, middle, 0.38, yerr=spread, capsize=2, color=COLORS[name], label=label)


def _finals(records: Sequence[Record], **place: str) -> list[float]:
    return [record["curve"][-1][ACCURACY] for record in records if place.items() <= record.items()]


def _proved(records: Sequence[Record], noise: str, length: str) -> str:
    """The largest epsilon of the runs with this noise."""
    found = [record["epsilon"] for record in records if (record["noise"], record["length"]) == (noise, length)]
    return "none" if None in found else f"{max(found):.2f}"


def _sizes(records: Sequence[Record]) -> Any:
    """Sizes here beside those published."""
    figure, axis = plt.subplots(figsize=(7, 3.8), layout="constrained")
    places = np.arange(len(records))
    for shift, key, label in ((-0.2, "published", "Table 2"), (0.2, "megabytes", "here")):
        axis.barh(places + shift, [record[key] for record in records], 0.38, label=label)
    for place, record in zip(places, records, strict=True):
        here = 4 * record["parameters"] / 2**20  # "megabytes" is rounded
        axis.text(record["published"], place, f"  {here:.2f} here, {record['off']:.2%} off", va="center")
    axis.set_yticks(places, [record["model"] for record in records])
    axis.set(xlabel="MB (of 2^20 bytes) in float32", xlim=(0, 240))
    axis.invert_yaxis()
    axis.legend(loc="upper right")
    return figure


def _over_epochs(axis: Any, ours: Sequence[Record], noises: Sequence[str]) -> None:
    """A model's accuracy over epochs, a colour a noise level: the median of the seeds, and least to most."""
    for noise in _places(ours, "noise"):
        for name, line in (("allreduce", "--"), ("gossip", "-")):
            place = {"noise": noise, "algorithm": name}
            curves = [_looks(record, "updates") for record in ours if place.items() <= record.items()]
            epochs = [EPOCHS * row["updates"] / curves[0][-1]["updates"] for row in curves[0]]
            found = [[row[ACCURACY] for row in rows] for rows in zip(*curves, strict=True)]
            color, label = f"C{noises.index(noise) + 2}", f"{name}, noise {noise}"
            axis.plot(epochs, [statistics.median(each) for each in found], line, color=color, label=label)
            axis.fill_between(epochs, [*map(min, found)], [*map(max, found)], color=color, alpha=0.12, lw=0)
    axis.set(xlabel="epochs", ylim=(0, 1))
    axis.grid(alpha=0.3)


def _frames(records: Sequence[Record]) -> Any:
    """Loss over epochs, a panel a setting."""
    settings = _places(records, "setting")
    figure, axes = plt.subplots(1, len(settings), figsize=(13, 3.6), sharey=True, layout="constrained")
    for axis, setting in zip(axes, settings, strict=True):
        shown = [record for record in records if record["setting"] == setting]
        _curves(axis, shown, "updates", EPOCHS, LOSS)
        axis.set(title=setting.replace(", ", ",\n"), xlabel="epochs", ylim=(0, None))
    axes[0].set_ylabel("held-out loss of the mean model (nats)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _slow(study: str, records: Sequence[Record]) -> Any:
    """Accuracy over updates and over virtual time, a row a length."""
    lengths = _places(records, "length")
    figure, axes = plt.subplots(
        len(lengths), 2, figsize=(9, 3.4 * len(lengths)), sharey=True, squeeze=False, layout="constrained"
    )
    for row, length in zip(axes, lengths, strict=True):
        shown = [record for record in records if record["length"] == length]
        for axis, key, label in zip(
            row, ("updates", "virtual_seconds"), ("updates, all nodes together", "virtual seconds"), strict=True
        ):
            _curves(axis, shown, key)
            few = ", one seed" if _seeds(shown) == "one seed" else ""
            axis.set(title=f"{length}{few}", xlabel=label, ylim=(0, 1))
        row[0].set_ylabel("test accuracy of the mean model")
    axes[0][1].legend(loc="lower right")
    figure.suptitle(TITLES[study])
    return figure


def _both_models(axis: str, title: str, records: Sequence[Record]) -> Any:
    """Nodes' own models and their mean over updates and over virtual time, a row a place: accuracies, or losses."""
    places, of_loss = _places(records, axis), LOSS in records[0]["curve"][0]
    mean, own = (LOSS, OWN_LOSS) if of_loss else (ACCURACY, OWN_ACCURACY)
    figure, axes = plt.subplots(len(places), 2, figsize=(9, 3.4 * len(places)), squeeze=False, layout="constrained")
    for row, place in zip(axes, places, strict=True):
        shown = [record for record in records if record[axis] == place]
        gossip = [record for record in shown if record["algorithm"] == "gossip"]
        times = (("updates", "updates, all nodes together"), ("virtual_seconds", "virtual seconds"))
        for panel, (key, label) in zip(row, times, strict=True):
            _curves(panel, shown, key, quantity=mean)
            _curves(panel, gossip, key, quantity=own, line="--", named="gossip, nodes' own models")
            noise = f", noise {shown[0]['noise']}" if "noise" in shown[0] else ""
            panel.set(title=f"{place}{noise}", xlabel=label, ylim=(0, None if of_loss else 1))
        row[0].set_ylabel("held-out loss (nats)" if of_loss else "test accuracy")
    axes[0][1].legend(loc="upper right" if of_loss else "lower right")
    figure.suptitle(title)
    return figure


def _readings(records: Sequence[Record]) -> Any:
    """Accuracy at the end over noise, a panel a reading of sigma: medians, and the least to the most."""
    by_panel: dict[str, list[str]] = {}
    for reading in _places(records, "reading"):
        by_panel.setdefault(reading.partition(", noise ")[0], []).append(reading)
    widths = [len(readings) for readings in by_panel.values()]
    figure, axes = plt.subplots(
        1, len(by_panel), figsize=(10, 3.8), sharey=True, layout="constrained", width_ratios=widths
    )
    for panel, (named, readings) in zip(np.atleast_1d(axes), by_panel.items(), strict=True):
        for shift, name in ((-0.2, "allreduce"), (0.2, "gossip")):
            found = [_finals(records, reading=reading, algorithm=name) for reading in readings]
            middle = [statistics.median(each) for each in found]
            spread = [[m - min(f) for m, f in zip(middle, found)], [max(f) - m for m, f in zip(middle, found)]]
            panel.bar(
                np.arange(len(readings)) + shift, middle, 0.38, yerr=spread, capsize=2, color=COLORS[name], label=name
            )
        panel.set_xticks(range(len(readings)), [reading.partition(", noise ")[2] for reading in readings])
        panel.set(title=READINGS[named], xlabel="sigma", ylim=(0, 1))
    np.atleast_1d(axes)[0].set_ylabel("test accuracy of the mean model")
    figure.legend(*np.atleast_1d(axes)[0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    return figure


def _doubled(records: Sequence[Record]) -> Any:
    """Accuracy over epochs, before and after doubling batch size and learning rate."""
    sizes, lengths = _places(records, "size"), _places(records, "length")
    figure, axes = plt.subplots(
        len(lengths), len(sizes), figsize=(9, 3.2 * len(lengths)), sharey=True, layout="constrained"
    )
    for row, length in zip(np.atleast_2d(axes), lengths, strict=True):
        for axis, size in zip(row, sizes, strict=True):
            shown = [record for record in records if (record["size"], record["length"]) == (size, length)]
            _curves(axis, shown, "updates", float(length.split()[0]))
            few = ", one seed" if _seeds(shown) == "one seed" else ""
            axis.set(title=f"{size}; {length}{few}", xlabel="epochs", ylim=(0, 1))
        row[0].set_ylabel("test accuracy of the mean model")
    figure.suptitle("Batch size and learning rate")
    np.atleast_2d(axes)[0][1].legend(loc="lower right")
    return figure


def _stragglers(records: Sequence[Record]) -> Any:
    """Virtual seconds to an accuracy, and accuracy over virtual seconds with the slowest straggler."""
    factors = _places(records, "slower")
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    for name, colour in COLORS.items():
        by_factor = [
            [seconds_to(REACHED)(r) for r in records if (r["slower"], r["algorithm"]) == (factor, name)]
            for factor in factors
        ]
        places = [float(factor) for factor in factors]
        left.plot(places, [statistics.median(seconds) for seconds in by_factor], "o-", color=colour, label=name)
        left.fill_between(places, [min(s) for s in by_factor], [max(s) for s in by_factor], color=colour, alpha=0.2)
    ticks = [float(factor) for factor in factors]
    left.set(xscale="log", yscale="log", xlabel="one of eight nodes is so many times slower")
    left.set(ylabel=f"virtual seconds to an accuracy of {REACHED}")
    left.set_xticks(ticks, factors)
    left.minorticks_off()
    _curves(right, [record for record in records if record["slower"] == factors[-1]], "virtual_seconds")
    right.set(xscale="log", xlabel="virtual seconds", ylabel="test accuracy of the mean model")
    right.set_title(f"{factors[-1]} times slower")
    for axis in (left, right):
        axis.grid(alpha=0.3)
    left.legend()
    return figure


def _seeds(records: Sequence[Record]) -> str:
    """How many seeds there are, in words."""
    count = len(_places(records, "seed"))
    return "one seed" if count == 1 else f"{count} seeds: median, least to most"


def _looks(record: Record, key: str) -> list[dict[str, float]]:
    """Evaluations of a run, the last at each place: all-reduce counts updates before it averages them."""
    return list({row[key]: row for row in record["curve"]}.values())


def _curves(
    axis: Any,
    records: Sequence[Record],
    key: str,
    epochs: float | None = None,
    quantity: str = ACCURACY,
    line: str = "-",
    named: str = "",
) -> None:
    """The median over the seeds, and the least to the most; over epochs where so many are the whole run."""
    for name in _places(records, "algorithm"):
        curves = [_looks(record, key) for record in records if record["algorithm"] == name]
        looks = range(min(len(curve) for curve in curves))
        scale = 1.0 if epochs is None else epochs / curves[0][-1][key]
        places = [scale * statistics.median(curve[look][key] for curve in curves) for look in looks]
        values = [[curve[look][quantity] for curve in curves] for look in looks]
        middle = [statistics.median(found) for found in values]
        axis.plot(places, middle, line, color=COLORS[name], label=named or name)
        axis.fill_between(places, [min(v) for v in values], [max(v) for v in values], color=COLORS[name], alpha=0.2)
    axis.grid(alpha=0.3)
