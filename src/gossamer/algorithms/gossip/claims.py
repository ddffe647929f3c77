"""Claims of A(DP)2SGD: Theorem 2 and Remark 1 on privacy, Theorem 1 and Proposition 1 on utility.

| symbol | here |
|---|---|
| G | `Adp2sgdSetting.lipschitz`: every per-example gradient has norm <= G; in a run, the clip C |
| B | `Adp2sgdSetting.batch_size` |
| T | `Adp2sgdSetting.iterations`, over all workers |
| K | `Adp2sgdSetting.nodes` |
| n_(1) | `Adp2sgdSetting.smallest_shard` |
| sigma | ``sigma_mean``, see below |
| gamma = B/(K n_(1)) | `Adp2sgdSetting.sampling_rate` |
| Delta_2 = 2 G/B | `Adp2sgdSetting.sensitivity` |

**Which sigma.** Algorithm 1 adds N(0, sigma^2 I) to the *sum* of B gradients, but Appendix E proves
Theorem 2 with the sensitivity 2 G/B of their *mean*. The proof is about the noise relative to the mean, so
that is what is taken here: ``sigma_mean`` = (standard deviation of the noise on the sum)/B. A run with clip C
and noise multiplier z has ``sigma_mean = z C/B``, which is z/2 times the sensitivity. To read Algorithm 1
literally would be to put B times as much noise into Theorem 2 as its proof is about.

**What really holds.** Not this. gamma has a factor 1/K because "a random worker" moves each iteration, but a
neighbour sees who moves, so that amplification is not available. What is proved composes each node's own
steps, at rate B/n_k; it is computed from the ledger and is no part of this module.

Utility, which ``gossamer plan gossip`` prints from public constants of a run:

| symbol | here |
|---|---|
| F(w0) - F* | `Adp2sgdProblem.loss_gap` |
| L | `Adp2sgdProblem.smoothness` |
| varsigma^2, upsilon^2 | `Adp2sgdProblem.within_variance`, `Adp2sgdProblem.between_variance` |
| d | `Adp2sgdProblem.size` |
| rho, tau | `Adp2sgdNetwork.rho` (see `gossamer.topology.mixing.rho`), `Adp2sgdNetwork.staleness` |
| K | `Adp2sgdNetwork.nodes` |
| sigma | ``sigma_sum``: in Theorem 1 and Proposition 1 the noise is on the *sum* of gradients (eq. 16) |

**What really holds.** Two slips, both checked by the tests. Proposition 1 says that its bound on T implies the
conditions of Theorem 1; it does not when the staleness is many times the number of workers, since C_3 <= 1 needs
T to grow like tau^4 there. Proposition 2 puts Theorem 2's sigma, noise on the *mean*, in the place of noise on the
sum, and drops the "+ 1" of alpha; its bound is too small by both.

References
----------
Xu, Zhang and Wang, "A(DP)2SGD: Asynchronous decentralized parallel SGD with differential privacy", section 4.1,
Theorem 2, Remark 1, Propositions 1 and 2, Appendices C, D and E. The bound on the subsampled mechanism is its Lemma 2,
from Wang et al., arXiv 1910.13659.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, NamedTuple

from gossamer.algorithms.command import Answer, Bounded, Command, Doing, Option
from gossamer.errors import SpecError, require_counts, require_fraction, require_not_negative, require_positive
from gossamer.privacy.guarantees import Claim, UtilityClaim

THEOREM2 = "A(DP)2SGD, Theorem 2"
REMARK1 = "A(DP)2SGD, Remark 1"

_LEAST_VARIANCE = 1.5
"""Lemma 2 needs sigma^2 >= 1.5 Delta_2^2."""


@dataclass(frozen=True)
class Adp2sgdSetting:
    """Setting that Theorem 2 is stated for.

    Attributes
    ----------
    lipschitz : float
        G, a bound on the norm of a per-example gradient.
    batch_size : float
        B, examples per iteration.
    iterations : float
        T, over all workers.
    nodes : int
        K.
    smallest_shard : int
        n_(1), the least number of examples at a worker.

    Raises
    ------
    SpecError
        A value is not a finite positive number.
    """

    lipschitz: float
    batch_size: float
    iterations: float
    nodes: int
    smallest_shard: int

    def __post_init__(self) -> None:
        require_positive(lipschitz=self.lipschitz, batch_size=self.batch_size, iterations=self.iterations)
        require_counts(nodes=self.nodes, smallest_shard=self.smallest_shard)

    @property
    def sampling_rate(self) -> float:
        """gamma = B/(K n_(1)), the rate that the theorem's proof works with."""
        return self.batch_size / (self.nodes * self.smallest_shard)

    @property
    def sensitivity(self) -> float:
        """Delta_2 = 2 G/B, of the mean gradient when one example is replaced."""
        return 2.0 * self.lipschitz / self.batch_size


def adp2sgd_theorem2(setting: Adp2sgdSetting, sigma_mean: float, delta: float) -> Claim:
    """The least epsilon that Theorem 2 claims for the noise used: the inverse of the
    paper's sigma^2 = 20 G^2 T alpha/(K^2 n_(1)^2 mu epsilon), alpha = log(1/delta)/((1 - mu) epsilon) + 1.

    With c = 20 G^2 T/(K^2 n_(1)^2 sigma_mean^2) the theorem reads epsilon = c alpha + log(1/delta)/(alpha - 1),
    and mu is the first term's share. At a given noise its conditions do not depend on mu:
    sigma_mean^2 >= 1.5 Delta_2^2, and alpha <= A = log(1/(gamma (1 + sigma_mean^2/Delta_2^2))). So the best mu
    is the one of alpha = min(1 + sqrt(log(1/delta)/c), A), and there is one if A > 1.

    Parameters
    ----------
    setting : Adp2sgdSetting
        Setting of the run.
    sigma_mean : float
        Standard deviation of the noise relative to the *mean* gradient: that of the noise on the sum, over B.
    delta : float
        Probability, in (0, 1).

    Returns
    -------
    Claim
        With the ``mu`` and ``alpha`` of that epsilon. Where a condition fails, the epsilon that the formula
        would give without conditions.

    Raises
    ------
    SpecError
        sigma_mean is not positive, or delta is not in (0, 1).
    """
    require_positive(sigma_mean=sigma_mean)
    require_fraction(delta=delta)
    divergence = _divergence_per_order(setting, sigma_mean)
    log_delta = math.log(1.0 / delta)
    best, allowed = 1.0 + math.sqrt(log_delta / divergence), highest_order(setting, sigma_mean)
    failures = theorem2_failures(setting, sigma_mean)
    alpha = best if failures else min(best, allowed)
    epsilon = divergence * alpha + log_delta / (alpha - 1.0)
    holds = f"both conditions hold for the order alpha = {alpha:.4g}"
    if alpha < best:
        holds += f", the highest that the second allows (the least epsilon would be at {best:.4g})"
    parameters = {"alpha": alpha, "mu": divergence * alpha / epsilon, "sigma_mean": sigma_mean}
    return Claim(THEOREM2, epsilon, delta, not failures, "; ".join(failures) or holds, parameters)


def adp2sgd_remark1(claim: Claim, iteration: float, iterations: float) -> Claim:
    """The model after ``iteration`` of ``iterations`` is (sqrt(t/T) epsilon, delta)-DP, if the last one is.

    Parameters
    ----------
    claim : Claim
        Claim of the whole run.
    iteration, iterations : float
        t and T, 0 < t <= T.

    Raises
    ------
    SpecError
        t is not in (0, T].
    """
    if not 0 < iteration <= iterations:
        raise SpecError(f"expected an iteration in (0, {iterations}], found {iteration!r}")
    epsilon = math.sqrt(iteration / iterations) * claim.epsilon
    return replace(claim, theorem=REMARK1, epsilon=epsilon, why=f"as {claim.theorem}: {claim.why}", parameters={})


def highest_order(setting: Adp2sgdSetting, sigma_mean: float) -> float:
    """A = log(1/(gamma (1 + sigma_mean^2/Delta_2^2))), the right side of the theorem's second condition."""
    return -math.log(setting.sampling_rate) - math.log1p((sigma_mean / setting.sensitivity) ** 2)


def theorem2_failures(setting: Adp2sgdSetting, sigma_mean: float, alpha: float | None = None) -> list[str]:
    """List which of the two conditions fail for the order ``alpha``, or for every order > 1 where none is given."""
    failures = []
    variance, allowed = (sigma_mean / setting.sensitivity) ** 2, highest_order(setting, sigma_mean)
    if variance < _LEAST_VARIANCE * (1.0 - 1e-12):  # equality within rounding is not a failure
        share = math.sqrt(variance / _LEAST_VARIANCE)
        failures.append(
            f"the first condition fails (epsilon <= 10 B^2 T alpha/(3 K^2 n1^2 mu), that is "
            f"sigma^2 >= 6 G^2/B^2): sigma is {share:.3g} times what it must be at least"
        )
    if allowed <= 1.0 or (alpha is not None and alpha > allowed):
        failures.append(
            f"the second condition fails: alpha is {'above 1' if alpha is None else f'{alpha:.4g}'}, and "
            f"log(K^3 n1^3 mu epsilon/(K^2 n1^2 mu epsilon B + 5 T alpha B^3)) is {allowed:.4g}"
        )
    return failures


def _divergence_per_order(setting: Adp2sgdSetting, sigma_mean: float) -> float:
    """c of `adp2sgd_theorem2`: T iterations are (alpha, c alpha)-Renyi DP."""
    data = setting.nodes * setting.smallest_shard
    return 20.0 * setting.lipschitz**2 * setting.iterations / (data * sigma_mean) ** 2


PROPOSITION1 = "A(DP)2SGD, Proposition 1"
THEOREM1 = "A(DP)2SGD, Theorem 1"


@dataclass(frozen=True)
class Adp2sgdProblem(Bounded):
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

    loss_gap: Annotated[float, Option("upper bound of F(w_0) - F*", "F", ge=0, le=10**12)]
    smoothness: Annotated[float, Option("L, Lipschitz constant of the gradient", "L", gt=0)]
    within_variance: Annotated[
        float, Option("varsigma^2, of an example's gradient around its node's mean", "V", ge=0, le=10**12)
    ]
    between_variance: Annotated[
        float, Option("upsilon^2, of the nodes' gradients around the mean", "U", ge=0, le=10**12)
    ]
    size: Annotated[int, Option("d, number of parameters", "D", ge=1)]


@dataclass(frozen=True)
class Adp2sgdNetwork(Bounded):
    """Network of nodes that exchange, and how late they do.

    Attributes
    ----------
    nodes : int
        K.
    rho : float
        max(|lambda_2|, |lambda_K|) of E[A'A], in [0, 1).
    staleness : int
        tau, the most iterations that a gradient's model may be old.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    nodes: Annotated[int, Option("K, number of nodes", "K", ge=1, le=10**6)]
    rho: Annotated[float, Option("max(|lambda_2|, |lambda_K|) of E[A'A], below 1", "R", ge=0, lt=1)]
    staleness: Annotated[int, Option("tau, most updates between pull and use", "TAU", ge=0)]


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


def adp2sgd_theorem1_conditions(step: float, network: Adp2sgdNetwork) -> Theorem1Conditions:
    """C_1, C_2/(eta B) and C_3 of Theorem 1 at the ``step`` eta B L."""
    nodes, tau, x = network.nodes, network.staleness, step
    rho_bar = adp2sgd_rho_bar(network.rho, nodes)
    delay = tau * (nodes - 1) / nodes + rho_bar
    c1 = 1.0 - 24.0 * x**2 * delay
    if c1 == 0:
        return Theorem1Conditions(0.0, -math.inf, math.inf)
    drift = x / nodes + 6.0 * x**2 / nodes**2 + 12.0 * x**3 * tau**2 / nodes**3
    c2 = 1.0 / (2.0 * nodes) - x / nodes**2 - 2.0 * x**2 * tau**2 / nodes**3 - drift * 4.0 * x * delay / c1
    c3 = 0.5 + x * tau**2 / nodes
    c3 += (6.0 * x**2 + nodes * x + 12.0 * x**3 * tau**2 / nodes) * 2.0 * rho_bar / c1
    return Theorem1Conditions(c1, c2, c3)


def adp2sgd_theorem1(
    iterations: float,
    learning_rate: float,
    sigma_sum: float,
    batch_size: float,
    problem: Adp2sgdProblem,
    network: Adp2sgdNetwork,
) -> UtilityClaim:
    """2 (F(w0) - F*) K/(eta T B) + 2 eta L/(B K) (varsigma^2 B + 6 upsilon^2 B^2 + d sigma^2).

    Parameters
    ----------
    iterations : float
        T, over all workers.
    learning_rate : float
        eta, of the *sum* of a batch's gradients: a B-th of that of their mean.
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
    require_positive(iterations=iterations, learning_rate=learning_rate, batch_size=batch_size)
    require_not_negative(sigma_sum=sigma_sum)
    share = learning_rate * batch_size / network.nodes  # K/(B sqrt(T)) makes it 1/sqrt(T)
    spread = problem.within_variance / batch_size + 6.0 * problem.between_variance
    noise = problem.size * sigma_sum**2 / batch_size**2
    bound = 2.0 * problem.loss_gap / (share * iterations) + 2.0 * share * problem.smoothness * (spread + noise)
    failures = _rate_failures(learning_rate * batch_size * problem.smoothness, network)
    return UtilityClaim(THEOREM1, bound, iterations, not failures, "; ".join(failures) or "C1, C2 and C3 are as needed")


def adp2sgd_proposition1(
    iterations: float, sigma_sum: float, batch_size: float, problem: Adp2sgdProblem, network: Adp2sgdNetwork
) -> UtilityClaim:
    """[2 (F(w0) - F*) + 2 L (varsigma^2/B + 6 upsilon^2 + d sigma^2/B^2)]/sqrt(T): Theorem 1 at eta = K/(B sqrt(T)).

    Parameters and errors are those of `adp2sgd_theorem1`.
    """
    require_positive(iterations=iterations, batch_size=batch_size)
    rate = network.nodes / (batch_size * math.sqrt(iterations))
    found = adp2sgd_theorem1(iterations, rate, sigma_sum, batch_size, problem, network)
    failures = iteration_failures(iterations, problem.smoothness, network)
    why = "; ".join(failures) or "T is large enough"
    return replace(found, theorem=PROPOSITION1, valid=not failures, why=why)


def iteration_failures(iterations: float, smoothness: float, network: Adp2sgdNetwork) -> list[str]:
    """List why so many iterations are too few for Proposition 1, or for Theorem 1 below it."""
    needed = adp2sgd_iterations_needed(smoothness, network)
    if iterations < needed * (1.0 - 1e-12):
        return [f"Proposition 1 needs T >= {needed:.4g}, found {iterations:.4g}"]
    failures = _rate_failures(network.nodes * smoothness / math.sqrt(iterations), network)
    return [f"T >= {needed:.4g} as Proposition 1 asks, but {failure}" for failure in failures]


def _rate_failures(step: float, network: Adp2sgdNetwork) -> list[str]:
    """List why Theorem 1 says nothing of a ``step`` eta B L."""
    conditions = adp2sgd_theorem1_conditions(step, network)
    if conditions.hold:
        return []
    c1, c2, c3 = conditions
    return [f"Theorem 1 needs C1 > 0, C2 >= 0 and C3 <= 1, found {c1:.3g}, {c2:.3g} (over eta B) and {c3:.3g}"]


_DESCRIPTION = """Compute what Proposition 1 of the A(DP)2SGD paper, or its Theorem 1 at a learning rate that is given,
claims of the convergence of a run of gossip, from public constants. No data is read. It is the paper's claim and not
proved here; it says nothing of privacy, for which there is gossamer account."""


@dataclass(frozen=True, kw_only=True)
class Options(Adp2sgdProblem, Adp2sgdNetwork):
    """Options of the command."""

    batch_size: Annotated[int, Option("B, examples in a batch", "B", ge=1)]
    iterations: Annotated[int, Option("T, updates of all nodes together", "T", ge=1)]
    sigma: Annotated[float, Option("sd of the noise on a batch's sum of gradients", "S", ge=0, le=10**12)] = 0.0
    learning_rate: Annotated[
        float | None, Option("eta, of a batch's sum of gradients (default: K/(B sqrt(T)))", "ETA", gt=0)
    ] = None


def answer(options: Options, doing: Doing) -> Answer:
    """Return the claim, with and without the noise, and whether its conditions hold."""
    of, rate = options, options.learning_rate
    claim, without = (
        adp2sgd_proposition1(of.iterations, sigma, of.batch_size, of, of)
        if rate is None
        else adp2sgd_theorem1(of.iterations, rate, sigma, of.batch_size, of, of)
        for sigma in (of.sigma, 0.0)
    )
    needed = adp2sgd_iterations_needed(of.smoothness, of)
    document = {**asdict(claim), "bound_without_noise": without.bound, "iterations_needed": needed, "proved": False}
    rows = [
        ["", "with the noise", "without"],
        ["claimed bound of the mean squared gradient", f"{claim.bound:.5g}", f"{without.bound:.5g}"],
    ]
    verdict = "its conditions hold" if claim.valid else f"but its own conditions fail: {claim.why}"
    asked = f"K/(B sqrt(T)) = {of.nodes / (of.batch_size * of.iterations**0.5):.4g}" if rate is None else f"{rate:.4g}"
    least = f"It asks for at least {needed:.4g} updates. " if rate is None else ""
    text = (
        f"Claimed, not proved: {claim.theorem}, of {of.iterations} updates at the learning rate {asked}; {verdict}. "
        f"{least}The gradient is that of F at the mean model, averaged over updates; nothing is said of privacy."
    )
    return Answer(document, (rows, text))


COMMAND = Command(
    Options,
    answer,
    help="gossip: what the paper claims of convergence, with noise and without",
    description=_DESCRIPTION,
)
