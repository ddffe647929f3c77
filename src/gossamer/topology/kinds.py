"""Kinds of undirected graphs: their settings, and the pairs of nodes that they join."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from gossamer.arrays import IndexArray
from gossamer.errors import TopologyError, failing_as
from gossamer.files import read_text, words_beside
from gossamer.section import Section
from gossamer.topology.graphs import Graph, Names

_WORDS = words_beside(__file__)
_DRAWS = 20
"""Most draws of a random graph, because those before were not connected."""

_MOST_EDGES = 50_000_000
"""About a gigabyte as an array; who asks for more meant something else."""


class OwnTopology(Section):
    """Base of topologies, also of those of other distributions, registered in the group ``gossamer.topologies``.

    A class has a ``name: Literal["..."] = "..."``, its settings, and `edges`.
    """

    name: str
    draws: ClassVar[int] = 1
    """Number of times that edges are drawn until the graph is connected."""

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        """Pairs of nodes that are joined, [edges, 2], of 0..nodes - 1.

        Parameters
        ----------
        nodes : int
            Number of nodes, 2 or more.
        generator : numpy Generator
            Public randomness, the same at all parties.
        """
        raise NotImplementedError


class _RandomTopology(OwnTopology):
    """Base of random topologies: the law of `edges`, given that the graph is connected."""

    draws: ClassVar[int] = _DRAWS


def circulant(nodes: int, offsets: Iterable[int]) -> IndexArray:
    """Every node joined to the one ``offset`` further, modulo ``nodes``, for each offset."""
    starts = np.arange(nodes)
    pairs = [np.stack([starts, (starts + offset) % nodes], axis=1) for offset in offsets]
    return np.concatenate(pairs)


def _require_affordable(name: str, edges: int) -> None:
    if edges > _MOST_EDGES:
        raise TopologyError(_WORDS["edges"].format(_MOST_EDGES, edges, name))


class Ring(OwnTopology):
    """Node i is joined to i - 1 and i + 1, modulo the number of nodes."""

    name: Literal["ring"] = "ring"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return circulant(nodes, [1])


class LineTopology(OwnTopology):
    """Node i is joined to i - 1 and i + 1, where they exist."""

    name: Literal["line"] = "line"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return circulant(nodes, [1])[:-1]


class Star(OwnTopology):
    """Node 0 is joined to every other."""

    name: Literal["star"] = "star"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return np.stack([np.zeros(nodes - 1, np.int64), np.arange(1, nodes)], axis=1)


class Complete(OwnTopology):
    """Every node is joined to every other."""

    name: Literal["complete"] = "complete"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        _require_affordable("complete", nodes * (nodes - 1) // 2)
        return np.stack(np.triu_indices(nodes, 1), axis=1)


class Exponential(OwnTopology):
    """Node i is joined to i - 2^k and i + 2^k, modulo the number of nodes, for every 2^k below it."""

    name: Literal["exponential"] = "exponential"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return circulant(nodes, [1 << k for k in range((nodes - 1).bit_length())])


class GridTopology(OwnTopology):
    """Nodes in rows and columns, numbered row by row, each joined to those beside, above and below.

    Attributes
    ----------
    torus : bool
        Whether the last row is joined to the first and the last column to the first.
    rows : int or None
        Must divide the number of nodes. None takes the most square shape, with at least two rows for more
        than three nodes: a prime number of nodes is refused, since its only grid is a line.
    """

    name: Literal["grid"] = "grid"
    torus: bool = False
    rows: int | None = Field(default=None, ge=1)

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        rows = self.rows or _most_square(nodes)
        if nodes % rows:
            raise TopologyError(f"a grid of {rows} rows needs a multiple of {rows} nodes, found {nodes}")
        places = np.arange(nodes).reshape(rows, nodes // rows)
        return np.concatenate([self._steps(places), self._steps(places.T)]).reshape(-1, 2)

    def _steps(self, places: IndexArray) -> IndexArray:
        """Each place with the one below it; on a torus also the last row with the first."""
        # Around a side of 1 or 2 the wrap would be a loop, or an edge that is there already.
        below = np.roll(places, -1, axis=0) if self.torus and len(places) > 2 else places[1:]
        return np.stack([places[: len(below)].ravel(), below.ravel()], axis=1)


def _most_square(nodes: int) -> int:
    """The largest divisor of ``nodes`` up to its square root; a prime above 3 is refused."""
    rows = next(rows for rows in range(math.isqrt(nodes), 0, -1) if nodes % rows == 0)
    if rows == 1 and nodes > 3:
        raise TopologyError(_WORDS["prime"].format(nodes, nodes - 1, nodes + 1))
    return rows


class Regular(_RandomTopology):
    """A random graph in which every node has ``degree`` neighbours."""

    name: Literal["regular"] = "regular"
    degree: int = Field(default=3, ge=1)

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        degree = self.degree
        if degree >= nodes or nodes * degree % 2:
            raise TopologyError(_WORDS["degree"].format(degree, nodes))
        if degree == 2:
            # A connected one is a single cycle, which a random 2-regular graph of many nodes almost never is.
            return generator.permutation(nodes)[circulant(nodes, [1])]
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


class SmallWorld(_RandomTopology):
    """A ring in which each node knows its ``k`` nearest; each edge is rewired with probability ``p``.

    References
    ----------
    Watts and Strogatz, "Collective dynamics of 'small-world' networks", Nature 393, 1998.
    """

    name: Literal["small_world"] = "small_world"
    k: int = Field(default=4, ge=2, multiple_of=2)
    p: float = Field(default=0.1, ge=0, le=1)

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        if self.k >= nodes:
            raise TopologyError(f"a small world needs k < nodes, found k {self.k} and {nodes} nodes")
        lattice = circulant(nodes, range(1, self.k // 2 + 1))
        edges = {(min(i, j), max(i, j)) for i, j in lattice.tolist()}
        degrees = [self.k] * nodes
        for i, j in lattice[generator.random(len(lattice)) < self.p].tolist():
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


class ErdosRenyi(_RandomTopology):
    """Each pair of nodes is joined with probability ``p``, independently (given that the graph connects)."""

    name: Literal["erdos_renyi"] = "erdos_renyi"
    p: float = Field(gt=0, le=1)

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        pairs = nodes * (nodes - 1) // 2
        # A binomial number of pairs, chosen uniformly, has the same law as one coin per pair.
        count = int(generator.binomial(pairs, self.p))
        _require_affordable("erdos_renyi", count)
        chosen = generator.choice(pairs, count, replace=False, shuffle=False)
        # Pair number j (j - 1) / 2 + i is (i, j), i < j. The root is exact enough for millions of nodes.
        high = ((1 + np.sqrt(1 + 8 * chosen)) / 2).astype(np.int64)
        return np.stack([chosen - high * (high - 1) // 2, high], axis=1)


class EdgeList(OwnTopology):
    """Edges read from a text file: two node numbers (from 0) or node names a line, ``#`` for comments."""

    name: Literal["edges"] = "edges"
    path: Path


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
    with failing_as(TopologyError, f"expected an edge list, a readable text file, at {path}: "):
        lines = read_text(path).splitlines()
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


ALL = (Ring, LineTopology, Star, Complete, Exponential, GridTopology, Regular, SmallWorld, ErdosRenyi, EdgeList)
"""The kinds that a spec names."""
