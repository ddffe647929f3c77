"""Two numbers that make a model's probabilities right, by what parties released of their held-out examples.

Predictions of a model that was trained with noise, and by clipped gradients, are often all too low or too extreme. Its
log odds s become a s + b, with a and b fitted to the counts of scores by outcome that were released with noise [1].
That takes nothing further from anybody: it is post-processing of what was released.

A slope that noise decides does more harm than good. So a is 1 unless its interval says otherwise, and b is fitted
alone then; `docs/privacy/private-evaluation.md` has what either does to the loss.

References
----------
[1] Platt, "Probabilistic outputs for support vector machines", 1999; of noisy histograms Cormode and Markov, "Federated
    calibration and evaluation of binary classifiers", VLDB 2023, section 5.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import CallerError
from gossamer.objectives.noisy_figures import fitted, noisy_figures
from gossamer.objectives.objective import Objective
from gossamer.objectives.score_histogram import ScoreCounts
from gossamer.objectives.scores import of_second
from gossamer.trained.card import Card
from gossamer.vectors import pack, unpack

_TRIED = 16
"""Examples by which it is seen that scores follow the last layer."""


class Recalibration(NamedTuple):
    """Change of log odds s to ``slope`` s + ``intercept``."""

    intercept: float
    slope: float

    @classmethod
    def of(cls, counts: ScoreCounts, prevalence: float | None = None) -> Recalibration:
        """Fit it to counts of scores.

        Parameters
        ----------
        counts : ScoreCounts
            Counts of all parties together.
        prevalence : float, optional
            Share of the second label, as declared; see `noisy_figures.shown`.

        Raises
        ------
        CallerError
            If noise hides what it would be.
        """
        slope = noisy_figures(counts, prevalence=prevalence)["calibration_slope"]
        alone, beside, found = fitted(counts)
        if slope.low is None or slope.high is None or not np.isfinite(alone):
            raise CallerError(
                "expected counts of held-out examples that tell how right probabilities are, found too few examples, "
                "or too much noise for them; hold out more, raise evaluation.epsilon, or name more parties' folders"
            )
        if slope.value is None or found <= 0 or slope.low <= 1 <= slope.high:
            return cls(float(alone), 1.0)
        return cls(float(beside), float(found))

    def applied(self, card: Card, objective: Objective, vector: FloatArray) -> tuple[Card, FloatArray]:
        """Return the card and the vector [size] of the model with other log odds, by its last layer.

        Raises
        ------
        CallerError
            If the model has been recalibrated, or its scores are not those of a last layer with a bias.
        """
        if card.recalibration is not None:
            raise CallerError("the model has been recalibrated, and what was released is of the one before; name that")
        arrays = {name: np.array(part) for name, part in unpack(vector, card.arrays).items()}
        bias = next((part for part in reversed(card.arrays) if part.name.endswith("bias")), None)
        if bias is not None:
            for name in (bias.name, bias.name.removesuffix("bias") + "weight"):
                if name in arrays:
                    arrays[name] *= self.slope
            arrays[bias.name].reshape(-1)[-1] += self.intercept
        made = pack(arrays, card.arrays, vector.dtype)
        tried = np.random.default_rng(0).integers(0, 2, (_TRIED, *card.data.shape)).astype(np.float32)
        before, after = (of_second(np.asarray(objective.scores(one, tried), np.float64)) for one in (vector, made))
        if not np.allclose(after, self.slope * before + self.intercept, rtol=1e-3, atol=1e-3):
            raise CallerError(
                "expected a model whose scores are those of a last layer with a bias, found another; give it one "
                "(objective.intercept: true, or nn.Linear at the end)"
            )
        return card.model_copy(update={"recalibration": (self.intercept, self.slope)}), made
