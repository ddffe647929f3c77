"""Section of a report about what each node did: who computed, waited and talked, how stale updates were, who reached
what, and who was joined to whom.

Nodes are drawn where distances in the drawing are close to distances in the graph, found from a circle around the node
that most are joined to: each step lowers the stress (Gansner, Koren and North, "Graph drawing by stress majorization",
Graph Drawing 2004).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import laplacian, shortest_path
from scipy.spatial import distance_matrix

from gossamer.arrays import FloatArray
from gossamer.errors import counted
from gossamer.files import words_beside
from gossamer.report.drawing import COLOURS, TICKS, Figure, PageSection, Shown, altair, chart_of, node_figure, numbers
from gossamer.report.records import KINDS, NODES, PRIVATE, NodeRecord, RunRecord, differs, read_nodes

_ROW, _LEAST_ROW, _MOST_HEIGHT = 24, 13, 480  # pixels
_AXIS = "virtual seconds"
_WORDS = words_beside(__file__)
_COLOURED: dict[str, str] = _WORDS["coloured"]
_SORTED = _WORDS["sorted"]


def timeline(record: NodeRecord, name: str) -> Figure | None:
    """Return the timeline of a run's nodes, or None where nothing was written of it."""
    if not record.spans:
        return None
    alt = altair()
    rows: list[dict[str, Any]] = []
    for one in record.spans:
        start, end = (float(f"{at:.7g}") for at in (one.start, one.start + one.seconds))
        rows.append({"node": one.node, "does": one.kind, "from": start, "to": end, "times": one.times})
    height = max(_LEAST_ROW, min(_ROW, _MOST_HEIGHT // len(record.shown)))
    kinds = [kind for kind in KINDS if any(row["does"] == kind for row in rows)]
    colours = dict(zip(KINDS, (COLOURS[0], COLOURS[1], COLOURS[5]), strict=True))
    scale = alt.Scale(domain=kinds, range=[colours[kind] for kind in kinds])
    legend = alt.Legend(orient="top", symbolType="square")
    names = alt.Axis(labelLimit=alt.ExprRef("max(50, width / 4)"), labelFontSize=min(12, height - 2), ticks=False)
    shared = {
        "y": alt.Y("node:N", title=None, sort=None, scale=alt.Scale(domain=list(record.shown)), axis=names),
        "color": alt.Color("does:N", title="blank: waiting", scale=scale, legend=legend),
        "tooltip": ["node:N", "does:N", "times:Q", *numbers(",.6~g", "from", "to")],
    }
    whole = alt.Scale(domain=[0, max(record.seconds, max(row["to"] for row in rows))], nice=False)
    across = alt.X("from:Q", title=_AXIS, scale=whole, axis=alt.Axis(labelFlush=True, tickCount=alt.ExprRef(TICKS)))
    base = chart_of(rows)
    spans = base.transform_filter("datum.does !== 'sending'").mark_bar(height={"band": 0.55}, yOffset=-height * 0.12)
    sent = base.transform_filter("datum.does === 'sending'").mark_tick(
        height=max(3, height * 0.2), thickness=1.5, yOffset=height * 0.32
    )
    chart = alt.layer(spans.encode(x=across, x2="to:Q", **shared), sent.encode(x=across, **shared))
    title, tall = f"Timeline of {record.run}", height * len(record.shown)
    return Figure.of(name, title, _words(record), Shown.PUBLIC, chart, rows, tall)


def _words(record: NodeRecord) -> str:
    """Shares of time over all nodes that are drawn, and what is left out."""
    whole = record.seconds * len(record.shown)
    spent = {kind: sum(one.seconds for one in record.spans if one.kind == kind) for kind in ("computing", "away")}
    messages = sum(one.times for one in record.spans if one.kind == "sending")
    shares = {kind: 100 * seconds / whole if whole else 0.0 for kind, seconds in spent.items()}
    rest = max(0.0, 100 - sum(shares.values()))
    drawn, whose = len(record.shown), "its nodes"
    if drawn < record.total:
        whose = f"the {drawn} of {record.total:,} nodes that are drawn, evenly chosen,"
    said: str = _WORDS["timeline"].format(record, *shares.values(), rest, whose=whose, messages=messages)
    if record.merged_within:
        said += f" What a node began within {record.merged_within:.3g} s is drawn as one, as long as all of it."
    return said


def staleness(record: NodeRecord, name: str) -> Figure | None:
    """Return how often updates were how stale, or None for an algorithm that has no stale updates."""
    if not (counts := record.staleness.get("counts")):
        return None
    alt, width = altair(), record.staleness["width"]
    rows = [{"from": n * width, "to": n * width + width - 1, "updates": number} for n, number in enumerate(counts)]
    bars = [{**row, "low": row["from"] - 0.5, "high": row["to"] + 0.5} for row in rows]
    x = alt.X("low:Q", title="updates that others made meanwhile", axis=alt.Axis(tickMinStep=1)).bin("binned")
    y, tooltip = alt.Y("updates:Q", title="updates"), ["from:Q", "to:Q", "updates:Q"]
    chart = chart_of(bars).mark_bar(binSpacing=1, color=COLOURS[0]).encode(x=x, x2="high:Q", y=y, tooltip=tooltip)
    title = f"Staleness of updates of {record.run}"
    return Figure.of(name, title, _stale_words(record, rows), Shown.PUBLIC, chart, rows, 220)


def _stale_words(record: NodeRecord, rows: list[dict[str, int]]) -> str:
    total = sum(row["updates"] for row in rows)
    fresh = rows[0]["updates"] / total
    half = next(row for place, row in enumerate(rows) if 2 * sum(r["updates"] for r in rows[: place + 1]) >= total)
    last = [row for row in rows if row["updates"]][-1]
    how = _WORDS["measured"]["computing" if record.staleness.get("measured") == "computing" else "sent"]
    few = f"{100 * fresh:.0f} % had a staleness of " + ("0" if rows[0]["to"] == 0 else f"at most {rows[0]['to']}")
    return str(_WORDS["stale"].format(record.run, how, total, few, half["to"], last["to"]))


def clips(record: NodeRecord, name: str) -> Figure | None:
    """Return how clips moved, or None where they do not."""
    if not (rows := list(record.clips)):
        return None
    alt = altair()
    base, point = chart_of(rows), alt.OverlayMarkDef(size=30, color=COLOURS[0])
    across = alt.X("virtual_seconds:Q", title="virtual seconds", scale=alt.Scale(nice=False))
    size = alt.Scale(type="log", nice=False)
    median, least = (alt.Y(f"{of}:Q", title="clip", scale=size) for of in ("median", "least"))
    tooltip = numbers(",.4~g", "virtual_seconds", "updates", "least", "median", "most")
    line = base.mark_line(color=COLOURS[0], point=point).encode(x=across, y=median, tooltip=tooltip)
    band = base.mark_area(opacity=0.25, color=COLOURS[0]).encode(x=across, y=least, y2="most:Q")
    layers = [band, line] if any(row["least"] != row["most"] for row in rows) else [line]
    first, last = rows[0], rows[-1]
    apart = f", between {last['least']:.3g} and {last['most']:.3g} over nodes" if len(layers) == 2 else ""
    said = _WORDS["clips"].format(record.run, first["median"], last["median"], last["virtual_seconds"], apart)
    return Figure.of(name, f"Clip bounds of {record.run}", said, Shown.RELEASED, alt.layer(*layers), rows, 220)


def _range(nodes: Sequence[Any], figure: str) -> str:
    """The nodes with the least and the most of a figure."""
    known = [node for node in nodes if figure in node]
    ends = (choose(known, key=lambda node: float(node[figure])) for choose in (min, max))
    return " to ".join(f"{node_figure(figure, node[figure])} ({node['name']})" for node in ends)


MOST_NODES, MOST_EDGES = 300, 2_500
"""Most nodes and edges that are drawn."""
_MOVED, _STEPS = 120, 200  # most nodes whose places are improved, and how often; others stay on the circle
_NAMED = 24  # most nodes whose names stand beside them
_SIDE = 420  # pixels

_SHARE = _COLOURED["test_accuracy"]


def topology(record: NodeRecord, name: str) -> Figure | None:
    """Return the drawing, or None where there is nothing to draw, or far too much."""
    if not record.edges or len(record.nodes) > MOST_NODES or record.joined > MOST_EDGES:
        return None
    nodes = [_with_speed(node) for node in record.nodes]
    shown = [figure for figure in _COLOURED if differs(nodes, figure)]
    shown = shown or [figure for figure in _COLOURED if any(figure in node for node in nodes)][:1]
    at = places(len(nodes), record.edges)
    dots = [
        {"name": node["name"], "x": x, "y": y} | {_COLOURED[one]: node.get(one) for one in shown}
        for node, (x, y) in zip(nodes, at.round(4).tolist(), strict=True)
    ]
    spec = _drawing(dots, record.edges, [_COLOURED[one] for one in shown])
    private = any(one in shown for one in PRIVATE)
    rows = [{key: value for key, value in dot.items() if key not in ("x", "y")} for dot in dots]
    degrees = np.bincount(np.ravel(record.edges), minlength=len(nodes))
    fewest, most = int(degrees.min()), int(degrees.max())
    near = (
        f"each node has {counted(most, 'neighbour')}" if fewest == most else f"a node has {fewest} to {most} neighbours"
    )
    said = f"Topology of {record.run}: {len(nodes):,} nodes and {len(record.edges):,} edges; {near}. " + " ".join(
        f"{_COLOURED[one].capitalize()}: {_range(nodes, one)}." for one in shown[:3]
    )
    return Figure(name, f"Topology of {record.run}", said, Shown.PRIVATE if private else Shown.PUBLIC, spec, rows)


def _with_speed(node: Any) -> dict[str, Any]:
    if not node.get("updates"):
        return dict(node)
    return {**node, "seconds_per_update": float(f"{node['computing_seconds'] / node['updates']:.6g}")}


def _drawing(dots: Sequence[Any], edges: Sequence[tuple[int, int]], titles: Sequence[str]) -> dict[str, Any]:
    alt = altair()
    ends = [(dots[one], dots[other]) for one, other in edges]
    lines = [{"x": one["x"], "y": one["y"], "x2": other["x"], "y2": other["y"]} for one, other in ends]
    hidden = alt.Axis(labels=False, ticks=False, grid=False, domain=False, title=None)
    scale = alt.Scale(domain=[-1.15, 1.15], nice=False)
    x, y = alt.X("x:Q", axis=hidden, scale=scale), alt.Y("y:Q", axis=hidden, scale=scale)
    faint = 0.35 if len(edges) <= 200 else 0.12
    rules = chart_of(lines).mark_rule(opacity=faint, color="#888888")
    choice = alt.binding_select(options=list(titles), name="Coloured by ")
    chosen = alt.param(name="colour", value=titles[0], bind=choice)
    base = chart_of(dots).transform_calculate(shown="datum[colour]")
    size = 260 if len(dots) <= _NAMED else 110 if len(dots) <= 100 else 40
    tooltip = ["name:N", *(alt.Tooltip(f"{title}:Q", format=_format(title, ",.4~g")) for title in titles)]
    label = f"format(datum.value, {chosen.name} === '{_SHARE}' ? '{_format(_SHARE)}' : ',.3~g')"
    room = {"orient": "bottom", "gradientLength": alt.ExprRef("min(300, width)"), "padding": 12}
    legend = alt.Legend(**room, tickCount=3, labelOverlap="greedy", labelExpr=label)
    colour = alt.Color("shown:Q", scale=alt.Scale(scheme="viridis", zero=False), legend=legend)
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
    at = _circle(nodes, np.bincount(ends.ravel(), minlength=nodes))
    if nodes < 3 or nodes > _MOVED:
        return at
    graph = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(nodes, nodes))
    wanted = shortest_path(graph, directed=False, unweighted=True)
    wanted = np.minimum(wanted, 1 + wanted[np.isfinite(wanted)].max())  # where nothing joins two nodes
    weights = 1 / (wanted + np.eye(nodes)) ** 2
    inverse, at = np.linalg.pinv(laplacian(weights)), at * wanted.max() / 2
    for _ in range(_STEPS):
        at = inverse @ laplacian(weights * wanted / np.maximum(distance_matrix(at, at), 1e-9)) @ at
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


RUNS, ROWS = 3, 50
"""Most runs whose nodes are shown, and most nodes of a table."""

_FIGURES: Mapping[str, Callable[[NodeRecord, str], Figure | None]] = {
    "timeline": timeline,
    "staleness": staleness,
    "clips": clips,
    "topology": topology,
}


def section_of_nodes(records: Sequence[RunRecord], public: bool) -> PageSection | None:
    """Return the section of the nodes of ``records``, or None where no folder tells of them."""
    there = [record for record in records if (record.path / NODES).exists()]
    if not there:
        return None
    told = [nodes.without(PRIVATE) if public else nodes for nodes in map(read_nodes, there[:RUNS])]
    figures, tables = [], []
    for place, record in enumerate(told):
        suffix = f"-{place + 1}" if place else ""
        figures += [figure for name, maker in _FIGURES.items() if (figure := maker(record, name + suffix)) is not None]
        tables.append({"name": f"table-of-nodes{suffix}", "run": record.run, **_table(record)})
    values = {"tables": tables, "notes": _notes(told, len(there))}
    return PageSection("nodes", "Nodes", figures, "nodes.html", values)


def _notes(told: Sequence[NodeRecord], found: int) -> list[str]:
    """Say what is left out."""
    said = []
    if found > len(told):
        said.append(f"Nodes are shown of the first {len(told)} of {found} runs; make a report of others alone.")
    for record in told:
        if not record.nodes:
            said.append(f"{record.run} has {record.total:,} nodes, too many to tell of each.")
        elif not record.joined and len(record.nodes) > 1:
            said.append(f"Nobody is joined to anybody in {record.run}.")
        elif len(record.nodes) > MOST_NODES or record.joined > MOST_EDGES:
            said.append(_WORDS["crowded"].format(record.run, len(record.nodes), record.joined))
    return said


def _table(record: NodeRecord) -> dict[str, Any]:
    """Return rows of text, those first that a reader should look at, and what they are."""
    if not record.nodes:
        return {"rows": [], "words": ""}
    figure, sign, order = next(one for one in _SORTED if record.has(one[0]))
    known = sorted((n for n in record.nodes if figure in n), key=lambda node: sign * float(node[figure]))
    ordered = [*known, *(node for node in record.nodes if figure not in node)]
    columns = {one: heading for one, heading in _WORDS["columns"].items() if _tells(record, one)}
    rows = [
        {"node": node["name"], **{heading: node_figure(one, node.get(one)) for one, heading in columns.items()}}
        for node in ordered[:ROWS]
    ]
    some = f" {ROWS} of {len(ordered):,} are here, and all in {NODES}." if len(ordered) > ROWS else ""
    return {"rows": rows, "words": f"Sorted by {order} first.{some}"}


def _tells(record: NodeRecord, figure: str) -> bool:
    """Whether a column says anything: nobody was away in most runs."""
    return record.has(figure) and (figure != "away_seconds" or any(node.get(figure) for node in record.nodes))
