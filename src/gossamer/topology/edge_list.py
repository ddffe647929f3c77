"""Edge list files: an edge a line, as two node numbers or two node names."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gossamer.arrays import IndexArray
from gossamer.bounded import read_text
from gossamer.errors import TopologyError
from gossamer.topology.graphs import Names


def read_edges(path: Path, nodes: int, names: Names = None) -> IndexArray:
    """The edges in a file, [edges, 2], in the file's order.

    A line holds two nodes with white space between them; from ``#`` on it is a comment. Both directions of
    an edge, and repetitions, are one edge.

    Parameters
    ----------
    path : Path
        A UTF-8 text file.
    nodes : int
        Node numbers go from 0 to ``nodes`` - 1.
    names : sequence of ``nodes`` str, optional
        Where given, lines may hold these names as well; a name that is also a number means the node of that name.

    Raises
    ------
    TopologyError
        The file cannot be read, or a line is not an edge; the message gives the file and the line's number.
    """
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise TopologyError(f"expected an edge list, a readable text file, at {path}: {error.strerror}") from None
    numbers = {str(number): number for number in range(nodes)}
    numbers |= {name: number for number, name in enumerate(names or ())}
    expected = f"nodes, by number (0 to {nodes - 1})" + ("" if names is None else f" or name (such as {names[0]})")
    edges = []
    for position, line in enumerate(lines, start=1):
        tokens = line.partition("#")[0].split()
        if not tokens:
            continue
        problem = _problem(tokens, numbers)
        if problem:
            raise TopologyError(f"{path}, line {position}: expected two different {expected}, found {problem}")
        edges.append([numbers[token] for token in tokens])
    return np.array(edges, dtype=np.int64).reshape(-1, 2)


def _problem(tokens: list[str], numbers: dict[str, int]) -> str | None:
    if len(tokens) != 2:
        return f"{len(tokens)} in {' '.join(tokens)!r}"
    unknown = [token for token in tokens if token not in numbers]
    if unknown:
        return repr(unknown[0])
    return f"one, in {' '.join(tokens)!r}" if numbers[tokens[0]] == numbers[tokens[1]] else None
