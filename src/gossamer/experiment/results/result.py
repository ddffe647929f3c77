"""The result of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.errors import counted
from gossamer.experiment.preparation.secrets import NoiseSecret
from gossamer.experiment.results.observing import Row
from gossamer.notebooks import Rows, card
from gossamer.privacy.guarantees import Guarantee
from gossamer.trained.model import Model, Predictions


@dataclass(frozen=True)
class Result:
    """Figures, guarantee and model of a run.

    Attributes
    ----------
    summary : dict
        Content of ``summary.json``.
    guarantee : Guarantee
        Guarantee of what leaked.
    metrics : list of dict
        A row an evaluation, as in ``metrics.jsonl``.
    model : Model
        The run's model: its arrays by name, as in ``model.safetensors``, and what it predicts.
    timing : dict
        Wall seconds, as in ``timing.json``.
    folder : Path or None
        Folder that the results were written to.
    guarantees : mapping of str to Guarantee
        Guarantees by observer, where they differ.
    secret : NoiseSecret or None
        Secret that noise and samples came from, if nobody may guess them: ``run(experiment, secret=result.secret)`` is
        the same run again. It is not shown when the result is printed.
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

    def frame(self) -> dict[str, list[Any]]:
        """Return the metrics by column, one value for each evaluation, as ``pandas.DataFrame`` and others take them."""
        names = dict.fromkeys(name for row in self.metrics for name in row)
        return {name: [row.get(name) for row in self.metrics] for name in names}

    def plot(self, *names: str, across: str = "virtual_seconds") -> Any:
        """Draw figures of the run over time.

        Parameters
        ----------
        names : str
            Columns of `frame`; by default accuracies and losses.
        across : str
            Axis that they are drawn over: ``virtual_seconds``, ``updates``, ``messages`` or ``bytes``.

        Returns
        -------
        altair.VConcatChart
            Shown by notebooks, and saved by its method ``save``.

        Raises
        ------
        DataError
            If Altair is not installed, which the extra ``report`` installs, or there is no such figure.
        """
        from gossamer.report.curves import chart

        return chart(self.frame(), names, across)

    def _repr_html_(self) -> str:
        """The result as notebooks show it."""
        summary, last = self.summary, self.metrics[-1] if self.metrics else {}
        rows: Rows = {
            "ended": f"{summary['status']}, after {summary['virtual_seconds']:g} virtual seconds",
            "made": f"{summary['updates']:,} updates; {summary['messages']:,} messages, {summary['bytes']:,} bytes",
            **{words: f"{last[name]:.4g} (private)" for name, words in _SHOWN.items() if last.get(name) is not None},
            **({} if self.folder is None else {"results": str(self.folder)}),
        }
        others = [one._repr_html_() for one in self.guarantees.values() if one != self.guarantee]
        title = f"{summary['algorithm']}, {counted(summary['nodes'], 'node')}"
        return card(title, rows, [self.guarantee._repr_html_(), *others])


_SHOWN = {"mean_model_test_accuracy": "test accuracy", "mean_model_test_loss": "test loss"}
"""Figures of the last evaluation that notebooks show."""
