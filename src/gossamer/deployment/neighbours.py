"""Whom a node talks to from the start."""

from __future__ import annotations

from gossamer.experiment.prepare import Prepared


def neighbours(prepared: Prepared, name: str) -> tuple[str, ...]:
    """The nodes that ``name`` exchanges messages with, in order.

    In units, an agent has its server, and a server its agents and its neighbours in the graph; in a tree, each node has
    its parent and its children; otherwise the graph says it.
    """
    named = prepared.cast.servers
    if prepared.units:
        return _in_units(prepared, name, named)
    if parents := prepared.cast.parents:
        children = tuple(child for child, parent in parents.items() if parent == name)
        return (*children, *((parents[name],) if name in parents else ()))
    return _on_graph(prepared, name, prepared.names)


def _in_units(prepared: Prepared, name: str, named: tuple[str, ...]) -> tuple[str, ...]:
    unit = prepared.units[name]
    if name not in named:
        return (unit,)
    agents = tuple(agent for agent in prepared.names if prepared.units[agent] == unit)
    return (*agents, *_on_graph(prepared, name, named))


def _on_graph(prepared: Prepared, name: str, members: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(members[j] for j in prepared.graph.neighbours(members.index(name)))
