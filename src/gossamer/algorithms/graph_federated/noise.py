"""Noise for graph federated learning: which correlation over rounds costs least for a guarantee.

For (epsilon, delta) there is a largest mu_G; each factorisation then has its least standard deviation of z, and its
disagreement follows from the graph. The one with the least is taken. With Laplace noise epsilon itself, at delta 0,
stands in the place of mu_G. All of it is computed from public constants.

**Effects on the models.** Rows of W are the units' models, A is the mixing matrix, G_i the units' noise in round i. In
the notation of `graph_bounds`, ``W_i = A psi_i + (A - I) G_i``: neighbours add a_pm g_m and the own term takes
(1-a_pp) g_p away. The next psi is ``W_i - mu U``, with gradients at W_i (`hidden`) or at
``V_i = A (psi_i + G_i) = W_i + G_i`` (`released`).

Let a gradient step shrink differences of models by r, ``mu U(X) = (1-r) X + what is the same for all``; r = 1 leaves
curvature out, which is the worst case of a convex loss and a small step. The part of noise in the models is then
linear. On an eigenvector of A with eigenvalue l, written as power series in the number of rounds x:

| model | hidden: W, the server's own | released: V, what agents start from |
|---|---|---|
| noise in it, from noise G(x) | (l - 1)/(1 - l r x) G(x) | l (1 - x)/(1 - l r x) G(x) |

with G(x) = z(x)/((1-x) c(x)) for a factorisation with kernel c. For V: ``W_i = l (r W_(i-1) - (1-r) G_(i-1)) + (l-1)
G_i`` and ``V = W + G``. The factor 1 - x takes the running sum away: with `random_walk`, V is exactly what it would be
if each unit sent its update with fresh noise z and nothing else.

The vector of ones has l = 1: hidden noise never moves the centroid, released noise does. Eigenvectors are orthonormal,
so with iid units

    disagreement_i = E (1/P) sum_p |model_p - centroid|^2 = (d s^2/P) sum_(l, less one l = 1) (k_0^2 + ... + k_i^2)

where k is the series that multiplies z, d the number of coordinates and s the standard deviation of z; the centroid
moves by d s^2/P times the sum of squares for l = 1. These are expectations over the noise alone: what data and sampling
make of disagreement comes on top, in the same amount for all noise.

**Random noise.** Unit p gets noise of its own from each neighbour m, and none from itself, so that
``W_i = A psi_i + H_i`` where the rows of H_i are independent, with variance ``s^2 q_p``, q_p the sum of a_pm^2 over
neighbours. On a unit eigenvector u of A with eigenvalue l the noise in W_i is h_i + l r h_(i-1) + ..., with variance
``s^2 sum_p u_p^2 q_p`` for each h. Eigenvectors are orthogonal, so disagreement and centroid are sums as above. If the
own term has noise too (the paper's equation 8), q_p has a_pp^2 in addition.

References
----------
"Privatized graph federated learning", eqs. 6-8, 47 and Lemma 3 (network disagreement).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray
from gossamer.errors import SpecError, TopologyError
from gossamer.privacy.accounting.gaussian_dp import gaussian_mu
from gossamer.privacy.streams import graph_bounds
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, NoiseLaw, Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, Noise, RandomNoise, UpdateBound
from gossamer.topology.mixing import Matrix, check_connected, rho


@dataclass(frozen=True)
class ModelNoise:
    """Expected squares of the noise in the units' models, after each round, [rounds] each.

    Attributes
    ----------
    disagreement : ndarray
        Mean over units of the squared distance from the centroid, in L2 norm.
    centroid : ndarray
        Squared distance of the centroid from where it would be without noise.
    """

    disagreement: FloatArray
    centroid: FloatArray

    @property
    def figures(self) -> dict[str, float]:
        """Both, as the mean over all rounds and after the last one."""
        found: dict[str, float] = {}
        for name, squares in {"disagreement": self.disagreement, "centroid": self.centroid}.items():
            found |= {name: float(squares.mean()), f"last_{name}": float(squares[-1])}
        return found


def model_noise(
    noise: Noise,
    mixing: Matrix,
    size: int,
    gradient_at: GradientAt,
    contraction: float = 1.0,
    *,
    own_term: bool = False,
) -> ModelNoise:
    """Expected squares of the noise in the models that gradients are taken at.

    Parameters
    ----------
    noise : CorrelatedNoise or RandomNoise
        Noise of every unit, independent from unit to unit; the ``links`` of random noise are not looked at.
    mixing : array-like [units, units]
        A: symmetric, doubly stochastic, connected, for at least 2 units; with every a_pp > 0 for homomorphic noise.
    size : int
        d, coordinates of the model.
    gradient_at : GradientAt
        Models that gradients are taken at; with random noise they are hidden.
    contraction : float
        r, in (0, 1].
    own_term : bool
        Whether with random noise the own term has noise, too.

    Raises
    ------
    TopologyError
        The mixing matrix is not such a matrix.
    SpecError
        The noise is too large for floating-point numbers.
    """
    deviation, units = noise.standard_deviation, mixing.shape[0]
    scale = size * deviation * deviation / units
    if not math.isfinite(scale):
        raise SpecError(
            f"noise of standard deviation {deviation:g} in {size} coordinates is above the largest floating-point "
            "number; a larger epsilon, or a smaller step size, needs less"
        )
    if isinstance(noise, CorrelatedNoise):
        factorisation, where = noise.factorisation, GradientAt(gradient_at)
        apart = np.zeros(factorisation.rounds)
        for eigenvalue, count in zip(*(found.tolist() for found in mixing_spectrum(mixing))):
            apart += count * _squares(factorisation, where, eigenvalue, contraction)
        return ModelNoise(scale * apart, scale * _squares(factorisation, where, 1.0, contraction))
    dense = _checked(mixing)
    received = np.square(dense).sum(axis=1) - (0.0 if own_term else np.square(np.diagonal(dense)))
    eigenvalues, vectors = np.linalg.eigh(dense)
    powers = (contraction * eigenvalues) ** 2
    kept = np.cumsum(powers[:, None] ** np.arange(noise.rounds), axis=1) * (np.square(vectors).T @ received)[:, None]
    return ModelNoise(scale * kept[:-1].sum(axis=0), scale * kept[-1])  # in ascending order, so 1 is the last


def mixing_spectrum(mixing: Matrix) -> tuple[FloatArray, npt.NDArray[np.int64]]:
    """Eigenvalues of A less one 1, and how often each comes, for a matrix that carries homomorphic noise.

    Raises
    ------
    TopologyError
        The matrix is not symmetric, doubly stochastic and connected, a unit gives its own model no weight, or there is
        one unit only.
    """
    dense = _checked(mixing)
    without = np.flatnonzero(np.diagonal(dense) <= 0)
    if without.size:
        raise TopologyError(
            f"homomorphic noise is taken back in each unit's own term, which needs a weight a_pp > 0; unit "
            f"{without[0]} has {dense[without[0], without[0]]:g}"
        )
    # Rounded, so that equal ones of a symmetric graph are computed once.
    eigenvalues = np.round(np.linalg.eigvalsh(dense)[:-1], 12)
    return np.unique(eigenvalues, return_counts=True)


def links_of(mixing: Matrix) -> tuple[tuple[float, int], ...]:
    """a_pp and the number of neighbours of each unit, as `graph_bounds.RandomNoise` takes them.

    Raises
    ------
    TopologyError
        The matrix is not symmetric, doubly stochastic and connected, or there is one unit only.
    """
    dense = _checked(mixing)
    neighbours = np.count_nonzero(dense, axis=1) - (np.diagonal(dense) != 0)
    return tuple(zip(np.diagonal(dense).tolist(), neighbours.tolist()))


def _checked(mixing: Matrix) -> FloatArray:
    """The matrix, dense."""
    rho(mixing)  # symmetric and doubly stochastic
    check_connected(mixing)
    dense = np.asarray(mixing if isinstance(mixing, np.ndarray) else mixing.toarray(), np.float64)
    if len(dense) < 2:
        raise TopologyError("graph federated learning needs at least 2 units, found 1")
    return dense


def _squares(factorisation: Factorisation, where: GradientAt, eigenvalue: float, contraction: float) -> FloatArray:
    """k_0^2 + ... + k_i^2 of an eigenvalue, [rounds]."""
    from scipy.signal import lfilter  # slow to import, and seldom needed

    noise = np.zeros(factorisation.rounds)
    noise[: factorisation.noise_kernel.size] = factorisation.noise_kernel
    above = [eigenvalue - 1.0] if where is GradientAt.HIDDEN else [eigenvalue, -eigenvalue]
    series = lfilter(above, [1.0, -eigenvalue * contraction], noise)
    return np.cumsum(series**2)


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
        Figures to be proved of all rounds together, for `UpdateBound.unit`.
    rounds : int
        T.
    update : UpdateBound
        Bound on what one change moves.
    size : int
        d, coordinates of the model.
    mixing : array-like [units, units]
        A, as for `model_noise`.
    contraction : float
        r, how much a gradient step shrinks differences of models; 1 leaves curvature out.
    measure : Measure
        Measure that is to be least.
    law : NoiseLaw
        Law of z. With Laplace noise epsilon is proved at delta 0.
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
        Noise with the least standard deviation.
    mu_g : float
        Proved of it, at most what the guarantee allows; of Laplace noise, its epsilon.
    figures : dict of str to float
        Expected network disagreement that the noise causes, and expected squared move of the centroid, by measure.
    """

    noise: CorrelatedNoise
    mu_g: float
    figures: dict[str, float]


def plan_noise(problem: NoiseProblem, among: Iterable[Factorisation] | None = None) -> list[NoiseChoice]:
    """The least noise of each factorisation: least disagreement first, then the centroid's, then the state kept.

    Parameters
    ----------
    problem : NoiseProblem
        Problem that noise is planned for.
    among : iterable of Factorisation, optional
        Factorisations that are tried; all kinds by default.

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
    return sorted(choices, key=lambda choice: _cost(choice, problem.measure))


def _cost(choice: NoiseChoice, measure: Measure) -> tuple[float, float]:
    # Nine digits: what differs by rounding alone is equal, and the order of `factorisations` decides.
    which = "last_" if measure is Measure.LAST else ""
    return float(f"{choice.figures[f'{which}disagreement']:.8e}"), float(f"{choice.figures[f'{which}centroid']:.8e}")


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
    allowed, of = problem.allowed, (problem.update, problem.size)
    found = replace(noise, standard_deviation=privacy_loss(replace(noise, standard_deviation=1.0), *of) / allowed)
    while privacy_loss(found, *of) > allowed:  # by rounding
        found = replace(found, standard_deviation=float(np.nextafter(found.standard_deviation, math.inf)))
    return found


def privacy_loss(noise: Noise, update: UpdateBound, size: int) -> float:
    """mu_G of Gaussian noise; the epsilon of Laplace noise in ``size`` coordinates."""
    gaussian = noise.law is NoiseLaw.GAUSSIAN
    return (
        graph_bounds.gaussian_mu_of(noise, update) if gaussian else graph_bounds.laplace_epsilon_of(noise, update, size)
    )


def _choice(problem: NoiseProblem, factorisation: Factorisation) -> NoiseChoice:
    noise = least_noise(CorrelatedNoise(factorisation, 1.0, problem.law), problem)
    caused = model_noise(noise, problem.mixing, problem.size, problem.update.gradient_at, problem.contraction)
    found = privacy_loss(noise, problem.update, problem.size)
    return NoiseChoice(noise, found, caused.figures)
