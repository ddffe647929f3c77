"""The studies as pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("Agg")
from matplotlib import pyplot as plt

Record = dict[str, Any]
ACCURACY = "mean_model_test_accuracy"
COLORS = {"allreduce": "tab:orange", "gossip": "tab:blue"}
TITLES = {
    "figure-2": "In each iteration a random node is 2 times slower",
    "figure-3": "One node is 10 times slower",
}


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    return {"table-1": _noise_levels, "figure-4": _doubled}.get(study, _slow)(study, records)


def _noise_levels(study: str, records: Sequence[Record]) -> Any:
    """Final accuracy over noise levels, a panel a model."""
    models = list(dict.fromkeys(record["model"] for record in records))
    figure, axes = plt.subplots(1, len(models), figsize=(3.6 * len(models), 3.4), sharey=True, layout="constrained")
    for axis, model in zip(np.atleast_1d(axes), models, strict=True):
        for shift, name in ((-0.2, "allreduce"), (0.2, "gossip")):
            rows = [r for r in records if r["model"] == model and r["algorithm"] == name]
            finals = [r["curve"][-1][ACCURACY] for r in rows]
            axis.bar(np.arange(len(rows)) + shift, finals, 0.38, color=COLORS[name], label=name)
        labels = [f"{r['noise']}\n" + ("none" if r["epsilon"] is None else f"{r['epsilon']:.2g}") for r in rows]
        axis.set_xticks(range(len(rows)), labels)
        axis.set(title=model, xlabel="noise multiplier, and the epsilon it proves", ylim=(0, 1))
    np.atleast_1d(axes)[0].set_ylabel("test accuracy of the mean model")
    figure.legend(*np.atleast_1d(axes)[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _slow(study: str, records: Sequence[Record]) -> Any:
    """Accuracy over updates and over virtual time."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, key, label in zip(
        axes, ("updates", "virtual_seconds"), ("updates, all nodes together", "virtual seconds"), strict=True
    ):
        _curves(axis, records, key)
        axis.set_xlabel(label)
    axes[0].set_ylabel("test accuracy of the mean model")
    axes[1].legend(loc="lower right")
    figure.suptitle(TITLES[study])
    return figure


def _doubled(study: str, records: Sequence[Record]) -> Any:
    """Accuracy over epochs, before and after doubling batch size and learning rate."""
    sizes = list(dict.fromkeys(record["size"] for record in records))
    figure, axes = plt.subplots(1, len(sizes), figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, size in zip(axes, sizes, strict=True):
        _curves(axis, [record for record in records if record["size"] == size], "epochs")
        axis.set(title=f"batch size and learning rate {size}", xlabel="epochs", ylim=(0, 1))
    axes[0].set_ylabel("test accuracy of the mean model")
    axes[1].legend(loc="lower right")
    return figure


def _curves(axis: Any, records: Sequence[Record], key: str) -> None:
    """A line a run; runs of one algorithm share a colour and a label."""
    seen: defaultdict[str, int] = defaultdict(int)
    for record in records:
        name = record["algorithm"]
        seen[name] += 1
        last = record["curve"][-1]["updates"]
        places = [row["updates"] / last * 4 if key == "epochs" else row[key] for row in record["curve"]]
        label = name if seen[name] == 1 else None
        axis.plot(places, [row[ACCURACY] for row in record["curve"]], color=COLORS[name], alpha=0.8, label=label)
    axis.grid(alpha=0.3)
