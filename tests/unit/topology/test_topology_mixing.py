"""Mixing matrices against closed forms and an enumeration of every possible exchange."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse import linalg

from gossamer.errors import TopologyError
from gossamer.topology.graphs import Graph, bipartite_split
from gossamer.topology.kinds import GridTopology
from gossamer.topology.mixing import (
    check_connected,
    check_doubly_stochastic,
    metropolis,
    pairwise_expectation,
    rho,
    spectral_gap,
)
from gossamer.topology.topologies import build_graph


def build(settings, nodes):
    return build_graph(settings, nodes, np.random.default_rng(2))


def cosine(k, n):
    return math.cos(2 * math.pi * k / n)


def ring_metropolis(n):
    """Weights 1/3 on the diagonal and both sides: a circulant, eigenvalues 1/3 + 2/3 cos(2 pi k/n)."""
    return max(abs(1 / 3 + 2 / 3 * cosine(k, n)) for k in range(1, n))


def ring_pairwise(n):
    """Each of n edges has probability 1/n and takes (e_i - e_j)(e_i - e_j)'/2 off the identity; the ring's
    Laplacian has eigenvalues 2 - 2 cos(2 pi k/n)."""
    return max(1 - (1 - cosine(k, n)) / n for k in range(1, n))


def star_pairwise(n):
    """Each of n - 1 edges has probability 1/(n - 1); the star's Laplacian has eigenvalues 0, 1 (n - 2 times), n."""
    return max(abs(1 - 1 / (2 * (n - 1))), abs(1 - n / (2 * (n - 1))))


CLOSED_FORMS = {
    ("ring", "metropolis"): ring_metropolis,
    ("ring", "pairwise"): ring_pairwise,
    # All weights 1/n: the mean in one step.
    ("complete", "metropolis"): lambda n: 0.0,
    # Probability 2/(n (n - 1)) an edge; the Laplacian's nonzero eigenvalues are n.
    ("complete", "pairwise"): lambda n: 1 - 1 / (n - 1),
    # I - Laplacian/n.
    ("star", "metropolis"): lambda n: 1 - 1 / n,
    ("star", "pairwise"): star_pairwise,
    # I - Laplacian/3, of eigenvalues 2 - 2 cos(pi k/n).
    ("line", "metropolis"): lambda n: max(abs(1 - 2 / 3 + 2 / 3 * math.cos(math.pi * k / n)) for k in range(1, n)),
}
MATRICES = {"metropolis": metropolis, "pairwise": pairwise_expectation}


@pytest.mark.parametrize(("topology", "kind"), CLOSED_FORMS)
def test_rho_of_small_graphs_is_its_closed_form(topology, kind) -> None:
    for nodes in [3, 4, 7, 16]:
        matrix = MATRICES[kind](build(topology, nodes))
        assert rho(matrix) == pytest.approx(CLOSED_FORMS[topology, kind](nodes), abs=1e-12)
        assert spectral_gap(matrix) == pytest.approx(1 - rho(matrix))


@pytest.mark.some(5)
@pytest.mark.parametrize(("topology", "kind"), sorted(set(CLOSED_FORMS) - {("complete", "metropolis")}))
@pytest.mark.parametrize("nodes", [600, 1001])
def test_the_gap_of_large_graphs_is_its_closed_form_to_six_digits(topology, kind, nodes):
    gap = 1 - CLOSED_FORMS[topology, kind](nodes)
    assert spectral_gap(MATRICES[kind](build(topology, nodes))) == pytest.approx(gap, rel=1e-6)


def test_a_large_graph_that_mixes_in_one_step_has_gap_one():
    assert spectral_gap(metropolis(build("complete", 600))) == pytest.approx(1, abs=1e-6)


def test_the_gap_of_a_torus_is_that_of_its_sides():
    """Weights 1/5: eigenvalues 1/5 + 2/5 (cos(2 pi a/s) + cos(2 pi b/s)), so lambda_2 has a = 1, b = 0."""
    assert spectral_gap(metropolis(build(GridTopology(torus=True), 30 * 30))) == pytest.approx(
        2 / 5 * (1 - cosine(1, 30)), rel=1e-6
    )


@pytest.mark.parametrize("size", [100, 1000])
def test_an_eigenvalue_near_minus_one_counts(size):
    """An even ring that keeps a of its own model and gives (1 - a)/2 to each side: eigenvalues
    a + (1 - a) cos(2 pi k/n), that is 2 a - 1 at k = n/2, and 1 - 2 pi^2/n^2 or less beside the first."""
    keep, ring = 1e-6, build("ring", size)
    matrix = keep * sp.eye_array(size) + (1 - keep) / 2 * ring.adjacency
    assert rho(matrix) == pytest.approx(1 - 2 * keep, abs=1e-9)


@pytest.mark.parametrize("nodes", [3, 600])
def test_models_in_separate_groups_never_come_together(nodes):
    assert rho(np.eye(nodes)) == 1


def test_a_single_node_is_its_own_mean():
    alone = Graph(1, np.empty((0, 2), np.int64))
    for matrix in (metropolis(alone), pairwise_expectation(alone)):
        assert matrix.toarray() == [[1.0]]
        assert rho(matrix) == 0


def test_metropolis_weights_of_a_path_with_a_branch():
    """Degrees 1, 3, 2, 1, 1: edges of node 1 weigh 1/4, the edge 2 - 3 weighs 1/3."""
    tree = Graph(5, np.array([(0, 1), (1, 2), (1, 4), (2, 3)]))
    q, t = 1 / 4, 1 / 3
    expected = [
        [1 - q, q, 0, 0, 0],
        [q, q, q, 0, q],
        [0, q, 1 - q - t, t, 0],
        [0, 0, t, 1 - t, 0],
        [0, q, 0, 0, 1 - q],
    ]
    np.testing.assert_allclose(metropolis(tree).toarray(), expected, atol=1e-15)


def enumerated(graph, rates):
    """E[A] and E[A'A], term by term over who starts and whom it picks."""
    mean, square = np.zeros((2, graph.nodes, graph.nodes))
    for i in range(graph.nodes):
        for j in graph.neighbours(i):
            probability = rates[i] / sum(rates) / len(graph.neighbours(i))
            exchange = np.eye(graph.nodes)
            exchange[np.ix_([i, j], [i, j])] = 0.5
            mean += probability * exchange
            square += probability * exchange.T @ exchange
    return mean, square


@pytest.mark.parametrize("topology", ["ring", "star", "exponential", "small_world"])
@pytest.mark.parametrize("rates", [None, (1, 2, 3, 4, 0, 0, 0.5, 1, 1)])
def test_the_pairwise_expectation_is_the_mean_over_all_exchanges_and_of_their_squares(topology, rates):
    graph = build(topology, 9)
    mean, square = enumerated(graph, rates or (1,) * 9)
    expected = pairwise_expectation(graph, rates).toarray()
    np.testing.assert_allclose(expected, mean, atol=1e-14)
    np.testing.assert_allclose(expected, square, atol=1e-14)


def test_on_a_split_only_senders_start():
    split = bipartite_split(build("ring", 6))
    rates = [float(node in split.senders) for node in range(6)]
    # By symmetry each edge of an even ring is as likely as if all started.
    np.testing.assert_allclose(
        pairwise_expectation(split.kept, rates).toarray(), pairwise_expectation(split.kept).toarray(), atol=1e-15
    )


@pytest.mark.parametrize("rates", [(1, 1), (1, 1, -1), (1, 1, math.nan), (1, 1, math.inf), (0, 0, 0)])
def test_rates_that_make_no_sense_are_refused(rates):
    with pytest.raises(TopologyError, match="rates are one finite number >= 0 for each of 3 nodes"):
        pairwise_expectation(build("ring", 3), rates)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5], [0.4, 0.6]], "column 0 with sum 0.9"),
        ([[0.5, 0.4], [0.5, 0.6]], "row 0 with sum 0.9"),
        ([[1.5, -0.5], [-0.5, 1.5]], "entries >= 0"),
        ([[math.nan, 1], [1, 0]], "finite"),
        ([[0.5, 0.5]], r"square, found shape \(1, 2\)"),
    ],
)
def test_matrices_that_would_move_the_mean_are_refused(matrix, message):
    for check in (check_doubly_stochastic, rho):
        with pytest.raises(TopologyError, match=message):
            check(np.array(matrix))


def test_a_matrix_whose_nodes_never_all_mix_is_refused():
    check_connected(metropolis(build("ring", 5)))
    # A stored zero is not a connection.
    separate = sp.csr_array(np.eye(3)) + sp.csr_array(([0.0], ([0], [1])), shape=(3, 3))
    with pytest.raises(TopologyError, match="found 3 groups that never mix"):
        check_connected(separate)


def test_eigenvalues_of_a_one_way_matrix_are_refused():
    turn = np.roll(np.eye(3), 1, axis=1)
    check_doubly_stochastic(turn)
    with pytest.raises(TopologyError, match="symmetric"):
        rho(turn)


@pytest.mark.parametrize("topology", ["small_world", "regular"])
def test_iterations_agree_with_all_eigenvalues(topology):
    matrix = metropolis(build(topology, 600))
    eigenvalues = np.linalg.eigvalsh(matrix.toarray())[:-1]
    assert rho(matrix) == pytest.approx(np.abs(eigenvalues).max(), rel=1e-8)


@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
def test_graphs_that_mix_fast_are_never_factorised(matrix, monkeypatch):
    """The factors of a random regular graph are nearly dense, which at 100,000 nodes is more than memory holds."""
    monkeypatch.delattr(linalg, "splu")
    assert 0 < rho(matrix(build("regular", 3_000))) < 1


def test_a_large_matrix_with_eigenvalue_minus_one_has_no_gap():
    # Without a model of its own, an even ring's two halves swap for ever.
    assert spectral_gap(build("ring", 1000).adjacency / 2) == pytest.approx(0, abs=1e-9)


def test_rho_does_not_change_from_call_to_call():
    matrix = metropolis(build("small_world", 1500))
    assert rho(matrix) == rho(matrix)
