"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gossamer.experiment.noise_secret import NoiseSecret
from gossamer.experiment.observing import Row
from gossamer.privacy.guarantees import Guarantee
from gossamer.trained.model import Model
from gossamer.trained.predictions import Predictions

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class Result:
    """Figures, guarantee and model of a run.

    Attributes
    ----------
    summary : dict
        As in ``summary.json``.
    guarantee : Guarantee
        What is proved about what leaked.
    metrics : list of dict
        A row an evaluation, as in ``metrics.jsonl``.
    model : Model
        The run's model: its arrays by name, as in ``model.safetensors``, and what it predicts.
    timing : dict
        Wall seconds, as in ``timing.json``.
    folder : Path or None
        Where the results were written.
    guarantees : mapping of str to Guarantee
        By observer, where they differ.
    secret : NoiseSecret or None
        What noise and samples came from, if nobody may guess them: ``run(experiment, secret=result.secret)`` is the
        same run again. It is not shown when the result is printed.
    """

    summary: dict[str, Any]
    guarantee: Guarantee
    metrics: list[Row]
    model: Model
    timing: dict[str, Any]
    folder: Path | None = None
    guarantees: Mapping[str, Guarantee] = field(default_factory=dict)
    secret: NoiseSecret | None = field(default=None, repr=False)

    def predict(self, rows: Any) -> Predictions:
        """Predict for raw rows, with the run's model; see `Model.predict`."""
        return self.model.predict(rows)
