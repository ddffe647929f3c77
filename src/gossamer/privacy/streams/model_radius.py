"""Bounds of how far from zero models of graph federated learning are: agents refuse others, servers keep within.

Let every agent's update move its server's state by at most mu B a round, and what agents add to it by at most A; let
the noise of a record be at most G long, and a = mu B + A + 2 G. With psi_i, M_i, w_i and v_i as in the box of
`graph_federated`, of servers in step with each other, and S_i the longest v of round i,

    |w_i| <= S_i + G     w_i = v_i - g_(i-1), or with random noise a mean of psi_(i-1) and messages
    |M_i| <= S_i + a     M_i = w_i + (a round's mean update) + g_i
    |v_i| <= S_i         a mean of messages of the round before, so S_(i+1) <= S_i + a

and all v of the run are within S = |w_0| + T a. A server that is late, or was away, may combine models of later rounds
than its own, and a hostile neighbour sends what it likes. So honest servers

- shorten a v that is longer than S to S: in step with honest neighbours it never is;
- refuse messages longer than S + a, which by the above no honest server sends, whatever its neighbours do.

Then agents start, at v or w, no further out than R = S + G in any run.

Rounding a model to float32 lengthens it by 2^-24 of itself at most, once a round, which makes exp(T 2^-23) in all with
room to spare; and once more what agents start from.

**The noise.** Let s be the standard deviation of a coordinate of a message's noise (of correlated noise: of z, times
the norm of the row of B), d the coordinates, N the vectors of noise of the whole run. For normal noise the length is
above s (sqrt(d) + t) with probability at most exp(-t^2/2) [1], and so it is for what agents add, a mean of discrete
Gaussians, which are sub-Gaussian [2, 3]. Of Laplace noise, and of sums of it with weights b, each coordinate is above
s x in absolute value with probability at most 4 exp(-x): at l = 1/s the moments E exp(l b_j z_j) = 1/(1 - b_j^2/2|b|^2)
have a product of at most 2. With t and x such that this is 2^-64/N, or 2^-64/(N d), no vector of the run is longer but
for a probability of 2^-64. Noise on a grid is a little larger than planned (`grid_noise`), here less than twice.

References
----------
[1] Boucheron, Lugosi and Massart, "Concentration inequalities", 2013, theorem 5.6.
[2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, corollary 17.
[3] Hsu, Kakade and Zhang, "A tail inequality for quadratic forms of subgaussian random vectors", ECP 2012.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gossamer.privacy.streams.graph_bounds import Noise, RandomNoise
from gossamer.privacy.streams.noise_streams import NoiseLaw

TAIL_BITS = 64
"""An honest run leaves its radius with a probability of at most 2^-64."""
_GRID = 2.0


@dataclass(frozen=True)
class ModelLengths:
    """Bounds of the L2 norms of an honest server's vectors, but for a probability of 2^-64 in a run.

    Attributes
    ----------
    update : float
        mu B + A, of a round's mean update with what agents add.
    model : float
        S, to which servers shorten what they combine.
    message : float
        S + a: longer ones are refused.
    radius : float
        R, of a model that agents start from.
    """

    update: float
    model: float
    message: float
    radius: float


def model_lengths(
    start: float,
    moved: float,
    rounds: int,
    size: int,
    servers: int,
    noise: Noise | None = None,
    agents_add: float = 0.0,
) -> ModelLengths:
    """Bound the lengths of vectors of a run.

    Parameters
    ----------
    start : float
        |w_0|, of the common starting model.
    moved : float
        mu B, the most L2 norm of a round's mean update.
    rounds : int
        T.
    size : int
        d, coordinates.
    servers : int
        P.
    noise : Noise, optional
        Between servers.
    agents_add : float
        Standard deviation of each coordinate of what agents add to a round's mean update.
    """
    links = max((count for _, count in noise.links), default=1) if isinstance(noise, RandomNoise) else 1
    vectors = servers * rounds * (links + 1)
    normal = math.sqrt(size) + math.sqrt(2 * (math.log(vectors) + TAIL_BITS * math.log(2)))
    longest = agents_add * normal
    between = 0.0
    if noise is not None:
        laplace = math.sqrt(size) * (math.log(4 * vectors * size) + TAIL_BITS * math.log(2))
        between = _GRID * _deviation(noise) * (normal if noise.law is NoiseLaw.GAUSSIAN else laplace)
    a_round = moved + longest + 2 * between
    return ModelLengths(
        update=moved + longest,
        model=(start + rounds * a_round) * math.exp(rounds * 2.0**-23),
        message=(start + (rounds + 1) * a_round) * math.exp((rounds + 1) * 2.0**-22),
        radius=(start + rounds * a_round + between) * math.exp(rounds * 2.0**-22),
    )


def _deviation(noise: Noise) -> float:
    """Return the standard deviation of a coordinate of the noise in the message that carries most of it."""
    if isinstance(noise, RandomNoise):
        return noise.standard_deviation
    # The rows of B are beginnings of its kernel, in reverse: the last is the longest.
    return noise.standard_deviation * float(np.linalg.norm(noise.factorisation.noise_kernel))
