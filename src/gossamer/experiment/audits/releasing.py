"""Releases of known batches, as an observer of a data side sees them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.data.examples import Split
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import Mechanism
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Gradient, Query
from gossamer.sides.home import Simulated
from gossamer.sides.plan import Samples
from gossamer.sides.pool import open_pool
from gossamer.sides.samples import Shard
from gossamer.vectors import Model


def released_gradients(
    objective: Objective,
    data: Split,
    batches: Sequence[npt.NDArray[np.int64]],
    model: Model,
    mechanism: Mechanism,
    seed: int,
) -> FloatArray:
    """The noisy mean gradient of each batch at ``model``, without the regulariser's part, as observers know it.

    Each batch is the whole shard of a data side of its own and is sampled with probability 1, so the release is the
    one that a run makes of such a batch. Observers know the model, so they can take the regulariser's gradient off.

    Parameters
    ----------
    objective : Objective
        Objective that is minimised.
    data : Split
        The training examples.
    batches : sequence of index arrays
        Rows of each batch, none of them empty.
    model : Model
        Model at which the gradients are taken.
    mechanism : Mechanism
        Clip and noise.
    seed : int
        Seed of the noise.

    Returns
    -------
    ndarray [batches, size]
    """
    names = [f"batch-{number}" for number in range(len(batches))]
    shards = {name: Shard(rows) for name, rows in zip(names, batches)}
    sides = open_pool(dict.fromkeys(names, Samples({}, enforced=False)), shards, objective, data, Simulated(seed))
    tickets = [
        sides.admit(name, Gradient(0, model, Query(Poisson(1.0), mechanism, float(len(rows)))))
        for name, rows in zip(names, batches)
    ]
    released = np.stack([np.asarray(answer.released.values) for answer in sides.compute(tickets)])
    return released - objective.l2 * np.asarray(model.values)
