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

As Gaussian differential privacy messages with normal noise have their mu, and those with Laplace noise
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

from gossamer.privacy.accounting.filters import NOTHING_PROVED, Entry
from gossamer.privacy.accounting.gaussian_fit import response_mu
from gossamer.privacy.accounting.renyi import check_order, response
from gossamer.privacy.streams.agent_noise import AgentNoise

_UP = 1 + 1e-12  # more than the rounding of a few operations


def messages_divergence(mu: float, epsilon: float, order: float) -> float:
    """Return the divergence of all messages of a unit, against other units; infinite where nothing is proved.

    Parameters
    ----------
    mu, epsilon : float
        What is proved of them: Gaussian, or pure, differential privacy; infinite where it is not.
    order : float
        a, above 1.

    Raises
    ------
    AccountingError
        If the order is not above 1.
    """
    check_order(order)
    return min(order * mu**2 / 2, response(epsilon, order) if epsilon < math.inf else math.inf)


def messages_entry(mu: float, epsilon: float) -> Entry:
    """The same as Gaussian differential privacy."""
    return Entry(min(mu, response_mu(epsilon) if epsilon < math.inf else math.inf))


def own_entry(noise: AgentNoise | None, sums: int, honest: int = 1) -> Entry:
    """Return the entry of an agent's masked sums by the noise of so many agents, its own included.

    Parameters
    ----------
    noise : AgentNoise or None
        What each agent adds to its updates.
    sums : int
        In how many masked sums the agent may be.
    honest : int
        How many agents of every sum add their noise.
    """
    own = None if noise is None else noise.gaussian(sums, honest)
    if own is None or own.failure >= float(ndtr(-own.mu / 2)):
        return NOTHING_PROVED
    return Entry(own.mu, own.failure / (2 * float(ndtr(-own.mu / 2))) * _UP)
