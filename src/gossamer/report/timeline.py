"""Timeline of a run: who computed, waited, talked and was away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair
from gossamer.report.look import COLOURS, TICKS
from gossamer.report.node_records import KINDS, NodeRecord

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
