"""Noise for graph federated learning: which correlation over rounds costs least for a guarantee.

For (epsilon, delta) there is a largest mu_G; each factorisation then has its least standard deviation of z, and its
disagreement follows from the graph. The one with the least is taken. All of it is computed from public constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from gossamer.privacy.correlated_noise import Factorisation, Temporal
from gossamer.privacy.gaussian_dp import gaussian_mu
from gossamer.privacy.graph_bounds import UpdateBound, gaussian_mu_of
from gossamer.privacy.network_noise import FloatArray, model_noise
from gossamer.privacy.noise_streams import CorrelatedNoise
from gossamer.topology.mixing import Matrix

BANDS = (2, 4, 8, 16, 32, 64)
"""Numbers of bands that are tried, as far as they are fewer than the rounds."""


class Measure(StrEnum):
    """Which rounds' disagreement is to be small."""

    MEAN = "mean"
    """Of all rounds: gradients are taken at models that disagree."""

    LAST = "last"
    """Of the models at the end."""


@dataclass(frozen=True)
class NoiseProblem:
    """What noise is planned for.

    Attributes
    ----------
    epsilon, delta : float
        To be proved of all rounds together, for `UpdateBound.unit`.
    rounds : int
        T.
    update : UpdateBound
        What one change moves.
    size : int
        d, coordinates of the model.
    mixing : array-like [units, units]
        A, as for `network_noise.model_noise`.
    contraction : float
        r, how much a gradient step shrinks differences of models; 1 leaves curvature out.
    measure : Measure
        What is to be least.
    """

    epsilon: float
    delta: float
    rounds: int
    update: UpdateBound
    size: int
    mixing: Matrix
    contraction: float = 1.0
    measure: Measure = Measure.MEAN


@dataclass(frozen=True)
class NoiseChoice:
    """Gaussian noise that meets the guarantee.

    Attributes
    ----------
    noise : CorrelatedNoise
        With the least standard deviation.
    mu_g : float
        Proved of it, at most what the guarantee allows.
    disagreement, centroid : dict of Measure to float
        Expected network disagreement that the noise causes, and expected squared move of the centroid.
    """

    noise: CorrelatedNoise
    mu_g: float
    disagreement: dict[Measure, float]
    centroid: dict[Measure, float]

    @property
    def largest_message_deviation(self) -> float:
        """The largest standard deviation of a coordinate of the noise in a message."""
        return float(self.noise.message_standard_deviations.max())


@dataclass(frozen=True)
class NoisePlan:
    """All choices for a problem: least disagreement first, then the centroid's noise, then the state that is kept."""

    problem: NoiseProblem
    choices: tuple[NoiseChoice, ...]

    @property
    def best(self) -> NoiseChoice:
        return self.choices[0]


def plan_noise(problem: NoiseProblem) -> NoisePlan:
    """The factorisation, and its noise, with the least expected network disagreement.

    Raises
    ------
    SpecError
        A value is out of its range.
    AccountingError
        epsilon is not positive, or delta not inside (0, 1).
    TopologyError
        The mixing matrix cannot carry homomorphic noise.
    """
    # A little less, so that rounding of sigma and of its epsilon ends within the budget.
    mu = gaussian_mu(problem.epsilon, problem.delta) * (1 - 1e-12)
    choices = [_choice(problem, factorisation, mu) for factorisation in factorisations(problem.rounds)]
    return NoisePlan(problem, tuple(sorted(choices, key=lambda choice: _cost(choice, problem.measure))))


def _cost(choice: NoiseChoice, measure: Measure) -> tuple[float, float]:
    # Nine digits: what differs by rounding alone is equal, and the order of `factorisations` decides.
    return float(f"{choice.disagreement[measure]:.8e}"), float(f"{choice.centroid[measure]:.8e}")


def factorisations(rounds: int) -> Iterator[Factorisation]:
    """What is tried for so many rounds, in the order of the state that their streams keep."""
    yield Factorisation(Temporal.INDEPENDENT, rounds)
    yield Factorisation(Temporal.RANDOM_WALK, rounds)
    yield from (Factorisation(Temporal.BANDED, rounds, bands) for bands in BANDS if bands < rounds)
    yield Factorisation(Temporal.SQRT_TOEPLITZ, rounds)


def _choice(problem: NoiseProblem, factorisation: Factorisation, mu: float) -> NoiseChoice:
    deviation = gaussian_mu_of(CorrelatedNoise(factorisation, 1.0), problem.update) / mu
    noise = CorrelatedNoise(factorisation, deviation)
    while (found := gaussian_mu_of(noise, problem.update)) > mu:  # by rounding
        noise = CorrelatedNoise(factorisation, float(np.nextafter(noise.standard_deviation, math.inf)))
    where, contraction = problem.update.gradient_at, problem.contraction
    caused = model_noise(noise, problem.mixing, problem.size, where, contraction)
    return NoiseChoice(noise, found, _measured(caused.disagreement), _measured(caused.centroid))


def _measured(squares: FloatArray) -> dict[Measure, float]:
    return {Measure.MEAN: float(squares.mean()), Measure.LAST: float(squares[-1])}
