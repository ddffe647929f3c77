"""The studies as pictures."""

from __future__ import annotations

import base64
import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.drawn import NOTE

mpl.use("Agg")
from matplotlib import pyplot as plt

Record = dict[str, Any]
ACCURACY = "mean_model_test_accuracy"
COLORS = {
    "mapa": "tab:blue",
    "audp": "tab:orange",
    "asgd": "tab:green",
    "csgd": "black",
    "quantile": "tab:red",
    "fixed, right": "tab:orange",
    "fixed, 10 times too small": "tab:olive",
    "fixed, 10 times too large": "tab:brown",
    "fixed, 100 times too large": "tab:gray",
}
NOTHING = 0.15
"""Accuracy of a model of ten classes that has learnt nothing, or a little more."""
NO_GUARANTEE = "Guarantee: none"
"""Of noise whose norm is exponential, or on one layer alone."""
MARKERS = ("o", "s", "^")
LINES = ("-", "--", ":")


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    draws: dict[str, Callable[[Sequence[Record]], Any]] = {
        "figure-4": _recovered,
        "figure-5": _norms,
        "figure-6": _levels,
        "figure-7": _iterations,
        "figure-7-testbed": _iterations,
        "figure-8": _testbed,
        "figure-9": _parameters,
    }
    return draws.get(study, _policies)(records)


def encoded(picture: Any, low: float | None = None, high: float | None = None) -> str:
    """A picture [1, height, width] as text: bytes from 0 (``low``, by default its least value) to 255 (``high``)."""
    low, high = float(picture.min()) if low is None else low, float(picture.max()) if high is None else high
    grey = np.clip((picture - low) / (high - low), 0, 1) if high > low else np.zeros_like(picture)
    return base64.b64encode(np.round(255 * grey).astype(np.uint8).tobytes()).decode()


def _decoded(text: str) -> Any:
    grey = np.frombuffer(base64.b64decode(text), np.uint8)
    return grey.reshape(round(len(grey) ** 0.5), -1)


def _values(records: Sequence[Record], axis: str) -> list[str]:
    """The places on an axis, in their order."""
    return list(dict.fromkeys(record[axis] for record in records))


def _final(record: Record) -> float:
    return float(record["curve"][-1][ACCURACY])


def _recovered(records: Sequence[Record]) -> Any:
    """A row a level of noise, a block of columns a model: pictures of one seed, and the median SSIM of all."""
    models, shown, seed = _values(records, "model"), len(records[0]["pictures"]), records[0]["seed"]
    first = [r for r in records if r["seed"] == seed]
    rows = [("original", [pictures for r in first if r["norm"] == "none" for pictures in r["originals"]], [])]
    for norm, level in dict.fromkeys((r["norm"], r["release_epsilon"]) for r in records):
        here = [r for r in records if (r["norm"], r["release_epsilon"]) == (norm, level)]
        label = "no noise" if norm == "none" else f"{norm} norm\nepsilon {level}"
        middles = [statistics.median(r["ssim"] for r in here if r["model"] == model) for model in models]
        rows.append((label, [text for r in here if r["seed"] == seed for text in r["pictures"]], middles))
    figure, axes = plt.subplots(len(rows), shown * len(models), figsize=(6.2, 7.4), layout="constrained")
    for line, (label, pictures, similarities) in zip(axes, rows, strict=True):
        for axis, text in zip(line, pictures, strict=True):
            axis.imshow(_decoded(text), cmap="gray")
            axis.set(xticks=[], yticks=[])
        line[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
        for number, similarity in enumerate(similarities):
            line[number * shown].set_title(f"SSIM {similarity:.2f}", loc="left", fontsize=8, pad=2)
    for number, model in enumerate(models):
        axes[0, number * shown].set_title(model.upper(), loc="left")
    said = "Digits of one seed; SSIM of 50, median of the seeds"
    figure.suptitle(f"{said}.\nNo guarantee with the exponential norm, nor without noise", fontsize=9)
    return figure


PUBLISHED = ", published step"


def _norms(records: Sequence[Record]) -> Any:
    """Gradient norm over updates, a panel an algorithm: the median of the seeds, and the least to the most."""
    panels = {
        "asgd, no noise": ["asgd"],
        "audp": [name for name in _values(records, "algorithm") if name.startswith("audp") and PUBLISHED not in name],
        f"audp{PUBLISHED}": [name for name in _values(records, "algorithm") if PUBLISHED in name],
        "mapa": [name for name in _values(records, "algorithm") if name.startswith("mapa")],
    }
    figure, axes = plt.subplots(1, len(panels), figsize=(12, 3.8), sharey=True, layout="constrained")
    for axis, (title, names) in zip(axes, panels.items(), strict=True):
        for style, name in zip(LINES, names, strict=False):
            curves = [record["curve"] for record in records if record["algorithm"] == name]
            places = [row["updates"] for row in curves[0]]
            norms = [[curve[look]["gradient_norm"] for curve in curves] for look in range(len(places))]
            color, label = COLORS[name.split()[0]], name.removesuffix(PUBLISHED).partition(" ")[2]
            axis.semilogy(
                places, [statistics.median(found) for found in norms], style, color=color, label=label or None
            )
            axis.fill_between(places, [min(n) for n in norms], [max(n) for n in norms], color=color, alpha=0.15, lw=0)
        axis.set(title=title, xlabel="updates")
        axis.grid(alpha=0.3, which="both")
        if len(names) > 1:
            said, corner = ("first clip", "upper right") if title == "mapa" else ("clip", "lower left")
            axis.legend(title=said, loc=corner, fontsize=8, title_fontsize=8)
    axes[0].set_ylabel("norm of the mean training gradient")
    axes[0].set_yticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    said = f'LR, USPS, 100 edges, "epsilon" 0.1 of a release: median and range of the seeds. {NO_GUARANTEE}'
    figure.suptitle(said, fontsize=10)
    return figure


def _levels(records: Sequence[Record]) -> Any:
    """Accuracy over the epsilon of a release, a panel a problem; of runs of the ordinary length."""
    records = [r for r in records if r["length"] != "twice"]
    problems = _values(records, "problem")
    models, sets = (list(dict.fromkeys(p.split()[part] for p in problems)) for part in (0, 1))
    figure, axes = plt.subplots(
        len(sets), len(models), figsize=(10, 6.4), sharex=True, layout="constrained", squeeze=False
    )
    for problem in problems:
        model, dataset = problem.split()
        axis = axes[sets.index(dataset), models.index(model)]
        here = [r for r in records if r["problem"] == problem]
        for algorithm in _values(here, "algorithm"):
            _level(axis, algorithm, [r for r in here if r["algorithm"] == algorithm])
        axis.set_title(f"{model.upper()}, {dataset.upper()}")
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel('"epsilon" of a release')
    for axis in axes[:, 0]:
        axis.set_ylabel("test accuracy")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.suptitle(f"5 edges: median and range of the seeds. {NO_GUARANTEE}", fontsize=10)
    return figure


def _level(axis: Any, algorithm: str, rows: Sequence[Record]) -> None:
    """One algorithm's accuracy over epsilon; a line across where there is no noise."""
    name, _, bound = algorithm.removesuffix(PUBLISHED).partition(" ")
    if not bound:
        style, middle = "-." if name == "asgd" else ":", statistics.median(_final(row) for row in rows)
        axis.axhline(middle, color=COLORS[name], linestyle=style, label=f"{name}, no noise")
        return
    levels = _values(rows, "release_epsilon")
    found = [[_final(row) for row in rows if row["release_epsilon"] == level] for level in levels]
    middles = [statistics.median(finals) for finals in found]
    spread = [[m - min(f) for m, f in zip(middles, found)], [max(f) - m for m, f in zip(middles, found)]]
    line, marker = dict(zip(("10", "100", "200"), zip(LINES, MARKERS, strict=True), strict=True))[bound]
    published = algorithm.endswith(PUBLISHED)
    color, shift = ("tab:purple", 0.006) if published else (COLORS[name], -0.006 if name == "mapa" else 0)
    label = f"{name}, {'first clip' if name == 'mapa' else 'clip'} {bound}{algorithm[len(f'{name} {bound}') :]}"
    places = [float(level) + shift for level in levels]  # a little beside each other
    axis.errorbar(places, middles, spread, ls=line, marker=marker, capsize=2, color=color, label=label)


def _iterations(records: Sequence[Record]) -> Any:
    """Updates to a threshold over the number of edges; what never got there has an arrow up from where it ended."""
    constants = "Constants of the testbed's code, " * ("length" in records[0])
    panels = list(dict.fromkeys((r["problem"], text) for r in records for text in r["iterations_to"]))
    edges = sorted({int(r["edges"]) for r in records})
    top = max(map(_length, records))
    names = _values(records, "algorithm")
    figure, axes = plt.subplots(1, len(panels), figsize=(11.5, 4.3), sharey=True, layout="constrained")
    for axis, (problem, text) in zip(axes, panels, strict=True):
        for number, name in enumerate(names):
            rows = [r for r in records if (r["problem"], r["algorithm"]) == (problem, name)]
            _reached(axis, rows, text, name, 1.08 ** (number - (len(names) - 1) / 2))
        _stated(axis, [r for r in records if (r["problem"], r["algorithm"]) == (problem, "mapa")], text)
        axis.set(xscale="log", yscale="log", xlabel="edges", title=f"{problem.upper()}\nloss below {text}")
        axis.set(ylim=(300, top * 1.6))
        axis.set_xlim(edges[0] / 1.6, 1.6 * edges[-1])
        axis.set_xticks(edges, [f"{number:,}" for number in edges])
        heights = [height for height in (400, 1000, 4000, 10_000, 40_000) if height <= top]
        axis.set_yticks(heights, [f"{height:,}" for height in heights])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("updates of the server")
    shown = {label: drawn for axis in axes for drawn, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=len(shown))
    said = f'{constants}"epsilon" 0.1 of a release: median and range of the seeds'
    figure.suptitle(f"{said}; arrows: not reached in so many updates. {NO_GUARANTEE}", fontsize=10)
    return figure


def _length(record: Record) -> int:
    return int(record["curve"][-1]["updates"])


def _reached(axis: Any, rows: Sequence[Record], text: str, name: str, shift: float) -> None:
    """One algorithm's medians and range over the seeds, a little beside the others'."""
    color = "tab:purple" if name.endswith(PUBLISHED) else COLORS[name]
    places = list(dict.fromkeys(r["edges"] for r in rows))
    found = [sorted(r["iterations_to"][text] or math.inf for r in rows if r["edges"] == place) for place in places]
    ends = [max(_length(r) for r in rows if r["edges"] == place) for place in places]
    if name == "csgd":
        axis.axhline(statistics.median(found[0]), color=color, linestyle=":", label="csgd (one node)")
        return
    at = [shift * int(place) for place in places]
    capped = [[min(updates, end) for updates in each] for each, end in zip(found, ends, strict=True)]
    middles = [statistics.median(updates) for updates in capped]
    spread = [[m - u[0] for m, u in zip(middles, capped)], [u[-1] - m for m, u in zip(middles, capped)]]
    axis.errorbar(at, middles, spread, color=color, alpha=0.7, label=name, marker="o", capsize=2)
    beyond = [(x, end) for x, each, end in zip(at, found, ends, strict=True) if math.isinf(statistics.median(each))]
    for place, end in beyond:
        axis.plot(place, end, "^", color=color, markerfacecolor="white", markersize=9, zorder=3)


def _stated(axis: Any, rows: Sequence[Record], text: str) -> None:
    """AUDP's updates as the paper states them, 10 to 100 times MAPA's with 10 and 100 edges."""
    for number in ("10", "100"):
        found = [r["iterations_to"][text] for r in rows if r["edges"] == number]
        if found and None not in found:
            middle, place = statistics.median(found), 1.25 * int(number)
            label = "the paper: audp, 10 to 100 times mapa's" if number == "10" else None
            axis.plot([place, place], [10 * middle, 100 * middle], color=COLORS["audp"], lw=7, alpha=0.3, label=label)


def _testbed(records: Sequence[Record]) -> Any:
    """Accuracy over updates, of simulations and (dashed) processes, and over these' seconds; by number of edges."""
    edges = _values(records, "edges")
    figure, axes = plt.subplots(2, len(edges), figsize=(11, 6.4), sharey=True, layout="constrained")
    for (over, clock), number in zip(axes.T, edges, strict=True):
        for name in _values(records, "algorithm"):
            own = edges[0] if name == "csgd" else number  # centralised, it is the same beside any number of edges
            rows = [r for r in records if (r["algorithm"], r["edges"]) == (name, own)]
            color = "tab:red" if name.endswith("best clip") else COLORS[name]
            simulated = [r["curve"] for r in rows if r["world"] == "simulation"]
            updates = [row["updates"] for row in simulated[0]]
            looks = [[row[ACCURACY] for row in at] for at in zip(*simulated)]
            over.plot(updates, [statistics.median(found) for found in looks], color=color, label=_NAMES.get(name, name))
            over.fill_between(
                updates, *([pick(f) for f in looks] for pick in (min, max)), color=color, alpha=0.15, lw=0
            )
            for curve in (r["curve"] for r in rows if r["world"] == "testbed"):
                heights = [row[ACCURACY] for row in curve]
                over.plot([row["updates"] for row in curve], heights, "--", color=color)
                clock.plot([row["wall_seconds"] for row in curve], heights, "--", color=color)
        over.set(title=f"{number} edges", xlabel="updates of the server", ylim=(0, 1))
        clock.set(xlabel="seconds of the testbed")
        clock.set_visible(bool(clock.lines))
        for axis in (over, clock):
            axis.grid(alpha=0.3)
            axis.set_ylabel("test accuracy" if number == edges[0] else None)
    figure.legend(*axes[0, -1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    said = "dashed: one run by processes over a broker"
    figure.suptitle(
        f'CNN, MNIST, "epsilon" 1 of a release on the first layer. {NO_GUARANTEE}\n'
        f"Lines: simulated, median and range of the seeds; {said}",
        fontsize=10,
    )
    return figure


_NAMES = {
    "audp": "audp, clip of the testbed's code",
    "asgd": "asgd, no noise",
    "csgd": "csgd, no noise (one node)",
}


def _parameters(records: Sequence[Record]) -> Any:
    """Bars with the range of the seeds, a group a parameter, the default where it belongs; diamonds of longer runs."""
    lengths = _values(records, "length")
    usual = {"epsilon": "0.1", "b": "64", "s": "4.54", "L": "6.53", "kappa": "0.1", "rho": "0.5"}
    figure, axes = plt.subplots(1, len(usual), figsize=(11, 3.6), sharey=True, layout="constrained")
    for axis, (name, at) in zip(axes, usual.items(), strict=True):
        values = {value for r in records for key, _, value in [r["varied"].partition(" ")] if key == name} | {at}
        for value in sorted(values, key=float):
            varied = "default" if value == at else f"{name} {value}"
            here = [r for r in records if r["varied"] == varied]
            finals = [_final(r) for r in here if r["length"] == lengths[0]]
            middle = statistics.median(finals)
            color, ink = ("lightsteelblue", "black") if value == at else (COLORS["mapa"], "white")
            spread = [[middle - min(finals)], [max(finals) - middle]]
            drawn = axis.bar([value], [middle], yerr=spread, color=color, capsize=3)
            axis.bar_label(drawn, [f"{middle:.2f}"], fontsize=8, label_type="center", color=ink)
            longer = [_final(r) for r in here if r["length"] != lengths[0]]
            axis.plot([value] * len(longer), longer, "D", color="black", ms=5)
        axis.set(xlabel='"epsilon"' if name == "epsilon" else name, ylim=(0, 1))
    axes[0].set_ylabel("test accuracy")
    longest = f"; diamonds: one seed, {lengths[1]} updates" if len(lengths) > 1 else ""
    bars = f"bars: {lengths[0]} updates, median and range of the seeds{longest}"
    title = f"MAPA, CNN, MNIST: one parameter varied at a time (light: the default). {NO_GUARANTEE}"
    figure.suptitle(f"{title}\n{bars}", fontsize=10)
    return figure


def _policies(records: Sequence[Record]) -> Any:
    """Accuracy over the budget, a panel a model, and one more without what learns nothing, where there is that."""
    panels = []
    for model in dict.fromkeys(record.get("model", "cnn") for record in records):
        here = [r for r in records if r.get("model", "cnn") == model]
        learning = [r for r in here if _final(r) > NOTHING]
        panels += [(model.upper(), here)] + [(f"{model.upper()}, magnified", learning)] * (len(learning) < len(here))
    figure, axes = plt.subplots(1, len(panels), figsize=(11, 4.2), layout="constrained", squeeze=False)
    for axis, (title, rows) in zip(axes[0], panels, strict=True):
        policies = _values(rows, "policy")
        for number, policy in enumerate(policies):
            _policy(axis, [r for r in rows if r["policy"] == policy], policy, 1.03 ** (number - len(policies) / 2))
        axis.set(xscale="log", xlabel="proved epsilon (delta 1e-5)", title=title)
        axis.set_xticks([1, 2, 8], ["1", "2", "8"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("test accuracy: median and range of the seeds")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), title="clip", loc="outside right center")
    figure.supxlabel(NOTE, fontsize="small", color="gray")
    return figure


def _policy(axis: Any, rows: Sequence[Record], policy: str, shift: float) -> None:
    by_budget = {budget: [_final(r) for r in rows if r["budget"] == budget] for budget in _values(rows, "budget")}
    places = [shift * float(budget) for budget in by_budget]
    middles = [statistics.median(found) for found in by_budget.values()]
    low = [middle - min(found) for middle, found in zip(middles, by_budget.values(), strict=True)]
    high = [max(found) - middle for middle, found in zip(middles, by_budget.values(), strict=True)]
    axis.errorbar(places, middles, [low, high], color=COLORS[policy], label=policy, marker="o", capsize=3)
