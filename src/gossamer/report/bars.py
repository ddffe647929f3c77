"""Bars that lie: a value of each of a few parts, for each of several names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import altair
from gossamer.report.look import COLOURS, TICKS

_HEIGHT, _LABEL = 28, 160  # pixels of a bar, and of its name


class Bars(NamedTuple):
    """Words of a figure of bars.

    Attributes
    ----------
    name : str
        In file names.
    title : str
        Of the figure.
    unit : str
        Of the values.
    of : str
        What each bar is about.
    format : str
        Of the axis' numbers, in d3's words.
    rest : str
        Part of each bar that is drawn in grey, since it is not there yet.
    """

    name: str
    title: str
    unit: str
    of: str
    format: str = ""
    rest: str = ""

    def say(self, value: float) -> str:
        """Return a value in words."""
        return f"{100 * value:.3g} %" if self.format else f"{value:.4g}"


def bars(what: Bars, rows: Sequence[Mapping[str, Any]], shown: Shown) -> Figure:
    """Return the figure of ``rows``, with ``of``, ``part`` and ``value`` each; parts of a bar are side by side."""
    alt = altair()
    parts = list(dict.fromkeys(str(row["part"]) for row in rows))
    number = what.format or ",.4~g"
    colours = ["#9aa4ae" if part == what.rest else COLOURS[n % len(COLOURS)] for n, part in enumerate(parts)]
    axis = alt.Axis(format=what.format or alt.Undefined, tickCount=alt.ExprRef(TICKS))
    chart = (
        alt.Chart(alt.NamedData("rows"))
        .mark_bar(stroke="currentColor", strokeOpacity=0.4)
        .encode(
            x=alt.X("value:Q", title=what.unit, axis=axis, scale=alt.Scale(nice=False)),
            y=alt.Y("of:N", title=what.of, sort=None, axis=alt.Axis(labelLimit=_LABEL)),
            color=alt.Color("part:N", title=None, sort=None, scale=alt.Scale(domain=parts, range=colours)),
            order=alt.Order("rank:Q"),
            tooltip=[
                alt.Tooltip("of:N", title=what.of),
                alt.Tooltip("part:N", title="part"),
                alt.Tooltip("value:Q", title=what.unit, format=number),
            ],
        )
        .properties(width="container", height=_HEIGHT * len({row["of"] for row in rows}))
    )
    ranked = [{**row, "rank": parts.index(str(row["part"]))} for row in rows]
    said = "; ".join(f"{row['of']}: {row['part']}, {what.say(row['value'])}" for row in rows[:_SAID])
    more = f"; and {len(rows) - _SAID} more" if len(rows) > _SAID else ""
    spec = {**chart.to_dict(), "data": {"name": "rows", "values": ranked}}
    return Figure(what.name, what.title, f"{what.title} ({what.unit}). {said}{more}.", shown, spec, rows)


_SAID = 12
