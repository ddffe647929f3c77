"""What is proved of graph federated learning, by observer. The proofs are in `graph_bounds`.

| observer | `gradient_at: hidden` | `gradient_at: released` |
|---|---|---|
| other units together, and anyone on the wires between units | proved, for a federated unit | proved, for an agent |
| agents of the same unit | none: they get the server's own state | as the other units: all they get was released |
| the own server | none: it sees exact sums | none |
"""

from __future__ import annotations

import math

from gossamer.privacy.gaussian_dp import gaussian_epsilon
from gossamer.privacy.graph_bounds import GradientAt, Noise, UpdateBound, gaussian_mu_of, laplace_epsilon_of
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.noise_streams import NoiseLaw


def graph_guarantees(noise: Noise, bound: UpdateBound, size: int, delta: float) -> dict[str, Guarantee]:
    """What is proved of all rounds together, by observer.

    Parameters
    ----------
    noise : CorrelatedNoise or RandomNoise
        Of every unit.
    bound : UpdateBound
        What one change moves.
    size : int
        d, coordinates of the model.
    delta : float
        In (0, 1); Laplace noise does not need it, its guarantees have delta 0.

    Returns
    -------
    dict of str to Guarantee
        ``other_units``, ``own_agents`` and ``own_server``: who looks. An infinite epsilon is no guarantee.
    """
    if noise.law is NoiseLaw.GAUSSIAN:
        mu = gaussian_mu_of(noise, bound)
        epsilon, proof = gaussian_epsilon(mu, delta), f"{mu:.6g}-Gaussian differential privacy of all messages jointly"
    else:
        epsilon, delta = laplace_epsilon_of(noise, bound, size), 0.0
        proof = "L1 sensitivities of all messages, added up"
    proved = Guarantee(
        epsilon,
        delta,
        UNITS[bound.gradient_at],
        NeighboringRelation.REPLACE_ONE,
        _OBSERVERS[bound.gradient_at],
        (*_TRUSTED[bound.gradient_at], *ASSUMPTIONS, *_OF_GRADIENTS[bound.gradient_at]),
        proof,
    )
    return {
        "other_units": proved,
        "own_agents": proved if bound.gradient_at is GradientAt.RELEASED else _none(bound, *_AGENTS),
        "own_server": _none(bound, *_SERVER),
    }


def _none(bound: UpdateBound, observer: str, reason: str) -> Guarantee:
    return Guarantee(math.inf, 0.0, UNITS[bound.gradient_at], NeighboringRelation.REPLACE_ONE, observer, (), reason)


UNITS = {
    GradientAt.HIDDEN: "federated unit",
    GradientAt.RELEASED: "agent",
}
"""Who is protected."""

_OBSERVERS = {
    GradientAt.HIDDEN: "other units: all of them together, malicious ones included, and anyone on the wires between",
    GradientAt.RELEASED: "other units and agents: all other units together, malicious ones included, anyone on the "
    "wires between, and the other agents of the agent's own unit",
}
_TRUSTED = {
    GradientAt.HIDDEN: (
        "trusted: the unit's own server and its own agents",
        "what protects a unit protects each of its agents, and each example, too",
    ),
    GradientAt.RELEASED: (
        "trusted: the own server; it sees exact sums of its agents' updates, and nobody else does",
        "each person's data sits at one agent",
    ),
}
_OF_GRADIENTS = {
    GradientAt.HIDDEN: (),
    GradientAt.RELEASED: ("agents get no model but the released one, and divide by L, however many answer",),
}
_AGENTS = (
    "own agents: of the same unit",
    "agents get the server's own state, and together with its messages that is the exact running sum",
)
_SERVER = ("own server", "a server sees exact sums of its agents' updates; masks hide single ones, and are no noise")

ASSUMPTIONS = (
    "the mean gradient of every mini-batch, with the regulariser's part, is clipped to the bound",
    "step size, bound, weights of the graph, numbers of rounds and agents and who is sampled do not depend on the data",
    "the noise, and what later noise is made of, stays secret and is never drawn twice; a message sent again is the "
    "same message",
    "all messages of all rounds are covered; models that the server itself gives away, such as its own state, are not",
    "this run alone: what other runs on the same data release adds up",
    "the timing of messages is not covered, and neither is rounding of floating-point sums and noise",
)
"""Of every guarantee for graph federated learning."""
