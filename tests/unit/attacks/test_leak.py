"""Arithmetic of leak audits: units of the noise, what rounding explains, and noise that is not what it should be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gossamer.attacks.leak import CHANCE, NoiseScale, repeated, rounding, silent, to_units
from gossamer.privacy.mechanisms import Gaussian, Poisson
from gossamer.privacy.tasks import Query


def query(clip: float, multiplier: float, share: float = 0.0, unit: float = 1.0) -> Query:
    return Query(Poisson(0.5), Gaussian(clip, multiplier), 8.0, share, unit)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.9])
@pytest.mark.parametrize("unit", [1.0, 3.0])
def test_an_example_at_the_clip_and_its_vote_have_length_one(share: float, unit: float) -> None:
    """(1 - r) + 4 r / 4 = 1: a vector of length C, and a vote of 1/2; as the noise of both is charged together."""
    asked = query(2.5, 1.7, share, unit)
    summed = np.array([1.5, 2.0, 0.5])  # the sum has length 2.5 = C, the vote is 1/2
    answer = summed / asked.normaliser / np.array([unit, unit, 1.0])
    assert np.linalg.norm(to_units(answer, asked, 2.5)) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5])
def test_in_units_noise_has_the_multiplier_that_is_charged(share: float) -> None:
    """`Mechanism.divided` says how sum and count share it; both come out as z in every coordinate."""
    asked = query(2.5, 1.7, share)
    law, of_count = asked.mechanism.divided(share)
    assert isinstance(law, Gaussian)
    deviations = [law.standard_deviation, law.standard_deviation] + [of_count] * bool(share)
    np.testing.assert_allclose(to_units(np.array(deviations) / 8.0, asked, 2.5), 1.7, rtol=1e-14)


@pytest.mark.parametrize("examples", [1, 7, 200])
def test_rounding_explains_what_float32_does(examples: int) -> None:
    """Two sums that differ in one clipped example, in single precision, are at most the sensitivity and that apart."""
    generator = np.random.default_rng(examples)
    for _ in range(50):
        each = generator.standard_normal((examples + 1, 20)).astype(np.float32)
        each /= np.linalg.norm(each, axis=1, keepdims=True)
        each[-1] = -each[0]
        noise = 30 * generator.standard_normal(20).astype(np.float32)
        one, other = (np.add.reduce(each[some], axis=0) + noise for some in (slice(0, -1), slice(1, None)))
        a, b = one.astype(np.float64), other.astype(np.float64)
        assert np.linalg.norm(a - b) <= 2 + rounding(a, b, examples, 2.0**-24)
    assert rounding(a, b, examples, 2.0**-24) < 0.01


def test_a_number_without_noise_is_found() -> None:
    noise = np.random.default_rng(1).standard_normal((3, 5))
    assert silent(list(noise)) is None
    noise[:2, 3] = 0
    assert silent(list(noise)) is None
    noise[2, 3] = 0
    assert silent(list(noise)) == 3


@pytest.mark.parametrize("roundoff", [2.0**-53, 2.0**-24])
def test_the_same_noise_at_another_scale_is_found(roundoff: float) -> None:
    generator = np.random.default_rng(2)
    noise = list(generator.standard_normal((40, 6)))
    assert repeated(noise, roundoff) is None
    noise[31] = -2.5 * noise[7] * (1 + 100 * roundoff * generator.standard_normal(6))
    assert repeated(noise, roundoff) is None  # it is the other way round
    noise[31] *= -1
    assert repeated(noise, roundoff) == (7, 31)
    assert repeated([one[:3] for one in noise], roundoff) is None


@pytest.mark.parametrize(("factor", "found"), [(1.0, False), (0.5, True), (2.0, True)])
def test_another_standard_deviation_is_found(factor: float, found: bool) -> None:
    """With the right one once in 10^12; half of it or twice, over 400 numbers, is missed less often than that."""
    scale, generator = NoiseScale(), np.random.default_rng(3)
    for _ in range(80):
        one, other = 1.7 * factor * generator.standard_normal((2, 5))
        scale.add(one - other, 1.7)
    assert (scale.wrong is not None) is found
    assert math.isclose(CHANCE, 1e-12)
    if found:
        assert scale.wrong == pytest.approx(factor, rel=0.2)


def test_of_few_numbers_nothing_is_said() -> None:
    scale = NoiseScale()
    assert scale.wrong is None
    scale.add(np.array([0.1, -0.2]), 1.0)
    assert scale.wrong is None
