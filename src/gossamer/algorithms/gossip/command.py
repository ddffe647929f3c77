"""``gossamer plan gossip``: the paper's utility claims, Theorem 1 and Proposition 1, from public constants of a run.

| symbol | here |
|---|---|
| F(w0) - F* | `Adp2sgdProblem.loss_gap` |
| L | `Adp2sgdProblem.smoothness` |
| varsigma^2, upsilon^2 | `Adp2sgdProblem.within_variance`, `Adp2sgdProblem.between_variance` |
| d | `Adp2sgdProblem.size` |
| rho, tau | `Adp2sgdNetwork.rho` (see `gossamer.topology.rho`), `Adp2sgdNetwork.staleness` |
| K | `Adp2sgdNetwork.nodes` |
| sigma | ``sigma_sum``: in Theorem 1 and Proposition 1 the noise is on the *sum* of gradients (eq. 16) |

**What really holds.** Two slips, both checked by the tests. Proposition 1 says that its bound on T implies the
conditions of Theorem 1; it does not when the staleness is many times the number of workers, since C_3 <= 1 needs
T to grow like tau^4 there. Proposition 2 puts Theorem 2's sigma, noise on the *mean*, in the place of noise on the
sum, and drops the "+ 1" of alpha; its bound is too small by both.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: Asynchronous decentralized parallel SGD with differential privacy", section 4.1,
Propositions 1 and 2, Appendices C and D.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, NamedTuple

from gossamer.algorithms.command import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    WHOLE,
    Answer,
    Bounds,
    Command,
    Doing,
    Option,
    Table,
)
from gossamer.errors import SpecError
from gossamer.numbers import real_number, require_counts, require_positive
from gossamer.privacy.guarantees import UtilityClaim

PROPOSITION1 = "A(DP)2SGD, Proposition 1"


@dataclass(frozen=True)
class Adp2sgdProblem:
    """Problem that is minimised.

    Attributes
    ----------
    loss_gap : float
        F(w0) - F*.
    smoothness : float
        L, the Lipschitz constant of the gradients.
    within_variance : float
        varsigma^2, variance of a per-example gradient around its worker's mean.
    between_variance : float
        upsilon^2, variance of the workers' gradients around the mean gradient.
    size : int
        d, number of parameters.

    Raises
    ------
    SpecError
        ``smoothness`` or ``size`` is not positive, or another value is negative.
    """

    loss_gap: float
    smoothness: float
    within_variance: float
    between_variance: float
    size: int

    def __post_init__(self) -> None:
        require_positive(smoothness=self.smoothness)
        require_counts(size=self.size)
        _require_not_negative(
            loss_gap=self.loss_gap,
            within_variance=self.within_variance,
            between_variance=self.between_variance,
        )

    def noiseless(self, batch_size: float) -> float:
        """F(w0) - F* + L (varsigma^2/B + 6 upsilon^2)."""
        spread = self.within_variance / batch_size + 6.0 * self.between_variance
        return self.loss_gap + self.smoothness * spread


@dataclass(frozen=True)
class Adp2sgdNetwork:
    """Network of nodes that exchange, and how late they do.

    Attributes
    ----------
    nodes : int
        K.
    rho : float
        max(|lambda_2|, |lambda_K|) of E[A'A], in [0, 1).
    staleness : float
        tau, the most iterations that a gradient's model may be old.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    nodes: int
    rho: float
    staleness: float

    def __post_init__(self) -> None:
        require_counts(nodes=self.nodes)
        _require_not_negative(rho=self.rho, staleness=self.staleness)
        if self.rho >= 1:
            raise SpecError(f"rho must be below 1 (a connected topology), found {self.rho!r}")


class Theorem1Conditions(NamedTuple):
    """C_1 > 0, C_2 >= 0 and C_3 <= 1 are the conditions of Theorem 1; C_2 is divided by eta B."""

    c1: float
    c2: float
    c3: float

    @property
    def hold(self) -> bool:
        """Whether all three hold."""
        return self.c1 > 0 and self.c2 >= 0 and self.c3 <= 1


def adp2sgd_rho_bar(rho: float, nodes: int) -> float:
    """rho_bar = (K - 1)/K (1/(1 - rho) + 2 sqrt(rho)/(1 - sqrt(rho))^2), of Theorem 1."""
    return (nodes - 1) / nodes * _mixing_time(rho)


def _mixing_time(rho: float) -> float:
    return 1.0 / (1.0 - rho) + 2.0 * math.sqrt(rho) / (1.0 - math.sqrt(rho)) ** 2


def adp2sgd_iterations_needed(smoothness: float, network: Adp2sgdNetwork) -> float:
    """The least T of Proposition 1."""
    nodes, tau = network.nodes, network.staleness
    rho_bar = adp2sgd_rho_bar(network.rho, nodes)
    last = math.sqrt(nodes - 1) / math.pow(nodes, 1 / 6)
    last *= (8.0 * math.sqrt(6.0) * math.pow(tau, 2 / 3) + 8.0) ** 2
    last *= math.pow(tau + _mixing_time(network.rho), 2 / 3)
    terms = (
        192.0 * (tau * (nodes - 1) / nodes + rho_bar),
        1024.0 * nodes**2 * rho_bar**2,
        64.0 * tau**2 / nodes**2,
        last,
    )
    return smoothness**2 * nodes**2 * max(terms)


def adp2sgd_theorem1_conditions(iterations: float, smoothness: float, network: Adp2sgdNetwork) -> Theorem1Conditions:
    """C_1, C_2/(eta B) and C_3 of Theorem 1 at Proposition 1's learning rate, eta = K/(B sqrt(T))."""
    nodes, tau = network.nodes, network.staleness
    rho_bar = adp2sgd_rho_bar(network.rho, nodes)
    x = nodes * smoothness / math.sqrt(iterations)  # eta B L
    delay = tau * (nodes - 1) / nodes + rho_bar
    c1 = 1.0 - 24.0 * x**2 * delay
    drift = x / nodes + 6.0 * x**2 / nodes**2 + 12.0 * x**3 * tau**2 / nodes**3
    c2 = 1.0 / (2.0 * nodes) - x / nodes**2 - 2.0 * x**2 * tau**2 / nodes**3 - drift * 4.0 * x * delay / c1
    c3 = 0.5 + x * tau**2 / nodes
    c3 += (6.0 * x**2 + nodes * x + 12.0 * x**3 * tau**2 / nodes) * 2.0 * rho_bar / c1
    return Theorem1Conditions(c1, c2, c3)


def adp2sgd_proposition1(
    iterations: float,
    sigma_sum: float,
    batch_size: float,
    problem: Adp2sgdProblem,
    network: Adp2sgdNetwork,
) -> UtilityClaim:
    """[2 (F(w0) - F*) + 2 L (varsigma^2/B + 6 upsilon^2 + d sigma^2/B^2)]/sqrt(T), at eta = K/(B sqrt(T)).

    Parameters
    ----------
    iterations : float
        T, over all workers.
    sigma_sum : float
        Standard deviation of the noise on the *sum* of a batch's gradients; 0 for none.
    batch_size : float
        B.
    problem : Adp2sgdProblem
        Constants of what is minimised.
    network : Adp2sgdNetwork
        Constants of who exchanges with whom, and how late.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(iterations=iterations, batch_size=batch_size)
    _require_not_negative(sigma_sum=sigma_sum)
    noise = problem.smoothness * problem.size * sigma_sum**2 / batch_size**2
    bound = 2.0 * (problem.noiseless(batch_size) + noise) / math.sqrt(iterations)
    failures = iteration_failures(iterations, problem.smoothness, network)
    return UtilityClaim(PROPOSITION1, bound, iterations, not failures, "; ".join(failures) or "T is large enough")


def iteration_failures(iterations: float, smoothness: float, network: Adp2sgdNetwork) -> list[str]:
    """List why so many iterations are too few for Proposition 1, or for Theorem 1 below it."""
    needed = adp2sgd_iterations_needed(smoothness, network)
    if iterations < needed * (1.0 - 1e-12):
        return [f"Proposition 1 needs T >= {needed:.4g}, found {iterations:.4g}"]
    conditions = adp2sgd_theorem1_conditions(iterations, smoothness, network)
    if conditions.hold:
        return []
    return [
        f"T >= {needed:.4g} as Proposition 1 asks, but Theorem 1 needs C1 > 0, C2 >= 0 and C3 <= 1, found "
        f"{conditions.c1:.3g}, {conditions.c2:.3g} (over eta B) and {conditions.c3:.3g}"
    ]


def _require_not_negative(**values: float) -> None:
    for name, value in values.items():
        if not 0 <= real_number(value) < math.inf:
            raise SpecError(f"{name} must be a finite number >= 0, found {value!r}")


_DESCRIPTION = """Compute what Proposition 1 of the A(DP)2SGD paper claims of the convergence of a run of gossip, from
public constants. No data is read. It is the paper's claim and not proved here; it says nothing of privacy, for which
there is gossamer account."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command."""

    nodes: Annotated[int, Option("K, number of nodes", "K", Bounds(ge=1, le=10**6, whole=True))]
    batch_size: Annotated[int, Option("B, examples in a batch", "B", COUNT)]
    iterations: Annotated[int, Option("T, updates of all nodes together", "T", COUNT)]
    staleness: Annotated[int, Option("tau, most updates between pull and use", "TAU", WHOLE)]
    rho: Annotated[float, Option("max(|lambda_2|, |lambda_K|) of E[A'A], below 1", "R", Bounds(ge=0, lt=1))]
    size: Annotated[int, Option("d, number of parameters", "D", COUNT)]
    smoothness: Annotated[float, Option("L, Lipschitz constant of the gradient", "L", POSITIVE)]
    loss_gap: Annotated[float, Option("upper bound of F(w_0) - F*", "F", NOT_NEGATIVE)]
    within_variance: Annotated[
        float, Option("varsigma^2, of an example's gradient around its node's mean", "V", NOT_NEGATIVE)
    ]
    between_variance: Annotated[float, Option("upsilon^2, of the nodes' gradients around the mean", "U", NOT_NEGATIVE)]
    sigma: Annotated[float, Option("sd of the noise on a batch's sum of gradients (default 0)", "S", NOT_NEGATIVE)] = (
        0.0
    )


def answer(options: Options, doing: Doing) -> Answer:
    """Return the claim, with and without the noise, and whether its conditions hold."""
    problem = Adp2sgdProblem(
        options.loss_gap, options.smoothness, options.within_variance, options.between_variance, options.size
    )
    network = Adp2sgdNetwork(options.nodes, options.rho, options.staleness)
    claims = [
        adp2sgd_proposition1(options.iterations, sigma, options.batch_size, problem, network)
        for sigma in (options.sigma, 0.0)
    ]
    claim, without = claims
    needed = adp2sgd_iterations_needed(options.smoothness, network)
    document = {**claim.as_dict(), "bound_without_noise": without.bound, "iterations_needed": needed, "proved": False}
    rows = [
        ["", "with the noise", "without"],
        ["claimed bound of the mean squared gradient", f"{claim.bound:.5g}", f"{without.bound:.5g}"],
    ]
    verdict = "its conditions hold" if claim.valid else f"but its own conditions fail: {claim.why}"
    text = (
        f"Claimed, not proved: {claim.theorem}, of {options.iterations} updates at the learning rate "
        f"K/(B sqrt(T)) = {options.nodes / (options.batch_size * options.iterations**0.5):.4g}; {verdict}. It asks for "
        f"at least {needed:.4g} updates. The gradient is that of F at the mean model, averaged over updates; "
        "nothing is said of privacy."
    )
    return Answer(document, (Table(rows), text))


COMMAND = Command(
    Options,
    answer,
    help="gossip: what the paper claims of convergence, with noise and without",
    description=_DESCRIPTION,
)
