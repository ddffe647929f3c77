"""Looks of all charts: colours that those who confuse red and green tell apart, dashes, and letters."""

from __future__ import annotations

from typing import Any

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7500", "#777777")
"""Okabe and Ito's, those that stand out from white and black (3 to 1), with an ochre and a grey beside them."""
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
"""Of a first round of `COLOURS`, a second, and so on: lines on and off."""
TICKS = "ceil(width / 90)"
"""Number of ticks of an axis across that leaves room between their labels, in Vega's words."""


def dash_of_each(count: int) -> list[list[int]]:
    """Return the dash of each of ``count`` lines that go through `COLOURS` in turn."""
    return [list(DASHES[n // len(COLOURS) % len(DASHES)]) for n in range(count)]


def config(ink: str = "currentColor", background: str = "transparent") -> dict[str, Any]:
    """Return how charts look, in Vega-Lite's words.

    Parameters
    ----------
    ink : str
        Of letters and lines; by default the page's own, so that a chart follows dark mode and print.
    background : str
        Behind the chart.
    """
    words = {
        "labelColor": ink,
        "titleColor": ink,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
    }
    lines = {
        "gridColor": ink,
        "gridOpacity": 0.15,
        "domainColor": ink,
        "domainOpacity": 0.5,
        "tickColor": ink,
        "tickOpacity": 0.5,
        "labelSeparation": 6,
    }
    return {
        "background": background,
        "font": "system-ui, sans-serif",
        "view": {"stroke": ink, "strokeOpacity": 0.25},
        "axis": {**words, **lines},
        "legend": {**words, "orient": "bottom", "symbolOpacity": 1},
        "header": words,
        "title": {"color": ink},
        "text": {"color": ink},
        "range": {"category": list(COLOURS)},
    }
