"""Problem that a run is planned from, and its plan: all that is fixed before the run's first release, as one value.

The problem is known before the run, and public but for how persons' examples lie at nodes. It has the settings that
plans depend on: privacy, budget, stop and masks. `experiment` makes a `Problem` of a spec and its data, and the
algorithm makes a `Plan` of the problem, whatever it is that nodes release.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import Discriminator, Field, PositiveFloat, StrictBool, Tag

from gossamer.algorithms.context import Workload
from gossamer.errors import SpecError, beginning, counted
from gossamer.privacy import guarantees
from gossamer.privacy.accounting.accountants import MOST_ROWS
from gossamer.privacy.clipping import ClipSettings
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import (
    BatchSampling,
    Counts,
    FixedSize,
    Mechanism,
    NeighboringRelation,
    NoNoise,
    Poisson,
    WithReplacement,
)
from gossamer.privacy.streams.graph_bounds import ModelLengths
from gossamer.section import Composite, Section
from gossamer.sides.plan import Nothing, Samples, SidePlan
from gossamer.topology.graphs import Graph
from gossamer.vectors import Part, Public

if TYPE_CHECKING:
    from gossamer.sides.pool import BlankSides
    from gossamer.sides.secure_unit import SecureUnit

One = TypeVar("One")
Several = TypeVar("Several")
# Tags in brackets are left out of error messages.
OneOr = Annotated[
    Annotated[One, Tag("[one]")] | Annotated[Several, Tag("[several]")],
    Discriminator(lambda value: "[several]" if isinstance(value, (list, tuple)) else "[one]"),
]
"""A value for all, or a list of another type."""
Multiplier = Annotated[float, Field(ge=1e-2, le=1e6)]
Multipliers = OneOr[Multiplier, tuple[Multiplier, ...]]
Epsilons = OneOr[PositiveFloat, tuple[PositiveFloat, ...]]
"""A number for all nodes, or a list with one for each."""


_LEVELS = {
    "noise_multiplier": (("gaussian",), "for gaussian noise", "leave it out"),
    "epsilon": (("l2_laplace",), "that of one release of l2_laplace", "leave it out, or give a budget"),
    "standard_deviation": (("gaussian", "laplace"), "for gaussian and laplace noise", "leave it out"),
}
"""Amounts of noise: the laws that have them, what they are, and what to do about one beside another law."""


class PrivacySettings(Composite):
    """Settings that make releases private.

    Attributes
    ----------
    mechanism : {"gaussian", "l2_laplace", "laplace", "none"}
        The noise law. ``l2_laplace``: density ~ exp(-epsilon |noise| / sensitivity). ``laplace``: of each coordinate,
        for `graph_federated`. ``none``: no noise, and the guarantee says "none".
    clip : float or mapping, optional
        C, the most L2 norm of a per-example gradient, or a mapping with a ``policy``: ``fixed`` (``bound``),
        ``quantile`` (follows a quantile of the norms, for a share of each release), ``stages`` (of `mapa`) or ``none``
        (of `graph_federated`: nothing is bounded, so nothing is guaranteed). By default, `mapa` has stages, `audp` with
        Gaussian noise a quantile, and other noise a clip of 1; without noise nothing is clipped. `graph_federated`
        clips mean gradients of mini-batches, with the regulariser's part. `fedavg`, `fedbuff` and `fedasync` clip a
        client's whole update, of all its local steps; with ``privacy_unit: example`` they clip per-example gradients.
        `audp`, `mapa` and `gossip` with ``privacy_unit: client`` clip a node's whole gradient.
    sampling : {"poisson", "fixed_size"}
        Way in which batches are drawn.
    neighboring_relation : {"add_or_remove_one", "replace_one"}
        Relation of datasets that are neighbours.
    noise_multiplier : float or list, optional
        Standard deviation of ``gaussian`` noise on the sum, over C; a list has one for each node. Left out, it is
        calibrated to the budget.
    epsilon : float or list, optional
        Pure epsilon of one ``l2_laplace`` release on a full batch; a list has one for each node. Left out, it is
        calibrated to the budget.
    standard_deviation : float, optional
        Standard deviation of each coordinate of what a server's ``gaussian`` or ``laplace`` noise is made of in a round
        of `graph_federated`. Left out, it is calibrated to the budget.
    agent_noise : float, optional
        Standard deviation of each coordinate of what an agent of `graph_federated` with ``masking: secure`` adds to its
        update, against its own server, over the most length of an update, mu B. Servers add nothing beside it where
        ``noise: none`` says so.
    norm : {"gamma", "exponential"}
        Law of the norm of ``l2_laplace``. ``exponential`` reproduces a paper's figures and guarantees nothing.
    noise_scope : {"all", "first_layer"}
        Coordinates that ``l2_laplace`` noises. ``first_layer`` reproduces a paper's figures and guarantees nothing.
    delta : float
        Delta at which epsilon is reported when there is no budget.
    accept_weak : bool, optional
        ``true`` takes a delta above 0.01, of the budget or this one, which says next to nothing.
    noise_secret : {"fresh", "reproducible"}
        ``fresh``: noise and samples of a simulation come from 128 random bits, drawn for each run and kept beside its
        results. ``reproducible``: from the seed, for tests and studies; the guarantee says "none".
    shared_samples : bool, optional
        ``true`` draws batches from the seed alone, so that runs which differ in noise, mechanism or masking draw the
        same ones, for paired comparisons. Only with reproducible noise, or where there is nothing to hide.
    """

    mechanism: Literal["gaussian", "l2_laplace", "laplace", "none"] = "gaussian"
    clip: ClipSettings | None = None
    sampling: Literal["poisson", "fixed_size"] = "poisson"
    neighboring_relation: NeighboringRelation | None = None
    noise_multiplier: Multipliers | None = None
    epsilon: Epsilons | None = None
    standard_deviation: PositiveFloat | None = None
    agent_noise: PositiveFloat | None = None
    norm: Literal["gamma", "exponential"] = "gamma"
    noise_scope: Literal["all", "first_layer"] = "all"
    delta: float = Field(default=1e-5, ge=1e-50, lt=1)
    accept_weak: StrictBool | None = None
    noise_secret: Literal["fresh", "reproducible"] = "fresh"
    shared_samples: StrictBool | None = None

    def _problems(self) -> Iterator[str]:
        for name, (laws, what, remedy) in _LEVELS.items():
            if getattr(self, name) is not None and self.mechanism not in laws:
                yield f"{name} is {what}, and mechanism is {self.mechanism}; {remedy}"
        if not self.proved and self.mechanism != "l2_laplace":
            yield f"norm and noise_scope are for l2_laplace, and mechanism is {self.mechanism}"
        if not self.proved and self.epsilon is None:
            yield "norm: exponential and noise_scope: first_layer meet no budget; give privacy.epsilon"

    @property
    def proved(self) -> bool:
        """Whether the noise is one of those that a guarantee is proved for, or none at all."""
        return self.norm == "gamma" and self.noise_scope == "all"

    @property
    def level(self) -> float | tuple[float, ...] | None:
        """Amount of noise that the spec says."""
        if self.standard_deviation is not None:
            return self.standard_deviation
        return self.noise_multiplier if self.mechanism == "gaussian" else self.epsilon

    @property
    def relation(self) -> NeighboringRelation:
        """The relation asked for, or the one that goes with the sampling."""
        if self.neighboring_relation is not None:
            return self.neighboring_relation
        poisson = self.sampling == "poisson"
        return NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE


class SecureSums(Section):
    """Base of settings whose kind ``secure`` hides updates in exact sums.

    Attributes
    ----------
    name : {"none", "secure"}
        Name of the kind.
    bits, threshold, minimum, fraction_bits
        Settings of ``secure``, as all others are; each algorithm says what they are of its own nodes.
    """

    name: Literal["none", "secure"] = "none"
    bits: Literal[32, 64] = 32
    threshold: int | None = Field(default=None, ge=2)
    minimum: int | None = Field(default=None, ge=2)
    fraction_bits: int | None = None

    def _problems(self) -> Iterator[str]:
        fields = type(self).model_fields
        foreign = [key for key in fields if key != "name" and getattr(self, key) != fields[key].default]
        if foreign and self.name != "secure":
            yield (
                f"masking: {' and '.join(foreign)} {'belong' if foreign[1:] else 'belongs'} to secure, found "
                f"{self.name}"
            )

    def unit(self, name: str, reach: float, members: int, size: int, **own: Any) -> SecureUnit:
        """Masking of updates of ``size`` numbers in the unit ``name``, of so many members a round.

        Raises
        ------
        CallerError
            If clip, members and these settings do not fit together, or cryptography is missing.
        """
        # Masks need cryptography, which is optional, so it is imported only where they are wanted.
        from gossamer.sides.secure_unit import secure_unit

        own |= {"bits": self.bits, "threshold": self.threshold or 0, "minimum": self.minimum or 0}
        with beginning(f"algorithm.masking of {name}", SpecError):
            return secure_unit(name, reach, members, size, fraction_bits=self.fraction_bits, **own)


class Budget(Section):
    """The most that any node's data may leak: ``epsilon`` at ``delta``; a list has an epsilon for each node.

    Attributes
    ----------
    epsilon : float or list
        Upper bound of the privacy loss.
    delta : float
        Probability with which it may not hold.
    rows_per_person : int, optional
        The guarantee is for all training examples of a person together, who has at most so many. Left out, it is for
        each example. Where the data say whose they are (``dataset.person``), more are refused.
    """

    epsilon: Epsilons
    delta: float = Field(default=1e-5, ge=1e-50, lt=1)
    rows_per_person: int | None = Field(default=None, ge=1, le=MOST_ROWS)


EXAMPLE = "example"
"""The unit of privacy of most algorithms; others protect all that a party has."""


@dataclass(frozen=True)
class Terms:
    """Terms of what is released under some settings, as far as they decide it.

    Attributes
    ----------
    noiseless : bool
        Whether this is the algorithm without noise.
    proved : bool
        Whether a guarantee is proved for what is released.
    sampling : str, optional
        Scheme by which examples are drawn; None where ``privacy.sampling`` says it.
    sensitivity : float
        Distance that one example moves what is released, at most, in clips.
    clipped_whole : bool
        Whether what is released is clipped as a whole, and not example by example.
    unit : str
        Unit that a guarantee protects, as owners' policies call it: ``example``, ``client`` or ``agent``.
    relation : NeighboringRelation, optional
        Relation of data that are neighbours, where the spec leaves it to the algorithm; None where the sampling says
        it.
    hiding : bool
        Whether nodes draw what nobody may guess beside noise, such as masks.
    limit : int, optional
        A bound on the run's length, beside ``updates_per_node``.
    told : bool
        Whether nodes go by how many updates all of them have made, which only a simulation tells them; see
        `protocol.events.Counted`. Deployments refuse such settings.
    rounds : bool
        Whether a release sums up a whole round, and not one batch's gradients.
    linear : bool
        Whether messages are sums of what was released, times numbers that depend on no data; a robust rule makes others
        of it, and so does rounding.
    packed : bool
        Whether vectors in messages are bytes of another form.
    paired : bool
        Whether nodes share draws of noise, two by two.
    training : tuple of str
        Settings of local training that code which is not Gossamer's has itself, where it may train; empty elsewhere.
    """

    noiseless: bool = False
    proved: bool = True
    sampling: str | None = None
    sensitivity: float = 1.0
    clipped_whole: bool = False
    unit: str = EXAMPLE
    relation: NeighboringRelation | None = None
    hiding: bool = False
    limit: int | None = None
    rounds: bool = False
    told: bool = False
    linear: bool = True
    packed: bool = False
    paired: bool = False
    training: tuple[str, ...] = ()


class StopSettings(Section):
    """Conditions that end a run, whichever comes first. Without any, it ends after the algorithm's rounds or 20 epochs.

    Attributes
    ----------
    updates : int, optional
        Updates of all nodes together. The schedule up to there is looked ahead at before a run, some 10,000 a second;
        ``updates_per_node`` of the algorithm and ``epochs`` need no such look.
    epochs : float, optional
        Passes of each node over its own shard, in expectation; a node that is done goes on answering.
    virtual_seconds : float, optional
        Seconds of the simulated clock.
    accuracy : float, optional
        Accuracy of the run's model, the server's or the mean of the nodes', on the public examples of
        ``evaluation.public_path``; without these on the test examples, which then look better than they are. Privacy is
        charged for the whole plan, so another bound is needed too.
    """

    updates: int | None = Field(default=None, ge=1, le=10**8)
    epochs: float | None = Field(default=None, gt=0, le=1e6)
    virtual_seconds: PositiveFloat | None = None
    accuracy: float | None = Field(default=None, gt=0, le=1)


S = TypeVar("S")

Quotas = Mapping[str, int]
"""Updates of each node."""


Held = tuple[tuple[int, int], ...]
"""Of one person: the nodes that hold examples, by rising number, and how many each of them holds."""


@dataclass(frozen=True)
class Holdings:
    """Distribution of persons' training examples over nodes.

    Attributes
    ----------
    held : frozenset of Held
        Examples that persons hold; several may hold alike.
    """

    held: frozenset[Held]

    @classmethod
    def of(cls, persons: npt.NDArray[Any], shards: Sequence[npt.NDArray[np.int64]]) -> Holdings:
        """Those of examples of ``persons`` [n], of which each node has a shard."""
        _, number = np.unique(persons, return_inverse=True)
        nodes = np.repeat(np.arange(len(shards)), [len(shard) for shard in shards])
        examples = np.concatenate([np.zeros(0, np.int64), *shards])
        pairs, counts = np.unique(np.stack([number[examples], nodes]), axis=1, return_counts=True)
        lines = zip(*pairs.tolist(), counts.tolist())
        return cls(frozenset(tuple(line[1:] for line in lines_) for _, lines_ in groupby(lines, itemgetter(0))))

    @property
    def most(self) -> int:
        """The most examples of one person, at all nodes together."""
        return max((sum(rows for _, rows in held) for held in self.held), default=0)

    @property
    def most_nodes(self) -> int:
        """The most nodes that hold examples of one person."""
        return max(map(len, self.held), default=0)

    @property
    def together(self) -> bool:
        """Whether every person's examples are at one node."""
        return self.most_nodes <= 1


DEFAULT_EPOCHS = 20.0
"""After which a run ends where nothing else is said."""


class Spec:
    """Part of a spec that plans depend on, whatever its algorithm."""

    if TYPE_CHECKING:
        algorithm: Any
        objective: Any
        privacy: PrivacySettings
        budget: Budget | None
        stop: StopSettings

    @property
    def terms(self) -> Terms:
        """Terms of releases that the algorithm's settings decide."""
        raise NotImplementedError

    @property
    def ends_by_clock(self) -> bool:
        """Whether the number of updates of a run depends on how long they take."""
        raise NotImplementedError

    @property
    def away(self) -> bool:
        """Whether nodes are away at times, so that they may not make all updates of their quotas."""
        raise NotImplementedError

    @property
    def disturbed(self) -> bool:
        """Whether nodes are away at times, or cut off from each other."""
        raise NotImplementedError

    @property
    def private(self) -> bool:
        """Whether noise is added."""
        return self.privacy.mechanism != "none"

    @property
    def reproducible(self) -> bool:
        """Whether what a run hides things with follows from its seed, so that it hides nothing."""
        return self.privacy.noise_secret == "reproducible"

    @property
    def proved(self) -> bool:
        """Whether a guarantee is proved for the noise, if there is any, and for what it is added to."""
        return self.privacy.proved and self.terms.proved

    @property
    def bounded(self) -> bool:
        """Whether the run's length is limited by something public."""
        stop = self.stop
        own = (self.algorithm.updates_per_node, self.terms.limit)
        return any((stop.updates, stop.epochs, stop.virtual_seconds, *own))

    @property
    def ending(self) -> StopSettings:
        """Conditions that end the run: where nothing is said, as many epochs as usual."""
        return self.stop if self.bounded else self.stop.model_copy(update={"epochs": DEFAULT_EPOCHS})

    @property
    def rows_per_person(self) -> int:
        """The number of examples of one person that a guarantee covers together."""
        return 1 if self.budget is None else self.budget.rows_per_person or 1

    @property
    def delta(self) -> float:
        """The delta at which guarantees are stated."""
        return self.budget.delta if self.budget is not None else self.privacy.delta


_SAMPLINGS: dict[str, Callable[[int, int], BatchSampling]] = {
    "poisson": Poisson.of_batch,
    "fixed_size": FixedSize.of_batch,
    "with_replacement": WithReplacement.of_batch,
}


def sampling_of(spec: Spec, examples: int, batch: int) -> BatchSampling:
    """Return the scheme by which a node with so many ``examples`` draws a batch."""
    return _SAMPLINGS[spec.terms.sampling or spec.privacy.sampling](examples, batch)


@dataclass(frozen=True)
class Problem(Generic[S]):
    """Problem that a run is planned from.

    Attributes
    ----------
    spec : Spec
        The algorithm's settings, the sections on privacy, budget and the run's end, and what follows from them.
    shard_sizes : mapping of str to int
        Number of training examples of each node with data.
    parts : tuple of Part
        Parts of the model's vector.
    graph : Graph
        Graph of who may talk to whom.
    initial : Public
        The common starting model, [size].
    seed : int
        Seed of the public randomness.
    run : str
        Name of a deployed run, whose parties have identities; empty in a simulation.
    agreed : bytes
        Digest of the whole spec and of the run's name, the same at every party that has agreed to them.
    first_clip : float
        The bound at the start.
    workload : Workload
        Number of examples of each update.
    dry_run : callable
        (stop, quotas) -> what nodes ask of their data sides, found by running them without data.
    check : callable
        Given each node's mechanism, builds the nodes once, without data.

        Raises CallerError if they cannot be built.
    holdings : Holdings or None
        Distribution of persons' examples over nodes, where the data say whose they are.
    beforehand : Counts
        Releases that each node makes of its examples before the run, such as those of a private scale.
    """

    spec: Spec
    shard_sizes: Mapping[str, int]
    parts: tuple[Part, ...]
    graph: Graph
    initial: Public
    seed: int
    run: str
    agreed: bytes
    first_clip: float
    workload: Workload
    dry_run: Callable[[StopSettings, Quotas | None], BlankSides]
    check: Callable[[Mapping[str, Mechanism]], None]
    holdings: Holdings | None = None
    beforehand: Counts = field(default_factory=dict)

    @property
    def settings(self) -> S:
        """Settings of the algorithm."""
        settings: S = self.spec.algorithm
        return settings

    @property
    def names(self) -> tuple[str, ...]:
        """The nodes with data."""
        return tuple(self.shard_sizes)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(part.size for part in self.parts)

    def sampling(self, name: str, batch: int) -> BatchSampling:
        """Return the scheme by which node ``name`` draws so many examples."""
        return sampling_of(self.spec, self.shard_sizes[name], batch)


def smallest_node(problem: Problem[Any]) -> str:
    """The node with the least number of examples."""
    return min(problem.names, key=lambda name: problem.shard_sizes[name])


EVERYBODY = "everybody"
"""The observer of what nodes release: it is shown to none alone."""


@dataclass(frozen=True)
class Words:
    """Words for what a run prints of itself.

    Attributes
    ----------
    party : str
        Word for one of those that hold data.
    made : str
        Word for one of what is counted, such as an update, or a sum of updates that a server makes.
    server : str or None
        Name of the one server of all, if there is one.
    shared : bool
        Whether somebody has the run's model: where each learns alone, nobody has the mean of all.
    figures : str
        Words below the figures of all parties.
    plan : str
        The plan in a line.
    estimates : str
        Line on what the schedule rests on that the spec does not say; empty where it rests on nothing.
    advice : tuple of str
        Warnings about the plan, a line each.
    """

    party: str = "node"
    made: str = "update"
    server: str | None = None
    shared: bool = True
    figures: str = ""
    plan: str = ""
    estimates: str = ""
    advice: tuple[str, ...] = ()

    @property
    def model(self) -> str:
        """The run's model."""
        return "mean model" if self.server is None else f"{self.server}'s model"

    def parties(self, number: int) -> str:
        """So many of them, and their server if they have one."""
        theirs = "its" if number == 1 else "their"
        return counted(number, self.party) + ("" if self.server is None else f" and {theirs} server")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan of a run.

    Attributes
    ----------
    stop : StopSettings
        Conditions that end the run, with the default filled in.
    quotas : mapping of str to int, or None
        Updates of each node, where something bounds them.
    mechanisms : mapping of str to Mechanism
        Bound of each node's own queries, and their noise.
    epsilons : mapping of str to float
        Proved for each node's whole plan; infinite where nothing is.
    would_be : mapping of str to float
        Values that ``epsilons`` would have with a noise secret, where noise is reproducible; empty where it is secret.
    guarantees : mapping of str to Guarantee
        Guarantee against each observer, the one that the noise is planned for first.
    sides : mapping of str to SidePlan
        The most that leaves each party, in the order of ledgers; without those that release nothing.
    releases : mapping of str to int
        Most releases with the data of each node.
    updates : int
        Most updates of all nodes together, or sums of a server: what is counted in the run.
    noise : sequence of mappings
        All that decides what noise is drawn, as plain data.
    figures : mapping
        Figures on privacy for a summary: the ``mechanism`` that nodes have in common, as plain data, and what else.
    words : Words
        Words for parties, what is counted, the run's model, and the plan itself.
    spent : callable
        ledgers -> the largest epsilon of what has been released so far, or None: a reading, not a guarantee.
    held_out : Samples, optional
        The most that is said of each party's held-out examples, after the run.
    """

    stop: StopSettings
    quotas: Mapping[str, int] | None
    mechanisms: Mapping[str, Mechanism]
    epsilons: Mapping[str, float]
    would_be: Mapping[str, float] = field(default_factory=dict)
    guarantees: Mapping[str, Guarantee]
    sides: Mapping[str, SidePlan]
    releases: Mapping[str, int]
    updates: int
    noise: Sequence[Mapping[str, Any]]
    figures: Mapping[str, Any]
    words: Words
    spent: Callable[[Iterable[Any]], float | None] = field(repr=False, compare=False)
    held_out: Samples | None = None

    @property
    def guarantee(self) -> Guarantee:
        """The first of them: of the node that spends most."""
        return next(iter(self.guarantees.values()))

    @property
    def lengths(self) -> ModelLengths | None:
        """Lengths that models of an honest run can have, where somebody relies on it."""
        return next((side.lengths for side in self.sides.values() if side.lengths is not None), None)

    @property
    def hides_schedule(self) -> bool:
        """Whether guarantees hold only if times, and numbers of messages and updates, are kept secret."""
        return any(side.trusted.hides_schedule for side in self.sides.values())

    def __str__(self) -> str:
        return self.words.plan

    def side(self, name: str) -> SidePlan:
        """Plan of what leaves party ``name``, at most: nothing of a server that is charged nothing."""
        return self.sides.get(name) or Nothing()

    def counts(self, name: str) -> Counts | None:
        """Most releases of party ``name`` of each kind, of held-out examples too; None where kinds are not counted.

        Raises
        ------
        SpecError
            If held-out examples are told of by a party that is not held to numbers of releases by kind, or by releases
            of the kind that training has.
        """
        charges = self.side(name).charges()
        found = None if charges is None else charges.counts
        if self.held_out is None:
            return found
        if charges is None or found is None or not charges.held:
            raise SpecError(
                "evaluation.release: private is deployed where each party's own releases are counted and have noise, "
                f"which {name}'s are not: agents, members of masked sums and clients of a trusted server; leave it out"
            )
        if any(found.get(kind) for kind in self.held_out.kinds):
            raise SpecError(
                f"evaluation.epsilon: the release of {name}'s held-out examples would be counted as one of training, "
                "which has the same noise on as many numbers; say another"
            )
        return Counter(found) + Counter(self.held_out.kinds)

    def describe(self) -> dict[str, Any]:
        """The noise that nodes have in common, as plain data."""
        return dict(self.figures["mechanism"])

    def reproducible(self) -> Plan:
        """The plan with noise that can be drawn again, so that nothing is guaranteed."""
        none = {observer: guarantees.reproducible(guarantee) for observer, guarantee in self.guarantees.items()}
        return replace(self, epsilons=dict.fromkeys(self.epsilons, math.inf), would_be=self.epsilons, guarantees=none)

    def assuming(self, line: str) -> Plan:
        """The plan whose guarantees assume one thing more."""
        found = {observer: guarantees.assuming(guarantee, line) for observer, guarantee in self.guarantees.items()}
        return replace(self, guarantees=found)


def differing(by_observer: Mapping[str, Guarantee]) -> dict[str, Guarantee]:
    """Guarantees by observer, where there are several."""
    return dict(by_observer) if len(by_observer) > 1 else {}


def least_noise(problem: Problem[Any], plan: Plan) -> Mechanism:
    """The law of the node with the least noise; its clip is the one at the start."""
    return min(plan.mechanisms.values(), key=lambda law: law.second_moment(problem.size))


def in_common(mechanisms: Mapping[str, Mechanism]) -> Mechanism | None:
    """The noise that all nodes have in common, if they do."""
    laws = set(mechanisms.values())
    return laws.pop() if len(laws) == 1 else None


def in_words(mechanisms: Mapping[str, Mechanism]) -> str:
    """The noise of nodes, or how many laws it has."""
    law = in_common(mechanisms)
    return f"{len(set(mechanisms.values()))} different noise laws" if law is None else law.words


def noise_of(mechanisms: Mapping[str, Mechanism], party: str = "node") -> dict[str, Any]:
    """The noise of nodes as the figure ``mechanism``; of no noise, its name alone."""
    law = in_common(mechanisms)
    if law is None:
        return {"mechanism": f"different for each {party}"}
    return {"mechanism": "none"} if isinstance(law, NoNoise) else law.describe()
