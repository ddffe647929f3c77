"""The table at the top of a report: a row for each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gossamer.report.records import RunRecord

_NOTHING, _SPACE = "-", "\u00a0"  # a space that no line ends at


def overview(records: Sequence[RunRecord], *, public: bool = False) -> list[dict[str, str]]:
    """Return a row for each run, its cells by the heading of their column."""
    return [_row(record, public) for record in records]


def _row(record: RunRecord, public: bool) -> dict[str, str]:
    summary, guarantee = record.summary, record.guarantee
    metrics = summary.get("metrics") or {}
    scores = {} if public else {"accuracy": _share(metrics.get("mean_model_test_accuracy"))}
    return {
        "run": record.name,
        "algorithm": str(summary["algorithm"]),
        "nodes": _count(summary.get("nodes")),
        "ended": str(summary.get("status", _NOTHING)).replace("_", " "),
        "updates": _count(summary.get("updates")),
        "virtual seconds": _figure(summary.get("virtual_seconds")),
        "sent": _size(summary.get("bytes")),
        **scores,
        "epsilon planned": _figure(guarantee.get("epsilon")),
        "delta": _figure(guarantee.get("delta")),
        "mu": _figure(guarantee.get("mu")),
    }


def _count(value: Any) -> str:
    return _NOTHING if value is None else f"{value:,}"


def _figure(value: Any) -> str:
    return _NOTHING if value is None else f"{value:.4g}"


def _share(value: Any) -> str:
    return _NOTHING if value is None else f"{100 * value:.1f}{_SPACE}%"


def _size(value: Any) -> str:
    if value is None:
        return _NOTHING
    for size, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:.3g}{_SPACE}{name}"
    return f"{value}{_SPACE}bytes"


def notes(records: Sequence[RunRecord]) -> list[str]:
    """Return what a reader of the runs must know before comparing them, a sentence each."""
    said = [
        f"{record.name} has not come to its end: its figures are those up to its last evaluation."
        for record in records
        if record.interrupted
    ]
    said += [f"{record.name} has no evaluations, so no curve shows it." for record in records if not record.metrics]
    versions = {str(record.summary.get("gossamer", "unknown")): record.name for record in reversed(records)}
    if len(versions) > 1:
        each = ", ".join(f"{version} ({name})" for version, name in reversed(versions.items()))
        said.append(f"The runs are of different versions of Gossamer, so they may differ for that reason too: {each}.")
    return said
