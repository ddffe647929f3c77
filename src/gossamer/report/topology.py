"""Drawing of who was joined to whom, coloured by what nodes did or have.

Places are those at which distances in the drawing are close to distances in the graph (stress, as of Kamada and Kawai,
"An algorithm for drawing general undirected graphs", 1989), found from a circle around the node that most are joined
to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import minimize
from scipy.sparse.csgraph import shortest_path

from gossamer.arrays import FloatArray
from gossamer.errors import counted
from gossamer.report.figure import Figure, Shown, altair, node_figure
from gossamer.report.node_records import PRIVATE, NodeRecord, differs

NODES, EDGES = 300, 2_500
"""Most nodes and edges that are drawn."""
_MOVED = 120  # most nodes whose places are improved; others stay on the circle
_NAMED = 24  # most nodes whose names stand beside them
_SIDE = 420  # pixels

FIGURES = {
    "test_accuracy": "correct test examples",
    "test_loss": "loss per test example",
    "seconds_per_update": "virtual seconds per update",
    "updates": "updates",
    "epsilon_planned": "epsilon planned",
    "staleness": "mean staleness",
    "bytes": "bytes sent",
    "away_seconds": "virtual seconds away",
}
"""Figures that nodes are coloured by, and their names."""
_SHARE = FIGURES["test_accuracy"]


def topology(record: NodeRecord, name: str) -> Figure | None:
    """Return the drawing, or None where there is nothing to draw, or far too much."""
    if not record.edges or len(record.nodes) > NODES or len(record.edges) > EDGES:
        return None
    nodes = [_with_speed(node) for node in record.nodes]
    shown = [figure for figure in FIGURES if differs(nodes, figure)]
    shown = shown or [figure for figure in FIGURES if any(figure in node for node in nodes)][:1]
    at = places(len(nodes), record.edges)
    dots = [
        {"name": node["name"], "x": x, "y": y} | {FIGURES[one]: node.get(one) for one in shown}
        for node, (x, y) in zip(nodes, at.round(4).tolist(), strict=True)
    ]
    spec = _spec(dots, record.edges, [FIGURES[one] for one in shown])
    private = any(one in shown for one in PRIVATE)
    rows = [{key: value for key, value in dot.items() if key not in ("x", "y")} for dot in dots]
    degrees = np.bincount(np.ravel(record.edges), minlength=len(nodes))
    said = (
        f"Topology of {record.run}: {len(nodes):,} nodes and {len(record.edges):,} edges; {_degrees(degrees)}. "
        + " ".join(_extremes(nodes, one) for one in shown[:3])
    )
    return Figure(name, f"Topology of {record.run}", said, Shown.PRIVATE if private else Shown.PUBLIC, spec, rows)


def _degrees(degrees: npt.NDArray[np.int64]) -> str:
    least, most = int(degrees.min()), int(degrees.max())
    return (
        f"each node has {counted(most, 'neighbour')}" if least == most else f"a node has {least} to {most} neighbours"
    )


def _with_speed(node: Any) -> dict[str, Any]:
    if not node.get("updates"):
        return dict(node)
    return {**node, "seconds_per_update": float(f"{node['computing_seconds'] / node['updates']:.6g}")}


def _extremes(nodes: Sequence[Any], figure: str) -> str:
    known = [node for node in nodes if figure in node]
    least, most = (choose(known, key=lambda node: float(node[figure])) for choose in (min, max))
    title = FIGURES[figure]
    return (
        f"{title[0].upper()}{title[1:]}: {node_figure(figure, least[figure])} ({least['name']}) to "
        f"{node_figure(figure, most[figure])} ({most['name']})."
    )


def _spec(dots: Sequence[Any], edges: Sequence[tuple[int, int]], titles: Sequence[str]) -> dict[str, Any]:
    alt = altair()
    lines = [
        {"x": dots[one]["x"], "y": dots[one]["y"], "x2": dots[other]["x"], "y2": dots[other]["y"]}
        for one, other in edges
    ]
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    scale = alt.Scale(domain=[-1.15, 1.15], nice=False)
    x, y = alt.X("x:Q", axis=hidden, scale=scale), alt.Y("y:Q", axis=hidden, scale=scale)
    faint = 0.35 if len(edges) <= 200 else 0.12
    rules = alt.Chart(alt.Data(values=lines)).mark_rule(opacity=faint, color="#888888")
    chosen = alt.param(
        name="colour", value=titles[0], bind=alt.binding_select(options=list(titles), name="Coloured by ")
    )
    base = alt.Chart(alt.Data(values=dots)).transform_calculate(shown="datum[colour]")
    size = 260 if len(dots) <= _NAMED else 110 if len(dots) <= 100 else 40
    tooltip = ["name:N", *(alt.Tooltip(f"{title}:Q", format=_format(title, ",.4~g")) for title in titles)]
    colour = alt.Color(
        "shown:Q",
        scale=alt.Scale(scheme="viridis", zero=False),
        legend=alt.Legend(
            orient="bottom",
            gradientLength=alt.ExprRef("min(300, width)"),
            padding=12,
            tickCount=3,
            labelOverlap="greedy",
            labelExpr=f"format(datum.value, {chosen.name} === '{_SHARE}' ? '{_format(_SHARE)}' : ',.3~g')",
        ),
    )
    missing = alt.condition("isValid(datum.shown)", alt.value(1), alt.value(0.0))
    circles = base.mark_circle(size=size, opacity=1, stroke="#777777", strokeWidth=1)
    layers = [
        rules.encode(x=x, y=y, x2="x2:Q", y2="y2:Q"),
        base.mark_point(size=size, color="#888888", filled=False, strokeWidth=1.5).encode(x=x, y=y, tooltip=tooltip),
        circles.encode(x=x, y=y, color=colour, fillOpacity=missing, tooltip=tooltip),
    ]
    if len(dots) <= _NAMED:
        names = base.mark_text(dy=-14, limit=90, fontSize=11)
        layers.append(names.encode(x=x, y=y, text="name:N"))
    chart = alt.layer(*layers).add_params(chosen).configure_view(strokeOpacity=0)
    found: dict[str, Any] = chart.properties(width="container", height=_SIDE).to_dict()
    for layer in found["layer"]:
        if "color" in layer["encoding"]:  # Altair knows only titles that stay as they are
            layer["encoding"]["color"]["title"] = {"signal": chosen.name}
    return found


def _format(title: str, other: str = "") -> str:
    """Form of a figure's numbers, in d3's words."""
    return ".1~%" if title == _SHARE else other


def places(nodes: int, edges: Sequence[tuple[int, int]]) -> FloatArray:
    """Return where each node is drawn, [nodes, 2], in a circle of radius 1 around 0."""
    ends = np.asarray(edges, np.int64).reshape(-1, 2)
    start = _circle(nodes, np.bincount(ends.ravel(), minlength=nodes))
    if nodes < 3 or nodes > _MOVED:
        return start
    graph = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    wanted = shortest_path(graph, directed=False, unweighted=True)
    far = 1 + wanted[np.isfinite(wanted)].max()
    pairs = np.triu_indices(nodes, 1)
    wanted = np.minimum(wanted, far)[pairs]
    found = minimize(
        _stress,
        (start * wanted.max() / 2).ravel(),
        (pairs, wanted),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 300},
    )
    at = found.x.reshape(nodes, 2)
    at -= (at.max(axis=0) + at.min(axis=0)) / 2
    most = np.linalg.norm(at, axis=1).max()
    return np.asarray(at / most if most > 0 else at)


def _circle(nodes: int, degrees: Any) -> FloatArray:
    """The nodes on a circle in order, and in its middle the one that more than half of all are joined to."""
    hub = int(degrees.argmax())
    middle = nodes > 2 and 2 * degrees[hub] > nodes > 2 * np.delete(degrees, hub).max()
    around = nodes - 1 if middle else nodes
    angles = np.pi / 2 - 2 * np.pi * np.arange(around) / max(1, around)
    at = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.insert(at, hub, 0.0, axis=0) if middle else at


def _stress(flat: Any, pairs: Any, wanted: Any) -> tuple[float, Any]:
    """Squared relative errors of all distances, and their gradient."""
    at = flat.reshape(-1, 2)
    apart = at[pairs[0]] - at[pairs[1]]
    lengths = np.maximum(np.sqrt((apart**2).sum(axis=1)), 1e-9)
    errors = lengths - wanted
    pull = (2 * errors / (wanted**2 * lengths))[:, None] * apart
    gradient = np.zeros_like(at)
    np.add.at(gradient, pairs[0], pull)
    np.subtract.at(gradient, pairs[1], pull)
    return float((errors**2 / wanted**2).sum()), gradient.ravel()
