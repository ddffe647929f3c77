"""``gossamer new``: a first spec for one's own table."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.cli.option_values import FileName
from gossamer.cli.printing import warn, wrapped
from gossamer.errors import CallerError, counted, did_you_mean

if TYPE_CHECKING:
    from gossamer.cli.runs.declaring import Declaring
    from gossamer.data.looking import Looked
    from gossamer.experiment.drafting import Draft

DESCRIPTION = (
    "Look at a CSV or Parquet file on this machine, and write a commented spec for a first private run on it. Ranges, "
    "categories and labels are what you declare, with flags or as answers in a terminal: they are public knowledge, "
    "never learnt from private rows."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("name", metavar="NAME", help="what the data set is called; the spec is NAME.yaml")
    command.add_argument("--data", action=FileName, metavar="FILE", help="the table, CSV or Parquet")
    command.add_argument("--target", metavar="COLUMN", help="what is to be predicted")
    command.add_argument("--owner", metavar="COLUMN", help="whose row it is: each owner becomes a node")
    command.add_argument("--out", action=FileName, metavar="FILE", help="the spec (default: NAME.yaml)")
    command.add_argument("--labels", metavar="A,B", help="the target's classes, in order")
    command.add_argument(
        "--regression", action="store_true", help="the target is a number, and has a --range in place of classes"
    )
    _add_columns(command)
    command.add_argument("--epsilon", type=float, default=1.0, metavar="E", help="of the budget (default: 1)")
    command.add_argument("--delta", type=float, metavar="D", help="of the budget (default: below 1/(10 rows))")
    command.set_defaults(command=new_command)


def _add_columns(command: argparse.ArgumentParser) -> None:
    """Add the flags that declare columns; each takes several."""
    for flag, metavar, what in (
        ("--range", "COLUMN=LOW..HIGH", "from where to where numbers mostly lie, such as age=0..120"),
        ("--mean", "COLUMN=MEAN,DEVIATION", "published figures of such numbers, such as heart_rate=80,15"),
        ("--categories", "COLUMN=A,B", "the texts that there can be, such as sex=female,male"),
        ("--boolean", "COLUMN", "true or false: yes and no, 1 and 0, in small or large letters"),
        ("--missing", "COLUMN=VALUE", "what an empty cell is read as"),
        ("--drop", "COLUMN", "no feature, such as a number that only names a row"),
    ):
        command.add_argument(flag, nargs="+", action="extend", metavar=metavar, help=what)


def new_command(options: argparse.Namespace) -> int:
    """Look, ask where there is a terminal, try what comes of it, and write the spec."""
    out = _place(options)
    asked = sys.stdin.isatty() and sys.stdout.isatty()
    if options.data is None:
        raise CallerError("expected a table, found none; give one with --data FILE")
    looked = _look(options)
    target, owner = _apart(options, looked, asked)
    found, labels = _declared(options, looked, (target, owner), asked)
    given = _draft(options, looked, found, labels, (target, owner), out)
    text = _tried(given, out)
    _write(out, text)
    print(_report(given, out))
    warn(_remarks(given))
    return 0


def _remarks(given: Draft) -> Iterator[str]:
    """Say what will hardly be learnt."""
    if given.owner is not None and given.fewest < _FEW:
        yield f"an owner has only {counted(given.fewest, 'row')}, and the noise of all is what these need"


_FEW = 50


def _place(options: argparse.Namespace) -> Path:
    """Place of the spec, which is free."""
    from gossamer.data.catalogue import KNOWN
    from gossamer.data.settings import GENERATED

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


def _look(options: argparse.Namespace) -> Looked:
    from gossamer.data.looking import look

    path = options.data.expanduser()
    if not os.path.lexists(path):
        raise CallerError(f"--data {options.data}: there is no such file; correct its name")
    return look(path, options.owner)


def _apart(options: argparse.Namespace, looked: Looked, asked: bool) -> tuple[str, str | None]:
    """The columns of the target and of the owner."""
    from gossamer.cli.runs.asking import ask_column, introduce

    names = looked.columns
    for flag, name in (("--target", options.target), ("--owner", options.owner)):
        if name is not None and name not in names:
            near = did_you_mean(name, names)
            raise CallerError(f"{flag} {name}: the file has no such column{near}")
    target, owner = options.target, options.owner
    if target is None and not asked:
        raise CallerError(f"--target: expected the column to be predicted, found none; name one of {', '.join(names)}")
    if asked:
        introduce(looked)
    if target is None:
        target = ask_column("Which column is to be predicted?", names)
        if owner is None:
            rest = {name: column for name, column in names.items() if name != target}
            owner = ask_column(
                "Which says whose row it is? (Enter: none, all rows are one party's)", rest, optional=True
            )
    if target == owner:
        raise CallerError(f"--owner {owner}: this is the target's column; name another")
    return str(target), owner


def _declared(
    options: argparse.Namespace, looked: Looked, apart: tuple[str, str | None], asked: bool
) -> tuple[Declaring, list[str | int]]:
    """Declarations of columns, and the classes; asked for where flags lack it and somebody is there to answer."""
    from gossamer.cli.runs.asking import ask_columns, ask_labels, ask_target_range
    from gossamer.cli.runs.declaring import declared, labels_of, undeclared
    from gossamer.cli.runs.target_declaring import check_target, lacking_range, take_target

    found, target = declared(options, tuple(looked.columns)), apart[0]
    found.target = take_target(found, target)
    _check_apart(found, apart)
    rest = {name: column for name, column in looked.columns.items() if name not in apart}
    labels = None if options.labels is None else labels_of("--labels", options.labels)
    if options.regression:
        if labels is not None:
            raise CallerError("--labels: a regression has no classes; leave --labels or --regression out")
        labels = []
    if asked and labels is None:
        labels = ask_labels(target, looked.columns[target])
    check_target(target, found.target, labels)
    if asked:
        if not labels and found.target is None:
            found.target = ask_target_range(target)
        ask_columns(found, rest)
    else:
        lacking = [] if labels is not None else [f"{target} has no classes (--labels A,B, or --regression)"]
        if labels == [] and found.target is None and looked.columns[target].numbers:
            lacking.append(lacking_range(target))
        if lacking := lacking + undeclared(found, rest, ()):
            raise CallerError(f"{looked.path}: more is to be declared, from public knowledge: {'; '.join(lacking)}")
    if not [name for name in rest if name not in found.dropped]:
        raise CallerError(f"{looked.path}: expected a feature beside {target}, found none that is not left out")
    _check_labels(looked, target, labels or [])
    return found, labels or []


def _check_apart(found: Declaring, apart: tuple[str, str | None]) -> None:
    for what, name in zip(("target", "owner"), apart, strict=True):
        if name in found.columns or name in found.dropped or name in found.missing:
            raise CallerError(f"{name} is the {what}'s column, which is no feature; declare nothing else of it")


def _check_labels(looked: Looked, target: str, labels: list[str | int]) -> None:
    """Refuse rows that could not be trained on as the target is declared."""
    column = looked.columns[target]
    if column.empty:
        raise CallerError(f"{looked.path}: {target} has {counted(column.empty, 'empty cell')}; leave such rows out")
    if labels and len(column.texts) < 2:
        raise CallerError(
            f"{looked.path}: expected two classes or more in {target}, found only {next(iter(column.texts))!r}; choose "
            "another target"
        )
    if not labels and not column.numbers:
        raise CallerError(f"{looked.path}: {target} has texts, and a regression needs numbers; say --labels")


def _draft(
    options: argparse.Namespace,
    looked: Looked,
    found: Declaring,
    labels: list[str | int],
    apart: tuple[str, str | None],
    out: Path,
) -> Draft:
    from gossamer.experiment.drafting import Draft

    target, owner = apart
    counts = None if owner is None else looked.columns[owner].texts
    path = looked.path.resolve()
    try:
        seen = os.path.relpath(path, out.resolve().parent)
    except ValueError:  # on another drive
        seen = str(path)
    csv: dict[str, Any] = {} if looked.csv is None else looked.csv.model_dump(exclude_defaults=True, mode="json")
    return Draft(
        name=options.name,
        path=seen,
        target=target,
        labels=labels,
        target_range=found.target,
        columns={
            name: found.column(name) for name in looked.columns if name not in apart and name not in found.dropped
        },
        rows=looked.rows,
        fewest=looked.rows if counts is None else min(counts.values(), default=0),
        left_out=found.dropped,
        owner=owner,
        owners=1 if counts is None else len(counts),
        csv=csv,
        epsilon=options.epsilon,
        delta=options.delta,
    )


def _tried(given: Draft, out: Path) -> str:
    """The spec's text, once a run was planned by it on the rows."""
    from gossamer.data.table import WrongCell
    from gossamer.experiment.drafting import draft
    from gossamer.experiment.planning import plan_run
    from gossamer.experiment.prepare import prepare
    from gossamer.experiment.reading import read_text
    from gossamer.experiment.spec import resolved

    text = draft(given)
    try:
        plan_run(prepare(resolved(read_text(text), out.resolve().parent)))
    except WrongCell as error:
        texts, drop = shlex.quote(f"{error.column}=A,B,..."), shlex.quote(error.column)
        raise CallerError(
            f"{error.problem}; correct it, or say --categories {texts} with all its texts, or --drop {drop}"
        ) from None
    return text


def _write(out: Path, text: str) -> None:
    """Write the spec whole or not at all; it is public, so the umask decides who may read it."""
    from gossamer.files import replaced

    with replaced(out, opener=lambda path, flags: os.open(path, flags, 0o666)) as file:
        file.write(text.encode())


def _report(given: Draft, out: Path) -> str:
    owners = "" if given.owner is None else f" of {counted(given.owners, 'owner')} ({given.owner})"
    left = f", without {', '.join(given.left_out)}" if given.left_out else ""
    what = (
        f"{out}: predicts {given.target} from {counted(len(given.columns), 'column')}{left}; "
        f"{counted(given.rows, 'row', form=',')}{owners}, epsilon {given.epsilon:g}"
    )
    return f"{wrapped(what)}\nNext: gossamer check {shlex.quote(str(out))}"
