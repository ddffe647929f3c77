"""Topologies: which kind of graph a spec asks for, and the graph that follows.

In a spec a bare name stands for the kind with its defaults: ``topology: ring`` and ``topology: {name: ring}`` are one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
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

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError, TopologyError, did_you_mean
from gossamer.mistakes import first_of
from gossamer.section import Kind, bare
from gossamer.topology import directed, kinds
from gossamer.topology.directed import Directed, require_strongly_connected
from gossamer.topology.graphs import Graph, Names, both_ways, require_connected
from gossamer.topology.kinds import EdgeList, OwnTopology, read_edges

_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}
"""Schema of a list of topologies, by their names: a schema that holds itself would have no end."""


class Schedule(Directed):
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
                hint = did_you_mean(str(name), KIND.names)
                raise ValueError(f"expected topologies of Gossamer's own, found {one!r}{hint}")
        return tuple(map(parse_topology, content))

    def arcs(self, nodes: int, generator: np.random.Generator, names: Names) -> list[IndexArray]:
        found: list[IndexArray] = []
        for one in self.schedule:
            if isinstance(one, Directed):
                found += one.arcs(nodes, generator, names)
            else:
                found.append(both_ways(_edges(one, nodes, generator, names)))
        return found


_OWN = (*kinds.ALL, *directed.ALL, Schedule)
KIND = Kind("topology", "gossamer.topologies", _OWN, OwnTopology)


def _named(value: Any) -> Any:
    return {"name": "schedule", **value} if isinstance(value, Mapping) and "schedule" in value else value


if TYPE_CHECKING:
    Topology = OwnTopology
else:
    Topology = Annotated[
        reduce(or_, _OWN),
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
        raise SpecError(f"topology {value!r} is not understood: {first_of(error)}") from None


def build_graph(
    settings: Topology | str, nodes: int, generator: np.random.Generator, names: Names = None, *, directed: bool = False
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
    if isinstance(settings, Directed):
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
