"""Limits on how old a gradient may be when it is applied.

A gradient that was computed at version v of a model and is applied as update t (from 0) has staleness t - v: so many
updates of others came between.

A bound tau can be kept in two ways: gradients that are older are dropped, or updates *wait* for the oldest work under
way. Waiting must not end in a deadlock. With at most tau + 1 pieces of work under way at once, at versions
v_0 <= v_1 <= ..., all of them can still be applied in time, in this order, exactly if

    v_i >= t + i - tau        for every i.

Update t may be made with one of them if this holds of the others at t + 1. It always may with the oldest: then
v_{i+1} >= t + i + 1 - tau is what is left to hold, and it did before. And whoever is given version t + 1 then comes
last, as one of at most tau + 1.

There may be more when somebody comes back who was given up. Then not all can be applied in time: the oldest goes first,
and what gets too old meanwhile is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal

from pydantic import Field, model_validator

from gossamer.section import Section


class StalenessSettings(Section):
    """Treatment of stale gradients by a server.

    Attributes
    ----------
    bound : int, optional
        The most staleness of an applied gradient.
    on_stale : {"apply", "drop", "wait"}
        ``apply``: apply it all the same, and count it. ``drop``: do not apply it; its release stays charged.
        ``wait``: hold back other updates, and models, so that no gradient gets too old; those of edges that were lost
        and come back late are dropped.
    exponent : float
        a >= 0: the learning rate is divided by (staleness + 1)^a.
    patience : float
        Seconds after which edges that others wait for are asked whether they are alive.
    """

    bound: int | None = Field(default=None, ge=0)
    on_stale: Literal["apply", "drop", "wait"] = "apply"
    exponent: float = Field(default=0.0, ge=0, le=10)
    patience: float = Field(default=10.0, ge=1e-3)

    @model_validator(mode="after")
    def _bound_is_given(self) -> StalenessSettings:
        if self.on_stale != "apply" and self.bound is None:
            raise ValueError(f"on_stale: {self.on_stale} needs a bound; give staleness.bound")
        return self

    @property
    def enforced(self) -> int | None:
        """The bound, where it is more than a figure to compare with."""
        return self.bound if self.on_stale != "apply" else None

    @property
    def most_under_way(self) -> int | None:
        """Number of edges that may work at once; None is all."""
        return self.bound + 1 if self.on_stale == "wait" and self.bound is not None else None

    def may_apply(self, version: int, others: Iterable[int], update: int) -> bool:
        """Whether a gradient of ``version`` may be applied now, as ``update``, with ``others`` under way."""
        if self.bound is None or update - version > self.bound:
            return True  # what is too old is not waited for
        rest = [other for other in others if update - other <= self.bound]
        return feasible(rest, update + 1, self.bound) or version <= min(rest)


def feasible(versions: Collection[int], update: int, bound: int) -> bool:
    """Whether work at ``versions`` can all be applied, from ``update`` on, with a staleness of at most ``bound``."""
    return all(version >= update + i - bound for i, version in enumerate(sorted(versions)))
