"""Splitting a graph's nodes into senders and receivers, so that exchanges cannot deadlock.

In A(DP)2SGD only a sender starts an exchange, and only with a receiver: no two nodes ever wait for each
other (paper 1, appendix A). Edges inside a part are left unused.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.topology.graphs import Graph, Names, label, require_connected

_NAMED = 10
"""Up to so many dropped edges are named in the warning; of more, the number is given."""


class DroppedEdges(UserWarning):
    """Some edges of the topology join two senders or two receivers and are left unused."""


@dataclass(frozen=True, eq=False)
class Split:
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


def bipartite_split(graph: Graph, names: Names = None) -> Split:
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
    return Split(
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
