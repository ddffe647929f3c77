"""Lower bounds of epsilon from one run, in which m canaries take part by fair coins, by f-differential privacy.

**The hypothesis** is a whole privacy profile (`gossamer.privacy.profile`): for each coin, whatever the others say,
what is released is told apart from what would have been, had this coin fallen otherwise, no better than the profile
allows. With its trade-off curve f, an event of probability a under one side of a coin has at least

    l(a) = f(1 - a)                                                                                        (1)

under the other. l is convex, and increases.

**The bound.** Of m fair coins S, at most r are guessed from all that is released, C of them correctly. Take a coin i
and the event that it is guessed correctly and C >= c. Given the other coins it is an event of what was released. Had
coin i fallen otherwise, the same output would be a wrong guess, with at least c - 1 correct ones. So (1) holds between
the two probabilities, and by Jensen's inequality between their means over i and S. Of the indicators' sums over i one
is C where C >= c, and the other one at most r - C where C >= c - 1::

    E[(r - C) 1{C >= c - 1}] / m  >=  l(E[C 1{C >= c}] / m)      for c = 1, ..., r                          (2)

Let T_c = P(C >= c), and sum by parts: E[C 1{C >= c}] = c T_c + T_{c+1} + ... + T_r =: A_c, and E[(r - C) 1{C >= c}] =
r T_c - A_c =: G_c. Let C' be the smallest law by (2) with T'_v = gamma: T' is 0 above v, and from v down every
T'_{c-1} is as small as (2) and T'_{c-1} >= T'_c let it be. Then **every law that has T_v >= gamma and keeps (2) has
T_c >= T'_c for all c**, by induction: let that be so from c on. Where T'_{c-1} = T'_c, T_{c-1} >= T_c does it. Else
G'_{c-1} = m l(A'_c/m) <= m l(A_c/m) <= G_{c-1}, since l increases and A_c >= A'_c; and as G_{c-1} = (r - c + 1)
T_{c-1} - (T_c + ... + T_r), what T_{c-1} exceeds T'_{c-1} by is at least what the sums do, over r - c + 1, and that is
not negative. So if T'_0 is above 1, no such law exists: v or more correct guesses have a probability below gamma.

It is the recursion of Mahloujifar et al. [1], with a proof of our own, for at most r guesses. It holds for
profiles of any kind; of (epsilon, delta) alone it is an audit without further assumptions, as in [2].

**What epsilon means.** Rejecting a profile says that one of its deltas is wrong, not which. An epsilon comes of a
family of hypotheses with one parameter, of which each member has more of every delta than those before it: the bound
is the largest epsilon, at the delta asked for, of a member that is rejected. The members that are true are the last
ones; if any is wrongly rejected so is the first of them, which has a probability of at most 1 - confidence. So no
correction for looking at many.

References
----------
[1] Mahloujifar, Melis and Chaudhuri, "Auditing f-differential privacy in one run", ICML 2025.
[2] Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr

from gossamer.attacks.audit import REPORTED, LowerBound, check_level
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import HIGHEST_LOSS, PrivacyProfile

_ROUNDED = 1e-9  # a total probability that is above 1 by less may be rounding
_FINE = 1.002  # how close strengths get
_WEAKEST, _STRONGEST = 2.0**-10, 2.0**10


@dataclass(frozen=True)
class HypothesisFamily:
    """Hypotheses about what one coin changes, by strength.

    Attributes
    ----------
    member : callable
        The profile of a strength > 0; of a larger one no delta is smaller.
    name : str
        Name of what members are, in words.
    """

    member: Callable[[float], PrivacyProfile]
    name: str

    @classmethod
    def of_epsilon(cls, delta: float) -> HypothesisFamily:
        """(epsilon, ``delta``)-differential privacy and nothing else; the strength is epsilon."""
        return cls(
            lambda epsilon: PrivacyProfile.of_points([(min(epsilon, HIGHEST_LOSS), delta)]),
            "mechanisms of an epsilon and this delta",
        )


def rejects(canaries: int, guesses: int, correct: int, hypothesis: PrivacyProfile, level: float) -> bool:
    """Whether so many correct guesses have a probability below ``level`` under ``hypothesis``.

    Parameters
    ----------
    canaries : int
        m, all whose coins were flipped, guessed or not.
    guesses : int
        r <= m, fixed before the run.
    correct : int
        v <= r.
    hypothesis : PrivacyProfile
        Hypothesis for one coin, whatever the others say.
    level : float
        gamma, in (0, 1).
    """
    if not 0 <= correct <= guesses <= canaries:
        raise SpecError(f"expected 0 <= correct <= guesses <= canaries, found {correct}, {guesses} and {canaries}")
    right, wrong = correct * level, (guesses - correct) * level  # A'_c and G'_c
    for c in range(correct, 0, -1):
        if right + wrong > guesses * (1 + _ROUNDED):
            return True
        least = canaries * float(hypothesis.miss_rate(np.array(1 - right / canaries)))
        if least <= wrong:  # nor does anything change further down, where the same is asked for
            break
        right += (c - 1) * (least - wrong) / (guesses - c + 1)
        wrong = least
    return right + wrong > guesses * (1 + _ROUNDED)


def one_run_p_value(canaries: int, guesses: int, correct: int, hypothesis: PrivacyProfile) -> float:
    """An upper bound of the probability of so many correct guesses under ``hypothesis``; see `rejects`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if rejects(canaries, guesses, correct, hypothesis, middle) else (middle, high)
    return high


def epsilon_one_run(
    canaries: int,
    guesses: int,
    correct: int,
    delta: float,
    relation: NeighboringRelation,
    confidence: float = REPORTED,
    family: HypothesisFamily | None = None,
) -> LowerBound:
    """The largest epsilon that one run with randomly included canaries rejects.

    Parameters
    ----------
    canaries : int
        m, each included with probability 1/2 on its own.
    guesses : int
        r, fixed before the run.
    correct : int
        v, how many guesses were right.
    delta : float
        Delta, in [0, 1), at which an epsilon is read off a profile.
    relation : NeighboringRelation
        Relation of the two outcomes of one coin.
    confidence : float
        Confidence level, in (0, 1).
    family : HypothesisFamily, optional
        The hypotheses; by default (epsilon, delta)-differential privacy alone.

    Returns
    -------
    LowerBound
        The epsilon of a member that is rejected, close to the strongest; 0 if none is.

    Raises
    ------
    SpecError
        If a number is out of range.
    """
    check_level(delta, confidence)
    family = HypothesisFamily.of_epsilon(delta) if family is None else family

    def rejected(strength: float) -> bool:
        return rejects(canaries, guesses, correct, family.member(strength), 1 - confidence)

    strength = _strongest(rejected)
    epsilon = 0.0 if strength is None else epsilon_of(family.member(strength), delta)
    method = f"{correct} of {guesses} guesses right about {canaries} canaries, each included by a fair coin, in one run"
    return LowerBound(epsilon, delta, confidence, relation, f"{method}; hypotheses: {family.name}")


def _strongest(rejected: Callable[[float], bool]) -> float | None:
    """The largest strength that is rejected, nearly; None if the weakest is not."""
    low = high = 1.0
    if rejected(1.0):
        while rejected(high := 2 * high) and high < _STRONGEST:
            low = high
    else:
        while not rejected(low := low / 2):
            high = low
            if low <= _WEAKEST:
                return None
    while high > _FINE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def epsilon_of(profile: PrivacyProfile, delta: float) -> float:
    """The least epsilon >= 0 that a profile has ``delta`` for; its largest loss, if it has none."""
    if profile.delta(0.0) <= delta:
        return 0.0
    last = profile.losses[-1]
    if profile.delta(last) > delta:
        return last
    at = next(i for i, found in enumerate(profile.deltas) if found <= delta)
    left, right = profile.losses[at - 1], profile.losses[at]
    if profile.deltas[at] == delta:
        return right
    return float(brentq(lambda loss: profile.delta(loss) - delta, left, right, xtol=1e-12))


def best_guesses(canaries: int, mu: float) -> int:
    """Number of guesses that bounds epsilon best, if every canary is told as well as mu-Gaussian DP allows.

    Each canary's score is then N(mu/2, 1) or N(-mu/2, 1), and the r largest in size are guessed. Of numbers of guesses
    some 20 % apart, it is the one with the largest bound if three standard deviations fewer than expected are correct.
    """
    sizes = np.unique(np.geomspace(1, canaries, max(2, math.ceil(5 * math.log(canaries + 1)))).round().astype(int))
    mu = min(mu, 8.0)

    def bound(guesses: int) -> float:
        share = guesses / canaries
        least = 0.0 if share == 1 else brentq(lambda t: ndtr(mu / 2 - t) + ndtr(-mu / 2 - t) - share, 0.0, 40.0)
        expected = min(canaries * float(ndtr(mu / 2 - least)), float(guesses))
        correct = max(math.floor(expected - 3 * math.sqrt(expected * (1 - expected / guesses))), 0)

        def rejected(strength: float) -> bool:
            return rejects(canaries, guesses, correct, PrivacyProfile.gaussian(strength), 1 - REPORTED)

        return _strongest(rejected) or 0.0

    return int(max(sizes, key=bound))
