"""Advice on numbers that nobody scales and labels that nobody declares, by settings alone: no value is looked at."""

from __future__ import annotations

from pathlib import Path

from gossamer.data.catalogue import KNOWN
from gossamer.data.columns import Column
from gossamer.data.settings import GENERATED, IN_MEMORY, TABLES, DatasetSettings, Format, NoScale

_RATIO = 10.0
_MOST = 5
_WHY = "private learning clips every example's gradient, so that a column of large numbers drowns the others"


def unscaled(settings: DatasetSettings, form: Format | None) -> list[str]:
    """Return what to say of features that nobody scales, at most a line; ``form`` is the format of the files."""
    elsewhere = isinstance(settings.columns, Path)
    if settings.divide_by is not None or settings.normalise != "none" or elsewhere:
        return []
    if not isinstance(settings.columns, dict):
        return [_undeclared(settings)] if form in TABLES and settings.scale is None else []
    if isinstance(settings.scale, NoScale):
        return _differing(settings.name, settings.columns)
    bare = [name for name, column in settings.columns.items() if column.kind == "number" and not column.scaled]
    if not bare or (settings.scale is not None and settings.scale.name != "declared"):
        return []
    shown = ", ".join(bare[:_MOST]) + (", ..." if bare[_MOST:] else "")
    return [
        f"data set {settings.name!r}: nothing says how large numbers in {shown} are, so they are used as they are; "
        f"{_WHY}; give dataset.columns.{bare[0]} a public range, such as [0, 100], or say dataset.scale: none"
    ]


def _undeclared(settings: DatasetSettings) -> str:
    return (
        f"data set {settings.name!r}: nothing says how large numbers in its columns are, so they are used as they "
        f"are; {_WHY}; declare dataset.columns with public ranges, such as age: [0, 120], or say dataset.scale: none"
    )


def _differing(name: str, columns: dict[str, Column]) -> list[str]:
    """Return a line if columns may be of very different size, as far as they are declared."""
    sizes = {column: size for column, declared in columns.items() if (size := _size(declared)) is not None}
    if not sizes:
        return []
    least, most = min(sizes, key=lambda key: sizes[key]), max(sizes, key=lambda key: sizes[key])
    if sizes[most] <= _RATIO * sizes[least]:
        return []
    return [
        f"data set {name!r}: numbers in {most} may be {sizes[most] / sizes[least]:.3g} times as large as those in "
        f"{least}, and dataset.scale: none leaves them so; {_WHY}; leave scale out"
    ]


def _size(column: Column) -> float | None:
    """Return how large numbers of a column may be; None if it does not say."""
    if column.kind != "number":
        return 1.0
    if column.range is not None:
        return max(map(abs, column.range))
    return None if column.mean is None or column.deviation is None else abs(column.mean) + column.deviation


def unlearnable(settings: DatasetSettings) -> list[str]:
    """Return what to say, in a private run, of a target that nobody scales: at most a line."""
    if settings.task != "regression" or settings.target_range is not None or settings.name == GENERATED:
        return []
    return [
        f"data set {settings.name!r}: nothing says how large targets are, so they are learnt as they are; private "
        "learning clips every example's gradient, so that a target far from -1 .. 1 is hardly learnt; give "
        "dataset.target_range its public range, such as [80, 200], or say none"
    ]


def undeclared_labels(settings: DatasetSettings) -> list[str]:
    """Return what to say, in a private run, of labels that are found in rows, and told by a model: at most a line."""
    if settings.task == "regression" or settings.labels is not None or settings.name in KNOWN:
        return []
    if settings.path is None and settings.name != IN_MEMORY:
        return []
    return [
        f"data set {settings.name!r}: its labels are not declared, so which ones occur in the private rows is told by "
        "model.json and every prediction, and no epsilon covers that; declare them as dataset.labels, such as [no, yes]"
    ]
