"""Disagreement and drift of the centroid by noise: against all units' models as linear forms of all noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from tests.reference.graph_slow import mixing, model_spread, noise_factor

from gossamer.algorithms.graph_federated.noise import (
    links_of,
    mixing_spectrum,
    model_noise,
)
from gossamer.errors import SpecError, TopologyError
from gossamer.privacy.streams.correlated_noise import CorrelatedNoise, Factorisation, Temporal
from gossamer.privacy.streams.graph_bounds import GradientAt, RandomNoise
from gossamer.topology.graphs import Graph
from gossamer.topology.mixing import metropolis

HIDDEN, RELEASED = GradientAt.HIDDEN, GradientAt.RELEASED
PATH = np.array([[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]])


def correlated(temporal: str, rounds: int, bands: int | None = None, deviation: float = 1.0) -> CorrelatedNoise:
    return CorrelatedNoise(Factorisation(Temporal(temporal), rounds, bands), deviation)


@pytest.mark.parametrize("contraction", [1.0, 0.8, 0.3])
@pytest.mark.parametrize("where", [HIDDEN, RELEASED])
@pytest.mark.parametrize(
    ("temporal", "bands"), [("independent", None), ("random_walk", None), ("sqrt_toeplitz", None), ("banded", 3)]
)
def test_expected_squares(temporal: str, bands: int | None, where: GradientAt, contraction: float) -> None:
    rounds, size, deviation = 6, 5, 1.7
    b = noise_factor(temporal, rounds, bands)
    matrices = [mixing(units, np.random.default_rng(units)) for units in (2, 4)]
    for a in (*matrices, PATH, np.full((3, 3), 1 / 3), np.array([[0.1, 0.9], [0.9, 0.1]])):
        found = model_noise(correlated(temporal, rounds, bands, deviation), a, size, where, contraction)
        exact = model_spread(a, b, contraction, released=where is RELEASED)
        scale = size * deviation**2
        assert found.disagreement == pytest.approx(scale * exact.apart, rel=1e-6, abs=1e-9)
        assert found.centroid == pytest.approx(scale * exact.centroid, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("own_term", [False, True])
@pytest.mark.parametrize("contraction", [1.0, 0.7])
def test_expected_squares_of_random_noise(contraction: float, own_term: bool) -> None:
    """Against models as linear forms of the noise of every link in every round."""
    rounds, size, deviation = 5, 4, 1.3
    noise = RandomNoise(rounds, deviation, ((0.5, 1),))
    matrices = [mixing(units, np.random.default_rng(units)) for units in (2, 4)]
    for a in (*matrices, PATH, np.full((3, 3), 1 / 3)):
        units = len(a)
        forms = np.zeros((units, rounds, units, units))  # of model p: by round, receiver and sender
        found = model_noise(noise, a, size, HIDDEN, contraction, own_term=own_term)
        for i in range(rounds):
            forms = contraction * np.einsum("pm,m...->p...", a, forms)
            for p in range(units):
                for m in range(units):
                    forms[p, i, p, m] += a[p, m] * (own_term or m != p)
            centroid = forms.mean(axis=0)
            apart = np.square(forms - centroid).sum() / units
            assert found.disagreement[i] == pytest.approx(size * deviation**2 * apart, rel=1e-9)
            assert found.centroid[i] == pytest.approx(size * deviation**2 * np.square(centroid).sum(), rel=1e-9)


def test_noise_above_the_largest_number_is_refused() -> None:
    for noise in (RandomNoise(3, 1e300, ((0.5, 1),)), correlated("independent", 3, deviation=1e300)):
        with pytest.raises(SpecError, match="largest floating-point number"):
            model_noise(noise, PATH, 2, HIDDEN)


def test_hidden_noise_cancels_in_the_centroid_and_released_noise_does_not() -> None:
    for temporal in ("independent", "random_walk", "sqrt_toeplitz"):
        assert not model_noise(correlated(temporal, 8), PATH, 3, HIDDEN).centroid.any()
        assert model_noise(correlated(temporal, 8), PATH, 3, RELEASED).centroid.min() > 0


def test_closed_forms_on_two_units() -> None:
    """The other eigenvalue is l = 1 - 2a, once in two units: independent noise makes (1-l)^2 (1 + l^2 + ...)/2."""
    a, rounds = 0.3, 5
    matrix = np.array([[1 - a, a], [a, 1 - a]])
    powers = (1 - 2 * a) ** (2 * np.arange(rounds))
    found = model_noise(correlated("independent", rounds), matrix, 1, HIDDEN).disagreement
    assert found == pytest.approx((2 * a) ** 2 * np.cumsum(powers) / 2, rel=1e-12)
    # With a random walk and released models each unit adds z, and all average: l^2 + l^4 + ...
    found = model_noise(correlated("random_walk", rounds), matrix, 1, RELEASED).disagreement
    assert found == pytest.approx((1 - 2 * a) ** 2 * np.cumsum(powers) / 2, rel=1e-12)


def test_sparse_and_dense_matrices_are_the_same() -> None:
    sparse = metropolis(Graph(6, np.array([[i, (i + 1) % 6] for i in range(6)])))
    noise = correlated("banded", 9, 3)
    found = [model_noise(noise, matrix, 2, HIDDEN).disagreement for matrix in (sparse, sparse.toarray())]
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    eigenvalues, counts = mixing_spectrum(sparse)
    assert eigenvalues == pytest.approx([-1 / 3, 0, 2 / 3])  # 1/3 + 2/3 cos(2 pi k/6)
    assert counts.tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([[0.5, 0.5], [0.4, 0.6]], "doubly stochastic"),
        ([[0.5, math.nan], [0.5, 0.5]], "finite"),
        ([[1.5, -0.5], [-0.5, 1.5]], ">= 0"),
        ([[0.2, 0.3, 0.5], [0.5, 0.2, 0.3], [0.3, 0.5, 0.2]], "symmetric"),
        ([[1.0, 0.0], [0.0, 1.0]], "connects all its nodes, found 2 groups"),
        ([[0.0, 0.5, 0.5], [0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], "a_pp > 0; unit 0 has 0"),
        ([[1.0]], "at least 2 units"),
        ([[0.5, 0.5]], "square"),
    ],
)
def test_matrices_that_cannot_carry_homomorphic_noise_are_refused(matrix: list[list[float]], message: str) -> None:
    for given in (np.array(matrix), csr_array(np.array(matrix))):
        with pytest.raises(TopologyError, match=message) as caught:
            mixing_spectrum(given)
        assert "\n" not in str(caught.value)


def test_links() -> None:
    assert links_of(PATH) == ((0.75, 1), (0.5, 2), (0.75, 1))
    assert links_of(csr_array(PATH)) == links_of(PATH)
    assert links_of(np.array([[0.0, 1.0], [1.0, 0.0]])) == ((0.0, 1), (0.0, 1))
    with pytest.raises(TopologyError, match="symmetric"):
        links_of(np.array([[0.2, 0.3, 0.5], [0.5, 0.2, 0.3], [0.3, 0.5, 0.2]]))
    with pytest.raises(TopologyError, match="connects"):
        links_of(np.eye(2))
