"""Section of a report about what each node did: who computed, waited and talked, how stale updates were, who reached
what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.report.figure import COLOURS, TICKS, Figure, Shown, altair, node_figure
from gossamer.report.node_records import FILE, KINDS, PRIVATE, NodeRecord, differs, read_nodes
from gossamer.report.records import RunRecord
from gossamer.report.topology import EDGES, NODES, topology

_ROW, _LEAST_ROW, _MOST_HEIGHT = 24, 13, 480  # pixels
_AXIS = "virtual seconds"


def timeline(record: NodeRecord, name: str) -> Figure | None:
    """Return the timeline of a run's nodes, or None where nothing was written of it."""
    if not record.spans:
        return None
    alt = altair()
    rows: list[dict[str, Any]] = [
        {"node": one.node, "does": one.kind, "from": _short(one.start), "to": _short(one.start + one.seconds)}
        | {"times": one.times}
        for one in record.spans
    ]
    height = max(_LEAST_ROW, min(_ROW, _MOST_HEIGHT // len(record.shown)))
    kinds = [kind for kind in KINDS if any(row["does"] == kind for row in rows)]
    colour = alt.Color(
        "does:N",
        title="blank: waiting",
        scale=alt.Scale(domain=kinds, range=[_COLOURS[kind] for kind in kinds]),
        legend=alt.Legend(orient="top", symbolType="square"),
    )
    shared = {
        "y": alt.Y(
            "node:N",
            title=None,
            sort=None,
            scale=alt.Scale(domain=list(record.shown)),
            axis=alt.Axis(labelLimit=alt.ExprRef("max(50, width / 4)"), labelFontSize=min(12, height - 2), ticks=False),
        ),
        "color": colour,
        "tooltip": ["node:N", "does:N", "times:Q", _number("from"), _number("to")],
    }
    end = alt.Scale(domain=[0, max(record.seconds, max(row["to"] for row in rows))], nice=False)
    across = alt.X("from:Q", title=_AXIS, scale=end, axis=alt.Axis(labelFlush=True, tickCount=alt.ExprRef(TICKS)))
    base = alt.Chart(alt.Data(values=rows))
    spans = base.transform_filter("datum.does !== 'sending'").mark_bar(height={"band": 0.55}, yOffset=-height * 0.12)
    sent = base.transform_filter("datum.does === 'sending'").mark_tick(
        height=max(3, height * 0.2), thickness=1.5, yOffset=height * 0.32
    )
    chart = alt.layer(spans.encode(x=across, x2="to:Q", **shared), sent.encode(x=across, **shared))
    spec = chart.properties(width="container", height=height * len(record.shown)).to_dict()
    return Figure(name, f"Timeline of {record.run}", _words(record), Shown.PUBLIC, spec, rows)


_COLOURS: Mapping[str, str] = dict(zip(KINDS, (COLOURS[0], COLOURS[1], COLOURS[5]), strict=True))


def _number(name: str) -> Any:
    return altair().Tooltip(f"{name}:Q", format=",.6~g")


def _words(record: NodeRecord) -> str:
    """Shares of time over all nodes that are drawn, and what is left out."""
    whole = record.seconds * len(record.shown)
    spent = {kind: sum(one.seconds for one in record.spans if one.kind == kind) for kind in ("computing", "away")}
    messages = sum(one.times for one in record.spans if one.kind == "sending")
    shares = {kind: 100 * seconds / whole if whole else 0.0 for kind, seconds in spent.items()}
    rest = max(0.0, 100 - sum(shares.values()))
    said = (
        f"Timeline of {record.run}: in {record.seconds:.6g} virtual seconds its nodes computed "
        f"{shares['computing']:.0f} % of the time, waited {rest:.0f} % and were away {shares['away']:.0f} %; they sent "
        f"{messages:,} messages."
    )
    if len(record.shown) < record.total:
        said += f" Drawn are {len(record.shown)} of {record.total:,} nodes, evenly chosen."
    if record.merged_within:
        said += f" What a node began within {record.merged_within:.3g} s is drawn as one, as long as all of it."
    return said


def _short(value: float) -> float:
    return float(f"{value:.7g}")


_DOTS = 2_000  # most nodes that are drawn, each a dot


def staleness(record: NodeRecord, name: str) -> Figure | None:
    """Return how often updates were how stale, or None for an algorithm that has no stale updates."""
    counts = record.staleness.get("counts")
    if not counts:
        return None
    alt, width = altair(), record.staleness["width"]
    rows = [
        {"from": place * width, "to": place * width + width - 1, "updates": number}
        for place, number in enumerate(counts)
    ]
    bars = [{**row, "low": row["from"] - 0.5, "high": row["to"] + 0.5} for row in rows]
    chart = (
        alt.Chart(alt.Data(values=bars))
        .mark_bar(binSpacing=1, color=COLOURS[0])
        .encode(
            x=alt.X("low:Q", title="updates that others made meanwhile", axis=alt.Axis(tickMinStep=1)).bin("binned"),
            x2="high:Q",
            y=alt.Y("updates:Q", title="updates"),
            tooltip=["from:Q", "to:Q", "updates:Q"],
        )
        .properties(width="container", height=220)
    )
    return Figure(
        name, f"Staleness of updates of {record.run}", _stale_words(record, rows), Shown.PUBLIC, chart.to_dict(), rows
    )


def _stale_words(record: NodeRecord, rows: list[dict[str, int]]) -> str:
    total = sum(row["updates"] for row in rows)
    fresh = rows[0]["updates"] / total
    half = next(row for place, row in enumerate(rows) if 2 * sum(r["updates"] for r in rows[: place + 1]) >= total)
    last = [row for row in rows if row["updates"]][-1]
    how = (
        "counted while a node computed, over all other nodes"
        if record.staleness.get("measured") == "computing"
        else "counted by the node that it was sent to, when it came"
    )
    few = f"{100 * fresh:.0f} % had a staleness of " + ("0" if rows[0]["to"] == 0 else f"at most {rows[0]['to']}")
    return (
        f"Staleness of updates of {record.run}: how many updates others made since an update's model was taken, {how}. "
        f"Of {total:,} updates {few}, half had at most {half['to']}, and none more than {last['to']}."
    )


def clips(record: NodeRecord, name: str) -> Figure | None:
    """Return how clips moved, or None where they do not."""
    rows = list(record.clips)
    if not rows:
        return None
    alt = altair()
    base = alt.Chart(alt.Data(values=rows))
    across = alt.X("virtual_seconds:Q", title="virtual seconds", scale=alt.Scale(nice=False))
    size = alt.Scale(type="log", nice=False)
    tooltip = [alt.Tooltip(f"{key}:Q", format=",.4~g") for key in ("virtual_seconds", "updates", *_CLIPS)]
    line = base.mark_line(color=COLOURS[0], point=alt.OverlayMarkDef(size=30, color=COLOURS[0])).encode(
        x=across, y=alt.Y("median:Q", title="clip", scale=size), tooltip=tooltip
    )
    band = base.mark_area(opacity=0.25, color=COLOURS[0]).encode(
        x=across, y=alt.Y("least:Q", title="clip", scale=size), y2="most:Q"
    )
    layers = [band, line] if any(row["least"] != row["most"] for row in rows) else [line]
    spec = alt.layer(*layers).properties(width="container", height=220).to_dict()
    first, last = rows[0], rows[-1]
    apart = f", between {last['least']:.3g} and {last['most']:.3g} over nodes" if len(layers) == 2 else ""
    said = (
        f"Clip bounds of {record.run}: the most length of an example's gradient, from {first['median']:.3g} to "
        f"{last['median']:.3g} at virtual second {last['virtual_seconds']:.6g}{apart}. They follow what was released, "
        "or a schedule of stages."
    )
    return Figure(name, f"Clip bounds of {record.run}", said, Shown.RELEASED, spec, rows)


_CLIPS = ("least", "median", "most")


def dots(record: NodeRecord, name: str) -> Figure | None:
    """Return a dot for each node, of what it did against what it has; its data are all that is known of nodes."""
    nodes = record.nodes
    if len(nodes) < 2:
        return None
    alt = altair()
    figure, title, form = next((one for one in _HEIGHTS if differs(nodes, one[0])), _HEIGHTS[-1])
    known = [node for node in nodes if figure in node]
    drawn = known[:: -(-len(known) // _DOTS)]
    across, called = next((one for one in _ACROSS if differs(known, one[0])), _ACROSS[0])
    tooltip = [
        "name:N",
        alt.Tooltip(f"{across}:Q", title=called, format=",.4~g"),
        alt.Tooltip(f"{figure}:Q", title=title, format=".1~%" if form == "%" else ",.4~g"),
    ]
    chart = (
        alt.Chart(alt.Data(values=[{key: n.get(key) for key in ("name", across, figure)} for n in drawn]))
        .mark_point(size=70, opacity=1, strokeWidth=2, color=COLOURS[0])
        .encode(
            x=alt.X(
                f"{across}:Q",
                title=called,
                scale=alt.Scale(zero=False),
                axis=alt.Axis(tickCount=alt.ExprRef(TICKS)),
            ),
            y=alt.Y(f"{figure}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(format=form)),
            tooltip=tooltip,
        )
        .properties(width="container", height=240)
    )
    shown = Shown.PRIVATE if any(record.has(one) for one in PRIVATE) else _released(record)
    return Figure(
        name, f"Nodes of {record.run}", _dot_words(record, known, figure, title), shown, chart.to_dict(), record.nodes
    )


_ACROSS = (
    ("updates", "updates of the node"),
    ("staleness", "mean staleness of its updates"),
    ("computing_seconds", "virtual seconds that it computed"),
)
"""Figures that nodes are drawn across: the first in which they differ."""
_HEIGHTS = (
    ("test_accuracy", "correct test examples", "%"),
    ("test_loss", "loss per test example", ""),
    ("bytes", "bytes sent", "~s"),
)


def _released(record: NodeRecord) -> Shown:
    return Shown.RELEASED if record.has("clip") else Shown.PUBLIC


def _dot_words(record: NodeRecord, known: list[Any], figure: str, title: str) -> str:
    least, most = (choose(known, key=lambda node: float(node[figure])) for choose in (min, max))
    fewest, most_made = (choose(node["updates"] for node in known) for choose in (min, max))
    made = f"{fewest:,}" if fewest == most_made else f"{fewest:,} to {most_made:,}"
    return (
        f"Nodes of {record.run}: {len(known):,} nodes made {made} updates each; {title} "
        f"from {node_figure(figure, least[figure])} ({least['name']}) to {node_figure(figure, most[figure])} "
        f"({most['name']})."
    )


RUNS, ROWS = 3, 50
"""Most runs whose nodes are shown, and most nodes of a table."""

_FIGURES: Mapping[str, Callable[[NodeRecord, str], Figure | None]] = {
    "timeline": timeline,
    "staleness": staleness,
    "clips": clips,
    "topology": topology,
    "nodes": dots,
}


class Column(NamedTuple):
    """A column of the table of nodes: its heading, and a figure of ``nodes.json``."""

    heading: str
    figure: str


_COLUMNS = (
    Column("accuracy", "test_accuracy"),
    Column("loss", "test_loss"),
    Column("updates", "updates"),
    Column("computing, s", "computing_seconds"),
    Column("waiting, s", "idle_seconds"),
    Column("away, s", "away_seconds"),
    Column("messages", "messages"),
    Column("bytes sent", "bytes"),
    Column("staleness", "staleness"),
    Column("clip", "clip"),
    Column("releases", "releases"),
    Column("epsilon planned", "epsilon_planned"),
)
_SORTED = (
    ("test_accuracy", 1, "accuracy, lowest"),
    ("test_loss", -1, "loss, highest"),
    ("updates", 1, "updates, fewest"),
)


def section_values(records: Sequence[RunRecord], public: bool) -> tuple[list[Figure], dict[str, Any]] | None:
    """Return the figures and tables of the nodes of ``records``, or None where no folder tells of them."""
    there = [record for record in records if (record.path / FILE).exists()]
    if not there:
        return None
    told = [nodes.without(PRIVATE) if public else nodes for nodes in map(read_nodes, there[:RUNS])]
    figures, tables = [], []
    for place, record in enumerate(told):
        suffix = f"-{place + 1}" if place else ""
        made = [figure for name, maker in _FIGURES.items() if (figure := maker(record, name + suffix)) is not None]
        figures += made
        tables.append({"name": f"table-of-nodes{suffix}", "run": record.run, **_table(record)})
    return figures, {"tables": tables, "notes": _notes(told, len(there))}


def _notes(told: Sequence[NodeRecord], found: int) -> list[str]:
    """Say what is left out."""
    said = []
    if found > len(told):
        said.append(f"Nodes are shown of the first {len(told)} of {found} runs; make a report of others alone.")
    for record in told:
        if not record.nodes:
            said.append(f"{record.run} has {record.total:,} nodes, too many to tell of each.")
        elif not record.edges and len(record.nodes) > 1:
            said.append(f"Nobody is joined to anybody in {record.run}, or too many are to draw it.")
        elif len(record.nodes) > NODES or len(record.edges) > EDGES:
            said.append(
                f"{record.run} has {len(record.nodes):,} nodes and {len(record.edges):,} edges, too many to draw who "
                "was joined to whom."
            )
    return said


def _table(record: NodeRecord) -> dict[str, Any]:
    """Return rows of text, those first that a reader should look at, and what they are."""
    if not record.nodes:
        return {"rows": [], "words": ""}
    figure, sign, order = next(one for one in _SORTED if record.has(one[0]))
    known = sorted((n for n in record.nodes if figure in n), key=lambda node: sign * float(node[figure]))
    ordered = [*known, *(node for node in record.nodes if figure not in node)]
    columns = [column for column in _COLUMNS if _tells(record, column.figure)]
    rows = [
        {
            "node": node["name"],
            **{column.heading: node_figure(column.figure, node.get(column.figure)) for column in columns},
        }
        for node in ordered[:ROWS]
    ]
    some = f" {ROWS} of {len(ordered):,} are here, and all in the data of the figure." if len(ordered) > ROWS else ""
    return {"rows": rows, "words": f"Sorted by {order} first.{some}"}


def _tells(record: NodeRecord, figure: str) -> bool:
    """Whether a column says anything: nobody was away in most runs."""
    return record.has(figure) and (figure != "away_seconds" or any(node.get(figure) for node in record.nodes))
