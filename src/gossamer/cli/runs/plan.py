"""``gossamer plan``: what a run would be made of, computed from public constants only, by its algorithm."""

from __future__ import annotations

import argparse
import typing
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from typing import Any

from gossamer.algorithms.command import Command, Option, flag_of, refused
from gossamer.algorithms.table import ALGORITHMS, KIND
from gossamer.cli.commands import CommandParser, check_delta
from gossamer.cli.printing import patience, print_json, table, warn, wrapped
from gossamer.errors import CallerError, SpecError


def add_arguments(command: CommandParser) -> None:
    """Add a plan for each algorithm that has one."""
    plans = command.add_subparsers(title="plans", metavar="PLAN", required=True)
    for name, algorithm in ALGORITHMS.items():
        if algorithm.command is not None:
            own = algorithm.command()
            _fill(plans.add_parser(name, help=own.help), name, own)
    for one in KIND.registered():
        if one.name not in plans.choices:
            parser = plans.add_parser(one.name, help=f"registered by {one}")
            parser.late, parser.foreign = partial(_fill_registered, one.name), True


def _fill_registered(name: str, parser: CommandParser) -> None:
    """Add the arguments of an algorithm that is registered: only whoever asks for its plan has its code imported."""
    if (command := ALGORITHMS[name].command) is None:
        raise SpecError(f"{name} has no plan of its own; gossamer check SPEC says what a run of a spec would do")
    _fill(parser, name, command())


def _fill(parser: CommandParser, name: str, own: Command) -> None:
    parser.description = own.description
    defaults = {field.name: field.default for field in fields(own.options)}
    for field, (kind, option) in _options(own).items():
        needed = defaults[field] is MISSING
        _add(parser.required() if needed else parser, field, kind, option, None if needed else defaults[field])
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.set_defaults(command=partial(plan_command, name, own))


def _options(command: Command) -> dict[str, tuple[Any, Option]]:
    """The type of each option, without None, and what else is known of it."""
    found = {}
    for name, annotation in typing.get_type_hints(command.options, include_extras=True).items():
        (option,) = (one for one in annotation.__metadata__ if isinstance(one, Option))
        kinds = [kind for kind in typing.get_args(annotation.__origin__) if kind is not type(None)]
        literal = typing.get_origin(annotation.__origin__) is typing.Literal
        found[name] = (kinds[0] if kinds and not literal else annotation.__origin__, option)
    return found


def _add(parser: Any, name: str, kind: Any, option: Option, default: Any) -> None:
    flag, shown = flag_of(name), default.value if isinstance(default, StrEnum) else default
    if kind is bool:
        parser.add_argument(flag, action="store_true", help=option.help)
        return
    more: dict[str, Any] = {"type": kind, "metavar": option.metavar}
    if typing.get_origin(kind) is typing.Literal or issubclass(kind, StrEnum):
        more = {"choices": [*(typing.get_args(kind) or [member.value for member in kind])]}
    said = "" if default is None else f" (default: {shown:g})" if isinstance(shown, float) else f" (default: {shown})"
    parser.add_argument(flag, default=shown, help=option.help + said, **more)


def plan_command(name: str, command: Command, options: argparse.Namespace) -> int:
    """Print an algorithm's plan."""
    answer = command.answer(_read(name, command, options), patience)
    warn(answer.remarks)
    if options.json:
        print_json(answer.document)
    for piece in () if options.json else answer.text:
        print(wrapped(piece) if isinstance(piece, str) else table(piece))
    return 0


def _read(name: str, command: Command, options: argparse.Namespace) -> Any:
    """The options as the command takes them, once they were checked."""
    known = _options(command)
    given = {field: getattr(options, field) for field in known}
    needed = [field.name for field in fields(command.options) if field.default is MISSING]
    if missing := [known[field][1].asked or flag_of(field) for field in needed if given[field] is None]:
        raise CallerError(f"plan {name} needs {', '.join(missing)}")
    if (found := refused(command.options, given)) is not None:
        raise CallerError(f"{flag_of(found[0])} must be {found[1]}")
    if "delta" in known:
        check_delta(options)
    return command.options(**{field: _value(known[field][0], value) for field, value in given.items()})


def _value(kind: Any, value: Any) -> Any:
    return kind(value) if isinstance(kind, type) and issubclass(kind, StrEnum) and value is not None else value
