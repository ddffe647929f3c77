"""Every topology against its definition, written down edge by edge or as an obvious loop."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from pydantic import BaseModel
from scipy.stats import binom, chi2

from gossamer.errors import SpecError, TopologyError
from gossamer.topology.kinds import (
    Complete,
    ErdosRenyi,
    Exponential,
    GridTopology,
    LineTopology,
    Regular,
    Ring,
    SmallWorld,
    Star,
)
from gossamer.topology.topologies import Topology, build_graph, parse_topology


def build(settings, nodes, seed=0, names=None):
    return build_graph(settings, nodes, np.random.default_rng(seed), names)


def edges_of(graph):
    return {tuple(edge) for edge in graph.edges.tolist()}


def pairs(nodes):
    return list(itertools.combinations(range(nodes), 2))


FIXED = {
    "ring": lambda n, i, j: (j - i) % n in (1, n - 1),
    "line": lambda n, i, j: j - i == 1,
    "star": lambda n, i, j: i == 0,
    "complete": lambda n, i, j: True,
    "exponential": lambda n, i, j: any((j - i) % n in (2**k % n, -(2**k) % n) for k in range(n) if 2**k < n),
}


@pytest.mark.parametrize("name", FIXED)
def test_fixed_topologies_join_exactly_the_pairs_of_their_definition(name) -> None:
    for nodes in [2, 3, 4, 5, 8, 13]:
        assert edges_of(build(name, nodes)) == {(i, j) for i, j in pairs(nodes) if FIXED[name](nodes, i, j)}


def test_a_ring_of_two_is_one_edge():
    assert edges_of(build("ring", 2)) == {(0, 1)}


@pytest.mark.parametrize("name", [*FIXED, "grid", "regular", "small_world"])
def test_one_node_has_no_edges_in_any_topology(name):
    assert edges_of(build(name, 1)) == set()


@pytest.mark.parametrize("torus", [False, True])
@pytest.mark.parametrize(("nodes", "rows", "columns"), [(4, 2, 2), (6, 2, 3), (12, 3, 4), (16, 4, 4), (2, 1, 2)])
def test_a_grid_is_as_square_as_can_be_and_joins_places_one_apart(nodes, rows, columns, torus):
    def apart(a, b, size):
        return min((a - b) % size, (b - a) % size) if torus else abs(a - b)

    expected = {
        (i, j)
        for i, j in pairs(nodes)
        if apart(i // columns, j // columns, rows) + apart(i % columns, j % columns, columns) == 1
    }
    assert edges_of(build(GridTopology(torus=torus), nodes)) == expected


def test_a_grid_takes_the_number_of_rows_it_is_given():
    assert build(GridTopology(rows=1), 7) == build(LineTopology(), 7)
    assert build(GridTopology(rows=1, torus=True), 7) == build(Ring(), 7)
    assert build(GridTopology(rows=2), 12).degrees.tolist() == [2, 3, 3, 3, 3, 2] * 2


def test_a_grid_that_would_be_a_line_or_does_not_divide_is_refused():
    with pytest.raises(TopologyError, match=r"prime number.*use 6 or 8 nodes"):
        build("grid", 7)
    with pytest.raises(TopologyError, match="3 rows needs a multiple of 3 nodes, found 8"):
        build(GridTopology(rows=3), 8)


@pytest.mark.parametrize(("nodes", "degree"), [(2, 1), (4, 3), (6, 3), (7, 2), (9, 4), (12, 11), (40, 6), (60, 31)])
def test_every_node_of_a_regular_graph_has_its_degree(nodes, degree):
    graph = build(Regular(degree=degree), nodes)
    assert (graph.degrees == degree).all()
    assert graph.connected


@pytest.mark.parametrize(("nodes", "degree"), [(4, 4), (5, 3), (3, 3)])
def test_regular_graphs_that_do_not_exist_are_refused(nodes, degree):
    with pytest.raises(TopologyError, match=f"found degree {degree} and {nodes} nodes"):
        build(Regular(degree=degree), nodes)


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("nodes", "degree", "count"),
    [
        # Complements of the 5!! = 15 perfect matchings of 6 nodes.
        (6, 4, 15),
        # 2-regular and connected is a cycle: 4!/2 of 5 nodes.
        (5, 2, 12),
    ],
)
def test_random_matchings_and_cycles_come_about_equally_often(nodes, degree, count):
    """Chi-squared against the uniform law, false-alarm rate 1e-6 each."""
    generator, draws = np.random.default_rng(11), 2_000
    seen = Counter(build_graph(Regular(degree=degree), nodes, generator) for _ in range(draws))
    assert len(seen) == count
    statistic = sum((times - draws / count) ** 2 for times in seen.values()) / (draws / count)
    assert statistic < chi2.isf(1e-6, count - 1)


@pytest.mark.slow
def test_all_seventy_cubic_graphs_of_six_nodes_come_about():
    """10 of two groups of three (K_3,3) and 60 prisms, though not equally often: that holds for many nodes only.

    Each is the complement of a 2-regular graph, which is 2^6 of the 11!! = 10,395 ways to pair 12 stubs, so it comes
    with probability 1/163 or more, and one of 70 is missing in 3,000 draws with probability below 1e-6.
    """
    generator = np.random.default_rng(11)
    assert len({build_graph(Regular(degree=3), 6, generator) for _ in range(3_000)}) == 70


def test_a_small_world_without_rewiring_is_a_lattice():
    graph = build(SmallWorld(k=4, p=0), 11)
    assert edges_of(graph) == {(i, j) for i, j in pairs(11) if min(j - i, i - j + 11) <= 2}


def test_rewiring_keeps_the_number_of_edges_and_moves_the_share_it_should():
    """Each of 2,000 edges is rewired with probability 0.3; false-alarm rate 1e-6."""
    nodes, p = 1_000, 0.3
    lattice, graph = build(SmallWorld(k=4, p=0), nodes), build(SmallWorld(k=4, p=p), nodes)
    assert len(graph.edges) == 2 * nodes
    moved = len(edges_of(lattice) - edges_of(graph))
    # A rewired edge lands on another's old place with probability below 4 / 998: at most 8 of 600 or so.
    low, high = binom.ppf([5e-7, 1 - 5e-7], 2 * nodes, p)
    assert low - 20 <= moved <= high


def test_each_node_keeps_half_of_its_lattice_degree_when_all_edges_are_rewired():
    # Rewiring moves the far end of node i's k/2 own edges; the near end stays.
    assert build(SmallWorld(k=6, p=1), 200).degrees.min() >= 3


def test_a_full_small_world_has_nothing_to_rewire():
    assert build(SmallWorld(k=4, p=1), 5) == build("complete", 5)


def test_a_small_world_needs_more_nodes_than_neighbours():
    with pytest.raises(TopologyError, match="k < nodes, found k 4 and 4 nodes"):
        build(SmallWorld(k=4), 4)


def test_the_number_of_random_edges_is_binomial_and_they_lie_anywhere():
    """False-alarm rate 1e-6 each: the number of edges, and the number at each of four quarters of the pairs."""
    nodes, p = 400, 0.05
    graph = build(ErdosRenyi(p=p), nodes)
    number = {pair: position for position, pair in enumerate(pairs(nodes))}
    quarters = Counter(4 * number[edge] // len(number) for edge in edges_of(graph))
    for count, trials in [(len(graph.edges), len(number))] + [(quarters[q], len(number) // 4) for q in range(4)]:
        low, high = binom.ppf([5e-7, 1 - 5e-7], trials, p)
        assert low <= count <= high


def test_every_pair_occurs_when_all_are_asked_for():
    assert build(ErdosRenyi(p=1), 30) == build("complete", 30)


def test_a_random_graph_that_never_connects_is_refused_with_its_pieces():
    with pytest.raises(TopologyError, match="none of 20 draws of erdos_renyi was connected"):
        build(ErdosRenyi(p=0.01), 10, names=[f"node-{i}" for i in range(10)])


@pytest.mark.parametrize("settings", [Regular(degree=3), SmallWorld(p=0.5), ErdosRenyi(p=0.4)])
def test_random_topologies_follow_the_generator_alone(settings):
    assert build(settings, 20, seed=1) == build(settings, 20, seed=1)
    assert len({build(settings, 20, seed=seed) for seed in range(5)}) == 5


@pytest.mark.parametrize("settings", [Ring(), LineTopology(), Star(), Complete(), Exponential(), GridTopology()])
def test_fixed_topologies_draw_nothing(settings):
    generator = np.random.default_rng(5)
    build_graph(settings, 9, generator)
    assert generator.bit_generator.state == np.random.default_rng(5).bit_generator.state


@pytest.mark.parametrize("settings", ["complete", ErdosRenyi(p=0.5)])
def test_more_edges_than_fit_are_refused_before_they_are_made(settings):
    with pytest.raises(TopologyError, match=r"at most 50,000,000 edges, found .* use fewer nodes"):
        build(settings, 100_000)


@pytest.mark.slow
def test_a_hundred_thousand_nodes_are_no_problem():
    graph = build("exponential", 100_000)
    # Offsets 2^0 to 2^16, none of them half of 100,000 or another's negative.
    assert (graph.degrees == 2 * 17).all()
    assert len(graph.neighbours(99_999)) == 34


def test_no_nodes_and_a_wrong_number_of_names_are_refused():
    with pytest.raises(TopologyError, match="at least 1 node, found 0"):
        build("ring", 0)
    with pytest.raises(TopologyError, match="each of 3 nodes, found 2 names"):
        build("ring", 3, names=["a", "b"])


def test_a_bare_name_a_mapping_and_settings_mean_the_same():
    assert parse_topology("ring") == parse_topology({"name": "ring"}) == parse_topology(Ring()) == Ring()
    assert parse_topology({"name": "regular", "degree": 5}) == Regular(degree=5)


def test_topologies_are_fields_of_a_spec_and_come_back_from_its_plain_form():
    class Spec(BaseModel):
        topology: Topology = Ring()

    spec = Spec.model_validate({"topology": "small_world"})
    assert spec.topology == SmallWorld()
    assert Spec.model_validate(spec.model_dump(mode="json")) == spec


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("circle", "topology 'circle' is not understood.*'ring'"),
        ("erdos_renyi", "erdos_renyi.p: field required"),
        ({"name": "regular", "degree": 0}, "regular.degree: input should be greater than or equal to 1"),
        ({"name": "ring", "nodes": 3}, "ring.nodes: extra inputs are not permitted"),
        ({"name": "small_world", "k": 3}, "multiple of 2"),
        ({"name": "erdos_renyi", "p": math.nan}, "erdos_renyi.p"),
    ],
)
def test_settings_that_make_no_sense_are_one_clear_line(value, message):
    with pytest.raises(SpecError, match=message) as caught:
        parse_topology(value)
    assert "\n" not in str(caught.value)
