"""Graphs over nodes 0..n-1, and senders and receivers among their nodes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.errors import TopologyError, listed

Names = Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops. Two graphs with the same nodes and edges are equal.

    Parameters
    ----------
    nodes : int
        Number of nodes, at least 1.
    edges : array-like [m, 2] of int
        Pairs of nodes, in any order, repetitions allowed.
    arcs : tuple of ndarray [arcs, 2]
        Sender and receiver of each arc, of each step in turn, where edges are not used both ways all the time. The
        edges are then all pairs that are in an arc.

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
    arcs: tuple[IndexArray, ...] = ()

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
        alike = self.nodes == other.nodes and np.array_equal(self.edges, other.edges)
        return alike and len(self.arcs) == len(other.arcs) and all(map(np.array_equal, self.arcs, other.arcs))

    def __hash__(self) -> int:
        return hash((self.nodes, self.edges.tobytes()))

    @property
    def steps(self) -> tuple[IndexArray, ...]:
        """Arcs of each step in turn; of an undirected graph, both ways of all edges."""
        return self.arcs or (both_ways(self.edges),)

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


def both_ways(pairs: IndexArray) -> IndexArray:
    """Arcs [2 edges, 2] of undirected edges."""
    return np.concatenate([pairs, pairs[:, ::-1]])


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
        Advice that the message gives the caller.

    Raises
    ------
    TopologyError
        The graph is in pieces; the message gives their sizes and a node of each, largest first.
    """
    if graph.connected:
        return
    components, members, sizes = np.unique(graph.components, return_index=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")
    found = listed([f"{sizes[c]} with node {label(int(members[c]), names)}" for c in order])
    raise TopologyError(f"the graph must be connected, found {len(components)} components, of sizes {found}: {advice}")


_NAMED = 10
"""Up to so many dropped edges are named in the warning; of more, the number is given."""


class DroppedEdges(UserWarning):
    """Some edges of the topology join two senders or two receivers and are left unused."""


@dataclass(frozen=True, eq=False)
class BipartiteSplit:
    """A graph's nodes in two parts.

    Attributes
    ----------
    senders, receivers : frozenset of int
        Together all nodes. Node 0 is a sender.
    kept : Graph
        The edges between a sender and a receiver. Connected.
    dropped : ndarray [edges, 2] of int64
        The edges inside a part.
    """

    senders: frozenset[int]
    receivers: frozenset[int]
    kept: Graph
    dropped: IndexArray


def bipartite_split(graph: Graph, names: Names = None) -> BipartiteSplit:
    """Senders and receivers, keeping all edges of a bipartite graph and at least half of any other's.

    Nodes are visited breadth first from node 0. Each joins the part in which it has fewer neighbours so far,
    and at a tie the part that the neighbour it was reached from is not in. An odd ring loses one edge.

    Parameters
    ----------
    graph : Graph
        Connected.
    names : sequence of str, optional
        Node names for the warning.

    Warns
    -----
    DroppedEdges
        Some edges lie inside a part; the warning names them, or their number if there are more than 10.

    Raises
    ------
    TopologyError
        The graph is not connected.
    """
    require_connected(graph, names)
    # Why what is kept is connected: a node that is visited has a visited neighbour, the one it was reached
    # from, so the part with more of its visited neighbours has at least one, and the node joins the other
    # part (at a tie, the neighbour it was reached from serves). Its edge to an earlier node is kept, and
    # following such edges leads from every node to node 0.
    # Why a bipartite graph loses nothing: by induction parts are parities of the distance from node 0, so a
    # node's visited neighbours are all in one part.
    sender = _greedy_parts(graph)
    inside = sender[graph.edges[:, 0]] == sender[graph.edges[:, 1]]
    dropped = graph.edges[inside]
    if len(dropped):
        warnings.warn(_describe(dropped, names), DroppedEdges, stacklevel=2)
    return BipartiteSplit(
        senders=frozenset(np.flatnonzero(sender).tolist()),
        receivers=frozenset(np.flatnonzero(~sender).tolist()),
        kept=Graph(graph.nodes, graph.edges[~inside]),
        dropped=dropped,
    )


def _greedy_parts(graph: Graph) -> npt.NDArray[np.bool_]:
    """Whether each node is a sender, [nodes]."""
    order, predecessors = csgraph.breadth_first_order(graph.adjacency, 0, directed=False)
    indptr, indices = graph.adjacency.indptr, graph.adjacency.indices
    side = np.zeros(graph.nodes, dtype=np.int64)  # 1 sender, -1 receiver, 0 not visited
    side[0] = 1
    for node in order[1:].tolist():
        lead = side[indices[indptr[node] : indptr[node + 1]]].sum()
        side[node] = -np.sign(lead) or -side[predecessors[node]]
    return side > 0


def _describe(dropped: IndexArray, names: Names) -> str:
    named = ", ".join(f"{label(i, names)} - {label(j, names)}" for i, j in dropped[:_NAMED].tolist())
    what = f"{len(dropped)} edge(s)" + (f" ({named})" if len(dropped) <= _NAMED else "")
    return f"the bipartite exchange leaves {what} unused, between two senders or two receivers"
