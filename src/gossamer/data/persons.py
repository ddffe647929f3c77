"""Persons: the rows of each, and the nodes that they lie at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from gossamer.arrays import IndexArray
from gossamer.data.examples import Owners
from gossamer.errors import DataError, RunWarning, counted

Held = tuple[tuple[int, int], ...]
"""Of one person: the nodes that hold examples, by rising number, and how many each of them holds."""


@dataclass(frozen=True)
class PersonHoldings:
    """Distribution of persons' training examples over nodes.

    Attributes
    ----------
    held : frozenset of Held
        Examples that persons hold; several may hold alike.
    """

    held: frozenset[Held]

    @classmethod
    def of(cls, persons: Owners, shards: Sequence[IndexArray]) -> PersonHoldings:
        """Those of examples of ``persons`` [n], of which each node has a shard."""
        _, number = np.unique(persons, return_inverse=True)
        nodes = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        examples = np.concatenate([np.zeros(0, np.int64), *shards])
        pairs, counts = np.unique(np.stack([number[examples], nodes]), axis=1, return_counts=True)
        lines = zip(*pairs.tolist(), counts.tolist())
        return cls(frozenset(tuple(line[1:] for line in lines_) for _, lines_ in groupby(lines, itemgetter(0))))

    @property
    def most(self) -> int:
        """The most examples of one person, at all nodes together."""
        return max((sum(rows for _, rows in held) for held in self.held), default=0)

    @property
    def most_nodes(self) -> int:
        """The most nodes that hold examples of one person."""
        return max(map(len, self.held), default=0)

    @property
    def together(self) -> bool:
        """Whether every person's examples are at one node."""
        return self.most_nodes <= 1


def warn_of_shared_persons(name: str, train: Owners | None, test: Owners | None) -> None:
    """Warn where persons of the data set ``name`` have examples to train on and to test on: tests then flatter.

    A split that the data come with is the reader's own, so it is taken as it is.
    """
    if train is None or test is None:
        return
    shared = len(np.intersect1d(train.astype(np.str_), test.astype(np.str_)))
    if shared:
        warnings.warn(
            f"{name}: {counted(shared, 'person')} with training and test examples; test figures will look "
            "better than they are, and no guarantee covers test examples",
            RunWarning,
            stacklevel=3,
        )


def check_persons(persons: Owners, rows: int, where: str) -> None:
    """Refuse examples of ``persons`` [n] of which one has more than ``rows``; ``where`` they are, for the error.

    Raises
    ------
    DataError
        If there is such a person; it says how many, and not who.
    """
    _, counts = np.unique(persons, return_counts=True)
    over = int(np.sum(counts > rows))
    if over:
        raise DataError(
            f"{where}: expected at most {counted(rows, 'training example')} of one person, as "
            f"budget.rows_per_person says, found {counted(over, 'person')} with more, up to {counts.max()}; "
            "raise it, or leave examples out"
        )
