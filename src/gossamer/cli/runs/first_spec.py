"""``gossamer new``: a first spec for one's own table, from what flags declare and, in a terminal, from answers.

What was found in the rows is shown to help with an answer, but nothing of it goes into a spec unless the answer says
so: numbers are never offered, since the least and the most of them are somebody's own; texts are, as ``same``.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from gossamer.cli.commands import within
from gossamer.cli.printing import say, warn, wrapped
from gossamer.cli.runs.column_flags import dates_in, declare, declared, doubt, flag, known, labels_of, quoted, texts_of
from gossamer.data.column_hints import MarkWarning, names_somebody
from gossamer.data.columns import Column
from gossamer.data.files import KNOWN
from gossamer.data.settings import GENERATED
from gossamer.data.table import MISSING, WrongCell
from gossamer.data.table_files import WrongHeader
from gossamer.data.table_survey import Looked, LookedAt, look
from gossamer.errors import CallerError, counted, listed, shortened
from gossamer.experiment.preparation.doubts import doubts
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec import resolved
from gossamer.experiment.specs.spec_draft import Draft, draft, texts_in, unscaled, with_settings
from gossamer.experiment.specs.spec_file import read_text
from gossamer.files import refusals, replaced, words_beside
from gossamer.mistakes import place, said
from gossamer.trained.about import AboutSettings

_SHOWN, _NAMED, _FEW = 12, 3, 50
"""Most texts of a column that are shown, most of them that an error names, and rows of an owner that are few."""
UNKNOWN = "unknown"
"""Category of empty cells that are read as no other."""
_WORDS = words_beside(__file__)


def new_command(options: argparse.Namespace) -> int:
    """Look, ask where there is a terminal, try what comes of it, and write the spec."""
    out, ask = _place(options), _Asking(sys.stdin.isatty() and sys.stdout.isatty())
    if options.data is None:
        raise CallerError("expected a table, found none; give one with --data FILE")
    looked = _look(options, ask)
    given = declared(options, looked.columns)
    if ask.asked:
        say(f"{_introduction(looked)}\n")
    _roles(given, options, looked, ask)
    ask.check()
    whose = [name for name in (given.owner, given.person) if name is not None]
    if any(looked.columns[name].many for name in whose):
        looked = _look(options, ask, whose)
    given.drop_unlabelled = options.drop_unlabelled
    _columns(given, options, looked, ask)
    ask.check(f"{looked.path}: more is to be declared, from public knowledge: ")
    _about(given, options, ask)
    if given.drop_unlabelled:
        looked = _look(options, ask, whose, (given.target, given.marks, list(map(str, given.labels))))
    _complete(given, options, looked, out)
    while not isinstance(tried := _tried(given, out, options), _Tried):
        _apart(given, looked, *tried, ask)
        ask.check()
    with replaced(out, opener=lambda path, flags: os.open(path, flags, 0o666)) as file:  # public, as the umask allows
        file.write(tried.text.encode())
    print(_report(given, out))
    warn([*_remarks(given, looked), *tried.doubts])
    return 0


# Questions: asked in a terminal, one after the other, and elsewhere told as what is lacking.


@dataclass
class _Asking:
    """Questions to whoever sits at a terminal, where ``asked``.

    Attributes
    ----------
    asked : bool
        Whether somebody does.
    lacking : list of str
        What was to be asked elsewhere, with the flags that would have answered.
    """

    asked: bool
    lacking: list[str] = field(default_factory=list)

    def __call__(self, name: str, take: Callable[[str], object], /, *, needed: bool = True, **named: object) -> bool:
        """Ask the question ``name`` until there is an answer that ``take`` takes without an error.

        Whether it was asked. Elsewhere, what is lacking without an answer that is ``needed`` is noted; ``named`` are
        values that stand in the words.
        """
        question = _WORDS[name]
        if not self.asked:
            self.lacking += [question["lacking"].format(**named)] if needed and "lacking" in question else []
            return False
        *before, last = question["ask"].format(**named).split("\n")
        for line in before:
            say(line)
        while True:
            try:
                take(input(f"{last} ").strip())
                return True
            except EOFError:
                raise CallerError(f"expected an answer to {last!r}, found the end of the input; start again") from None
            except (CallerError, argparse.ArgumentTypeError) as error:
                say(wrapped(f"  {error}"))

    def check(self, before: str = "") -> None:
        """Refuse what is lacking: the first of it, or all after what is said ``before``."""
        if self.lacking:
            raise CallerError(f"{before}{'; '.join(self.lacking)}" if before else self.lacking[0])


def _yes(take: Callable[[bool], object]) -> Callable[[str], object]:
    def read(answer: str) -> None:
        if answer.lower() not in ("yes", "y", "no", "n"):
            raise CallerError(f"expected yes or no, found {answer!r}")
        take(answer.lower().startswith("y"))

    return read


def _introduction(looked: Looked) -> str:
    columns = ", ".join(name or "''" for name in looked.columns)
    table = f"{looked.path}: {counted(looked.rows, 'row', form=',')}, columns {columns}."
    words = _WORDS["introduction"]
    empty = any(column.empty for column in looked.columns.values())
    how = " ".join([words["ask"], words["empty"].format(marks=", ".join(sorted(MISSING - {""})))][: 1 + empty])
    return f"{wrapped(table)}\n{wrapped(how)}"


def _roles(found: Draft, options: argparse.Namespace, looked: Looked, ask: _Asking) -> None:
    """Columns of the target, the owner and the person, and how many rows a person has."""
    names, roles = looked.columns, ("target", "owner", "person")
    given = {
        what: None if (name := getattr(options, what)) is None else known(f"--{what} ", name, names) for what in roles
    }
    taken: dict[str, str] = {}
    for what, name in given.items():
        if name is not None and taken.setdefault(name, what) != what:
            raise CallerError(f"--{what} {name}: this is the {taken[name]}'s column; name another")

    def role(what: str) -> Callable[[str], object]:
        def take(answer: str) -> None:
            if other := [role for role, name in given.items() if answer and name == answer]:
                raise CallerError(f"{answer}: this is the {other[0]}'s column already; name another")
            rest = [name for name in names if name not in given.values()]
            given[what] = known("", answer, rest) if answer or what == "target" else None

        return take

    if given["target"] is None:
        if not ask("target", role("target"), names=", ".join(names)):
            return
        if given["owner"] is None:
            ask("owner", role("owner"))
    repeated = [name for name, column in names.items() if name not in given.values() and column.repeats]
    several = [name for name in repeated if _may_be_persons(name, names[name], found)]
    rows = [] if options.rows_per_person is None else [options.rows_per_person]
    if repeated and not rows and given["person"] is None:
        hint = f"; {', '.join(several)} may" if several else ""
        says = {"several": several, "flag": flag("person", several[0]) if several else ""}
        ask("person", role("person"), needed=bool(several), hint=hint, **says)
    if given["person"] is not None and not rows:
        ask("rows", lambda answer: rows.append(within("int[1..]")(answer)))
    found.target, found.owner, found.person = given["target"] or "", given["owner"], given["person"]
    found.rows_per_person = rows[0] if rows else 1
    for what, name in found.roles.items():
        declares = [found.left_out, found.missing, found.column_marks, {} if what == "target" else found.columns]
        if any(name in each for each in declares):
            raise CallerError(f"{name} is the {what}'s column, which is no feature; declare nothing else of it")


def _may_be_persons(name: str, column: LookedAt, found: Draft) -> bool:
    """Whether a column may say which person a row is about: by its name, or by its cells where it is left out."""
    even = len({*column.texts.values()}) == 1  # equally many rows of each, as in a panel
    likely = column.odd == "names" or (column.mostly_repeats and (even or name in found.left_out))
    return name not in found.columns and (names_somebody(name) or (likely and column.odd != "dates"))


def _columns(found: Draft, options: argparse.Namespace, looked: Looked, ask: _Asking) -> None:
    """Classes of the target, or its range, and what features are."""
    target, column = found.target, looked.columns[found.target]
    if options.regression and options.labels is not None:
        raise CallerError("--labels: a regression has no classes; leave --labels or --regression out")
    if options.labels is None and not options.regression:
        _classes(found, options, column, ask)
    if options.labels is not None:
        found.labels = labels_of("--labels", options.labels)
        if len(found.labels) == 2 and options.prevalence is None:
            share, label = within("float(0..1)"), found.labels[1]
            ask("prevalence", lambda said: setattr(options, "prevalence", share(said) if said else None), label=label)
    of_target, ranged = found.columns.get(target), flag("range", target, "LOW..HIGH")
    rules = {
        "declared_classes": of_target is not None and options.labels is not None,
        "declared_texts": of_target == "boolean" or texts_in(of_target),
    }
    for problem in refusals(__file__, rules, target=target, flag=ranged):
        raise CallerError(problem)
    if of_target is None and options.regression and column.numbers:
        ask("range", lambda answer: declare(found, "range", target, answer), target=target, flag=ranged)
    gaps = column.read(found.marks, list(map(str, found.labels)))
    if gaps.empty and not found.drop_unlabelled:
        take = _yes(lambda yes: setattr(found, "drop_unlabelled", yes))
        ask("unlabelled", take, target=target, empty=_empty(gaps))
    for name in looked.columns:
        if name in found.roles.values():
            continue
        while name not in found.columns and name not in found.left_out and _kind(found, name, looked, ask):
            pass
        if found.read(name, looked.columns[name]).empty and name not in found.missing and name not in found.left_out:
            _missing(found, name, ask)


def _about(found: Draft, options: argparse.Namespace, ask: _Asking) -> None:
    """Questions on what people say of the model, which a board will ask."""
    for text in options.about or ():
        key, _, words = text.partition("=")
        if key not in AboutSettings.model_fields or not words.strip():
            known = ", ".join(AboutSettings.model_fields)
            raise CallerError(f"--about: expected KEY=TEXT with one of {known}, found {shortened(text)}; correct it")
        found.about[key] = words.strip()
    for key in ("purpose", "limits", "persons"):
        if key not in found.about:

            def take(answer: str, key: str = key) -> None:
                found.about |= {key: answer} if answer else {}

            ask(key, take)


def _classes(found: Draft, options: argparse.Namespace, column: LookedAt, ask: _Asking) -> None:
    target, number = found.target, column.numbers and len(column.texts) > 2

    def take(answer: str) -> None:
        if not answer and number:
            options.regression = True
        else:
            text = _covering(answer, column, "say all classes")
            labels_of(target, text)
            options.labels = text

    none = " (Enter: none, it is a number)" if number else ""
    ask("classes", take, target=target, seen=_seen(column), same=_same(column), none=none)


def _kind(found: Draft, name: str, looked: Looked, ask: _Asking) -> bool:
    """Ask what a column's cells say; whether that was answered."""
    column = found.read(name, looked.columns[name])
    dates = dates_in(column)

    def take(answer: str) -> None:
        word, _, rest = answer.partition(" ")
        if answer == "-":
            declare(found, "drop", name)
        elif word == "marks" and rest:
            found.column_marks.pop(name, None)
            declare(found, "missing-marks", name, rest)
        elif word == "mean" and column.numbers:
            declare(found, "mean", name, rest)
        elif word == "date" or (dates and ".." in answer):
            declare(found, "date", name, rest if word == "date" else answer)
        elif not answer and (column.truths or column.numbers):
            declare(found, "boolean" if column.truths else "number", name)
        elif column.numbers and not column.truths and ("," not in answer or ".." in answer) and answer != "same":
            declare(found, "range", name, answer)
        else:
            declare(found, "categories", name, _covering(answer, column, "say all, or leave the column out with -"))

    if dates:
        form = ",%d.%m.%Y with how they are written" if dates.endswith("FORMAT") else ""
        words = f"first and last date of most rows, such as 2015-01-01..2024-12-31{form}, or - to leave it out"
    elif column.truths:
        words = "Enter if this is true or false, else categories, with commas"
    elif column.numbers:
        words = "range of most values, such as 0..120 (Enter: not known, a simulation finds it privately)"
        words += (
            f"; if they are codes, these, with commas{_same(column)}" if column.coded or column.odd == "codes" else ""
        )
    else:
        words = f"categories, with commas{_same(column)}, or - to leave it out"
    what, gaps = doubt(name, column), f"; {_empty(column)}" if column.empty else ""
    told = {"doubt": what, "drop": flag("drop", name)}
    return ask("column", take, needed=what is not None, name=name, seen=_seen(column), gaps=gaps, words=words, **told)


def _missing(found: Draft, name: str, ask: _Asking) -> None:
    """Ask for the value that an empty cell is read as."""
    kind = found.columns.get(name, "number")

    def take(answer: str) -> None:
        flagged = answer.startswith("flag ") and answer not in texts_in(kind)
        answer = answer.removeprefix("flag ").strip() if flagged else answer
        if texts_in(kind) and not answer:
            answer = UNKNOWN
            found.columns[name] = kind if UNKNOWN in kind else [*kind, UNKNOWN]
        if not answer:
            raise CallerError("expected a value that stands for an empty cell, found no answer; say a usual one")
        declare(found, "missing", name, answer)
        if flagged:
            declare(found, "was-empty", name)

    dated = Column.model_validate(found.column(name)).kind == "date"
    how = "as which date, such as a usual one?" if dated else "as which number, such as a usual one?"
    how = "as true or as false?" if kind == "boolean" else how
    if texts_in(kind):
        how = f"as which category (Enter: {UNKNOWN}, one of its own)?"
    ask("missing", take, name=name, how=how, missing=flag("missing", name, "VALUE"), drop=flag("drop", name))


def _apart(found: Draft, looked: Looked, name: str, mark: str, ask: _Asking) -> None:
    """Ask whether a number that stands apart says nothing."""
    if name == found.target:
        raise CallerError(
            f"{name}: {mark} stands apart from all else in it, as a mark for 'not measured' does; leave such rows out, "
            f"or say {flag('range', name, 'LOW..HIGH')} with {mark} in it"
        )
    marked = f"{flag('missing-marks', name, mark)} {flag('missing', name, 'VALUE')}"
    take = _yes(lambda yes: found.column_marks.update({name: [mark] if yes else []}))
    ask("mark", take, name=name, mark=mark, marked=marked, unmarked=flag("missing-marks", name, ""))
    if found.read(name, looked.columns[name]).empty and name not in found.missing:
        _missing(found, name, ask)


def _same(column: LookedAt) -> str:
    return "" if column.many or min(column.texts.values(), default=0) < 2 else ", or same"


def _covering(answer: str, column: LookedAt, remedy: str) -> str:
    """Texts that were answered, which have to cover those that are there; ``same`` takes these."""
    others = sorted(column.texts.keys() - set(texts_of(answer)))
    named, same = listed([*map(repr, others)], _NAMED), answer == "same"
    rules = {
        "no_answer": not answer,
        "many": same and column.many,
        "single": same and min(column.texts.values(), default=0) < 2,
        "others": not same and others,
    }
    for problem in refusals(__file__, rules, remedy=remedy, named=named):
        raise CallerError(problem)
    return ",".join(f'"{text}"' for text in sorted(column.texts)) if same else answer


def _seen(column: LookedAt) -> str:
    """Show what a column has: its texts where they are few."""
    if column.numbers and len(column.texts) > 2 and not column.coded:
        return "numbers, another one in each row" if column.differs else "numbers"
    if not column.numbers and 2 * column.words.total() < column.texts.total():
        return f"numbers, and {', '.join(sorted(column.words)[:_NAMED])} ('marks A,B' if such texts say nothing)"
    if column.many or len(column.texts) > _SHOWN:
        return f"{'more than ' if column.many else ''}{len(column.texts):,} different texts"
    return ", ".join(map(quoted, sorted(column.texts))) or "nothing"


def _empty(column: LookedAt) -> str:
    marks = ", ".join(filter(None, sorted(column.marks)))
    return f"{counted(column.empty, 'empty cell', form=',')}{f' ({marks})' if marks else ''}"


# Looking, trying and writing.


def _place(options: argparse.Namespace) -> Path:
    """Place of the spec, which is free."""
    out: Path = options.out or Path(f"{options.name}.yaml")
    odd = not options.name.strip() or {"/", "\\", "\0"} & set(options.name) or options.name.startswith(".")
    rules = {
        "no_name": odd,
        "known_name": options.name in (*KNOWN, GENERATED),
        "taken": not odd and os.path.lexists(out),
        "no_folder": not odd and not out.parent.is_dir(),
    }
    what = "a folder" if not odd and out.is_dir() else "a file"
    for problem in refusals(__file__, rules, options=options, out=out, what=what):
        raise CallerError(problem)
    return out


def _look(
    options: argparse.Namespace, ask: _Asking, whose: Sequence[str] = (), labelled_by: Any | None = None
) -> Looked:
    path = options.data.expanduser()
    if not os.path.lexists(path):
        raise CallerError(f"--data {options.data}: there is no such file; correct its name")
    csv, more = (dict(each.partition("=")[::2] for each in given or ()) for given in (options.csv, options.set))
    try:
        named = whose or [*filter(None, (options.owner, options.person))]
        return look(path, named, csv, more.get("dataset.format"), labelled_by)
    except WrongHeader as error:
        options.csv = options.csv or []
        take = _yes(lambda yes: options.csv.append(f"header={str(yes).lower()}"))
        ask("header", take, problem=wrapped(error.problem), short=error.problem)
        ask.check()
        return _look(options, ask, whose)
    except ValidationError as error:
        where = "".join(f" {key}" for key in place(error.errors()[0]))
        raise CallerError(f"--csv{where}: {said(error.errors()[0])}") from None


def _complete(given: Draft, options: argparse.Namespace, looked: Looked, out: Path) -> None:
    """Refuse rows that could not be trained on, and add what is public of the table, and what is asked for."""
    target, roles = given.target, given.roles
    given.target_range = given.columns.pop(target, None)
    rest = [name for name in looked.columns if name not in {*roles.values(), *given.left_out}]
    given.columns = {name: given.columns.get(name, "number") for name in rest}
    column, labels = looked.columns[target], given.labels
    bare = [name for name in given.was_empty if name not in given.missing]
    rules = {
        "no_feature": not given.columns,
        "one_class": labels and len(column.texts) < 2,
        "texts": not labels and not column.numbers,
        "was_empty": bare,
        "share": options.prevalence is not None and len(labels) != 2,
    }
    told = {"text": next(iter(column.texts), ""), "flag": flag("missing", bare[0], "VALUE") if bare else ""}
    for problem in refusals(__file__, rules, looked=looked, target=target, bare=bare, **told):
        raise CallerError(problem)
    given.name, given.epsilon, given.delta = options.name, options.epsilon, options.delta
    given.prevalence, given.private = options.prevalence, "privacy=none" not in options.set
    given.tested = not any(setting.startswith("dataset.test_path=") for setting in options.set)
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


class _Tried(NamedTuple):
    """Text of a spec by which a run can be planned, and doubts about that run."""

    text: str
    doubts: list[str]


def _tried(given: Draft, out: Path, options: argparse.Namespace) -> _Tried | tuple[str, str]:
    """The spec's text, once a run was planned by it on the rows; or a column and what may be a mark in it."""
    text = with_settings(draft(given), options.set)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", MarkWarning)
            prepared = prepare(resolved(read_text(text), out.resolve().parent))
            told = doubts(prepared, plan_run(prepared))
    except MarkWarning as found:
        return found.column, found.mark
    except WrongCell as error:
        how = f"{flag('categories', error.column, 'A,B,...')} with all its texts"
        if Column.model_validate(given.column(error.column)).kind == "date":
            how = f"{flag('date', error.column, 'FIRST..LAST,FORMAT')} with how dates are written, such as %d.%m.%Y"
        raise CallerError(
            f"{error.problem}; correct it, or say {how}, "
            f"{flag('missing-marks', error.column, 'A,B')} if it says nothing, or {flag('drop', error.column)}"
        ) from None
    return _Tried(text, told)


def _report(given: Draft, out: Path) -> str:
    owners = "" if given.owner is None else f" of {counted(given.owners, 'owner')} ({given.owner})"
    left = f", without {', '.join(name or repr(name) for name in given.left_out)}" if given.left_out else ""
    what = (
        f"{out}: predicts {given.target} from {counted(len(given.columns), 'column')}{left}; "
        f"{counted(given.rows, 'row', form=',')}{owners}, epsilon {given.epsilon:g}"
    )
    if bare := [name for name in given.columns if unscaled(given.column(name))]:
        what += (
            f"\nNothing says in which range {', '.join(bare)} mostly {'lie' if bare[1:] else 'lies'}: gossamer run "
            f"finds that privately, gossamer up and federations need it declared "
            f"({flag('range', bare[0], 'LOW..HIGH')})"
        )
    return f"{wrapped(what)}\nNext: gossamer check {shlex.quote(str(out))}"


def _remarks(given: Draft, looked: Looked) -> Iterator[str]:
    """Say what will hardly be learnt."""
    if given.owner is not None and given.fewest < _FEW:
        few = [owner for owner, count in looked.columns[given.owner].texts.items() if count == given.fewest]
        which = f"{counted(len(few), 'owner')} ({few[0]}{', ...' * (len(few) > 1)})"
        yield (
            f"{which} with only {counted(given.fewest, 'row')}, and the noise of all is what these need; give them to "
            "another owner in the file, or leave them out"
        )
