"""Edge list files: what they may hold, and the file and line of what they may not."""

import numpy as np
import pytest

from gossamer.errors import TopologyError
from gossamer.topology.kinds import EdgeList
from gossamer.topology.topologies import build_graph


@pytest.fixture
def build(tmp_path):
    def from_text(text, nodes, names=None):
        path = tmp_path / "edges.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return build_graph(EdgeList(path=path), nodes, np.random.default_rng(0), names)

    return from_text


def test_numbers_comments_blank_lines_tabs_and_both_directions(build):
    graph = build("# a triangle with a tail\n0 1\n1\t2  # comment\n\n  2 0\n0 2\n3 2\r\n", 4)
    assert graph.edges.tolist() == [[0, 1], [0, 2], [1, 2], [2, 3]]


def test_names_stand_for_nodes_beside_numbers(build):
    assert build("oslo 0\n0 bergen\n", 3, ["rome", "bergen", "oslo"]).edges.tolist() == [[0, 1], [0, 2]]


def test_a_name_that_looks_like_a_number_goes_before_the_number(build):
    assert build("0 1\n0 2\n", 3, ["2", "1", "0"]).edges.tolist() == [[0, 2], [1, 2]]


def test_a_node_joined_to_itself_by_name_and_number_is_found(build):
    with pytest.raises(TopologyError, match=r"line 2: .*found one, in 'rome 0'"):
        build("0 1\nrome 0\n", 2, ["rome", "oslo"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 1\n1 2 0.5\n", r"edges.txt, line 2: .*by number \(0 to 2\), found 3 in '1 2 0.5'"),
        ("0 1\n\n2\n", r"edges.txt, line 3: .* found 1 in '2'"),
        ("0 1\n1 3\n", r"edges.txt, line 2: .*by number \(0 to 2\), found '3'"),
        ("0 -1\n", r"edges.txt, line 1: .*found '-1'"),
        ("0,1\n", r"edges.txt, line 1: .*found 1 in '0,1'"),
        ("0 1\n2 2\n", r"edges.txt, line 2: .*found one, in '2 2'"),
        ("0 01\n", r"edges.txt, line 1: .*found '01'"),
    ],
)
def test_malformed_lines_are_named_with_file_and_number(build, text, message):
    with pytest.raises(TopologyError, match=message) as caught:
        build(text, 3)
    assert "\n" not in str(caught.value)


def test_unknown_names_are_named(build):
    with pytest.raises(TopologyError, match=r"line 1: .*or name \(such as oslo\), found 'rome'"):
        build("oslo rome\n", 2, ["oslo", "bergen"])


def test_a_disconnected_file_names_the_pieces_and_the_file(build):
    with pytest.raises(TopologyError, match=r"2 with node a, 1 with node c: add edges between them to .*edges.txt"):
        build("a b\n", 3, ["a", "b", "c"])


def test_a_missing_file_a_folder_and_bytes_that_are_not_text_are_refused(build, tmp_path):
    for path in (tmp_path / "nowhere.txt", tmp_path):
        with pytest.raises(TopologyError, match="expected an edge list"):
            build_graph(EdgeList(path=path), 2, np.random.default_rng(0))
    with pytest.raises(TopologyError, match="expected an edge list"):
        build(b"0 1\n\xff\xfe\n", 2)
