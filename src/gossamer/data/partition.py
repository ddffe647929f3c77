"""Schemes that deal examples to nodes: each node gets at least one example, and none goes to two nodes.

References
----------
The schemes are named as in the field's libraries. `Shard`: McMahan et al., "Communication-efficient learning of
deep networks from decentralized data", AISTATS 2017, section 3. `Dirichlet`: Hsu, Qi, Brown, "Measuring the
effects of non-identical data distribution for federated visual classification", 2019; Yurochkin et al., "Bayesian
nonparametric federated learning of neural networks", ICML 2019, section 4 (the form used here, by class).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, SerializeAsAny, WrapValidator, field_validator

from gossamer.arrays import Floats, IndexArray
from gossamer.errors import DataError, GossamerError, counted
from gossamer.section import Kind, Section


@dataclass(frozen=True)
class Population:
    """The targets, owners and persons of the training examples, [n] each, which schemes look at."""

    targets: npt.NDArray[np.generic]
    owners: npt.NDArray[np.generic] | None
    persons: npt.NDArray[np.generic] | None

    def __len__(self) -> int:
        return len(self.targets)

    def members(self, scheme: str) -> list[IndexArray]:
        """The examples of each class that occurs, in order of their numbers."""
        if self.targets.dtype.kind not in "iu":
            raise DataError(f"the {scheme} partition goes by class, but the targets are real numbers; take iid")
        order = np.argsort(self.targets, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(self.targets[order])) + 1)


class Scheme(Section):
    """Base of the schemes, also of those that other distributions register in the group ``gossamer.partitions``.

    A class has a ``name: Literal["..."] = "..."``, its settings, and `assign`.
    """

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        """The node of each example, [n]; -1 for one that no node gets."""
        raise NotImplementedError


def sizes_of(shares: Floats, total: int) -> IndexArray:
    """Whole sizes in proportion to ``shares``: the running sum is rounded, so shares of 1 in all use all."""
    ends = np.floor(np.cumsum(shares) * total + 1e-6).astype(np.int64).clip(max=total)
    return np.diff(ends, prepend=0)


# A draw that fails a hundred times is one that the user should change, not wait for.
_DRAWS = 100


class Dirichlet(Scheme):
    """Each class is split in proportions drawn from a symmetric Dirichlet law over the nodes.

    Attributes
    ----------
    alpha : float
        Concentration: about 0.1 gives nodes with few classes, 100 is nearly iid.
    min_examples : int
        Proportions are drawn anew until every node has this many examples.
    """

    name: Literal["dirichlet"] = "dirichlet"
    alpha: float = Field(default=0.5, gt=0, allow_inf_nan=False)
    min_examples: int = Field(default=10, ge=1)

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        members = population.members(self.name)
        fewest = 0
        for _ in range(_DRAWS):
            shares = [sizes_of(generator.dirichlet(np.full(nodes, self.alpha)), len(of_class)) for of_class in members]
            fewest = max(fewest, int(np.sum(shares, axis=0).min()))
            if fewest >= self.min_examples:
                assignment = np.empty(len(population), np.int64)
                for of_class, sizes in zip(members, shares):
                    assignment[of_class] = generator.permutation(np.repeat(np.arange(nodes), sizes))
                return assignment
        raise DataError(
            f"the dirichlet partition found no draw in {_DRAWS} that gives each of {counted(nodes, 'node')} "
            f"{self.min_examples} of {counted(len(population), 'example')} (the best gave {fewest}); "
            f"raise alpha ({self.alpha:g}), lower min_examples or take fewer nodes"
        )


class Shard(Scheme):
    """Examples sorted by class are cut into equal shards, and each node gets so many of them at random.

    Attributes
    ----------
    shards_per_node : int
        2 is usual: most nodes then see two classes.
    """

    name: Literal["shard"] = "shard"
    shards_per_node: int = Field(default=2, ge=1)

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        size, shards = len(population), nodes * self.shards_per_node
        if shards > size:
            raise DataError(
                f"the shard partition needs {nodes} x {self.shards_per_node} shards, but there are only {size} "
                "examples; take fewer nodes or a smaller shards_per_node"
            )
        order = np.concatenate([generator.permutation(of_class) for of_class in population.members(self.name)])
        node_of_shard = generator.permutation(np.repeat(np.arange(nodes), self.shards_per_node))
        assignment = np.empty(size, np.int64)
        assignment[order] = node_of_shard[np.arange(size) * shards // size]
        return assignment


class Pathological(Scheme):
    """Each node holds exactly so many classes; the nodes of a class share its examples equally, up to one.

    Attributes
    ----------
    classes_per_node : int
        2 is usual. Classes are held by equally many nodes, up to one.
    """

    name: Literal["pathological"] = "pathological"
    classes_per_node: int = Field(default=2, ge=1)

    def assign(self, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
        members = population.members(self.name)
        self._check(len(members), nodes)
        holders = self._holders(len(members), nodes, generator)
        assignment = np.empty(len(population), np.int64)
        for of_class, held_by in zip(members, holders):
            if len(held_by) > len(of_class):
                raise DataError(
                    f"the pathological partition gives a class of {counted(len(of_class), 'example')} to "
                    f"{len(held_by)} nodes; take fewer nodes or a smaller classes_per_node"
                )
            assignment[of_class] = generator.permutation(np.resize(held_by, len(of_class)))
        return assignment

    def _check(self, classes: int, nodes: int) -> None:
        if self.classes_per_node > classes:
            raise DataError(
                f"classes_per_node is {self.classes_per_node}, and the data have "
                f"{counted(classes, 'class', 'classes')}; lower it"
            )
        if nodes * self.classes_per_node < classes:
            raise DataError(
                f"some of the {classes} classes would be nobody's with {counted(nodes, 'node')} of "
                f"{counted(self.classes_per_node, 'class', 'classes')} each; raise classes_per_node to "
                f"{-(-classes // nodes)} or take more nodes"
            )

    def _holders(self, classes: int, nodes: int, generator: np.random.Generator) -> list[IndexArray]:
        """The nodes that hold each class: every node takes the classes held least so far, ties at random."""
        holds = np.zeros((nodes, classes), bool)
        counts = np.zeros(classes, np.int64)
        for node in range(nodes):
            taken = np.lexsort((generator.random(classes), counts))[: self.classes_per_node]
            holds[node, taken] = True
            counts[taken] += 1
        return [generator.permutation(np.flatnonzero(column)) for column in holds.T]


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

    def _problems(self) -> Iterator[str]:
        if isinstance(self.sizes[0], float) and sum(self.sizes) > 1 + 1e-9:
            yield f"shares must sum to at most 1, found {sum(self.sizes):g}"

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

    def _problems(self) -> Iterator[str]:
        if self.owners is not None and len(set(self.owners)) < len(self.owners):
            yield f"owners must all differ, found {list(self.owners)}"

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
    "partition", "gossamer.partitions", (Iid, Dirichlet, Shard, Pathological, Linear, Sizes, Natural, ByPerson), Scheme
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
        Number of nodes, K.
    generator : Generator
        Public randomness.
    owners : ndarray [n], optional
        Owner of each example, for the natural partition.
    persons : ndarray [n], optional
        Person that each example is about, for the partition by_person.

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
            f"expected at most {counted(len(targets), 'node', form=',')}, one for each training example that is not "
            f"held out for tests, found {nodes:,}; take fewer nodes (algorithm.nodes), or more rows"
        )
    population = Population(targets, owners, persons)
    assignment = _assigned(settings, population, nodes, generator)
    order = np.argsort(assignment, kind="stable")
    starts = np.searchsorted(assignment[order], np.arange(nodes + 1))
    if (empty := np.flatnonzero(np.diff(starts) == 0)).size:
        raise DataError(
            f"the {settings.name} partition of {counted(len(targets), 'example')} leaves node {empty[0]} of {nodes} "
            "without any; take fewer nodes or give it a larger share"
        )
    return [order[start:end] for start, end in pairwise(starts)]


def _assigned(settings: Scheme, population: Population, nodes: int, generator: np.random.Generator) -> IndexArray:
    """The assignment by a scheme; one that is another distribution's may do anything."""
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
