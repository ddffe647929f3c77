"""Averages of what others send that a few of them cannot move far: robust aggregation, as one setting.

A rule takes vectors that were released, so what it makes of them is post-processing: no guarantee depends on it. What
rests on averages being linear, such as what single observers learn and how much of the noise is left in models, is not
known with one.

| rule | of n vectors | who can do little harm |
|---|---|---|
| `median` | the median of each coordinate | fewer than half |
| `trimmed_mean` | the mean of each coordinate without its b least and b largest | b |
| `centred_clipping` | c + the mean of v - c, each shortened to a radius | each moves by radius/n at most |

with c one's own model, or zero where the vectors are updates of it. Any rule takes a vector that is not finite for c.

Noise of every honest vector is as long as d^1/2 standard deviations: within that length nobody can be told from others,
and a radius below it shortens honest vectors, too.

References
----------
Yin, Chen, Kannan and Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates", ICML 2018
(median and trimmed mean); Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization", ICML
2021 (centred clipping); He, Karimireddy and Jaggi, "Byzantine-robust decentralized learning via ClippedGossip", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, TypeVar

import numpy as np
from pydantic import Field, PositiveFloat

from gossamer.algorithms.context import mean
from gossamer.protocol.effects import Reject
from gossamer.section import Section, bare
from gossamer.vectors import Blank, Model, Vector, entrywise

V = TypeVar("V", bound=Vector)


def length(vector: Vector) -> float:
    """The L2 norm of ``vector``; 0 of a blank."""
    return 0.0 if isinstance(vector.values, Blank) else float(np.linalg.norm(vector.values))


def shortened(vector: V, most: float) -> V:
    """``vector``, scaled to the L2 norm ``most`` if it is longer: two of them come no further apart by that."""
    if math.isinf(most) or (found := length(vector)) <= most:
        return vector
    scaled: V = vector * (most / found)
    return scaled


class Robust(Section):
    """A robust rule.

    Attributes
    ----------
    name : {"median", "trimmed_mean", "centred_clipping"}
        ``median``: of each coordinate. ``trimmed_mean``: of each coordinate, without its least and largest values.
        ``centred_clipping``: the mean of differences from one's own model, each shortened to ``radius``.
    trim : int, optional
        Values that ``trimmed_mean`` leaves out at either end; by default 1.
    radius : float, optional
        L2 norm to which ``centred_clipping`` shortens differences, or updates.
    """

    name: Literal["median", "trimmed_mean", "centred_clipping"]
    trim: int | None = Field(default=None, ge=1, le=1_000_000)
    radius: PositiveFloat | None = None

    def _problems(self) -> Iterator[str]:
        if self.clips == (self.radius is None) or (self.trim is not None and self.name != "trimmed_mean"):
            found = ", ".join(f"{key}: {value}" for key, value in self.model_dump().items())
            yield f"centred_clipping has a radius, trimmed_mean alone may have a trim, found {found}; correct that"

    @property
    def clips(self) -> bool:
        """Whether it shortens each difference, so that it makes something of a single vector."""
        return self.name == "centred_clipping"

    @property
    def least(self) -> int:
        """Fewest vectors that it makes something of."""
        return 1 if self.clips else 1 + 2 * (self.trim or 1)

    def near(self, centre: Model, vector: Model) -> Model:
        """``vector`` as far from its ``centre`` as it counts; the centre for what is not finite."""
        if not vector.is_within():
            return centre
        if self.radius is None:
            return vector
        nearer = shortened(difference := vector - centre, self.radius)
        return vector if nearer is difference else (centre + nearer).within()

    def of(self, vectors: Sequence[Model]) -> Model:
        """Return what it makes of vectors, [size] each, that are `near` their centre."""
        if self.clips:
            return mean(vectors)
        cut = (len(vectors) - 1) // 2 if self.name == "median" else self.trim or 1
        return entrywise(vectors, lambda *values: np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0))

    def odd(self, sender: str, vector: Vector) -> list[Reject]:
        """Count a vector that is not finite as refused."""
        return [] if vector.is_within() else [Reject(sender, "values that are not finite, which count as none")]


Aggregation = Annotated[Robust | None, bare("name")]
"""A name, or a mapping with a ``name``; None is the mean."""
