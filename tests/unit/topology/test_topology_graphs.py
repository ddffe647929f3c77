"""A graph as a value: its normal form, its neighbours, and what is refused."""

import numpy as np
import pytest

from gossamer.errors import TopologyError
from gossamer.topology.graphs import Graph, require_connected


def graph(nodes, *edges):
    return Graph(nodes, np.array(edges, dtype=np.int64).reshape(-1, 2))


def test_edges_are_stored_once_each_in_order_whatever_way_they_were_given():
    given = graph(4, (3, 2), (1, 0), (0, 1), (2, 0))
    assert given.edges.tolist() == [[0, 1], [0, 2], [2, 3]]


def test_graphs_with_the_same_edges_are_equal_and_hash_alike():
    one, same, other = graph(3, (0, 1), (1, 2)), graph(3, (2, 1), (1, 0)), graph(3, (0, 1), (0, 2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != graph(4, (0, 1), (1, 2))
    assert one != "a graph"


def test_edges_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        graph(2, (0, 1)).edges[0, 0] = 1


def test_neighbours_and_degrees_of_a_path_with_a_branch():
    tree = graph(5, (0, 1), (1, 2), (1, 4), (2, 3))
    assert [tree.neighbours(node) for node in range(5)] == [(1,), (0, 2, 4), (1, 3), (2,), (1,)]
    assert tree.degrees.tolist() == [1, 3, 2, 1, 1]
    assert all(isinstance(node, int) for node in tree.neighbours(1))


def test_one_node_without_edges_is_connected_and_two_are_not():
    assert graph(1).connected
    assert graph(1).neighbours(0) == ()
    assert not graph(2).connected


def test_components_are_named_largest_first_with_a_member_of_each():
    pieces = graph(6, (0, 1), (2, 3), (3, 4))
    with pytest.raises(TopologyError, match=r"3 components, of sizes 3 with node 2, 2 with node 0, 1 with node 5"):
        require_connected(pieces)


def test_components_are_named_by_the_names_of_nodes():
    with pytest.raises(TopologyError, match="1 with node ann, 1 with node bob: add edges between them"):
        require_connected(graph(2), ["ann", "bob"])


def test_many_components_are_counted():
    with pytest.raises(TopologyError, match=r"9 components.*and 4 more"):
        require_connected(graph(9))


@pytest.mark.parametrize(
    ("nodes", "edges", "message"),
    [
        (0, [], "at least 1 node, found 0"),
        (3, [(0, 3)], r"nodes 0 to 2, found \(0, 3\)"),
        (3, [(-1, 0)], r"nodes 0 to 2, found \(-1, 0\)"),
        (3, [(0, 1), (2, 2)], r"two different nodes, found \(2, 2\)"),
    ],
)
def test_impossible_graphs_are_refused(nodes, edges, message):
    with pytest.raises(TopologyError, match=message):
        graph(nodes, *edges)
