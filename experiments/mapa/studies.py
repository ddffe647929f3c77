"""MAPA's figures, and what its stages are worth where a guarantee is proved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from experiments.mapa.figures import draw, encoded
from experiments.mapa.testbed import by_processes
from experiments.provenance import EnoughError, FirstUpdates
from experiments.stored import Record
from experiments.sweeps import KEPT, Paper, Variant

import gossamer as gs
from gossamer.experiment.audits.inversion_audit import invert
from gossamer.experiment.preparation.prepare import prepare

STUDIES = (
    "figure-4",
    "figure-5",
    "figure-6",
    "figure-7",
    "figure-7-testbed",
    "figure-8",
    "figure-9",
    "proved-linear",
    "proved-cnn",
)
THRESHOLDS = {"lr mnist": ("0.65", "0.6"), "svm mnist": ("4",), "cnn mnist": ("1.5", "1", "0.5")}
LOOKS = 5
"""Whose mean loss must be under a threshold."""
ATTACKED, SHOWN = 50, 3
SHOWN_FIGURES = ("updates", "wall_seconds", "mean_model_test_accuracy", "mean_model_test_loss", "gradient_norm")


def gradient_norm(prepared: Any, model: Any) -> dict[str, float]:
    """Of the mean gradient over all training examples; the observer's figure, which no node has."""
    train, objective = prepared.dataset.train, prepared.objective
    found = objective.clipped_gradients(model[None], train, [np.arange(len(train))], math.inf)
    return {"gradient_norm": float(np.linalg.norm(found.sums[0] / len(train) + objective.l2 * model))}


def recovered(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """How like the first node's first digits those are which come back from their released gradients."""
    found = invert(prepare(variant.experiment), examples=ATTACKED)
    level = found.levels[-1]  # the spec's own noise, if it has some
    return {
        "ssim": float(np.mean(level.similarities)),
        "cosine": float(np.mean(level.cosines)),
        "originals": [encoded(picture, found.low, found.high) for picture in found.originals[:SHOWN]],
        "pictures": [encoded(picture) for picture in level.recovered[:SHOWN]],
    }


def deployed(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run by processes, or its simulation. What processes do is not the same again, so it has no first updates."""
    if variant.place["world"] == "simulation":
        return PAPER.record(variant, gs.run(variant.experiment, folder, overwrite=True, progress=first))
    if first.alone:
        raise EnoughError
    return by_processes(variant.content, folder)


def iterations_to(curve: Sequence[Record], threshold: float) -> int | None:
    """Updates until the mean loss of five successive looks is under ``threshold``; None if it never is."""
    losses = [row["mean_model_test_loss"] for row in curve]
    means = (sum(losses[end - LOOKS : end]) / LOOKS for end in range(LOOKS, len(losses) + 1))
    return next((curve[end]["updates"] for end, mean in enumerate(means, LOOKS - 1) if mean < threshold), None)


def condense(study: str, record: Record) -> Record:
    """What figures and tables need."""
    if study == "figure-4":
        return record
    curve = [{key: row[key] for key in SHOWN_FIGURES if key in row} for row in record["curve"]]
    if not study.startswith("figure-7") or "iterations_to" in record:
        return {**record, "curve": curve}
    reached = {text: iterations_to(curve, float(text)) for text in THRESHOLDS[record["problem"]]}
    thinned = [{key: row[key] for key in ("updates", "mean_model_test_loss")} for row in [*curve[:-1:10], curve[-1]]]
    return {**record, "iterations_to": reached, "curve": thinned}


PAPER = Paper(
    Path(__file__).resolve().parent,
    STUDIES,
    draw,
    kept=(*KEPT, "mean_model_test_loss", "gradient_norm"),
    measures={"figure-5": gradient_norm},
    runners={"figure-4": recovered, "figure-8": deployed},
    condense=condense,
)
