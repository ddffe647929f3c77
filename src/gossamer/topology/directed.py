"""Directed graphs that may change from step to step: their settings, and the arcs of each step, in turn.

Steps follow each other again and again, so that whatever stands in one of them comes back. What is passed on reaches
everybody if the graph of all arcs together is strongly connected.

References
----------
Assran, Loizou, Ballas and Rabbat, "Stochastic gradient push for distributed deep learning", ICML 2019, Appendix A (the
exponential graph of one peer).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import scipy.sparse as sp
from pydantic import Field
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.errors import TopologyError, listed
from gossamer.topology.graphs import Names, both_ways, label
from gossamer.topology.kinds import OwnTopology, circulant, read_edges

_LISTED = 20
"""Most nodes of a kind that an error message names."""


def require_strongly_connected(nodes: int, steps: Sequence[IndexArray], names: Sequence[str] | None) -> None:
    """Raise unless every node reaches every other along the arcs of all steps.

    Raises
    ------
    TopologyError
        With the nodes that do not.
    """
    arcs = np.concatenate(steps)
    matrix = sp.csr_array((np.ones(len(arcs), np.int8), (arcs[:, 0], arcs[:, 1])), shape=(nodes, nodes))
    count, groups = csgraph.connected_components(matrix, directed=True, connection="strong")
    if count == 1:
        return
    apart = groups != np.bincount(groups).argmax()
    inside, outside = ([label(int(node), names) for node in np.flatnonzero(of)] for of in (~apart, apart))
    raise TopologyError(
        "a directed graph must be strongly connected, over all its steps together; no way leads from "
        f"{listed(outside, _LISTED)} to {inside[0]} and back: add arcs to and from them"
    )


class Directed(OwnTopology):
    """Base of graphs whose edges are not used both ways all the time."""

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        """Arcs (sender, receiver) of each step in turn, [arcs, 2]."""
        raise NotImplementedError


class DirectedRing(Directed):
    """Node i sends to i + 1, modulo the number of nodes."""

    name: Literal["directed_ring"] = "directed_ring"

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return [circulant(nodes, [1])]


class Arcs(Directed):
    """Arcs read from a text file like ``edges``: the first node of a line sends to the second."""

    name: Literal["arcs"] = "arcs"
    path: Path

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return [read_edges(self.path, nodes, names)]


class OnePeerExponential(Directed):
    """Node i sends to i + 2^k, modulo the number of nodes, with another k in each step: one peer at a time."""

    name: Literal["one_peer_exponential"] = "one_peer_exponential"

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        starts = np.arange(nodes)
        return [np.stack([starts, (starts + (1 << k)) % nodes], axis=1) for k in range((nodes - 1).bit_length())]


class RandomMatchings(Directed):
    """Pairs of nodes exchange both ways, drawn anew for each step; of an odd number one node is left out of it.

    Attributes
    ----------
    steps : int
        Number of steps that are drawn; they follow each other again and again.
    """

    name: Literal["random_matchings"] = "random_matchings"
    steps: int = Field(default=32, ge=1, le=10_000)

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        paired = nodes - nodes % 2
        return [both_ways(generator.permutation(nodes)[:paired].reshape(-1, 2)) for _ in range(self.steps)]


ALL = (DirectedRing, Arcs, OnePeerExponential, RandomMatchings)
"""The kinds that a spec names, but for a schedule of others."""
