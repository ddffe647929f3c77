"""Content of a report on runs: a row for each at the top, notes, and the table of sections in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from gossamer.report.curves import axes_of, curves
from gossamer.report.figure import NOTHING, Shown, count, decimal, share, size
from gossamer.report.figure import Section as Section
from gossamer.report.nodes import section_values
from gossamer.report.privacy_section import privacy
from gossamer.report.records import RunRecord


def overview(records: Sequence[RunRecord], *, public: bool = False) -> list[dict[str, str]]:
    """Return a row for each run, its cells by the heading of their column."""
    return [_row(record, public) for record in records]


def _row(record: RunRecord, public: bool) -> dict[str, str]:
    summary, guarantee = record.summary, record.guarantee
    metrics = summary.get("metrics") or {}
    scores = {} if public else {"accuracy of the mean model": share(metrics.get("mean_model_test_accuracy"))}
    course = {
        "ended": _ENDED.get(str(summary.get("status")), NOTHING),
        "updates": count(summary.get("updates")),
        "virtual seconds": decimal(summary.get("virtual_seconds")),
        "sent": size(summary.get("bytes")),
    }
    return {
        "run": record.name,
        "algorithm": str(summary["algorithm"]),
        "nodes": count(summary.get("nodes")),
        **(dict.fromkeys(course, NOTHING) if public and record.secret_schedule else course),
        **scores,
        "epsilon planned": decimal(guarantee.get("epsilon")),
        "delta": decimal(guarantee.get("delta")),
        "mu": decimal(guarantee.get("mu")),
    }


_ENDED = {
    "finished": "all finished",
    "updates": "updates made",
    "virtual_seconds": "time was up",
    "accuracy": "accuracy reached",
    "stalled": "stalled",
    "incomplete": "rounds came to nothing",
    "diverged": "diverged",
    "interrupted": "interrupted",
    "running": "has not ended",
}
"""Words for a run's ``status`` (`docs/how-to/simulate.md`, when a run ends)."""


def notes(records: Sequence[RunRecord], *, public: bool = False) -> list[str]:
    """Return what a reader of the runs must know before comparing them, a sentence each."""
    hidden = [record for record in records if public and record.secret_schedule]
    told = [record for record in records if record not in hidden]
    said = [
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
