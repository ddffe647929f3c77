"""Directed graphs that may change from step to step: the arcs (sender, receiver) of each step, in turn.

Steps follow each other again and again, so that whatever stands in one of them comes back. What is passed on reaches
everybody if the graph of all arcs together is strongly connected.

References
----------
Assran, Loizou, Ballas and Rabbat, "Stochastic gradient push for distributed deep learning", ICML 2019, Appendix A (the
exponential graph of one peer).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.errors import TopologyError

_LISTED = 5
"""Most nodes that an error message names."""


def both_ways(pairs: IndexArray) -> IndexArray:
    """Arcs [2 edges, 2] of undirected edges."""
    return np.concatenate([pairs, pairs[:, ::-1]])


def one_peer_exponential(nodes: int) -> list[IndexArray]:
    """Arcs from i to i + 2^k, modulo the number of nodes, for k = 0, 1, ... in turn: one peer a step."""
    starts = np.arange(nodes)
    return [np.stack([starts, (starts + (1 << k)) % nodes], axis=1) for k in range((nodes - 1).bit_length())]


def random_matchings(nodes: int, steps: int, generator: np.random.Generator) -> list[IndexArray]:
    """Pairs of nodes that exchange both ways, drawn anew for each step; of an odd number one node is left out of it."""
    paired = nodes - nodes % 2
    return [both_ways(generator.permutation(nodes)[:paired].reshape(-1, 2)) for _ in range(steps)]


def require_strongly_connected(nodes: int, steps: Sequence[IndexArray], names: Sequence[str] | None) -> None:
    """Raise unless every node reaches every other along the arcs of all steps.

    Raises
    ------
    TopologyError
        With the nodes that do not, and whether a node has no arc at all, in no step.
    """
    arcs = np.concatenate(steps)
    matrix = sp.csr_array((np.ones(len(arcs), np.int8), (arcs[:, 0], arcs[:, 1])), shape=(nodes, nodes))
    count, groups = csgraph.connected_components(matrix, directed=True, connection="strong")
    if count == 1:
        return
    largest = np.bincount(groups).argmax()
    apart, among = np.flatnonzero(groups != largest), int(np.flatnonzero(groups == largest)[0])
    called = str if names is None else names.__getitem__
    told = []
    for node in apart[:_LISTED].tolist():
        lack = {
            (True, True): f"has no way to {called(among)} and back",
            (True, False): "hears from nobody",
            (False, True): "sends to nobody",
            (False, False): "is left out of every step",
        }[bool((arcs[:, 0] == node).any()), bool((arcs[:, 1] == node).any())]
        told.append(f"{called(node)} {lack}")
    more = f", and {len(apart) - _LISTED} more" if len(apart) > _LISTED else ""
    raise TopologyError(
        f"a directed graph must be strongly connected, over all its steps together; {', '.join(told)}{more}: add arcs "
        "to and from them"
    )
