"""The privacy profile of whoever is exposed most, where nodes release differently.

No one node need be the worst at every loss, so the profile is the largest of all. Of nodes that release alike, those
that release as much as another or less are left out: profiles grow with the rate of sampling and with the number of
releases (`analytic`). Where many are left they are covered, a few at a time, by one that releases as much as any.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gossamer.privacy.accounting.accountants import profile
from gossamer.privacy.mechanisms import Gaussian, NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.releases import Counts, ReleaseKind

_MOST = 8
"""Profiles that are computed: each takes about a tenth of a second."""

Parts = Sequence[tuple[Counts, int]]
"""Releases of each shard, and how many of its rows are one person's."""


class _Released(NamedTuple):
    """Releases of one kind: what they have in common with others, and what may be more or less."""

    law: Hashable
    rate: float
    times: int
    rows: int
    noise: float
    kind: ReleaseKind


def worst_profile(many: Iterable[Parts], relation: NeighboringRelation, point: tuple[float, float]) -> PrivacyProfile:
    """The largest profile of ``many``.

    Parameters
    ----------
    many : iterable of parts
        Releases for each person or example, as for `accountants.profile`.
    relation : NeighboringRelation
        Which data sets count as neighbours.
    point : (float, float)
        An epsilon and a delta that are proved of all of them: all that is said where there are too many to be covered.
    """
    front = _front(many)
    if len(front) > _MOST:
        front = _covered(front)
    if len(front) > _MOST:
        return PrivacyProfile.of_points([point])
    profiles = [profile(_parts(released), relation) for released in front]
    return profiles[0] if len(profiles) == 1 else PrivacyProfile.worst(profiles)


def _front(many: Iterable[Parts]) -> list[tuple[_Released, ...]]:
    """Those that are not within another."""
    different = {_read(parts) for parts in many}
    front: list[tuple[_Released, ...]] = []
    for released in sorted(different, key=_amount, reverse=True):
        if not any(_within(released, other) for other in front):
            front.append(released)
    return front


def _read(parts: Parts) -> tuple[_Released, ...]:
    found = [_of_kind(kind, count, rows) for counts, rows in parts for kind, count in counts.items() if count]
    return tuple(sorted(found, key=lambda one: (str(one.law), one.rate, one.times, one.rows)))


def _of_kind(kind: ReleaseKind, count: int, rows: int) -> _Released:
    mechanism, sampling = kind.mechanism, kind.sampling
    law: Hashable = mechanism
    noise = 0.0
    if isinstance(mechanism, Gaussian):
        law, noise = Gaussian, mechanism.noise_multiplier
    return _Released((law, type(sampling), kind.size), sampling.rate, count, rows, noise, kind)


def _amount(released: tuple[_Released, ...]) -> float:
    return math.fsum(one.times * one.rows**2 * one.rate**2 for one in released)


def _alike(released: tuple[_Released, ...], other: tuple[_Released, ...]) -> bool:
    return [one.law for one in released] == [one.law for one in other]


def _within(released: tuple[_Released, ...], other: tuple[_Released, ...]) -> bool:
    """Whether ``other`` releases at least as much everywhere."""
    return _alike(released, other) and all(
        a.rate <= b.rate and a.times <= b.times and a.rows <= b.rows and a.noise >= b.noise
        for a, b in zip(released, other, strict=True)
    )


def _covered(front: list[tuple[_Released, ...]]) -> list[tuple[_Released, ...]]:
    """A few that release as much as any of ``front``, each made of those whose rates are close."""
    if not all(_alike(released, front[0]) for released in front):
        return front
    by_rate = sorted(front, key=lambda released: [one.rate for one in released])
    size = math.ceil(len(by_rate) / _MOST)
    return [_most(by_rate[start : start + size]) for start in range(0, len(by_rate), size)]


def _most(chunk: list[tuple[_Released, ...]]) -> tuple[_Released, ...]:
    return tuple(_more_than(same) for same in zip(*chunk, strict=True))


def _more_than(same: Sequence[_Released]) -> _Released:
    """The largest rate, number of releases and of rows, and the least noise."""
    top, noise = max(same, key=lambda one: one.rate), min(one.noise for one in same)
    mechanism = top.kind.mechanism
    if isinstance(mechanism, Gaussian):
        mechanism = replace(mechanism, noise_multiplier=noise)
    return _of_kind(
        replace(top.kind, mechanism=mechanism), max(one.times for one in same), max(one.rows for one in same)
    )


def _parts(released: tuple[_Released, ...]) -> Parts:
    return [({one.kind: one.times}, one.rows) for one in released]
