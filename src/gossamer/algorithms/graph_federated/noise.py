"""Noise for graph federated learning: which correlation over rounds costs least for a guarantee.

For (epsilon, delta) there is a largest mu_G; each factorisation then has its least standard deviation of z, and its
disagreement follows from the graph. The one with the least is taken. With Laplace noise epsilon itself, at delta 0,
stands in the place of mu_G. All of it is computed from public constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np

from gossamer.algorithms.graph_federated.network_noise import model_noise
from gossamer.arrays import FloatArray
from gossamer.privacy.accounting.gaussian_dp import gaussian_mu
from gossamer.privacy.streams.correlated_noise import Factorisation, Temporal
from gossamer.privacy.streams.graph_bounds import (
    Noise,
    RandomNoise,
    UpdateBound,
    gaussian_mu_of,
    laplace_epsilon_of,
)
from gossamer.privacy.streams.noise_streams import CorrelatedNoise, NoiseLaw
from gossamer.topology.mixing import Matrix

BANDS = (2, 4, 8, 16, 32, 64)
"""Numbers of bands that are tried, as far as they are fewer than the rounds."""


class Measure(StrEnum):
    """Rounds whose disagreement is to be small."""

    MEAN = "mean"
    """Of all rounds: gradients are taken at models that disagree."""

    LAST = "last"
    """Of the models at the end."""


@dataclass(frozen=True)
class NoiseProblem:
    """Problem that noise is planned for.

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
    law : NoiseLaw
        Of z. With Laplace noise epsilon is proved at delta 0.
    """

    epsilon: float
    delta: float
    rounds: int
    update: UpdateBound
    size: int
    mixing: Matrix
    contraction: float = 1.0
    measure: Measure = Measure.MEAN
    law: NoiseLaw = NoiseLaw.GAUSSIAN

    @property
    def allowed(self) -> float:
        """The largest mu_G, or with Laplace noise the largest epsilon, less what rounding may add."""
        gaussian = self.law is NoiseLaw.GAUSSIAN
        return (gaussian_mu(self.epsilon, self.delta) if gaussian else self.epsilon) * (1 - 1e-12)


@dataclass(frozen=True)
class NoiseChoice:
    """Noise that meets the guarantee.

    Attributes
    ----------
    noise : CorrelatedNoise
        With the least standard deviation.
    mu_g : float
        Proved of it, at most what the guarantee allows; of Laplace noise, its epsilon.
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


def plan_noise(problem: NoiseProblem, among: Iterable[Factorisation] | None = None) -> NoisePlan:
    """The factorisation, and its noise, with the least expected network disagreement.

    Parameters
    ----------
    problem : NoiseProblem
        What noise is planned for.
    among : iterable of Factorisation, optional
        What is tried; all kinds by default.

    Raises
    ------
    SpecError
        A value is out of its range.
    AccountingError
        epsilon is not positive, or delta not inside (0, 1).
    TopologyError
        The mixing matrix cannot carry homomorphic noise.
    """
    tried = factorisations(problem.rounds) if among is None else among
    choices = [_choice(problem, factorisation) for factorisation in tried]
    return NoisePlan(problem, tuple(sorted(choices, key=lambda choice: _cost(choice, problem.measure))))


def _cost(choice: NoiseChoice, measure: Measure) -> tuple[float, float]:
    # Nine digits: what differs by rounding alone is equal, and the order of `factorisations` decides.
    return float(f"{choice.disagreement[measure]:.8e}"), float(f"{choice.centroid[measure]:.8e}")


def factorisations(rounds: int) -> Iterator[Factorisation]:
    """Factorisations to try for so many rounds, in the order of the state that their streams keep."""
    yield Factorisation(Temporal.INDEPENDENT, rounds)
    yield Factorisation(Temporal.RANDOM_WALK, rounds)
    yield from (Factorisation(Temporal.BANDED, rounds, bands) for bands in BANDS if bands < rounds)
    yield Factorisation(Temporal.SQRT_TOEPLITZ, rounds)


N = TypeVar("N", CorrelatedNoise, RandomNoise)


def least_noise(noise: N, problem: NoiseProblem) -> N:
    """``noise`` with the least standard deviation that meets the guarantee; its own does not matter.

    Raises
    ------
    SpecError
        There is no such floating-point number.
    """
    allowed = problem.allowed
    found = replace(noise, standard_deviation=privacy_loss(replace(noise, standard_deviation=1.0), problem) / allowed)
    while privacy_loss(found, problem) > allowed:  # by rounding
        found = replace(found, standard_deviation=float(np.nextafter(found.standard_deviation, math.inf)))
    return found


def privacy_loss(noise: Noise, problem: NoiseProblem) -> float:
    """mu_G of Gaussian noise; the epsilon of Laplace noise."""
    if noise.law is NoiseLaw.GAUSSIAN:
        return gaussian_mu_of(noise, problem.update)
    return laplace_epsilon_of(noise, problem.update, problem.size)


def _choice(problem: NoiseProblem, factorisation: Factorisation) -> NoiseChoice:
    noise = least_noise(CorrelatedNoise(factorisation, 1.0, problem.law), problem)
    where, contraction = problem.update.gradient_at, problem.contraction
    caused = model_noise(noise, problem.mixing, problem.size, where, contraction)
    found = privacy_loss(noise, problem)
    return NoiseChoice(noise, found, _measured(caused.disagreement), _measured(caused.centroid))


def _measured(squares: FloatArray) -> dict[Measure, float]:
    return {Measure.MEAN: float(squares.mean()), Measure.LAST: float(squares[-1])}
