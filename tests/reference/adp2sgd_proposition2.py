"""The sigma of Theorem 2, and Proposition 2, of A(DP)2SGD as the paper states them: no command prints them.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: Asynchronous decentralized parallel SGD with differential privacy", section 4.1,
Proposition 2.
"""

from __future__ import annotations

import math
from dataclasses import replace

from gossamer.algorithms.gossip.claims import (
    Adp2sgdNetwork,
    Adp2sgdProblem,
    Adp2sgdSetting,
    iteration_failures,
    theorem2_failures,
)
from gossamer.errors import require_fraction, require_positive
from gossamer.privacy.guarantees import UtilityClaim

PROPOSITION2 = "A(DP)2SGD, Proposition 2"


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


def adp2sgd_proposition2(
    setting: Adp2sgdSetting,
    epsilon: float,
    delta: float,
    mu: float,
    problem: Adp2sgdProblem,
    network: Adp2sgdNetwork,
) -> UtilityClaim:
    """C_4 G sqrt(d L H log(1/delta))/(K n_(1) epsilon) after the number of iterations that eq. 8 gives.

    H = F(w0) - F* + L (varsigma^2/B + 6 upsilon^2) and C_4 = 4 sqrt(5) (1 + 1/(B^2 mu (1 - mu))).

    Parameters
    ----------
    setting : Adp2sgdSetting
        G, B, K and n_(1); its number of iterations is not used.
    epsilon, delta : float
        The privacy that Theorem 2 claims.
    mu : float
        In (0, 1); 1/2 makes C_4 least, but the conditions of Theorem 2 may need another.
    problem : Adp2sgdProblem
        What is minimised.
    network : Adp2sgdNetwork
        Who exchanges with whom, and how late; with the same K.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    alpha = adp2sgd_order(epsilon, delta, mu)
    spread = problem.within_variance / setting.batch_size + 6.0 * problem.between_variance
    loss, data = problem.loss_gap + problem.smoothness * spread, setting.nodes * setting.smallest_shard
    require_positive(loss=loss)
    scale = problem.size * problem.smoothness * math.log(1.0 / delta)
    iterations = 2.0 * loss * (data * epsilon) ** 2 / (40.0 * scale * setting.lipschitz**2)
    c4 = 4.0 * math.sqrt(5.0) * (1.0 + 1.0 / (setting.batch_size**2 * mu * (1.0 - mu)))
    bound = c4 * setting.lipschitz * math.sqrt(scale * loss) / (data * epsilon)
    run = replace(setting, iterations=iterations)
    sigma = math.sqrt(adp2sgd_theorem2_variance(run, epsilon, delta, mu))
    failures = theorem2_failures(run, sigma, alpha) + iteration_failures(iterations, problem.smoothness, network)
    why = "; ".join(failures) or "the conditions of Theorem 2 hold and T is large enough"
    return UtilityClaim(PROPOSITION2, bound, iterations, not failures, why)
