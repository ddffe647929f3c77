"""Graphs from settings: one function a topology, and the tables that join them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from gossamer.arrays import IndexArray
from gossamer.bounded import read_text
from gossamer.errors import TopologyError
from gossamer.topology.graphs import Graph, Names, require_connected
from gossamer.topology.settings import (
    ErdosRenyi,
    GridTopology,
    OwnTopology,
    Regular,
    SmallWorld,
    Topology,
    parse_topology,
)


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
        Names of nodes. Where given, lines may hold these names as well; a name that is also a number means the node of
        that name.

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


_DRAWS = 20
"""How often a random graph is drawn because the one before was not connected."""

_MOST_EDGES = 50_000_000
"""About a gigabyte as an array; who asks for more meant something else."""


def build_graph(settings: Topology | str, nodes: int, generator: np.random.Generator, names: Names = None) -> Graph:
    """The connected graph that ``settings`` describe.

    Parameters
    ----------
    settings : Topology or str
        Settings, or a topology's name for its defaults.
    nodes : int
        Number of nodes. One node has no edges, whatever the topology.
    generator : numpy Generator
        Public randomness; only ``regular``, ``small_world`` and ``erdos_renyi`` use it.
    names : sequence of ``nodes`` str, optional
        Node names, as edge list files and error messages use them.

    Raises
    ------
    SpecError
        The settings are not understood.
    TopologyError
        No such graph has so many nodes, an edge list file is malformed, or the graph is not connected.
    """
    settings = parse_topology(settings)
    if nodes < 1:
        raise TopologyError(f"a topology needs at least 1 node, found {nodes}")
    if names is not None and len(names) != nodes:
        raise TopologyError(f"expected a name for each of {nodes} nodes, found {len(names)} names")
    if nodes == 1:
        return Graph(1, np.empty((0, 2), np.int64))
    if isinstance(settings, OwnTopology):
        return _of_others(settings, nodes, generator, names)
    if settings.name in _RANDOM:
        return _draw_connected(settings, nodes, generator, names)
    if settings.name == "edges":
        graph = Graph(nodes, read_edges(settings.path, nodes, names))
        require_connected(graph, names, advice=f"add edges between them to {settings.path}")
        return graph
    return Graph(nodes, _FIXED[settings.name](settings, nodes))


def _of_others(settings: OwnTopology, nodes: int, generator: np.random.Generator, names: Names) -> Graph:
    """The graph of a topology that is another distribution's, whose code may do anything."""
    what = type(settings).__name__
    try:
        edges = np.asarray(settings.edges(nodes, generator))
    except Exception as error:
        raise TopologyError(f"the topology {what} cannot join {nodes} nodes: {type(error).__name__}: {error}") from None
    if edges.size and not (edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype.kind in "iu"):
        raise TopologyError(
            f"the topology {what} must give pairs of node numbers, [edges, 2], found {edges.dtype} "
            f"{list(edges.shape)}; correct its edges"
        )
    graph = Graph(nodes, edges.astype(np.int64))
    require_connected(graph, names, advice=f"have {what}.edges join them")
    return graph


def _draw_connected(settings: Topology, nodes: int, generator: np.random.Generator, names: Names) -> Graph:
    """The first connected one of ``_DRAWS`` draws: the topology's law, given that it is connected."""
    for _ in range(_DRAWS):
        graph = Graph(nodes, _RANDOM[settings.name](settings, nodes, generator))
        if graph.connected:
            return graph
    advice = f"none of {_DRAWS} draws of {settings.name} was connected, so ask for more edges"
    require_connected(graph, names, advice=advice)
    raise AssertionError("the last draw was not connected")


def _circulant(nodes: int, offsets: Iterable[int]) -> IndexArray:
    """Every node joined to the one ``offset`` further, modulo ``nodes``, for each offset."""
    starts = np.arange(nodes)
    pairs = [np.stack([starts, (starts + offset) % nodes], axis=1) for offset in offsets]
    return np.concatenate(pairs)


def _line(_: Any, nodes: int) -> IndexArray:
    return _circulant(nodes, [1])[:-1]


def _star(_: Any, nodes: int) -> IndexArray:
    return np.stack([np.zeros(nodes - 1, np.int64), np.arange(1, nodes)], axis=1)


def _complete(_: Any, nodes: int) -> IndexArray:
    _require_affordable("complete", nodes * (nodes - 1) // 2)
    return np.stack(np.triu_indices(nodes, 1), axis=1)


def _powers_of_two_below(nodes: int) -> list[int]:
    return [1 << k for k in range((nodes - 1).bit_length())]


def _grid(settings: GridTopology, nodes: int) -> IndexArray:
    rows = settings.rows or _most_square(nodes)
    if nodes % rows:
        raise TopologyError(f"a grid of {rows} rows needs a multiple of {rows} nodes, found {nodes}")
    places = np.arange(nodes).reshape(rows, nodes // rows)
    pairs = [_steps(places, settings.torus), _steps(places.T, settings.torus)]
    return np.concatenate(pairs).reshape(-1, 2)


def _steps(places: IndexArray, wrap: bool) -> IndexArray:
    """Each place with the one below it; with ``wrap`` also the last row with the first."""
    # Around a side of 1 or 2 the wrap would be a loop, or an edge that is there already.
    below = np.roll(places, -1, axis=0) if wrap and len(places) > 2 else places[1:]
    return np.stack([places[: len(below)].ravel(), below.ravel()], axis=1)


def _most_square(nodes: int) -> int:
    """The largest divisor of ``nodes`` up to its square root; a prime above 3 is refused."""
    rows = next(rows for rows in range(math.isqrt(nodes), 0, -1) if nodes % rows == 0)
    if rows == 1 and nodes > 3:
        raise TopologyError(
            f"a grid of {nodes} nodes, a prime number, is only a line: "
            f"use {nodes - 1} or {nodes + 1} nodes, topology line, or set rows: 1"
        )
    return rows


def _regular(settings: Regular, nodes: int, generator: np.random.Generator) -> IndexArray:
    degree = settings.degree
    if degree >= nodes or nodes * degree % 2:
        raise TopologyError(
            f"a regular graph needs degree < nodes and an even nodes * degree, found degree {degree} and {nodes} nodes"
        )
    if degree == 2:
        # A connected one is a single cycle, which a random 2-regular graph of many nodes almost never is.
        return generator.permutation(nodes)[_circulant(nodes, [1])]
    if degree <= (nodes - 1) / 2:
        return _pair_stubs(degree, nodes, generator)
    # Pairing gets stuck where most edges are taken; the complement is as random, and sparse.
    absent = Graph(nodes, _pair_stubs(nodes - 1 - degree, nodes, generator)).adjacency.toarray()
    return np.argwhere(np.triu(absent == 0, 1))


def _pair_stubs(degree: int, nodes: int, generator: np.random.Generator) -> IndexArray:
    """A random ``degree``-regular graph, uniform in the limit of many nodes.

    Every node puts ``degree`` stubs in a bag; pairs are drawn from it, and those that would make a loop or a
    second edge go back, until the bag is empty or nothing fits and all starts anew.

    References
    ----------
    Steger and Wormald, "Generating random regular graphs quickly", Combinatorics, Probability and
    Computing 8, 1999.
    """
    while True:
        keys, stubs, failures = np.empty(0, np.int64), np.repeat(np.arange(nodes), degree), 0
        while len(stubs) and failures < _DRAWS:
            pairs = np.sort(generator.permutation(stubs).reshape(-1, 2), axis=1)
            proposed = pairs[:, 0] * nodes + pairs[:, 1]
            first = np.zeros(len(pairs), dtype=bool)
            first[np.unique(proposed, return_index=True)[1]] = True
            fits = first & (pairs[:, 0] < pairs[:, 1]) & ~np.isin(proposed, keys)
            failures = 0 if fits.any() else failures + 1
            keys, stubs = np.concatenate([keys, proposed[fits]]), pairs[~fits].ravel()
        if not len(stubs):
            return np.stack(np.divmod(keys, nodes), axis=1)


def _small_world(settings: SmallWorld, nodes: int, generator: np.random.Generator) -> IndexArray:
    if settings.k >= nodes:
        raise TopologyError(f"a small world needs k < nodes, found k {settings.k} and {nodes} nodes")
    lattice = _circulant(nodes, range(1, settings.k // 2 + 1))
    edges = {(min(i, j), max(i, j)) for i, j in lattice.tolist()}
    degrees = [settings.k] * nodes
    for i, j in lattice[generator.random(len(lattice)) < settings.p].tolist():
        if degrees[i] == nodes - 1:
            continue
        edges.remove((min(i, j), max(i, j)))
        target = _non_neighbour(i, j, nodes, edges, generator)
        edges.add((min(i, target), max(i, target)))
        degrees[j] -= 1
        degrees[target] += 1
    return np.array(sorted(edges))


def _non_neighbour(i: int, j: int, nodes: int, edges: set[tuple[int, int]], generator: np.random.Generator) -> int:
    """A random node other than i and its former neighbour j that is not joined to i."""
    while True:
        target = int(generator.integers(nodes))
        if target not in (i, j) and (min(i, target), max(i, target)) not in edges:
            return target


def _erdos_renyi(settings: ErdosRenyi, nodes: int, generator: np.random.Generator) -> IndexArray:
    pairs = nodes * (nodes - 1) // 2
    # A binomial number of pairs, chosen uniformly, has the same law as one coin per pair.
    count = int(generator.binomial(pairs, settings.p))
    _require_affordable("erdos_renyi", count)
    chosen = generator.choice(pairs, count, replace=False, shuffle=False)
    # Pair number j (j - 1) / 2 + i is (i, j), i < j. The root is exact enough for millions of nodes.
    high = ((1 + np.sqrt(1 + 8 * chosen)) / 2).astype(np.int64)
    return np.stack([chosen - high * (high - 1) // 2, high], axis=1)


def _require_affordable(name: str, edges: int) -> None:
    if edges > _MOST_EDGES:
        raise TopologyError(
            f"a topology holds at most {_MOST_EDGES:,} edges, found {edges:,} for {name}: "
            f"use fewer nodes or a sparser topology such as exponential"
        )


_FIXED: dict[str, Callable[[Any, int], IndexArray]] = {
    "ring": lambda _, nodes: _circulant(nodes, [1]),
    "line": _line,
    "star": _star,
    "complete": _complete,
    "exponential": lambda _, nodes: _circulant(nodes, _powers_of_two_below(nodes)),
    "grid": _grid,
}

_RANDOM: dict[str, Callable[[Any, int, np.random.Generator], IndexArray]] = {
    "regular": _regular,
    "small_world": _small_world,
    "erdos_renyi": _erdos_renyi,
}
