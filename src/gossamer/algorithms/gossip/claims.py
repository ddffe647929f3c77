"""Privacy claims of A(DP)2SGD: Theorem 2 and Remark 1.

| symbol | here |
|---|---|
| G | `Adp2sgdSetting.lipschitz`: every per-example gradient has norm <= G; in a run, the clip C |
| B | `Adp2sgdSetting.batch_size` |
| T | `Adp2sgdSetting.iterations`, over all workers |
| K | `Adp2sgdSetting.nodes` |
| n_(1) | `Adp2sgdSetting.smallest_shard` |
| sigma | ``sigma_mean``, see below |
| gamma = B/(K n_(1)) | `Adp2sgdSetting.sampling_rate` |
| Delta_2 = 2 G/B | `Adp2sgdSetting.sensitivity` |

**Which sigma.** Algorithm 1 adds N(0, sigma^2 I) to the *sum* of B gradients, but Appendix E proves
Theorem 2 with the sensitivity 2 G/B of their *mean*. The proof is about the noise relative to the mean, so
that is what is taken here: ``sigma_mean`` = (standard deviation of the noise on the sum)/B. A run with clip C
and noise multiplier z has ``sigma_mean = z C/B``, which is z/2 times the sensitivity. To read Algorithm 1
literally would be to put B times as much noise into Theorem 2 as its proof is about.

**What really holds.** Not this. gamma has a factor 1/K because "a random worker" moves each iteration, but a
neighbour sees who moves, so that amplification is not available. What is proved composes each node's own
steps, at rate B/n_k; it is computed from the ledger and is no part of this module.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: Asynchronous decentralized parallel SGD with differential privacy", Theorem 2,
Remark 1, Appendix E. The bound on the subsampled mechanism is its Lemma 2, from Wang et al., arXiv 1910.13659.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.optimize import minimize_scalar

from gossamer.errors import SpecError
from gossamer.numbers import require_counts, require_fraction, require_positive
from gossamer.privacy.guarantees import Claim

THEOREM2 = "A(DP)2SGD, Theorem 2"
REMARK1 = "A(DP)2SGD, Remark 1"

_LEAST_VARIANCE = 1.5
"""Lemma 2 needs sigma^2 >= 1.5 Delta_2^2."""


@dataclass(frozen=True)
class Adp2sgdSetting:
    """Setting that Theorem 2 is stated for.

    Attributes
    ----------
    lipschitz : float
        G, a bound on the norm of a per-example gradient.
    batch_size : float
        B, examples per iteration.
    iterations : float
        T, over all workers.
    nodes : int
        K.
    smallest_shard : int
        n_(1), the least number of examples at a worker.

    Raises
    ------
    SpecError
        A value is not a finite positive number.
    """

    lipschitz: float
    batch_size: float
    iterations: float
    nodes: int
    smallest_shard: int

    def __post_init__(self) -> None:
        require_positive(lipschitz=self.lipschitz, batch_size=self.batch_size, iterations=self.iterations)
        require_counts(nodes=self.nodes, smallest_shard=self.smallest_shard)

    @property
    def sampling_rate(self) -> float:
        """gamma = B/(K n_(1)), the rate that the theorem's proof works with."""
        return self.batch_size / (self.nodes * self.smallest_shard)

    @property
    def sensitivity(self) -> float:
        """Delta_2 = 2 G/B, of the mean gradient when one example is replaced."""
        return 2.0 * self.lipschitz / self.batch_size


def adp2sgd_order(epsilon: float, delta: float, mu: float) -> float:
    """alpha = log(1/delta)/((1 - mu) epsilon) + 1, the Renyi order of Theorem 2.

    Raises
    ------
    SpecError
        epsilon is not positive, or delta or mu is not in (0, 1).
    """
    require_positive(epsilon=epsilon)
    require_fraction(delta=delta, mu=mu)
    return math.log(1.0 / delta) / ((1.0 - mu) * epsilon) + 1.0


def adp2sgd_theorem2_variance(setting: Adp2sgdSetting, epsilon: float, delta: float, mu: float) -> float:
    """sigma_mean^2 = 20 G^2 T alpha/(K^2 n_(1)^2 mu epsilon), whether or not the theorem's conditions hold.

    Raises
    ------
    SpecError
        epsilon is not positive, or delta or mu is not in (0, 1).
    """
    alpha = adp2sgd_order(epsilon, delta, mu)
    data = setting.nodes * setting.smallest_shard
    return 20.0 * setting.lipschitz**2 * setting.iterations * alpha / (data**2 * mu * epsilon)


def adp2sgd_theorem2(setting: Adp2sgdSetting, sigma_mean: float, delta: float) -> Claim:
    """The least epsilon that Theorem 2 claims for the noise used: the inverse of `adp2sgd_theorem2_variance`.

    With c = 20 G^2 T/(K^2 n_(1)^2 sigma_mean^2) the theorem reads epsilon = c alpha + log(1/delta)/(alpha - 1),
    and mu is the first term's share. At a given noise its conditions do not depend on mu:
    sigma_mean^2 >= 1.5 Delta_2^2, and alpha <= A = log(1/(gamma (1 + sigma_mean^2/Delta_2^2))). So the best mu
    is the one of alpha = min(1 + sqrt(log(1/delta)/c), A), and there is one if A > 1.

    Parameters
    ----------
    setting : Adp2sgdSetting
        Setting of the run.
    sigma_mean : float
        Standard deviation of the noise relative to the *mean* gradient: that of the noise on the sum, over B.
    delta : float
        Probability, in (0, 1).

    Returns
    -------
    Claim
        With the ``mu`` and ``alpha`` of that epsilon. Where a condition fails, the epsilon that the formula
        would give without conditions.

    Raises
    ------
    SpecError
        sigma_mean is not positive, or delta is not in (0, 1).
    """
    require_positive(sigma_mean=sigma_mean)
    require_fraction(delta=delta)
    divergence = _divergence_per_order(setting, sigma_mean)
    log_delta = math.log(1.0 / delta)
    best, allowed = 1.0 + math.sqrt(log_delta / divergence), highest_order(setting, sigma_mean)
    failures = theorem2_failures(setting, sigma_mean)
    alpha = best if failures else min(best, allowed)
    epsilon = divergence * alpha + log_delta / (alpha - 1.0)
    holds = f"both conditions hold for the order alpha = {alpha:.4g}"
    if alpha < best:
        holds += f", the highest that the second allows (the least epsilon would be at {best:.4g})"
    parameters = {"alpha": alpha, "mu": divergence * alpha / epsilon, "sigma_mean": sigma_mean}
    return Claim(THEOREM2, epsilon, delta, not failures, "; ".join(failures) or holds, parameters)


def adp2sgd_theorem2_least_epsilon(setting: Adp2sgdSetting, delta: float) -> Claim:
    """The least epsilon that Theorem 2 can claim with *any* noise.

    More noise lowers the highest order A that its second condition allows, so epsilon does not go to 0: below this
    one there is no sigma and no mu for which the theorem says anything.

    Raises
    ------
    SpecError
        delta is not in (0, 1).
    """
    require_fraction(delta=delta)

    def claim(log_noise: float) -> Claim:
        return adp2sgd_theorem2(setting, setting.sensitivity * math.sqrt(math.expm1(log_noise)), delta)

    # In s = log(1 + sigma^2/Delta^2) epsilon falls as long as A = log(1/gamma) - s does not bind, and is convex
    # from there on, so it has one minimum.
    lowest = math.log(1.0 + _LEAST_VARIANCE)
    highest = -math.log(setting.sampling_rate) - 1.0
    if highest <= lowest:
        return claim(lowest)
    found = minimize_scalar(
        lambda s: claim(s).epsilon, bounds=(lowest, highest), method="bounded", options={"xatol": 1e-10}
    )
    return claim(float(found.x))


def adp2sgd_remark1(claim: Claim, iteration: float, iterations: float) -> Claim:
    """The model after ``iteration`` of ``iterations`` is (sqrt(t/T) epsilon, delta)-DP, if the last one is.

    Parameters
    ----------
    claim : Claim
        Claim of the whole run.
    iteration, iterations : float
        t and T, 0 < t <= T.

    Raises
    ------
    SpecError
        t is not in (0, T].
    """
    if not 0 < iteration <= iterations:
        raise SpecError(f"expected an iteration in (0, {iterations}], found {iteration!r}")
    epsilon = math.sqrt(iteration / iterations) * claim.epsilon
    return replace(claim, theorem=REMARK1, epsilon=epsilon, why=f"as {claim.theorem}: {claim.why}", parameters={})


def highest_order(setting: Adp2sgdSetting, sigma_mean: float) -> float:
    """A = log(1/(gamma (1 + sigma_mean^2/Delta_2^2))), the right side of the theorem's second condition."""
    return -math.log(setting.sampling_rate) - math.log1p((sigma_mean / setting.sensitivity) ** 2)


def theorem2_failures(setting: Adp2sgdSetting, sigma_mean: float, alpha: float | None = None) -> list[str]:
    """List which of the two conditions fail for the order ``alpha``, or for every order > 1 where none is given."""
    failures = []
    variance, allowed = (sigma_mean / setting.sensitivity) ** 2, highest_order(setting, sigma_mean)
    if variance < _LEAST_VARIANCE * (1.0 - 1e-12):  # equality within rounding is not a failure
        share = math.sqrt(variance / _LEAST_VARIANCE)
        failures.append(
            f"the first condition fails (epsilon <= 10 B^2 T alpha/(3 K^2 n1^2 mu), that is "
            f"sigma^2 >= 6 G^2/B^2): sigma is {share:.3g} times what it must be at least"
        )
    if allowed <= 1.0 or (alpha is not None and alpha > allowed):
        failures.append(
            f"the second condition fails: alpha is {'above 1' if alpha is None else f'{alpha:.4g}'}, and "
            f"log(K^3 n1^3 mu epsilon/(K^2 n1^2 mu epsilon B + 5 T alpha B^3)) is {allowed:.4g}"
        )
    return failures


def _divergence_per_order(setting: Adp2sgdSetting, sigma_mean: float) -> float:
    """c of `adp2sgd_theorem2`: T iterations are (alpha, c alpha)-Renyi DP."""
    data = setting.nodes * setting.smallest_shard
    return 20.0 * setting.lipschitz**2 * setting.iterations / (data * sigma_mean) ** 2
