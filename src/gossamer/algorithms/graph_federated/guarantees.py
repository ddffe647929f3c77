"""Guarantees proved of graph federated learning, by observer, and its paper's claims. Proofs are in `graph_bounds`.

| observer | `gradient_at: hidden` | `gradient_at: released` |
|---|---|---|
| other units together, and anyone on the wires between units | proved, for a federated unit | proved, for an agent |
| agents of the same unit | none: they get the server's own state | as the other units: all they get was released |
| the own server | none: it sees updates, or exact sums of them | none |

**Claimed** is Theorem 2 of the paper:

| symbol | here |
|---|---|
| mu, B | ``step``, ``bound``: step size of a round, bound on gradients along the path |
| sigma_g | ``standard_deviation`` of a coordinate of the noise on a message |
| i | ``rounds``: the claim is about messages 0 to i, of which message 0 is the initial model |

**What holds.** For Laplace noise on *one* coordinate, independent from round to round, with gradients that are clipped
to B, the formula is the sum of the sensitivities 2 mu B j of the messages, and is true (`graph_bounds`).

**What does not.**

- The paper bounds the L2 norm of the change, and its noise is Laplace in each coordinate, which needs the L1 norm: in d
  dimensions epsilon is sqrt(d) times what is claimed.
- B comes from Lemma 4, which bounds gradients by constants of the data and of the path that was taken. Nothing enforces
  it.
- The claim is stated for one agent's change, as if only that agent's gradients moved. With gradients at the server's
  own state all later gradients of the unit move; 2 mu B is a bound on the whole update, so the figure survives, for
  units.
- It is about other units. To the own server and the own agents, who see exact sums, nothing is guaranteed.

References
----------
"Privatized graph federated learning": eq. 52, Theorem 2 and Appendix F.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np

from gossamer.algorithms.graph_federated.noise import privacy_loss
from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, require_positive
from gossamer.files import words_beside
from gossamer.privacy.accounting.gaussian_dp import gaussian_epsilon
from gossamer.privacy.guarantees import Claim, Guarantee, PrivacyProfile
from gossamer.privacy.mechanisms import NeighboringRelation
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, Noise, UpdateBound
from gossamer.topology.mixing import Matrix

Masks = Literal["none", "trusted", "signed"]
"""Whether secure aggregation hides single updates from their own server, which is trusted with keys unless these are
signed by identities."""


_WORDS = words_beside(__file__)
UNITS: dict[str, str] = _WORDS["units"]
"""Who is protected, by where gradients are taken."""
_OBSERVERS: dict[str, str] = _WORDS["observers"]
_AGENTS, _SERVER = _OBSERVERS["agents"], _OBSERVERS["server"]
ASSUMPTIONS = tuple(_WORDS["all"])
"""Of every guarantee for graph federated learning."""


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
    unit = _WORDS["trusted"][where], _WORDS["servers"][masks], _WORDS["inside"]
    proved = Guarantee(
        proved_epsilon(noise, bound, size, delta),
        delta if gaussian else 0.0,
        UNITS[where],
        NeighboringRelation.REPLACE_ONE,
        _OBSERVERS[where],
        (*unit, *ASSUMPTIONS, *_WORDS["gradients"][where]),
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
    why = _WORDS["nothing"]
    if where is not GradientAt.RELEASED:
        agents = _none(where, _AGENTS, why["against agents"])
    server = _none(where, _SERVER, why["against the server"][masks])
    return {"other_units": others, "own_agents": agents, "own_server": server}


def _none(where: GradientAt, observer: str, reason: str) -> Guarantee:
    return Guarantee(math.inf, 0.0, UNITS[where], NeighboringRelation.REPLACE_ONE, observer, (), reason)


THEOREM2 = "graph federated learning, Theorem 2"


def gfl_theorem2(
    rounds: int, step: float, bound: float, standard_deviation: float, *, conditions: str | None = None
) -> Claim:
    """epsilon(i) = sqrt(2) mu B (1 + i) i/sigma_g after ``rounds`` = i rounds, at delta 0.

    Parameters
    ----------
    rounds : int
        i >= 0.
    step, bound, standard_deviation : float
        mu, B and sigma_g.
    conditions : str, optional
        Reason why the run is not what the theorem is about, such as Gaussian noise; the claim is not valid then.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(standard_deviation=standard_deviation)
    why = conditions or f"independent homomorphic Laplace noise, if gradients along the path are at most {bound:g}"
    return Claim(THEOREM2, theorem2_product(rounds, step, bound) / standard_deviation, 0.0, conditions is None, why)


def theorem2_product(rounds: int, step: float, bound: float) -> float:
    """epsilon(i) sigma_g, as the theorem is printed: one of the two over the other.

    Raises
    ------
    SpecError
        A value is out of its range.
    """
    require_positive(step=step, bound=bound)
    if rounds < 0 or rounds != int(rounds):
        raise SpecError(f"rounds must be a whole number, 0 or more, found {rounds!r}")
    return math.sqrt(2.0) * step * bound * (1 + rounds) * rounds


def gfl_claims(
    noise: CorrelatedNoise, rounds: int, step: float, bound: float, gradient_at: GradientAt, *, random: bool = False
) -> list[Claim]:
    """Claims of Theorem 2 for a whole run, at i = T; none where gradients have no bound.

    Parameters
    ----------
    noise : CorrelatedNoise
        Noise of every server. Its standard deviation is sigma_g; where it is correlated, that is the first message's.
    rounds : int
        T >= 1.
    step, bound : float
        mu and B, which may be infinite.
    gradient_at : GradientAt
        Place where gradients are taken.
    random : bool
        Whether each message to another server has noise of its own, so that it is not homomorphic.
    """
    if not math.isfinite(bound):
        return []
    differs = {
        f"the noise is {noise.law}": noise.law is not NoiseLaw.LAPLACE,
        "it is not homomorphic": random,
        "it is correlated over rounds": noise.factorisation.temporal is not Temporal.INDEPENDENT,
        "gradients are taken at released models": gradient_at is GradientAt.RELEASED,
    }
    reasons = [reason for reason, holds in differs.items() if holds]
    why = f"not the theorem's run: {', '.join(reasons)}" if reasons else None
    return [gfl_theorem2(rounds, step, bound, noise.standard_deviation, conditions=why)]


# Claims of graph federated learning on convergence: Theorems 1 and 3, and Lemma 3 on the network disagreement.
#
# The paper states them with terms O(mu), whose constants are in its proofs. Here these constants are put in, and all
# units have those of the worst one, so that the vectors of the paper are numbers:
#
# | symbol | here |
# |---|---|
# | mu, L | ``step``, ``agents_sampled``; agents make one local step (E = 1) |
# | nu, delta | ``strong_convexity`` of each agent's risk, ``smoothness`` of the loss of every example |
# | mean of |grad Q(w^o)|^2 | ``gradient_square``, over examples |
# | iota_2 | ``mixing``: largest absolute eigenvalue of A less 1 1'/P |
# | sigma_g^2 | ``message_noise``, of homomorphic noise, for which E |g|^2 is 0: see `homomorphic_noise` |
#
# All units have the best model w^o in common. With alpha = sqrt(1 - 2 nu mu + delta^2 mu^2) the recursions are, of x a
# unit's own error, D the disagreement and c the centroid's error,
#
#     x <- (alpha + beta^2 mu^2) x + mu^2 sigma_s^2 + sigma_g^2                                             (62)
#     D <- iota D + iota^2 mu^2 (2 delta^2 x/(iota (1-iota)) + beta^2 x + sigma_s^2) + sigma_g^2            (68, 69)
#     c <- (alpha + beta_s^2 mu^2) c + mu^2 sigma_s^2 + E |g|^2
#          + mu^2 (delta^2/(root (1-root)) + beta_s^2) D,   root = sqrt(alpha)                              (73)
#
# They say nothing where a factor is 1 or more: the step is too large then, and bounds are infinite.
#
# **These are claims, never guarantees.** They presume what the paper assumes, in particular that noise is independent
# from round to round, that gradients are taken at the servers' own states and that nothing is clipped.
#
# References
# ----------
# "Privatized graph federated learning": eqs. 25, 26, 29, Lemma 3, Theorems 1 and 3, Appendices A to C.


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants of the theorems; the table of the module says which.

    Raises
    ------
    SpecError
        A value is out of its range.
    """

    step: float
    strong_convexity: float
    smoothness: float
    gradient_square: float
    agents_sampled: int
    mixing: float
    message_noise: float

    def __post_init__(self) -> None:
        require_positive(
            step=self.step,
            strong_convexity=self.strong_convexity,
            smoothness=self.smoothness,
            agents_sampled=self.agents_sampled,
        )
        if self.strong_convexity > self.smoothness:
            raise SpecError(
                f"strong convexity nu is at most the smoothness delta, found {self.strong_convexity} above "
                f"{self.smoothness}"
            )
        if not 0 < self.mixing < 1:
            raise SpecError(f"the second eigenvalue of a connected graph must be inside (0, 1), found {self.mixing!r}")

    @property
    def alpha(self) -> float:
        """sqrt(1 - 2 nu mu + delta^2 mu^2), which a gradient step shrinks an error by."""
        mu = self.step
        return math.sqrt(1 - 2 * self.strong_convexity * mu + (self.smoothness * mu) ** 2)


ERRORS = ("centroid", "individual", "disagreement")
"""Mean squared errors of the centroid and of a unit's own model, and the network disagreement."""


def next_bounds(of: Constants, centroid: float, individual: float, disagreement: float) -> FloatArray:
    """Bounds of the `ERRORS` after one more round of the three recursions; infinite where the step is too large."""
    mu2, alpha, iota = of.step**2, of.alpha, of.mixing
    if alpha >= 1:
        return np.full(3, math.inf)
    root, beta = math.sqrt(alpha), 12 * of.smoothness**2 / of.agents_sampled  # beta_(s,p)^2, eq. 25
    noise = mu2 * (15 * of.gradient_square / of.agents_sampled)  # sigma_(s,p)^2, eq. 26
    residual = 2 / iota * of.smoothness**2 * individual
    return np.array(
        [
            (alpha + 2 * beta * mu2) * centroid  # beta_s^2 = 2 beta_(s,p)^2, eq. 29
            + noise
            + mu2 * (of.smoothness**2 / (root * (1 - root)) + 2 * beta) * disagreement,
            (alpha + beta * mu2) * individual + noise + of.message_noise,
            iota * disagreement
            + iota**2 * (mu2 * (residual / (1 - iota) + beta * individual) + noise)
            + of.message_noise,
        ]
    )


def limits(of: Constants) -> dict[str, float]:
    """Bounds of the `ERRORS` in the long run; infinite where the step is too large.

    The recursions are linear: their fixed point is found from what they do to four states.
    """
    origin = next_bounds(of, 0.0, 0.0, 0.0)
    found = np.full(3, math.inf)
    if np.isfinite(origin).all():
        map_ = np.stack([next_bounds(of, *unit.tolist()) - origin for unit in np.eye(3)], axis=1)
        # In the order individual, disagreement, centroid it is triangular, so its diagonal decides.
        if np.diagonal(map_).max() < 1:
            found = np.linalg.solve(np.eye(3) - map_, origin)
    return dict(zip(ERRORS, found.tolist(), strict=True))


def homomorphic_noise(mixing: Matrix, variance: float, size: int) -> float:
    """sigma_g^2 of a unit's combination, bounded as in eq. 62; homomorphic noise leaves the centroid alone, eq. 23.

    Parameters
    ----------
    mixing : array-like [units, units]
        A.
    variance : float
        Variance of a coordinate of the noise on a message.
    size : int
        d, coordinates of the model.
    """
    own = np.asarray(mixing.diagonal(), np.float64)
    # sum_m a_pm E |g_pm|^2 = (1-a) + a ((1-a)/a)^2, in units of the message's.
    return size * variance * float(((1 - own) / own).max())
