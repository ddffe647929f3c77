"""Privacy claim of graph federated learning: its Theorem 2.

| symbol | here |
|---|---|
| mu, B | ``step``, ``bound``: step size of a round, bound on gradients along the path |
| sigma_g | ``standard_deviation`` of a coordinate of the noise on a message |
| i | ``rounds``: the claim is about messages 0 to i, of which message 0 is the initial model |

**What holds.** For Laplace noise on *one* coordinate, independent from round to round, with gradients that are clipped
to B, the formula is the sum of the sensitivities 2 mu B j of the messages, and is true (`graph_bounds`).

**What does not.**

- The paper bounds the L2 norm of the change, and its noise is Laplace in each coordinate, which needs the L1 norm: in d
  dimensions epsilon is sqrt(d) times what is claimed.
- B comes from Lemma 4, which bounds gradients by constants of the data and of the path that was taken. Nothing enforces
  it.
- The claim is stated for one agent's change, as if only that agent's gradients moved. With gradients at the server's
  own state all later gradients of the unit move; 2 mu B is a bound on the whole update, so the figure survives, for
  units.
- It is about other units. To the own server and the own agents, who see exact sums, nothing is guaranteed.

References
----------
"Privatized graph federated learning": eq. 52, Theorem 2 and Appendix F.
"""

from __future__ import annotations

import math
import operator

from gossamer.errors import SpecError
from gossamer.numbers import require_positive
from gossamer.privacy.claim import Claim
from gossamer.privacy.streams.correlated_noise import Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, Noise, RandomNoise
from gossamer.privacy.streams.noise_streams import NoiseLaw

THEOREM2 = "graph federated learning, Theorem 2"


def gfl_theorem2(
    rounds: int, step: float, bound: float, standard_deviation: float, *, conditions: str | None = None
) -> Claim:
    """epsilon(i) = sqrt(2) mu B (1 + i) i/sigma_g after ``rounds`` = i rounds, at delta 0.

    Parameters
    ----------
    rounds : int
        i >= 0.
    step, bound, standard_deviation : float
        mu, B and sigma_g.
    conditions : str, optional
        Why the run is not what the theorem is about, such as Gaussian noise; the claim is not valid then.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(step=step, bound=bound, standard_deviation=standard_deviation)
    i = _rounds(rounds)
    epsilon = math.sqrt(2.0) * step * bound * (1 + i) * i / standard_deviation
    why = conditions or f"independent homomorphic Laplace noise, if gradients along the path are at most {bound:g}"
    return Claim(THEOREM2, epsilon, 0.0, conditions is None, why)


def gfl_claims(noise: Noise, rounds: int, step: float, bound: float, gradient_at: GradientAt) -> list[Claim]:
    """Claims of Theorem 2 for a whole run, at i = T; none where gradients have no bound.

    Parameters
    ----------
    noise : CorrelatedNoise or RandomNoise
        Of every server. Its standard deviation is sigma_g; where noise is correlated, that is the first message's.
    rounds : int
        T >= 1.
    step, bound : float
        mu and B, which may be infinite.
    gradient_at : GradientAt
        Where gradients are taken.
    """
    if not math.isfinite(bound):
        return []
    temporal = Temporal.INDEPENDENT if isinstance(noise, RandomNoise) else noise.factorisation.temporal
    differs = {
        f"the noise is {noise.law}": noise.law is not NoiseLaw.LAPLACE,
        "it is not homomorphic": isinstance(noise, RandomNoise),
        "it is correlated over rounds": temporal is not Temporal.INDEPENDENT,
        "gradients are taken at released models": gradient_at is GradientAt.RELEASED,
    }
    reasons = [reason for reason, holds in differs.items() if holds]
    why = f"not the theorem's run: {', '.join(reasons)}" if reasons else None
    return [gfl_theorem2(rounds, step, bound, noise.standard_deviation, conditions=why)]


def gfl_theorem2_standard_deviation(rounds: int, step: float, bound: float, epsilon: float) -> float:
    """sigma_g = sqrt(2) mu B (1 + i) i/epsilon(i), as the theorem is printed.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(step=step, bound=bound, epsilon=epsilon)
    i = _rounds(rounds)
    return math.sqrt(2.0) * step * bound * (1 + i) * i / epsilon


def _rounds(rounds: int) -> int:
    try:
        found = operator.index(rounds)
    except TypeError:
        found = -1
    if found < 0:
        raise SpecError(f"rounds must be a whole number, 0 or more, found {rounds!r}")
    return found
