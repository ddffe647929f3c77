"""Personal models: the final model, trained on by each node on its own examples, for itself alone.

This happens once the run is over, and outside of it: nodes do not know of it, nothing of it is sent, journalled or
charged, and the guarantee of the run says nothing of it. A personal model is made of raw data, without clip and noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray, Floats, IndexArray
from gossamer.data.examples import Split
from gossamer.experiment.preparation.prepare import Prepared, public_seed
from gossamer.experiment.specs.spec import PersonalisationSettings
from gossamer.objectives.objective import Training, slices
from gossamer.protocol.node import Node
from gossamer.randomness import stream
from gossamer.sides.client import shuffled

NOTE = (
    "A personal model is made of raw data, without noise: neither it nor its figures are covered by the guarantee. "
    "It is for its data's owner alone and must not be handed on."
)

_Figures = dict[str, Floats]
"""By name, one entry a model."""


def personal_models(
    prepared: Prepared, settings: PersonalisationSettings, names: Sequence[str], models: FloatArray
) -> FloatArray:
    """Train ``models`` [width, size] on, each by steps on the examples of the node of that name.

    Which examples a step takes follows from the spec's seed: what is handed to nobody needs no secret coins.

    Returns
    -------
    ndarray [width, size]
        With the update of `Objective.local_training` in them.
    """
    shards, query = _shards(prepared), settings.query
    trainings = [
        Training(
            shuffled(query, shards[name], stream(public_seed(prepared.experiment), "personalisation", name)),
            query.rate,
            query.momentum,
            query.proximal,
        )
        for name in names
    ]
    found = prepared.objective.local_training(models, prepared.dataset.train, trainings)
    return (models + found.updates).astype(prepared.objective.dtype, copy=False)


def personalised(prepared: Prepared, nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Score personal models at the end of a simulation, beside the models that they were made from.

    That is the run's model where the algorithm has a server, and otherwise the node's own, which it would deploy. Nodes
    that are gone make none.

    Parameters
    ----------
    prepared : Prepared
        Run, as it was prepared.
    nodes : mapping of str to Node
        Those that are there at the end.

    Returns
    -------
    dict
        Plain data for the summary; empty unless the spec asks for personal models.
    """
    settings, names = prepared.experiment.personalisation, [name for name in prepared.names if name in nodes]
    if settings is None or not names:
        return {}
    before: list[_Figures] = []
    after: list[_Figures] = []
    for part in slices(len(names), prepared.world.width):  # all models would not fit into memory
        some = names[part]
        models = _final_models(prepared, nodes, some)
        before.append(_scores(prepared, some, models))
        after.append(_scores(prepared, some, personal_models(prepared, settings, some, models)))
    return {
        "nodes": len(names),
        "personal": _mean_and_worst(after),
        "final_model": _mean_and_worst(before),
        "note": NOTE,
    }


def _shards(prepared: Prepared) -> dict[str, IndexArray]:
    return dict(zip(prepared.names, prepared.shards, strict=True))


def _final_models(prepared: Prepared, nodes: Mapping[str, Node], names: Sequence[str]) -> FloatArray:
    """Models that nodes train on, [width, size]."""
    if prepared.cast.servers:
        final = np.asarray(prepared.algorithm.output(nodes).values)
        return np.repeat(final[None], len(names), axis=0)
    return np.stack([np.asarray(prepared.algorithm.model_of(nodes[name]).values) for name in names])


def _scores(prepared: Prepared, names: Sequence[str], models: FloatArray) -> _Figures:
    """Figures of each model on the test examples, and on these in the proportions of its node's own classes."""
    objective, test = prepared.objective, prepared.dataset.test
    found = objective.evaluate(models, test)
    if prepared.dataset.classes is None:
        return {"test_loss": found.loss}
    shares = _class_shares(prepared, names)
    correct, tested = np.zeros(len(names)), np.zeros(len(names))
    for each in np.unique(test.targets):
        rows = np.flatnonzero(test.targets == each)
        accuracy = objective.evaluate(models, Split(test.features[rows], test.targets[rows])).accuracy
        correct += shares[:, each] * accuracy
        tested += shares[:, each]
    with np.errstate(invalid="ignore"):  # a node none of whose classes is tested has no such figure
        own = correct / tested
    return {"test_accuracy": found.accuracy, "own_classes_test_accuracy": own, "test_loss": found.loss}


def _class_shares(prepared: Prepared, names: Sequence[str]) -> Floats:
    """The share of each class in each node's examples, [width, classes]."""
    shards, targets = _shards(prepared), prepared.dataset.train.targets
    counts = [np.bincount(targets[shards[name]], minlength=prepared.dataset.classes or 0) for name in names]
    return np.asarray(np.stack(counts) / np.array([[len(shards[name])] for name in names]))


def _mean_and_worst(found: Sequence[_Figures]) -> dict[str, float | None]:
    """Mean of each figure over nodes, and that of the worst node; None where it is no number."""
    result: dict[str, float | None] = {}
    for name in found[0]:
        values = np.concatenate([part[name] for part in found])
        worst = values.max() if name == "test_loss" else values.min()
        for key, value in ((name, values.mean()), (f"worst_node_{name}", worst)):
            result[key] = float(value) if np.isfinite(value) else None
    return result
