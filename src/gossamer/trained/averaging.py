"""The mean of models that parties of one run have saved, which all of them can compute alike.

Exchanges of gossip keep the sum of all nodes' models, so their plain mean is what exchanges without an end would lead
every node to. Whoever averages the same files with the same weights gets the same bytes: in whatever order the files
are named, they are added up in one order, in double precision.

The mean of models that a guarantee covers is post-processing, and covered by the same guarantee.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import CallerError, DataError, counted, shortened
from gossamer.trained.card import Card, read_model

_OWN = {"gossamer", "owners"}
"""Keys of a card that may differ between parties of a run."""


@dataclass(frozen=True)
class Saved:
    """A saved model, and what is known of who saved it.

    Attributes
    ----------
    place : Path
        Folder or file of the model.
    card : Card
        Card that describes it.
    vector : ndarray [size]
        Numbers of the model.
    run, node : str, optional
        Names as in the ``summary.json`` of its folder.
    """

    place: Path
    card: Card
    vector: FloatArray
    run: str | None
    node: str | None

    @classmethod
    def read(cls, place: Path) -> Saved:
        """Read a folder or a file.

        Raises
        ------
        DataError
            If there is no model, or it is one that was made of raw data.
        """
        card, vector = read_model(place)
        if card.note is not None:
            raise DataError(f"{place}: expected a model that a run released, found a personal one; {card.note}")
        summary = _summary(place)
        return cls(place, card, vector, summary.get("run"), summary.get("node"))

    @property
    def digest(self) -> str:
        """SHA-256 of its numbers."""
        return hashlib.sha256(np.ascontiguousarray(self.vector).tobytes()).hexdigest()


def average(models: Sequence[Saved], weights: Sequence[float] | None = None) -> tuple[Card, FloatArray]:
    """Mean of models of one run.

    Parameters
    ----------
    models : sequence of Saved
        Two or more.
    weights : sequence of float, optional
        One a model, of any sum; by default all count the same.

    Returns
    -------
    tuple of Card and ndarray [size]
        The same for the same models and weights, in whatever order.

    Raises
    ------
    CallerError
        If they are not models of different parties of one run, or the weights are none.
    """
    if len(models) < 2:
        raise CallerError(f"expected two models or more, found {len(models)}; name those of the other parties as well")
    shares = _shares(len(models), weights)
    _check(models)
    ordered = sorted(zip(models, shares, strict=True), key=lambda item: (item[0].digest, item[1]))
    total = np.zeros(len(ordered[0][0].vector), np.float64)
    for model, share in ordered:
        total += share * model.vector.astype(np.float64)
    first = ordered[0][0]
    return first.card, total.astype(first.vector.dtype)


def _shares(models: int, weights: Sequence[float] | None) -> list[float]:
    if weights is None:
        return [1 / models] * models
    if len(weights) != models:
        raise CallerError(f"expected {counted(models, 'weight')}, one a model, found {len(weights)}; give as many")
    total = math.fsum(weights)
    if not (all(0 <= weight < math.inf for weight in weights) and 0 < total < math.inf):
        raise CallerError(f"expected weights of 0 or more, and one above it, found {list(weights)}; correct them")
    return [weight / total for weight in weights]


def _check(models: Sequence[Saved]) -> None:
    """Raise unless models are of different parties of one run, as far as can be known."""
    first = models[0]
    for other in models[1:]:
        for key, one in _described(first).items():
            if one != (found := _described(other)[key]):
                raise CallerError(
                    f"{other.place}: its {key} is not that of {first.place} (expected {shortened(one)}, found "
                    f"{shortened(found)}); average models of one run"
                )
        if None not in (first.run, other.run) and first.run != other.run:
            raise CallerError(f"{other.place}: of run {other.run}, expected {first.run} as {first.place}; leave it out")
    nodes, places = [model.node for model in models if model.node], [model.place.resolve() for model in models]
    for named, times in Counter([*nodes, *map(str, places)]).items():
        if times > 1:
            raise CallerError(f"{named} is named {times} times; name each party's model once, and give it a weight")


def _described(model: Saved) -> dict[str, Any]:
    return model.card.model_dump(mode="json", exclude=_OWN)


def _summary(place: Path) -> dict[str, Any]:
    """Summary beside a model, as far as there is one that can be read."""
    try:
        found = json.loads((place / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
