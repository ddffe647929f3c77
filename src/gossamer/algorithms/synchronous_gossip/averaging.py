"""One node's part of a gossip step: its row of the mixing matrix, and the weight of the accelerated recursion."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import metropolis, spectral_gap
from gossamer.vectors import Model, shifted


@dataclass(frozen=True)
class Row:
    """A node's row of the mixing matrix W.

    Attributes
    ----------
    weights : mapping of str to float
        W_ij of each neighbour; what is left of 1 is the node's own.
    momentum : float
        gamma of the accelerated recursion; 1 for plain averaging.
    """

    weights: Mapping[str, float]
    momentum: float = 1.0

    def averaged(self, own: Model, heard: Mapping[str, Model]) -> Model:
        """Return (W X)_i: the weight of a neighbour that is not ``heard`` is the node's ``own``."""
        mixed = own
        for name, weight in self.weights.items():
            if name in heard:
                mixed = shifted(mixed, own, heard[name], weight)
        return mixed

    def accelerated(self, mixed: Model, before: Model | None) -> Model:
        """Return gamma (W X)_i + (1 - gamma) x_i of the step ``before``, if there is one in this round."""
        if before is None or self.momentum == 1.0:
            return mixed
        return shifted(before, before, mixed, self.momentum)


def momentum(gap: float) -> float:
    """Weight of the accelerated recursion, 2 (1 - sqrt(gap (1 - gap/4))) / (1 - gap/2)^2, for a spectral ``gap``.

    References
    ----------
    Cyffers, Even, Bellet and Massoulie, "Muffliato", NeurIPS 2022, Algorithm 1; it is the second-order recursion of
    Muthukrishnan, Ghosh and Schultz (1998), 2 / (1 + sqrt(1 - r^2)), for r = 1 - gap/2.
    """
    return 2.0 / (1.0 + math.sqrt(gap * (1.0 - gap / 4.0)))


def rows(graph: Graph, names: tuple[str, ...], *, accelerated: bool) -> dict[str, Row]:
    """Return the rows of the graph's Metropolis weights, by name."""
    matrix = metropolis(graph)
    gamma = momentum(spectral_gap(matrix)) if accelerated else 1.0
    found = {}
    for i, name in enumerate(names):
        there = zip(matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]], matrix.data[matrix.indptr[i] :])
        found[name] = Row({names[j]: float(weight) for j, weight in sorted(there) if j != i and weight > 0}, gamma)
    return found
