"""``gossamer algorithms`` and ``gossamer datasets``: what is known by name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.printing import print_json, table
from gossamer.errors import SpecError

if TYPE_CHECKING:
    from gossamer.data.datasets import DatasetRecord
    from gossamer.section import Registered


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


def datasets_command(options: argparse.Namespace) -> int:
    """Print the list."""
    from gossamer.data.catalogue import search_path
    from gossamer.data.datasets import known_datasets

    records = known_datasets()
    if options.json:
        print_json(
            {
                "datasets": [
                    {
                        "name": record.name,
                        "description": record.description,
                        "files": list(record.files),
                        "path": None if record.path is None else str(record.path),
                    }
                    for record in records
                ],
                "search_path": [str(folder) for folder in search_path()],
            }
        )
        return 0
    rows = [("name", "what", "where")]
    rows += [(record.name, record.description, _place(record)) for record in records]
    print(table(rows))
    print("\nLooked for in these folders and their subfolders (GOSSAMER_DATA adds more):")
    print("\n".join(f"  {folder}{'' if folder.is_dir() else '  (does not exist)'}" for folder in search_path()))
    return 0


def _place(record: DatasetRecord) -> str:
    if record.path is not None:
        return str(record.path)
    return f"missing: {', '.join(record.files)}" if record.files else "needs no files"
