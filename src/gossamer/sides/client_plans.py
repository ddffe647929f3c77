"""Plans whose privacy unit is a client with all of its data: its own updates, and a curator's sums of them.

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

**Counts.** A sum may have one coordinate more, in which a client that is in it has 1/2 or -1/2 (its update was shorter
than the clip, or clipped), and one whose update is 0, or counts as that, has 0. With noise of standard deviation z C on
the sum and s_b on the count, sqrt(1/z^2 + 1/(4 s_b^2)) = 1/m, each client has one vector of length 1/m at most in units
of the noise, and blanked it has 0: all of the above holds with m in the place of z (`privacy.clipping`). Clips then
move by released counts alone, and a sum is charged alike whatever its clip, as its noise is in proportion.

**Cohorts.** Where the curator draws the clients of a sum, each with probability q by a coin that only it and that
client learn, the sum is one over a Poisson sample of clients: the pairs of `accounting.accountant_table` for examples
hold for them, at most one vector of length C each. Every client is charged for every such sum, since what is proved of
it rests on the chance that it was not in it. A client that was drawn and stays silent, for reasons other than data and
cohort, lowers its own q: given all who are silent, each other client is still in it with q at most. Coins of one sum
tell nothing of another's. Whoever sees whom the curator talks to sees the coins; so nothing is proved against it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gossamer.errors import SpecError
from gossamer.privacy.guarantees import CLIENT
from gossamer.privacy.mechanisms import Mechanism, NeighboringRelation
from gossamer.privacy.releases import Counts, ReleaseKind
from gossamer.privacy.sampling import Poisson
from gossamer.privacy.tasks import Query
from gossamer.privacy.unit_tasks import UpdateQuery
from gossamer.sides.deployed_guarantee import Drawn
from gossamer.sides.ledger import Charges
from gossamer.sides.side_plan import (
    NOTHING_BOUNDED,
    WHOLE,
    Apart,
    Revealed,
    SidePlan,
    Trust,
    Trusted,
    behind_scope,
    check_number,
    drawn_for,
    of_kinds,
    of_sum,
)

EVERYBODY = "the server and all other clients together, malicious ones included, and anyone on the wires"
BUT_THE_CURATOR = (
    "all other clients together, malicious ones included, and anyone on the wires, but not the trusted server"
)
BUT_WHOEVER_SEES_THE_CURATOR = (
    "all other clients together, malicious ones included, and whoever sees what is released, but neither the "
    "trusted server nor anyone who sees whom it talks to, and when"
)


@dataclass(frozen=True)
class ClientUpdate:
    """A client's own update, of a few local steps or of a whole local training.

    Attributes
    ----------
    query : LocalQuery, TrainingQuery or None
        Terms on which it is made; another question is refused. None answers any, where that decides nothing.
    bound : float
        C, the L2 norm to which a whole update is clipped before noise; infinite leaves raw ones as they are.
    noise : Mechanism or None
        Noise that the client adds itself, to send its update to everybody; None keeps it in ``scope``.
    most_updates, size : int
        Number of noised or ``counted`` updates at most, and number of coordinates of each.
    behind : SidePlan or None
        Plan of what leaves the scope of a raw update, such as its server's stream, or a curator's sums.
    counted : ReleaseKind or None
        The curator's sum that a raw update goes into, once: the client charges itself that for each that it hands over.
        None where its line is kept by others alone, as in simulations.
    follows : bool
        Whether each question says to which length a raw update is clipped, in the place of ``bound``.
    """

    query: UpdateQuery | None = None
    bound: float = math.inf
    noise: Mechanism | None = None
    most_updates: int = 0
    size: int = 0
    scope: frozenset[str] = frozenset()
    behind: SidePlan | None = field(default=None, repr=False)
    counted: ReleaseKind | None = None
    follows: bool = False

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise SpecError(f"an update is clipped to a length above 0, found {self.bound!r}")
        if self.follows and self.noise is not None:
            raise SpecError(
                f"a clip that moves is for raw updates, which a trusted server counts, found noise {self.noise}"
            )
        if self.counted is not None and (self.noise is not None or self.counted.sampling != WHOLE):
            raise SpecError(
                "a client counts raw updates that it hands over, each as a release that it is known to be in, found "
                f"{self.counted} and noise {self.noise}"
            )
        if self.noise is not None:
            if self.noise.private and self.noise.clip != self.bound:
                raise SpecError(f"noise for updates of length {self.bound:g} has that clip, found {self.noise}")
            _check_whole_vectors(self.noise)
        check_number("updates", self.most_updates)

    @property
    def kind(self) -> ReleaseKind | None:
        """Kind of release that a noised update is charged as; None for a raw one."""
        return None if self.noise is None else ReleaseKind(self.noise.unit(), WHOLE, self.size)

    @property
    def trusted(self) -> Trusted:
        return Trusted(self.scope)

    def charges(self) -> Charges | None:
        kind = self.kind or self.counted
        if kind is None:
            return None
        # What is counted here goes raw to the server, which alone adds noise.
        observer = EVERYBODY if self.kind else BUT_THE_CURATOR
        return Charges({kind: self.most_updates}, kind.mechanism.private, CLIENT, observer)

    def revealed(self, trust: Trust) -> Revealed:
        if self.kind is None:
            return behind_scope(self.behind, trust)
        if not self.kind.mechanism.private:
            return NOTHING_BOUNDED  # whatever the count: nothing holds the client to it
        return Revealed(partial(of_kinds, {self.kind: self.most_updates}))

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        if self.noise is None:
            return Apart(math.inf, noisy=False)  # it is raw, and stays in its scope
        return of_sum(Query(WHOLE, self.noise, 1.0), NeighboringRelation.REPLACE_ONE)

    def said(self, who: str, often: str, examples: str) -> str:
        if self.kind is None:
            return f"{who} shows updates of the model without noise to its own server alone."
        noise = "with noise of its own" if self.kind.mechanism.private else "without noise"
        return f"{who} releases {often} updates of the model, limited in length (the clip), {noise}."

    def drawn(self) -> Drawn:
        return drawn_for({} if self.kind is None else {self.kind: self.kind.size * self.most_updates}, {})


@dataclass(frozen=True)
class Curator:
    """A trusted server that adds the noise to sums of clients' raw updates.

    Attributes
    ----------
    kinds : mapping of ReleaseKind to int
        The most releases that one client is charged for, of each kind: those that its update is in, where who is in
        them is public (`WHOLE`), and all of those whose clients the curator draws (another `Poisson`).
    cohort : int
        The most clients in a sum: all of them, where some are drawn.
    owners : tuple of str
        The clients: each has a line in the ledger, and shows the curator alone what is raw.
    bound : float
        C, the most L2 norm of an update; a longer one counts as 0. Where updates are counted, the clip at the start:
        each sum says its own.
    count_share : float
        r, the share of each release's squared privacy loss that counts updates shorter than the clip; 0 counts none.
    """

    kinds: Counts
    cohort: int
    owners: tuple[str, ...]
    bound: float
    name: str = "curator"
    count_share: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.count_share < 1:
            raise SpecError(f"the share of a count lies in [0, 1), found {self.count_share!r}")
        if self.cohort < 1 or not self.bound > 0:
            raise SpecError(f"a trusted server has a cohort of 1 or more, and a bound above 0, found {self}")
        if not all(isinstance(kind.sampling, Poisson) for kind in self.kinds):
            raise SpecError(
                "a trusted server sums clients that are named, or draws each by a coin; use Poisson sampling"
            )
        if self.draws and self.cohort < len(self.owners):
            raise SpecError(
                f"coins may draw all {len(self.owners)} clients, and a sum may have {self.cohort}; cut nobody off"
            )
        for kind in self.kinds:
            _check_whole_vectors(kind.mechanism)

    @property
    def scope(self) -> frozenset[str]:
        return frozenset((self.name,))

    @property
    def private(self) -> bool:
        """Whether all releases have noise."""
        return all(kind.mechanism.private for kind in self.kinds)

    @property
    def draws(self) -> bool:
        """Whether clients of some sums are drawn in secret."""
        return any(kind.sampling != WHOLE for kind in self.kinds)

    @property
    def trusted(self) -> Trusted:
        return Trusted(self.scope, hides_schedule=self.draws)

    @property
    def observer(self) -> str:
        """Observer from whom the noise protects a client: at a rate below 1 those alone who do not see who is drawn."""
        return BUT_WHOEVER_SEES_THE_CURATOR if self.draws else BUT_THE_CURATOR

    def charges(self) -> Charges:
        return Charges(self.kinds, self.private, CLIENT, self.observer, self.owners, self.name)

    def revealed(self, trust: Trust) -> Revealed:
        # Without noise in all of them nothing holds the curator to their numbers.
        proved = self.private and trust is not Trust.NOBODY
        return Revealed(partial(of_kinds, self.kinds)) if proved else NOTHING_BOUNDED

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        return of_sum(task.query, NeighboringRelation.REPLACE_ONE, self.cohort)

    def said(self, who: str, often: str, examples: str) -> str:
        noise = "with noise added" if self.private else "without noise"
        return f"{who} releases {often} sums of its clients' updates, {noise}."

    def drawn(self) -> Drawn:
        # Of the sums that one client is charged for: others do not depend on its data but by way of these.
        drawn = {kind: count for kind, count in self.kinds.items() if kind.sampling != WHOLE}
        more = 1 if self.count_share else 0
        return drawn_for({kind: (kind.size + more) * count for kind, count in self.kinds.items()}, drawn)


def _check_whole_vectors(noise: Mechanism) -> None:
    """Refuse noise for vectors of half its clip: two whole updates are up to twice the clip apart."""
    replaced = NeighboringRelation.REPLACE_ONE
    if noise.sensitivity(replaced) < replaced.sensitivity(noise.clip):
        raise SpecError(
            f"updates as long as the clip are up to twice that apart, and {type(noise).__name__} is for vectors of "
            "half of it; use Gaussian"
        )
