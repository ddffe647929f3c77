"""The card of a run's model: what the spec declares, and what was found of classes and features."""

from __future__ import annotations

from gossamer.experiment.prepare import Prepared
from gossamer.trained.card import Card, PartCard
from gossamer.trained.declaring import declaration
from gossamer.trained.rebuilding import describe


def card_of(prepared: Prepared, *, owners: tuple[str, ...] | None = None, note: str | None = None) -> Card:
    """Describe the models of a run.

    Parameters
    ----------
    prepared : Prepared
        What is run.
    owners : tuple of str, optional
        The parties with data, where everybody in the run knows them.
    note : str, optional
        What the model's holder must know.
    """
    settings, dataset = prepared.experiment.objective, prepared.dataset
    name = settings.name or ("softmax" if dataset.classes else "squared")
    return Card(
        objective=describe(prepared.objective, None if settings.module else name, settings.module),
        parts=tuple(PartCard(name=part.name, shape=part.shape) for part in prepared.objective.parts),
        shape=tuple(dataset.train.features.shape[1:]),
        features=None,
        classes=dataset.labels,
        dataset=declaration(prepared.experiment.dataset),
        owners=owners,
        note=note,
    )
