"""Held-out examples of a run: which party's each is, and of which group, by what is declared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gossamer.arrays import IndexArray
from gossamer.data.columns import Column
from gossamer.errors import DataError, SpecError
from gossamer.experiment.preparation.prepare import Prepared, public_seed
from gossamer.randomness import stream
from gossamer.sides.samples import ShardRows

SUFFIX = "/held-out"
"""Of a party's name, in its receipts of these."""


def rows_of(prepared: Prepared) -> dict[str, ShardRows]:
    """Held-out examples of each party, by the name of its receipts.

    Where examples are dealt by owner they are their owner's; else they are dealt evenly and at random, those of a
    person together.

    Raises
    ------
    DataError
        If a party has none, or nobody knows whose they are.
    """
    dataset, names = prepared.dataset, prepared.names
    node = _by_owner(prepared) if prepared.experiment.partition.name == "natural" else _dealt(prepared)
    found = {name: np.flatnonzero(node == number) for number, name in enumerate(names)}
    if missing := [name for name, rows in found.items() if not len(rows)]:
        raise DataError(
            f"{dataset.name}: evaluation.release: private needs held-out examples at every party, found none at "
            f"{missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''}; raise dataset.test_fraction, or "
            "take fewer nodes"
        )
    return {f"{name}{SUFFIX}": ShardRows(rows) for name, rows in found.items()}


def _by_owner(prepared: Prepared) -> IndexArray:
    """Number of the node of each held-out example's owner, [test examples]."""
    dataset = prepared.dataset
    if dataset.owners is None or dataset.test_owners is None:
        raise DataError(
            f"{dataset.name}: evaluation.release: private needs to know whose each held-out example is; give test "
            "examples with their owners, or have them held out of the others"
        )
    known = {
        str(owner): number
        for number, rows in enumerate(prepared.shards)
        for owner in np.unique(dataset.owners[rows]).tolist()
    }
    owners, owner = np.unique(dataset.test_owners, return_inverse=True)
    if unknown := [one for one in map(str, owners.tolist()) if one not in known]:
        raise DataError(
            f"{dataset.name}: held-out examples have the owner {unknown[0]!r}, who has none to train on; leave them out"
        )
    return np.array([known[str(one)] for one in owners.tolist()], np.int64)[owner]


def _dealt(prepared: Prepared) -> IndexArray:
    persons = prepared.dataset.test_persons
    who: Any = np.arange(len(prepared.dataset.test)) if persons is None else persons
    units, unit = np.unique(who, return_inverse=True)
    generator = stream(public_seed(prepared.experiment), "held-out examples")
    return np.asarray(generator.permutation(np.arange(len(units)) % len(prepared.names))[unit], np.int64)


def groups_of(prepared: Prepared) -> tuple[str, ...]:
    """Names of the groups that have figures of their own, by declaration: one without a name where none have.

    Raises
    ------
    SpecError
        If no column of categories or truth values of that name is declared.
    """
    if (name := prepared.experiment.evaluation.group) is None:
        return ("",)
    column = _columns(prepared).get(name)
    if column is None or (column.categories is None and column.kind != "boolean"):
        raise SpecError(
            "evaluation.group: expected a column of categories, or a boolean one, that dataset.columns declares, found "
            f"{name!r}; declare it so"
        )
    return tuple(f"{name}={text}" for text in column.categories or ("false", "true"))


def _columns(prepared: Prepared) -> Mapping[str, Column]:
    return prepared.dataset.declaration.columns or {}


def named_groups(prepared: Prepared) -> dict[str, npt.NDArray[np.str_]]:
    """Group of each test example, [test examples], by the column that the spec says; empty where it says none."""
    if (name := prepared.experiment.evaluation.group) is None:
        return {}
    texts = [text.removeprefix(f"{name}=") for text in groups_of(prepared)]
    return {name: np.array(texts)[grouped(prepared)]}


def of_one_class(prepared: Prepared) -> list[str]:
    """Owners, or parties that release something of them, whose held-out examples are of one class alone."""
    dataset = prepared.dataset
    whose: Any = dataset.test_owners
    if prepared.experiment.evaluation.release is not None:
        whose = np.empty(len(dataset.test), np.object_)
        for name, own in rows_of(prepared).items():
            whose[own.rows] = name.removesuffix(SUFFIX)
    if dataset.classes is None or whose is None:
        return []
    names, number = np.unique(whose, return_inverse=True)
    pairs = np.unique(np.column_stack([number, dataset.test.targets.astype(np.int64)]), axis=0)
    return [str(name) for name in names[np.bincount(pairs[:, 0]) == 1]]


def grouped(prepared: Prepared) -> IndexArray:
    """Number of the group of each test example, read off the features that its column was made into."""
    features: Any = prepared.dataset.test.features
    if (name := prepared.experiment.evaluation.group) is None:
        return np.zeros(len(prepared.dataset.test), np.int64)
    columns = _columns(prepared)
    before = [column.names(other) for other, column in columns.items()][: list(columns).index(name)]
    start, width = sum(map(len, before)), len(columns[name].categories or ("",))
    block = features[:, start : start + width]
    dense = np.asarray(block if isinstance(block, np.ndarray) else block.toarray())
    return np.asarray(dense.argmax(axis=1) if width > 1 else dense[:, 0] > 0, np.int64)
