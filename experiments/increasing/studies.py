"""Asynchronous learning in rounds of growing size, with and without noise."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from experiments.increasing.figures import draw
from experiments.increasing.readings import READINGS, trained_by
from experiments.provenance import EnoughError, FirstUpdates
from experiments.stored import Record
from experiments.sweeps import KEPT, Paper, Variant

import gossamer as gs
from gossamer.algorithms.increasing.settings import PublicRounds
from gossamer.data.datasets import DatasetSettings, load_dataset
from gossamer.data.examples import Split
from gossamer.experiment.preparation.prepare import prepare

STUDIES = (
    "table-3",
    "table-3-large",
    "lenet-readings",
    "figure-3",
    "figures-4-5",
    "figures-6-7",
    "figure-8",
    "figure-9",
    "figures-10-11",
    "figures-12-13",
    "dp",
)
STANDARDISED = "-standardised"
"""End of the name of a data set whose features are to be standardised."""
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
        experiment = with_own_data(variant.experiment, Path(scratch))
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


def read(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run, or what a plain loop trains where the reading is no setting; with the accuracy of a client's own model."""
    reading = READINGS.get(variant.place["reading"])
    if reading is None:
        return trained(study, variant, folder, first)
    if first.alone:
        raise EnoughError  # it is no run of the library
    prepared = prepare(variant.experiment)
    found = trained_by(reading, prepared)
    server, client = (
        prepared.objective.evaluate(model[None], prepared.dataset.test).accuracy[0]
        for model in (found.server, found.client)
    )
    gradients = variant.experiment.algorithm.gradients
    rounds = sizes_of(variant.experiment).rounds_for(gradients)
    last = {"rounds": rounds, "gradients": gradients, "mean_model_test_accuracy": float(server)}
    return {"epsilon": None, "rounds": rounds, "client_accuracy": float(client), "curve": [last]}


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


def sizes_of(experiment: Any) -> PublicRounds:
    """The sizes of a run's rounds; shards matter to those that are given a size."""
    settings = experiment.algorithm
    shards = getattr(experiment.partition, "sizes", [1] * settings.nodes)
    names = {f"client {number}": examples for number, examples in enumerate(shards)}
    return PublicRounds(settings, names, experiment.seed)


def with_own_data(experiment: Any, folder: Path) -> Any:
    """The experiment on data that Gossamer has no setting for, where its data set's name or ``labels`` ask for some."""
    settings = experiment.dataset
    made: dict[str, Split] | None = None
    if settings.name.endswith(STANDARDISED):
        made = standardised(settings.name.removesuffix(STANDARDISED))
    elif settings.labels is not None:
        made = with_labels_only(settings)
    if made is None:
        return experiment
    path = folder / "examples.npz"
    arrays = {f"{part}_features": split.features for part, split in made.items()}
    arrays |= {f"{part}_targets": split.targets for part, split in made.items()}
    np.savez(path, **arrays)
    own = DatasetSettings(name=settings.name, path=path, format="npz", divide_by=1)
    return experiment.model_copy(update={"dataset": own})


def with_labels_only(settings: DatasetSettings) -> dict[str, Split]:
    """Those examples that have one of the labels that the settings name; Gossamer itself refuses the others."""
    whole = load_dataset(settings.model_copy(update={"labels": None}))
    found = {}
    for part, split in (("train", whole.train), ("test", whole.test)):
        labels = np.array(whole.labels, np.float64)[split.targets]
        chosen = np.isin(labels, settings.labels)
        found[part] = Split(split.features[chosen], labels[chosen])
    return found


def standardised(name: str) -> dict[str, Split]:
    """A data set whose features are 0 and 1, less their mean and over their standard deviation.

    These constants are public facts of the training file: how many of its examples have each feature.
    """
    facts = json.loads((PAPER.folder / f"{name}.json").read_text())
    mean = np.array(facts["ones"]) / facts["examples"]
    deviation = np.sqrt(mean * (1 - mean))
    whole = load_dataset(DatasetSettings(name=name, layout="dense"))
    parts = {"train": whole.train, "test": whole.test}
    return {
        part: Split(((one.features - mean) / deviation).astype(np.float32), one.targets) for part, one in parts.items()
    }


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
    runners={**dict.fromkeys(STUDIES, trained), "figure-3": counted, "lenet-readings": read},
    condense=condense,
)
