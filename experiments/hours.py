"""How long runs that ask for a graphics card take without one: told before they begin."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from experiments.sweeps import Variant

import gossamer as gs
from gossamer.experiment.preparation.prepare import FromMemory

CLASSES, SHAPE, TRAINING = 10, (3, 32, 32), 50_000
"""Classes, shape and number of the training pictures of CIFAR-10, on which all of them run."""
TIMED = 8
"""Examples whose gradients are timed."""


def hours(study: str, variants: Sequence[Variant]) -> Iterator[str]:
    """Yield a line where runs ask for a graphics card and there is none: how long their gradients take here."""
    asking = [one for one in variants if one.experiment.compute.device == "auto"]
    if not asking or torch.cuda.is_available():
        return
    each = {name: seconds_each(one) for name, one in {one.experiment.objective.name: one for one in asking}.items()}
    total = sum(examples(one) * each[one.experiment.objective.name] for one in asking) / 3600
    runs = "a run" if len(asking) == 1 else f"{len(asking)} runs"
    yield f"{study}: {runs} and no graphics card: about {total:,.0f} hours of one core of this processor"


def examples(variant: Variant) -> float:
    """Gradients of a run, which all its nodes take together."""
    stop, batch = variant.experiment.stop, variant.experiment.algorithm.batch_size
    return float(stop.epochs * TRAINING if stop.updates is None else stop.updates * batch)


def seconds_each(variant: Variant) -> float:
    """Processor time of the gradient of one example, from a few; the first call, which compiles, does not count."""
    x = np.random.default_rng(0).random((2 * TIMED, *SHAPE), np.float32)
    y = np.arange(2 * TIMED) % CLASSES
    few = {"algorithm": {**variant.content["algorithm"], "nodes": 2, "batch_size": TIMED}, "dataset": "in memory"}
    data = gs.Data(x, y, x_test=x[:CLASSES], y_test=y[:CLASSES], labels=list(range(CLASSES)))
    prepared = gs.prepare(gs.parse_spec({**variant.content, **few}), FromMemory(data))
    model = prepared.objective.initial(np.random.default_rng(0))[None]
    began = 0.0
    for _ in range(2):
        began = time.process_time()
        prepared.objective.clipped_gradients(model, prepared.dataset.train, [np.arange(TIMED)], 1.0)
    return (time.process_time() - began) / TIMED
