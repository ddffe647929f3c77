"""Asynchronous learning in rounds of growing size, with and without noise."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.increasing.figures import draw
from experiments.provenance import FirstUpdates
from experiments.stored import Record
from experiments.sweeps import KEPT, Paper, Variant

import gossamer as gs
from gossamer.algorithms.increasing.sizes import RoundSizes
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.split import Split

STUDIES = (
    "table-3",
    "table-3-large",
    "figure-3",
    "figures-4-5",
    "figures-6-7",
    "figure-8",
    "figure-9",
    "figures-10-11",
    "figures-12-13",
    "dp",
)
POINTS = 20
"""At most so many looks of a run are kept; the last is one of them."""
ENDS = ("dp",)
"""Studies of which only the last look is shown."""
SHOWN = ("rounds", "gradients", "mean_model_test_accuracy", "mean_model_test_loss", "balanced_accuracy")


def counted(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """How many rounds the gradients take; nothing is trained."""
    rounds = sizes_of(variant.experiment).rounds_for(variant.experiment.algorithm.gradients)
    return {"rounds": rounds}


def trained(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run, with how many rounds were complete, and how many gradients they had, at each look."""
    with TemporaryDirectory() as scratch:
        experiment = with_labels_only(variant.experiment, Path(scratch))
        result = gs.run(experiment, folder, overwrite=True, measure=balanced_accuracy, progress=first)
    record = PAPER.record(variant, result)
    sizes, nodes = sizes_of(variant.experiment), variant.experiment.algorithm.nodes
    for row in record["curve"]:
        row["rounds"] = row["updates"] // nodes  # an update is a client's round
        row["gradients"] = sizes.before(row["rounds"])
    counts = record.pop("increasing")
    multiplier = result.summary["privacy"]["mechanism"].get("noise_multiplier")
    return {
        **record,
        "rounds": counts["rounds"],
        "gradients": counts["gradients"],
        "bytes": result.summary["bytes"],
        "noise_multiplier": multiplier,
    }


def balanced_accuracy(prepared: Any, model: Any) -> dict[str, float]:
    """The mean over the classes of the share that is recognised; 1/classes for a model that says one class always.

    On w8a, where 97 % of the examples are of one class, accuracy does not tell such a model from a good one.
    """
    test, objective = prepared.dataset.test, prepared.objective
    if prepared.dataset.classes != 2:
        return {}  # those here are even
    shares = []
    for number in np.unique(test.targets):
        chosen = test.targets == number
        shares.append(objective.evaluate(model[None], Split(test.features[chosen], test.targets[chosen])).accuracy[0])
    return {"balanced_accuracy": float(np.mean(shares))}


def sizes_of(experiment: Any) -> RoundSizes:
    """The sizes of a run's rounds; shards matter to those that are given a size."""
    settings = experiment.algorithm
    shards = getattr(experiment.partition, "sizes", [1] * settings.nodes)
    names = {f"client {number}": examples for number, examples in enumerate(shards)}
    return RoundSizes(settings.sizes, settings.weights, settings.counts, names, experiment.seed)


def with_labels_only(experiment: Any, folder: Path) -> Any:
    """The experiment on those examples that have one of the ``labels`` its data set names, if it names some.

    Gossamer itself refuses data with other labels than those named.
    """
    settings = experiment.dataset
    if settings.labels is None:
        return experiment
    whole = load_dataset(settings.model_copy(update={"labels": None}))
    arrays = {}
    for part, split in (("train", whole.train), ("test", whole.test)):
        labels = np.array(whole.labels, np.float64)[split.targets]
        chosen = np.isin(labels, settings.labels)
        arrays[f"{part}_features"], arrays[f"{part}_targets"] = split.features[chosen], labels[chosen]
    path = folder / "examples.npz"
    np.savez(path, **arrays)
    return experiment.model_copy(
        update={"dataset": DatasetSettings(name=settings.name, path=path, format="npz", divide_by=1)}
    )


def condense(study: str, record: Record) -> Record:
    """Without what no figure shows."""
    if "curve" not in record:
        return record
    every = -(-len(record["curve"]) // (1 if study in ENDS else POINTS))
    thinned = record["curve"][::-1][::every][::-1]  # a few, the last among them: of these, thinning leaves all
    return {**record, "curve": [{key: row[key] for key in SHOWN if key in row} for row in thinned]}


PAPER = Paper(
    Path(__file__).resolve().parent,
    STUDIES,
    draw,
    kept=(*KEPT, "mean_model_test_loss", "balanced_accuracy"),
    runners={**dict.fromkeys(STUDIES, trained), "figure-3": counted},
    condense=condense,
)
