"""A guarantee as a value: never an epsilon alone.

A claim: what a paper's formula says of a run.

A claim is not a guarantee. It is computed from the paper's formula under its theorem's number and printed beside
the guarantee, which an accountant computes from the ledger. What is wrong with a claim, if anything, stands in the
docstring of its formula.

Guarantees that say little, in words: an epsilon above 10, and a delta above one over the number of examples.

A guarantee is computed for whatever is asked. That it is proved does not make it strong, and a number alone does not
say so.

- An *epsilon* of 10 lets what is released make a guess about one example 22,000 times likelier than its opposite, each
  further 2.3 ten times more.
- A *delta* is the probability with which nothing at all may hold. Publishing one of n examples in full, drawn at
  random, is (0, 1/n)-differentially private: a delta above 1/n allows as much. A person who has m of them is among
  what is published with a probability of m/n, so where persons are protected the line is there.

Both are allowed, with a remark. A delta above `MOST_DELTA` is refused, unless whoever asks for it says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from gossamer.errors import counted, round_up
from gossamer.notebooks import card, opened
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import EVERYTHING, PrivacyProfile


@dataclass(frozen=True)
class Claim:
    """Claim of a paper about the privacy of a run.

    Attributes
    ----------
    theorem : str
        Paper and number of the theorem.
    epsilon, delta : float
        The claimed (epsilon, delta). Where ``valid`` is false, epsilon is what the formula alone would give.
    valid : bool
        Whether the theorem's own conditions hold. It says nothing about whether the theorem is true.
    why : str
        Reason: which conditions hold or fail, and by how much.
    parameters : mapping of str to float
        Values of the theorem's free parameters at which the claim is stated.
    """

    theorem: str
    epsilon: float
    delta: float
    valid: bool
    why: str
    parameters: Mapping[str, float] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The claim as plain data, for summaries."""
        return asdict(self)


@dataclass(frozen=True)
class UtilityClaim:
    """Claim of a paper about the convergence of a run.

    Attributes
    ----------
    theorem : str
        Paper and number of the theorem.
    bound : float
        Bound of the mean over iterations of E ||grad F(mean model)||^2.
    iterations : float
        The number T of iterations for which the bound is stated.
    valid : bool
        Whether the statement's own conditions, and those of what it rests on, hold.
    why : str
        Reason: which conditions hold or fail, and by how much.
    """

    theorem: str
    bound: float
    iterations: float
    valid: bool
    why: str

    def as_dict(self) -> dict[str, Any]:
        """The claim as plain data, for summaries."""
        return asdict(self)


_NEIGHBORS = {
    NeighboringRelation.ADD_OR_REMOVE_ONE: "whether any one {} was present or absent",
    NeighboringRelation.REPLACE_ONE: "whether any one {} was replaced by another",
}


def rounded_up(bound: float, digits: int = 4) -> str:
    """A proved upper bound with so many digits: never less than what is proved."""
    return f"{round_up(bound, digits):.{digits}g}"


def guess(profile: PrivacyProfile) -> str:
    """The whole profile in a sentence with two numbers."""
    mu = f"mu {rounded_up(profile.mu, 3)}" if profile.mu < math.inf else "no mu"
    right = float(rounded_up(100 * profile.accuracy, 3))
    return f"The best guess is right {right:g} times in 100, instead of 50 ({mu})."


def told_apart(unit: str, relation: NeighboringRelation) -> str:
    """The question that an attacker asks of a unit, in words."""
    return _NEIGHBORS[relation].format(re.split(" of | with ", unit)[0])


@dataclass(frozen=True)
class Guarantee:
    """Proved limit of what an observer can learn.

    Attributes
    ----------
    epsilon : float
        Upper bound of the privacy loss; infinite where nothing is guaranteed.
    delta : float
        Probability with which ``epsilon`` may not hold.
    unit : str
        Unit that is protected, such as one example.
    neighboring_relation : NeighboringRelation
        Relation of datasets that are told apart with difficulty.
    observer : str
        Observer against whom it holds.
    assumptions : tuple of str
        Facts that have to be true for it.
    proof : str
        Way in which epsilon was computed.
    remarks : tuple of str
        Sentences on what makes it weak, if anything (`gossamer.privacy.guarantees`).
    rows_per_person : int or None
        The most examples of one person that are covered together; None where the unit covers however many there are.
    would_be : Guarantee or None
        Guarantee that would hold if the noise were secret, where it is reproducible.
    evidence : callable or None
        Computes ``profile``, when it is asked for; None where the one point is all that is known.
    """

    epsilon: float
    delta: float
    unit: str
    neighboring_relation: NeighboringRelation
    observer: str
    assumptions: tuple[str, ...]
    proof: str
    remarks: tuple[str, ...] = ()
    rows_per_person: int | None = None
    would_be: Guarantee | None = None
    evidence: Callable[[], PrivacyProfile] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def profile(self) -> PrivacyProfile:
        """The deltas proved for all losses, of which ``epsilon`` and ``delta`` are one point."""
        if math.isinf(self.epsilon):
            return EVERYTHING
        return PrivacyProfile.of_points([(self.epsilon, self.delta)]) if self.evidence is None else self.evidence()

    @property
    def mu(self) -> float:
        """The least mu whose Gaussian differential privacy bounds what leaked; infinite where none does.

        The whole of what is proved as one number that can be compared, as an epsilon at one delta cannot.
        """
        return self.profile.mu

    def __str__(self) -> str:
        """The guarantee in words."""
        if self.would_be is not None:
            return f"Guarantee: none. {self.proof}\nWith a noise secret it would be {self.would_be._stated}"
        return f"Guarantee: {self._stated}"

    def _repr_html_(self) -> str:
        """The guarantee as notebooks show it."""
        proof = opened("How it is proved", [self.proof])
        if math.isinf(self.epsilon):
            would_be = "" if self.would_be is None else opened("With a noise secret", str(self.would_be).splitlines())
            return card("No privacy guarantee", {"against": self.observer, "why": self.proof}, [would_be])
        rows = {
            "protected": f"each {self.unit} ({self.neighboring_relation.value})",
            "against": self.observer,
            "in other words": guess(self.profile),
            **{f"but{' ' * n}": f"{remark}." for n, remark in enumerate(self.remarks)},
        }
        title = f"({rounded_up(self.epsilon)}, {self.delta:g})-differential privacy"
        return card(title, rows, [opened(f"{len(self.assumptions)} assumptions", self.assumptions), proof])

    @property
    def beside(self) -> str:
        """The guarantee in words where it stands beside another; where there is none, in a line that says whom to."""
        if math.isfinite(self.epsilon) or self.would_be is not None:
            return str(self)
        return f"Guarantee against {self.observer}: none. {self.proof}"

    @property
    def _stated(self) -> str:
        if math.isinf(self.epsilon):
            return f"none. {self.proof}"
        assumptions = "\n".join(f"  - {assumption}" for assumption in self.assumptions)
        weak = "".join(f"\nBut {remark}." for remark in self.remarks)
        return (
            f"({rounded_up(self.epsilon)}, {self.delta:g})-differential privacy for each {self.unit}, "
            f"against {self.observer}:\nit stays hard to tell {told_apart(self.unit, self.neighboring_relation)} "
            f"({self.neighboring_relation.value}).\n{guess(self.profile)}{weak}\n"
            f"Proof: {self.proof}\nThis assumes:\n{assumptions}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON; an infinite epsilon becomes None with ``privacy: none``; ``would_be`` only if set."""
        mu, nothing = self.mu, math.isinf(self.epsilon)
        strength = {
            "epsilon": None if nothing else self.epsilon,
            "delta": None if nothing else self.delta,
            "mu": mu if mu < math.inf else None,
            "best_guess": None if nothing else self.profile.accuracy,
        }
        shown = [one.name for one in fields(self) if one.name not in (*strength, "would_be", "evidence")]
        values = {**strength, **{name: getattr(self, name) for name in shown}}
        if self.would_be is not None:
            values["would_be"] = self.would_be.as_dict()
        return {**values, "privacy": "none"} if nothing else values


EXAMPLE, CLIENT = "example of a node's shard", "client with all of its data"
"""Who is protected."""
OTHER_NODES = "all other nodes together, malicious ones included, and anyone on the wires"

CODE = "the model's code is trusted, and neither it nor the initial model comes from the private data"
EXAMPLES = (
    "training examples are covered, in all messages and in the model; test examples and the scores on them are not"
)

_ONE_EXAMPLE = (
    "each person has one example, at one node; if not, a budget with rows_per_person covers a person's examples"
)

PLANNED = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit=EXAMPLE,
    neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    observer=OTHER_NODES,
    assumptions=(
        "shard sizes, sampling rates, batch sizes, step sizes and numbers of updates are public constants",
        "so are the numbers of features and classes, the choice of test examples, and who holds which example",
        _ONE_EXAMPLE,
        "clip, noise, rate and count are enforced by each node on its own data",
        CODE,
        "this run alone: what other runs on the same data release adds up",
        EXAMPLES,
        "the timing of messages is not covered, and neither are crashes",
    ),
    proof="",
    rows_per_person=1,
)
"""What all planned runs have in common; see `planned`."""

ADD_OR_REMOVE = "adding or removing an example is read as blanking one of the shard's public slots"
SIMULATED_NOISE = (
    "a simulation: noise and samples come from a secret of 128 random bits, drawn for this run alone, that nobody may "
    "learn (noise_secret.json beside the results, result.secret in Python), expanded by a generator that is not "
    "cryptographic; rounding of floating-point sums and noise is not covered"
)
REPRODUCIBLE = (
    "This run has no guarantee: reproducible noise follows from the spec's seed, and whoever knows the spec draws it "
    "again and subtracts it."
)


PUBLIC_EXAMPLES = "examples that the schedule was estimated on are public, and none of them is protected"


def planned(epsilon: float, delta: float, relation: NeighboringRelation, proof: str, *more: str) -> Guarantee:
    """The guarantee of a plan that every node's ledger enforces."""
    extra = (ADD_OR_REMOVE,) if relation is NeighboringRelation.ADD_OR_REMOVE_ONE else ()
    return replace(
        PLANNED,
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=relation,
        proof=proof,
        assumptions=(*PLANNED.assumptions, *extra, SIMULATED_NOISE, *more),
    )


class KnownPersons(StrEnum):
    """Knowledge of where a person's examples are."""

    NOTHING = "nothing"
    TOGETHER = "together"
    SPREAD = "spread"


def for_persons(guarantee: Guarantee, rows: int, known: KnownPersons) -> Guarantee:
    """A planned guarantee whose epsilon is one for all examples of a person, at most ``rows``."""
    place = "wherever they are" if known is KnownPersons.SPREAD else "all at one node"
    replaced = {_ONE_EXAMPLE: _OF_PERSONS[known].format(rows=rows), ADD_OR_REMOVE: _PERSON_REMOVED}
    return replace(
        guarantee,
        unit=f"person with at most {counted(rows, 'example')}, {place}",
        observer=_OTHERS if known is KnownPersons.SPREAD else guarantee.observer,
        assumptions=tuple(replaced.get(line, line) for line in guarantee.assumptions),
        proof=f"{guarantee.proof}; {_TOGETHER[known is KnownPersons.SPREAD]}",
        rows_per_person=rows,
    )


_OTHERS = "all nodes together that hold none of the person's examples, malicious ones included, and anyone on the wires"
_PERSON_REMOVED = "adding or removing a person is read as blanking public slots of shards, one for each example"
_OF_PERSONS = {
    KnownPersons.NOTHING: "each person has at most {rows} examples, all at one node",
    KnownPersons.TOGETHER: "which examples are one person's is public, as dataset.person says; each has at most "
    "{rows}, all at one node, which has been checked",
    KnownPersons.SPREAD: "which examples are one person's is public, as dataset.person says; each has at most "
    "{rows}, at all nodes together, which has been checked",
}
_TOGETHER = {
    False: "all examples of a person change at once, each sampled on its own",
    True: "all examples of a person change at once, each sampled on its own, and the plans of all nodes that hold some "
    "are composed together",
}


def reproducible(guarantee: Guarantee) -> Guarantee:
    """No guarantee either, where the noise that ``guarantee`` rests on can be drawn again; and what it would be."""
    if math.isinf(guarantee.epsilon):
        return guarantee
    none = replace(
        guarantee, epsilon=math.inf, delta=0.0, assumptions=(), proof=REPRODUCIBLE, remarks=(), evidence=None
    )
    return replace(none, would_be=guarantee)


def assuming(guarantee: Guarantee, line: str) -> Guarantee:
    """The guarantee with one more assumption; one that promises nothing assumes nothing."""
    if math.isinf(guarantee.epsilon):
        return guarantee
    return replace(guarantee, assumptions=(*guarantee.assumptions, line))


def none(reason: str, relation: NeighboringRelation) -> Guarantee:
    """No guarantee at all, and why."""
    return replace(PLANNED, neighboring_relation=relation, assumptions=(), proof=reason)


MOST_DELTA = 0.01
"""Above it nothing is promised by mistake."""
MUCH_EPSILON = 10.0


def remarks(
    epsilon: float, delta: float, examples: int | None = None, whose: str = "the smallest shard", rows: int = 1
) -> list[str]:
    """Say what makes a guarantee weak, a line each.

    Parameters
    ----------
    epsilon, delta : float
        Figures of the guarantee. An infinite epsilon promises nothing, so there is nothing to remark.
    examples : int, optional
        n, the least number of examples that the guarantee is for; None where it is not known.
    whose : str
        The n examples, in words.
    rows : int
        m, the most examples of one person, whom the guarantee is for.
    """
    found = []
    if MUCH_EPSILON < epsilon < math.inf:
        found.append(
            f"epsilon {rounded_up(epsilon)} is above {MUCH_EPSILON:g} and protects next to nobody: what is released "
            f"may make a guess about somebody's data 10^{epsilon / math.log(10):.0f} times likelier than its opposite; "
            "more noise, fewer releases or more examples lower it"
        )
    if examples and epsilon < math.inf and delta > rows / examples:
        persons = f", up to {rows} of one person" if rows > 1 else ""
        found.append(
            f"delta {delta:g} is above {rows}/{examples}, and {whose} has {examples} examples{persons}: publishing one "
            f"of them in full, drawn at random, would be within that; take a delta far below {rows / examples:.2g}"
        )
    return found


def remarked(guarantee: Guarantee, examples: int) -> Guarantee:
    """A guarantee with what makes it weak."""
    rows = guarantee.rows_per_person or 1
    return replace(guarantee, remarks=tuple(remarks(guarantee.epsilon, guarantee.delta, examples, rows=rows)))


def refused_delta(delta: float | None, accepted: bool | None, how: str) -> str | None:
    """Say why a delta is not taken, in a line; None for one that is.

    Parameters
    ----------
    delta : float or None
        Delta that was asked for.
    accepted : bool or None
        Whether whoever asks knows how weak that is.
    how : str
        Words by which one accepts that, such as a flag.
    """
    if delta is None or accepted or not MOST_DELTA < delta < 1:
        return None
    return (
        f"delta must be at most {MOST_DELTA:g}, found {delta:g}, the probability with which nothing at all need hold; "
        f"take one far below 1 over the number of examples, or say {how} to have it all the same"
    )
