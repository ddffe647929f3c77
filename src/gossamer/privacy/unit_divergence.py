"""The Renyi divergence of all that a unit's run reveals of one agent, for the agent's own ledger.

An agent's data leaves its machine by way of its unit's server, and its updates do so before anything is released. So
what the whole run may reveal enters the agent's ledger before the agent joins, at the order of its filter a:

- **against other units**, where the own server is trusted: all messages of the unit jointly. Normal noise makes them
  mu-Gaussian differentially private (`graph_bounds`). Then no test tells two data sets apart better than N(0, 1) and
  N(mu, 1) are told apart, so by Blackwell's theorem both outputs are a common randomised function of these two, and no
  divergence is larger than theirs: ``a mu^2/2`` [1, corollary B.6]. Laplace noise has a pure epsilon, which bounds the
  divergence by that of randomised response (`renyi.response`).
- **against the own server**: by the agent's own noise alone each masked sum is rho-zero-concentrated, so all together
  have divergence ``a rho rounds`` (`agent_noise`). What other units see is computed from what the server sees and from
  noise of the server's own. It is post-processing, so the same number holds against everybody; where the own server is
  trusted, the smaller of the two counts.

As Gaussian differential privacy (`agent_entry`) messages with normal noise have their mu, and those with Laplace noise
that of randomised response. An agent's own sums have a mu but for something of g that adds to the divergence
(`nearly_gaussian`). With G the divergence of N(mu, 1) and N(0, 1), at most G(0) = 1 - 2 Phi(-mu/2) at e >= 0, that is a
failure f = g / (2 Phi(-mu/2)): ``G + g <= f + (1 - f) G``.

Both compare data sets that differ in all that the agent has (or the whole unit). That is no less than what one example
changes, added, removed or replaced, so it may enter a ledger under either relation.

References
----------
[1] Dong, Roth and Su, "Gaussian differential privacy", JRSS-B 2022.
"""

from __future__ import annotations

import math

from scipy.special import ndtr

from gossamer.errors import AccountingError
from gossamer.numbers import whole_number
from gossamer.privacy.agent_noise import AgentNoise
from gossamer.privacy.filters import NOTHING_PROVED, Entry
from gossamer.privacy.gaussian_fit import response_mu
from gossamer.privacy.graph_bounds import Noise, UpdateBound, gaussian_mu_of, laplace_epsilon_of
from gossamer.privacy.noise_streams import NoiseLaw
from gossamer.privacy.renyi import check_order, response

_UP = 1 + 1e-12  # more than the rounding of a few operations


def messages_divergence(noise: Noise | None, bound: UpdateBound | None, size: int, order: float) -> float:
    """Of all messages of a unit jointly, against other units; infinite where nothing is proved.

    Parameters
    ----------
    noise : CorrelatedNoise, RandomNoise or None
        What the messages carry.
    bound : UpdateBound or None
        How far one change moves an update; None if nothing bounds it.
    size : int
        d, coordinates of the model.
    order : float
        a, above 1.

    Raises
    ------
    AccountingError
        If the order is not above 1.
    SpecError
        If noise and bound do not go together.
    """
    check_order(order)
    if noise is None or bound is None:
        return math.inf
    if noise.law is NoiseLaw.GAUSSIAN:
        return order * gaussian_mu_of(noise, bound) ** 2 / 2
    return response(laplace_epsilon_of(noise, bound, size), order)


def agent_divergence(
    noise: Noise | None,
    bound: UpdateBound | None,
    size: int,
    order: float,
    *,
    trust_own_server: bool,
    agent_noise: AgentNoise | None = None,
    sums: int = 0,
) -> float:
    """Of all that a run reveals of one agent, against whoever its owner does not trust.

    Parameters
    ----------
    noise, bound, size, order
        As for `messages_divergence`.
    trust_own_server : bool
        Whether the own server may see whatever it is sent.
    agent_noise : AgentNoise, optional
        What the agent adds to each of its updates.
    sums : int
        In how many masked sums the agent may be.
    """
    check_order(order)
    _check_sums(sums)
    everybody = math.inf if agent_noise is None else order * agent_noise.rho() * sums
    return min(messages_divergence(noise, bound, size, order), everybody) if trust_own_server else everybody


def agent_entry(
    noise: Noise | None,
    bound: UpdateBound | None,
    size: int,
    *,
    trust_own_server: bool,
    agent_noise: AgentNoise | None = None,
    sums: int = 0,
) -> Entry:
    """Of all that a run reveals of one agent, as Gaussian differential privacy but for a failure.

    Parameters
    ----------
    noise, bound, size, trust_own_server, agent_noise, sums
        As for `agent_divergence`.
    """
    _check_sums(sums)
    found = [NOTHING_PROVED]
    if trust_own_server and noise is not None and bound is not None:
        gaussian = noise.law is NoiseLaw.GAUSSIAN
        found.append(
            Entry(gaussian_mu_of(noise, bound) if gaussian else response_mu(laplace_epsilon_of(noise, bound, size)))
        )
    own = None if agent_noise is None else agent_noise.gaussian(sums)
    if own is not None and own.failure < float(ndtr(-own.mu / 2)):
        found.append(Entry(own.mu, own.failure / (2 * float(ndtr(-own.mu / 2))) * _UP))
    return min(found)


def _check_sums(sums: int) -> None:
    if whole_number(sums) is None:
        raise AccountingError(f"an agent is in a whole number of masked sums, 0 or more, found {sums!r}")
