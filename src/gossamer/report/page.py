"""The page: figures and tables in one file that needs no network."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gossamer.files import make_own_folder, write_own
from gossamer.report.figure import Figure, config, jinja2, vl_convert
from gossamer.report.parties import PartyRecord, party_rows, party_sections
from gossamer.report.records import RunRecord
from gossamer.report.sections import Section, notes, overview, sections_of
from gossamer.version import __version__

FILE, FIGURES = "report.html", "report-figures"
"""Names of the page and, beside it, of the folder with its figures."""
_SNIPPET = "window.drawChart = vegaEmbed;"


@dataclass(frozen=True)
class Page:
    """Content of a page.

    Attributes
    ----------
    title : str
        Title of the page.
    heading : str
        Heading of the table at its top.
    overview : sequence of mapping of str to str
        Rows of that table.
    notes : sequence of str
        Sentences that a reader must know first.
    sections : sequence of Section
        All else.
    public : bool
        Whether figures were left out that nothing covers.
    """

    title: str
    heading: str
    overview: Sequence[Mapping[str, str]]
    notes: Sequence[str]
    sections: Sequence[Section]
    public: bool = False

    @property
    def figures(self) -> list[Figure]:
        """All figures, in order."""
        return [figure for section in self.sections for figure in section.figures]


def page_of_runs(records: Sequence[RunRecord], *, public: bool = False, before: Sequence[Section] = ()) -> Page:
    """Return the page of runs, sections ``before`` its own first.

    With ``public``, it is without what tells of more than was released.
    """
    title = records[0].name if len(records) == 1 else f"{len(records)} runs"
    rows = overview(records, public=public)
    return Page(
        title, "Runs", rows, notes(records, public=public), sections_of(records, public=public, before=before), public
    )


def page_of_parties(parties: Sequence[PartyRecord], *, public: bool = False) -> Page:
    """Return the page of deployed parties; with ``public``, without what is for their owners alone."""
    title = parties[0].name if len(parties) == 1 else f"{len(parties)} parties"
    said = [] if public else [f"{party.name}: {problem}" for party in parties for problem in party.problems]
    rows = party_rows(parties, public=public)
    return Page(title, "Parties", rows, said, party_sections(parties, public=public), public)


def figures_of(records: Sequence[RunRecord], *, public: bool = False) -> list[Figure]:
    """Return all figures of ``records``; with ``public``, those that tell of nothing but what was released."""
    return page_of_runs(records, public=public).figures


def write_report(
    records: Sequence[RunRecord], folder: Path, *, public: bool = False, before: Sequence[Section] = ()
) -> Path:
    """Write the report of ``records`` into ``folder``, and return where it is; sections ``before`` its own come first.

    Raises
    ------
    DataError
        If the packages that draw it are not installed.
    """
    return write_page(page_of_runs(records, public=public, before=before), folder)


def write_page(page: Page, folder: Path) -> Path:
    """Write a page into ``folder``, and return where it is."""
    write_own(folder / FILE, html(page))
    return folder / FILE


def write_figures(page: Page, folder: Path) -> Path:
    """Write each figure of a page as SVG, PNG and CSV into a folder of their own in ``folder``, and return where."""
    there = folder / FIGURES
    make_own_folder(there)
    for figure in page.figures:
        for kind in ("svg", "png", "csv"):
            figure.save(there / f"{figure.name}.{kind}")
    return there


def html(page: Page) -> str:
    """Return the whole page as HTML."""
    library = jinja2()
    environment = library.Environment(
        loader=library.FunctionLoader(_template), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    charts = {"config": config(), "specs": {figure.name: figure.spec for figure in page.figures}}
    text: str = environment.get_template("page.html").render(
        page=page, version=__version__, charts=_script(charts), library=_library()
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
