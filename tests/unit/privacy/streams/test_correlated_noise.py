"""Factorisations of the matrix of ones: against matrices, all moves of small systems, and the figures of the page."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm
from tests.reference.graph_slow import factor, noise_factor, signs

from gossamer.errors import SpecError
from gossamer.privacy.accounting.gaussian_dp import gaussian_delta
from gossamer.privacy.streams.correlated_noise import Factorisation, Temporal, square_root_kernel

KINDS: list[tuple[str, int | None]] = [
    ("independent", None),
    ("random_walk", None),
    ("sqrt_toeplitz", None),
    ("banded", 1),
    ("banded", 2),
    ("banded", 4),
]


def cases(largest: int) -> list[Any]:
    return [
        pytest.param(temporal, rounds, bands, id=f"{temporal}{bands or ''}-{rounds}")
        for temporal, bands in KINDS
        for rounds in range(1, largest + 1)
        if bands is None or bands < rounds
    ]


@pytest.mark.parametrize(("temporal", "rounds", "bands"), cases(9))
def test_kernels_are_first_columns_of_factors_of_the_matrix_of_ones(
    temporal: str, rounds: int, bands: int | None
) -> None:
    made = Factorisation(Temporal(temporal), rounds, bands)
    for kernel, matrix in (
        (made.kernel, factor(temporal, rounds, bands)),
        (made.noise_kernel, noise_factor(temporal, rounds, bands)),
    ):
        padded = np.zeros(rounds)
        padded[: kernel.size] = kernel
        assert padded == pytest.approx(matrix[:, 0], abs=1e-7)  # sqrtm of a defective matrix keeps half the digits
        assert kernel.min() > 0
        assert np.diagonal(matrix) == pytest.approx(np.full(rounds, kernel[0]), abs=1e-7)
    assert made.message_variances == pytest.approx((noise_factor(temporal, rounds, bands) ** 2).sum(axis=1), rel=1e-6)


def joint_sensitivity(factor: Any) -> float:
    """sqrt(sum_jk |(C'C)_jk|): at least sqrt(max <C'C, X>, X psd, X_jj <= 1), exact where C'C has no negative entry."""
    c = np.asarray(factor, np.float64)
    return float(np.sqrt(np.abs(c.T @ c).sum()))


@pytest.mark.parametrize(("temporal", "rounds", "bands"), cases(6))
def test_sensitivities_are_the_largest_moves(temporal: str, rounds: int, bands: int | None) -> None:
    """In one dimension the largest |C d| is at a corner; in more, no moves of length at most 1 exceed it."""
    made, c = Factorisation(Temporal(temporal), rounds, bands), factor(temporal, rounds, bands)
    assert made.sensitivity == pytest.approx(max(np.linalg.norm(c @ d) for d in signs(rounds)), rel=1e-7)
    assert made.absolute_sum == pytest.approx(max(np.abs(c @ d).sum() for d in signs(rounds)), rel=1e-7)
    assert made.sensitivity == pytest.approx(joint_sensitivity(c), rel=1e-7)
    generator = np.random.default_rng(rounds)
    for _ in range(200):
        moves = generator.standard_normal((rounds, 3))
        moves /= np.linalg.norm(moves, axis=1, keepdims=True)
        assert np.linalg.norm(c @ moves) <= made.sensitivity * (1 + 1e-7)


def test_the_bound_for_factors_with_negative_entries_holds_and_may_be_loose() -> None:
    generator = np.random.default_rng(5)
    ratios = []
    for _ in range(200):
        rounds = int(generator.integers(2, 6))
        c = np.tril(generator.standard_normal((rounds, rounds)))
        largest = max(np.linalg.norm(c @ d) for d in signs(rounds))
        ratios.append(joint_sensitivity(c) / largest)
    assert min(ratios) >= 1 - 1e-12
    assert max(ratios) > 1.05
    # C 1 would be no bound: here it is (1, 0), and the moves (1, -1) give (1, -2).
    assert joint_sensitivity([[1.0, 0.0], [-1.0, 1.0]]) == pytest.approx(math.sqrt(5))


@pytest.mark.some(3)
@pytest.mark.parametrize("temporal", ["independent", "random_walk", "sqrt_toeplitz"])
@pytest.mark.parametrize("cut", [-1.0, 0.5, 2.0])
def test_no_adaptive_choice_of_two_updates_reveals_more(temporal: str, cut: float) -> None:
    """The second update moves forwards or backwards by what the first message was: its loss is integrated exactly.

    Given y_1 the second record is N(m, 1) against N(0, 1), and loses what the first has left of epsilon.
    """
    c = factor(temporal, 2)
    s = Factorisation(Temporal(temporal), 2).sensitivity
    first = c[0, 0]
    worst = 0.0
    for forwards in (True, False):

        def delta_at(y: float, loss: float, forwards: bool = forwards) -> float:
            move = c[1, 0] + c[1, 1] * (1 if (y > cut) == forwards else -1)
            left = loss - (first * y - first**2 / 2)  # what the second record still has to lose
            if move == 0:
                return float(norm.pdf(y)) * max(0.0, math.exp(loss - left) - math.exp(loss))
            m = abs(move)
            p, q = norm.cdf(m / 2 - left / m), norm.cdf(-m / 2 - left / m)
            return float(norm.pdf(y - first) * p - math.exp(loss) * norm.pdf(y) * q)

        for loss in (0.0, 0.5, 1.5, 3.0):
            delta = quad(delta_at, -12, 14, args=(loss,), points=[cut], limit=400)[0]
            assert delta <= gaussian_delta(s, loss) + 1e-9
            worst = max(worst, delta / gaussian_delta(s, loss))
    assert worst > 0.05  # for the random walk it is 1: all signs move z as far, and adaptivity gains nothing


def test_the_figures_at_200_rounds() -> None:
    """At the same largest variance of a message: 1639, 200, 265, and 208 for 16 bands; at least 5 times less."""

    def cost(temporal: Temporal, bands: int | None = None) -> float:
        made = Factorisation(temporal, 200, bands)
        return made.sensitivity * math.sqrt(made.message_variances.max())

    independent = cost(Temporal.INDEPENDENT)
    assert independent == pytest.approx(math.sqrt(200 * 201 * 401 / 6), rel=1e-12)  # sum of squares; 1639.1
    assert cost(Temporal.RANDOM_WALK) == pytest.approx(200, rel=1e-12)
    assert cost(Temporal.SQRT_TOEPLITZ) == pytest.approx(265, abs=0.5)
    assert cost(Temporal.BANDED, 16) == pytest.approx(208, abs=0.5)
    for temporal in (Temporal.RANDOM_WALK, Temporal.SQRT_TOEPLITZ):
        assert independent / cost(temporal) >= 5


@pytest.mark.parametrize(("temporal", "rounds", "bands"), cases(12))
def test_no_factorisation_is_below_the_lower_bound(temporal: str, rounds: int, bands: int | None) -> None:
    """Last row of B times C 1 is T, so by Cauchy and Schwarz the product is at least T."""
    made = Factorisation(Temporal(temporal), rounds, bands)
    assert made.sensitivity * math.sqrt(made.message_variances[-1]) >= rounds * (1 - 1e-12)


def test_square_root_kernel() -> None:
    assert square_root_kernel(5) == pytest.approx([math.comb(2 * j, j) / 4**j for j in range(5)], rel=1e-15)
    many = square_root_kernel(3000)
    assert np.convolve(many, many)[:3000] == pytest.approx(np.ones(3000), rel=1e-10)


@pytest.mark.parametrize(("temporal", "rounds", "bands"), cases(6))
def test_loss_of_the_noise(temporal: str, rounds: int, bands: int | None) -> None:
    """By matrices: messages of both streams are N(A d, block diagonal of B B')."""
    made = Factorisation(Temporal(temporal), rounds, bands)
    ones = np.tril(np.ones((rounds, rounds)))
    for drawn in range(rounds):
        again = made.after_loss(drawn)
        assert again.rounds == rounds - drawn
        b = np.zeros((rounds, rounds))
        b[:drawn, :drawn] = noise_factor(temporal, rounds, bands)[:drawn, :drawn]
        b[drawn:, drawn:] = noise_factor(again.temporal.value, again.rounds, again.bands)
        shift = np.linalg.solve(b, ones)
        largest = max(np.linalg.norm(shift @ d) for d in signs(rounds))
        assert made.sensitivity_after_loss(drawn) == pytest.approx(largest, rel=1e-6)
    assert made.sensitivity_after_loss(0) == pytest.approx(made.sensitivity, rel=1e-12)


def test_what_is_left_after_a_loss() -> None:
    banded = Factorisation(Temporal.BANDED, 10, 4)
    assert banded.after_loss(5) == Factorisation(Temporal.BANDED, 5, 4)
    assert banded.after_loss(6) == Factorisation(Temporal.SQRT_TOEPLITZ, 4)
    for drawn in (-1, 10):
        with pytest.raises(SpecError, match=f"from 0 to 9, found {drawn}"):
            banded.after_loss(drawn)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("independent", 0), "rounds must be a whole number > 0, found 0"),
        (("independent", -3), "found -3"),
        (("random_walk", 2.0), "found 2.0"),
        (("random_walk", True), "found True"),
        (("random_walk", math.nan), "found nan"),
        (("random_wlk", 5), "'random_wlk' is not a valid Temporal"),
        (("banded", 5), "bands must be a whole number, at least 1 and below the 5 rounds, found None"),
        (("banded", 5, 5), "found 5; use sqrt_toeplitz"),
        (("banded", 5, 0), "found 0"),
        (("sqrt_toeplitz", 5, 2), "bands are for temporal: banded, found 2 with sqrt_toeplitz"),
    ],
)
def test_impossible_factorisations_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Factorisation(*arguments)
    assert "\n" not in str(caught.value)


def test_description_is_plain_data_and_decodes() -> None:
    made = Factorisation(Temporal.BANDED, 10, 4)
    assert made.describe() == {"temporal": "banded", "rounds": 10, "bands": 4}
    assert Factorisation(**made.describe()) == made
    assert type(Factorisation("random_walk", 3).temporal) is Temporal  # type: ignore[arg-type]
    assert Factorisation(Temporal.RANDOM_WALK, 3).describe() == {"temporal": "random_walk", "rounds": 3}
