"""Losses and accuracies of a network under several models, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch

from gossamer.arrays import FloatArray, IndexArray
from gossamer.data.split import Features, Split
from gossamer.objectives.asked import Evaluation
from gossamer.objectives.torch_batching import in_order
from gossamer.objectives.torch_examples import Tensors
from gossamer.objectives.torch_plan import Plan


def evaluation(plan: Plan, models: FloatArray, data: Split, tensors: Tensors, threads: int) -> Evaluation:
    """Mean loss and accuracy of each of ``models`` [width, size]; equal models are computed once."""
    models, which = _different(models)
    if plan.kernel is not None:
        return Evaluation(*(figures[which] for figures in plan.kernel.evaluation(models, data, threads)))
    work = [(row, part) for row in range(len(models)) for part in _slices(len(data), plan.rows)]

    def score(item: tuple[int, slice]) -> npt.NDArray[np.float64]:
        row, part = item
        with plan.networks.lend() as network, torch.no_grad():
            parameters = network.parameters(torch.tensor(models[row]))
            outputs = network.outputs(*network.arrange(parameters, tensors.features(data, part)))
            targets = tensors.targets(data, part)
            losses = network.loss.values(outputs, targets).double().sum()
            correct = (network.loss.scores(outputs).argmax(1) == targets).sum() if plan.classes else losses * np.nan
        return np.array([losses, correct], np.float64)

    totals = np.zeros((len(models), 2))
    for (row, _), scores in zip(work, in_order(score, work, threads)):
        totals[row] += scores
    loss, accuracy = totals[which].T / len(data)
    return Evaluation(loss, accuracy)


def example_losses(
    plan: Plan, models: FloatArray, data: Split, tensors: Tensors, threads: int
) -> npt.NDArray[np.float64]:
    """Loss of each example under each of ``models``, [width, examples]."""
    if plan.kernel is not None:
        return plan.kernel.scores(models, data, threads)[0]
    found = np.empty((len(models), len(data)))
    with plan.networks.lend() as network, torch.no_grad():
        for row, model in enumerate(models):
            parameters = network.parameters(torch.tensor(model))
            for part in _slices(len(data), plan.rows):
                arranged = network.arrange(parameters, tensors.features(data, part))
                found[row, part] = network.losses(*arranged, tensors.targets(data, part)).double().numpy()
    return found


def scores(plan: Plan, model: FloatArray, features: Features, tensors: Tensors) -> npt.NDArray[np.float64]:
    """Scores of each example, [examples, outputs], computed in the module's own type."""
    count = int(features.shape[0])
    data, found = Split(features, np.zeros(count, np.int64)), np.empty((count, plan.classes or 1))
    with plan.networks.lend() as network, torch.no_grad():
        parameters = network.parameters(torch.tensor(model))
        for part in _slices(count, plan.rows):
            outputs = network.outputs(*network.arrange(parameters, tensors.features(data, part)))
            found[part] = network.loss.scores(outputs).reshape(-1, found.shape[1]).double().numpy()
    return found


def _different(models: FloatArray) -> tuple[FloatArray, IndexArray]:
    """The models of a stack that differ in a bit, and the place among them of each; all nodes begin with one model."""
    places: dict[bytes, int] = {}
    which = [places.setdefault(hashlib.blake2b(np.ascontiguousarray(row).data).digest(), len(places)) for row in models]
    first = [which.index(place) for place in range(len(places))]
    return models[first], np.array(which, np.int64)


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))
