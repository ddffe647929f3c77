"""p- and p+: up to which power of the sizes case 1 of the main theorem holds for K gradients, and from which case 2.

References
----------
"Asynchronous federated learning with reduced number of rounds and with differential privacy from less aggregated
Gaussian noise" (increasing sample sizes), the main theorem of section 3, and the end of the theorem in D.3.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

from gossamer.algorithms.increasing.selection import RoundProblem

_POWERS = np.linspace(0.0, 4.0, 81)


def transition_powers(problem: RoundProblem, m: float) -> tuple[float | None, float | None]:
    """The powers p- with K = K-, and p+ with K = K+, of sizes s_0 (1 + i/m)^p.

    Parameters
    ----------
    problem : RoundProblem
        Its power and its case do not count.
    m : float
        That of the sizes; with 0 they do not grow, whatever the power.

    Returns
    -------
    (float or None, float or None)
        The least such powers from 0 to 4; None where there is none.
    """
    return (None, None) if m == 0 else (_least_root(problem, m, above=False), _least_root(problem, m, above=True))


def _least_root(problem: RoundProblem, m: float, above: bool) -> float | None:
    def excess(p: float) -> float:
        """ln K - ln K-, or ln K+."""
        q = problem.initial_size / problem.dataset_size / m**p
        rounds = ((p + 1) * problem.epochs / q) ** (1 / (p + 1))
        theorem = problem.theorem(m / rounds, p)
        limit = theorem.k_plus if above else theorem.k_minus
        return math.log(problem.gradients / limit(problem.epsilon, q, problem.dataset_size))

    found = [(p, excess(p)) for p in _POWERS.tolist()]
    for (low, one), (high, other) in pairwise(found):
        if one * other <= 0:
            return float(brentq(excess, low, high, xtol=1e-12))
    return None
