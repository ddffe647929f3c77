"""A figure of a report: a chart, the words for those who do not see it, and its data.

What all of them share is here, too: looks, and the libraries that draw, which are an extra.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gossamer.errors import DataError
from gossamer.extras import install_line
from gossamer.files import write_own

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7500", "#777777")
"""Okabe and Ito's, those that stand out from white and black (3 to 1), with an ochre and a grey beside them."""
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
"""Of a first round of `COLOURS`, a second, and so on: lines on and off."""
TICKS = "ceil(width / 90)"
"""Number of ticks of an axis across that leaves room between their labels, in Vega's words."""


def told_apart(
    field: str, names: Sequence[str], title: str | None = None, dashes: Sequence[Sequence[int]] = (), **legend: Any
) -> dict[str, Any]:
    """Return encodings of colour and dash for lines, in the order of their names, with one legend if there are several.

    Lines go through `COLOURS` in turn, and then through `DASHES`, unless ``dashes`` are given.
    """
    alt, colours = altair(), [COLOURS[n % len(COLOURS)] for n in range(len(names))]
    dashes = dashes or [DASHES[n // len(COLOURS) % len(DASHES)] for n in range(len(names))]
    key = alt.Legend(orient="bottom", symbolType="stroke", symbolSize=400, **legend) if len(names) > 1 else None
    return {
        channel: kind(
            f"{field}:N", title=title, sort=None, scale=alt.Scale(domain=list(names), range=list(range_)), legend=key
        )
        for channel, kind, range_ in (("color", alt.Color, colours), ("strokeDash", alt.StrokeDash, dashes))
    }


def config(ink: str = "currentColor", background: str = "transparent") -> dict[str, Any]:
    """Return how charts look, in Vega-Lite's words.

    Parameters
    ----------
    ink : str
        Colour of letters and lines; by default the page's own, so that a chart follows dark mode and print.
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


LIBRARIES = ("altair", "vl_convert", "jinja2")
"""What makes charts; what draws them without a browser, and has the code for browsers; what fills in pages."""


def needed(name: str, extra: str = "report", what: str = "a report") -> Any:
    """Return an installed module that an extra brings.

    Raises
    ------
    DataError
        If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise _missing(name, extra, what) from None


def altair() -> Any:
    """Return the library that charts are made with; raises as `needed`."""
    return needed("altair")


def require_libraries() -> None:
    """Do nothing where all `LIBRARIES` are installed, without importing them, which takes seconds.

    Raises
    ------
    DataError
        If one is not.
    """
    for name in LIBRARIES:
        if find_spec(name) is None:
            raise _missing(name, "report", "a report")


def _missing(name: str, extra: str, what: str) -> DataError:
    package = name.partition(".")[0]
    return DataError(f"{what} needs the package {package}, which is not installed: {install_line(extra)}")


class Shown(StrEnum):
    """Audience of a figure."""

    PUBLIC = "public"
    """It follows from the spec, or from what anyone on the wires sees."""
    RELEASED = "released"
    """It follows from releases, which the guarantee covers."""
    PRIVATE = "private"
    """It tells of data that nothing covers, such as scores on test examples or a party's own figures."""

    @property
    def words(self) -> str:
        """Meaning of the mark, for a reader of the page."""
        return {
            Shown.PUBLIC: "It follows from the spec, or from what anyone on the wires sees.",
            Shown.RELEASED: "It follows from releases, which the guarantee covers.",
            Shown.PRIVATE: "No guarantee covers it: show it to whom you would show the data.",
        }[self]


@dataclass(frozen=True)
class Figure:
    """A chart and what belongs to it.

    Attributes
    ----------
    name : str
        Name in file names: letters, digits and hyphens.
    title : str
        Title of the figure.
    description : str
        Message in words, read aloud in the place of the chart.
    shown : Shown
        Audience of it.
    spec : mapping
        Vega-Lite, with the data inside.
    rows : sequence of mapping
        The data, a row each.
    """

    name: str
    title: str
    description: str
    shown: Shown
    spec: Mapping[str, Any] = field(repr=False)
    rows: Sequence[Mapping[str, Any]] = field(repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        description: str,
        shown: Shown,
        chart: Any,
        rows: Sequence[Mapping[str, Any]],
        height: float,
    ) -> Figure:
        """Return the figure of an Altair chart, as wide as the page."""
        spec = chart.properties(width="container", height=height).to_dict()
        return cls(name, title, description, shown, spec, rows)

    def csv(self) -> str:
        """Return the data as a CSV file."""
        out = io.StringIO()
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        writer = csv.DictWriter(out, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()

    def svg(self) -> str:
        """Return the chart as an SVG picture."""
        return str(needed("vl_convert").vegalite_to_svg(json.dumps(self._sized())))

    def png(self, scale: float = 2.0) -> bytes:
        """Return the chart as a PNG picture, ``scale`` pixels for each of its points."""
        return bytes(needed("vl_convert").vegalite_to_png(json.dumps(self._sized()), scale=scale))

    def save(self, path: Path) -> None:
        """Write the chart, or its data, to a file whose name ends with ``.svg``, ``.png`` or ``.csv``.

        Raises
        ------
        DataError
            If it ends with something else, or the package that draws is not installed.
        """
        kinds: Mapping[str, Callable[[], str | bytes]] = {".svg": self.svg, ".png": self.png, ".csv": self.csv}
        if path.suffix not in kinds:
            raise DataError(f"{path}: expected a name that ends with .svg, .png or .csv; rename it")
        write_own(path, kinds[path.suffix]())

    def _sized(self) -> dict[str, Any]:
        """The spec at a width of its own, since there is no page that it could fill, with what the page would say."""
        width = {} if {"hconcat", "vconcat", "facet"} & self.spec.keys() else {"width": 640}
        looks = {**config("#1b1f24", "white"), **self.spec.get("config", {})}
        return {**self.spec, **width, "title": self.title, "config": looks}


@dataclass(frozen=True)
class PageSection:
    """A part of the page, under a heading.

    Attributes
    ----------
    name : str
        Name of its place in the page: letters, digits and hyphens.
    title : str
        Heading of the section.
    figures : sequence of Figure
        Figures that the template draws, each by ``{{ figure(one) }}``.
    template : str
        File of this room that is filled in below the heading; it sees ``section`` and ``records``.
    values : mapping
        Values that the template says besides, as ``section.values``. All of it is escaped.
    """

    name: str
    title: str
    figures: Sequence[Figure] = ()
    template: str = "figures.html"
    values: Mapping[str, Any] = field(default_factory=dict)
