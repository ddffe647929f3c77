"""``gossamer average``."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from gossamer.cli.options import FileName
from gossamer.cli.printing import print_json, table
from gossamer.errors import CallerError

DESCRIPTION = (
    "Average the models that parties of one run have saved, such as those of gossip's nodes. Whoever averages the same "
    "models with the same weights gets the same file."
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the command's arguments to its parser."""
    add = command.add_argument
    add(
        "results",
        action=FileName,
        nargs="+",
        metavar="RESULTS",
        help="a party's model.safetensors, or its folder",
    )
    add("--weights", type=_weights, metavar="W,W,...", help="what each counts, in this order (default: equally)")
    add("--out", action=FileName, default=Path("average"), metavar="FOLDER", help="for the mean (default: average)")
    add("--json", action="store_true", help="print one JSON document on stdout")
    command.set_defaults(command=average_command)


def average_command(options: argparse.Namespace) -> int:
    """Write the mean, and say what it was made of."""
    import hashlib

    import numpy as np

    from gossamer.experiment.results.results_folder import to_json
    from gossamer.files import make_own_folder, write_own
    from gossamer.trained.averaging import Saved, average
    from gossamer.trained.card import ARRAYS, FILE, saved

    out = options.out
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise CallerError(f"{out}: expected a new folder for the mean, found something there; choose another --out")
    models = [Saved.read(place) for place in options.results]
    card, mean = average(models, options.weights)
    content = saved(mean, card)
    weights = options.weights or [1.0] * len(models)
    documents = [
        {
            "place": str(model.place),
            "node": model.node,
            "weight": weight,
            "distance": float(np.linalg.norm(model.vector.astype(np.float64) - mean)),
        }
        for model, weight in zip(models, weights, strict=True)
    ]
    document = {"folder": str(out), "sha256": hashlib.sha256(content).hexdigest(), "models": documents}
    make_own_folder(out)
    write_own(out / ARRAYS, content)
    write_own(out / FILE, card.to_json(indent=2) + "\n")
    write_own(out / "average.json", to_json(document, indent=2) + "\n")
    if options.json:
        print_json(document)
        return 0
    rows: list[tuple[str, ...]] = [("model", "party", "weight", "distance from the mean")]
    rows += [
        (str(found["place"]), str(found["node"] or "-"), f"{found['weight']:g}", f"{found['distance']:.4g}")
        for found in documents
    ]
    said = f"SHA-256 of the mean, the same for all who average these: {document['sha256']}"
    print(f"{table(rows)}\n\n{said}\nModel: {out}")
    return 0


def _weights(text: str) -> list[float]:
    try:
        found = [float(item) for item in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise argparse.ArgumentTypeError(f"expected numbers with commas between them, such as 200,180, found {text!r}")
    return found
