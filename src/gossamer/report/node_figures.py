"""Figures of how stale updates were, how clips moved, and what each node reached."""

from __future__ import annotations

from typing import Any

from gossamer.report import words
from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair
from gossamer.report.look import COLOURS, TICKS
from gossamer.report.node_records import PRIVATE, NodeRecord, differs

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
        f"from {words.figure(figure, least[figure])} ({least['name']}) to {words.figure(figure, most[figure])} "
        f"({most['name']})."
    )
