"""``gossamer plan gossip``: the paper's utility claim for a planned run, from public constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gossamer.algorithms.command import COUNT, POSITIVE, Answer, Bounds, Command, Doing, Option, Table
from gossamer.algorithms.gossip.utility import (
    Adp2sgdNetwork,
    Adp2sgdProblem,
    adp2sgd_iterations_needed,
    adp2sgd_proposition1,
)

_NOT_NEGATIVE = Bounds(ge=0, le=10**12)
_DESCRIPTION = """Compute what Proposition 1 of the A(DP)2SGD paper claims of the convergence of a run of gossip, from
public constants. No data is read. It is the paper's claim and not proved here; it says nothing of privacy, for which
there is gossamer account."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of the command; bounds of what is also a setting are the setting's."""

    nodes: Annotated[int, Option("K, number of nodes", "K", "nodes")]
    batch_size: Annotated[int, Option("B, examples in a batch", "B", "batch_size")]
    iterations: Annotated[int, Option("T, updates of all nodes together", "T", COUNT)]
    staleness: Annotated[int, Option("tau, most updates between pull and use", "TAU", Bounds(ge=0, whole=True))]
    rho: Annotated[float, Option("max(|lambda_2|, |lambda_K|) of E[A'A], below 1", "R", Bounds(ge=0, lt=1))]
    size: Annotated[int, Option("d, number of parameters", "D", COUNT)]
    smoothness: Annotated[float, Option("L, Lipschitz constant of the gradient", "L", POSITIVE)]
    loss_gap: Annotated[float, Option("upper bound of F(w_0) - F*", "F", _NOT_NEGATIVE)]
    within_variance: Annotated[
        float, Option("varsigma^2, of an example's gradient around its node's mean", "V", _NOT_NEGATIVE)
    ]
    between_variance: Annotated[float, Option("upsilon^2, of the nodes' gradients around the mean", "U", _NOT_NEGATIVE)]
    sigma: Annotated[float, Option("sd of the noise on a batch's sum of gradients (default 0)", "S", _NOT_NEGATIVE)] = (
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
