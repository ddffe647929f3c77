"""Scores of runs that differ in their seed alone, in one figure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.experiment.observing import no_better

ACCURACY, LOSS = "accuracy", "loss"


@dataclass(frozen=True)
class Spread:
    """Mean and spread of a figure.

    Attributes
    ----------
    values : tuple of float
        One for each run; NaN and None are left out before.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds, with n - 1 below; None of fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"mean": self.mean, "standard_deviation": self.deviation, "runs": len(self.values)}


@dataclass(frozen=True)
class Scores:
    """Figures of the finished runs of a setting.

    Attributes
    ----------
    kind : str
        `ACCURACY` or `LOSS`.
    score : Spread
        On test examples: of the run's model, or of nodes' own where nobody has a common one.
    r2 : Spread
        Share of the variance that a regression's common model predicts; empty elsewhere.
    seconds, size : Spread
        Virtual seconds, and bytes sent.
    better : bool
        Whether a model of these runs is better than one that says the same of every row; true where that is not known.
    epsilon, delta : float or None
        Proved of each run; None where nothing is.
    statuses : tuple of str
        How runs ended.
    """

    kind: str
    score: Spread
    r2: Spread
    seconds: Spread
    size: Spread
    better: bool
    epsilon: float | None
    delta: float | None
    statuses: tuple[str, ...]

    @property
    def rank(self) -> float | None:
        """A number that is less for better scores; None where a run has no score, so that it is not compared."""
        if self.score.mean is None or len(self.score.values) < len(self.statuses):
            return None
        return -self.score.mean if self.kind == ACCURACY else self.score.mean

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            self.kind: self.score.as_dict(),
            **({"r2": self.r2.as_dict()} if self.r2.values else {}),
            "virtual_seconds": self.seconds.as_dict(),
            "bytes": self.size.as_dict(),
            "better_than_constant": self.better,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "statuses": list(self.statuses),
        }


def scores_of(summaries: Sequence[Mapping[str, Any]], *, shared: bool) -> Scores:
    """Return the scores of finished runs; ``shared`` where somebody has the run's model."""
    metrics = [summary["metrics"] for summary in summaries]
    common = shared or all(summary["nodes"] == 1 for summary in summaries)
    kind = ACCURACY if all("test_accuracy" in row for row in metrics) else LOSS
    name = f"mean_model_test_{kind}" if shared else f"test_{kind}"
    guarantees = [summary["privacy"]["guarantee"] for summary in summaries]
    return Scores(
        kind,
        _spread(row.get(name) for row in metrics),
        _spread(row.get("test_r2") if common else None for row in metrics),
        _spread(summary["virtual_seconds"] for summary in summaries),
        _spread(summary["bytes"] for summary in summaries),
        not metrics or not all(map(no_better, metrics)),
        _largest(guarantee.get("epsilon") for guarantee in guarantees),
        _largest(guarantee.get("delta") for guarantee in guarantees),
        tuple(summary["status"] for summary in summaries),
    )


def _spread(values: Any) -> Spread:
    return Spread(tuple(float(value) for value in values if value is not None))


def _largest(values: Any) -> float | None:
    """The weakest of several; None if one of them is."""
    found = list(values)
    return None if not found or None in found else max(found)
