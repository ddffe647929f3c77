"""The tables and figures of A(DP)2SGD."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from experiments.adp2sgd import batches, frames
from experiments.adp2sgd.figures import draw
from experiments.provenance import FirstUpdates
from experiments.stored import Record
from experiments.sweeps import Paper, Variant

import gossamer as gs
from gossamer.objectives.models import build_model

STUDIES = (
    "table-1",
    "table-2",
    "figure-2",
    "figure-2-networks",
    "figure-3",
    "figure-3-networks",
    "figure-4",
    "figure-9",
    "stragglers",
    "lstm",
    "sigma",
)
PUBLISHED = {
    "shufflenet": 4.82,
    "mobilenetv2": 8.76,
    "efficientnet_b0": 11.11,
    "mobilenet": 12.27,
    "googlenet": 23.53,
    "resnext29": 34.82,
    "resnet18": 42.63,
    "senet18": 42.95,
    "vgg19": 76.45,
    "lstm": 164.62,
}
"""Table 2: model sizes in MB, of 2^20 bytes; under 10^6 none of them would be near."""
_CLASSES = {"lstm": 32_000}


def sizes(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """Size of a network in float32, and by how much it differs from the published one, as a share of that."""
    name = variant.place["model"]
    with torch.device("meta"):  # shapes alone
        module = build_model(name, variant.experiment.dataset.shape or (3, 32, 32), _CLASSES.get(name, 10))
    parameters = sum(parameter.numel() for parameter in module.parameters())
    megabytes = 4 * parameters / 2**20
    return {
        "parameters": parameters,
        "megabytes": megabytes,
        "published": PUBLISHED[name],
        "off": abs(megabytes / PUBLISHED[name] - 1),
    }


def of_frames(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run on generated frames, with the loss over them."""
    result = gs.run(variant.experiment, folder, data=frames.data(), overwrite=True, progress=first)
    shown = ("updates", "virtual_seconds", "mean_model_test_loss", *(("test_loss",) if study == "figure-9" else ()))
    return {**PAPER.record(variant, result), "curve": [{key: row[key] for key in shown} for row in result.metrics]}


@cache
def fewer_tests() -> gs.Data:
    """MNIST with every tenth of its test images: where models are looked at often, looks cost more than updates."""
    found = gs.load_dataset(gs.DatasetSettings(name="mnist"))
    train, test = found.train, found.test
    return gs.Data(
        train.features, train.targets, x_test=test.features[::10], y_test=test.targets[::10], labels=list(range(10))
    )


def looked_at_often(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run on these."""
    return PAPER.record(variant, gs.run(variant.experiment, folder, data=fewer_tests(), overwrite=True, progress=first))


def of_a_reading(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A run on them, or on batches that are clipped as a whole."""
    if not variant.place["reading"].startswith("clipped batch"):
        return looked_at_often(study, variant, folder, first)
    data = batches.data()
    result = gs.run(variant.experiment, folder, data=data, overwrite=True, progress=first, measure=batches.right)
    curve = [{"updates": row["updates"], "mean_model_test_accuracy": row["right"]} for row in result.metrics]
    return {**PAPER.record(variant, result), "curve": curve}


PAPER = Paper(
    Path(__file__).resolve().parent,
    STUDIES,
    draw,
    runners={
        "table-2": sizes,
        "lstm": of_frames,
        "figure-9": of_frames,
        "sigma": of_a_reading,
        **dict.fromkeys(("figure-2-networks", "figure-3-networks"), looked_at_often),
    },
)
