"""The page: figures and tables of runs in one file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from gossamer.files import write_own
from gossamer.report.curves import curves
from gossamer.report.figure import Figure, Shown
from gossamer.report.libraries import jinja2, vl_convert
from gossamer.report.overview import overview
from gossamer.report.records import RunRecord
from gossamer.version import __version__

FILE = "report.html"
_SNIPPET = "window.drawChart = vegaEmbed;"


def figures_of(records: Sequence[RunRecord], *, public: bool = False) -> list[Figure]:
    """Return all figures of ``records``; with ``public``, those that tell of nothing but what was released."""
    found = [*curves(records)]
    return [figure for figure in found if not public or figure.shown is not Shown.PRIVATE]


def write_report(
    records: Sequence[RunRecord], folder: Path, *, public: bool = False, more: Sequence[Figure] = ()
) -> Path:
    """Write the report of ``records`` into ``folder``, and return where it is; it begins with ``more`` figures.

    Raises
    ------
    DataError
        If the packages that draw it are not installed.
    """
    file = folder / FILE
    shown = [figure for figure in more if not public or figure.shown is not Shown.PRIVATE]
    write_own(file, page(records, [*shown, *figures_of(records, public=public)], public=public))
    return file


def page(records: Sequence[RunRecord], figures: Sequence[Figure], *, public: bool = False) -> str:
    """Return the whole page."""
    environment = jinja2().Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(resources.files(__package__).joinpath("page.html").read_text("utf-8"))
    filled: str = template.render(
        title=records[0].name if len(records) == 1 else f"{len(records)} runs",
        version=__version__,
        records=records,
        overview=overview(records, public=public),
        figures=figures,
        specs=_script([figure.spec for figure in figures]),
        library=vl_convert().javascript_bundle(_SNIPPET).replace("</script", "<\\/script"),
    )
    return filled


def _script(value: Any) -> str:
    """JSON that may stand inside a script: no text in it can end the script or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
