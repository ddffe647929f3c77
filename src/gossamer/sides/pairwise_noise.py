"""Noise that a paper's agents add to their models, as floats: for its figures, with NO security.

**Of pairs.** Every pair of agents draws the same noise from a generator that both have seeded; one adds it, the other
subtracts it. This is how graph federated learning describes what its agents add. It hides nothing that can be stated:

- A float plus noise of finite variance still tells about the float; a mask must be uniform over a finite ring.
- The seeds are those of a simulation, and an agent that vanishes leaves its noise in the sum.
- Floats are rounded after every addition, so the noise cancels up to rounding only.

**Of each agent's own.** Independent Laplace noise does not cancel in the sum. It is drawn from a simulation's seed and
in floats, and nothing is charged for it or proved of it.

Where it matters use `gossamer.privacy.masking`, whose sums are exact, and noise that agents add there.

References
----------
Graph federated learning, equation (48): the mean over the sampled agents of g_{p,k,i} is zero. In
equation (7) they are independent.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from gossamer.errors import SpecError
from gossamer.randomness import stream


def pairwise_noise(
    seed: int, agent: int, agents: Collection[int], number: int, size: int, standard_deviation: float
) -> npt.NDArray[np.float64]:
    """The noise [size] of one agent in round ``number``; that of all ``agents`` adds up to zero, but for rounding.

    Parameters
    ----------
    seed : int
        Of the simulation; the same for all.
    agent : int
        Whose noise; one of ``agents``.
    agents : collection of int
        Who takes part in this round; two or more.
    number : int
        The round.
    size : int
        Coordinates.
    standard_deviation : float
        sigma_g, of each coordinate of an agent's noise: a sum of independent Laplace variables, one for each pair.

    Raises
    ------
    SpecError
        If there are fewer than two agents, or ``agent`` is none of them.
    """
    if len(set(agents)) < 2 or agent not in agents:
        raise SpecError(f"noise cancels among two agents or more, found {sorted(agents)} and agent {agent}")
    others = sorted(set(agents) - {agent})
    scale = standard_deviation / np.sqrt(2 * len(others))  # a Laplace variable has variance 2 scale^2
    noise = np.zeros(size)
    for other in others:
        shared = stream(seed, "pairwise noise", min(agent, other), max(agent, other), number=number)
        noise += (1 if agent < other else -1) * shared.laplace(0.0, scale, size)
    return noise


def independent_noise(
    seed: int, agent: str, number: int, size: int, standard_deviation: float
) -> npt.NDArray[np.float64]:
    """Laplace noise [size] of one agent in round ``number``, independent of all others' and of other rounds'.

    Parameters
    ----------
    seed : int
        Of the simulation; the same for all.
    agent : str
        Whose noise.
    number : int
        The round.
    size : int
        Coordinates.
    standard_deviation : float
        sigma_g, of each coordinate.
    """
    scale = standard_deviation / np.sqrt(2)  # a Laplace variable has variance 2 scale^2
    return stream(seed, "independent noise", agent, number=number).laplace(0.0, scale, size)
