"""Sections of a report: what each shows, and the table of them in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.report.curves import axes_of, curves
from gossamer.report.figure import Figure, Shown
from gossamer.report.records import RunRecord


@dataclass(frozen=True)
class Section:
    """A part of the page, under a heading.

    Attributes
    ----------
    name : str
        Of its place in the page: letters, digits and hyphens.
    title : str
        Its heading.
    figures : sequence of Figure
        What it draws. The template draws each by ``{{ figure(one) }}``.
    template : str
        File of this room that is filled in below the heading; it sees ``section`` and ``records``.
    values : mapping
        What else the template says, as ``section.values``. All of it is escaped.
    """

    name: str
    title: str
    figures: Sequence[Figure] = ()
    template: str = "figures.html"
    values: Mapping[str, Any] = field(default_factory=dict)


def progress(records: Sequence[RunRecord], public: bool) -> Section:
    """Return the curves of what runs reached."""
    figures = list(curves(records))
    return Section("figures", "Progress", figures, "progress.html", {"axes": axes_of(figures)})


Maker = Callable[[Sequence[RunRecord], bool], Section | None]
"""(runs, whether only what is public or released may be shown) -> the section, or None if there is nothing for it."""

SECTIONS: tuple[Maker, ...] = (progress,)
"""Makers of all sections, in order."""


def sections_of(
    records: Sequence[RunRecord], *, public: bool = False, makers: Sequence[Maker] = SECTIONS
) -> list[Section]:
    """Return the sections of ``records``; with ``public``, without figures that tell of more than was released."""
    made = [section for maker in makers if (section := maker(records, public)) is not None]
    return [_released(section) for section in made] if public else made


def _released(section: Section) -> Section:
    return replace(section, figures=[one for one in section.figures if one.shown is not Shown.PRIVATE])
