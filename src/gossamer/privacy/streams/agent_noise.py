"""Noise that agents add to their own updates, inside the masked sum: what protects them from their own server.

Each agent adds a discrete Gaussian of integer scale s to every coordinate of its encoded update [d] (`secure_unit`).
Replacing all of its data moves its integers by at most D in L2 norm, whatever it was asked before. So

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

The Renyi divergence of all that a unit's run reveals of one agent, for the agent's own ledger.

An agent's data leaves its machine by way of its unit's server, and its updates do so before anything is released. So
what the whole run may reveal enters the agent's ledger before the agent joins, at the order of its filter a:

- **against other units**, where the own server is trusted: all messages of the unit jointly. Normal noise makes them
  mu-Gaussian differentially private (`graph_bounds`). Then no test tells two data sets apart better than N(0, 1) and
  N(mu, 1) are told apart, so by Blackwell's theorem both outputs are a common randomised function of these two, and no
  divergence is larger than theirs: ``a mu^2/2`` [3, corollary B.6]. Laplace noise has a pure epsilon, which bounds the
  divergence by that of randomised response (`renyi.response`).
- **against the own server**: by the agent's own noise alone each masked sum is rho-zero-concentrated, so all together
  have divergence ``a rho rounds`` (`agent_noise`). What other units see is computed from what the server sees and from
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
[1] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
[2] Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated learning with secure
    aggregation", ICML 2021.
[3] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import ndtr

from gossamer.errors import AccountingError, SpecError, real_number, whole_number
from gossamer.privacy.accounting.filters import NOTHING_PROVED, FilterEntry
from gossamer.privacy.accounting.gaussian_dp import NearlyGaussian, response_mu, sum_of_discrete_gaussians
from gossamer.privacy.accounting.renyi import check_delta, check_order, renyi_epsilon, response
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile


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
        if not whole_number(self.scale):
            raise SpecError(f"an agent's noise has a whole scale, 1 or more, found {self.scale!r}")
        if not 0 <= real_number(self.sensitivity) < math.inf:
            raise SpecError(f"a sensitivity is a finite number, 0 or more, found {self.sensitivity!r}")
        if whole_number(self.size) is None:
            raise SpecError(f"an agent's noise is on a whole number of coordinates, found {self.size!r}")

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
    trusted = honest > 1
    return Guarantee(
        epsilon,
        delta,
        UNIT,
        relation,
        _OBSERVERS[trusted],
        (*(part.format(honest=honest) for part in _TRUSTED[trusted]), *ASSUMPTIONS),
        f"{proof} of {rounds} masked sums jointly, by discrete Gaussian noise of "
        f"{'this agent alone' if not trusted else f'{honest} agents'}",
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
_OBSERVERS = {
    False: "the own server: it and all other agents together, malicious ones included, and all that they pass on",
    True: "the own server: it, the agents that collude with it, and all that they pass on",
}
_TRUSTED = {
    False: ("trusted: nobody but the agent itself; its own noise alone is counted",),
    True: (
        "trusted: {honest} agents of every sum, this one included, add their noise and tell nobody",
        "the masks hold: the server learns sums only, and those have all of these agents in them",
    ),
}
ASSUMPTIONS = (
    "each agent clips, encodes, counts its rounds and draws its noise itself, and the noise is never drawn twice; a "
    "message sent again is the same message",
    "clip, step size, encoding, noise and who is sampled do not depend on the data",
    "each person's data sits at one agent",
    "this run alone: what other runs on the same data release adds up",
    "the timing of messages is not covered, and neither is who took part",
    "a simulation draws the noise from the run's noise secret, which nobody may learn",
)


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
