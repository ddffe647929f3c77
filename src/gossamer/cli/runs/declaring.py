"""Declarations of columns, as flags say them: ``age=0..120``, ``sex=female,male``, ``income=30000``."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from gossamer.data.columns import Column
from gossamer.errors import CallerError, did_you_mean
from gossamer.section import said

Declared = dict[str, Any]
"""Columns by name, each as ``dataset.columns`` has it."""


@dataclass
class Declaring:
    """Declarations of a table by its user.

    Attributes
    ----------
    columns : dict of str to plain data
        What cells say, by column, as ``dataset.columns`` has it, without ``missing``.
    missing : dict of str to plain data
        What an empty cell is read as, by column.
    dropped : list of str
        Columns that are no features.
    target : plain data, optional
        What targets of a regression are scaled by, as ``dataset.target_range`` has it.
    """

    columns: Declared = field(default_factory=dict)
    missing: dict[str, Any] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    target: Any = None

    def column(self, name: str) -> Any:
        """Declaration of one column, as short as it can be."""
        found = self.columns.get(name, "number")
        if name not in self.missing:
            return found
        missing = {"missing": self.missing[name]}
        if isinstance(found, list):
            return {"categories" if isinstance(found[0], str) else "range": found} | missing
        return (dict(found) if isinstance(found, Mapping) else {} if found == "number" else {"kind": found}) | missing


def declared(options: Any, names: Sequence[str]) -> Declaring:
    """Read what flags declare of columns called ``names``.

    Raises
    ------
    CallerError
        For a column that is not there or declared twice, or a value that is none of its kind; it names the flag.
    """
    found = Declaring()
    for flag, (read, example) in _FLAGS.items():
        for text in getattr(options, flag[2:]) or ():
            name, value = _named(flag, text, names, example)
            _add(found.columns, flag, name, read(f"{flag} {name}", value))
    for text in options.boolean or ():
        _add(found.columns, "--boolean", _known("--boolean", text, names), "boolean")
    for text in options.drop or ():
        if _known("--drop", text, names) not in found.dropped:
            found.dropped.append(text)
    if twice := [name for name in found.dropped if name in found.columns]:
        raise CallerError(f"--drop {twice[0]}: another flag declares this column; leave one of them out")
    for text in options.missing or ():
        name, value = _named("--missing", text, names, "income=30000")
        _add(found.missing, "--missing", name, missing_value(value, found.columns.get(name)))
    for name in found.missing:
        checked(f"--missing {name}", found.column(name))
    return found


def _add(into: dict[str, Any], flag: str, name: str, value: Any) -> None:
    if name in into:
        raise CallerError(f"{flag} {name}: this column was declared before; leave one of them out")
    into[name] = value


def _known(flag: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise CallerError(f"{flag} {name}: the file has no such column{did_you_mean(name, names)}")
    return name


def _named(flag: str, text: str, names: Sequence[str], example: str) -> tuple[str, str]:
    """The column that ``text`` begins with, whose name may have an equals sign, and what stands after it."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    name, equals, value = text.partition("=")
    if not equals:
        raise CallerError(f"{flag}: expected a column and what is declared of it, such as {example}, found {text!r}")
    return _known(flag, name, names), value


def range_of(what: str, text: str) -> list[float]:
    """The least and the most, of ``0..120``."""
    low, dots, high = text.partition("..")
    numbers = [_number(part) for part in (low, high)]
    if not dots or None in numbers:
        raise CallerError(f"{what}: expected the least and the most, such as 0..120, found {text!r}{_comma(text)}")
    found = [number for number in numbers if number is not None]
    checked(what, found)
    return found


def _comma(text: str) -> str:
    """The end of an error about numbers that may have decimal commas, as the table may."""
    found = re.search(r"\d+,\d+", text)
    commas = found is not None and (".." in text or text.count(",") > 1)
    return f"; write decimals with a point, such as {found[0].replace(',', '.')}" if found and commas else ""


def mean_of(what: str, text: str) -> dict[str, float]:
    """The mean and the deviation, of ``80,15``."""
    numbers = [_number(part) for part in text.split(",")]
    if len(numbers) != 2 or None in numbers:
        raise CallerError(f"{what}: expected a mean and a deviation, such as 80,15, found {text!r}{_comma(text)}")
    mean, deviation = (number for number in numbers if number is not None)
    found = {"mean": mean, "deviation": deviation}
    checked(what, found)
    return found


def categories_of(what: str, text: str) -> list[str]:
    """The texts, of ``female,male``; one with a comma in it stands in double quotes."""
    found = texts_of(text)
    if len(found) < 2 or len(set(found)) < len(found):
        raise CallerError(f"{what}: expected two or more different texts with commas, found {text!r}")
    checked(what, found)
    return found


def texts_of(text: str) -> list[str]:
    """Texts with commas between them."""
    return [part.strip() for row in csv.reader([text], skipinitialspace=True) for part in row if part.strip()]


def labels_of(what: str, text: str) -> list[str | int]:
    """The classes, as numbers where all are whole ones."""
    found = categories_of(what, text)
    whole: list[str | int] = [int(label) for label in found if label.lstrip("-").isascii() and _is_whole(label)]
    return whole if len(whole) == len(found) else list(found)


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdigit() and len(digits) < 16 and str(int(digits)) == digits


def missing_value(text: str, column: Any) -> Any:
    """Value that an empty cell is read as, for a column declared so."""
    if column == "boolean":
        truth = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return truth.get(text.lower(), text)
    if isinstance(column, list) and isinstance(column[0], str):
        return text
    number = _number(text)
    return text if number is None else number


def checked(what: str, column: Any) -> None:
    """Refuse a declaration of a column that a spec would not take."""
    try:
        Column.model_validate(column)
    except ValidationError as error:
        raise CallerError(f"{what}: {said(error.errors()[0])}") from None


def _number(text: str) -> float | None:
    """A finite number, whole where it can be."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


_FLAGS: Mapping[str, tuple[Callable[[str, str], Any], str]] = {
    "--range": (range_of, "age=0..120"),
    "--mean": (mean_of, "heart_rate=80,15"),
    "--categories": (categories_of, "sex=female,male"),
}
"""Flags that declare what a column's cells say, with what reads their values, and an example."""


def undeclared(found: Declaring, columns: Mapping[str, Any], apart: Iterable[str]) -> list[str]:
    """Say what flags are lacking for columns to be read, a piece for each; ``apart`` are no features."""
    missing = []
    for name, column in columns.items():
        if name in apart or name in found.dropped:
            continue
        if name not in found.columns and not column.numbers:
            kind = f"--boolean {name}" if column.truths else f"--categories {name}=A,B,..."
            missing.append(f"{name} has texts ({kind}, or --drop {name})")
        if column.empty and name not in found.missing:
            missing.append(f"{name} has empty cells (--missing {name}=VALUE, or --drop {name})")
    return missing
