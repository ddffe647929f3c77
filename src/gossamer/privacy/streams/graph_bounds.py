"""Bounds of what messages of graph federated learning reveal, all rounds jointly: mu_G, or a pure epsilon.

Round i of unit p: its agents return gradients at a model of theirs, U_i is the mean over the L sampled agents of each
one's mean over local steps, the server has psi_i = w_(i-1) - mu U_i and sends noisy copies to its neighbours.

**Homomorphic noise.** The same message M_i = psi_i + g_i goes to all neighbours and the server's own term has
-(1-a_pp)/a_pp g_i, so ``w_i = psi_i - (1-a_pp) M_i + (a_pm M_m of the others)``: a server's own state is never noised.
By induction psi_i is a function of what was sent less mu (U_1 + ... + U_i), and message i is public terms, less mu
times the running sum, plus g_i: the setting of `correlated_noise` with ``x_j = -mu U_j``. With B z for g, all messages
are post-processing of C x + z.

**Random noise.** Each of the n_p links has noise of its own in each round, and w_i has a_pp psi_i for its own term. So
psi_i is public terms less mu (U_i + a_pp U_(i-1) + a_pp^2 U_(i-2) + ...), and whoever sees all n_p links sees n_p
copies of C x + z with C_ij = a_pp^(i-j). If the own term is noised too, that noise is given to the observer in
addition: the bound stays true, and is no longer attained.

| noise | kernel of C (`correlated_noise`) | copies n |
|---|---|---|
| homomorphic | of the factorisation | 1 |
| random | 1, a_pp, a_pp^2, ... | n_p |

One change of the data moves each x_j by at most D = `UpdateBound.moved`, in L2 norm, given what was seen before. Hence,
as shown in `correlated_noise`, normal noise of standard deviation s is mu_G-Gaussian differentially private with

    mu_G = (D/s) sqrt(n) |C 1|.

Laplace noise of standard deviation s in each coordinate is a scale of s/sqrt(2), and a move of L2 norm D is one of at
most sqrt(d) D in L1 norm, so the privacy loss of all messages is on every path at most

    epsilon = sqrt(2d) (D/s) n sum_ij |C_ij|,

for `independent` homomorphic noise sqrt(2d) mu B T (T+1)/s. Both are attained, by updates that always move in one
direction: for Laplace noise the diagonal of the coordinates.

**How far one change moves an update.** Gradients, with the regulariser's part, are clipped to B, so |U_j| <= B.

- `gradient_at: hidden`, the paper's: gradients are taken at w, which holds the exact running sum. One agent's change
  moves all later gradients of its unit, so D = 2 mu B, whatever L is, and the protected unit is the federated unit.
- `gradient_at: released`: gradients are taken at v = sum_m a_pm M_m, the unit's own noisy message included. v is a
  function of what was sent, so one agent moves its own part of the mean alone: D = 2 mu B/L, for each agent.

Sampled agents and batches are drawn by coins that do not depend on the data; the bounds hold given the coins.

Bounds of how far from zero models of graph federated learning are: agents refuse others, servers keep within.

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
"Privatized graph federated learning", eqs. 6-8 and 47; its own proof, Appendix F, is for independent Laplace noise and
d = 1 (see `gossamer.algorithms.graph_federated.guarantees`).
[1] Boucheron, Lugosi and Massart, "Concentration inequalities", 2013, theorem 5.6.
[2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, corollary 17.
[3] Hsu, Kakade and Zhang, "A tail inequality for quadratic forms of subgaussian random vectors", ECP 2012.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, did_you_mean, real_number, whole_number
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, NoiseLaw


class GradientAt(StrEnum):
    """Model at which a unit's agents take their gradients."""

    HIDDEN = "hidden"
    """w, the server's own state."""

    RELEASED = "released"
    """What follows from messages alone."""


@dataclass(frozen=True)
class UpdateBound:
    """Bound of how far one change of the data moves a step, mu U.

    Attributes
    ----------
    step : float
        mu, the step size of a round.
    bound : float
        B: clip of each gradient, the regulariser's part included.
    agents_sampled : int
        L, agents of a unit in a round.
    gradient_at : GradientAt
        Point at which gradients are taken.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    step: float
    bound: float
    agents_sampled: int
    gradient_at: GradientAt

    def __post_init__(self) -> None:
        if self.gradient_at not in list(GradientAt):
            hint = did_you_mean(str(self.gradient_at), GradientAt)
            raise SpecError(f"gradient_at {self.gradient_at!r} is not known{hint}")
        object.__setattr__(self, "gradient_at", GradientAt(self.gradient_at))
        for name, value in (("step size", self.step), ("bound on gradients", self.bound)):
            if not 0 < real_number(value) < math.inf:
                raise SpecError(f"the {name} must be a finite number > 0, found {value!r}")
        if not whole_number(self.agents_sampled):
            raise SpecError(f"a round needs at least 1 sampled agent, found {self.agents_sampled!r}")

    @property
    def moved(self) -> float:
        """D: 2 mu B, or 2 mu B/L where gradients are taken at released models."""
        agents = self.agents_sampled if self.gradient_at is GradientAt.RELEASED else 1
        return 2.0 * self.step * self.bound / agents


@dataclass(frozen=True)
class RandomNoise:
    """Noise of its own on every link in every round, for the unit about which its neighbours learn most.

    Attributes
    ----------
    rounds : int
        T >= 1.
    standard_deviation : float
        Standard deviation of a coordinate of the noise on a message.
    links : tuple of (float, int)
        a_pp and the number n_p of neighbours of each unit.
    law : NoiseLaw
        Law of the noise.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    rounds: int
    standard_deviation: float
    links: tuple[tuple[float, int], ...]
    law: NoiseLaw = NoiseLaw.GAUSSIAN

    def __post_init__(self) -> None:
        if not whole_number(self.rounds):
            raise SpecError(f"random noise needs at least 1 round, found {self.rounds!r}")
        if not 0 < real_number(self.standard_deviation) < math.inf:
            raise SpecError(f"noise needs a finite standard deviation > 0, found {self.standard_deviation!r}")
        if not self.links or not all(0 <= real_number(own) < 1 and whole_number(near) for own, near in self.links):
            raise SpecError(
                f"random noise needs an own weight in [0, 1) and at least 1 neighbour for each unit, found {self.links}"
            )


Noise = CorrelatedNoise | RandomNoise
"""Homomorphic noise with correlation over rounds, or random noise."""


def gaussian_mu_of(noise: Noise, bound: UpdateBound) -> float:
    """mu_G of all messages of a run: of the unit about which they say most.

    Raises
    ------
    SpecError
        The noise is not Gaussian, or gradients at released models are meant to go with random noise.
    """
    _check(noise, bound, NoiseLaw.GAUSSIAN)
    if isinstance(noise, CorrelatedNoise):
        amount = noise.factorisation.sensitivity
    else:
        amount = max(math.sqrt(links) * float(np.linalg.norm(moved)) for moved, links in _seen(noise))
    return bound.moved * amount / noise.standard_deviation


def laplace_epsilon_of(noise: Noise, bound: UpdateBound, size: int) -> float:
    """Epsilon, at delta 0, of all messages of a run with Laplace noise in ``size`` coordinates.

    Raises
    ------
    SpecError
        The noise is not Laplace noise, the size is not positive, or gradients at released models are meant to go with
        random noise.
    """
    _check(noise, bound, NoiseLaw.LAPLACE)
    if not size >= 1:
        raise SpecError(f"Laplace noise is accounted by the number of coordinates, at least 1, found {size!r}")
    if isinstance(noise, CorrelatedNoise):
        amount = noise.factorisation.absolute_sum
    else:
        amount = max(links * float(moved.sum()) for moved, links in _seen(noise))
    return math.sqrt(2.0 * size) * bound.moved * amount / noise.standard_deviation


def _seen(noise: RandomNoise) -> Iterator[tuple[FloatArray, int]]:
    """Vectors C 1 [rounds] of each unit, and how many copies of C x + z its messages are post-processing of."""
    return ((np.cumsum(own ** np.arange(noise.rounds)), links) for own, links in noise.links)


def _check(noise: Noise, bound: UpdateBound, law: NoiseLaw) -> None:
    if noise.law is not law:
        raise SpecError(f"expected {law} noise, found {noise.law}")
    if isinstance(noise, RandomNoise) and bound.gradient_at is GradientAt.RELEASED:
        raise SpecError(
            "with random noise each neighbour gets another message, so there is no released model to take gradients "
            "at; use gradient_at: hidden"
        )


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
        Noise between servers.
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
