"""The study as a picture."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.drawn import NOTE
from experiments.stored import Record

mpl.use("Agg")
from matplotlib import pyplot as plt

COLORS = {"fixed": "tab:blue", "quantile": "tab:orange", "stages": "tab:green"}
WIDTH = 0.38


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure: a panel of accuracies a budget, below what runs take and send."""
    budgets = _places(records, "budget")
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), layout="constrained")
    axes[0][1].sharey(axes[0][0])
    for axis, budget in zip(axes[0], budgets, strict=True):
        _accuracies(axis, [record for record in records if record["budget"] == budget])
        axis.set(title=f"epsilon {budget}", ylabel="test accuracy, own models")
    figure.legend(*axes[0][0].get_legend_handles_labels(), title="clip", loc="outside upper center", ncols=3)
    for axis, label, key, scale in (
        (axes[1][0], "virtual seconds", "virtual_seconds", 1),
        (axes[1][1], "megabytes sent by all", "bytes", 1e6),
    ):
        names = _places(records, "algorithm")
        axis.bar(names, [_middle([r["curve"][-1][key] / scale for r in _of(records, name)]) for name in names])
        axis.set_ylabel(label)
    for axis in axes.flat:
        axis.tick_params(axis="x", labelrotation=45)
        axis.grid(alpha=0.3, axis="y")
    figure.supxlabel(f"Medians of 5 seeds, the least to the most.\n{NOTE}", fontsize="small", color="gray")
    return figure


def _accuracies(axis: Any, records: Sequence[Record]) -> None:
    """A point an algorithm and clip: the median of the seeds, and the least to the most."""
    names = _places(records, "algorithm")
    for clip, color in COLORS.items():
        for number, name in enumerate(names):
            clips = _places(_of(records, name), "clip")
            found = [_accuracy(record) for record in _of(records, name) if record["clip"] == clip]
            if not found:
                continue
            middle, place = _middle(found), number + WIDTH * (clips.index(clip) - (len(clips) - 1) / 2)
            spread = np.array([[middle - min(found)], [max(found) - middle]])
            label = None if clip in axis.get_legend_handles_labels()[1] else clip
            axis.errorbar(place, middle, spread, fmt="o", capsize=3, color=color, label=label)
    axis.set_xticks(range(len(names)), names)


def _accuracy(record: Record) -> float:
    return float(record["curve"][-1]["test_accuracy"])


def _of(records: Sequence[Record], algorithm: str) -> list[Record]:
    return [record for record in records if record["algorithm"] == algorithm]


def _middle(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _places(records: Sequence[Record], axis: str) -> list[str]:
    """Places on an axis, in order."""
    return list(dict.fromkeys(record[axis] for record in records))
