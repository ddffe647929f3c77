"""A model that a run left behind, to predict with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.data.split import Features
from gossamer.objectives.objective import Objective
from gossamer.parameters import unpack
from gossamer.trained.card import FILE, Card
from gossamer.trained.files import read_model
from gossamer.trained.predictions import Predictions, predictions
from gossamer.trained.rebuilding import rebuilt


class Model(Mapping[str, FloatArray]):
    """A trained model: its arrays by name, and what it says of rows.

    Parameters
    ----------
    card : Card
        What it is, and how rows are read.
    objective : Objective
        The function that the parameters are of.
    vector : ndarray [size]
        The parameters.

    Examples
    --------
    >>> import gossamer as gs
    >>> result = gs.run(gs.Experiment(privacy="none", stop={"updates": 40}))
    >>> result.model["weight"].shape
    (10, 64)
    >>> result.model.classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """

    def __init__(self, card: Card, objective: Objective, vector: FloatArray) -> None:
        self.card = card
        self.objective = objective
        self.vector = np.asarray(vector)
        self._arrays = unpack(self.vector, card.arrays)

    def __getitem__(self, name: str) -> FloatArray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __repr__(self) -> str:
        told = self.card.objective
        what = told.module or told.name or "module from memory"
        return f"<Model {what}, {len(self.vector):,} parameters, {self._predicts}>"

    @property
    def _predicts(self) -> str:
        return "a real number" if self.classes is None else f"one of {len(self.classes)} classes"

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, in the order of their numbers; None for a regression."""
        return self.card.classes

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the features, in order, where the data say so."""
        return self.card.features

    def predict_features(self, features: Features) -> Predictions:
        """Predict from features that are read and scaled already, as they are in `Split`: [n, *shape] of float32.

        Raises
        ------
        GossamerError
            If they do not fit the model.
        """
        return predictions(self.card, self.objective.scores(self.vector, features))


def load_model(place: str | Path, module: Any = None) -> Model:
    """Read a model that a run left behind.

    Parameters
    ----------
    place : path
        The results folder of a run, a party's state folder, or a safetensors file of a model that Gossamer wrote.
    module : torch.nn.Module, optional
        The network, where the run had it from memory: with the buffers that it had then. Its parameters are replaced.

    Raises
    ------
    DataError
        If there is no model, it is damaged, or a newer Gossamer wrote it.
    ModelError
        If its network cannot be built.
    """
    path = Path(place)
    card, vector = read_model(path)
    where = path / FILE if path.is_dir() else path
    return Model(card, rebuilt(card, where, module), vector)
