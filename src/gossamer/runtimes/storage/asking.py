"""Requests of a ledger, and their costs: plans as bytes, and their prices in each filter."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import gossamer.privacy.tasks  # noqa: F401  gives mechanisms and sampling schemes their encodings
from gossamer.errors import SpecError
from gossamer.numbers import real_number, whole_number
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.filters import NOTHING_PROVED, Entry, Total
from gossamer.privacy.accounting.gaussian_fit import release_mu
from gossamer.privacy.accounting.ledger import RenyiFilter
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.protocol.encoding import decode, encode
from gossamer.runtimes.storage.filters import Budget, Place, places_for

_UNPLANNED = encode(None)


class Cost(NamedTuple):
    """The price of something, in each of the filters that may keep a data set.

    Attributes
    ----------
    divergence : float
        At the order of the Renyi filter.
    entry : Entry
        Of the Gaussian one.
    """

    divergence: float
    entry: Entry = Entry(math.inf)


PAID = Cost(0.0, Entry(0.0))
"""Of what was paid for before."""


@dataclass(frozen=True)
class Asking:
    """The request with which a run is opened.

    Attributes
    ----------
    plan : mapping of bytes to int, or None
        Releases by kind, or none for a run without a plan.
    divergence : float
        Of the whole plan.
    entry : callable
        What the whole plan enters a Gaussian filter with, after what that has.
    places : sequence of Place
        Where it would be in a series.
    """

    plan: Mapping[bytes, int] | None
    divergence: float
    entry: Callable[[Total], Entry]
    places: Sequence[Place] = ()

    @property
    def written(self) -> bytes:
        """The plan; the order in which its kinds are listed does not matter."""
        return _UNPLANNED if self.plan is None else encode(tuple(sorted(self.plan.items())))


def asking_of(budget: Budget, plan: Counts, divergence: float | None) -> Asking:
    """A plan of releases; what it enters a Gaussian filter with is found when it is needed."""
    written = {encoded(kind): number for kind, number in plan.items()}
    if divergence is not None:
        return asking_given(written, divergence, Entry(0.0) if divergence == 0 else NOTHING_PROVED)
    filters = budget if isinstance(budget, RenyiFilter) else budget.renyi

    def entry(total: Total) -> Entry:
        return NOTHING_PROVED if isinstance(budget, RenyiFilter) else budget.gaussian.entry(plan, total)

    return Asking(written, known(filters.spent(plan)), entry, places_for(plan, budget))


def asking_given(plan: dict[bytes, int], divergence: float, entry: Entry) -> Asking:
    """A plan whose costs are known."""
    entered = Entry(known(entry.mu, "a mu"), known(entry.failure, "a failure"))
    if not entered.failure < 1:
        raise SpecError(f"a failure is a probability below 1, found {entry.failure!r}")
    return Asking(plan, known(divergence), lambda total: entered)


def release_cost(kind: ReleaseKind, budget: Budget) -> Cost:
    """The price of one release that is in no plan."""
    divergence = known(renyi_divergence(kind, budget.order, budget.relation))
    return Cost(divergence, Entry(release_mu(kind, budget.relation)))


def whole(number: int, what: str) -> int:
    """``number``, if it is a whole one, 0 or more."""
    found = whole_number(number)
    if found is None:
        raise SpecError(f"a ledger is opened for a whole number of {what}, 0 or more, found {number!r}")
    return found


def known(value: Any, what: str = "a divergence") -> float:
    """``value``, if it is one, of the type that files keep as a number."""
    number = real_number(value)
    if not number >= 0:
        raise SpecError(f"{what} is a number, 0 or more (infinite without noise), found {value!r}")
    return number


_CASTS: dict[Any, Any] = {"float": float, "int": int}  # by the names of types in annotations


@lru_cache(maxsize=1024)
def encoded(kind: ReleaseKind) -> bytes:
    """Kinds that are equal, such as of a clip 1 and a clip 1.0, are the same bytes: one count for both."""
    parts = (_cast(kind.mechanism), _cast(kind.sampling), int(kind.size))
    return encode(parts)


def _cast(part: Any) -> Any:
    """A mechanism or a sampling scheme with numbers of the types that it declares."""
    casts = {field.name: _CASTS[field.type] for field in fields(part) if field.type in _CASTS}
    return replace(part, **{name: cast(getattr(part, name)) for name, cast in casts.items()})


@lru_cache(maxsize=1024)
def decoded(kind: bytes) -> ReleaseKind:
    """The kind behind `encoded`."""
    return ReleaseKind(*decode(kind))
