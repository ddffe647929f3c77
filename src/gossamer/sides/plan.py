"""Plans of data sides as data: one value a party, fixed before the first release.

Each answers what it is charged for (`charges`), what it reveals (`revealed`), whom it trusts (`trusted`), how far apart
answers about neighbouring data may be (`apart`, a sensitivity, which audits hold answers against) and how many numbers
are drawn for it (`drawn`), so nobody has to ask for its kind but `pool`, which opens data sides.

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
released. That holds of any C which is fixed before the update is computed, by whomever and from whatever was released
before: z alone decides what the release reveals, as the distance of two updates and the noise grow alike. So where
questions say the clip, as in stages, each release is still charged as one of multiplier z, and a server that lies about
C harms the model alone.

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
client learn, the sum is one over a Poisson sample of clients: the pairs of `accounting.accountants` for examples
hold for them, at most one vector of length C each. Every client is charged for every such sum, since what is proved of
it rests on the chance that it was not in it. A client that was drawn and stays silent, for reasons other than data and
cohort, lowers its own q: given all who are silent, each other client is still in it with q at most. Coins of one sum
tell nothing of another's. Whoever sees whom the curator talks to sees the coins; so nothing is proved against it.

**Masked members.** `graph_bounds`: by a member's own noise each sum is rho-zero-concentrated for replacing all of its
data, so T sums have Renyi divergence T rho a at every order a. Taking a client's data away, which makes its update 0,
is one of these replacements.

**Streams.** `graph_bounds`: the records are mu-Gaussian or epsilon-differentially private jointly, against all
that are not in their unit.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gossamer.errors import SpecError, whole_number
from gossamer.privacy.accounting.accountants import renyi_divergence
from gossamer.privacy.accounting.filters import NOTHING_PROVED, FilterEntry
from gossamer.privacy.accounting.renyi import check_order
from gossamer.privacy.guarantees import CLIENT, EXAMPLE, OTHER_NODES
from gossamer.privacy.mechanisms import BatchSampling, Counts, Mechanism, NeighboringRelation, Poisson, ReleaseKind
from gossamer.privacy.streams import graph_bounds
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, NoiseLaw, StreamKind
from gossamer.privacy.streams.graph_bounds import AgentNoise, ModelLengths
from gossamer.privacy.tasks import UPDATES, Query, UpdateQuery
from gossamer.sides.ledger import Account, Charges

if TYPE_CHECKING:  # masks need cryptography, which is optional
    from gossamer.sides.secure_unit import RoundTerms, SecureUnit

NOT_CRASHES = "the timing of messages is not covered, and neither are crashes"
WHOLE = Poisson(1.0)
"""The sampling of a release that all data of a client are in."""
Members = Callable[[int], Sequence[str]]
"""Who takes part in a round, in the order of their numbers: public coins."""
EVERYBODY = "the server and all other clients together, malicious ones included, and anyone on the wires"
BUT_THE_CURATOR = (
    "all other clients together, malicious ones included, and anyone on the wires, but not the trusted server"
)
BUT_WHOEVER_SEES_THE_CURATOR = (
    "all other clients together, malicious ones included, and whoever sees what is released, but neither the "
    "trusted server nor anyone who sees whom it talks to, and when"
)


@dataclass(frozen=True)
class Times:
    """Knowledge of when a party's messages are sent.

    Attributes
    ----------
    assumption : str
        Assumption in words.
    late : int
        Poisson samples that may be larger than their deadline provides for.
    """

    assumption: str = NOT_CRASHES
    late: int = 0


@dataclass(frozen=True)
class Drawn:
    """Numbers that a party draws for its whole plan.

    Attributes
    ----------
    numbers : int
        Discrete Gaussians in blocks: coordinates of all releases.
    samples : int
        Poisson samples.
    floating_point : bool
        Whether its noise is drawn in floating point.
    network : bool
        Whether gradients are those of a network.
    times : Times
        Knowledge of when its answers are sent.
    """

    numbers: int = 0
    samples: int = 0
    floating_point: bool = False
    network: bool = False
    times: Times = Times()


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


def most_drawn(sampling: BatchSampling, shard: int) -> int:
    """Most examples that are drawn of a shard, but for a chance of e^-45.

    Of independent draws with mean m there are 2 m + 40 or more with a chance of at most exp(-t^2 / (2 m + 2 t/3)), with
    t = m + 40, by Bernstein's inequality; that is exp(-3/8 (m + 40)^2 / (m + 10)), and largest for m = 20.
    """
    return min(shard, math.ceil(2 * sampling.rate * shard) + 40)


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
    entry : FilterEntry
        The same as Gaussian differential privacy, but for a failure, where it is no matter of kinds of releases.
    """

    divergence: Callable[[float, NeighboringRelation], float]
    entry: FilterEntry = NOTHING_PROVED


class SidePlan(ABC):
    """Plan of the most that leaves one party's data. Each kind says itself what it reveals and is charged.

    Attributes
    ----------
    lengths : ModelLengths or None
        Lengths that models of an honest run can have, with the noise that is planned, where somebody relies on them.
    """

    lengths: ModelLengths | None = None

    @property
    def trusted(self) -> Trusted:
        """Conditions that its proofs rest on."""
        return Trusted()

    @abstractmethod
    def charges(self) -> Charges | None:
        """Charges that the ledger is opened for; None for a party that is charged nothing."""

    @abstractmethod
    def revealed(self, trust: Trust) -> Revealed:
        """Bounds of all that the plan reveals, for an owner with this trust."""

    @abstractmethod
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

    @abstractmethod
    def drawn(self) -> Drawn:
        """Numbers drawn for the whole plan in a deployment."""

    @abstractmethod
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


@dataclass(frozen=True)
class Nothing(SidePlan):
    """A party without data: there is nothing to ask it."""

    def charges(self) -> None:
        return None

    def revealed(self, trust: Trust) -> Revealed:
        return Revealed(lambda order, relation: 0.0)

    def said(self, who: str, often: str, examples: str) -> str:
        return ""

    def drawn(self) -> Drawn:
        return Drawn()

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> None:
        return None


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
    exact = all(kind.mechanism.normal is not None for kind in numbers)
    return Drawn(sum(numbers.values()) if exact else 0, samples if exact else 0, floating_point=not exact)


@dataclass(frozen=True)
class Partner:
    """A party that draws of noise are shared with.

    Attributes
    ----------
    name : str
        Its name.
    shares : tuple of (int, float)
        Length of the draw, over what the mechanism says, in releases after so many, by rising number.
    """

    name: str
    shares: tuple[tuple[int, float], ...]

    def share(self, number: int) -> float:
        """Length of the draw in the release of a ``number``, from 1 on."""
        return next(share for after, share in reversed(self.shares) if after < number)


@dataclass(frozen=True)
class Samples(SidePlan):
    """Noisy sums over samples of the party's own examples.

    Attributes
    ----------
    kinds : mapping of ReleaseKind to int
        The most releases of each.
    enforced : bool
        Whether the ledger holds the party to them. Without noise there is nothing to hold to: all is admitted.
    queries : callable
        Function that makes what will be asked, to find out when a data side is opened whether its noise can be drawn.
    observer : str
        Observer that the noise protects an example from.
    unit : str
        Word for that example: one of training, unless it is held out.
    partners : tuple of Partner
        Parties with each of which a draw of every release is shared.
    """

    kinds: Counts
    enforced: bool = True
    queries: Callable[[], Iterable[Query]] = field(default=tuple, compare=False)
    observer: str = OTHER_NODES
    unit: str = EXAMPLE
    partners: tuple[Partner, ...] = ()

    def charges(self) -> Charges:
        return Charges(self.kinds, self.enforced, self.unit, self.observer)

    def revealed(self, trust: Trust) -> Revealed:
        return Revealed(partial(of_kinds, self.kinds)) if self.enforced else NOTHING_BOUNDED

    def apart(self, task: Any, relation: NeighboringRelation, shard: int) -> Apart:
        # Of local steps that are clipped one by one the later ones depend on the earlier; see `tasks.Round`.
        proved = task.query.sampling.proved and UPDATES.get(getattr(task, "update", ""), True)
        return of_sum(task.query, relation, most_drawn(task.query.sampling, shard), proved=proved)

    def said(self, who: str, often: str, examples: str) -> str:
        how = ", each one's part limited in length (the clip), with noise added" if self.enforced else ", without noise"
        return f"{who} releases {often} sums, each over {examples} of its examples drawn at random{how}."

    def drawn(self) -> Drawn:
        # A count of unclipped gradients is one number more.
        return drawn_for({kind: (kind.size + 1) * count for kind, count in self.kinds.items()}, self.kinds)


@dataclass(frozen=True)
class ClientUpdate(SidePlan):
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
        Whether each question says to which length an update is clipped, in the place of ``bound``; noise is then in
        proportion.
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
        if self.follows and self.noise is not None and not self.noise.scale_free:
            raise SpecError(f"a clip that moves takes noise in proportion to it, found {self.noise}; use Gaussian")
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
        law = self.noise.with_clip(task.bound) if self.follows else self.noise
        return of_sum(Query(WHOLE, law, 1.0), NeighboringRelation.REPLACE_ONE)

    def said(self, who: str, often: str, examples: str) -> str:
        if self.kind is None:
            return f"{who} shows updates of the model without noise to its own server alone."
        noise = "with noise of its own" if self.kind.mechanism.private else "without noise"
        return f"{who} releases {often} updates of the model, limited in length (the clip), {noise}."

    def drawn(self) -> Drawn:
        return drawn_for({} if self.kind is None else {self.kind: self.kind.size * self.most_updates}, {})


@dataclass(frozen=True)
class Curator(SidePlan):
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


@dataclass(frozen=True)
class StreamPlan(SidePlan):
    """Records of one stream of correlated noise, drawn by a server for a whole unit.

    Attributes
    ----------
    law : CorrelatedNoise or None
        Law of all records; None adds nothing.
    records, size : int
        Number of records, and of coordinates of each.
    moved : float or None
        D: how far one change of the data moves a round's update; None where nothing is proved.
    agents_sampled : int
        L, agents whose updates are in one.
    longest : float
        The most L2 norm of a round's update.
    owners : tuple of str
        Parties whose data the records hold: each has a line in the ledger.
    mu, epsilon : float
        Gaussian, or pure, differential privacy that is proved of all records jointly; infinite where it is not.
    unit, observer : str
        Unit that is protected, whose data ``moved`` is about, and observer it is protected from.
    lengths : ModelLengths or None
        As for all plans.
    """

    law: CorrelatedNoise | None
    records: int
    size: int
    moved: float | None
    agents_sampled: int
    longest: float
    owners: tuple[str, ...]
    mu: float = math.inf
    epsilon: float = math.inf
    scope: frozenset[str] = frozenset()
    unit: str = ""
    observer: str = ""
    lengths: ModelLengths | None = None

    @property
    def kind(self) -> StreamKind:
        """The law, as ledgers have it."""
        return StreamKind(self.law, self.records, self.size)

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
            lambda order, relation: graph_bounds.messages_divergence(self.mu, self.epsilon, order),
            graph_bounds.messages_entry(self.mu, self.epsilon),
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
class MaskedMember(SidePlan):
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

        return Revealed(divergence, min(behind.entry, graph_bounds.own_entry(noise, self.sums, honest)))

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
