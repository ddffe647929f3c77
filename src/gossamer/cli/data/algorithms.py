"""``gossamer algorithms``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.printing import print_json, table
from gossamer.errors import SpecError

if TYPE_CHECKING:
    from gossamer.registering import Registered


DESCRIPTION = (
    "List algorithms: Gossamer's own, and those that other distributions register, with the code that a policy has to "
    "allow; and topologies, partitions and losses that others register. Nothing of it is imported."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=algorithms_command)


def algorithms_command(options: argparse.Namespace) -> int:
    """Print the list."""
    from gossamer.algorithms.interface import clash, registered
    from gossamer.algorithms.table import ALGORITHMS
    from gossamer.experiment.specs.spec import KINDS

    others = registered()
    more = {kind: {one: clash(one, all_, kind.names) for one in all_} for kind in KINDS for all_ in [kind.registered()]}
    found = {one: clash(one, others, ALGORITHMS) for one in others}
    if options.json:
        own = [{"name": name, "code": None, "problem": None} for name in ALGORITHMS]
        document = {"algorithms": [*own, *(_document(one, problem) for one, problem in found.items())]}
        for kind, registered_ in more.items():
            document[kind.plural] = [_document(one, problem) for one, problem in registered_.items()]
        print_json(document)
        return 0
    rows = [("name", "of")] + [(name, "gossamer") for name in ALGORITHMS]
    rows += [(one.name, _described(one, problem)) for one, problem in found.items()]
    for kind, registered_ in more.items():
        rows += [(f"{one.name} ({kind.noun})", _described(one, problem)) for one, problem in registered_.items()]
    print(table(rows))
    return 0


def _document(one: Registered, problem: str | None) -> dict[str, str | None]:
    code, unread = _code(one)
    return {"name": one.name, "code": code, "problem": problem or unread}


def _described(one: Registered, problem: str | None) -> str:
    code, unread = _code(one)
    refused = problem or unread
    return f"{code or one}{'' if refused is None else f'  (refused: {refused})'}"


def _code(one: Registered) -> tuple[str | None, str | None]:
    """Line that a policy has to have, or the reason that it is not known."""
    try:
        return one.code, None
    except SpecError as error:
        return None, str(error)
