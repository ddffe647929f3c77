"""Epsilon of many adaptive releases of which nothing is known but their pure epsilons.

| name | epsilon at delta of k releases that are epsilon-differentially private |
|---|---|
| `simple` | k epsilon, at delta 0 |
| `advanced` | sqrt(2 k ln(1/delta)) epsilon + k epsilon (exp(epsilon) - 1): Dwork and Roth [1, theorem 3.20] |
| `optimal` | the smallest that holds for all such releases: Kairouz, Oh and Viswanath [2, theorem 3.3] |
| ``tight`` | `gossamer.privacy.accounting.accountants.epsilon`, from the mechanism's own privacy loss |

The first three do not look at the noise, the last one does. Simple is the largest, optimal never exceeds it, and tight
does not exceed optimal. Advanced never is below optimal; it exceeds simple where releases are few or revealing.

`optimal` is exact. Randomized response is the worst of all epsilon-differentially private mechanisms, and k of them are
one binomial number of lies l: its loss is (k - 2 l) epsilon, and

    delta(e) = sum_{l < (k - e/epsilon)/2} Binomial(l; k, 1/(1 + exp(epsilon))) (1 - exp(e - (k - 2 l) epsilon)).

The theorem states this at e = (k - 2 i) epsilon; in between the curve is a chord in exp(e), which the sum is too.

References
----------
[1] Dwork and Roth, "The algorithmic foundations of differential privacy", 2014.
[2] Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015.
"""

from __future__ import annotations

import math

import numpy as np

from gossamer.errors import AccountingError
from gossamer.privacy.accounting import accountants
from gossamer.privacy.accounting.accountant_table import pure_epsilon
from gossamer.privacy.accounting.renyi import check_delta, check_epsilon
from gossamer.privacy.mechanisms import NeighboringRelation, ReleaseKind

COMPOSITIONS = ("simple", "advanced", "optimal", "tight")
"""The names of `compositions`."""

_REACH = 40  # Poisson standard deviations of the number of lies, and as many lies: fewer are rarer than _NEGLECTED
_NEGLECTED = 1e-300
_ROUNDING = 1e-9  # relative, on delta: far more than the sums lose


def simple(epsilon: float, releases: int) -> float:
    """``releases`` times ``epsilon``.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number or releases a negative one.
    """
    _check(epsilon, releases)
    return releases * epsilon


def advanced(epsilon: float, releases: int, delta: float) -> float:
    """Advanced composition of [1, theorem 3.20]; infinite where it overflows.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number, releases a negative one or delta not inside (0, 1).
    """
    _check(epsilon, releases)
    check_delta(delta)
    growth = math.expm1(epsilon) if epsilon < 700 else math.inf
    return math.sqrt(2 * releases * math.log(1 / delta)) * epsilon + releases * epsilon * growth if releases else 0.0


def optimal(epsilon: float, releases: int, delta: float) -> float:
    """The smallest epsilon >= 0 that all compositions of epsilon-differentially private releases have at ``delta``.

    Raises
    ------
    AccountingError
        If epsilon is not a finite positive number, releases a negative one or delta not inside (0, 1).
    """
    from scipy.signal import lfilter  # both are slow to import, and seldom needed
    from scipy.stats import binom

    _check(epsilon, releases)
    check_delta(delta)
    lie = math.exp(-epsilon) / (1 + math.exp(-epsilon))
    mean = releases * lie
    fewest = max(math.floor(mean - _REACH * (math.sqrt(mean) + 1)), 0)
    most = math.ceil(min(mean + _REACH * (math.sqrt(mean) + 1), releases / 2))  # more leave no positive loss
    lies = np.arange(fewest, most)
    target = delta * (1 - _ROUNDING) - (_NEGLECTED if fewest else 0.0)
    if target <= 0:
        return releases * epsilon
    masses = binom.pmf(lies, releases, lie)
    upper = np.cumsum(masses)
    lower = lfilter([1.0], [1.0, -math.exp(-2 * epsilon)], masses)  # masses over exp(how far their losses are above)
    # What lies[j] adds matters below its loss; just above the loss of one lie more, the divergence is
    beyond = upper - math.exp(-2 * epsilon) * lower
    if not (beyond > target).any():
        return max((releases - 2 * most) * epsilon, 0.0)
    first = int(np.argmax(beyond > target))
    loss = (releases - 2 * int(lies[first])) * epsilon + math.log((upper[first] - target) / lower[first])
    return min(max(loss, 0.0), releases * epsilon)


def compositions(kind: ReleaseKind, count: int, delta: float, relation: NeighboringRelation) -> dict[str, float]:
    """Return the epsilons of ``count`` releases of one kind, by each name of `COMPOSITIONS`.

    Parameters
    ----------
    kind : ReleaseKind
        Kind with `L2Laplace` or `Laplace` noise: a release that needs no delta.
    count : int
        Number of releases.
    delta : float
        Failure probability, in (0, 1).
    relation : NeighboringRelation
        Relation of data sets that count as neighbours.

    Returns
    -------
    dict of str to float
        All are proved. ``tight`` is what `gossamer.privacy.accounting.accountants.epsilon` says, or ``optimal`` where
        its grid's part in a thousand makes that one smaller.

    Raises
    ------
    AccountingError
        If the noise is of another law, the combination is not accounted for, or a number is out of range.
    """
    single = pure_epsilon(kind, relation)
    tight = accountants.epsilon({kind: count}, delta, relation).epsilon
    best = optimal(single, count, delta)
    return {
        "simple": simple(single, count),
        "advanced": advanced(single, count, delta),
        "optimal": best,
        "tight": min(tight, best),
    }


def _check(epsilon: float, releases: int) -> None:
    check_epsilon(epsilon)
    if releases < 0:
        raise AccountingError(f"a number of releases is 0 or more, found {releases!r}")
