"""Plans of the parties of federated units: a server's stream of noise, and members of masked sums.

Proofs
------
**Masked members.** `agent_noise`: by a member's own noise each sum is rho-zero-concentrated for replacing all of its
data, so T sums have Renyi divergence T rho a at every order a. Taking a client's data away, which makes its update 0,
is one of these replacements.

**Streams.** `streams.agent_noise`: the records are mu-Gaussian or epsilon-differentially private jointly, against all
that are not in their unit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gossamer.errors import SpecError
from gossamer.numbers import whole_number
from gossamer.privacy.accounting.renyi import check_order
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.agent_noise import AgentNoise, messages_divergence, messages_entry, own_entry
from gossamer.privacy.streams.noise_streams import CorrelatedNoise, NoiseLaw, StreamKind
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.ledger import Account, Charges
from gossamer.sides.side_plan import (
    NOTHING_BOUNDED,
    Apart,
    CountedOn,
    Members,
    Revealed,
    SidePlan,
    Trust,
    Trusted,
    behind_scope,
    check_number,
)

if TYPE_CHECKING:  # masks need cryptography, which is optional
    from gossamer.sides.secure_unit import RoundTerms, SecureUnit


@dataclass(frozen=True)
class Stream:
    """Records of one stream of correlated noise, drawn by a server for a whole unit.

    Attributes
    ----------
    law : CorrelatedNoise or None
        Law of all records; None adds nothing.
    records, size : int
        Number of records, and of coordinates of each.
    moved : float or None
        D: how far one change of the data moves a round's update; None where nothing is proved.
    sampled : int
        L, agents whose updates are in one.
    longest : float
        The most L2 norm of a round's update.
    owners : tuple of str
        Parties whose data the records hold: each has a line in the ledger.
    mu, epsilon : float
        Gaussian, or pure, differential privacy that is proved of all records jointly; infinite where it is not.
    unit, observer : str
        Unit that is protected, whose data ``moved`` is about, and observer it is protected from.
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
    unit: str = ""
    observer: str = ""

    @property
    def kind(self) -> StreamKind:
        """The law, as ledgers have it."""
        return StreamKind(self.law, self.records, self.size)

    @property
    def agents_sampled(self) -> int:
        """L."""
        return self.sampled

    @property
    def trusted(self) -> Trusted:
        return Trusted(self.scope)

    def charges(self) -> Charges:
        kinds = {self.kind: self.records}
        return Charges(kinds, True, self.unit, self.observer, self.owners, account=Account.STREAM)

    def revealed(self, trust: Trust) -> Revealed:
        if trust is Trust.NOBODY or self.law is None or self.moved is None:
            return NOTHING_BOUNDED
        return Revealed(
            lambda order, relation: messages_divergence(self.mu, self.epsilon, order),
            messages_entry(self.mu, self.epsilon),
        )

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        # A state is the last one, times a weight of at most 1, and one update more.
        return Apart(math.inf if self.moved is None else self.moved, noisy=self.law is not None, adds=True)

    def said(self, who: str, often: str, examples: str) -> str:
        noise = "without noise" if self.law is None else "with noise that covers these"
        return f"{who} sends other servers {often} messages that hold its agents' updates, {noise}."

    def drawn(self) -> Drawn:
        if self.law is None:
            return Drawn()
        exact = self.law.law is NoiseLaw.GAUSSIAN
        return Drawn(self.records * self.size if exact else 0, floating_point=not exact)


@dataclass(frozen=True)
class MaskedMember:
    """A member of sums of updates whose parts nobody sees: masks hide each, and noise, if any, what the sum shows.

    Attributes
    ----------
    bound : SecureUnit
        Parameters: length to which updates are scaled, encoding as integers, the group, and each member's noise.
    coins : callable
        Function that names who takes part in a round.
    terms : RoundTerms
        Terms that all members agreed on before.
    sums : int
        Number of sums that the member may be in.
    honest : int
        Number of members of every sum, this one included, that are trusted to add their noise, where anybody is
        trusted.
    groups : frozenset of tuple of str
        Those who take part in one round or another, where members are trusted: what ``coins`` say of all rounds.
    behind : SidePlan or None
        Plan of what leaves the unit, where its server is trusted with sums.
    """

    bound: SecureUnit
    coins: Members
    terms: RoundTerms
    sums: int
    honest: int = 1
    groups: frozenset[tuple[str, ...]] = field(default=frozenset(), repr=False)
    scope: frozenset[str] = frozenset()
    behind: SidePlan | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check_number("masked sums", self.sums)
        if not 1 <= (whole_number(self.honest) or 0) <= self.bound.group.minimum:
            raise SpecError(
                f"1 to {self.bound.group.minimum} members of every sum, which has no more for certain, are trusted to "
                f"add their noise, found {self.honest!r}"
            )

    @property
    def noise(self) -> AgentNoise | None:
        """Noise that the member adds itself."""
        return self.bound.noise

    @property
    def trusted(self) -> Trusted:
        shared = self.noise is not None and self.honest > 1
        on = CountedOn(self.groups, self.bound.group.minimum - self.honest) if shared else None
        return Trusted(self.scope, on, marked=True)

    def charges(self) -> Charges | None:
        if self.noise is None:
            return None
        return Charges({self.noise: self.sums}, unit=None, observer="own server", account=Account.SUMS)

    def revealed(self, trust: Trust) -> Revealed:
        noise, honest = self.noise, 1 if trust is Trust.NOBODY else self.honest
        behind = behind_scope(self.behind, trust)

        def divergence(order: float, relation: NeighboringRelation) -> float:
            check_order(order)
            own = math.inf if noise is None else order * noise.rho(honest) * self.sums
            return min(behind.divergence(order, relation), own)

        return Revealed(divergence, min(behind.entry, own_entry(noise, self.sums, honest)))

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        return Apart(2 * self.bound.reach / self.bound.fixed.resolution)

    def said(self, who: str, often: str, examples: str) -> str:
        noise = ", with noise of its own in each" if self.noise is not None else ""
        return f"{who} sends masked updates{noise}: nobody can read one, only sums over all that are masked together."

    def drawn(self) -> Drawn:
        return Drawn() if self.noise is None else Drawn(self.sums * self.honest * self.noise.size)


def smallest_sum(side: SidePlan) -> int | None:
    """Least number of updates in the sums that a party hides in; None where it hides in none."""
    return side.bound.group.minimum if isinstance(side, MaskedMember) else None
