"""Partitions by class, which give nodes different shares of the classes.

References
----------
The schemes are named as in the field's libraries. `Shard`: McMahan et al., "Communication-efficient learning of
deep networks from decentralized data", AISTATS 2017, section 3. `Dirichlet`: Hsu, Qi, Brown, "Measuring the
effects of non-identical data distribution for federated visual classification", 2019; Yurochkin et al., "Bayesian
nonparametric federated learning of neural networks", ICML 2019, section 4 (the form used here, by class).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from gossamer.arrays import IndexArray
from gossamer.data.partition_scheme import Population, Scheme, sizes_of
from gossamer.errors import DataError, counted

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
                return self._deal(len(population), members, shares, generator)
        raise DataError(
            f"the dirichlet partition found no draw in {_DRAWS} that gives each of {counted(nodes, 'node')} "
            f"{self.min_examples} of {counted(len(population), 'example')} (the best gave {fewest}); "
            f"raise alpha ({self.alpha:g}), lower min_examples or take fewer nodes"
        )

    @staticmethod
    def _deal(
        size: int, members: list[IndexArray], shares: list[IndexArray], generator: np.random.Generator
    ) -> IndexArray:
        assignment = np.empty(size, np.int64)
        for of_class, sizes in zip(members, shares):
            assignment[of_class] = generator.permutation(np.repeat(np.arange(len(sizes)), sizes))
        return assignment


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
