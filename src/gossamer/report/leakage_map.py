"""Map of what each observer of a network learns of each party, as a figure of an article."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.errors import DataError
from gossamer.files import to_csv
from gossamer.report.article import KINDS, LOOKS, UNDATED
from gossamer.report.drawing import COLOURS, needed

_MOST_NAMES = 16
"""Names that an axis has room for."""
_EPSILON = r"$\epsilon$ if gradients are fixed"


def drawer(path: Path) -> Callable[[Sequence[Mapping[str, Any]], float], bytes]:
    """Return what makes a file, as the ending of ``path`` says, of records of pairs and the epsilon against everyone.

    That is a map of them, or a CSV file.

    Raises
    ------
    DataError
        If the ending is of neither, no file can have the name, or matplotlib is not there.
    """
    kind = path.suffix.lower()[1:]
    if kind not in ("csv", *KINDS) or path.is_dir():
        raise DataError(
            f"{path}: expected a file for pairs that ends in .csv, .pdf, .svg or .png; choose another --out"
        )
    if kind == "csv":
        return lambda rows, _: to_csv(rows).encode()
    needed("matplotlib.figure", "figures", "a figure")
    return partial(_drawn, kind)


def _drawn(kind: str, rows: Sequence[Mapping[str, Any]], guaranteed: float) -> bytes:
    """Draw epsilons as a map, and by how many links are between where that is known."""
    figure_class, matplotlib = needed("matplotlib.figure", "figures").Figure, needed("matplotlib", "figures")
    observers, parties = (list(dict.fromkeys(row[key] for row in rows)) for key in ("observer", "party"))
    order = [name.replace("node:", "") for name in observers]
    parties.sort(key=lambda name: order.index(name) if name in order else len(order))
    cells = np.full((len(parties), len(observers)), math.nan)
    for row in rows:
        cells[parties.index(row["party"]), observers.index(row["observer"])] = row["epsilon"]
    near = [row for row in rows if row.get("links") and row["epsilon"] > 0]
    with matplotlib.rc_context(fname=LOOKS):
        height = max([3.2, *(2.5 + 0.05 * len(name) for name in order)])  # names stand below the map
        figure = figure_class(figsize=(7.0, height), layout="constrained")
        left, *right = figure.subplots(1, 2 if near else 1, squeeze=False)[0]
        finite = cells[(cells > 0) & (cells < math.inf)]
        most = finite.max(initial=guaranteed if guaranteed < math.inf else 1.0)
        picture = left.imshow(
            np.ma.masked_where(~(cells > 0), np.minimum(cells, 2 * most)),
            norm=matplotlib.colors.LogNorm(finite.min(initial=most), most),
            cmap=matplotlib.colormaps["viridis"].with_extremes(over=COLOURS[1]),
            aspect="auto",
        )
        figure.colorbar(picture, ax=left, label=_EPSILON, extend="max").ax.set_title(r"$\infty$", fontsize=9)
        left.set(xlabel="observer", ylabel="party")
        for ticks, names in ((left.set_xticks, order), (left.set_yticks, parties)):
            step = -(-len(names) // _MOST_NAMES)
            ticks(range(0, len(names), step), names[::step], parse_math=False)
        left.tick_params(axis="x", rotation=90)
        for plot in right:
            links, epsilons = np.array([(row["links"], row["epsilon"]) for row in near]).T
            looks = {"s": 6, "alpha": 0.5, "color": [COLOURS[int(one == math.inf)] for one in epsilons]}
            looks |= {"linewidths": [0.7 * (row["bound"] != "tight") for row in near], "edgecolors": "black"}
            # Pairs of one distance lie beside each other, as many have one epsilon.
            plot.scatter(links + np.linspace(-0.25, 0.25, len(near)), np.minimum(epsilons, 2 * most), **looks)
            if guaranteed < math.inf:
                plot.axhline(guaranteed, color=COLOURS[2], linestyle="--", label="guarantee against everyone")
                plot.legend(frameon=False)
            plot.set(yscale="log", xlabel="links between", ylabel=_EPSILON, xticks=range(1, int(links.max()) + 1))
        loose = [row for row in rows if row["bound"] != "tight"]
        at = [(observers.index(row["observer"]), parties.index(row["party"])) for row in loose]
        left.plot(*zip(*at), "w.", markersize=2) if at else None
        told = ["What is drawn does not count sampling; the guarantee, the dashed line, does."] * bool(near)
        told += ["Observers with dots, and ringed pairs: at most so much, as time was over."] * bool(loose)
        told += ["White: nothing is learned, or the observer's own."] * bool((cells == 0).any())
        figure.supxlabel("\n".join(told), fontsize=8)
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=300, metadata=UNDATED.get(kind))
    return out.getvalue()
