"""Lower bounds of epsilon from experiments, with the confidence at which they hold.

| function | experiment | what must be independent |
|---|---|---|
| `epsilon_from_runs` | many runs, half with a canary and half without | the runs |
| `epsilon_one_run` | one run with m canaries, each included by a fair coin | the coins |

Both say: *if the lower bound exceeds a claimed epsilon, the claim is false*, except with probability 1 - confidence. A
lower bound of 0 says nothing at all.

Membership inference [5] says "member" where the loss on an example is below a threshold. It is a symptom, not an
audit: the members and the non-members of *one* model are not independent runs, and who is a member was not decided by
coins, so no epsilon follows. Where both come from different populations, the attack tells populations apart.

The bound from one run is by f-differential privacy.

**The hypothesis** is a whole privacy profile (`gossamer.privacy.guarantees`): for each coin, whatever the others say,
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
[3] Jagielski, Ullman and Oprea, "Auditing differentially private machine learning", NeurIPS 2020, section 3.
[4] Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
    Biometrika 1934.
[5] Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in machine learning: analyzing the connection to overfitting",
    CSF 2018, sections III-A and III-C.
[6] Carlini, Chien, Nasr, Song, Terzis and Tramer, "Membership inference attacks from first principles", IEEE S&P 2022,
    section III (why the true positive rate at a low false positive rate is what matters).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr
from scipy.stats import beta, rankdata

from gossamer.arrays import FloatArray
from gossamer.errors import DataError, SpecError
from gossamer.privacy.guarantees import HIGHEST_LOSS, PrivacyProfile
from gossamer.privacy.mechanisms import NeighboringRelation

LOW_RATES = (0.001, 0.01)
"""False positive rates at which the true positive rate is reported [6]."""


def roc(members: FloatArray, non_members: FloatArray) -> tuple[FloatArray, FloatArray]:
    """False and true positive rates of ``score >= t`` for every threshold t, from (0, 0) to (1, 1).

    Equal scores cannot be told apart, so they enter together.
    """
    thresholds = np.unique(np.concatenate([members, non_members]))[::-1]
    rates = [
        1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores) for scores in (non_members, members)
    ]
    false, true = (np.concatenate([[0.0], rate]) for rate in rates)
    return false, true


def auc(members: FloatArray, non_members: FloatArray) -> float:
    """The area under the ROC curve, as the rank statistic of Mann and Whitney."""
    ranks = rankdata(np.concatenate([members, non_members]))
    above = ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2
    return float(above / (len(members) * len(non_members)))


def membership(members: FloatArray, non_members: FloatArray, generator: np.random.Generator) -> dict[str, Any]:
    """Measure how well scores tell members from non-members.

    Parameters
    ----------
    members, non_members : ndarray [n]
        Scores, larger where an example seems a member: minus its loss. A score that is not a number counts as the
        lowest.
    generator : Generator
        Deals the examples into the half that chooses the threshold of the advantage and the half that is judged.

    Returns
    -------
    dict
        Numbers of both; ``auc``, the probability that a random member scores above a random non-member, ties counting
        half (0.5 is chance); ``advantage``, the true minus the false positive rate [5] at a threshold that is best on
        one half of the examples, on the other half, in [-1, 1] (0 is chance); and the largest true positive rates at
        no more than the false positive rates in their names, None with too few non-members to have such a rate.

    Raises
    ------
    DataError
        If there are fewer than two of either.
    """
    if min(len(members), len(non_members)) < 2:
        raise DataError(f"expected at least 2 members and 2 others, found {len(members)} and {len(non_members)}")
    members, non_members = (np.nan_to_num(s, nan=-np.inf) for s in (members, non_members))
    false, true = roc(members, non_members)
    rates = {rate: float(true[false <= rate].max()) if rate * len(non_members) >= 1 else None for rate in LOW_RATES}
    return {
        "members": len(members),
        "non_members": len(non_members),
        "auc": auc(members, non_members),
        "advantage": _advantage(generator.permutation(members), generator.permutation(non_members)),
        **{f"tpr_at_fpr_{rate:g}": value for rate, value in rates.items()},
    }


def _advantage(members: FloatArray, non_members: FloatArray) -> float:
    chosen, judged = zip(*((s[: len(s) // 2], s[len(s) // 2 :]) for s in (members, non_members)))
    false, true = roc(*chosen)
    thresholds = np.append(np.inf, np.unique(np.concatenate(chosen))[::-1])
    best = thresholds[int(np.argmax(true - false))]
    return float(np.mean(judged[0] >= best) - np.mean(judged[1] >= best))


REPORTED = 0.95
"""Confidence of the bounds that commands report."""


@dataclass(frozen=True)
class LowerBound:
    """Lower bound that an audit found: epsilon is at least this, at ``confidence``.

    Attributes
    ----------
    epsilon : float
        The lower bound, at least 0; 0 says nothing.
    delta : float
        Delta at which it holds: no (epsilon', delta)-DP with a smaller epsilon' explains what was seen.
    confidence : float
        Least probability with which the bound is true.
    neighboring_relation : NeighboringRelation
        Relation of the data sets that were told apart.
    method : str
        Method that obtained it.
    """

    epsilon: float
    delta: float
    confidence: float
    neighboring_relation: NeighboringRelation
    method: str


def binomial_lower(successes: Any, trials: int, level: float) -> Any:
    """Bounds below success probabilities, each true with probability at least 1 - ``level`` (one-sided, [4])."""
    return np.nan_to_num(beta.ppf(level, successes, trials - successes + 1))  # NaN where there are none: 0


def binomial_upper(successes: Any, trials: int, level: float) -> Any:
    """Bounds above success probabilities, each true with probability at least 1 - ``level`` (one-sided, [4])."""
    return np.nan_to_num(beta.ppf(1 - level, successes + 1, trials - successes), nan=1.0)


def epsilon_from_runs(
    with_canary: FloatArray,
    without_canary: FloatArray,
    delta: float,
    relation: NeighboringRelation,
    confidence: float = REPORTED,
) -> LowerBound:
    """The least epsilon that explains scores of independent runs on two neighbouring data sets D and D'.

    (epsilon, delta)-DP says ``P(E) <= exp(epsilon) P'(E) + delta`` for every event E, in both directions. The events
    here are ``score > t`` (likelier on D) and ``score < t`` (likelier on D'). The event is the best one on the first
    half of the scores; the bound is ``log((p - delta)/p')`` of the second half, with p the lower and p' the upper
    Clopper-Pearson limit of the event's two probabilities, each at half of 1 - ``confidence`` [3].

    Parameters
    ----------
    with_canary, without_canary : ndarray [runs]
        A score of each run, larger where the canary seems present, in the order of the runs. No two runs may share
        randomness.
    delta : float
        Delta, in [0, 1).
    relation : NeighboringRelation
        Relation of D and D'.
    confidence : float
        Confidence level, in (0, 1).

    Raises
    ------
    DataError
        If there are fewer than two runs of a kind, or a score is not a number.
    SpecError
        If delta or confidence is out of range.
    """
    check_level(delta, confidence)
    scores = [np.asarray(s, np.float64) for s in (with_canary, without_canary)]
    if any(len(s) < 2 or s.ndim != 1 or np.isnan(s).any() for s in scores):
        raise DataError("expected scores of at least 2 runs with and 2 without the canary, none of them NaN")
    level = (1 - confidence) / 2
    # An event below a threshold is one above it of scores that are turned round.
    ways = (scores[0], scores[1]), (-scores[1], -scores[0])
    events = [_best_event([s[: len(s) // 2] for s in way], delta, level) for way in ways]
    (_, threshold), way = max(zip(events, ways, strict=True), key=lambda one: one[0][0])
    judged = [s[len(s) // 2 :] for s in way]
    ratio = _ratios([int((s > threshold).sum()) for s in judged], [*map(len, judged)], delta, level)
    epsilon = float(np.log(np.maximum(ratio, 1.0)))
    sizes = f"{len(scores[0])} runs with and {len(scores[1])} without the canary"
    method = f"Clopper-Pearson limits on the second half of {sizes}, event chosen on the first"
    return LowerBound(epsilon, delta, confidence, relation, method)


def check_level(delta: float, confidence: float) -> None:
    """Refuse a delta or a confidence that is none."""
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise SpecError(f"delta lies in [0, 1) and confidence in (0, 1), found {delta!r} and {confidence!r}")


def _ratios(hits: Sequence[Any], trials: Sequence[int], delta: float, level: float) -> Any:
    """Bounds of exp(epsilon) for events that so many of the one kind of runs and of the other have."""
    likelier, other = binomial_lower(hits[0], trials[0], level), binomial_upper(hits[1], trials[1], level)
    return np.maximum(likelier - delta, 0.0) / other


def _best_event(scores: Sequence[FloatArray], delta: float, level: float) -> tuple[float, float]:
    """The largest bound on ``scores``, likelier ones first, and the threshold above which its event lies."""
    thresholds = np.unique(np.concatenate([[-math.inf], *scores]))
    hits = [len(s) - np.searchsorted(np.sort(s), thresholds, side="right") for s in scores]
    ratios = _ratios(hits, [*map(len, scores)], delta, level)
    return float(ratios.max()), float(thresholds[ratios.argmax()])


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
