"""Declarations of columns, as flags and answers say them: ``age=0..120``, ``sex=female,male``, ``income=30000``."""

from __future__ import annotations

import csv
import math
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import Any

from pydantic import ValidationError

from gossamer.data.column_hints import is_unnamed, names_somebody
from gossamer.data.columns import Column
from gossamer.data.dates import as_date
from gossamer.data.table_survey import LookedAt
from gossamer.errors import CallerError, did_you_mean
from gossamer.experiment.specs.spec_draft import Draft, texts_in
from gossamer.mistakes import said


def declared(options: Any, names: Collection[str]) -> Draft:
    """Read what flags declare of columns called ``names``.

    Raises
    ------
    CallerError
        For a column that is not there or declared twice, or a value that is none of its kind; it names the flag.
    """
    found = Draft()
    for what, example in _FLAGS.items():
        for text in getattr(options, what.replace("-", "_")) or ():
            name, value = (text, "") if example is None else _column_of(text, names)
            if value is None and what == "missing-marks" and "=" not in text:
                found.marks += texts_of(text)
                continue
            if value is None and "=" not in text:
                raise CallerError(
                    f"--{what}: expected a column and what is declared of it, such as {example}, found {text!r}"
                )
            declare(found, what, known(f"--{what} ", name, names), value or "", f"--{what} {name}")
    unnamed = [name for name in names if is_unnamed(name) and name not in {*found.columns, *found.left_out}]
    found.left_out = [*unnamed, *found.left_out]
    return found


def _column_of(text: str, names: Collection[str]) -> tuple[str, str | None]:
    """The column that ``text`` begins with, whose name may have an equals sign, and what stands after it."""
    for name in sorted(names, key=len, reverse=True):
        if text.startswith(f"{name}="):
            return name, text[len(name) + 1 :]
    return text.partition("=")[0], None


def known(what: str, name: str, names: Collection[str]) -> str:
    """Return the name, refused if the file has no such column."""
    if name not in names:
        raise CallerError(f"{what}{name}: the file has no such column{did_you_mean(name, names)}")
    return name


def declare(found: Draft, what: str, name: str, text: str = "", where: str = "") -> None:
    """Add what a flag without its dashes says of a column; ``where`` begins a refusal, by default the column.

    Raises
    ------
    CallerError
        If it was declared before, or a spec would not take it; nothing is added then.
    """
    where = where or name
    if what == "was-empty":
        found.was_empty.append(name)
        return
    held: dict[str, dict[str, Any]] = {"missing": found.missing, "missing-marks": found.column_marks}
    into = held.get(what, found.columns)
    if name in into:
        raise CallerError(f"{where}: this column was declared before; leave one of them out")
    if what == "drop":
        found.left_out += [] if name in found.left_out else [name]
        return
    into[name] = _READ[what](where, text, found.columns.get(name))
    try:
        Column.model_validate(found.column(name))
    except ValidationError as error:
        del into[name]
        raise CallerError(f"{where}: {said(error.errors()[0])}") from None


def range_of(where: str, text: str, _: Any = None) -> list[float]:
    """The least and the most, of ``0..120``."""
    least, most = _numbers(where, text, "..", "the least and the most, such as 0..120")
    if least >= most:
        raise CallerError(f"{where}: expected the least first and then a larger number, such as 0..120, found {text!r}")
    return [least, most]


def _mean_of(where: str, text: str, _: Any) -> dict[str, float]:
    """The mean and the deviation, of ``80,15``."""
    mean, deviation = _numbers(where, text, ",", "a mean and a deviation, such as 80,15")
    if deviation <= 0:
        raise CallerError(f"{where}: expected a mean and a deviation above 0, such as 80,15, found {text!r}")
    return {"mean": mean, "deviation": deviation}


def _date_of(where: str, text: str, _: Any) -> Any:
    """The first and the last date, of ``2015-01-01..2024-12-31``, and how dates are written, if a comma comes then."""
    ends, comma, form = text.partition(",")
    dates = [as_date(part.strip()) for part in ends.split("..")]
    if len(dates) != 2 or None in dates:
        expected = "the first and the last date, such as 2015-01-01..2024-12-31"
        raise CallerError(f"{where}: expected {expected}, found {ends!r}")
    return {"range": dates, "format": form.strip()} if comma else dates


def _numbers(where: str, text: str, between: str, expected: str) -> list[float]:
    numbers = [number for part in text.split(between) if (number := _number(part)) is not None]
    if len(numbers) != 2 or text.count(between) != 1:
        commas = re.search(r"\d+,\d+", text) if ".." in text or text.count(",") > 1 else None
        how = f"; write decimals with a point, such as {commas[0].replace(',', '.')}" if commas else ""
        raise CallerError(f"{where}: expected {expected}, found {text!r}{how}")
    return numbers


def _number(text: str) -> float | None:
    """A finite number, whole where it can be."""
    try:
        value = float(text)
    except ValueError:
        return None
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


def categories_of(where: str, text: str, _: Any = None) -> list[str]:
    """The texts, of ``female,male``; one with a comma in it stands in double quotes."""
    found = texts_of(text)
    if len(found) < 2 or len(set(found)) < len(found):
        raise CallerError(f"{where}: expected two or more different texts with commas, found {text!r}")
    return found


def texts_of(text: str) -> list[str]:
    """Texts with commas between them."""
    return [part.strip() for row in csv.reader([text], skipinitialspace=True) for part in row if part.strip()]


def quoted(text: str) -> str:
    """A text as it stands among others with commas between them."""
    return f'"{text}"' if "," in text else text


def labels_of(where: str, text: str) -> list[str | int]:
    """The classes, as numbers where all are whole ones."""
    found = categories_of(where, text)
    whole: list[str | int] = [int(label) for label in found if _WHOLE.fullmatch(label)]
    return whole if len(whole) == len(found) else list(found)


_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")


def _missing(where: str, text: str, column: Any) -> Any:
    """Value that an empty cell is read as, for a column declared so."""
    if column == "boolean":
        return _TRUTHS.get(text.lower(), text)
    number = None if texts_in(column) else _number(text)
    return text if number is None else number


_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


_READ: Mapping[str, Callable[[str, str, Any], Any]] = {
    "range": range_of,
    "mean": _mean_of,
    "categories": categories_of,
    "boolean": lambda *_: "boolean",
    "number": lambda *_: "number",
    "date": _date_of,
    "missing": _missing,
    "missing-marks": lambda where, text, _: texts_of(text),
}
"""Readers of what declares a column: (beginning of a refusal, text, what is declared so far) -> declaration."""
_FLAGS: Mapping[str, str | None] = {
    **{"range": "age=0..120", "mean": "heart_rate=80,15", "categories": "sex=female,male"},
    **{"boolean": None, "number": None, "date": "admitted=2015-01-01..2024-12-31", "missing-marks": "hb=-9"},
    **{"drop": None, "missing": "income=30000", "was-empty": None},
}
"""Flags of columns in the order in which they are read, and an example of those that say more than a column."""


def flag(what: str, name: str, value: str | None = None) -> str:
    """A flag of a column as it can be pasted."""
    return f"--{what} {shlex.quote(name if value is None else f'{name}={value}')}"


def dates_in(column: LookedAt) -> str | None:
    """Description that a column of dates needs: from when to when, and how they are written if not as usual."""
    if column.odd == "dates" and all(map(as_date, column.texts)):
        return "FIRST..LAST"
    alike = bool(column.words) and all(map(_DATED.fullmatch, column.words))
    return "FIRST..LAST,FORMAT" if alike or column.odd == "dates" else None


def doubt(name: str, column: LookedAt) -> str | None:
    """Return what a column may be that nobody declared, with the flags that say so; None for a plain number."""
    number = f"{flag('range', name, 'LOW..HIGH')} or {flag('number', name)} if it is a feature"
    listed = flag("categories", name, "A,B,...")
    dates = dates_in(column)
    if column.words and dates:
        return f"has dates ({flag('date', name, dates)}"
    if column.truths:
        return f"has {'texts' if column.words else '0 and 1'} ({flag('boolean', name)}"
    if column.words and all(map(_AMOUNT.fullmatch, column.words)):
        return "has signs in its numbers, as of thousands or percent (write them plainly in the file, such as 1234.5"
    if column.words and 2 * column.words.total() < column.texts.total():
        few = flag("missing-marks", name, ",".join(map(quoted, sorted(column.words)[:3])))
        return f"has texts among its numbers ({few} if they say nothing, {listed} if codes"
    if column.words:
        return f"has texts ({listed}"
    if column.odd in ("codes", "dates"):
        dated = f"{flag('date', name, dates)} if dates, " if dates else ""
        return f"has numbers that are written as {column.odd} are ({listed} if they are codes, {dated}{number}"
    if (names_somebody(name) and not column.coded) or column.differs or column.odd:
        return f"may name rows or persons ({flag('person', name)} if these are persons, {number}"
    if column.coded:
        return f"has few whole numbers ({listed} if they are codes, {number}"
    return None


_DATED = re.compile(r"\d{1,2}([-/. ])\d{1,2}\1\d{4}([ T].*)?")
_AMOUNT = re.compile(r"[+-]?[$€£]? ?\d+([., '\u00a0\u202f]\d{3})*([.,]\d+)? ?[$€£%]?")
