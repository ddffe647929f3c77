"""``gossamer new`` at work: looking at a table, asking where there is a terminal, and writing a first spec for it."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from gossamer.cli.printing import warn, wrapped
from gossamer.cli.runs.column_flags import (
    ask_column,
    ask_columns,
    ask_count,
    ask_header,
    ask_labels,
    ask_mark,
    ask_target_range,
    check_target,
    declared,
    flag,
    introduce,
    labels_of,
    lacking_range,
    undeclared,
)
from gossamer.data.column_hints import MarkWarning, names_somebody
from gossamer.data.files import KNOWN
from gossamer.data.settings import GENERATED
from gossamer.data.table import WrongCell
from gossamer.data.table_files import WrongHeader
from gossamer.data.table_survey import Looked, LookedAt, look
from gossamer.errors import CallerError, counted, did_you_mean
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec import resolved
from gossamer.experiment.specs.spec_draft import Draft, draft, with_settings
from gossamer.experiment.specs.spec_file import read_text
from gossamer.files import replaced
from gossamer.section import place
from gossamer.section import said as problem_said


def new_command(options: argparse.Namespace) -> int:
    """Look, ask where there is a terminal, try what comes of it, and write the spec."""
    out = _place(options)
    asked = sys.stdin.isatty() and sys.stdout.isatty()
    if options.data is None:
        raise CallerError("expected a table, found none; give one with --data FILE")
    looked = _look(options, asked)
    given = declared(options, tuple(looked.columns))
    _choose_roles(given, options, looked, asked)
    whose = [name for name in (given.owner, given.person) if name is not None]
    if any(looked.columns[name].many for name in whose):
        looked = _look(options, asked, whose)
    _complete(given, options, looked, asked)
    _describe(given, options, looked, out)
    while not isinstance(text := _tried(given, out, options), str):
        name, mark = text
        if not asked or name == given.target:
            raise CallerError(_apart_from_all(name, mark, name == given.target))
        ask_mark(given, name, mark, looked.columns[name])
    _write(out, text)
    print(_report(given, out))
    warn(_remarks(given, looked))
    return 0


def _apart_from_all(name: str, mark: str, target: bool) -> str:

    what = f"{name}: {mark} stands apart from all else in it, as a mark for 'not measured' does"
    if target:
        return f"{what}; leave such rows out, or say {flag('range', name, 'LOW..HIGH')} with {mark} in it"
    marked, value = flag("missing-marks", name, mark), flag("missing", name, "VALUE")
    return f"{what}; say {marked} {value} if it is one, and {flag('missing-marks', name, '')} if not"


def _remarks(given: Draft, looked: Looked) -> Iterator[str]:
    """Say what will hardly be learnt."""
    if given.owner is not None and given.fewest < _FEW:
        few = [owner for owner, count in looked.columns[given.owner].texts.items() if count == given.fewest]
        which = f"{counted(len(few), 'owner')} ({few[0]}{', ...' * (len(few) > 1)})"
        yield (
            f"{which} with only {counted(given.fewest, 'row')}, and the noise of all is what these need; give them to "
            "another owner in the file, or leave them out"
        )


_FEW = 50


def _place(options: argparse.Namespace) -> Path:
    """Place of the spec, which is free."""

    if not options.name.strip() or {"/", "\\", "\0"} & set(options.name) or options.name.startswith("."):
        raise CallerError(f"NAME: expected a plain name such as wards, found {options.name!r}; choose another")
    if options.name in (*KNOWN, GENERATED):
        raise CallerError(f"NAME: {options.name} is a data set that gossamer knows by this name; choose another")
    out: Path = options.out or Path(f"{options.name}.yaml")
    if os.path.lexists(out):
        what = "a folder" if out.is_dir() else "a file"
        raise CallerError(f"{out}: expected a new file to write, found {what} there; say another one with --out")
    if not out.parent.is_dir():
        raise CallerError(f"{out}: there is no folder {out.parent}; make it, or say another file with --out")
    return out


def _look(options: argparse.Namespace, asked: bool, whose: Sequence[str] = ()) -> Looked:

    path = options.data.expanduser()
    if not os.path.lexists(path):
        raise CallerError(f"--data {options.data}: there is no such file; correct its name")
    options.csv = options.csv or []
    said = dict(each.partition("=")[::2] for each in options.csv)
    whose = whose or tuple(filter(None, (options.owner, options.person)))
    try:
        return look(path, whose, said, dict(each.partition("=")[::2] for each in options.set).get("dataset.format"))
    except WrongHeader as error:
        if not asked:
            raise CallerError(
                f"{error.problem}; say --csv header=false if it is a row, or --csv header=true if these are names"
            ) from None
        options.csv.append(f"header={ask_header(error.problem)}")
        return _look(options, asked, whose)
    except ValidationError as error:
        where = "".join(f" {key}" for key in place(error.errors()[0]))
        raise CallerError(f"--csv{where}: {problem_said(error.errors()[0])}") from None


def _choose_roles(found: Draft, options: argparse.Namespace, looked: Looked, asked: bool) -> None:
    """Choose the columns of the target, the owner and the person."""

    names = looked.columns
    given = {"target": options.target, "owner": options.owner, "person": options.person}
    for what, name in given.items():
        if name is not None and name not in names:
            near = did_you_mean(name, names)
            raise CallerError(f"--{what} {name}: the file has no such column{near}")
    if options.target is None and not asked:
        raise CallerError(f"--target: expected the column to be predicted, found none; name one of {', '.join(names)}")
    if asked:
        introduce(looked)
    if options.target is None:
        given["target"] = ask_column("Which column is to be predicted?", names)
        rest = {name: column for name, column in names.items() if name != given["target"]}
        if options.owner is None:
            question = "Which says whose row it is? (Enter: none, all rows are one party's)"
            given["owner"] = ask_column(question, rest, optional=True)
    rest = {name: column for name, column in names.items() if name not in given.values()}
    repeated = {name: column for name, column in rest.items() if column.repeats}
    several = [name for name, column in repeated.items() if _may_be_persons(name, column, found)]
    rows = options.rows_per_person
    if asked and options.person is None and rows is None and repeated:
        hint = f"; {', '.join(several)} may" if several else ""
        question = f"Which says which person a row is about? (Enter: none, each row is another person{hint})"
        given["person"] = ask_column(question, rest, optional=True)
    elif several and rows is None and options.person is None:
        raise CallerError(
            f"{several[0]}: it repeats, as the names of persons do who have several rows, and the budget would be of "
            f"one row; say {flag('person', several[0])} --rows-per-person M, or --rows-per-person 1 if nobody has two"
        )
    if given["person"] is not None and rows is None:
        if not asked:
            raise CallerError("--person: say the most rows that one person has, too, with --rows-per-person M")
        rows = ask_count("How many rows has one person at most, as is known without these rows?")
    for what in ("owner", "person"):
        if given[what] == given["target"]:
            raise CallerError(f"--{what} {given[what]}: this is the target's column; name another")
    found.target, found.owner, found.person = str(given["target"]), given["owner"], given["person"]
    found.rows_per_person = 1 if rows is None else rows


def _may_be_persons(name: str, column: LookedAt, found: Draft) -> bool:
    """Whether a column may say which person a row is about: by its name, or by its cells where it is left out."""

    even = len({*column.texts.values()}) == 1  # equally many rows of each, as in a panel
    likely = column.odd == "names" or (column.mostly_repeats and (even or name in found.left_out))
    return name not in found.columns and (names_somebody(name) or (likely and column.odd != "dates"))


def _complete(found: Draft, options: argparse.Namespace, looked: Looked, asked: bool) -> None:
    """Complete declarations of columns, and the classes: asked for where flags lack it and somebody can answer."""
    target, roles = found.target, {*found.roles.values()}
    found.target_range = found.columns.pop(target, None)
    _check_roles(found)
    rest = {name: found.read(name, column) for name, column in looked.columns.items() if name not in roles}
    labels = None if options.labels is None else labels_of("--labels", options.labels)
    if options.regression:
        if labels is not None:
            raise CallerError("--labels: a regression has no classes; leave --labels or --regression out")
        labels = []
    if asked and labels is None:
        labels = ask_labels(target, looked.columns[target])
    check_target(target, found.target_range, labels)
    if asked:
        if not labels and found.target_range is None:
            found.target_range = ask_target_range(target)
        ask_columns(found, rest)
    else:
        lacking = [] if labels is not None else [f"{target} has no classes (--labels A,B, or --regression)"]
        if labels == [] and found.target_range is None and looked.columns[target].numbers:
            lacking.append(lacking_range(target))
        if lacking := lacking + undeclared(found, rest):
            raise CallerError(f"{looked.path}: more is to be declared, from public knowledge: {'; '.join(lacking)}")
    found.labels = labels or []
    found.columns = {name: found.columns.get(name, "number") for name in rest if name not in found.left_out}
    if not found.columns:
        raise CallerError(f"{looked.path}: expected a feature beside {target}, found none that is not left out")
    for name in found.roles.values():
        _check_cells(looked, name, looked.columns[name].read(found.marks, list(map(str, found.labels))))
    _check_labels(looked, target, found.labels)


def _check_roles(found: Draft) -> None:
    for what, name in found.roles.items():
        if any(name in each for each in (found.columns, found.left_out, found.missing, found.column_marks)):
            raise CallerError(f"{name} is the {what}'s column, which is no feature; declare nothing else of it")


def _check_cells(looked: Looked, name: str, column: LookedAt) -> None:
    """Refuse rows that do not say their target, or whose they are."""
    if column.empty:
        marks = ", ".join(filter(None, column.marks))
        such = f" ({marks})" if marks else ""
        raise CallerError(
            f"{looked.path}: {name} has {counted(column.empty, 'empty cell')}{such}; leave such rows out, or write "
            "them otherwise"
        )


def _check_labels(looked: Looked, target: str, labels: Sequence[str | int]) -> None:
    """Refuse rows that could not be trained on as the target is declared."""
    column = looked.columns[target]
    if labels and len(column.texts) < 2:
        raise CallerError(
            f"{looked.path}: expected two classes or more in {target}, found only {next(iter(column.texts))!r}; choose "
            "another target"
        )
    if not labels and not column.numbers:
        raise CallerError(f"{looked.path}: {target} has texts, and a regression needs numbers; say --labels")


def _describe(given: Draft, options: argparse.Namespace, looked: Looked, out: Path) -> None:
    """Add what is public of the table, and what is asked for of the run."""
    given.name, given.epsilon, given.delta = options.name, options.epsilon, options.delta
    path = looked.path.resolve()
    try:
        given.path = os.path.relpath(path, out.resolve().parent)
    except ValueError:  # on another drive
        given.path = str(path)
    given.csv = {} if looked.csv is None else looked.csv.model_dump(exclude_defaults=True, mode="json")
    given.rows = given.fewest = looked.rows
    if given.owner is not None:
        counts = looked.columns[given.owner].texts
        given.owners, given.fewest = len(counts), min(counts.values(), default=0)


def _tried(given: Draft, out: Path, options: argparse.Namespace) -> str | tuple[str, str]:
    """The spec's text, once a run was planned by it on the rows; or a column and what may be a mark in it."""

    text = with_settings(draft(given), options.set)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", MarkWarning)
            plan_run(prepare(resolved(read_text(text), out.resolve().parent)))
    except MarkWarning as found:
        return found.column, found.mark
    except WrongCell as error:
        raise CallerError(
            f"{error.problem}; correct it, or say {flag('categories', error.column, 'A,B,...')} with all its texts, "
            f"{flag('missing-marks', error.column, 'A,B')} if it says nothing, or {flag('drop', error.column)}"
        ) from None
    return text


def _write(out: Path, text: str) -> None:
    """Write the spec whole or not at all; it is public, so the umask decides who may read it."""

    with replaced(out, opener=lambda path, flags: os.open(path, flags, 0o666)) as file:
        file.write(text.encode())


def _report(given: Draft, out: Path) -> str:
    owners = "" if given.owner is None else f" of {counted(given.owners, 'owner')} ({given.owner})"
    left = f", without {', '.join(name or repr(name) for name in given.left_out)}" if given.left_out else ""
    what = (
        f"{out}: predicts {given.target} from {counted(len(given.columns), 'column')}{left}; "
        f"{counted(given.rows, 'row', form=',')}{owners}, epsilon {given.epsilon:g}"
    )
    return f"{wrapped(what)}\nNext: gossamer check {shlex.quote(str(out))}"
