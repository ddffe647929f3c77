"""Parties that a node talks to from the start."""

from __future__ import annotations

from gossamer.experiment.prepared import Prepared


def neighbours(prepared: Prepared, name: str) -> tuple[str, ...]:
    """The nodes that ``name`` exchanges messages with, in order.

    Its children, where the algorithm has it above others, and its parent; without one, its neighbours in the graph, if
    that joins it.
    """
    cast = prepared.cast
    children = tuple(child for child, parent in cast.parents.items() if parent == name)
    if name in cast.parents:
        return (*children, cast.parents[name])
    if name not in cast.joined:
        return children
    return (*children, *(cast.joined[number] for number in prepared.graph.neighbours(cast.joined.index(name))))
