"""The studies as pictures."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from experiments.checks import ACCURACY
from experiments.drawn import NOTE
from experiments.stored import Record

mpl.use("Agg")
from matplotlib import pyplot as plt

MARKS = {"guarantee": "s", "everyone": "o", "network": "^"}


def draw(study: str, records: Sequence[Record]) -> Any:
    """Return the figure of ``study``."""
    return {"accounting": _accounting, "utility": _utility, "pairwise": _pairwise}[study](records)


def _places(records: Sequence[Record], axis: str) -> list[str]:
    return list(dict.fromkeys(record[axis] for record in records))


def _accounting(records: Sequence[Record]) -> Any:
    """Renyi divergence over links, a line a graph; dashed the bound of Muffliato."""
    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for number, graph in enumerate(_places(records, "graph")):
        some = [record for record in records if record["graph"] == graph]
        links = sorted({int(hops) for record in some for hops in record["hops"]})
        ours = {at: [record["hops"][str(at)][0] for record in some if str(at) in record["hops"]] for at in links}
        known = {at: [record["muffliato"][str(at)][0] for record in some if str(at) in record["hops"]] for at in links}
        middles = [statistics.median(ours[at]) for at in links]
        axis.plot(links, middles, "o-", color=f"C{number}", label=graph)
        axis.plot(links, [statistics.median(known[at]) for at in links], "--", color=f"C{number}")
    axis.axhline(records[0]["local"], color="black", linestyle=":", label="everyone")
    axis.plot([], [], "--", color="black", label="bound of Muffliato (Theorem 11)")
    axis.set(yscale="log", xlabel="links from the observer", ylabel="Renyi divergence of order 2")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)
    axis.legend(fontsize="small")
    figure.supxlabel(
        "If all gradients but one node's stay as they are (gradients_fixed); no guarantee.",
        fontsize="small",
        color="gray",
    )
    return figure


def _utility(records: Sequence[Record]) -> Any:
    """Accuracy of the mean model by graph, and by what noise follows from; a panel for data and batches."""
    data, batches, graphs = (_places(records, axis) for axis in ("data", "batch", "graph"))
    figure, axes = plt.subplots(
        len(data), len(batches), figsize=(9, 6), sharey="row", layout="constrained", squeeze=False
    )
    found = defaultdict(list)
    for record in records:
        at = (record["data"], record["batch"], record["graph"], record["noise by"])
        found[at].append(record["curve"][-1][ACCURACY])
    for row, one in zip(axes, data, strict=True):
        for axis, batch in zip(row, batches, strict=True):
            for number, (way, mark) in enumerate(MARKS.items()):
                values = [found[one, batch, graph, way] for graph in graphs]
                middles = np.array([statistics.median(some) for some in values])
                ends = [middles - [min(some) for some in values], [max(some) for some in values] - middles]
                places = np.arange(len(graphs)) + 0.15 * (number - 1)
                axis.errorbar(places, middles, ends, fmt=mark, capsize=3, label=way)
            axis.set_xticks(range(len(graphs)), graphs)
            axis.set_title(f"{one}, batches of {int(batch):,}")
            axis.grid(alpha=0.3)
        row[0].set_ylabel("accuracy of the mean model")
    axes[0][-1].legend(title="noise by", loc="lower right")
    figure.supxlabel(
        f"Medians of five seeds, with their range; epsilon 1. 'network' assumes gradients_fixed: no guarantee.\n{NOTE}",
        fontsize="small",
        color="gray",
    )
    return figure


def _pairwise(records: Sequence[Record]) -> Any:
    """Accuracy of the mean model by noise; a panel for data, graph and who leaves."""
    data, graphs, leaves, ways = (_places(records, axis) for axis in ("data", "graph", "leave", "noise"))
    width = 3 * len(graphs)
    figure, axes = plt.subplots(len(data), len(graphs), figsize=(width, 6), sharey="row", layout="constrained")
    found = defaultdict(list)
    for record in records:
        at = (record["data"], record["graph"], record["leave"], record["noise"])
        found[at].append(record["curve"][-1][ACCURACY])
    for row, one in zip(axes, data, strict=True):
        for axis, graph in zip(row, graphs, strict=True):
            for number, way in enumerate(ways):
                for place, leave in enumerate(leaves):
                    values = found[one, graph, leave, way]
                    label = way if place == 0 else None
                    axis.plot([place + (number - 1) / 8] * len(values), values, "o", color=f"C{number}", label=label)
            axis.set(title=f"{one}, {graph}", xticks=range(len(leaves)), xticklabels=leaves, xlabel="who leaves")
            axis.set_xlim(-0.4, len(leaves) - 0.6)
            axis.grid(alpha=0.3)
            axis.set_visible((one, graph) in {at[:2] for at, values in found.items() if values})
        row[0].set_ylabel("accuracy")
    axes[0][-1].legend(fontsize="small", loc="center")
    return figure
