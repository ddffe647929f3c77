"""The page: figures and tables of runs, or of deployed parties, in one file that needs no network.

Runs have a row each at the top, notes, and the `SECTIONS` in their order. A party shows what its node leaves in its
state folder, and what is proved of its part.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from gossamer.errors import DataError, listed
from gossamer.files import MOST_RECORDS, make_own_folder, read_text, words_beside, write_own
from gossamer.report import drawing
from gossamer.report.curves import axes_of, curves
from gossamer.report.model_card import described
from gossamer.report.nodes import section_of_nodes
from gossamer.report.privacy import privacy
from gossamer.report.records import SCORES, SUMMARY, RunRecord, read_record
from gossamer.report.scores import private_evaluation, remarks, scores
from gossamer.version import __version__

FILE, PAPER, FIGURES = "report.html", "report.pdf", "report-figures"
"""Names of the page, of the same on paper, and of the folder with its figures."""
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
        Sentences that a reader must know before figures.
    sections : sequence of PageSection
        All else.
    public : bool
        Whether figures were left out that nothing covers.
    opening : sequence of str
        Sentences on what is predicted, of whom, and what for.
    leading : sequence of str
        Names of the sections that come first where all else, being of many runs, waits until a reader opens it.
    """

    title: str
    heading: str
    overview: Sequence[Mapping[str, str]]
    notes: Sequence[str]
    sections: Sequence[drawing.PageSection]
    public: bool = False
    opening: Sequence[str] = ()
    leading: Sequence[str] = ()

    @property
    def figures(self) -> list[drawing.Figure]:
        """All figures, in order."""
        return [figure for section in self.sections for figure in section.figures]


def page_of_runs(
    records: Sequence[RunRecord], *, public: bool = False, before: Sequence[drawing.PageSection] = ()
) -> Page:
    """Return the page of runs, sections ``before`` its own first.

    With ``public``, it is without what tells of more than was released.
    """
    title = records[0].name if len(records) == 1 else f"{len(records)} runs"
    cells = _scores([record.summary for record in records], SCORES, public)
    rows = [_row(record, public, scored) for record, scored in zip(records, cells, strict=True)]
    sections = sections_of(records, public=public, before=before)
    leading = [one.name for one in before] + ["figures"] if before and len(records) > 1 else []
    return Page(title, "Runs", rows, notes(records, public=public), sections, public, described(records), leading)


def _scores(summaries: Sequence[Mapping[str, Any]], words: Mapping[str, str], public: bool) -> list[dict[str, str]]:
    """Cells of the scores that some of the ``summaries`` hold, by the heading of their column; none in public."""
    metrics = [{} if public else summary.get("metrics") or {} for summary in summaries]
    held = {name: said for name, said in words.items() if any(one.get(name) is not None for one in metrics)}
    form = {
        name: drawing.share if name.endswith(("accuracy", "sensitivity", "specificity")) else drawing.decimal
        for name in held
    }
    return [{said: form[name](one.get(name)) for name, said in held.items()} for one in metrics]


def _row(record: RunRecord, public: bool, scores: Mapping[str, str]) -> dict[str, str]:
    summary, guarantee = record.summary, record.guarantee
    course = {
        "ended": words_beside(__file__)["ended"].get(_status(summary, public), drawing.NOTHING),
        "updates": drawing.count(summary.get("updates")),
        "virtual seconds": drawing.decimal(summary.get("virtual_seconds")),
        "sent": drawing.size(summary.get("bytes")),
    }
    return {
        "run": record.name,
        "algorithm": str(summary["algorithm"]),
        "nodes": drawing.count(summary.get("nodes")),
        **(dict.fromkeys(course, drawing.NOTHING) if public and record.secret_schedule else course),
        **scores,
        "epsilon planned": drawing.decimal(guarantee.get("epsilon")),
        "delta": drawing.decimal(guarantee.get("delta")),
        "mu": drawing.decimal(guarantee.get("mu")),
    }


def _status(summary: Mapping[str, Any], public: bool) -> str:
    """End of a run in words; in public, not that test examples say of its end that it diverged."""
    status, nodes = str(summary.get("status")), summary.get("ended")
    if not public or "ended_worse" not in summary or not isinstance(nodes, Mapping) or status != "diverged":
        return status
    return next((reason for reason in ("diverged", "updates", "virtual_seconds") if reason in nodes), "finished")


def notes(records: Sequence[RunRecord], *, public: bool = False) -> list[str]:
    """Return what a reader of the runs must know before comparing them, a sentence each."""
    hidden = [record for record in records if public and record.secret_schedule]
    told = [record for record in records if record not in hidden]
    said = [] if public else remarks(records)
    said += [
        f"{record.name} is without its course: the guarantee holds only if nobody learns times, and numbers of "
        "messages and updates, which tell whom the server drew."
        for record in hidden
    ]
    said += [
        f"{record.name} has not come to its end: its figures are those up to its last evaluation."
        for record in told
        if record.interrupted
    ]
    said += [f"{record.name} has no evaluations, so no curve shows it." for record in told if not record.metrics]
    versions = {str(record.summary.get("gossamer", "unknown")): record.name for record in reversed(records)}
    if len(versions) > 1:
        each = ", ".join(f"{version} ({name})" for version, name in reversed(versions.items()))
        said.append(f"The runs are of different versions of Gossamer, so they may differ for that reason too: {each}.")
    return said


def progress(records: Sequence[RunRecord], public: bool) -> drawing.PageSection | None:
    """Return the curves of what runs reached."""
    told = _told(records, public)
    if records and not told:
        return None
    figures = list(curves(told))
    return drawing.PageSection("figures", "Progress", figures, "progress.html", {"axes": axes_of(figures)})


def nodes(records: Sequence[RunRecord], public: bool) -> drawing.PageSection | None:
    """Return what each node did."""
    return section_of_nodes(_told(records, public), public)


def _told(records: Sequence[RunRecord], public: bool) -> list[RunRecord]:
    """Return the runs whose course may be shown: times and counts of some are part of what their guarantee hides."""
    return [record for record in records if not (public and record.secret_schedule)]


Maker = Callable[[Sequence[RunRecord], bool], drawing.PageSection | None]
"""(runs, whether only what is public or released may be shown) -> the section, or None if there is nothing for it."""

SECTIONS: tuple[Maker, ...] = (scores, privacy, private_evaluation, progress, nodes)
"""Makers of all sections, in order."""


def sections_of(
    records: Sequence[RunRecord],
    *,
    public: bool = False,
    before: Sequence[drawing.PageSection] = (),
    makers: Sequence[Maker] = SECTIONS,
) -> list[drawing.PageSection]:
    """Return the sections of ``records``, after others that come ``before`` them.

    With ``public``, without figures that tell of more than was released.
    """
    own = [section for maker in makers if (section := maker(records, public)) is not None]
    made = [*before, *own]
    return [_released(section) for section in made] if public else made


def _released(section: drawing.PageSection) -> drawing.PageSection:
    return replace(section, figures=[one for one in section.figures if one.shown is not drawing.Shown.PRIVATE])


# Deployed parties

STATUS = "status.json"
"""File by which a state folder is known."""
_LINES = 50  # of the log
_HEIGHT, _LABEL = 28, 160  # pixels of a bar, and of its name
_SAID = 12  # bars that are put into words


@dataclass(frozen=True)
class PartyRecord:
    """A party as its state folder tells it.

    Attributes
    ----------
    path : Path
        The folder.
    status : mapping
        Status that the node last wrote of itself.
    problems : sequence of str
        Problems that somebody should look at.
    result : RunRecord or None
        Result of its part, once there is a ``summary.json``.
    log : sequence of str
        The last lines of ``node.log``.
    """

    path: Path
    status: Mapping[str, Any]
    problems: Sequence[str] = ()
    result: RunRecord | None = None
    log: Sequence[str] = field(default=(), repr=False)

    @property
    def name(self) -> str:
        """Name of the node."""
        return str(self.status.get("node", self.path.name))


def is_party(folder: Path) -> bool:
    """Whether a folder is a state folder."""
    return (folder / STATUS).is_file()


def folders_in(folder: Path) -> list[Path]:
    """Return the state folders in that of ``gossamer up`` or of a party, or else the folder itself."""
    found = [one.parent for below in ("state", "*/state") for one in sorted(folder.glob(f"{below}/{STATUS}"))]
    return found or [folder]


def read_party(folder: Path, status: Mapping[str, Any], problems: Sequence[str] = ()) -> PartyRecord:
    """Return the party of a state folder, whose status was read already.

    Raises
    ------
    DataError
        If its summary is none.
    """
    result = read_record(folder, str(status.get("node", folder.name))) if (folder / SUMMARY).exists() else None
    try:
        log = read_text(folder / "node.log", MOST_RECORDS).splitlines()[-_LINES:]
    except OSError:
        log = []
    return PartyRecord(folder, status, problems, result, log)


def page_of_parties(parties: Sequence[PartyRecord], *, public: bool = False) -> Page:
    """Return the page of deployed parties; with ``public``, without what is for their owners alone."""
    title = parties[0].name if len(parties) == 1 else f"{len(parties)} parties"
    said = [] if public else [f"{party.name}: {problem}" for party in parties for problem in party.problems]
    return Page(title, "Parties", party_rows(parties, public=public), said, party_sections(parties, public), public)


def party_rows(parties: Sequence[PartyRecord], *, public: bool = False) -> list[dict[str, str]]:
    """Return a row for each party, its cells by the heading of their column."""
    summaries = [{} if party.result is None else party.result.summary for party in parties]
    scores = _scores(summaries, {"test_accuracy": "accuracy", **SCORES}, public)
    return [_party_row(party, public, scored) for party, scored in zip(parties, scores, strict=True)]


def _party_row(party: PartyRecord, public: bool, scores: Mapping[str, str]) -> dict[str, str]:
    status, result = party.status, party.result
    guarantee: Mapping[str, Any] = {} if result is None else result.guarantee
    known = {name: str(status.get(name) or drawing.NOTHING) for name in ("role", "algorithm", "state")}
    own = {
        "why": str(status.get("finished") or status.get("why") or drawing.NOTHING),
        "updates": drawing.count(status.get("updates")),
        "releases": f"{drawing.count(status.get('releases'))} of {drawing.count(status.get('planned_releases'))}",
        **scores,
        "budget charged": drawing.share((status.get("policy") or {}).get("share_charged")),
    }
    proved = {name: drawing.decimal(guarantee.get(name)) for name in ("epsilon", "delta", "mu")}
    return {"node": party.name, **known, **({} if public else own), **proved}


def party_sections(parties: Sequence[PartyRecord], public: bool) -> list[drawing.PageSection]:
    """Return the sections of a report of parties: their own figures, and what is proved of their part."""
    results = [party.result for party in parties if party.result is not None]
    makers = [maker for maker in SECTIONS if maker is not progress]  # a party's node keeps no curve
    proved = sections_of(results, public=public, makers=makers) if results else []
    log = {party.name: party.log for party in parties if party.log}
    own = drawing.PageSection("party", "This party alone", list(party_figures(parties)), "party.html", {"log": log})
    return proved if public else [own, *proved]


def party_figures(parties: Sequence[PartyRecord]) -> Iterator[drawing.Figure]:
    """Yield the figures of parties, which nobody but their owners should see."""
    made, charged, heard = [], [], []
    unmade, left = "planned, not made", "left"
    for party in parties:
        status, name = party.status, party.name
        if planned := status.get("planned_releases"):
            done = status.get("releases", 0)
            made += [(name, "made", done), (name, unmade, planned - done)]
        if (spent := (status.get("policy") or {}).get("share_charged")) is not None:
            charged += [(name, "charged by all runs", spent), (name, left, max(0.0, 1 - spent))]
        for peer, state in (status.get("peers") or {}).items():
            called = peer if len(parties) == 1 else f"{name}: {peer}"
            heard.append((called, state.get("state"), state.get("seconds")))
    yield from _bars("releases", "Releases of the node", "releases", "node", made, rest=unmade)
    yield from _bars("budget", "Budget of the policy", "share of the budget", "node", charged, rest=left, form="%")
    yield from _bars("peers", "Peers, when the node last looked", "seconds since heard", "peer", heard)


def _bars(
    name: str, title: str, unit: str, of: str, parts: Sequence[tuple[str, Any, Any]], rest: str = "", form: str = ""
) -> Iterator[drawing.Figure]:
    """Yield the figure of bars, if there are any.

    Parameters
    ----------
    name, title : str
        Name in file names, and title of the figure.
    unit, of : str
        Unit of the values, and kind of thing that each bar is about.
    parts : sequence of (str, str, float)
        What each part is of, what it is, and its value; parts of a bar are side by side.
    rest : str
        Part of each bar that is drawn in grey, since it is not there yet.
    form : str
        Format of the axis' numbers, in d3's words.
    """
    if not parts:
        return
    alt, kinds = drawing.altair(), list(dict.fromkeys(str(part) for _, part, _ in parts))
    rows = [{"of": bar, "part": part, "value": value} for bar, part, value in parts]
    ranked = [{**row, "rank": kinds.index(str(row["part"]))} for row in rows]
    colours = ["#9aa4ae" if part == rest else drawing.COLOURS[n % len(drawing.COLOURS)] for n, part in enumerate(kinds)]
    axis = alt.Axis(format=form or alt.Undefined, tickCount=alt.ExprRef(drawing.TICKS))
    shown = alt.Tooltip("value:Q", title=unit, format=form or ",.4~g")
    bars = alt.Chart(alt.Data(name="rows", values=ranked)).mark_bar(stroke="currentColor", strokeOpacity=0.4)
    chart = bars.encode(
        x=alt.X("value:Q", title=unit, axis=axis, scale=alt.Scale(nice=False)),
        y=alt.Y("of:N", title=of, sort=None, axis=alt.Axis(labelLimit=_LABEL)),
        color=alt.Color("part:N", title=None, sort=None, scale=alt.Scale(domain=kinds, range=colours)),
        order=alt.Order("rank:Q"),
        tooltip=[alt.Tooltip("of:N", title=of), alt.Tooltip("part:N", title="part"), shown],
    )
    said = [f"{of_}: {part}, " + (f"{100 * value:.3g} %" if form else f"{value:.4g}") for of_, part, value in parts]
    words = f"{title} ({unit}). {listed(said, _SAID, '; ')}."
    height = _HEIGHT * len({row["of"] for row in rows})
    yield drawing.Figure.of(f"party-{name}", title, words, drawing.Shown.PRIVATE, chart, rows, height)


# What is written


def write_report(
    records: Sequence[RunRecord], folder: Path, *, public: bool = False, before: Sequence[drawing.PageSection] = ()
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


def write_paper(page: Page, folder: Path) -> Path:
    """Write a page as PDF into ``folder``, with tags for readers aloud, and return where it is.

    Raises
    ------
    DataError
        If the package that sets it is not installed, or lacks a library of the system.
    """
    pillow = drawing.needed("PIL.ImageFile", "pdf", "a report on paper")
    cut_off = pillow.LOAD_TRUNCATED_IMAGES
    try:
        library = drawing.needed("weasyprint", "pdf", "a report on paper")
    except OSError as error:  # it loads Pango by its name
        raise DataError(
            f"a report on paper needs the library Pango, which was not found ({str(error).splitlines()[0][:80]}); "
            "install it (Debian: libpangoft2-1.0-0)"
        ) from None
    finally:
        # Its import has Pillow read pictures that are cut off as whole ones, everywhere in the process.
        pillow.LOAD_TRUNCATED_IMAGES = cut_off
    # 270 dots an inch: not all that show a PDF draw the colour gradients that an SVG becomes there.
    untitled = {one.name: replace(one, title="") for one in page.figures}  # the page has the title above
    pictures = {name: f"data:image/png;base64,{b64encode(one.png(3.0)).decode()}" for name, one in untitled.items()}
    inside = library.urls.URLFetcher(allowed_protocols=("data",))  # nothing is asked of a network, nor of a disk
    document = library.HTML(string=html(page, pictures), url_fetcher=inside)
    write_own(folder / PAPER, document.write_pdf(pdf_variant="pdf/ua-1"))
    return folder / PAPER


def write_figures(page: Page, folder: Path) -> Path:
    """Write each figure of a page as SVG, PNG and CSV into a folder of their own in ``folder``, and return where."""
    there = folder / FIGURES
    make_own_folder(there)
    for figure in page.figures:
        for kind in ("svg", "png", "csv"):
            figure.save(there / f"{figure.name}.{kind}")
    return there


def html(page: Page, pictures: Mapping[str, str] | None = None) -> str:
    """Return the whole page as HTML; with ``pictures`` of its figures, by name, in the place of code that draws."""
    library = drawing.needed("jinja2")
    loader = library.FunctionLoader(lambda name: resources.files(__package__).joinpath(name).read_text("utf-8"))
    environment = library.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.globals["pictures"] = pictures  # of macros, too
    charts = {"config": drawing.config(), "specs": {figure.name: figure.spec for figure in page.figures}}
    text: str = environment.get_template("page.html").render(
        page=page, version=__version__, charts=_script(charts), library=_library() if pictures is None else ""
    )
    return text


@cache
def _library() -> str:
    """Code that draws charts in a browser, which takes seconds to gather."""
    return str(drawing.needed("vl_convert").javascript_bundle(_SNIPPET)).replace("</script", "<\\/script")


def _script(value: Any) -> str:
    """JSON that may stand inside a script: no text in it can end the script or open a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
