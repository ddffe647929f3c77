"""Mixing matrices: how models are averaged over a graph, and how fast that brings them together.

With models as the columns of W, one averaging step is ``W <- W A`` with a doubly stochastic A, so the mean
model stays where it is. All matrices here are symmetric, real and sparse, [nodes, nodes].
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph, linalg

from gossamer.arrays import FloatArray
from gossamer.errors import TopologyError
from gossamer.topology.graphs import Graph

Matrix: TypeAlias = FloatArray | sp.csr_array

_DENSE = 500
"""Up to so many nodes all eigenvalues are computed; beyond, only the extreme ones."""

_RESTARTS = 60
"""Of Lanczos' iteration, before a factorisation is tried instead."""

_ACCURACY = 1e-6
"""Of Lanczos' residuals; the error of the eigenvalue is of second order in it."""

_SHIFT = 1e-13
"""Which keeps a matrix with eigenvalue 0 regular; it is far below the gaps of graphs that fit in memory."""

_TOLERANCE = 1e-9
"""How far a row or column sum may be from 1, and an entry from its mirror image."""


def metropolis(graph: Graph) -> sp.csr_array:
    """Metropolis-Hastings weights: 1 / (1 + max(degree_i, degree_j)) per edge, the rest on the diagonal.

    Doubly stochastic on any graph and known to each node from its neighbours' degrees alone.

    References
    ----------
    Xiao, Boyd and Kim, "Distributed average consensus with least-mean-square deviation", Journal of
    Parallel and Distributed Computing 67, 2007.
    """
    return _symmetric(graph, 1.0 / (1.0 + graph.degrees[graph.edges].max(axis=1)))


def pairwise_expectation(graph: Graph, rates: npt.ArrayLike | None = None) -> sp.csr_array:
    """E[A] of a random pairwise exchange, which is E[A'A] too.

    A node is drawn with probability proportional to its rate; it picks one of its neighbours uniformly, and
    both take the average of their models. Such an A is a symmetric projection, so A'A = A.

    Parameters
    ----------
    graph : Graph
        Connected.
    rates : array-like [nodes], optional
        Rate at which each node starts an exchange, relative to the others; all equal if left out. Receivers of a
        bipartite split have rate 0.

    Raises
    ------
    TopologyError
        Rates are not one per node, not finite and >= 0, or all zero.
    """
    shares = _shares(graph, rates)
    per_neighbour = shares / np.maximum(graph.degrees, 1)
    # The pair (i, j) is drawn with i or j starting; averaging puts half of each model on the other.
    return _symmetric(graph, per_neighbour[graph.edges].sum(axis=1) / 2)


def _shares(graph: Graph, rates: npt.ArrayLike | None) -> FloatArray:
    given = np.ones(graph.nodes) if rates is None else np.asarray(rates, dtype=np.float64)
    if given.shape != (graph.nodes,) or not np.isfinite(given).all() or (given < 0).any() or not given.any():
        raise TopologyError(
            f"rates are one finite number >= 0 for each of {graph.nodes} nodes, not all zero, found {given}"
        )
    shares: FloatArray = given / given.sum()
    return shares


def _symmetric(graph: Graph, weights: FloatArray) -> sp.csr_array:
    """The matrix with ``weights`` [edges] off the diagonal and rows that sum to 1."""
    i, j = graph.edges.T
    off = sp.coo_array((weights, (i, j)), shape=(graph.nodes, graph.nodes)).tocsr()
    off = off + off.T
    return sp.csr_array(off + sp.diags_array(1.0 - off.sum(axis=1)))


def check_doubly_stochastic(matrix: Matrix) -> None:
    """Raise unless every entry is >= 0 and every row and column sums to 1 (within 1e-9).

    Raises
    ------
    TopologyError
        The matrix is not square, not finite, has a negative entry, or a row or column has another sum.
    """
    sparse = _square(matrix)
    if not np.isfinite(sparse.data).all() or (sparse.data < -_TOLERANCE).any():
        raise TopologyError("a mixing matrix has finite entries >= 0, found others")
    for axis, kind in ((1, "row"), (0, "column")):
        sums = np.asarray(sparse.sum(axis=axis))
        for place in np.flatnonzero(np.abs(sums - 1) > _TOLERANCE):
            raise TopologyError(
                f"a mixing matrix is doubly stochastic, found {kind} {place} with sum {sums[place]:.9g}"
            )


def check_connected(matrix: Matrix) -> None:
    """Raise unless the matrix's nonzero entries connect all nodes, so that averaging reaches consensus.

    Raises
    ------
    TopologyError
        The matrix is not square, or its nodes fall into groups that never mix.
    """
    groups = _groups(_square(matrix))
    if groups > 1:
        raise TopologyError(f"a mixing matrix connects all its nodes, found {groups} groups that never mix")


def rho(matrix: Matrix) -> float:
    """max(|lambda_2|, |lambda_K|), the second largest absolute eigenvalue, in [0, 1].

    Of E[A'A] it is the rho of paper 1's assumption 2: the squared distance of the models from their mean
    shrinks by that factor, in expectation, per exchange. 0 for a single node.

    Parameters
    ----------
    matrix : csr_array or ndarray [nodes, nodes]
        Symmetric and doubly stochastic.

    Raises
    ------
    TopologyError
        The matrix is not symmetric or not doubly stochastic.
    """
    check_doubly_stochastic(matrix)
    sparse = _square(matrix)
    if abs(sparse - sparse.T).max() > _TOLERANCE:
        raise TopologyError("eigenvalues are computed of symmetric mixing matrices, found one that is not")
    nodes = sparse.shape[0]
    if nodes <= _DENSE:
        extremes = np.linalg.eigvalsh(sparse.toarray())[:-1]
        return float(np.abs(extremes).max(initial=0.0))
    return _rho_of_large(sparse)


def spectral_gap(matrix: Matrix) -> float:
    """1 - rho(matrix): 1 when one step reaches the mean, 0 when models never come together."""
    return 1.0 - rho(matrix)


def _rho_of_large(matrix: sp.csr_array) -> float:
    if _groups(matrix) > 1:
        return 1.0
    identity = sp.eye_array(matrix.shape[0])
    # By Gershgorin's theorem no eigenvalue is below 1 - spread.
    spread = 2.0 * (1.0 - float(matrix.diagonal().min()))
    gap = _least_eigenvalue(identity - matrix, spread, but=1)  # 0, that of a vector of ones
    if 2.0 - spread < gap:
        gap = min(gap, _least_eigenvalue(identity + matrix, 2.0))
    return 1.0 - gap


def _least_eigenvalue(matrix: sp.sparray, spread: float, but: int = 0) -> float:
    """The least eigenvalue of a matrix whose eigenvalues lie in [0, spread], but for so many that are smaller."""
    identity = sp.eye_array(matrix.shape[0])
    # A fixed start, since ARPACK's own is random and would change the last digits from run to run.
    start = np.random.default_rng(0).standard_normal(matrix.shape[0])
    how = {"k": 1 + but, "v0": start, "ncv": 40, "tol": _ACCURACY, "return_eigenvectors": False}
    try:
        # Divided by the spread, because matrices of pairwise exchanges among many nodes are close to the identity.
        found = linalg.eigsh(identity - matrix / spread, which="LA", maxiter=_RESTARTS, **how)
        if (least := 1.0 - float(found.min())) > 10.0 * _ACCURACY:
            return spread * least
    except linalg.ArpackNoConvergence:
        pass
    # A tiny gap means narrow cuts, and narrow cuts mean that a sparse factorisation fills in little: rings,
    # lines and grids, on which Lanczos' iteration stalls, are cheap for inverse iteration.
    factors = linalg.splu((matrix + _SHIFT * identity).tocsc(), permc_spec="MMD_AT_PLUS_A")
    inverse = linalg.LinearOperator(matrix.shape, matvec=factors.solve, dtype=np.float64)
    return float(linalg.eigsh(matrix, sigma=-_SHIFT, OPinv=inverse, **how).max())


def _groups(matrix: sp.csr_array) -> int:
    """Count the groups of nodes that do not all reach each other through nonzero entries."""
    nonzero = matrix.copy()
    nonzero.eliminate_zeros()
    return int(csgraph.connected_components(nonzero, directed=True, connection="strong")[0])


def _square(matrix: Matrix) -> sp.csr_array:
    sparse = sp.csr_array(matrix)
    if sparse.shape[0] != sparse.shape[1]:
        raise TopologyError(f"a mixing matrix is square, found shape {sparse.shape}")
    return sparse
