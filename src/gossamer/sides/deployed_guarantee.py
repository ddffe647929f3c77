"""Guarantees of simulated runs carried over to a deployment, with its noise on a grid and its numbers secret.

What is planned is proved for continuous noise. On the grid (`grid_noise`), n numbers drawn in all cost

    eta = n log((1 + tau)/(1 - tau)),    about n 2.1e-34,

and samplers and samples that are not what they are taken for have probability p = 2^-170 each: every number drawn, and
every Poisson sample (`sum_rounding.UNLIKELY`). If N samples are drawn, an (epsilon, delta) becomes

    epsilon + 2 eta,        exp(eta) delta + (1 + exp(epsilon + 2 eta)) (n + N) p + M 2^-80,

where M is the number of Poisson samples whose answers have a deadline (`sampling`). The assumption that the run is
a simulation goes, and those of a deployment come.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

from gossamer.privacy.exact.discrete_gaussian import DISTANCE
from gossamer.privacy.exact.grid_noise import SMOOTHING, smoothing_error
from gossamer.privacy.guarantees import Guarantee
from gossamer.privacy.profile import PrivacyProfile
from gossamer.privacy.sampling import LATE
from gossamer.sides.sum_rounding import UNLIKELY

RANDOMNESS = (
    "a deployment: noise and samples come from the operating system's random numbers, expanded with ChaCha20, and "
    "nobody can tell these from random ones, or draw them again by restoring a copy of the machine"
)
MACHINE = "a party's own machine, its memory, its state folder and its copies are read by nobody else"
DISK = (
    "a disk does not forget what it has confirmed, and no run goes on with an older copy of a state folder, or of a "
    "ledger, or without them"
)
FLOATING_POINT = (
    "the noise is drawn in floating point, where its last bits, and those of sums, may tell more than is proved here"
)
NETWORK = (
    "the norm of a network's gradient for one example, which is computed on its own, is right to one part in a "
    "thousand, for which the noise has room"
)
_OF_SUMS = "rounding of sums and noise is covered: the noise is drawn exactly, on a grid"

ROUNDING_TOO = "the timing of messages is not covered, and neither is rounding of floating-point sums and noise"
NOT_CRASHES = "the timing of messages is not covered, and neither are crashes"


@dataclass(frozen=True)
class Times:
    """Knowledge of when a party's messages are sent.

    Attributes
    ----------
    assumption : str
        Assumption in words.
    late : int
        Poisson samples that may be larger than their deadline provides for.
    """

    assumption: str = NOT_CRASHES
    late: int = 0


@dataclass(frozen=True)
class Drawn:
    """Numbers that a party draws for its whole plan.

    Attributes
    ----------
    numbers : int
        Discrete Gaussians in blocks: coordinates of all releases.
    samples : int
        Poisson samples.
    floating_point : bool
        Whether its noise is drawn in floating point.
    network : bool
        Whether gradients are those of a network.
    times : Times
        Knowledge of when its answers are sent.
    """

    numbers: int = 0
    samples: int = 0
    floating_point: bool = False
    network: bool = False
    times: Times = Times()


def deployed_guarantee(guarantee: Guarantee, drawn: Drawn) -> Guarantee:
    """Return what is proved in a deployment, from what was proved of a plan.

    Parameters
    ----------
    guarantee : Guarantee
        Guarantee of the plan; one that promises nothing stays as it is.
    drawn : Drawn
        Numbers drawn by the party that draws most.
    """
    if math.isinf(guarantee.epsilon):
        return guarantee
    epsilon, delta = deployed_bound(guarantee.epsilon, guarantee.delta, drawn)
    if delta >= 1:
        return replace(guarantee, epsilon=math.inf, delta=0.0, assumptions=(), proof=_TOO_MUCH)
    said = {ROUNDING_TOO: drawn.times.assumption, NOT_CRASHES: drawn.times.assumption}
    kept = [said.get(line, line) for line in guarantee.assumptions if _SIMULATED not in line]
    more = [RANDOMNESS, MACHINE, DISK]
    more += [FLOATING_POINT] * drawn.floating_point + [NETWORK] * (drawn.network and not drawn.floating_point)
    return replace(
        guarantee,
        epsilon=epsilon,
        delta=delta,
        assumptions=(*kept, *more),
        evidence=partial(_deployed_profile, guarantee, drawn),
        proof=guarantee.proof if drawn.floating_point else f"{guarantee.proof}; {_OF_SUMS}",
    )


def _deployed_profile(guarantee: Guarantee, drawn: Drawn) -> PrivacyProfile:
    """`deployed_bound` of every loss."""
    eta = drawn.numbers * smoothing_error(SMOOTHING)
    chance = drawn.numbers * DISTANCE + drawn.samples * UNLIKELY
    failure = chance + drawn.times.late * LATE
    return guarantee.profile.moved(2 * eta, math.exp(eta), failure, math.exp(2 * eta) * chance)


def deployed_bound(epsilon: float, delta: float, drawn: Drawn) -> tuple[float, float]:
    """Epsilon and delta of a deployment, rounded up."""
    eta = drawn.numbers * smoothing_error(SMOOTHING)
    chance = drawn.numbers * DISTANCE + drawn.samples * UNLIKELY
    late = drawn.times.late * LATE
    if not chance and not late:
        return epsilon, delta
    bound = math.nextafter(epsilon + 2 * eta, math.inf) if chance else epsilon
    distance = (1 + math.exp(min(bound, 700.0))) * chance
    return bound, math.nextafter((math.exp(eta) * delta + distance + late) * (1 + 1e-12), math.inf)


_SIMULATED = "a simulation"  # in all that is assumed of those alone
_TOO_MUCH = "so large an epsilon says less than what the samplers' own errors may cost"
