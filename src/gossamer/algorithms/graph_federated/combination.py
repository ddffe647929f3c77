"""The combination matrix a_pm of graph federated learning: checked before anything runs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gossamer.algorithms.graph_federated.settings import Settings
from gossamer.errors import TopologyError
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import check_connected, check_doubly_stochastic, metropolis

FloatArray = npt.NDArray[np.float64]


def combination(settings: Settings, graph: Graph) -> FloatArray:
    """A, [units, units]: symmetric, doubly stochastic, connected, with a_pp > 0.

    Parameters
    ----------
    settings : Settings
        Names a rule or gives the matrix.
    graph : Graph
        Of the servers, for a rule.

    Raises
    ------
    TopologyError
        If the matrix is not such a matrix; the message names the rows.

    References
    ----------
    "Privatized graph federated learning", Assumption 1.
    """
    rows = settings.combination
    matrix: FloatArray = metropolis(graph).toarray() if isinstance(rows, str) else _given(rows, settings.units)
    different = np.argwhere(np.abs(matrix - matrix.T) > 1e-9)
    if different.size:
        p, m = different[0]
        raise TopologyError(
            f"algorithm.combination must be symmetric, found {matrix[p, m]:g} in row {p}, column {m} and "
            f"{matrix[m, p]:g} in row {m}, column {p}"
        )
    try:
        check_doubly_stochastic(matrix)
        check_connected(matrix)
    except TopologyError as error:
        raise TopologyError(f"algorithm.combination: {error}") from None
    without = np.flatnonzero(np.diagonal(matrix) <= 0)
    if without.size:
        raise TopologyError(
            f"algorithm.combination must give each server's own model a weight above 0, as its noise is taken back "
            f"there; found {matrix[without[0], without[0]]:g} for server {without[0]}"
        )
    return matrix


def _given(rows: tuple[tuple[float, ...], ...], units: int) -> FloatArray:
    lengths = {len(row) for row in rows}
    if len(rows) != units or lengths != {units}:
        raise TopologyError(
            f"algorithm.combination must be a matrix of {units} rows of {units} weights, found {len(rows)} rows of "
            f"{' or '.join(map(str, sorted(lengths))) or 'no'} weights"
        )
    return np.array(rows, np.float64)
