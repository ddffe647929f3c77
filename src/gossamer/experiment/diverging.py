"""Runs that come to nothing good: no update, a model that ends worse than it began, gradients that were not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gossamer.errors import counted
from gossamer.experiment.prepared import Prepared

Figures = dict[str, Any]


def divergence(prepared: Prepared, rows: Sequence[Mapping[str, Any]], not_finite: int) -> Figures:
    """Figures of a run that is over, as a summary has them; empty where there is nothing to say.

    Parameters
    ----------
    prepared : Prepared
        What was run.
    rows : sequence of mapping
        Of metrics, the last of which is of the end. With a server its model counts, and else those of the nodes.
    not_finite : int
        Gradients that were not finite. Raw: with noise, or behind masks, they are for the private log alone.
    """
    spec, found = prepared.experiment, Figures()
    name = "mean_model_test_loss" if prepared.cast.servers else "test_loss"
    if rows[-1]["updates"]:
        first = rows[0][name] if rows[0]["updates"] == 0 else initial_loss(prepared)
        found = worse(first, rows[-1][name])
    if not_finite and not spec.private and not spec.terms.hiding:
        found["gradients_not_finite"] = not_finite
    return found


def initial_loss(prepared: Prepared) -> float:
    """Test loss of the model that all nodes start from."""
    return float(prepared.objective.evaluate(np.asarray(prepared.initial.values)[None], prepared.dataset.test).loss[0])


def worse(first: float | None, last: float | None) -> Figures:
    """Test loss at the start, where the ``last`` is above it, or no number."""
    finite = last is not None and math.isfinite(last)
    if first is None or (last is not None and finite and last <= first):
        return {}
    return {"ended_worse": {"initial_test_loss": first, "test_loss": last if finite else None}}


def in_words(found: Mapping[str, Any], private: bool) -> list[str]:
    """Figures of a summary on what went wrong, a line each; ``private`` if noise may be what made the model worse.

    Where the algorithm itself stopped because of it, it says more.
    """
    lines, remedy = [], "lower the learning rates"
    if (ended := found.get("ended_worse")) and "diverged" not in found.get("finished", {}).values():
        last = "no number" if ended["test_loss"] is None else f"{ended['test_loss']:.4g}"
        what = "the model is worse than before the run" if private else "the run diverged"
        noise = ", or take less noise (a larger budget, or fewer updates)" if private else ""
        noise = f", or scale the features (dataset.columns, dataset.scale){noise}"
        lines.append(
            f"{what}: the test loss began at {ended['initial_test_loss']:.4g}, and ended at {last}; {remedy}{noise}"
        )
    if found.get("updates") == 0 and "shortfall" not in found:
        lines.append(
            "the run made no update, so its model is the one that it began with; give its nodes and rounds more time"
        )
    if many := found.get("gradients_not_finite"):
        lines.append(
            f"{counted(many, 'gradient')} of too large numbers {'was' if many == 1 else 'were'} left out; {remedy}"
        )
    return lines
