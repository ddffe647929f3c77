"""Effects of correlated homomorphic noise on the models of a graph: network disagreement, drift of the centroid.

Rows of W are the units' models, A is the mixing matrix, G_i the units' noise in round i. In the notation of
`graph_bounds`, ``W_i = A psi_i + (A - I) G_i``: neighbours add a_pm g_m and the own term takes (1-a_pp) g_p away.
The next psi is ``W_i - mu U``, with gradients at W_i (`hidden`) or at ``V_i = A (psi_i + G_i) = W_i + G_i``
(`released`).

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
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gossamer.arrays import FloatArray as FloatArray
from gossamer.errors import SpecError, TopologyError
from gossamer.privacy.streams.correlated_noise import Factorisation
from gossamer.privacy.streams.graph_bounds import GradientAt, RandomNoise
from gossamer.privacy.streams.noise_streams import CorrelatedNoise
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


def model_noise(
    noise: CorrelatedNoise, mixing: Matrix, size: int, gradient_at: GradientAt, contraction: float = 1.0
) -> ModelNoise:
    """Expected squares of the noise in the models that gradients are taken at.

    Parameters
    ----------
    noise : CorrelatedNoise
        Of every unit, independent from unit to unit.
    mixing : array-like [units, units]
        A: symmetric, doubly stochastic, connected, with every a_pp > 0, for at least 2 units.
    size : int
        d, coordinates of the model.
    gradient_at : GradientAt
        Which models.
    contraction : float
        r, in (0, 1].

    Raises
    ------
    TopologyError
        The mixing matrix is not such a matrix.
    SpecError
        The size or the contraction is out of its range, or the noise is.
    """
    eigenvalues, counts = mixing_spectrum(mixing)
    scale = _scale(noise.standard_deviation, size, int(counts.sum() + 1), contraction)
    factorisation, where = noise.factorisation, GradientAt(gradient_at)
    apart = np.zeros(factorisation.rounds)
    for eigenvalue, count in zip(eigenvalues.tolist(), counts.tolist()):
        apart += count * _squares(factorisation, where, eigenvalue, contraction)
    return ModelNoise(scale * apart, scale * _squares(factorisation, where, 1.0, contraction))


def random_model_noise(
    noise: RandomNoise, mixing: Matrix, size: int, contraction: float = 1.0, *, own_term: bool = False
) -> ModelNoise:
    """The same for noise of its own on every link.

    Parameters
    ----------
    noise : RandomNoise
        Its ``links`` are not looked at.
    mixing, size, contraction
        As for `model_noise`, but a_pp may be 0.
    own_term : bool
        Whether the own term has noise, too.

    Raises
    ------
    TopologyError
        The matrix is not symmetric, doubly stochastic and connected, or there is one unit only.
    """
    dense = _checked(mixing)
    received = np.square(dense).sum(axis=1) - (0.0 if own_term else np.square(np.diagonal(dense)))
    eigenvalues, vectors = np.linalg.eigh(dense)
    weights = np.square(vectors).T @ received
    powers = (contraction * eigenvalues) ** 2
    scale = _scale(noise.standard_deviation, size, len(dense), contraction)
    apart, together = np.zeros(noise.rounds), np.zeros(noise.rounds)
    for number, (weight, power) in enumerate(zip(weights.tolist(), powers.tolist())):
        target = together if number == len(dense) - 1 else apart  # in ascending order, so 1 is the last
        target += weight * np.cumsum(power ** np.arange(noise.rounds))
    return ModelNoise(scale * apart, scale * together)


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


def _scale(standard_deviation: float, size: int, units: int, contraction: float) -> float:
    """d s^2/P."""
    if not size >= 1:
        raise SpecError(f"a model has at least 1 coordinate, found {size!r}")
    if not 0 < contraction <= 1:
        raise SpecError(f"the contraction of a gradient step must be inside (0, 1], found {contraction!r}")
    scale = size * standard_deviation * standard_deviation / units
    if not math.isfinite(scale):
        raise SpecError(
            f"noise of standard deviation {standard_deviation:g} in {size} coordinates is above the largest "
            "floating-point number; a larger epsilon, or a smaller step size, needs less"
        )
    return scale


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
