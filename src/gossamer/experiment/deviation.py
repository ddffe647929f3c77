"""Deviation of federated units' models from the best one, and from each other.

Of the models w_1, ..., w_P of the units, with mean w_c:

- ``centroid_msd``: |w_c - w^o|^2,
- ``individual_msd``: the mean over p of |w_p - w^o|^2,
- ``disagreement``: the mean over p of |w_p - w_c|^2.

w^o minimises the mean over units of the mean over their agents of the mean loss over an agent's examples, with the L2
term. It is known in closed form for the squared losses, so only there are the first two.

References
----------
Rizk and Sayed, "A graph federated architecture with privacy preserving learning": w^o in (54) to (57), MSD in (58),
the disagreement in (30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.data.examples import Split
from gossamer.experiment.prepared import Prepared
from gossamer.objectives.glm import LinearModel
from gossamer.objectives.objective import Objective

FloatVector = npt.NDArray[np.float64]
Unit = Sequence[npt.NDArray[np.int64]]
"""The rows of the training examples that each agent of a unit holds."""


def units_of(prepared: Prepared) -> list[Unit]:
    """Rows of the training examples that each agent of each unit holds; empty where the algorithm has no units."""
    shards = dict(zip(prepared.names, prepared.shards, strict=True))
    return [[shards[agent] for agent in agents] for agents in prepared.cast.scopes.values()]


def deviations(models: npt.NDArray[np.floating[Any]], optimum: FloatVector | None) -> dict[str, float]:
    """The measures of the units' models, as they are (not in decibels).

    Parameters
    ----------
    models : ndarray [units, size]
        One a unit.
    optimum : ndarray [size], optional
        w^o; without it only the disagreement is measured.
    """
    exact = models.astype(np.float64)
    centroid = exact.mean(axis=0)
    disagreement = float(np.square(exact - centroid).sum(axis=1).mean())
    if optimum is None:
        return {"disagreement": disagreement}
    return {
        "centroid_msd": float(np.square(centroid - optimum).sum()),
        "individual_msd": float(np.square(exact - optimum).sum(axis=1).mean()),
        "disagreement": disagreement,
    }


def best_model(objective: Objective, data: Split, units: Sequence[Unit]) -> FloatVector | None:
    """The minimiser w^o = (R + l2 I)^-1 r of the units' mean loss; of the loss that is not halved, with l2/2.

    R and r are the means over units, agents and examples of u u' and u d, where u are the features, followed by a 1
    where the model has an intercept (which the L2 term counts like any weight, as `LinearModel` has it).

    Parameters
    ----------
    objective : Objective
        What is minimised.
    data : Split
        The training examples.
    units : sequence of Unit
        Which of them each agent of each unit holds.

    Returns
    -------
    ndarray [size] of float64, or None
        None where there is no closed form (a loss that is not squared, a network, sparse features), and where more than
        one model is best.
    """
    if not isinstance(objective, LinearModel) or objective.squared_error is None:
        return None
    if data.sparse or not units:
        return None
    moments, products = np.zeros((objective.size, objective.size)), np.zeros(objective.size)
    for unit in units:
        for rows in unit:
            features = np.asarray(data.features[rows], np.float64).reshape(len(rows), -1)
            u = np.column_stack([features, np.ones(len(rows))]) if objective.intercept else features
            share = 1 / (len(units) * len(unit) * len(rows))
            moments += share * (u.T @ u)
            products += share * (u.T @ data.targets[rows].astype(np.float64))
    moments[np.diag_indices(objective.size)] += objective.l2 * objective.squared_error / 2
    solution, _, rank, _ = np.linalg.lstsq(moments, products)
    return np.asarray(solution, np.float64) if rank == objective.size else None
