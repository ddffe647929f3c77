"""Questions about a table, asked in a terminal of whoever holds its rows.

What was found in the rows is shown to help with the answer, but nothing of it goes into a spec unless the answer says
so: numbers are never offered, since the least and the most of them are somebody's own; texts are, as ``same``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from gossamer.cli.printing import say, wrapped
from gossamer.cli.runs.declaring import (
    Declaring,
    categories_of,
    checked,
    labels_of,
    mean_of,
    missing_value,
    range_of,
    texts_in,
    texts_of,
)
from gossamer.data.cells import MISSING
from gossamer.data.looking import Looked, LookedAt
from gossamer.errors import CallerError, counted, did_you_mean

T = TypeVar("T")

UNKNOWN = "unknown"
"""Category of empty cells that are read as no other."""
_SHOWN = 12
_NAMED = 3
_SUCH = {"number": "as which number, such as a usual one?", "boolean": "as true or as false?"}


def ask(question: str, read: Callable[[str], T]) -> T:
    """Ask until there is an answer that ``read`` takes; it raises `CallerError` for another.

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
            return read(answer)
        except CallerError as error:
            say(wrapped(f"  {error}"))


def ask_column(question: str, names: Mapping[str, Any], *, optional: bool = False) -> str | None:
    """Ask for the name of a column."""

    def read(answer: str) -> str | None:
        if optional and not answer:
            return None
        if answer not in names:
            raise CallerError(f"the file has no column {answer!r}{did_you_mean(answer, names)}")
        return answer

    return ask(question, read)


def ask_header(problem: str) -> str:
    """Ask whether the first row has names of columns."""
    say(wrapped(problem))
    return str(ask_yes("Are the cells of the first row names of columns, and no example?")).lower()


def ask_yes(question: str) -> bool:
    """Ask for yes or no."""

    def read(answer: str) -> bool:
        if answer.lower() not in ("yes", "y", "no", "n"):
            raise CallerError(f"expected yes or no, found {answer!r}")
        return answer.lower().startswith("y")

    return ask(f"{question} (yes, no)", read)


def ask_count(question: str) -> int:
    """Ask for a number of things."""

    def read(answer: str) -> int:
        if not answer.isascii() or not answer.isdigit() or not int(answer):
            raise CallerError(f"expected a whole number such as 3, found {answer!r}")
        return int(answer)

    return ask(question, read)


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


def ask_columns(found: Declaring, columns: Mapping[str, LookedAt]) -> None:
    """Ask what flags did not say of columns, and add it to what was ``found``."""
    for name, column in columns.items():
        while name not in found.columns and name not in found.dropped:
            say(f"{name}: {_shown(column)}{_gaps(column)}")
            _ask_kind(found, name, found.read(name, column))
        if found.read(name, column).empty and name not in found.missing and name not in found.dropped:
            _ask_missing(found, name)


def ask_mark(found: Declaring, name: str, mark: str, column: LookedAt) -> None:
    """Ask whether a number that stands apart says nothing."""
    marked = ask_yes(f"{name}: {mark} stands apart from all else in it. Does it say that nothing is known?")
    found.marks[name] = [mark] if marked else []
    if found.read(name, column).empty and name not in found.missing:
        _ask_missing(found, name)


def _ask_kind(found: Declaring, name: str, column: LookedAt) -> None:
    def read(answer: str) -> Any:
        word, _, rest = answer.partition(" ")
        if answer == "-":
            found.dropped.append(name)
        elif word == "marks" and rest:
            found.marks[name] = texts_of(rest)
            checked(name, found.column(name))
        elif not answer and column.truths:
            return "boolean"
        elif word == "mean" and column.numbers:
            return mean_of(name, rest)
        elif column.numbers and ("," not in answer or ".." in answer) and answer != "same":
            return range_of(name, answer) if answer else "number"
        else:
            return categories_of(name, _covering(answer, column, "add them, or leave the column out with -"))
        return None

    same = "" if column.many or min(column.texts.values(), default=0) < 2 else ", or same"
    if column.truths:
        question = "Enter if this is true or false, else categories, with commas"
    elif column.numbers:
        question = "range of most values, such as 0..120 (Enter: not known, found privately)"
        question += f"; if they are codes, these, with commas{same}" if column.coded or column.odd == "codes" else ""
    else:
        question = f"categories, with commas{same}"
    declared = ask(f"  {question}:", read)
    if declared is not None:
        found.columns[name] = declared


def _ask_missing(found: Declaring, name: str) -> None:
    kind = found.columns.get(name, "number")
    categories = bool(texts_in(kind))

    def read(answer: str) -> Any:
        if categories and not answer:
            answer = UNKNOWN
            found.columns[name] = kind if UNKNOWN in kind else [*kind, UNKNOWN]
        if not answer:
            raise CallerError("expected a value that stands for an empty cell, found no answer; say a usual one")
        declared, value = found.columns.get(name, "number"), missing_value(answer, kind)
        checked(name, Declaring(columns={name: declared}, missing={name: value}).column(name))
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
