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
from gossamer.privacy.sampling import Poisson

_MOST, _MANY = 10, 500
"""Profiles that are computed, each in about a tenth of a second, and releases that are compared in pairs."""

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


_Release = tuple[_Released, ...]
"""All that one person's or example's data are in."""


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
    front = _front({_read(parts) for parts in many})
    if len(front) <= _MOST:
        profiles = [profile(_parts(released), relation) for released in front]
    elif all(_alike(released, front[0]) for released in front):
        profiles = _covered(front, relation)
    else:
        return PrivacyProfile.of_points([point])
    return profiles[0] if len(profiles) == 1 else PrivacyProfile.worst(profiles)


def _front(different: set[_Release]) -> list[_Release]:
    """Those that are not within another; all of them where there are so many that a look at each pair takes long."""
    if len(different) > _MANY:
        return list(different)
    front: list[_Release] = []
    for released in sorted(different, key=_order):
        if not any(_within(released, other) for other in front):
            front.append(released)
    return front


def _read(parts: Parts) -> _Release:
    found = [_of_kind(kind, count, rows) for counts, rows in parts for kind, count in counts.items() if count]
    return tuple(sorted(found, key=lambda one: (str(one.law), one.rate, one.times, one.rows)))


def _of_kind(kind: ReleaseKind, count: int, rows: int) -> _Released:
    mechanism, sampling = kind.mechanism, kind.sampling
    law: Hashable = mechanism
    noise = 0.0
    if type(mechanism) is Gaussian:  # noise on a ball is another law, though a subclass
        law, noise = Gaussian, mechanism.noise_multiplier
    # How many of a person's rows a sample of fixed size holds depends on all of its numbers, not on its rate alone.
    drawn = type(sampling) if rows == 1 or isinstance(sampling, Poisson) else sampling
    return _Released((law, drawn, rows if drawn is sampling else 0, kind.size), sampling.rate, count, rows, noise, kind)


def _order(released: _Release) -> tuple[float, list[tuple[float, float, int, int]], list[str]]:
    """Place among others: first those that may cover more. It is the same in every process, as a set's order is not."""
    details = [(one.noise, -one.rate, -one.times, -one.rows) for one in released]
    return -_amount(released), details, [str(one.law) for one in released]


def _amount(released: _Release) -> float:
    return math.fsum(one.times * one.rows**2 * one.rate**2 for one in released)


def _alike(released: _Release, other: _Release) -> bool:
    return [one.law for one in released] == [one.law for one in other]


def _within(released: _Release, other: _Release) -> bool:
    """Whether ``other`` releases at least as much everywhere."""
    return _alike(released, other) and all(
        a.rate <= b.rate and a.times <= b.times and a.rows <= b.rows and a.noise >= b.noise
        for a, b in zip(released, other, strict=True)
    )


def _covered(front: list[_Release], relation: NeighboringRelation) -> list[PrivacyProfile]:
    """Profiles of a few that release as much as any of ``front``: those of close rates are covered together.

    Whichever cover is exposed most is taken apart, where its members' rates differ most, until there are enough.
    """
    chunks = [sorted(front, key=lambda released: ([one.rate for one in released], _order(released)))]
    found = [profile(_parts(_most(chunks[0])), relation)]
    for _ in range(_MOST):
        place = max(range(len(found)), key=lambda number: found[number].mu)
        if len(chunks[place]) == 1:
            break
        halves = _halves(chunks[place])
        chunks[place : place + 1] = halves
        found[place : place + 1] = [profile(_parts(_most(half)), relation) for half in halves]
    return found


def _halves(chunk: list[_Release]) -> list[list[_Release]]:
    """Those of lower and of higher rates, by the middle of the range; one at least in each."""
    rates = [released[0].rate for released in chunk]
    middle = math.sqrt(rates[0] * rates[-1])
    cut = min(max(sum(rate <= middle for rate in rates), 1), len(chunk) - 1)
    return [chunk[:cut], chunk[cut:]]


def _most(chunk: list[_Release]) -> _Release:
    return tuple(_more_than(same) for same in zip(*chunk, strict=True))


def _more_than(same: Sequence[_Released]) -> _Released:
    """The largest rate, number of releases and of rows, and the least noise."""
    top, noise = max(same, key=lambda one: one.rate), min(one.noise for one in same)
    mechanism = top.kind.mechanism
    if type(mechanism) is Gaussian:
        mechanism = replace(mechanism, noise_multiplier=noise)
    return _of_kind(
        replace(top.kind, mechanism=mechanism), max(one.times for one in same), max(one.rows for one in same)
    )


def _parts(released: _Release) -> Parts:
    return [({one.kind: one.times}, one.rows) for one in released]
