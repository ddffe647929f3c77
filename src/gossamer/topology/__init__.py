"""Graphs of who may exchange with whom, their bipartite split, and mixing matrices."""

from gossamer.topology.builders import build_graph
from gossamer.topology.graphs import DroppedEdges, Graph, Split, bipartite_split, require_connected
from gossamer.topology.mixing import (
    check_connected,
    check_doubly_stochastic,
    metropolis,
    pairwise_expectation,
    rho,
    spectral_gap,
)
from gossamer.topology.settings import (
    Complete,
    EdgeList,
    ErdosRenyi,
    Exponential,
    Grid,
    Line,
    OwnTopology,
    Regular,
    Ring,
    SmallWorld,
    Star,
    Topology,
    parse_topology,
)

__all__ = [
    "Complete",
    "DroppedEdges",
    "EdgeList",
    "ErdosRenyi",
    "Exponential",
    "Graph",
    "Grid",
    "Line",
    "OwnTopology",
    "Regular",
    "Ring",
    "SmallWorld",
    "Split",
    "Star",
    "Topology",
    "bipartite_split",
    "build_graph",
    "check_connected",
    "check_doubly_stochastic",
    "metropolis",
    "pairwise_expectation",
    "parse_topology",
    "require_connected",
    "rho",
    "spectral_gap",
]
