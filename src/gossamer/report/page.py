"""The page: figures and tables of runs in one file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gossamer.files import write_own
from gossamer.report.figure import Figure
from gossamer.report.libraries import jinja2, vl_convert
from gossamer.report.look import config
from gossamer.report.overview import notes, overview
from gossamer.report.records import RunRecord
from gossamer.report.sections import Section, sections_of
from gossamer.version import __version__

FILE = "report.html"
_SNIPPET = "window.drawChart = vegaEmbed;"


def figures_of(records: Sequence[RunRecord], *, public: bool = False) -> list[Figure]:
    """Return all figures of ``records``; with ``public``, those that tell of nothing but what was released."""
    return [figure for section in sections_of(records, public=public) for figure in section.figures]


def write_report(
    records: Sequence[RunRecord], folder: Path, *, public: bool = False, before: Sequence[Section] = ()
) -> Path:
    """Write the report of ``records`` into ``folder``, and return where it is; sections ``before`` its own come first.

    Raises
    ------
    DataError
        If the packages that draw it are not installed.
    """
    file = folder / FILE
    write_own(file, page(records, sections_of(records, public=public, before=before), public=public))
    return file


def page(records: Sequence[RunRecord], sections: Sequence[Section], *, public: bool = False) -> str:
    """Return the whole page."""
    values = {
        "title": records[0].name if len(records) == 1 else f"{len(records)} runs",
        "records": records,
        "overview": overview(records, public=public),
        "public": public,
        "notes": notes(records),
    }
    return filled("page.html", values, sections)


def filled(template: str, values: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return a page of this room with its ``values`` and ``sections``, and with the code that draws their figures."""
    library = jinja2()
    environment = library.Environment(
        loader=library.FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    text: str = environment.get_template(template).render(
        **values,
        version=__version__,
        sections=sections,
        charts=_script(
            {
                "config": config(),
                "specs": {figure.name: figure.spec for section in sections for figure in section.figures},
            }
        ),
        library=_library(),
    )
    return text


@cache
def _library() -> str:
    """Code that draws charts in a browser, which takes seconds to gather."""
    return str(vl_convert().javascript_bundle(_SNIPPET)).replace("</script", "<\\/script")


def _template(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def _script(value: Any) -> str:
    """JSON that may stand inside a script: no text in it can end the script or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
