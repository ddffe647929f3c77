"""The split into senders and receivers (A(DP)2SGD, Appendix A)."""

import numpy as np
import pytest

from gossamer.errors import TopologyError
from gossamer.topology.graphs import DroppedEdges, Graph, bipartite_split
from gossamer.topology.kinds import Regular
from gossamer.topology.topologies import build_graph


def build(settings, nodes):
    return build_graph(settings, nodes, np.random.default_rng(3))


@pytest.mark.parametrize("nodes", [2, 4, 10])
def test_an_even_ring_alternates_and_loses_nothing(nodes):
    split = bipartite_split(build("ring", nodes))
    assert split.senders == frozenset(range(0, nodes, 2))
    assert split.receivers == frozenset(range(1, nodes, 2))
    assert split.kept == build("ring", nodes)
    assert len(split.dropped) == 0


@pytest.mark.parametrize("nodes", [3, 5, 11])
def test_an_odd_ring_leaves_one_edge_unused_and_names_it(nodes):
    """Paper 1, Appendix A: an odd cycle cannot be split without an edge inside a part. It is the one farthest from
    node 0, where the two ways round meet."""
    ring = build("ring", nodes)
    with pytest.warns(DroppedEdges, match=r"leaves 1 edge\(s\) \(n\d+ - n\d+\) unused"):
        split = bipartite_split(ring, [f"n{i}" for i in range(nodes)])
    assert split.dropped.tolist() == [[nodes // 2, nodes // 2 + 1]]
    assert split.kept.connected


@pytest.mark.parametrize("name", ["line", "star", "grid"])
def test_other_bipartite_graphs_lose_nothing(name):
    assert bipartite_split(build(name, 12)).kept == build(name, 12)


@pytest.mark.parametrize("nodes", [4, 5, 9, 12])
def test_a_complete_graph_is_split_in_halves(nodes):
    with pytest.warns(DroppedEdges):
        split = bipartite_split(build("complete", nodes))
    assert abs(len(split.senders) - len(split.receivers)) <= 1


def test_many_dropped_edges_are_counted_not_named():
    graph = build("complete", 12)
    with pytest.warns(DroppedEdges, match=r"leaves 30 edge\(s\) unused") as caught:
        bipartite_split(graph)
    # Two parts of 6 keep 36 of 66 edges.
    assert len(caught) == 1


def test_one_node_is_a_sender_without_receivers():
    split = bipartite_split(Graph(1, np.empty((0, 2), np.int64)))
    assert (split.senders, split.receivers) == (frozenset({0}), frozenset())


def test_a_disconnected_graph_is_refused():
    with pytest.raises(TopologyError, match="2 components"):
        bipartite_split(Graph(3, np.array([[0, 1]])))


def test_the_split_draws_nothing_and_is_the_same_each_time():
    graph = build(Regular(degree=3), 30)
    with pytest.warns(DroppedEdges):
        one, two = bipartite_split(graph), bipartite_split(graph)
    assert one.senders == two.senders
