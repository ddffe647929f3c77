"""Guarantees proved of graph federated learning, by observer. The proofs are in `graph_bounds`.

| observer | `gradient_at: hidden` | `gradient_at: released` |
|---|---|---|
| other units together, and anyone on the wires between units | proved, for a federated unit | proved, for an agent |
| agents of the same unit | none: they get the server's own state | as the other units: all they get was released |
| the own server | none: it sees updates, or exact sums of them | none |
"""

from __future__ import annotations

import math
from functools import partial
from typing import Literal

from gossamer.algorithms.graph_federated.noise import privacy_loss
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.streams.correlated_noise import NoiseLaw
from gossamer.privacy.streams.graph_bounds import GradientAt, Noise, UpdateBound

Masks = Literal["none", "trusted", "signed"]
"""Whether secure aggregation hides single updates from their own server, which is trusted with keys unless these are
signed by identities."""


def proved_epsilon(noise: Noise, bound: UpdateBound, size: int, delta: float) -> float:
    """Epsilon of all messages of a run together, against the other units: at ``delta``, of Laplace noise at 0."""
    loss = privacy_loss(noise, bound, size)
    return gaussian_epsilon(loss, delta) if noise.law is NoiseLaw.GAUSSIAN else loss


def graph_guarantees(
    noise: Noise, bound: UpdateBound, size: int, delta: float, masks: Masks = "none"
) -> dict[str, Guarantee]:
    """Guarantees proved of all rounds together, by observer.

    Parameters
    ----------
    noise : CorrelatedNoise or RandomNoise
        Noise of every unit.
    bound : UpdateBound
        Bound on what one change moves.
    size : int
        d, coordinates of the model.
    delta : float
        Delta in (0, 1); Laplace noise does not need it, its guarantees have delta 0.
    masks : {"none", "trusted", "signed"}
        Masks inside units.

    Returns
    -------
    dict of str to Guarantee
        ``other_units``, ``own_agents`` and ``own_server``: who looks. An infinite epsilon is no guarantee.
    """
    where, gaussian, loss = bound.gradient_at, noise.law is NoiseLaw.GAUSSIAN, privacy_loss(noise, bound, size)
    proved = Guarantee(
        proved_epsilon(noise, bound, size, delta),
        delta if gaussian else 0.0,
        UNITS[where],
        NeighboringRelation.REPLACE_ONE,
        _OBSERVERS[where],
        (_TRUSTED[where], _OF_SERVERS[masks], _INSIDE, *ASSUMPTIONS, *_OF_GRADIENTS[where]),
        f"{loss:.6g}-Gaussian differential privacy of all messages jointly"
        if gaussian
        else "L1 sensitivities of all messages, added up",
        evidence=partial(PrivacyProfile.gaussian, loss) if gaussian else None,
    )
    return _by_observer(where, proved, proved, masks)


def no_guarantees(where: GradientAt, reason: str, masks: Masks = "none") -> dict[str, Guarantee]:
    """The same where nothing is proved against anybody, and why."""
    return _by_observer(where, _none(where, _OBSERVERS[where], reason), _none(where, _AGENTS, reason), masks)


def _by_observer(where: GradientAt, others: Guarantee, agents: Guarantee, masks: Masks) -> dict[str, Guarantee]:
    """Guarantees against other units, and against own agents if these get what was released."""
    return {
        "other_units": others,
        "own_agents": agents if where is GradientAt.RELEASED else _none(where, _AGENTS, _HIDDEN_STATE),
        "own_server": _none(where, _SERVER, _SERVER_SEES[masks]),
    }


def _none(where: GradientAt, observer: str, reason: str) -> Guarantee:
    return Guarantee(math.inf, 0.0, UNITS[where], NeighboringRelation.REPLACE_ONE, observer, (), reason)


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
_AGENTS = "own agents: of the same unit"
_SERVER = "own server"

_TRUSTED = {
    GradientAt.HIDDEN: "trusted: the unit's own server and its own agents, who see its server's own state",
    GradientAt.RELEASED: "trusted: the own server",
}
_OF_SERVERS = {
    "none": "the own server sees each of its agents' updates, and nobody else does",
    "trusted": "the own server sees exact sums of its agents' updates, if it hands on their own keys, and nobody "
    "else does",
    "signed": "the own server sees exact sums of its agents' updates, whose keys the identities in the invitation "
    "sign, and nobody else does",
}
_INSIDE = "what is sent inside a unit is read by nobody but whom it is for"
_OF_GRADIENTS = {
    GradientAt.HIDDEN: (
        "each person's data sits in one unit",
        "what protects a unit protects each of its agents, and each example, too",
    ),
    GradientAt.RELEASED: (
        "each person's data sits at one agent",
        "agents get no model but the released one, and servers divide by L, however many answer",
    ),
}
_HIDDEN_STATE = "agents get the server's own state, and together with its messages that is the exact running sum"
_SERVER_SEES = {
    "none": "a server sees each of its agents' updates, without noise; masking: secure would leave it exact sums",
    "trusted": "a server that hands on its agents' own keys sees exact sums of their updates; masks hide single "
    "ones, and are no noise",
    "signed": "a server sees exact sums of its agents' updates; masks hide single ones, and are no noise",
}

ASSUMPTIONS = (
    "the mean gradient of every mini-batch, with the regulariser's part, is clipped to the bound",
    "step size, bound, weights of the graph, numbers of rounds and agents, who is sampled and who answers in time do "
    "not depend on the data",
    "the noise, and what later noise is made of, stays secret and is never drawn twice; a message sent again is the "
    "same message",
    "all messages of all rounds are covered; models that the server itself gives away, such as its own state, are not",
    "this run alone: what other runs on the same data release adds up",
    "the timing of messages is not covered, and neither is rounding of floating-point sums and noise",
)
"""Of every guarantee for graph federated learning."""
