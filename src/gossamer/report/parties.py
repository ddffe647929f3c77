"""A deployed party's own figures, from what its node leaves in its state folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.bounded import MOST_RECORDS, read_text
from gossamer.report.figure import COLOURS, TICKS, Figure, Shown, altair, count, decimal, share
from gossamer.report.records import SUMMARY, RunRecord, read_record
from gossamer.report.sections import SECTIONS, Section, progress, sections_of

_HEIGHT, _LABEL = 28, 160  # pixels of a bar, and of its name


class Bars(NamedTuple):
    """Words of a figure of bars.

    Attributes
    ----------
    name : str
        Name in file names.
    title : str
        Title of the figure.
    unit : str
        Unit of the values.
    of : str
        Kind of thing that each bar is about.
    format : str
        Format of the axis' numbers, in d3's words.
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


STATUS = "status.json"
"""File by which a state folder is known."""
_LINES = 50  # of the log
_UNMADE, _LEFT = "planned, not made", "left"


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


def read_party(folder: Path, status: Mapping[str, Any], problems: Sequence[str] = ()) -> PartyRecord:
    """Return the party of a state folder, whose status was read already.

    Raises
    ------
    DataError
        If its summary is none.
    """
    result = read_record(folder, str(status.get("node", folder.name))) if (folder / SUMMARY).exists() else None
    return PartyRecord(folder, status, problems, result, _log(folder / "node.log"))


def _log(file: Path) -> list[str]:
    try:
        return read_text(file, MOST_RECORDS).splitlines()[-_LINES:]
    except OSError:
        return []


def party_rows(parties: Sequence[PartyRecord], *, public: bool = False) -> list[dict[str, str]]:
    """Return a row for each party, its cells by the heading of their column."""
    return [_row(party, public) for party in parties]


def _row(party: PartyRecord, public: bool) -> dict[str, str]:
    status, result = party.status, party.result
    guarantee: Mapping[str, Any] = {} if result is None else result.guarantee
    metrics = {} if result is None else result.summary.get("metrics") or {}
    known = {name: str(status.get(name) or "-") for name in ("role", "algorithm", "state")}
    own = {
        "why": str(status.get("finished") or status.get("why") or "-"),
        "updates": count(status.get("updates")),
        "releases": f"{count(status.get('releases'))} of {count(status.get('planned_releases'))}",
        "accuracy": share(metrics.get("test_accuracy")),
        "budget charged": share((status.get("policy") or {}).get("share_charged")),
    }
    proved = {name: decimal(guarantee.get(name)) for name in ("epsilon", "delta", "mu")}
    return {"node": party.name, **known, **({} if public else own), **proved}


def party_sections(parties: Sequence[PartyRecord], *, public: bool = False) -> list[Section]:
    """Return the sections of a report of parties: their own figures, and what is proved of their part."""
    results = [party.result for party in parties if party.result is not None]
    makers = [maker for maker in SECTIONS if maker is not progress]  # a party's node keeps no curve
    proved = sections_of(results, public=public, makers=makers) if results else []
    if public:
        return proved
    log = {party.name: party.log for party in parties if party.log}
    return [Section("party", "This party alone", list(party_figures(parties)), "party.html", {"log": log}), *proved]


def party_figures(parties: Sequence[PartyRecord]) -> Iterator[Figure]:
    """Yield the figures of parties, which nobody but their owners should see."""
    for draw in (_releases, _budgets, _peers):
        found = draw(parties)
        if found is not None:
            yield found


def _releases(parties: Sequence[PartyRecord]) -> Figure | None:
    rows = [
        {"of": party.name, "part": part, "value": value}
        for party in parties
        if party.status.get("planned_releases")
        for part, value in (
            ("made", party.status.get("releases", 0)),
            (_UNMADE, party.status["planned_releases"] - party.status.get("releases", 0)),
        )
    ]
    return _drawn(Bars("party-releases", "Releases of the node", "releases", "node", rest=_UNMADE), rows)


def _budgets(parties: Sequence[PartyRecord]) -> Figure | None:
    charged = {party.name: (party.status.get("policy") or {}).get("share_charged") for party in parties}
    rows = [
        {"of": name, "part": part, "value": value}
        for name, share_ in charged.items()
        if share_ is not None
        for part, value in (("charged by all runs", share_), (_LEFT, max(0.0, 1 - share_)))
    ]
    return _drawn(Bars("party-budget", "Budget of the policy", "share of the budget", "node", "%", _LEFT), rows)


def _peers(parties: Sequence[PartyRecord]) -> Figure | None:
    rows = [
        {
            "of": peer if len(parties) == 1 else f"{party.name}: {peer}",
            "part": state.get("state"),
            "value": state.get("seconds"),
        }
        for party in parties
        for peer, state in (party.status.get("peers") or {}).items()
    ]
    return _drawn(Bars("party-peers", "Peers, when the node last looked", "seconds since heard", "peer"), rows)


def _drawn(what: Bars, rows: Sequence[Mapping[str, Any]]) -> Figure | None:
    return bars(what, rows, Shown.PRIVATE) if rows else None
