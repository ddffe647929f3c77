"""``gossamer datasets``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gossamer.cli.printing import print_json, table

if TYPE_CHECKING:
    from gossamer.data.datasets import DatasetRecord


DESCRIPTION = "List known datasets and where their files are looked for. GOSSAMER_DATA adds folders."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    command.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=datasets_command)


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
