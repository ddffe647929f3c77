"""Chords between points of a divergence: never below it, and close."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import log_ndtr

from gossamer.privacy.pairs import Chords, GaussianFull, table

FloatArray = npt.NDArray[np.float64]


@pytest.mark.parametrize("mu", [1e-3, 0.3, 5.0])
def test_chords_are_above_a_gaussian_pair_and_close_to_it(mu: float) -> None:
    pair = GaussianFull(mu)
    top = pair.largest(1e-40)
    chords = table(lambda losses: (losses, pair.divergence(losses)), np.linspace(0.0, top, 50))
    losses = np.random.default_rng(0).uniform(0, top, 3000)
    exact = pair.divergence(losses)
    assert (chords.at(losses) >= exact * (1 - 1e-12)).all()
    depth = -np.log(exact)
    assert (chords.at(losses) <= exact * (1 + 4e-5 * (1 + depth) * (1 + (depth / 90) ** 2))).all()
    assert chords.at(np.array([2 * top])) == chords.divergences[-1]


def test_neighbours_that_are_far_apart_do_not_cancel() -> None:
    """A chord from 1 down to 1e-200: the share of the higher end is all that is left next to the lower one."""
    chords = Chords(np.array([0.0, 2.0, 3.0]), np.array([1.0, 1e-200, 1e-250]))
    near = 2.0 - 2**-50
    share = -np.expm1(near - 2.0) / -np.expm1(-2.0)
    assert chords.at(np.array([2.0, near])) == pytest.approx([1e-200, share], rel=1e-12)


def test_points_that_rounding_leaves_at_one_loss_are_as_good_as_the_largest() -> None:
    losses = np.array([0.0, 1.0, 1.0, 1.0 - 1e-16, 2.0])

    def known(points: FloatArray) -> tuple[FloatArray, FloatArray]:
        return np.interp(points, np.arange(5.0), losses), np.exp(log_ndtr(-points))

    chords = table(known, np.arange(5.0))
    assert (np.diff(chords.losses) > 0).all()
    assert chords.at(np.array([1.0]))[0] == np.exp(log_ndtr(-1.0))
    flat = table(lambda points: (np.zeros_like(points), np.full_like(points, 0.25)), np.arange(3.0))
    assert chords.at(np.array([0.0]))[0] == 0.5
    assert flat.at(np.array([0.0, 5.0])).tolist() == [0.25, 0.25]
