"""``gossamer export``."""

from __future__ import annotations

import argparse
from pathlib import Path

from gossamer.cli.options import FileName
from gossamer.cli.runs.predict import add_model, check_out

DESCRIPTION = "Write the model that a run left behind for another program, with all that is done to raw numbers in it."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_model(command)
    command.add_argument("--to", required=True, metavar="TARGET", help="torch, onnx or sklearn")
    command.add_argument("--out", action=FileName, metavar="FILE", help="where to (default: beside the model)")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    command.set_defaults(command=export_command)


def export_command(options: argparse.Namespace) -> int:
    """Write the file, and say where it is."""
    from gossamer.trained.exporting import TARGETS, check_target, export_model
    from gossamer.trained.model import load_model

    check_target(options.to)
    out = options.out or _beside(options.results) / TARGETS[options.to].file
    check_out(out, options.overwrite, options.results)
    print(export_model(load_model(options.results), options.to, out, overwrite=options.overwrite))
    return 0


def _beside(results: Path) -> Path:
    return results if results.is_dir() else results.parent
