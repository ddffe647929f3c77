"""Neighbouring data sets that are hard on whoever hides their difference: rows that are huge, empty, or no numbers.

Two data sets are neighbours if one example differs: another one in its place (replace one), or a slot that holds
nothing (add or remove one). Where a whole client is protected, all of its examples may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import IndexArray
from gossamer.data.examples import Split
from gossamer.privacy.mechanisms import NeighboringRelation

Values = npt.NDArray[np.float32]
_HUGE = np.float32(1e30)  # its square overflows float32
_MOST = np.finfo(np.float32).max


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Two data sets that differ as little as a guarantee says.

    Attributes
    ----------
    first, second : Split
        Training examples of both.
    blank : ndarray of int64, or None
        Rows of the second whose slots hold nothing.
    what : str
        Stands in the rows that differ, in the second.
    """

    first: Split
    second: Split
    blank: IndexArray | None
    what: str


def _with_one(value: float) -> Callable[[Values, np.random.Generator], Values]:
    def changed(row: Values, generator: np.random.Generator) -> Values:
        row.flat[generator.integers(row.size)] = value
        return row

    return changed


def _signs(row: Values, generator: np.random.Generator) -> Values:
    return generator.choice(np.array([-1, 1], np.float32), row.shape)


ROWS: Mapping[str, Callable[[Values, np.random.Generator], Values]] = {
    "as it is": lambda row, generator: row,
    "negated": lambda row, generator: -row,
    "long": lambda row, generator: np.float32(100) * row,
    "zeros": lambda row, generator: np.zeros_like(row),
    "tiny": lambda row, generator: np.float32(1e-42) * _signs(row, generator),  # denormal
    "huge": lambda row, generator: _HUGE * _signs(row, generator),
    "the largest floats": lambda row, generator: _MOST * _signs(row, generator),
    "one NaN": _with_one(np.nan),
    "all NaN": lambda row, generator: np.full_like(row, np.nan),
    "one infinity": _with_one(np.inf),
}
"""Features that stand in a row, made of those of some example."""


def worst_cases(train: Split, rows: Sequence[int] | IndexArray, classes: int | None, generator: Any) -> Split:
    """``train`` with other ``rows``: any example's features, made of as in `ROWS`, with any target."""
    return _with_rows(train, rows, None, classes, generator)[0]


def neighbours(
    first: Split,
    shards: Sequence[IndexArray],
    relation: NeighboringRelation,
    classes: int | None,
    generator: np.random.Generator,
    *,
    clients: bool = False,
) -> Neighbours:
    """A neighbour of ``first``, at random.

    Parameters
    ----------
    first : Split
        Training examples.
    shards : sequence of ndarray of int64
        Rows of each party; each has some.
    relation : NeighboringRelation
        Which data sets are neighbours, of examples.
    classes : int or None
        Number of classes; None where targets are real.
    generator : Generator
        Of all choices.
    clients : bool
        Whether a whole client is protected: then all of its rows may differ, and none is blank.
    """
    shard = shards[int(generator.integers(len(shards)))]
    rows = shard if clients and generator.random() < 0.5 else generator.choice(shard, 1)
    kind = list(ROWS)[generator.integers(len(ROWS))]
    second, what = _with_rows(first, rows, kind, classes, generator)
    if not clients and relation is NeighboringRelation.ADD_OR_REMOVE_ONE:
        # Whatever is left in such a slot, nobody may read it.
        return Neighbours(first, second, rows, f"blank, over {what}")
    return Neighbours(first, second, None, what)


def _with_rows(
    train: Split, rows: Sequence[int] | IndexArray, kind: str | None, classes: int | None, generator: Any
) -> tuple[Split, str]:
    """``train`` with other ``rows``, of one kind or of any, and the last kind of them."""
    features: Any = train.features.copy()
    targets, what = train.targets.copy(), kind or ""
    for row in rows:
        what = kind or list(ROWS)[generator.integers(len(ROWS))]
        like = int(row if generator.random() < 0.5 else generator.integers(len(train)))
        with np.errstate(over="ignore", invalid="ignore"):  # a row may be like one that is the largest already
            if sp.issparse(features):
                places = slice(*features.indptr[row : row + 2])  # entries stay where they are
                features.data[places] = _entries(features.data[places], what, generator)
            else:
                features[row] = ROWS[what](np.array(train.features[like], np.float32), generator)
            targets[row] = _target(train, like, classes, generator)
    return Split(features, targets), what


def _entries(entries: Values, what: str, generator: np.random.Generator) -> Values:
    return ROWS[what](np.array(entries, np.float32), generator) if entries.size else entries


def _target(train: Split, like: int, classes: int | None, generator: np.random.Generator) -> Any:
    if classes is not None:
        return generator.integers(classes)
    return train.targets[like] * np.float32(generator.choice([1.0, -1.0, 0.0, 1e30]))
