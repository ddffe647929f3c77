"""From scores to predictions: which class, how likely each one is, or a real number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.trained.card import Card

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions for rows, in their order.

    Attributes
    ----------
    values : ndarray [n] of str or float64
        The name of the likeliest class, or the real number, in the target's own unit.
    classes : tuple of str, optional
        What the classes are called; None for a regression.
    probabilities : ndarray [n, classes] of float64, optional
        Of each class; None for a regression, and for a hinge loss, which knows none.
    scores : ndarray [n, outputs] of float64
        What the predictions follow from; of a regression in the unit that the model learnt. Two classes of a logistic
        or hinge loss share one score, whose sign decides.
    clipped : mapping of str to int
        How many rows had a value outside of the declared range of a column, and were taken for its end.
    """

    values: npt.NDArray[Any]
    classes: tuple[str, ...] | None
    probabilities: Floats | None
    scores: Floats
    clipped: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values.tolist())

    def __getitem__(self, row: Any) -> Any:
        return self.values[row]

    def rows(self) -> list[dict[str, Any]]:
        """Plain data, one mapping a row, counted from 1."""
        found: list[dict[str, Any]] = [
            {"row": number, "prediction": value} for number, value in enumerate(self.values.tolist(), 1)
        ]
        if self.classes is not None and self.probabilities is not None:
            for entry, likely in zip(found, self.probabilities.tolist()):
                entry["probabilities"] = dict(zip(self.classes, likely))
        elif self.classes is not None:
            for entry, scores in zip(found, self.scores.tolist()):
                entry["scores"] = scores
        return found


def predictions(card: Card, scores: Floats, clipped: Mapping[str, int] | None = None) -> Predictions:
    """Predict from ``scores`` [n, outputs] of the model that ``card`` describes."""
    if card.classes is None:
        return Predictions(card.data.own(scores[:, 0]), None, None, scores, clipped or {})
    single = scores.shape[1] == 1
    # As in an evaluation: of two classes that share a score the second needs more than zero.
    numbers = (scores[:, 0] > 0).astype(np.int64) if single else scores.argmax(axis=1)
    values = np.array(card.classes)[numbers]
    likely = None if card.objective.loss == "hinge" else _probabilities(scores)
    return Predictions(values, card.classes, likely, scores, clipped or {})


def _probabilities(scores: Floats) -> Floats:
    """Softmax of scores; one alone is that of the second of two classes, beside a zero."""
    if scores.shape[1] == 1:
        scores = np.concatenate([np.zeros_like(scores), scores], axis=1)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = weights / weights.sum(axis=1, keepdims=True)
    return found
