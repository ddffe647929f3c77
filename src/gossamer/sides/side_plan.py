"""Interface of a data side's plan, whatever leaves it.

Nobody has to ask for its kind but `making`, which opens data sides.

Distances that answers of two data sides may have, of neighbouring data and with equal coins: sensitivities.

Each plan says it of its answers (`side_plan.SidePlan.apart`); audits hold answers against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.filters import NOTHING_PROVED, Entry
from gossamer.privacy.accounting.renyi import check_order
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import Poisson, Sampling
from gossamer.privacy.tasks import Query
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.ledger import Charges


class Apart(NamedTuple):
    """Distance that two answers may have, but for rounding.

    Attributes
    ----------
    most : float
        The L2 distance: of sums with a ``query`` for a clip of 1, of all else in the answer's own numbers; infinite
        where nothing bounds it.
    query : Query or None
        Clip, noise, and what is done after it, of a noisy sum.
    examples : int
        Most vectors that are added up, but for a chance of e^-45.
    noisy : bool
        Whether noise is to hide what is apart.
    adds : bool
        Whether each answer may be so much further apart than the one before it.
    """

    most: float
    query: Query | None = None
    examples: int = 1
    noisy: bool = True
    adds: bool = False


def of_sum(query: Query, relation: NeighboringRelation, examples: int = 1, *, proved: bool = True) -> Apart:
    """Return it for sums with the clip and noise of ``query``; without a bound unless one is ``proved``."""
    law = query.mechanism
    bounded = proved and math.isfinite(law.clip)
    most = law.with_clip(1.0).sensitivity(relation) if bounded else math.inf
    return Apart(most, query, examples, noisy=law.private)


def most_drawn(sampling: Sampling, shard: int) -> int:
    """Most examples that are drawn of a shard, but for a chance of e^-45.

    Of independent draws with mean m there are 2 m + 40 or more with a chance of at most exp(-t^2 / (2 m + 2 t/3)), with
    t = m + 40, by Bernstein's inequality; that is exp(-3/8 (m + 40)^2 / (m + 10)), and largest for m = 20.
    """
    return min(shard, math.ceil(2 * sampling.rate * shard) + 40)


WHOLE = Poisson(1.0)
"""The sampling of a release that all data of a client are in."""
Members = Callable[[int], Sequence[str]]
"""Who takes part in a round, in the order of their numbers: public coins."""


class Trust(StrEnum):
    """Parties that an owner trusts with what is raw, when it asks what a run reveals."""

    NOBODY = "nobody"
    SCOPE = "scope"
    """All of the trust scope, such as the own server of a unit, or a curator; and those whose noise is counted on."""


class CountedOn(NamedTuple):
    """Others whose noise is counted on, beside a party's own.

    Attributes
    ----------
    groups : frozenset of tuple of str
        Parties whose noise is in a sum with the party's, itself included: each group of the plan, once.
    dishonest : int
        Number of a group that may leave their noise out, or tell it to others.
    """

    groups: frozenset[tuple[str, ...]]
    dishonest: int


class Trusted(NamedTuple):
    """Conditions that what is proved of a plan rests on, beside its noise.

    Attributes
    ----------
    scope : frozenset of str
        Parties that may hear what is raw; empty if nothing raw ever leaves.
    counted_on : CountedOn or None
        Parties that share the noise of a sum; None where a party's own alone is counted.
    marked : bool
        Whether a mark of what was said has to outlive a crash, though nothing raw leaves.
    hides_schedule : bool
        Whether times, and numbers of messages and updates, have to be kept secret.
    """

    scope: frozenset[str] = frozenset()
    counted_on: CountedOn | None = None
    marked: bool = False
    hides_schedule: bool = False

    def counts_on(self, name: str) -> CountedOn | None:
        """Others on whose noise party ``name`` counts; None where its own alone is counted."""
        on = self.counted_on
        return None if on is None else CountedOn(frozenset(group for group in on.groups if name in group), on.dishonest)


class Revealed(NamedTuple):
    """Bounds of all that a plan reveals to somebody.

    Attributes
    ----------
    divergence : callable
        (order, relation) -> the Renyi divergence; infinite where nothing is proved.
    entry : Entry
        The same as Gaussian differential privacy, but for a failure, where it is no matter of kinds of releases.
    """

    divergence: Callable[[float, NeighboringRelation], float]
    entry: Entry = NOTHING_PROVED


class SidePlan(Protocol):
    """Plan of the most that leaves one party's data."""

    @property
    def trusted(self) -> Trusted:
        """Conditions that its proofs rest on."""
        ...

    def charges(self) -> Charges | None:
        """Charges that the ledger is opened for; None for a party that is charged nothing."""
        ...

    def revealed(self, trust: Trust) -> Revealed:
        """Bounds of all that the plan reveals, for an owner with this trust."""
        ...

    def said(self, who: str, often: str, examples: str) -> str:
        """Say in a plain sentence what leaves; empty where nothing does.

        Parameters
        ----------
        who : str
            The party in words, such as "each node".
        often : str
            Frequency in words, such as "at most 100".
        examples : str
            Number of its examples in one release, in words such as "about 40", where the sentence says that.
        """
        ...

    def drawn(self) -> Drawn:
        """Numbers drawn for the whole plan in a deployment."""
        ...

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart | None:
        """Most distance between the answers of neighbours to ``task``; None of what depends on no data.

        Parameters
        ----------
        task : task
            One that was admitted.
        relation : NeighboringRelation
            Relation of neighbouring examples; where a client is protected, all of its data are replaced.
        shard : int
            Number of examples that the party has.
        """
        ...


def most_of(plan: SidePlan) -> int | None:
    """Most releases with one owner's data, held to or not; None where nothing limits them."""
    charges = plan.charges()
    return None if charges is None else sum(charges.kinds.values())


def counts_of(plan: SidePlan) -> Counts | None:
    """Most releases of each kind with one owner's data; None where they are not counted by kind."""
    charges = plan.charges()
    return None if charges is None else charges.counts


def _unbounded(order: float, relation: NeighboringRelation) -> float:
    check_order(order)
    return math.inf


NOTHING_BOUNDED = Revealed(_unbounded)


def check_number(what: str, number: int) -> None:
    if whole_number(number) is None:
        raise SpecError(f"expected a whole number of {what}, 0 or more, found {number!r}")


def behind_scope(plan: SidePlan | None, trust: Trust) -> Revealed:
    """Bounds of what leaves a trust scope, for one who trusts it; nothing is proved for anybody else."""
    return NOTHING_BOUNDED if plan is None or trust is Trust.NOBODY else plan.revealed(trust)


def of_kinds(kinds: Counts, order: float, relation: NeighboringRelation) -> float:
    check_order(order)
    charged = [(kind, count) for kind, count in kinds.items() if count]
    if not all(kind.mechanism.private for kind, _ in charged):
        return math.inf
    return math.fsum(count * renyi_divergence(kind, order, relation) for kind, count in charged)


def drawn_for(numbers: Mapping[ReleaseKind, int], sampled: Counts) -> Drawn:
    """Draws for so many numbers of each kind; ``sampled`` counts the releases that also draw a sample."""
    samples = sum(count for kind, count in sampled.items() if isinstance(kind.sampling, Poisson))
    exact = _all_gaussian(numbers)
    return Drawn(sum(numbers.values()) if exact else 0, samples if exact else 0, floating_point=not exact)


def _all_gaussian(kinds: Iterable[ReleaseKind]) -> bool:
    return all(kind.mechanism.normal is not None for kind in kinds)
