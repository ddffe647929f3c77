"""A figure of a report: a chart, the words for those who do not see it, and its data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from gossamer.errors import DataError
from gossamer.files import write_own
from gossamer.report.libraries import vl_convert
from gossamer.report.look import config


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
        return _MEANING[self]


_MEANING = {
    Shown.PUBLIC: "It follows from the spec, or from what anyone on the wires sees.",
    Shown.RELEASED: "It follows from releases, which the guarantee covers.",
    Shown.PRIVATE: "No guarantee covers it: show it to whom you would show the data.",
}


@dataclass(frozen=True)
class Figure:
    """A chart and what belongs to it.

    Attributes
    ----------
    name : str
        In file names: letters, digits and hyphens.
    title : str
        Of the figure.
    description : str
        Its message in words, read aloud in the place of the chart.
    shown : Shown
        Who may see it.
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
        return str(vl_convert().vegalite_to_svg(json.dumps(self._sized())))

    def png(self, scale: float = 2.0) -> bytes:
        """Return the chart as a PNG picture, ``scale`` pixels for each of its points."""
        return bytes(vl_convert().vegalite_to_png(json.dumps(self._sized()), scale=scale))

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
        spec = dict(self.spec)
        width = {} if "hconcat" in spec or "vconcat" in spec or "facet" in spec else {"width": _WIDTH}
        looks = config("#1b1f24", "white")
        return {**spec, **width, "title": self.title, "config": {**looks, **spec.get("config", {})}}


_WIDTH = 640
