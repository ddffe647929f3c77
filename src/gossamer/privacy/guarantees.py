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

A *privacy profile* is the deltas of all losses, and says what an attacker can do: of releases it is ``H(e) = sup_S P(S)
- exp(e) Q(S)``, of the two directions the larger: for every e >= 0 the releases are (e, H(e))-differentially private.
It is kept as finitely many points, each an upper bound. H is convex in t = exp(e), so what lies between two points is
below their chord, and points above the chord of others are left out.

**Trade-off curve.** A test that tells two neighbours apart with false alarms alpha misses at least

    f(alpha) = sup over e of  1 - H(e) - exp(e) alpha                                                      (1)

of the cases [1, proposition 6]. The lines of finitely many e are a lower bound of it, and so are they mirrored at
alpha = beta, since H covers both directions.

**mu** is the least mu such that no test does better than one between N(0, 1) and N(mu, 1), whose curve is
``Phi(Phi^-1(1 - alpha) - mu)``. That curve is convex, so it lies below the lines if it does at their corners; at a
corner (alpha, beta) mu is ``Phi^-1(1 - alpha) + Phi^-1(1 - beta)``. To an attacker who is content to be right once in a
life, sampled noise looks like noise without sampling: tests with less than `LEAST_ERROR` of either error are left out
[2, section 3].

References
----------
[1] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
[2] Gomez et al., "Gaussian DP for reporting differential privacy guarantees in machine learning", arXiv 2503.10945.
[3] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr, ndtri

from gossamer.arrays import FloatArray
from gossamer.errors import counted, round_up
from gossamer.files import words_beside
from gossamer.notebooks import card, opened
from gossamer.privacy.mechanisms import NeighboringRelation

LEAST_ERROR = 1e-10
"""Least rate of false alarms, and of misses, of the tests that mu is about."""
HIGHEST_LOSS = -math.log(LEAST_ERROR) + 0.1
"""Losses beyond it say nothing of such tests: their lines (1) are below 0."""
DELTAS: tuple[float, ...] = (*np.geomspace(1e-16, 0.5, 97).tolist(), *(1 - np.geomspace(0.49, 1e-6, 96)).tolist())
"""Deltas at which an epsilon is asked for where nothing but epsilons is known."""
_POINTS, _FAR = 513, 8.0  # losses of a Gaussian profile, and how many deviations they go
_ROUNDING = 1e-15  # of a difference of two probabilities
_SAFE = 1e-9  # relative and absolute, on mu: more than the rounding of quantiles


@dataclass(frozen=True)
class PrivacyProfile:
    """Losses and the deltas proved for them; made by `of`.

    Attributes
    ----------
    losses : tuple of float
        Increasing, the first is 0.
    deltas : tuple of float
        Upper bound of the divergence at each, in [0, 1]; decreasing and convex in exp(loss).
    """

    losses: tuple[float, ...]
    deltas: tuple[float, ...]

    @classmethod
    def of(cls, losses: FloatArray, deltas: FloatArray) -> PrivacyProfile:
        """The profile through points, without those that are above the chord of others.

        Parameters
        ----------
        losses : ndarray
            Increasing from 0, at most `HIGHEST_LOSS`.
        deltas : ndarray
            Upper bounds of the divergences at them, in any order and not below 0.
        """
        falling = np.minimum.accumulate(np.minimum(deltas, 1.0))
        kept = _lower_hull(np.expm1(losses), falling)
        return cls(tuple(losses[kept].tolist()), tuple(falling[kept].tolist()))

    @classmethod
    def through(cls, epsilon: Callable[[float], float]) -> PrivacyProfile:
        """The profile of what is (``epsilon(delta)``, delta)-differentially private for each delta of `DELTAS`."""
        found = [(epsilon(delta), delta) for delta in DELTAS]
        return cls.of_points([(at, delta) for at, delta in found if at < math.inf])

    @classmethod
    def gaussian(cls, mu: float) -> PrivacyProfile:
        """The profile of N(0, 1) against N(mu, 1) [1, corollary 2.13]."""
        if mu == 0:
            return NOTHING
        losses = np.linspace(0.0, min(mu * (mu / 2 + _FAR), HIGHEST_LOSS), _POINTS)
        lost = np.exp(losses + log_ndtr(-mu / 2 - losses / mu))
        return cls.of(losses, ndtr(mu / 2 - losses / mu) - lost + _ROUNDING)

    @classmethod
    def of_points(cls, points: Sequence[tuple[float, float]]) -> PrivacyProfile:
        """The profile of what is differentially private for each of ``points``, an epsilon and a delta."""
        near = sorted((at, delta) for at, delta in points if 0 < at <= HIGHEST_LOSS)
        advantage = min([1.0, *(_advantage(at, delta) for at, delta in points)])
        losses, deltas = np.array([(0.0, advantage), *near]).T
        kept = np.append(np.diff(losses) > 0, True)
        return cls.of(losses[kept], deltas[kept])

    @classmethod
    def worst(cls, profiles: Sequence[PrivacyProfile]) -> PrivacyProfile:
        """The profile of whichever of ``profiles`` it is."""
        losses = np.unique(np.concatenate([profile.losses for profile in profiles]))
        return cls.of(losses, np.max([[profile.delta(loss) for loss in losses] for profile in profiles], axis=0))

    def delta(self, epsilon: float) -> float:
        """The least delta that the points prove for ``epsilon`` >= 0."""
        if epsilon >= self.losses[-1]:
            return self.deltas[-1]
        right = int(np.searchsorted(self.losses, epsilon, side="right"))
        (low, high), (left, after) = self.losses[right - 1 : right + 1], self.deltas[right - 1 : right + 1]
        return left - (left - after) * math.expm1(epsilon - low) / math.expm1(high - low)

    def moved(self, shift: float, factor: float, failure: float, growing: float = 0.0) -> PrivacyProfile:
        """The profile of what is ``(e + shift, factor H(e) + failure + growing exp(e))``-private for every e."""
        # H falls by at most exp(e) (exp(shift) - 1) from e to e + shift.
        slope = growing + math.expm1(shift)
        points = zip(self.losses, self.deltas, strict=True)
        deltas = [min(factor * delta + failure + slope * math.exp(loss), 1.0) for loss, delta in points]
        return PrivacyProfile.of(np.array(self.losses), np.array(deltas))

    @property
    def advantage(self) -> float:
        """The most by which an attacker's true alarms can exceed its false ones."""
        return self.deltas[0]

    @property
    def accuracy(self) -> float:
        """Share of right guesses of the best attacker, who would be right half the time without looking."""
        return (1 + self.advantage) / 2

    def miss_rate(self, false_alarms: FloatArray) -> FloatArray:
        """The least rate of misses of a test with these rates of false alarms, each in [0, 1]."""
        alarms = np.asarray(false_alarms, dtype=np.float64)[..., None]
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        ahead = np.max(1 - deltas - factors * alarms, axis=-1)
        back = np.max((1 - deltas - alarms) / factors, axis=-1)
        return np.asarray(np.maximum(np.maximum(ahead, back), 0.0))

    @property
    def corners(self) -> tuple[FloatArray, FloatArray]:
        """False alarms and hits at the corners of the lines (1): a corner for each two points that are neighbours."""
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        alphas = -np.diff(deltas) / np.diff(factors)
        return alphas, deltas[:-1] + factors[:-1] * alphas

    @cached_property
    def mu(self) -> float:
        """The least mu whose Gaussian trade-off curve is below this one, for tests of errors from `LEAST_ERROR` up.

        Infinite where there is none.
        """
        deltas, factors = np.array(self.deltas), np.exp(self.losses)
        alphas, hits = self.corners
        seen = (alphas > LEAST_ERROR) & (hits < 1 - LEAST_ERROR)
        least = min(float(np.min(deltas + factors * LEAST_ERROR)), 1.0)
        found = np.append(ndtri(hits[seen]) - ndtri(alphas[seen]), ndtri(least) - ndtri(LEAST_ERROR))
        return max(float(np.max(found)), 0.0) * (1 + _SAFE) + _SAFE


def _advantage(epsilon: float, delta: float) -> float:
    """The most of it under (epsilon, delta)-differential privacy [3, theorem 2.1]."""
    return 1 - 2 * (1 - delta) * math.exp(-epsilon) / (1 + math.exp(-epsilon))


def _lower_hull(across: FloatArray, up: FloatArray) -> list[int]:
    """Positions of the points that no chord of others is below."""
    kept: list[int] = []
    for point in range(across.size):
        while len(kept) > 1 and _above(across, up, kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return kept


def _above(across: FloatArray, up: FloatArray, left: int, middle: int, right: int) -> bool:
    """Whether the middle point is on or above the chord."""
    first, second = across[middle] - across[left], across[right] - across[middle]
    return bool((up[middle] - up[left]) * second >= (up[right] - up[middle]) * first)


NOTHING = PrivacyProfile((0.0,), (0.0,))
"""The profile of no release."""
EVERYTHING = PrivacyProfile((0.0,), (1.0,))
"""The profile of releases that may reveal everything."""


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


@dataclass(frozen=True)
class UtilityClaim:
    """Claim of a paper about the convergence of a run.

    Attributes
    ----------
    theorem : str
        Paper and number of the theorem.
    bound : float
        Bound of the mean over iterations of E ||grad F(mean model)||^2, or of what else the theorem is about.
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
ALL_MODELS = "whoever sees all models of a node, all other nodes together included"

HELD_OUT = "held-out example of a node's shard"
"""Who is protected by noise on what is said of examples that a model is tested on."""
WHOEVER = "whoever sees the released histograms, all other nodes included, malicious ones too"

_WORDS = words_beside(__file__)
CODE: str = _WORDS["code"]
EXAMPLES: str = _WORDS["examples"]

PLANNED = Guarantee(
    epsilon=math.inf,
    delta=0.0,
    unit=EXAMPLE,
    neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE,
    observer=OTHER_NODES,
    assumptions=tuple(_WORDS["planned"]),
    proof="",
    rows_per_person=1,
)
"""What all planned runs have in common; see `planned`."""

ADD_OR_REMOVE: str = _WORDS["added or removed"]
SIMULATED_NOISE: str = _WORDS["simulated noise"]
REPRODUCIBLE: str = _WORDS["reproducible"]


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
    spread, persons = known is KnownPersons.SPREAD, _WORDS["persons"][known.value].format(rows=rows)
    place = "wherever they are" if spread else "all at one node"
    replaced = {_WORDS["one example"]: persons, ADD_OR_REMOVE: _WORDS["person removed"]}
    return replace(
        guarantee,
        unit=f"person with at most {counted(rows, 'example')}, {place}",
        observer=_WORDS["others"] if spread else guarantee.observer,
        assumptions=tuple(replaced.get(line, line) for line in guarantee.assumptions),
        proof=f"{guarantee.proof}; {_WORDS['composed' if spread else 'changed']}",
        rows_per_person=rows,
    )


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
