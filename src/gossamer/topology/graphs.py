"""An undirected graph over nodes 0..n-1, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.errors import TopologyError

Names = Sequence[str] | None

_LISTED = 5
"""How many components or nodes an error message lists before it gives a number instead."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops. Two graphs with the same nodes and edges are equal.

    Parameters
    ----------
    nodes : int
        How many nodes there are, at least 1.
    edges : array-like [m, 2] of int
        Pairs of nodes, in any order, repetitions allowed.

    Attributes
    ----------
    edges : ndarray [edges, 2] of int64
        Each edge once as (i, j) with i < j, in lexicographic order. Read-only.

    Raises
    ------
    TopologyError
        There is no node, an edge joins a node to itself, or an edge names a node that does not exist.
    """

    nodes: int
    edges: IndexArray

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise TopologyError(f"a graph needs at least 1 node, found {self.nodes}")
        edges = np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)
        _check_edges(self.nodes, edges)
        low, high = edges.min(axis=1), edges.max(axis=1)
        unique = np.stack(np.divmod(np.unique(low * self.nodes + high), self.nodes), axis=1)
        unique.setflags(write=False)
        object.__setattr__(self, "edges", unique)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self.nodes == other.nodes and np.array_equal(self.edges, other.edges)

    def __hash__(self) -> int:
        return hash((self.nodes, self.edges.tobytes()))

    @cached_property
    def adjacency(self) -> sp.csr_array:
        """Symmetric 0/1 matrix, [nodes, nodes], with sorted column indices."""
        tails, heads = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        ones = np.ones(len(tails), dtype=np.int8)
        matrix = sp.csr_array((ones, (tails, heads)), shape=(self.nodes, self.nodes))
        matrix.sort_indices()
        return matrix

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The nodes joined to ``node``, in ascending order."""
        start, stop = self.adjacency.indptr[node : node + 2]
        return tuple(self.adjacency.indices[start:stop].tolist())

    @cached_property
    def degrees(self) -> IndexArray:
        """Numbers of neighbours of each node, [nodes]."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes).astype(np.int64)

    @cached_property
    def components(self) -> IndexArray:
        """The number, from 0, of the connected component that each node is in, [nodes]."""
        labels: IndexArray = csgraph.connected_components(self.adjacency, directed=False)[1].astype(np.int64)
        return labels

    @property
    def connected(self) -> bool:
        """Whether there is a path between any two nodes."""
        return not self.components.any()


def _check_edges(nodes: int, edges: IndexArray) -> None:
    unknown = edges[((edges < 0) | (edges >= nodes)).any(axis=1)]
    if len(unknown):
        raise TopologyError(f"edges join nodes 0 to {nodes - 1}, found {tuple(unknown[0].tolist())}")
    loops = edges[edges[:, 0] == edges[:, 1]]
    if len(loops):
        raise TopologyError(f"an edge joins two different nodes, found {tuple(loops[0].tolist())}")


def label(node: int, names: Names) -> str:
    """A node's name where it has one, else its number, for messages."""
    return str(node) if names is None else names[node]


def require_connected(graph: Graph, names: Names = None, *, advice: str = "add edges between them") -> None:
    """Raise unless every node can reach every other.

    Parameters
    ----------
    graph : Graph
        Any graph.
    names : sequence of ``nodes`` str, optional
        Node names for the message.
    advice : str
        What the message tells the caller to do.

    Raises
    ------
    TopologyError
        The graph is in pieces; the message gives their sizes and a node of each, largest first.
    """
    if graph.connected:
        return
    components, members, sizes = np.unique(graph.components, return_index=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")[:_LISTED]
    listed = ", ".join(f"{sizes[c]} with node {label(int(members[c]), names)}" for c in order)
    more = f", and {len(components) - _LISTED} more" if len(components) > _LISTED else ""
    raise TopologyError(
        f"the graph must be connected, found {len(components)} components, of sizes {listed}{more}: {advice}"
    )
