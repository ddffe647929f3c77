"""Membership inference by a threshold on the loss.

Who trained on an example often has a lower loss on it. The attack of [1] says "member" where the loss is below a
threshold. It is a symptom, not an audit: the members and the non-members of *one* model are not independent runs, and
who is a member was not decided by coins, so no epsilon follows; see `audit`. Where members and non-members come from
different populations, such as a test set written by other people, the attack tells populations apart.

References
----------
[1] Yeom, Giacomelli, Fredrikson and Jha, "Privacy risk in machine learning: analyzing the connection to overfitting",
    CSF 2018, sections III-A and III-C.
[2] Carlini, Chien, Nasr, Song, Terzis and Tramer, "Membership inference attacks from first principles", IEEE S&P 2022,
    section III (why the true positive rate at a low false positive rate is what matters).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

from gossamer.arrays import FloatArray
from gossamer.errors import DataError

LOW_RATES = (0.001, 0.01)
"""False positive rates at which the true positive rate is reported."""


@dataclass(frozen=True)
class Membership:
    """Figures on how well scores tell members from non-members.

    Attributes
    ----------
    members, non_members : int
        Number of each.
    auc : float
        Probability that a random member scores above a random non-member, ties counting half; 0.5 is chance.
    advantage : float
        True minus false positive rate [1] at a threshold that is best on one half of the examples, on the other half;
        in [-1, 1], 0 is chance.
    true_positive_rates : dict of float to (float or None)
        Largest rates at no more than the false positive rates that are its keys; None with too few non-members to have
        such a rate.
    """

    members: int
    non_members: int
    auc: float
    advantage: float
    true_positive_rates: dict[float, float | None]

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rates = {f"tpr_at_fpr_{rate:g}": value for rate, value in self.true_positive_rates.items()}
        return {
            "members": self.members,
            "non_members": self.non_members,
            "auc": self.auc,
            "advantage": self.advantage,
            **rates,
        }


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


def membership(members: FloatArray, non_members: FloatArray, generator: np.random.Generator) -> Membership:
    """Measure how well scores tell members from non-members.

    Parameters
    ----------
    members, non_members : ndarray [n]
        Scores, larger where an example seems a member: minus its loss. A score that is not a number counts as the
        lowest.
    generator : Generator
        Deals the examples into the half that chooses the threshold of `Membership.advantage` and the half that is
        judged.

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
    return Membership(
        len(members),
        len(non_members),
        auc(members, non_members),
        _advantage(generator.permutation(members), generator.permutation(non_members)),
        rates,
    )


def _advantage(members: FloatArray, non_members: FloatArray) -> float:
    chosen, judged = zip(*((s[: len(s) // 2], s[len(s) // 2 :]) for s in (members, non_members)))
    false, true = roc(*chosen)
    thresholds = np.append(np.inf, np.unique(np.concatenate(chosen))[::-1])
    best = thresholds[int(np.argmax(true - false))]
    return float(np.mean(judged[0] >= best) - np.mean(judged[1] >= best))
