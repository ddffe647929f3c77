"""Declarations of columns, as flags say them: ``age=0..120``, ``sex=female,male``, ``income=30000``."""

from __future__ import annotations

import csv
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from gossamer.cli.printing import say, wrapped
from gossamer.data.column_hints import is_unnamed, names_somebody
from gossamer.data.columns import Column
from gossamer.data.table import MISSING
from gossamer.data.table_survey import Looked, LookedAt
from gossamer.errors import CallerError, counted, did_you_mean
from gossamer.experiment.specs.spec_draft import Draft, texts_in
from gossamer.section import said

# Questions about a table, asked in a terminal of whoever holds its rows.
#
# What was found in the rows is shown to help with the answer, but nothing of it goes into a spec unless the answer says
# so: numbers are never offered, since the least and the most of them are somebody's own; texts are, as ``same``.

T = TypeVar("T")

UNKNOWN = "unknown"
"""Category of empty cells that are read as no other."""
_SHOWN = 12
_SUCH = {"number": "as which number, such as a usual one?", "boolean": "as true or as false?"}


def ask(question: str, read: Callable[[str], T | None], expected: str = "") -> T:
    """Ask until there is an answer that ``read`` takes.

    Parameters
    ----------
    question : str
        Words that are shown.
    read : callable
        Function of an answer; for one that is none it raises `CallerError`, or returns None.
    expected : str, optional
        Words on what an answer is.

    Raises
    ------
    CallerError
        If the terminal has no more answers.
    """
    while True:
        try:
            answer = input(f"{question} ").strip()
        except EOFError:
            raise CallerError(f"expected an answer to {question!r}, found the end of the input; start again") from None
        try:
            if (found := read(answer)) is not None:
                return found
            say(wrapped(f"  expected {expected}, found {answer!r}"))
        except CallerError as error:
            say(wrapped(f"  {error}"))


def ask_column(question: str, names: Mapping[str, Any], *, optional: bool = False) -> str | None:
    """Ask for the name of a column."""

    def read(answer: str) -> str:
        if answer not in names and not (optional and not answer):
            raise CallerError(f"the file has no column {answer!r}{did_you_mean(answer, names)}")
        return answer

    found = ask(question, read)
    return None if optional and found == "" else found


def ask_header(problem: str) -> str:
    """Ask whether the first row has names of columns."""
    say(wrapped(problem))
    return str(ask_yes("Are the cells of the first row names of columns, and no example?")).lower()


def ask_yes(question: str) -> bool:
    """Ask for yes or no."""
    answers = {"yes": True, "y": True, "no": False, "n": False}
    return ask(f"{question} (yes, no)", lambda answer: answers.get(answer.lower()), "yes or no")


def ask_count(question: str) -> int:
    """Ask for a number of things."""
    return ask(
        question, lambda text: (text.isascii() and text.isdigit() and int(text)) or None, "a whole number such as 3"
    )


def introduce(looked: Looked) -> None:
    """Say what is asked, and of what."""
    columns = ", ".join(name or "''" for name in looked.columns)
    table = f"{looked.path}: {counted(looked.rows, 'row', form=',')}, columns {columns}."
    how = (
        "The spec is public, so answer from what is known without these rows. 'same' declares the texts that are "
        "shown; '-' leaves a column out, such as a number that only names a row; 'marks -9,999' says that such cells "
        "say nothing; 'mean 80,15' is a published mean and deviation. Ctrl-C stops, and nothing is written."
    )
    if any(column.empty for column in looked.columns.values()):
        how += f" A cell counts as empty if nothing is in it, or one of {', '.join(sorted(MISSING - {''}))}."
    say(f"{wrapped(table)}\n{wrapped(how)}\n")


def ask_labels(target: str, column: LookedAt) -> list[str | int]:
    """Ask for the classes of the target; none for a regression."""
    say(f"{target}: {_shown(column)}")
    number = column.numbers and len(column.texts) > _SHOWN

    def read(answer: str) -> list[str | int]:
        if not answer and number:
            return []
        return labels_of(target, _covering(answer, column, "add them"))

    return ask(f"  classes, with commas{' (Enter: none, it is a number)' if number else ', or same'}:", read)


def ask_target_range(target: str) -> list[float]:
    """Ask for the range of a target that is a number."""
    return ask("  range in which most such values lie, such as 80..200:", lambda answer: range_of(target, answer))


def ask_columns(found: Draft, columns: Mapping[str, LookedAt]) -> None:
    """Ask what flags did not say of columns, and add it to what was ``found``."""
    for name, column in columns.items():
        while name not in found.columns and name not in found.left_out:
            say(f"{name}: {_shown(column)}{_gaps(column)}")
            _ask_kind(found, name, found.read(name, column))
        if found.read(name, column).empty and name not in found.missing and name not in found.left_out:
            _ask_missing(found, name)


def ask_mark(found: Draft, name: str, mark: str, column: LookedAt) -> None:
    """Ask whether a number that stands apart says nothing."""
    marked = ask_yes(f"{name}: {mark} stands apart from all else in it. Does it say that nothing is known?")
    found.column_marks[name] = [mark] if marked else []
    if found.read(name, column).empty and name not in found.missing:
        _ask_missing(found, name)


def _ask_kind(found: Draft, name: str, column: LookedAt) -> None:
    def read(answer: str) -> Any:
        word, _, rest = answer.partition(" ")
        if answer == "-":
            found.left_out.append(name)
        elif word == "marks" and rest:
            found.column_marks[name] = texts_of(rest)
            checked(name, found.column(name))
        elif not answer and column.truths:
            return "boolean"
        elif word == "mean" and column.numbers:
            return mean_of(name, rest)
        elif column.numbers and ("," not in answer or ".." in answer) and answer != "same":
            return range_of(name, answer) if answer else "number"
        else:
            return categories_of(name, _covering(answer, column, "add them, or leave the column out with -"))
        return ""

    same = "" if column.many or min(column.texts.values(), default=0) < 2 else ", or same"
    if column.truths:
        question = "Enter if this is true or false, else categories, with commas"
    elif column.numbers:
        question = "range of most values, such as 0..120 (Enter: not known, found privately)"
        question += f"; if they are codes, these, with commas{same}" if column.coded or column.odd == "codes" else ""
    else:
        question = f"categories, with commas{same}"
    declared = ask(f"  {question}:", read)
    if declared:
        found.columns[name] = declared


def _ask_missing(found: Draft, name: str) -> None:
    kind = found.columns.get(name, "number")
    categories = bool(texts_in(kind))

    def read(answer: str) -> Any:
        if categories and not answer:
            answer = UNKNOWN
            found.columns[name] = kind if UNKNOWN in kind else [*kind, UNKNOWN]
        if not answer:
            raise CallerError("expected a value that stands for an empty cell, found no answer; say a usual one")
        declared, value = found.columns.get(name, "number"), missing_value(answer, kind)
        checked(name, Draft(columns={name: declared}, missing={name: value}).column(name))
        return value

    how = (
        f"as which category (Enter: {UNKNOWN}, one of its own)?"
        if categories
        else _SUCH["boolean" if kind == "boolean" else "number"]
    )
    found.missing[name] = ask(f"  read an empty cell of {name} {how}", read)


def _covering(answer: str, column: LookedAt, remedy: str) -> str:
    """Texts that were answered, which have to cover those that are there; ``same`` takes these."""
    if answer == "same":
        if column.many:
            raise CallerError(f"there are too many different texts to declare them all; {remedy}")
        if min(column.texts.values(), default=0) < 2:
            raise CallerError(
                f"some are those of a single row, which may say who it is; say all that there can be; {remedy}"
            )
        return ",".join(f'"{text}"' for text in sorted(column.texts))
    if others := sorted(column.texts.keys() - set(texts_of(answer))):
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        named = ", ".join(map(repr, others[:_NAMED]))
        raise CallerError(f"rows have {named}{more} too, and what is not declared is refused; {remedy}")
    return answer


def _gaps(column: LookedAt) -> str:
    marks = ", ".join(filter(None, sorted(column.marks)))
    return f"; {counted(column.empty, 'empty cell', form=',')}{f' ({marks})' if marks else ''}" if column.empty else ""


def _shown(column: LookedAt) -> str:
    """Show what a column has: its texts where they are few."""
    if column.numbers and len(column.texts) > 2 and not column.coded:
        return "numbers, another one in each row" if column.differs else "numbers"
    if not column.numbers and 2 * column.words.total() < column.texts.total():
        return f"numbers, and {', '.join(sorted(column.words)[:_NAMED])} ('marks A,B' if such texts say nothing)"
    if column.many or len(column.texts) > _SHOWN:
        return f"{'more than ' if column.many else ''}{len(column.texts):,} different texts"
    return ", ".join(f'"{text}"' if "," in text else text for text in sorted(column.texts)) or "nothing"


def declared(options: Any, names: Sequence[str]) -> Draft:
    """Read what flags declare of columns called ``names``.

    Raises
    ------
    CallerError
        For a column that is not there or declared twice, or a value that is none of its kind; it names the flag.
    """
    found = Draft()
    for flag, (read, example) in _FLAGS.items():
        for text in getattr(options, flag[2:]) or ():
            name, value = _named(flag, text, names, example)
            _add(found.columns, flag, name, read(f"{flag} {name}", value))
    for flag in ("--boolean", "--number"):
        for text in getattr(options, flag[2:]) or ():
            _add(found.columns, flag, _known(flag, text, names), flag[2:])
    for text in options.missing_marks or ():
        name, equals, value = text.rpartition("=") if text.rpartition("=")[0] in names else ("", "", text)
        if equals:
            _add(found.column_marks, "--missing-marks", name, texts_of(value))
        else:
            found.marks += texts_of(value)
    found.left_out += [name for name in names if is_unnamed(name) and name not in found.columns]
    for text in options.drop or ():
        if _known("--drop", text, names) not in found.left_out:
            found.left_out.append(text)
    if twice := [name for name in found.left_out if name in found.columns]:
        raise CallerError(f"--drop {twice[0]}: another flag declares this column; leave one of them out")
    for text in options.missing or ():
        name, value = _named("--missing", text, names, "income=30000")
        _add(found.missing, "--missing", name, missing_value(value, found.columns.get(name)))
    for name in found.missing:
        checked(f"--missing {name}", found.column(name))
    for name in found.column_marks:
        checked(f"--missing-marks {name}", found.column(name))
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
    if texts_in(column):
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


def undeclared(found: Draft, columns: Mapping[str, LookedAt]) -> list[str]:
    """Say what flags are lacking for columns to be read, a piece for each."""
    missing = []
    for name, column in columns.items():
        if name in found.left_out:
            continue
        if name not in found.columns and (doubt := _doubt(name, column)):
            missing.append(f"{name} {doubt}, or {flag('drop', name)})")
        if column.empty and name not in found.missing:
            missing.append(f"{name} has empty cells ({flag('missing', name, 'VALUE')}, or {flag('drop', name)})")
    return missing


def flag(what: str, name: str, value: str | None = None) -> str:
    """A flag of a column as it can be pasted."""
    return f"--{what} {shlex.quote(name if value is None else f'{name}={value}')}"


def _doubt(name: str, column: LookedAt) -> str | None:
    """Return what a column may be that nobody declared, with the flags that say so; None for a plain number."""
    number = f"{flag('range', name, 'LOW..HIGH')} or {flag('number', name)} if it is a feature"
    listed = flag("categories", name, "A,B,...")
    if column.truths:
        return f"has texts ({flag('boolean', name)}" if column.words else f"has 0 and 1 ({flag('boolean', name)}"
    if column.words and all(map(_AMOUNT.fullmatch, column.words)):
        return "has signs in its numbers, as of thousands or percent (write them plainly in the file, such as 1234.5"
    if column.words and 2 * column.words.total() < column.texts.total():
        few = ",".join(f'"{text}"' if "," in text else text for text in sorted(column.words)[:_NAMED])
        return f"has texts among its numbers ({flag('missing-marks', name, few)} if they say nothing, {listed} if codes"
    if column.words:
        return f"has texts ({listed}"
    if column.odd in ("codes", "dates"):
        return f"has numbers that are written as {column.odd} are ({listed} if they are codes, {number}"
    if (names_somebody(name) and not column.coded) or column.differs or column.odd:
        return f"may name rows or persons ({flag('person', name)} if these are persons, {number}"
    if column.coded:
        return f"has few whole numbers ({listed} if they are codes, {number}"
    return None


_NAMED = 3
_AMOUNT = re.compile(r"[+-]?[$€£]? ?\d+([., '\u00a0\u202f]\d{3})*([.,]\d+)? ?[$€£%]?")


def check_target(target: str, declared: Any, labels: list[str | int] | None) -> None:
    """Refuse what was ``declared`` of a target of another kind.

    Raises
    ------
    CallerError
        If it has classes, or is said to be no number.
    """
    if declared is None:
        return
    if labels:
        raise CallerError(f"{target} is the target's column, and has classes; declare nothing else of it")
    if declared == "boolean" or texts_in(declared):
        raise CallerError(
            f"{target} is the target's column, a number with --regression; declare its range: "
            f"{flag('range', target, 'LOW..HIGH')}"
        )


def lacking_range(target: str) -> str:
    """Say that the target's range is lacking, as a piece of an error."""
    return f"{target} has no range ({flag('range', target, 'LOW..HIGH')}: from where to where targets mostly lie)"
