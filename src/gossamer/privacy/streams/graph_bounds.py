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
above s (sqrt(d) + t) with probability at most exp(-t^2/2) [4], and so it is for what agents add, a mean of discrete
Gaussians, which are sub-Gaussian [1, corollary 17; 5]. Of Laplace noise, and of sums of it with weights b, each
coordinate is above s x in absolute value with probability at most 4 exp(-x): at l = 1/s the moments E exp(l b_j z_j) =
1/(1 - b_j^2/2|b|^2) have a product of at most 2. With t and x such that this is 2^-64/N, or 2^-64/(N d), no vector of
the run is longer but for a probability of 2^-64. Noise on a grid is a little larger than planned (`grid_noise`), here
less than twice.

**Noise that agents add to their own updates**, inside the masked sum, protects them from their own server. Each agent
adds a discrete Gaussian of integer scale s to every coordinate of its encoded update [d] (`secure_unit`). Replacing all
of its data moves its integers by at most D in L2 norm, whatever it was asked before. So

- **its own noise alone** makes one sum D^2/(2 s^2)-zero-concentrated differentially private [1, theorem 14], even for
  an observer who is handed its vector without any mask, as a server in league with all other agents is. The masks are
  not needed for it.
- **with the noise of h honest agents** of a sum, this one included, it is rho-zCDP with

      rho = (D/(s sqrt(h)) + tau sqrt(d))^2/2,      tau = 10 sum_(k < h) exp(-2 pi^2 s^2 k/(k+1))

  [2, proposition 14], since a sum of discrete Gaussians is not quite one; tau is 0 in any practice. This takes that
  the server has nothing but the sums, that is, that the masks hold.

Rounds compose, adaptively: the models that an agent is asked about may depend on all earlier sums. What is rho-zCDP has
Renyi divergence rho a at every order a, and that gives epsilon for a delta [1, proposition 12]. More is true of noise
that is not tiny: the sums are Gaussian differentially private, but for a factor that is nothing (`gaussian_dp`).
The smaller epsilon counts; both are proved.

An agent counts its rounds itself, and charges one before its noise is drawn (`sides`).

**The Renyi divergence of all that a unit's run reveals of one agent** enters the agent's own ledger. An agent's data
leaves its machine by way of its unit's server, and its updates do so before anything is released. So what the whole run
may reveal enters the agent's ledger before the agent joins, at the order of its filter a:

- **against other units**, where the own server is trusted: all messages of the unit jointly. Normal noise makes them
  mu-Gaussian differentially private (see above). Then no test tells two data sets apart better than N(0, 1) and
  N(mu, 1) are told apart, so by Blackwell's theorem both outputs are a common randomised function of these two, and no
  divergence is larger than theirs: ``a mu^2/2`` [3, corollary B.6]. Laplace noise has a pure epsilon, which bounds the
  divergence by that of randomised response (`renyi.response`).
- **against the own server**: by the agent's own noise alone each masked sum is rho-zero-concentrated, so all together
  have divergence ``a rho rounds``. What other units see is computed from what the server sees and from
  noise of the server's own. It is post-processing, so the same number holds against everybody; where the own server is
  trusted, the smaller of the two counts.

As Gaussian differential privacy messages with normal noise have their mu, and those with Laplace noise
that of randomised response. An agent's own sums have a mu but for something of g that adds to the divergence
(`gaussian_dp`). With G the divergence of N(mu, 1) and N(0, 1), at most G(0) = 1 - 2 Phi(-mu/2) at e >= 0, that is a
failure f = g / (2 Phi(-mu/2)): ``G + g <= f + (1 - f) G``.

Both compare data sets that differ in all that the agent has (or the whole unit). That is no less than what one example
changes, added, removed or replaced, so it may enter a ledger under either relation.

References
----------
"Privatized graph federated learning", eqs. 6-8 and 47; its own proof, Appendix F, is for independent Laplace noise and
d = 1 (see `gossamer.algorithms.graph_federated.guarantees`).
[1] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
[2] Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", ICML 2021.
[3] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
[4] Boucheron, Lugosi and Massart, "Concentration inequalities", 2013, theorem 5.6.
[5] Hsu, Kakade and Zhang, "A tail inequality for quadratic forms of subgaussian random vectors", ECP 2012.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from gossamer.arrays import FloatArray
from gossamer.errors import (
    AccountingError,
    SpecError,
    real_number,
    require_counts,
    require_not_negative,
    require_positive,
    require_whole,
    whole_number,
)
from gossamer.files import words_beside
from gossamer.privacy.accounting.filters import NOTHING_PROVED, FilterEntry
from gossamer.privacy.accounting.gaussian_dp import NearlyGaussian, response_mu, sum_of_discrete_gaussians
from gossamer.privacy.accounting.renyi import check_delta, check_order, renyi_epsilon, response
from gossamer.privacy.guarantees import Guarantee, PrivacyProfile
from gossamer.privacy.mechanisms import NeighboringRelation
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
        object.__setattr__(self, "gradient_at", GradientAt(self.gradient_at))
        require_positive(step=self.step, bound=self.bound)
        require_counts(agents_sampled=self.agents_sampled)

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
        require_counts(rounds=self.rounds)
        require_positive(standard_deviation=self.standard_deviation)
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


@dataclass(frozen=True)
class AgentNoise:
    """Noise that each agent adds to its encoded update.

    Attributes
    ----------
    scale : int
        s, the discrete Gaussian's parameter, in steps of the encoding.
    sensitivity : float
        D, the most that replacing an agent's data moves its encoded update, in L2 norm and steps.
    size : int
        d, coordinates.

    Raises
    ------
    SpecError
        If the scale is not at least 1, the sensitivity no length, or the size no number of coordinates.
    """

    scale: int
    sensitivity: float
    size: int

    def __post_init__(self) -> None:
        require_counts(scale=self.scale)
        require_not_negative(sensitivity=self.sensitivity)
        require_whole(size=self.size)

    def rho(self, honest: int = 1) -> float:
        """Return rho (zero-concentrated differential privacy) of one sum by the noise of so many agents, its own too.

        Raises
        ------
        AccountingError
            If there is not even one.
        """
        if honest < 1:
            raise AccountingError(f"an agent's own noise is one of the honest agents', found {honest}")
        tau = 10 * sum(math.exp(-2 * (math.pi * self.scale) ** 2 * k / (k + 1)) for k in range(1, honest))
        return (self.sensitivity / (self.scale * math.sqrt(honest)) + tau * math.sqrt(self.size)) ** 2 / 2

    def gaussian(self, rounds: int, honest: int = 1) -> NearlyGaussian | None:
        """Return Gaussian differential privacy of so many sums, but for a factor; None for noise of a few steps.

        Raises
        ------
        AccountingError
            If not even the agent's own noise is counted.
        """
        one = sum_of_discrete_gaussians(self.scale, self.sensitivity, self.size, honest)
        return None if one is None else one.times(rounds)

    def describe(self) -> dict[str, Any]:
        """Plain data, for ledgers and summaries."""
        return {"mechanism": "discrete_gaussian", "scale": self.scale, "sensitivity": self.sensitivity}


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The epsilon that rho-zero-concentrated differential privacy proves at ``delta``: the least over orders.

    Raises
    ------
    AccountingError
        If rho is negative or not finite, or delta not inside (0, 1).
    """
    check_delta(delta)
    if not 0 <= rho < math.inf:
        raise AccountingError(f"rho must be a finite number, 0 or more, found {rho!r}")
    if rho == 0:
        return 0.0
    # The best order is near 1 + sqrt(ln(1/delta)/rho); any order is a proof.
    middle = math.sqrt(-math.log(delta) / rho)
    orders = 1 + np.maximum(0.0101, middle * np.geomspace(0.05, 20, 400))
    return max(0.0, min(renyi_epsilon(order, rho * order, delta) for order in orders.tolist()))


def own_server_guarantee(noise: AgentNoise | None, rounds: int, delta: float, honest: int = 1) -> Guarantee:
    """Return what is proved about what a unit's own server learns of one of its agents.

    Parameters
    ----------
    noise : AgentNoise or None
        `SecureUnit.noise`; None proves nothing.
    rounds : int
        Number of sums that an agent may be in: all rounds, or how often public coins draw it.
    delta : float
        Failure probability, in (0, 1).
    honest : int
        h, how many agents of every sum, this one included, are trusted to add their noise. 1 trusts nobody; more
        needs the masks to hold, and is at most the group's minimum less the agents that may collude.

    Returns
    -------
    Guarantee
        With an infinite epsilon if there is no noise.

    Raises
    ------
    AccountingError
        If a number is out of its range.
    """
    relation = NeighboringRelation.REPLACE_ONE
    if noise is None:
        reason = "a server sees exact sums of its agents' updates; masks hide single ones, and are no noise"
        return Guarantee(math.inf, 0.0, UNIT, relation, "own server", (), reason)
    if rounds < 0:
        raise AccountingError(f"rounds must be 0 or more, found {rounds}")
    epsilon, proof = _proved(noise, rounds, delta, honest)
    who = "honest" if honest > 1 else "alone"
    return Guarantee(
        epsilon,
        delta,
        UNIT,
        relation,
        _WORDS["observers"][who],
        (*(part.format(honest=honest) for part in _WORDS["trusted"][who]), *ASSUMPTIONS),
        f"{proof} of {rounds} masked sums jointly, by discrete Gaussian noise of "
        f"{f'{honest} agents' if honest > 1 else 'this agent alone'}",
        evidence=partial(_profile, noise, rounds, honest),
    )


def _profile(noise: AgentNoise, rounds: int, honest: int) -> PrivacyProfile:
    """The deltas of all losses."""
    gaussian = noise.gaussian(rounds, honest)
    if gaussian is None:
        return PrivacyProfile.through(partial(concentrated_epsilon, rounds * noise.rho(honest)))
    return PrivacyProfile.gaussian(gaussian.mu).moved(2 * gaussian.eta, math.exp(gaussian.eta), 0.0)


def _proved(noise: AgentNoise, rounds: int, delta: float, honest: int) -> tuple[float, str]:
    """The smaller of two epsilons, and by what it is proved."""
    rho = rounds * noise.rho(honest)
    found = [(concentrated_epsilon(rho, delta), f"{rho:.6g}-zero-concentrated differential privacy")]
    gaussian = noise.gaussian(rounds, honest)
    if gaussian is not None:
        but = f", but for a factor exp({gaussian.eta:.2g}) of every probability,"
        found.append((gaussian.epsilon(delta), f"{gaussian.mu:.6g}-Gaussian differential privacy{but}"))
    return min(found)


UNIT = "agent"
"""Who is protected, with all that it holds."""
_WORDS = words_beside(__file__)
ASSUMPTIONS = tuple(_WORDS["assumptions"])


_UP = 1 + 1e-12  # more than the rounding of a few operations


def messages_divergence(mu: float, epsilon: float, order: float) -> float:
    """Return the divergence of all messages of a unit, against other units; infinite where nothing is proved.

    Parameters
    ----------
    mu, epsilon : float
        Gaussian, or pure, differential privacy that is proved of them; infinite where it is not.
    order : float
        a, above 1.

    Raises
    ------
    AccountingError
        If the order is not above 1.
    """
    check_order(order)
    return min(order * mu**2 / 2, response(epsilon, order) if epsilon < math.inf else math.inf)


def messages_entry(mu: float, epsilon: float) -> FilterEntry:
    """The same as Gaussian differential privacy."""
    return FilterEntry(min(mu, response_mu(epsilon) if epsilon < math.inf else math.inf))


def own_entry(noise: AgentNoise | None, sums: int, honest: int = 1) -> FilterEntry:
    """Return the entry of an agent's masked sums by the noise of so many agents, its own included.

    Parameters
    ----------
    noise : AgentNoise or None
        Noise that each agent adds to its updates.
    sums : int
        Number of masked sums that the agent may be in.
    honest : int
        Number of agents of every sum that add their noise.
    """
    own = None if noise is None else noise.gaussian(sums, honest)
    if own is None or own.failure >= float(ndtr(-own.mu / 2)):
        return NOTHING_PROVED
    return FilterEntry(own.mu, own.failure / (2 * float(ndtr(-own.mu / 2))) * _UP)
