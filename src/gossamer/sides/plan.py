"""Plans of data sides as data: one value a party, fixed before the first release.

Each answers what it is charged for (`charges`), what it reveals (`divergence`), how many releases it is (`most`) and
how many numbers are drawn for it (`drawn`), so nobody has to ask for its kind but `making`, which opens data sides.

*Privacy unit.* Noise of `Samples` hides one example, as its kinds say; that of all others hides a client (or agent)
with all that it has. *Trust scope.* Whoever is in ``scope`` may hear what is raw; nobody else may. *Kind of release* is
the class. None of these follows from the others: a client's update may be raw inside a scope, or noised for everybody;
a curator is trusted with raw updates, and what it sends is for all.

Proofs
------
**Client updates.** A client sends u min(1, C/|u|) + N(0, (z C)^2 I), whatever its data and whatever it was asked
before. Two of its vectors are at most 2 C apart; against a client without data, whose update is 0, at most C. So each
is a Gaussian release of sensitivity `NeighboringRelation.sensitivity` (C) on the whole data: `ReleaseKind` of rate 1.
Releases compose adaptively, and what one client sends holds no other client's data but as post-processing of what was
released.

**Curators.** Each release is the sum of at most one vector a client, of length C at most, since the curator counts as 0
whatever is longer, plus N(0, (z C)^2 I). Replacing all that one client has moves the sum by at most 2 C, and without
its data by C: a Gaussian release again, charged to those clients whose updates are in the sum. Later updates depend on
earlier releases and on the client's own data alone. The curator sees every update; nothing is proved against it.

**Masked members.** `agent_noise`: by a member's own noise each sum is rho-zero-concentrated for replacing all of its
data, so T sums have Renyi divergence T rho a at every order a. Taking a client's data away, which makes its update 0,
is one of these replacements.

**Streams.** `unit_divergence`: the records are mu-Gaussian or epsilon-differentially private jointly, against all that
are not in their unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.accountants import renyi_divergence
from gossamer.privacy.agent_noise import AgentNoise
from gossamer.privacy.deployed_guarantee import Drawn
from gossamer.privacy.ledger import Plan, Unlimited
from gossamer.privacy.mechanisms import Gaussian, Mechanism, NeighboringRelation
from gossamer.privacy.noise_streams import CorrelatedNoise, NoiseLaw
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.renyi import check_order, response
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.privacy.unit_ledger import StreamKind
from gossamer.privacy.unit_tasks import LocalQuery
from gossamer.sides.charges import Charges, CuratorCharges, ReleaseCharges, StreamCharges, SumCharges

if TYPE_CHECKING:  # masks need cryptography, which is optional
    from gossamer.privacy.round_terms import RoundTerms
    from gossamer.privacy.secure_unit import SecureUnit

WHOLE = Poisson(1.0)
"""The sampling of a release that all data of a client are in."""
Members = Callable[[int], Sequence[str]]
"""Who takes part in a round, in the order of their numbers: public coins."""


class Trust(StrEnum):
    """Whom an owner trusts with what is raw, when it asks what a run reveals."""

    NOBODY = "nobody"
    SCOPE = "scope"
    """All of the trust scope, such as the own server of a unit, or a curator."""


class SidePlan(Protocol):
    """What leaves one party's data, at most."""

    @property
    def scope(self) -> frozenset[str]:
        """Who may hear what is raw; empty if nothing raw ever leaves."""
        ...

    @property
    def owners(self) -> tuple[str, ...]:
        """Whose data the releases hold, where that is not the party itself."""
        ...

    def charges(self) -> Charges | None:
        """What the ledger is opened for; None for a party that is charged nothing."""
        ...

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        """The Renyi divergence of all that the plan reveals; infinite where nothing is proved."""
        ...

    def most(self) -> int | None:
        """Most releases; None where nothing limits them."""
        ...

    def drawn(self) -> Drawn:
        """What is drawn for the whole plan in a deployment."""
        ...


@dataclass(frozen=True)
class Samples:
    """Noisy sums over samples of the party's own examples.

    Attributes
    ----------
    kinds : mapping of ReleaseKind to int
        The most releases of each.
    enforced : bool
        Whether the ledger holds the party to them. Without noise there is nothing to hold to: all is admitted.
    queries : callable
        What will be asked, to find out when a data side is opened whether its noise can be drawn.
    """

    kinds: Counts
    enforced: bool = True
    queries: Callable[[], Iterable[Query]] = field(default=tuple, compare=False)
    scope: frozenset[str] = frozenset()
    owners: tuple[str, ...] = ()

    def charges(self) -> ReleaseCharges:
        return ReleaseCharges(Plan(self.kinds) if self.enforced else Unlimited())

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        return _of_kinds(self.kinds, order, relation) if self.enforced else math.inf

    def most(self) -> int | None:
        return sum(self.kinds.values())

    def drawn(self) -> Drawn:
        # A count of unclipped gradients is one number more.
        return _drawn({kind: (kind.size + 1) * count for kind, count in self.kinds.items()}, self.kinds)


@dataclass(frozen=True)
class Pairwise:
    """A paper's noise between pairs of agents of one unit, which cancels in their sum: it hides nothing."""

    unit: str
    members: Members
    standard_deviation: float


@dataclass(frozen=True)
class Stream:
    """Records of one stream of correlated noise, drawn by a server for a whole unit.

    Attributes
    ----------
    law : CorrelatedNoise or None
        Of all records; None adds nothing.
    records, size : int
        How many, and of how many coordinates each.
    moved : float or None
        D: how far one change of the data moves a round's update; None where nothing is proved.
    sampled : int
        L, agents whose updates are in one.
    longest : float
        The most L2 norm of a round's update.
    owners : tuple of str
        Whose data the records hold: each has a line in the ledger.
    mu, epsilon : float
        What is proved of all records jointly: Gaussian, or pure, differential privacy; infinite where it is not.
    """

    law: CorrelatedNoise | None
    records: int
    size: int
    moved: float | None
    sampled: int
    longest: float
    owners: tuple[str, ...]
    mu: float = math.inf
    epsilon: float = math.inf
    scope: frozenset[str] = frozenset()

    @property
    def kind(self) -> StreamKind:
        """The law, as ledgers have it."""
        return StreamKind(self.law, self.records, self.size)

    @property
    def agents_sampled(self) -> int:
        """L."""
        return self.sampled

    def charges(self) -> StreamCharges:
        return StreamCharges(self.kind, self.owners)

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        check_order(order)
        if trust is Trust.NOBODY or self.law is None or self.moved is None:
            return math.inf
        pure = response(self.epsilon, order) if self.epsilon < math.inf else math.inf
        return min(order * self.mu**2 / 2, pure)

    def most(self) -> int:
        return self.records

    def drawn(self) -> Drawn:
        if self.law is None:
            return Drawn()
        exact = self.law.law is NoiseLaw.GAUSSIAN
        return Drawn(self.records * self.size if exact else 0, floating_point=not exact)


@dataclass(frozen=True)
class ClientUpdate:
    """A client's own update of a few local steps.

    Attributes
    ----------
    query : LocalQuery or None
        How it is made; another question is refused. None answers any, where that decides nothing.
    bound : float
        C, the L2 norm to which a whole update is clipped before noise; infinite leaves raw ones as they are.
    noise : Mechanism, Pairwise or None
        What the client adds itself, to send its update to everybody; None, and noise of pairs, keep it in ``scope``.
    most_updates, size : int
        How many noised updates, and of how many coordinates each.
    behind : SidePlan or None
        What leaves the scope of a raw update, such as its server's stream, or a curator's sums.
    """

    query: LocalQuery | None = None
    bound: float = math.inf
    noise: Mechanism | Pairwise | None = None
    most_updates: int = 0
    size: int = 0
    scope: frozenset[str] = frozenset()
    behind: SidePlan | None = field(default=None, repr=False)
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise SpecError(f"an update is clipped to a length above 0, found {self.bound!r}")
        if isinstance(self.noise, Mechanism) and self.noise.private and self.noise.clip != self.bound:
            raise SpecError(f"noise for updates of length {self.bound:g} has that clip, found {self.noise}")
        if isinstance(self.noise, Mechanism):
            _check_whole_vectors(self.noise)
        _check_number("updates", self.most_updates)

    @property
    def kind(self) -> ReleaseKind | None:
        """What a noised update is charged as; None for a raw one."""
        return ReleaseKind(self.noise.unit(), WHOLE, self.size) if isinstance(self.noise, Mechanism) else None

    def charges(self) -> ReleaseCharges | None:
        kind = self.kind
        if kind is None:
            return None
        policy = Plan({kind: self.most_updates}) if kind.mechanism.private else Unlimited()
        return ReleaseCharges(policy, "client")

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        check_order(order)
        if self.kind is None:
            return _behind(self.behind, order, relation, trust)
        if not self.kind.mechanism.private:
            return math.inf  # whatever the count: nothing holds the client to it
        return _of_kinds({self.kind: self.most_updates}, order, relation)

    def most(self) -> int | None:
        return None if self.kind is None else self.most_updates

    def drawn(self) -> Drawn:
        counts = {} if self.kind is None else {self.kind: self.most_updates}
        return _drawn({kind: kind.size * count for kind, count in counts.items()}, {})


@dataclass(frozen=True)
class MaskedMember:
    """A member of sums of updates whose parts nobody sees: masks hide each, and noise, if any, what the sum shows.

    Attributes
    ----------
    bound : SecureUnit
        To which length updates are scaled, how they become integers, who is in a group, and each member's noise.
    coins : callable
        Who takes part in a round.
    terms : RoundTerms
        What all members agreed on before.
    sums : int
        In how many the member may be.
    honest : int
        How many members of every sum, this one included, are trusted to add their noise, where anybody is trusted.
    behind : SidePlan or None
        What leaves the unit, where its server is trusted with sums.
    """

    bound: SecureUnit
    coins: Members
    terms: RoundTerms
    sums: int
    honest: int = 1
    scope: frozenset[str] = frozenset()
    behind: SidePlan | None = field(default=None, repr=False)
    owners: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_number("masked sums", self.sums)
        if not 1 <= (whole_number(self.honest) or 0) <= self.bound.group.minimum:
            raise SpecError(
                f"1 to {self.bound.group.minimum} members of every sum, which has no more for certain, are trusted to "
                f"add their noise, found {self.honest!r}"
            )

    @property
    def noise(self) -> AgentNoise | None:
        """What the member adds itself."""
        return self.bound.noise

    def charges(self) -> SumCharges | None:
        return None if self.noise is None else SumCharges(self.noise, self.sums)

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        check_order(order)
        honest = 1 if trust is Trust.NOBODY else self.honest
        own = math.inf if self.noise is None else order * self.noise.rho(honest) * self.sums
        return min(_behind(self.behind, order, relation, trust), own)

    def most(self) -> int | None:
        return None if self.noise is None else self.sums

    def drawn(self) -> Drawn:
        return Drawn()  # its sampler has the exact law


@dataclass(frozen=True)
class Curator:
    """A trusted server that adds the noise to sums of clients' raw updates.

    Attributes
    ----------
    kinds : mapping of ReleaseKind to int
        The most releases that one client may be in, of each kind: `WHOLE` samples of the cohort.
    cohort : int
        The most clients in a sum.
    owners : tuple of str
        The clients: each has a line in the ledger, and only they and the curator hear what is raw.
    bound : float
        C, the most L2 norm of an update; a longer one counts as 0.
    """

    kinds: Counts
    cohort: int
    owners: tuple[str, ...]
    bound: float
    name: str = "curator"

    def __post_init__(self) -> None:
        if self.cohort < 1 or not self.bound > 0:
            raise SpecError(f"a curator has a cohort of 1 or more, and a bound above 0, found {self}")
        if any(kind.sampling != WHOLE for kind in self.kinds):
            raise SpecError("a curator's releases are charged to all that are in them: no sampling hides who is")
        for kind in self.kinds:
            _check_whole_vectors(kind.mechanism)

    @property
    def scope(self) -> frozenset[str]:
        return frozenset((self.name, *self.owners))

    @property
    def private(self) -> bool:
        """Whether all releases have noise."""
        return all(kind.mechanism.private for kind in self.kinds)

    def charges(self) -> CuratorCharges:
        return CuratorCharges(self.name, self.owners, Plan(self.kinds) if self.private else Unlimited())

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        # Without noise in all of them nothing holds the curator to their numbers.
        proved = self.private and trust is not Trust.NOBODY
        return _of_kinds(self.kinds, order, relation) if proved else math.inf

    def most(self) -> int:
        return sum(self.kinds.values())

    def drawn(self) -> Drawn:
        # Of the sums that one client is in: others do not depend on its data but by way of these.
        return _drawn({kind: kind.size * count for kind, count in self.kinds.items()}, {})


@dataclass(frozen=True)
class Nothing:
    """A party without data: there is nothing to ask it."""

    scope: frozenset[str] = frozenset()
    owners: tuple[str, ...] = ()

    def charges(self) -> None:
        return None

    def divergence(self, order: float, relation: NeighboringRelation, trust: Trust) -> float:
        return 0.0

    def most(self) -> int | None:
        return None

    def drawn(self) -> Drawn:
        return Drawn()


def _check_whole_vectors(noise: Mechanism) -> None:
    """Refuse noise for vectors of half its clip: two whole updates are up to twice the clip apart."""
    replaced = NeighboringRelation.REPLACE_ONE
    if noise.sensitivity(replaced) < replaced.sensitivity(noise.clip):
        raise SpecError(
            f"updates as long as the clip are up to twice that apart, and {type(noise).__name__} is for vectors of "
            "half of it; use Gaussian"
        )


def _check_number(what: str, number: int) -> None:
    if whole_number(number) is None:
        raise SpecError(f"expected a whole number of {what}, 0 or more, found {number!r}")


def _behind(plan: SidePlan | None, order: float, relation: NeighboringRelation, trust: Trust) -> float:
    """What leaves a trust scope, of one who trusts it; nothing is proved for anybody else."""
    return math.inf if plan is None or trust is Trust.NOBODY else plan.divergence(order, relation, trust)


def _of_kinds(kinds: Counts, order: float, relation: NeighboringRelation) -> float:
    check_order(order)
    charged = [(kind, count) for kind, count in kinds.items() if count]
    if not all(kind.mechanism.private for kind, _ in charged):
        return math.inf
    return math.fsum(count * renyi_divergence(kind, order, relation) for kind, count in charged)


def _drawn(numbers: Mapping[ReleaseKind, int], sampled: Counts) -> Drawn:
    """Of so many numbers for each kind; ``sampled`` counts the releases that also draw a sample."""
    samples = sum(count for kind, count in sampled.items() if isinstance(kind.sampling, Poisson))
    exact = _all_gaussian(numbers)
    return Drawn(sum(numbers.values()) if exact else 0, samples if exact else 0, floating_point=not exact)


def _all_gaussian(kinds: Iterable[ReleaseKind]) -> bool:
    return all(isinstance(kind.mechanism, Gaussian) for kind in kinds)
