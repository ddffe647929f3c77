"""Arithmetic of leak audits: how far apart two answers are in units of what their noise hides, and the noise itself.

A sum of vectors of length C at most, with the count of `privacy.clipping` after it, is taken in *units* in which its
noise is N(0, z^2) in every coordinate, z the noise multiplier that is charged, and in which one example has length 1:
``(sqrt(1 - r) sum / C, 2 sqrt(r) count)``, r the count's share. So the distance of two sums of neighbours is at most
the sensitivity for a clip of 1, whatever clip, normaliser or count.

**Rounding.** With u the unit roundoff of the answers' type, m examples in a sum and d coordinates, each clipped vector
is longer than C by a share of at most (d + 4) u (d squares and their sum, a root, a quotient and a product), adding m
of them is off by at most m u times the sum of their lengths, m C, and noise, quotient and what is added after it by 4 u
times the length of the answer. Two sums are further apart than they should be by twice that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from gossamer.arrays import FloatArray, Floats, IndexArray
from gossamer.data.examples import Split
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.tasks import Query

# Neighbouring data sets that are hard on whoever hides their difference: rows that are huge, empty, or no numbers.
#
# Two data sets are neighbours if one example differs: another one in its place (replace one), or a slot that holds
# nothing (add or remove one). Where a whole client is protected, all of its examples may differ.

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
        Relation of data sets that are neighbours, of examples.
    classes : int or None
        Number of classes; None where targets are real.
    generator : Generator
        Generator of all choices.
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


CHANCE = 1e-12
"""Chance at most that a check of noise fails though the noise is right."""


def to_units(answer: FloatArray, query: Query, clip: float) -> Floats:
    """A noisy ``answer`` [size, and a count if ``query`` asks for one] in units of what its noise hides."""
    found = np.asarray(answer, np.float64) * query.normaliser
    share = query.count_share
    size = len(found) - bool(share)
    found[:size] *= query.unit / clip * math.sqrt(1 - share)
    found[size:] *= 2 * math.sqrt(share)
    return found


def rounding(first: Floats, second: Floats, examples: int, unit_roundoff: float, longest: float = 1.0) -> float:
    """Distance by which rounding may part two answers, sums of so many ``examples``, each that long at most."""
    each = examples * (examples + len(first) + 4)
    return unit_roundoff * (2 * each * longest + 4 * (_length(first) + _length(second)))


def _length(vector: Floats) -> float:
    return float(np.linalg.norm(vector))


def silent(differences: Sequence[Floats]) -> int | None:
    """A coordinate that has no noise: one that is the same in two draws of every release; None if there is none.

    Parameters
    ----------
    differences : sequence of ndarray [size]
        Differences of two answers to each release, which differ in nothing but their noise; at least one.
    """
    still = np.flatnonzero(~np.any(np.stack(differences) != 0, axis=0))
    return int(still[0]) if len(still) else None


def repeated(differences: Sequence[Floats], unit_roundoff: float) -> tuple[int, int] | None:
    """Two releases with the same noise, but for its scale, so that one undoes that of the other; None if no two have.

    Directions are the same that are as near as answers a thousand times as long as their noise are rounded. Those of
    independent normal noise in d coordinates are nearer than a chord c with a chance below c^(d - 1), which is 1e-12 of
    float32 in four coordinates; noise in fewer says nothing.

    Parameters
    ----------
    differences : sequence of ndarray [size]
        Differences as for `silent`.
    unit_roundoff : float
        u of the answers' type.
    """
    lengths = np.array([_length(one) for one in differences])
    if len(differences) < 2 or len(differences[0]) < 4 or not lengths.all():
        return None
    directions = np.stack(differences) / lengths[:, None]
    chord = max(1e-6, 1e3 * unit_roundoff)
    alike = np.triu(directions @ directions.T > 1 - chord**2 / 2, 1)
    if not alike.any():
        return None
    one, other = np.argwhere(alike)[0]
    return int(one), int(other)


@dataclass
class NoiseScale:
    """Standard deviation of normal noise, told from many differences of two draws.

    The sum of N squares of standard normal numbers is above N + 2 sqrt(N x) + 2 x, or below N - 2 sqrt(N x), each with
    a chance of at most exp(-x) [1, lemma 1].

    References
    ----------
    [1] Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", Annals of Statistics
        2000.
    """

    count: int = 0
    squares: float = 0.0

    def add(self, difference: Floats, multiplier: float) -> None:
        """Add what two draws of a release's noise differ by, in units, of noise with this multiplier."""
        self.count += len(difference)
        self.squares += float(np.sum(difference**2)) / (2 * multiplier**2)

    @property
    def wrong(self) -> float | None:
        """The standard deviation as a multiple of the right one, where that is not it; None if it may be right."""
        x = math.log(2 / CHANCE)
        spread = 2 * math.sqrt(self.count * x)
        if self.count - spread <= self.squares <= self.count + spread + 2 * x:
            return None
        return math.sqrt(self.squares / self.count)
