"""``gossamer predict``."""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from gossamer.cli.options import FileName
from gossamer.cli.printing import say
from gossamer.errors import CallerError, counted

if TYPE_CHECKING:
    from gossamer.trained.model import Predictions

DESCRIPTION = "Predict for every row of a file with the model that a run left behind."


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add_model(command)
    command.add_argument(
        "data", action=FileName, metavar="DATA", help="rows, such as a CSV file; a target is not needed"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document, with each class's probability")
    command.add_argument("--out", action=FileName, metavar="FILE", help="write to FILE instead of printing")
    command.add_argument("--overwrite", action="store_true", help="replace FILE")
    command.set_defaults(command=predict_command)


def add_model(command: argparse.ArgumentParser) -> None:
    """Add the model as the first argument."""
    command.add_argument(
        "results", action=FileName, metavar="RESULTS", help="a results folder, a party's --store, or a safetensors file"
    )


def predict_command(options: argparse.Namespace) -> int:
    """Predict, a line a row."""
    from gossamer.files import write_own
    from gossamer.trained.model import load_model

    if options.out is not None:
        check_out(options.out, options.overwrite, options.results, options.data)
    found = load_model(options.results).predict(options.data)
    text = _document(found) if options.json else _table(found)
    if options.out is None:
        print(text, end="")
    else:
        write_own(options.out, text)
        say(f"{counted(len(found), 'prediction')} in {options.out}")
    return 0


def check_out(out: Path, overwrite: bool, results: Path, *inputs: Path) -> None:
    """Refuse a file that is there already, or has no place to be; and to replace the model or the rows at all."""
    if out.is_dir():
        raise CallerError(f"--out: {out} is a folder; give the name of a file")
    if out.exists() and not overwrite:
        raise CallerError(f"--out: {out} exists; choose another name, or replace it with --overwrite")
    if not out.parent.is_dir():
        raise CallerError(f"--out: there is no folder {out.parent}; make it, or choose another")
    if not out.exists():
        return
    if any(given.exists() and out.samefile(given) for given in (results, *inputs)):
        raise CallerError(f"--out: {out} is what is read here, and is not replaced; choose another name")
    if out.suffix not in _REPLACED and (folder := _folder(results)) is not None and out.parent.samefile(folder):
        raise CallerError(
            f"--out: {out} is beside the model, where only files that end in {', '.join(_REPLACED)} are replaced; "
            "choose another name"
        )


_REPLACED = (".pt2", ".onnx", ".joblib", ".csv")
"""Ends of names of exports and predictions, which are those of no file of a run's or a party's own."""


def _folder(results: Path) -> Path | None:
    """Folder of a run or a party, none of a file that was handed on alone."""
    if results.is_dir():
        return results
    return results.parent if results.name == "model.safetensors" else None


def _document(found: Predictions) -> str:
    from gossamer.files import to_json

    document = {
        "rows": len(found),
        "classes": found.classes,
        "clipped": dict(found.clipped),
        "predictions": found.rows(),
    }
    return to_json(document, indent=2) + "\n"


def _table(found: Predictions) -> str:
    """CSV: the number of each row, what is predicted, and how likely that is."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    likely = None if found.probabilities is None else found.probabilities.max(axis=1).tolist()
    writer.writerow(["row", "prediction", *(["probability"] if likely else [])])
    for number, value in enumerate(found, 1):
        writer.writerow([number, value, *([f"{likely[number - 1]:.6g}"] if likely else [])])
    return text.getvalue()
