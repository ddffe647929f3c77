"""What holds for every connected graph, on graphs that Hypothesis makes up."""

import warnings

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gossamer.topology.graphs import DroppedEdges, Graph, bipartite_split
from gossamer.topology.mixing import check_connected, check_doubly_stochastic, metropolis, pairwise_expectation, rho


@st.composite
def connected_graphs(draw):
    """A random tree plus any other edges."""
    nodes = draw(st.integers(1, 12))
    tree = [(draw(st.integers(0, node - 1)), node) for node in range(1, nodes)]
    pair = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(lambda edge: edge[0] != edge[1])
    more = draw(st.lists(pair, max_size=30)) if nodes > 1 else []
    order = draw(st.permutations(range(nodes)))
    edges = [(order[i], order[j]) for i, j in tree + more]
    return Graph(nodes, np.array(edges, dtype=np.int64).reshape(-1, 2))


def two_colourable(graph):
    """By depth-first search: can the nodes be coloured so that no edge joins two of a colour?"""
    colour, stack = {0: 0}, [0]
    while stack:
        node = stack.pop()
        for other in graph.neighbours(node):
            if other not in colour:
                colour[other] = 1 - colour[node]
                stack.append(other)
            elif colour[other] == colour[node]:
                return False
    return True


@given(connected_graphs())
def test_neighbours_degrees_and_edges_say_the_same(graph):
    pairs = {(i, j) for i in range(graph.nodes) for j in graph.neighbours(i)}
    assert pairs == {tuple(edge) for edge in graph.edges.tolist()} | {tuple(e) for e in graph.edges[:, ::-1].tolist()}
    assert graph.degrees.tolist() == [len(graph.neighbours(node)) for node in range(graph.nodes)]
    assert graph.connected


@given(connected_graphs())
def test_a_split_is_connected_crosses_the_parts_and_keeps_at_least_half(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DroppedEdges)
        split = bipartite_split(graph)
    assert split.senders | split.receivers == set(range(graph.nodes))
    assert not split.senders & split.receivers
    assert all((i in split.senders) != (j in split.senders) for i, j in split.kept.edges.tolist())
    assert all((i in split.senders) == (j in split.senders) for i, j in split.dropped.tolist())
    assert len(split.kept.edges) + len(split.dropped) == len(graph.edges)
    assert split.kept.connected
    assert 2 * len(split.kept.edges) >= len(graph.edges)
    assert (len(split.dropped) == 0) == two_colourable(graph)


@given(connected_graphs())
def test_mixing_matrices_are_symmetric_doubly_stochastic_local_and_reach_consensus(graph):
    for matrix in (metropolis(graph), pairwise_expectation(graph)):
        check_doubly_stochastic(matrix)
        check_connected(matrix)
        dense = matrix.toarray()
        np.testing.assert_allclose(dense, dense.T, atol=1e-15)
        off = dense - np.diag(np.diag(dense))
        assert np.array_equal(off > 0, graph.adjacency.toarray() > 0)
        assert 0 <= rho(matrix) < 1


@given(connected_graphs(), st.integers(0, 2**32 - 1))
def test_one_step_shrinks_every_distance_from_the_mean_by_rho_at_least(graph, seed):
    models = np.random.default_rng(seed).standard_normal((graph.nodes, 3))
    models -= models.mean(axis=0)
    matrix = metropolis(graph)
    assert np.linalg.norm(matrix @ models) <= rho(matrix) * np.linalg.norm(models) + 1e-12
