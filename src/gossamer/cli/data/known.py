"""``gossamer algorithms`` and ``gossamer datasets``: what is known by name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gossamer.cli.printing import answered, table
from gossamer.errors import SpecError

if TYPE_CHECKING:
    from gossamer.data.datasets import DatasetRecord
    from gossamer.section import Registered


def algorithms_command(options: argparse.Namespace) -> int:
    """Print the list."""
    from gossamer.algorithms.table import ALGORITHMS, KIND
    from gossamer.experiment.specs.spec import KINDS

    found = [
        (kind, one, kind.clash(one, every)) for kind in (KIND, *KINDS) for every in [kind.registered()] for one in every
    ]
    document: dict[str, Any] = {kind.plural: [] for kind in (KIND, *KINDS)}
    document[KIND.plural] = [{"name": name, "code": None, "problem": None} for name in ALGORITHMS]
    rows = [("name", "of")] + [(name, "gossamer") for name in ALGORITHMS]
    for kind, one, problem in found:
        code, unread = _code(one)
        refused = problem or unread
        document[kind.plural].append({"name": one.name, "code": code, "problem": refused})
        named = one.name if kind is KIND else f"{one.name} ({kind.noun})"
        rows.append((named, f"{code or one}{'' if refused is None else f'  (refused: {refused})'}"))
    return answered(options, document, table(rows))


def _code(one: Registered) -> tuple[str | None, str | None]:
    """Line that a policy has to have, or the reason that it is not known."""
    try:
        return one.code, None
    except SpecError as error:
        return None, str(error)


def datasets_command(options: argparse.Namespace) -> int:
    """Print the list."""
    from gossamer.data.datasets import known_datasets
    from gossamer.data.files import search_path

    records = known_datasets()
    document = {
        "datasets": [one._asdict() | {"path": one.path and str(one.path)} for one in records],
        "search_path": [str(folder) for folder in search_path()],
    }
    rows = [("name", "what", "where"), *((one.name, one.description, _place(one)) for one in records)]
    looked = [f"  {folder}{'' if folder.is_dir() else '  (does not exist)'}" for folder in search_path()]
    where = "Looked for in these folders and their subfolders (GOSSAMER_DATA adds more):"
    return answered(options, document, "\n".join([table(rows), "", where, *looked]))


def _place(record: DatasetRecord) -> str:
    if record.path is not None:
        return str(record.path)
    return f"missing: {', '.join(record.files)}" if record.files else "needs no files"
