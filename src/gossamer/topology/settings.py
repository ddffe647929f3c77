"""Settings by which a user chooses a topology: one frozen model per kind, told apart by ``name``.

In a spec a bare name stands for the kind with its defaults, so ``topology: ring`` and
``topology: {name: ring}`` are the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, SerializeAsAny, TypeAdapter, ValidationError, WrapValidator

from gossamer.arrays import IndexArray
from gossamer.errors import SpecError
from gossamer.registering import Kind
from gossamer.section import Section, bare


class Ring(Section):
    """Node i is joined to i - 1 and i + 1, modulo the number of nodes."""

    name: Literal["ring"] = "ring"


class LineTopology(Section):
    """Node i is joined to i - 1 and i + 1, where they exist."""

    name: Literal["line"] = "line"


class Star(Section):
    """Node 0 is joined to every other."""

    name: Literal["star"] = "star"


class Complete(Section):
    """Every node is joined to every other."""

    name: Literal["complete"] = "complete"


class Exponential(Section):
    """Node i is joined to i - 2^k and i + 2^k, modulo the number of nodes, for every 2^k below it."""

    name: Literal["exponential"] = "exponential"


class GridTopology(Section):
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


class Regular(Section):
    """A random graph in which every node has ``degree`` neighbours."""

    name: Literal["regular"] = "regular"
    degree: int = Field(default=3, ge=1)


class SmallWorld(Section):
    """A ring in which each node knows its ``k`` nearest; each edge is rewired with probability ``p``.

    References
    ----------
    Watts and Strogatz, "Collective dynamics of 'small-world' networks", Nature 393, 1998.
    """

    name: Literal["small_world"] = "small_world"
    k: int = Field(default=4, ge=2, multiple_of=2)
    p: float = Field(default=0.1, ge=0, le=1)


class ErdosRenyi(Section):
    """Each pair of nodes is joined with probability ``p``, independently (given that the graph connects)."""

    name: Literal["erdos_renyi"] = "erdos_renyi"
    p: float = Field(gt=0, le=1)


class EdgeList(Section):
    """Edges read from a text file: two node numbers (from 0) or node names a line, ``#`` for comments."""

    name: Literal["edges"] = "edges"
    path: Path


class OwnTopology(Section):
    """Base of topologies of other distributions, which register them in the group ``gossamer.topologies``.

    A class has a ``name: Literal["..."] = "..."``, its settings, and `edges`.
    """

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


KIND = Kind(
    "topology",
    "a",
    "gossamer.topologies",
    OwnTopology,
    (Ring, LineTopology, Star, Complete, Exponential, GridTopology, Regular, SmallWorld, ErdosRenyi, EdgeList),
)
Topology = Annotated[
    Ring | LineTopology | Star | Complete | Exponential | GridTopology | Regular | SmallWorld | ErdosRenyi | EdgeList,
    Field(discriminator="name"),
    WrapValidator(KIND.known),
    SerializeAsAny(),
    bare("name"),
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
