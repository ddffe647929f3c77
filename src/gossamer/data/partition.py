"""Schemes that deal examples to nodes: each node gets at least one example, and none goes to two nodes."""

from __future__ import annotations

import heapq
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializeAsAny, WrapValidator, field_validator, model_validator

from gossamer.arrays import IndexArray
from gossamer.data.partition_by_class import Dirichlet as Dirichlet
from gossamer.data.partition_by_class import Pathological as Pathological
from gossamer.data.partition_by_class import Shard as Shard
from gossamer.data.partition_scheme import Population, Scheme, sizes_of
from gossamer.errors import DataError, GossamerError, counted
from gossamer.registering import Kind

_UNUSED = -1


class Iid(Scheme):
    """Examples dealt at random, sizes equal up to one."""

    name: Literal["iid"] = "iid"

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        return generator.permutation(np.arange(len(population)) % nodes)


class Linear(Scheme):
    """Examples dealt at random; node k of 1..K gets a size in proportion to k."""

    name: Literal["linear"] = "linear"

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        weights = np.arange(1, nodes + 1, dtype=np.int64)
        ends = np.cumsum(weights) * len(population) // weights.sum()
        return generator.permutation(np.repeat(np.arange(nodes), np.diff(ends, prepend=0)))


class Sizes(Scheme):
    """Examples dealt at random; each node's size is given.

    Attributes
    ----------
    sizes : tuple of int, or tuple of float
        Numbers of examples, or shares of them that sum to at most 1; one a node. What is left is unused.
    """

    name: Literal["sizes"] = "sizes"
    sizes: (
        Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)]
        | Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], Field(min_length=1)]
    )

    @model_validator(mode="after")
    def _shares_sum_to_one_at_most(self) -> Sizes:
        if isinstance(self.sizes[0], float) and sum(self.sizes) > 1 + 1e-9:
            raise ValueError(f"shares must sum to at most 1, found {sum(self.sizes):g}")
        return self

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        size = len(population)
        if len(self.sizes) != nodes:
            raise DataError(
                f"the sizes partition names {counted(len(self.sizes), 'size')} for {counted(nodes, 'node')}; give "
                "one each"
            )
        counts = np.array(self.sizes) if isinstance(self.sizes[0], int) else sizes_of(np.array(self.sizes), size)
        if counts.sum() > size:
            raise DataError(f"the sizes partition asks for {counts.sum()} of {counted(size, 'example')}; ask for fewer")
        dealt = np.full(size, _UNUSED, np.int64)
        dealt[: counts.sum()] = np.repeat(np.arange(nodes), counts)
        return generator.permutation(dealt)


class Natural(Scheme):
    """Examples go by their owner: a node an owner in sorted order, or equally many owners a node, at random.

    Attributes
    ----------
    owners : tuple of str, optional
        The owners in the order of their nodes, one each, where their names are public: results then say them.
    """

    name: Literal["natural"] = "natural"
    owners: Annotated[tuple[str, ...] | None, Field(min_length=1)] = None

    @field_validator("owners", mode="before")
    @classmethod
    def _numbers_are_names(cls, given: Any) -> Any:
        """Let owners that are numbers in the data be written as such."""
        if not isinstance(given, list | tuple):
            return given
        return [str(owner) if isinstance(owner, int) and not isinstance(owner, bool) else owner for owner in given]

    @model_validator(mode="after")
    def _owners_differ(self) -> Natural:
        if self.owners is not None and len(set(self.owners)) < len(self.owners):
            raise ValueError(f"owners must all differ, found {list(self.owners)}")
        return self

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        if population.owners is None:
            raise DataError("the natural partition needs to know whose each example is; name the owner column")
        owners, owner = np.unique(population.owners, return_inverse=True)
        if self.owners is not None:
            return self._declared(self.owners, owners, nodes)[owner]
        if nodes > len(owners):
            raise DataError(
                f"the natural partition has {counted(len(owners), 'owner')} for {nodes} nodes; take fewer nodes"
            )
        single = nodes == len(owners)
        node = np.arange(nodes) if single else generator.permutation(np.arange(len(owners)) % nodes)
        return np.asarray(node[owner], np.int64)

    def _declared(self, declared: tuple[str, ...], owners: npt.NDArray[np.generic], nodes: int) -> IndexArray:
        """The node of each of the ``owners`` that the examples have."""
        if len(declared) != nodes:
            raise DataError(
                f"partition.owners has {counted(len(declared), 'owner')} for {counted(nodes, 'node')}; name one each"
            )
        known = {owner: node for node, owner in enumerate(declared)}
        unknown = [owner for owner in map(str, owners.tolist()) if owner not in known]
        if unknown:
            raise DataError(
                f"the examples have the owner {unknown[0]!r}, which partition.owners does not name: "
                f"{', '.join(declared[:20])}; add it, or leave its examples out"
            )
        return np.array([known[str(owner)] for owner in owners.tolist()], np.int64)


class ByPerson(Scheme):
    """Persons dealt at random, each with all examples to one node; sizes equal up to the most examples of a person."""

    name: Literal["by_person"] = "by_person"

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        if population.persons is None:
            raise DataError(
                "the by_person partition needs to know which person each example is about; name the person column "
                "(dataset.person)"
            )
        persons, person, examples = np.unique(population.persons, return_inverse=True, return_counts=True)
        if nodes > len(persons):
            raise DataError(
                f"the by_person partition has {counted(len(persons), 'person')} for {nodes} nodes; take fewer nodes"
            )
        node = np.empty(len(persons), np.int64)
        held = [(0, number) for number in range(nodes)]
        for chosen in generator.permutation(len(persons)):
            size, node[chosen] = heapq.heappop(held)
            heapq.heappush(held, (size + int(examples[chosen]), int(node[chosen])))
        return node[person]


KIND = Kind(
    "partition",
    "a",
    "gossamer.partitions",
    Scheme,
    (Iid, Dirichlet, Shard, Pathological, Linear, Sizes, Natural, ByPerson),
)
PartitionSettings = Annotated[
    Iid | Dirichlet | Shard | Pathological | Linear | Sizes | Natural | ByPerson,
    Field(discriminator="name"),
    WrapValidator(KIND.known),
    SerializeAsAny(),
]
"""Any of the schemes, told apart by ``name``."""


def partition(
    settings: PartitionSettings,
    targets: npt.NDArray[np.generic],
    nodes: int,
    generator: np.random.Generator,
    owners: npt.NDArray[np.generic] | None = None,
    persons: npt.NDArray[np.generic] | None = None,
) -> list[IndexArray]:
    """Deal training examples to nodes.

    Parameters
    ----------
    settings : PartitionSettings
        The scheme.
    targets : ndarray [n]
        Class numbers, or real targets where the scheme does not go by class.
    nodes : int
        How many nodes there are, K.
    generator : Generator
        Public randomness.
    owners : ndarray [n], optional
        Whose example each one is, for the natural partition.
    persons : ndarray [n], optional
        Which person each example is about, for the partition by_person.

    Returns
    -------
    list of K index arrays of int64
        Each node's examples, rising, at least one, and none at two nodes.

    Raises
    ------
    DataError
        If the examples, their classes or their owners do not suffice for what is asked.
    """
    if not 1 <= nodes <= len(targets):
        raise DataError(
            f"{counted(len(targets), 'example')} cannot be dealt to {counted(nodes, 'node')}; each needs at least one"
        )
    population = Population(targets, owners, persons)
    own = isinstance(settings, KIND.own)
    assign = settings.assign if own else partial(_of_others, settings)
    assignment = assign(population, nodes, generator)
    order = np.argsort(assignment, kind="stable")
    starts = np.searchsorted(assignment[order], np.arange(nodes + 1))
    if (empty := np.flatnonzero(np.diff(starts) == 0)).size:
        raise DataError(
            f"the {settings.name} partition of {counted(len(targets), 'example')} leaves node {empty[0]} of {nodes} "
            "without any; take fewer nodes or give it a larger share"
        )
    return [order[start:end] for start, end in pairwise(starts)]


def _of_others(settings: Scheme, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
    """The assignment by a scheme that is another distribution's, whose code may do anything."""
    what = type(settings).__name__
    try:
        found = np.asarray(settings.assign(population, nodes, generator))
    except GossamerError:
        raise
    except Exception as error:
        raise DataError(f"the partition {what} cannot deal to {nodes} nodes: {type(error).__name__}: {error}") from None
    if found.shape != (len(population),) or found.dtype.kind not in "iu":
        raise DataError(
            f"the partition {what} must give a node's number for each of {len(population)} examples, found "
            f"{found.dtype} {list(found.shape)}; correct its assign"
        )
    if found.min() < _UNUSED or found.max() >= nodes:
        raise DataError(
            f"the partition {what} must give node numbers from -1 (none) to {nodes - 1}, found {found.min()} to "
            f"{found.max()}; correct its assign"
        )
    return found.astype(np.int64)
