"""The table of a report's sections, in the order in which they are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gossamer.report.curves import axes_of, curves
from gossamer.report.figure import Shown
from gossamer.report.nodes import section_values
from gossamer.report.privacy_section import privacy
from gossamer.report.records import RunRecord
from gossamer.report.section import Section as Section


def progress(records: Sequence[RunRecord], public: bool) -> Section | None:
    """Return the curves of what runs reached."""
    told = _told(records, public)
    if records and not told:
        return None
    figures = list(curves(told))
    return Section("figures", "Progress", figures, "progress.html", {"axes": axes_of(figures)})


def nodes(records: Sequence[RunRecord], public: bool) -> Section | None:
    """Return what each node did."""
    found = section_values(_told(records, public), public)
    return None if found is None else Section("nodes", "Nodes", found[0], "nodes.html", found[1])


def _told(records: Sequence[RunRecord], public: bool) -> list[RunRecord]:
    """Return the runs whose course may be shown: times and counts of some are part of what their guarantee hides."""
    return [record for record in records if not (public and record.secret_schedule)]


Maker = Callable[[Sequence[RunRecord], bool], Section | None]
"""(runs, whether only what is public or released may be shown) -> the section, or None if there is nothing for it."""

SECTIONS: tuple[Maker, ...] = (privacy, progress, nodes)
"""Makers of all sections, in order."""


def sections_of(
    records: Sequence[RunRecord],
    *,
    public: bool = False,
    before: Sequence[Section] = (),
    makers: Sequence[Maker] = SECTIONS,
) -> list[Section]:
    """Return the sections of ``records``, after others that come ``before`` them.

    With ``public``, without figures that tell of more than was released.
    """
    own = [section for maker in makers if (section := maker(records, public)) is not None]
    made = [*before, *own]
    return [_released(section) for section in made] if public else made


def _released(section: Section) -> Section:
    return replace(section, figures=[one for one in section.figures if one.shown is not Shown.PRIVATE])
