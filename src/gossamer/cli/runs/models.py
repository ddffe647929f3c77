"""Commands about models that runs left: ``predict``, ``evaluate``, ``export``, ``average`` and ``recalibrate``."""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.cli.printing import answered, in_blocks, say, table, warn, wrapped
from gossamer.data.table import is_number
from gossamer.errors import CallerError, counted
from gossamer.experiment.specs.spec_file import read_spec
from gossamer.files import make_own_folder, to_json, write_own
from gossamer.objectives.released_scores import FILE as RELEASED
from gossamer.objectives.released_scores import ReleasedScores
from gossamer.objectives.score_words import reliability_table, said_first, table_of, table_of_groups
from gossamer.trained.averaging import Saved, average
from gossamer.trained.card import ARRAYS, FILE, Card, rebuilt, saved
from gossamer.trained.model import TARGETS, Predictions, export_model, load_model
from gossamer.trained.recalibration import Recalibration

SPEC = "spec.yaml"


def predict_command(options: argparse.Namespace) -> int:
    """Predict, a line a row."""

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

    document = {
        "rows": len(found),
        "classes": found.classes,
        "clipped": dict(found.clipped),
        "predictions": found.rows(),
    }
    return to_json(document, indent=2) + "\n"


def _table(found: Predictions) -> str:
    """CSV: the number of each row, what is predicted, and the outcome's probability: of several classes that one's."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    two, likely, head = found.classes is not None and len(found.classes) == 2, None, list[str]()
    if found.probabilities is not None and found.classes is not None:
        likely = (found.probabilities[:, 1] if two else found.probabilities.max(axis=1)).tolist()
        head = [f"probability of {found.classes[1] if two else 'prediction'}"]
    writer.writerow(["row", "prediction", *head])
    for number, value in enumerate(found, 1):
        writer.writerow([number, value, *([f"{likely[number - 1]:.6g}"] if likely else [])])
    return text.getvalue()


def evaluate_command(options: argparse.Namespace) -> int:
    """Print the figures."""

    costs = _costs(options.cost) if options.cost else None
    how = {"by": options.by, "threshold": options.threshold, "least": options.least_rows}
    found = load_model(options.results).evaluate(options.data, cost=costs, **how)
    if _trained_on(options.results, options.data):
        warn([_FLATTERED.format(options.data)])
    parts = [*map(wrapped, said_first(found)), f"loss {found['loss']:.4g}, as it was minimised"]
    parts += [table(table_of(found))] if "figures" in found else []
    if "reliability" in found:
        parts.append(table(reliability_table(found)))
    if (cost := found.get("cost")) is not None:
        parts.append(
            wrapped(
                f"A threshold of {cost['threshold']:.4g} costs least on these rows: {cost['cost']:.4g} a row, where "
                f"the cheaper of always and never costs {cost['constant_cost']:.4g}. It was chosen by these rows, so "
                "on others it will cost more."
            )
        )
    parts += [in_blocks(table_of_groups(column, groups)) for column, groups in found.get("groups", {}).items()]
    return answered(options, found, "\n\n".join(parts))


_FLATTERED = (
    "{} is the file that this run's spec names, so the model was trained on most of its rows, and these figures "
    "flatter it; gossamer report has those of rows that were held out"
)


def _trained_on(results: Path, data: Path) -> bool:
    """Whether the spec beside the model, which is public, names this very file."""
    try:
        spec = read_spec((_folder(results) or results) / SPEC)
        return spec.dataset.path is not None and spec.dataset.path.samefile(data)
    except (OSError, CallerError):
        return False


def _costs(texts: Sequence[str]) -> dict[str, Any]:
    """Costs by what they are of; what is no number is refused with those that are out of range."""
    pairs = (text.partition("=")[::2] for text in texts)
    return {name.strip(): float(value) if is_number(value) else value for name, value in pairs}


def export_command(options: argparse.Namespace) -> int:
    """Write the file, and say where it is."""

    beside = options.results if options.results.is_dir() else options.results.parent
    out = options.out or beside / TARGETS[options.to].file
    check_out(out, options.overwrite, options.results)
    print(export_model(load_model(options.results), options.to, out, overwrite=options.overwrite))
    return 0


def average_command(options: argparse.Namespace) -> int:
    """Write the mean, and say what it was made of."""

    check_new(options.out)
    models = [Saved.read(place) for place in options.results]
    card, mean = average(models, options.weights)
    content = saved(mean, card)
    weights = options.weights or [1.0] * len(models)
    documents: list[dict[str, Any]] = []
    for model, weight in zip(models, weights, strict=True):
        distance = float(np.linalg.norm(model.vector.astype(np.float64) - mean))
        documents.append({"place": str(model.place), "node": model.node, "weight": weight, "distance": distance})
    document = {"folder": str(options.out), "sha256": hashlib.sha256(content).hexdigest(), "models": documents}
    _write(options.out, card, content, "average.json", document)
    rows: list[tuple[str, ...]] = [("model", "party", "weight", "distance from the mean")]
    rows += [
        (str(found["place"]), str(found["node"] or "-"), f"{found['weight']:g}", f"{found['distance']:.4g}")
        for found in documents
    ]
    said = f"SHA-256 of the mean, the same for all who average these: {document['sha256']}"
    return answered(options, document, f"{table(rows)}\n\n{said}\nModel: {options.out}")


def recalibrate_command(options: argparse.Namespace) -> int:
    """Write the first folder's model with other log odds, and say which."""

    check_new(options.out)
    model = Saved.read(options.results[0])
    own, *others = (ReleasedScores.read(place) for place in options.results)
    for place, one in zip(options.results[1:], others, strict=True):
        if one is None:
            raise CallerError(f"{place}: expected what another party released ({RELEASED}), found none; leave it out")
    parts = [one for one in (own, *others) if one is not None]
    if not parts:
        raise CallerError(f"expected a folder with {RELEASED}, which evaluation.release: private leaves, found none")
    released = ReleasedScores.together(parts)
    if released.masked:
        missing = ", ".join(released.missing)
        raise CallerError(f"the sum of all parties' histograms cannot be opened without {missing}; name their folders")
    found = Recalibration.of(released.total, released.prevalence)
    card, vector = found.applied(model.card, rebuilt(model.card, model.place), model.vector)
    if (own is None or others) and released.run != model.run:
        raise CallerError(f"{model.place}: expected a model of the run of which parties released, found another's")
    document = {"folder": str(options.out), **found._asdict(), "missing": released.missing}
    _write(options.out, card, saved(vector, card), "recalibration.json", document)
    if (spec := (_folder(model.place) or model.place) / SPEC).is_file():
        write_own(options.out / SPEC, spec.read_text(encoding="utf-8"))  # it says which rows flatter this model, too
    intercept = released.summary()["figures"]["calibration_intercept"]
    if found.slope == 1 and intercept["low"] <= 0 <= intercept["high"]:
        warn([_BY_NOISE.format(**intercept)])
    said = f"Log odds are now {found.slope:.4g} times what they were, and {found.intercept:+.4g}."
    missing = f"\nWithout {', '.join(released.missing)}, whose part is missing." if released.missing else ""
    return answered(options, document, f"{said}{missing}\nModel: {options.out}")


_BY_NOISE = (
    "noise may have made this change: from {low:+.2f} to {high:+.2f} all fits what was released, and 0, which changes "
    "nothing, is among these; predictions may well be nearer the truth as they were"
)


def check_new(out: Path) -> None:
    """Refuse a folder for a model in which there is something."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise CallerError(f"{out}: expected a new folder for the model, found something there; choose another --out")


def _write(out: Path, card: Card, arrays: bytes, name: str, document: object) -> None:
    make_own_folder(out)
    write_own(out / ARRAYS, arrays)
    write_own(out / FILE, card.to_json(indent=2) + "\n")
    write_own(out / name, to_json(document, indent=2) + "\n")
