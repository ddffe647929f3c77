"""The card of a run's model: what the spec declares, and what was found of classes and features."""

from __future__ import annotations

from gossamer.data.declaration import Declaration
from gossamer.data.settings import Layout
from gossamer.experiment.prepared import Prepared
from gossamer.trained.card import Card, PartCard
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
    module = None if prepared.code else settings.module  # of one that was given from memory there is no name
    return Card(
        objective=describe(prepared.objective, None if settings.module else name, module),
        parts=tuple(PartCard(name=part.name, shape=part.shape) for part in prepared.objective.parts),
        data=dataset.declaration or _declared(prepared),
        owners=owners or prepared.owners,
        note=note,
    )


def _declared(prepared: Prepared) -> Declaration:
    """The declaration of data that came without one."""
    dataset = prepared.dataset
    shape: tuple[int, ...] = tuple(dataset.train.features.shape[1:])
    layout: Layout = "sparse" if dataset.train.sparse else "dense"
    classes = None if dataset.labels is None else tuple((label,) for label in dataset.labels)
    return Declaration.of(prepared.experiment.dataset, None, shape, layout, classes)
