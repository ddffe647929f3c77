"""Graphs over nodes 0..n-1; topologies: their settings, the pairs they join, the graph that follows.

In a spec a bare name stands for the kind with its defaults: ``topology: ring`` and ``topology: {name: ring}`` are one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    WrapValidator,
    field_validator,
)
from scipy.sparse import csgraph

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError, TopologyError
from gossamer.files import read_text
from gossamer.section import Kind, Section, bare
from gossamer.topology.directed import both_ways, one_peer_exponential, random_matchings, require_strongly_connected

Names = Sequence[str] | None

_LISTED = 5
"""How many components or nodes an error message lists before it gives a number instead."""


@dataclass(frozen=True, eq=False)
class Graph:
    """An undirected graph without loops. Two graphs with the same nodes and edges are equal.

    Parameters
    ----------
    nodes : int
        Number of nodes, at least 1.
    edges : array-like [m, 2] of int
        Pairs of nodes, in any order, repetitions allowed.
    arcs : tuple of ndarray [arcs, 2]
        Sender and receiver of each arc, of each step in turn, where edges are not used both ways all the time. The
        edges are then all pairs that are in an arc.

    Attributes
    ----------
    edges : ndarray [edges, 2] of int64
        Each edge once as (i, j) with i < j, in lexicographic order. Read-only.

    Raises
    ------
    TopologyError
        There is no node, an edge joins a node to itself, or an edge names a node that does not exist.
    """

    nodes: int
    edges: IndexArray
    arcs: tuple[IndexArray, ...] = ()

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise TopologyError(f"a graph needs at least 1 node, found {self.nodes}")
        edges = np.asarray(self.edges, dtype=np.int64).reshape(-1, 2)
        _check_edges(self.nodes, edges)
        low, high = edges.min(axis=1), edges.max(axis=1)
        unique = np.stack(np.divmod(np.unique(low * self.nodes + high), self.nodes), axis=1)
        unique.setflags(write=False)
        object.__setattr__(self, "edges", unique)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        alike = self.nodes == other.nodes and np.array_equal(self.edges, other.edges)
        return alike and len(self.arcs) == len(other.arcs) and all(map(np.array_equal, self.arcs, other.arcs))

    def __hash__(self) -> int:
        return hash((self.nodes, self.edges.tobytes()))

    @property
    def steps(self) -> tuple[IndexArray, ...]:
        """Arcs of each step in turn; of an undirected graph, both ways of all edges."""
        return self.arcs or (both_ways(self.edges),)

    @cached_property
    def adjacency(self) -> sp.csr_array:
        """Symmetric 0/1 matrix, [nodes, nodes], with sorted column indices."""
        tails, heads = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        ones = np.ones(len(tails), dtype=np.int8)
        matrix = sp.csr_array((ones, (tails, heads)), shape=(self.nodes, self.nodes))
        matrix.sort_indices()
        return matrix

    def neighbours(self, node: int) -> tuple[int, ...]:
        """The nodes joined to ``node``, in ascending order."""
        start, stop = self.adjacency.indptr[node : node + 2]
        return tuple(self.adjacency.indices[start:stop].tolist())

    @cached_property
    def degrees(self) -> IndexArray:
        """Numbers of neighbours of each node, [nodes]."""
        return np.bincount(self.edges.ravel(), minlength=self.nodes).astype(np.int64)

    @cached_property
    def components(self) -> IndexArray:
        """The number, from 0, of the connected component that each node is in, [nodes]."""
        labels: IndexArray = csgraph.connected_components(self.adjacency, directed=False)[1].astype(np.int64)
        return labels

    @property
    def connected(self) -> bool:
        """Whether there is a path between any two nodes."""
        return not self.components.any()


def _check_edges(nodes: int, edges: IndexArray) -> None:
    unknown = edges[((edges < 0) | (edges >= nodes)).any(axis=1)]
    if len(unknown):
        raise TopologyError(f"edges join nodes 0 to {nodes - 1}, found {tuple(unknown[0].tolist())}")
    loops = edges[edges[:, 0] == edges[:, 1]]
    if len(loops):
        raise TopologyError(f"an edge joins two different nodes, found {tuple(loops[0].tolist())}")


def label(node: int, names: Names) -> str:
    """A node's name where it has one, else its number, for messages."""
    return str(node) if names is None else names[node]


def require_connected(graph: Graph, names: Names = None, *, advice: str = "add edges between them") -> None:
    """Raise unless every node can reach every other.

    Parameters
    ----------
    graph : Graph
        Any graph.
    names : sequence of ``nodes`` str, optional
        Node names for the message.
    advice : str
        Advice that the message gives the caller.

    Raises
    ------
    TopologyError
        The graph is in pieces; the message gives their sizes and a node of each, largest first.
    """
    if graph.connected:
        return
    components, members, sizes = np.unique(graph.components, return_index=True, return_counts=True)
    order = np.argsort(-sizes, kind="stable")[:_LISTED]
    listed = ", ".join(f"{sizes[c]} with node {label(int(members[c]), names)}" for c in order)
    more = f", and {len(components) - _LISTED} more" if len(components) > _LISTED else ""
    raise TopologyError(
        f"the graph must be connected, found {len(components)} components, of sizes {listed}{more}: {advice}"
    )


_NAMED = 10
"""Up to so many dropped edges are named in the warning; of more, the number is given."""


class DroppedEdges(UserWarning):
    """Some edges of the topology join two senders or two receivers and are left unused."""


@dataclass(frozen=True, eq=False)
class BipartiteSplit:
    """A graph's nodes in two parts.

    Attributes
    ----------
    senders, receivers : frozenset of int
        Together all nodes. Node 0 is a sender.
    kept : Graph
        The edges between a sender and a receiver. Connected.
    dropped : ndarray [edges, 2] of int64
        The edges inside a part.
    """

    senders: frozenset[int]
    receivers: frozenset[int]
    kept: Graph
    dropped: IndexArray


def bipartite_split(graph: Graph, names: Names = None) -> BipartiteSplit:
    """Senders and receivers, keeping all edges of a bipartite graph and at least half of any other's.

    Nodes are visited breadth first from node 0. Each joins the part in which it has fewer neighbours so far,
    and at a tie the part that the neighbour it was reached from is not in. An odd ring loses one edge.

    Parameters
    ----------
    graph : Graph
        Connected.
    names : sequence of str, optional
        Node names for the warning.

    Warns
    -----
    DroppedEdges
        Some edges lie inside a part; the warning names them, or their number if there are more than 10.

    Raises
    ------
    TopologyError
        The graph is not connected.
    """
    require_connected(graph, names)
    # Why what is kept is connected: a node that is visited has a visited neighbour, the one it was reached
    # from, so the part with more of its visited neighbours has at least one, and the node joins the other
    # part (at a tie, the neighbour it was reached from serves). Its edge to an earlier node is kept, and
    # following such edges leads from every node to node 0.
    # Why a bipartite graph loses nothing: by induction parts are parities of the distance from node 0, so a
    # node's visited neighbours are all in one part.
    sender = _greedy_parts(graph)
    inside = sender[graph.edges[:, 0]] == sender[graph.edges[:, 1]]
    dropped = graph.edges[inside]
    if len(dropped):
        warnings.warn(_describe(dropped, names), DroppedEdges, stacklevel=2)
    return BipartiteSplit(
        senders=frozenset(np.flatnonzero(sender).tolist()),
        receivers=frozenset(np.flatnonzero(~sender).tolist()),
        kept=Graph(graph.nodes, graph.edges[~inside]),
        dropped=dropped,
    )


def _greedy_parts(graph: Graph) -> npt.NDArray[np.bool_]:
    """Whether each node is a sender, [nodes]."""
    order, predecessors = csgraph.breadth_first_order(graph.adjacency, 0, directed=False)
    indptr, indices = graph.adjacency.indptr, graph.adjacency.indices
    side = np.zeros(graph.nodes, dtype=np.int64)  # 1 sender, -1 receiver, 0 not visited
    side[0] = 1
    for node in order[1:].tolist():
        lead = side[indices[indptr[node] : indptr[node + 1]]].sum()
        side[node] = -np.sign(lead) or -side[predecessors[node]]
    return side > 0


def _describe(dropped: IndexArray, names: Names) -> str:
    named = ", ".join(f"{label(i, names)} - {label(j, names)}" for i, j in dropped[:_NAMED].tolist())
    what = f"{len(dropped)} edge(s)" + (f" ({named})" if len(dropped) <= _NAMED else "")
    return f"the bipartite exchange leaves {what} unused, between two senders or two receivers"


_DRAWS = 20
"""Most draws of a random graph, because those before were not connected."""

_MOST_EDGES = 50_000_000
"""About a gigabyte as an array; who asks for more meant something else."""


class OwnTopology(Section):
    """Base of topologies, also of those of other distributions, registered in the group ``gossamer.topologies``.

    A class has a ``name: Literal["..."] = "..."``, its settings, and `edges`.
    """

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


def _circulant(nodes: int, offsets: Iterable[int]) -> IndexArray:
    """Every node joined to the one ``offset`` further, modulo ``nodes``, for each offset."""
    starts = np.arange(nodes)
    pairs = [np.stack([starts, (starts + offset) % nodes], axis=1) for offset in offsets]
    return np.concatenate(pairs)


def _require_affordable(name: str, edges: int) -> None:
    if edges > _MOST_EDGES:
        raise TopologyError(
            f"a topology holds at most {_MOST_EDGES:,} edges, found {edges:,} for {name}: "
            f"use fewer nodes or a sparser topology such as exponential"
        )


class Ring(OwnTopology):
    """Node i is joined to i - 1 and i + 1, modulo the number of nodes."""

    name: Literal["ring"] = "ring"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return _circulant(nodes, [1])


class LineTopology(OwnTopology):
    """Node i is joined to i - 1 and i + 1, where they exist."""

    name: Literal["line"] = "line"

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        return _circulant(nodes, [1])[:-1]


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
        return _circulant(nodes, [1 << k for k in range((nodes - 1).bit_length())])


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
        raise TopologyError(
            f"a grid of {nodes} nodes, a prime number, is only a line: "
            f"use {nodes - 1} or {nodes + 1} nodes, topology line, or set rows: 1"
        )
    return rows


class Regular(_RandomTopology):
    """A random graph in which every node has ``degree`` neighbours."""

    name: Literal["regular"] = "regular"
    degree: int = Field(default=3, ge=1)

    def edges(self, nodes: int, generator: np.random.Generator) -> IndexArray:
        degree = self.degree
        if degree >= nodes or nodes * degree % 2:
            raise TopologyError(
                f"a regular graph needs degree < nodes and an even nodes * degree, found degree {degree} and {nodes} "
                "nodes"
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
        lattice = _circulant(nodes, range(1, self.k // 2 + 1))
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


class _Directed(OwnTopology):
    """Base of graphs whose edges are not used both ways all the time."""

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        """Arcs (sender, receiver) of each step in turn, [arcs, 2]."""
        raise NotImplementedError


class DirectedRing(_Directed):
    """Node i sends to i + 1, modulo the number of nodes."""

    name: Literal["directed_ring"] = "directed_ring"

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return [_circulant(nodes, [1])]


class Arcs(_Directed):
    """Arcs read from a text file like ``edges``: the first node of a line sends to the second."""

    name: Literal["arcs"] = "arcs"
    path: Path

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return [read_edges(self.path, nodes, names)]


class OnePeerExponential(_Directed):
    """Node i sends to i + 2^k, modulo the number of nodes, with another k in each step: one peer at a time."""

    name: Literal["one_peer_exponential"] = "one_peer_exponential"

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return one_peer_exponential(nodes)


class RandomMatchings(_Directed):
    """Pairs of nodes exchange both ways, drawn anew for each step.

    Attributes
    ----------
    steps : int
        Number of steps that are drawn; they follow each other again and again.
    """

    name: Literal["random_matchings"] = "random_matchings"
    steps: int = Field(default=32, ge=1, le=10_000)

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        return random_matchings(nodes, self.steps, generator)


_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
"""Schema of a list of topologies, by their names: a schema that holds itself would have no end."""


class Schedule(_Directed):
    """Topologies that follow each other, a step each, again and again.

    Attributes
    ----------
    schedule : list of topologies
        Topologies of the steps. Not each of them has to be connected, but all together.
    """

    name: Literal["schedule"] = "schedule"
    schedule: Annotated[tuple[Any, ...], WithJsonSchema(_TEXTS)] = Field(min_length=1)

    @field_validator("schedule", mode="before")
    @classmethod
    def _of_ours(cls, content: Any) -> Any:
        if not isinstance(content, list | tuple):
            raise ValueError(f"expected a list of topologies, found {content!r}")
        for one in content:
            name = one.get("name") if isinstance(one, Mapping) else getattr(one, "name", one)
            if name not in KIND.names:
                raise ValueError(f"expected topologies of Gossamer's own, found {one!r}; take one of {KIND.names}")
        return tuple(map(parse_topology, content))

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        found: list[IndexArray] = []
        for one in self.schedule:
            if isinstance(one, _Directed):
                found += one.arcs(nodes, generator, names)
            else:
                found.append(both_ways(_edges(one, nodes, generator, names)))
        return found


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


_OWN = (
    *(Ring, LineTopology, Star, Complete, Exponential, GridTopology, Regular, SmallWorld, ErdosRenyi, EdgeList),
    *(DirectedRing, Arcs, OnePeerExponential, RandomMatchings, Schedule),
)
KIND = Kind("topology", "gossamer.topologies", _OWN, OwnTopology)


def _named(value: Any) -> Any:
    return {"name": "schedule", **value} if isinstance(value, Mapping) and "schedule" in value else value


Topology = Annotated[
    Ring
    | LineTopology
    | Star
    | Complete
    | Exponential
    | GridTopology
    | Regular
    | SmallWorld
    | ErdosRenyi
    | EdgeList
    | DirectedRing
    | Arcs
    | OnePeerExponential
    | RandomMatchings
    | Schedule,
    Field(discriminator="name"),
    WrapValidator(KIND.known),
    SerializeAsAny(),
    bare("name"),
    BeforeValidator(_named),
]
"""Any of the settings above; as a field of a pydantic model it takes a bare name too."""

_ADAPTER: TypeAdapter[Topology] = TypeAdapter(Topology)


def parse_topology(value: Topology | str | dict[str, Any]) -> Topology:
    """Settings from a bare name, a mapping, or settings as they are.

    Raises
    ------
    SpecError
        The name is unknown, or a setting is unknown or out of range.
    """
    try:
        return _ADAPTER.validate_python(value)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ") for problem in error.errors()
        )
        raise SpecError(f"topology {value!r} is not understood: {problems}") from None


def build_graph(
    settings: Topology | str,
    nodes: int,
    generator: np.random.Generator,
    names: Names = None,
    *,
    directed: bool = False,
) -> Graph:
    """The connected graph that ``settings`` describe; strongly connected over all its steps, if it has arcs.

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
    directed : bool
        Whether the graph may have arcs of one way, and change from step to step.

    Raises
    ------
    SpecError
        The settings are not understood.
    TopologyError
        The graph has arcs and may not, no such graph has so many nodes, an edge list file is malformed, or the graph is
        not connected.
    """
    settings = parse_topology(settings)
    if nodes < 1:
        raise TopologyError(f"a topology needs at least 1 node, found {nodes}")
    if names is not None and len(names) != nodes:
        raise TopologyError(f"expected a name for each of {nodes} nodes, found {len(names)} names")
    if nodes == 1:
        return Graph(1, np.empty((0, 2), np.int64))
    if isinstance(settings, _Directed):
        if not directed:
            raise TopologyError(
                f"topology {settings.name} is directed or changes from step to step, which only push_sum can use; take "
                "that, or another topology"
            )
        arcs = settings.arcs(nodes, generator, names)
        graph = Graph(nodes, np.concatenate(arcs), tuple(arcs))
        require_strongly_connected(nodes, arcs, names)
        return graph
    for _ in range(settings.draws):
        graph = Graph(nodes, _edges(settings, nodes, generator, names))
        if graph.connected:
            return graph
    if isinstance(settings, EdgeList):
        advice = f"add edges between them to {settings.path}"
    elif settings.draws > 1:
        advice = f"none of {settings.draws} draws of {settings.name} was connected, so ask for more edges"
    else:
        advice = f"have {type(settings).__name__}.edges join them"
    require_connected(graph, names, advice=advice)
    raise AssertionError("the last draw was not connected")


def _edges(settings: OwnTopology, nodes: int, generator: np.random.Generator, names: Names) -> IndexArray:
    """The pairs that a topology joins; one of another distribution may do anything."""
    if isinstance(settings, EdgeList):
        return read_edges(settings.path, nodes, names)
    what = type(settings).__name__
    try:
        edges = np.asarray(settings.edges(nodes, generator))
    except TopologyError:
        raise
    except Exception as error:
        raise TopologyError(f"the topology {what} cannot join {nodes} nodes: {type(error).__name__}: {error}") from None
    if edges.size and not (edges.ndim == 2 and edges.shape[1] == 2 and edges.dtype.kind in "iu"):
        raise TopologyError(
            f"the topology {what} must give pairs of node numbers, [edges, 2], found {edges.dtype} "
            f"{list(edges.shape)}; correct its edges"
        )
    return edges.astype(np.int64)
