"""Renyi divergences of single releases, and what they mean as (epsilon, delta).

For releases that are chosen adaptively: a filter that admits a release while the divergences at one order, fixed in
advance, sum to at most a level is differentially private, whatever was seen before each choice [1].

The divergences of the Poisson-sampled Gaussian under add-or-remove-one are dp-accounting's. Its Renyi accountant
refuses Poisson sampling under replace-one, and is loose for batches of fixed size.

References
----------
[1] Feldman and Zrnic, "Individual privacy accounting via a Renyi filter", NeurIPS 2021, theorem 4.3.
[2] Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, proposition 12.
[3] Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 2014, section 5.
[4] Sason and Verdu, "f-divergence inequalities", IEEE Transactions on Information Theory 2016.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from gossamer.errors import AccountingError, real_number

_CANCELLED = 1e-14  # relative, on terms that cancel
_MARGIN = 1e-9  # relative, added to what is computed by quadrature or subtracted from a level
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


def poisson_gaussian(noise_multiplier: float, rate: float, order: float) -> float:
    """Divergence of Gaussian noise on a Poisson sample, under add-or-remove-one; the multiplier is sd/C."""
    import dp_accounting  # slow to import
    from dp_accounting.rdp import RdpAccountant

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise_multiplier))
    accountant = RdpAccountant([order], dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(event)
    # Its sum has terms of about order * rate that cancel: of a tiny divergence that is no small part.
    return float(accountant.rdp[0]) + _CANCELLED * min(order * rate, 1.0) / (order - 1)


def poisson_replaced_gaussian(mu: float, rate: float, order: float) -> float:
    """Divergence of `gossamer.privacy.pairs.PoissonReplaced`, by the trapezoidal rule; mu = C/sd.

    The integrand is analytic in a strip of half-width pi / mu around the line, so that the rule's error is
    exp(-2 pi^2 / (mu step)) [3], far below rounding for the step chosen.
    """
    step = 1 / (4 * (1 + mu))
    reach = 2 * order * mu + 12  # the integrand's peaks lie within 2 order mu of 0, and are those of unit normals
    output = np.arange(-reach, reach, step)
    stay, move = (math.log1p(-rate) if rate < 1 else -math.inf), math.log(rate)
    ahead, back = (np.logaddexp(stay, move + sign * mu * output - mu**2 / 2) for sign in (1, -1))
    log_weight = math.log(step) - output**2 / 2 - math.log(2 * math.pi) / 2 + back
    loss = ahead - back
    total = float(logsumexp(log_weight + order * loss))
    if total < 1:
        # The integral less one, as a sum of terms that are not negative: exact however small.
        small = order * loss < 1
        near, weight = np.where(small, loss, 0.0), np.exp(log_weight)
        # exp(order loss) alone overflows where it is large.
        far = np.exp(log_weight + order * loss) - order * np.exp(log_weight + loss) + (order - 1) * weight
        terms = np.where(small, weight * (np.expm1(order * near) - order * np.expm1(near)), far)
        total = math.log1p(float(np.sum(terms)))
    return total / (order - 1) * (1 + _MARGIN)


def fixed_size_gaussian(mu: float, rate: float, order: float) -> float:
    """Divergence of `gossamer.privacy.pairs.FixedSizeSampled` Gaussian noise, both directions; mu = S/sd.

    The pair's curve h(e), e >= 0, bounds both directions, and is that of q N(mu, 1) + (1-q) N(0, 1) against N(0, 1),
    whose likelihood ratio R = 1 - q + q exp(mu x - mu^2/2) is above 1 for x > mu/2. Of any pair,

        E_Q (P/Q)^a = 1 + a (a-1) int_0^inf (exp((a-1) e) H(P||Q)(e) + exp(-a e) H(Q||P)(e)) de      [4, proposition 3]

    so with h for both, and the integral over e done first, at most 1 + E (R^a - 1)(1 - R^(1-a)) over x > mu/2.
    """
    if rate == 1:
        return order * mu**2 / 2
    # The integrand peaks between 0 and order mu, with the width of a unit normal; beyond the reach it is below 1e-30 of
    # that. A panel's rule is exact to rounding for widths of 1/(1+mu).
    low, high = mu / 2, max(order * mu, mu / 2) + 12
    panels = np.linspace(low, high, math.ceil((high - low) * 2 * (1 + mu)) + 1)
    half = np.diff(panels)[:, None] / 2
    output, weight = panels[:-1, None] + half * (_NODES + 1), half * _WEIGHTS
    full = mu * output - mu**2 / 2
    near = np.log1p(rate * np.expm1(np.minimum(full, 1.0)))  # where the other sum cancels
    loss = np.where(full < 1, near, np.logaddexp(math.log1p(-rate), math.log(rate) + full))
    log_term = order * loss + np.log(-np.expm1(-order * loss)) + np.log(-np.expm1((1 - order) * loss))
    excess = float(logsumexp(log_term - output**2 / 2 - math.log(2 * math.pi) / 2 + np.log(weight)))
    return float(np.logaddexp(0.0, excess)) / (order - 1) * (1 + _MARGIN)


def response(epsilon: float, order: float) -> float:
    """Divergence of randomized response, and so the most of anything that is epsilon-differentially private."""
    slope = (order - 1) * epsilon
    if slope > 500:
        return epsilon
    # sum_x P^a Q^(1-a) - 1 in factors that do not cancel
    excess = math.expm1(slope) * -math.expm1(-order * epsilon) / (1 + math.exp(-epsilon))
    return min(math.log1p(excess) / (order - 1), epsilon)


def renyi_epsilon(order: float, total: float, delta: float) -> float:
    """The epsilon that a Renyi divergence of ``total`` at ``order`` proves at ``delta``. Proposition 12 of [2].

    Raises
    ------
    AccountingError
        If the order is not above 1, the total not 0 or more, or delta not inside (0, 1).
    """
    check_order(order)
    check_delta(delta)
    if not real_number(total) >= 0:
        raise AccountingError(f"a divergence is a number, 0 or more, found {total!r}")
    if total == math.inf:
        return math.inf
    from dp_accounting.rdp import compute_epsilon

    return float(compute_epsilon([order], [total], delta)[0])


def renyi_level(order: float, epsilon: float, delta: float) -> float:
    """The largest total divergence at ``order`` that proves (``epsilon``, ``delta``); 0 if none does.

    The inverse of `renyi_epsilon`. A filter whose order is too low for its delta has level 0 and admits nothing.

    Raises
    ------
    AccountingError
        If the order is not above 1, epsilon not positive or delta not inside (0, 1).
    """
    check_order(order)
    check_delta(delta)
    check_epsilon(epsilon)
    level = epsilon - math.log1p(-1 / order) + math.log(delta * order) / (order - 1)
    return max(level - _MARGIN * abs(level), 0.0)


_ORDERS = 1 << 16
"""More than any use needs: at delta 1e-5 an epsilon of 0.001 wants an order of some 20,000."""


def widest_order(epsilon: float, delta: float) -> int:
    """The order whose level has room for most releases of Gaussian noise on full batches.

    One such release has divergence ``order mu^2/2``, so the largest ``renyi_level(order)/order`` counts. Whole orders
    suffice, and divergences of sampled Gaussian noise are exact at them.

    Raises
    ------
    AccountingError
        If epsilon is not positive or delta not inside (0, 1), or epsilon is too small for any order.
    """
    check_delta(delta)
    check_epsilon(epsilon)
    orders = np.arange(2, _ORDERS)
    room = (epsilon - np.log1p(-1 / orders) + np.log(delta * orders) / (orders - 1)) / orders
    if not room.max() > 0:
        raise AccountingError(f"no Renyi order here proves an epsilon as small as {epsilon:g} at delta {delta:g}")
    return int(orders[np.argmax(room)])


def check_order(order: float) -> None:
    """Refuse what is not the order of a Renyi divergence."""
    if not 1.01 < real_number(order) < math.inf:
        raise AccountingError(f"a Renyi order must be a finite number above 1.01, found {order!r}")


def check_delta(delta: float) -> None:
    """Refuse what is not a failure probability."""
    if not 0 < real_number(delta) < 1:
        raise AccountingError(f"delta must lie strictly between 0 and 1, found {delta!r}")


def check_epsilon(epsilon: float) -> None:
    """Refuse what is not a budget."""
    if not 0 < real_number(epsilon) < math.inf:
        raise AccountingError(f"epsilon must be a finite number above 0, found {epsilon!r}")
