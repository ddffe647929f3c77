"""Figures of a report and what they share: chart, words for those who do not see it, data; looks, and numbers in words.

The libraries that draw are an extra. Pictures of attacks, which stand alone, are here, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import DataError
from gossamer.extras import require
from gossamer.files import in_bytes, replaced, to_csv, words_beside, write_own

_MEANINGS: dict[str, str] = words_beside(__file__)
_LOOKS = Path(__file__).with_name("looks.json").read_text("utf-8")
COLOURS: list[str] = json.loads(_LOOKS)["range"]["category"]
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


def chart_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return a chart of rows of data, of which nothing is drawn yet."""
    return altair().Chart(altair().Data(values=rows))


def numbers(form: str, *keys: str) -> list[Any]:
    """Return what a pointer tells of a row: the numbers of these keys."""
    return [altair().Tooltip(f"{key}:Q", format=form) for key in keys]


_LETTER, _SYMBOL = 7, 40  # pixels of a letter and of a legend's symbol


def within_width(names: Sequence[str]) -> dict[str, Any]:
    """Return what keeps a legend of ``names`` within its chart, however narrow that is."""
    alt, need = altair(), min(400, _SYMBOL + _LETTER * max(map(len, names)))
    return {
        "columns": alt.ExprRef(f"max(1, floor(width / {need}))"),
        "labelLimit": alt.ExprRef(f"min({need}, width) - {_SYMBOL}"),
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
    return {**json.loads(_LOOKS.replace("currentColor", ink)), "background": background}


LIBRARIES = ("altair", "vl_convert", "jinja2")
"""What makes charts; what draws them without a browser, and has the code for browsers; what fills in pages."""


def needed(name: str, extra: str = "report", what: str = "a report") -> Any:
    """Return an installed module that an extra brings.

    Raises
    ------
    DataError
        If it is not installed.
    """
    return require(name, f"{what} needs", extra, DataError)


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
            needed(name)


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
        return _MEANINGS[self.value]


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
        return to_csv(self.rows)

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


# Pictures of attacks as PNG: grids of small ones, a labelled row under another.


def stretched(picture: FloatArray, low: float | None = None, high: float | None = None) -> FloatArray:
    """``picture`` mapped linearly so that low becomes 0 and high 1; by default its own least and largest value.

    What lies outside is clipped, what is not finite is 0, and a flat picture is grey.
    """
    values = np.nan_to_num(np.asarray(picture, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    low = float(values.min()) if low is None else low
    high = float(values.max()) if high is None else high
    return np.clip((values - low) / (high - low), 0.0, 1.0) if high > low else np.full_like(values, 0.5)


def write_grid(path: Path, rows: Sequence[tuple[str, Sequence[FloatArray]]]) -> None:
    """Write a grid as a PNG.

    Parameters
    ----------
    path : Path
        The file.
    rows : sequence of (label, pictures)
        Rows of equally many pictures [channels, height, width], with 1 or 3 channels and values in [0, 1]. They are
        enlarged, never smoothed.

    Raises
    ------
    DataError
        If matplotlib is not installed.
    """
    figure_class = needed("matplotlib.figure", "figures", "a grid of pictures").Figure
    figure = figure_class(figsize=(1 + len(rows[0][1]), len(rows)), layout="constrained")
    places = figure.subplots(len(rows), len(rows[0][1]), squeeze=False)
    for (label, pictures), row in zip(rows, places, strict=True):
        row[0].set_ylabel(label, rotation=0, ha="right", va="center")
        for place, picture in zip(row, pictures, strict=True):
            colours = np.repeat(picture, 3 // len(picture), axis=0).transpose(1, 2, 0)
            place.imshow(colours, interpolation="nearest", aspect="equal")
            place.set(xticks=[], yticks=[], frame_on=False)
    with replaced(path) as file:
        figure.savefig(file, dpi=max(100, *rows[0][1][0].shape), format="png")


# Numbers of a report in words.

NOTHING = "-"
"""Cell of a table for what is not known."""
_LARGE = 1e9  # from here on powers of ten are easier to read
_SPACE = "\u00a0"  # which no line ends at


def count(value: Any) -> str:
    """Return a whole number with its thousands apart."""
    return NOTHING if value is None else f"{value:,}"


def decimal(value: Any) -> str:
    """Return a number to four digits, and a larger one to its unit."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if 1000 <= abs(value) < _LARGE else f"{value:.4g}"


def share(value: Any) -> str:
    """Return a share as a percentage."""
    return NOTHING if value is None else f"{100 * value:.1f}{_SPACE}%"


def size(value: Any) -> str:
    """Return a number of bytes."""
    return NOTHING if value is None else in_bytes(value).replace(" ", _SPACE)


def node_figure(name: str, value: Any) -> str:
    """Return a figure of a node in words, by its name in ``nodes.json``."""
    if value is None:
        return NOTHING
    if name == "test_accuracy":
        return share(value)
    return count(value) if isinstance(value, int) else decimal(value)
