"""Noise on a grid: what rounding moves, what the noise is worth, and epsilons against sums over all outcomes."""

from __future__ import annotations

import itertools
import math
import re
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp
from tests.reference.grid_accounting import grid_epsilon

from gossamer.errors import AccountingError, SpecError
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.privacy.exact.grid_noise import (
    MOST,
    SMOOTHING,
    GridGaussian,
    discrete_gaussian,
    smoothing_error,
    summation_error,
)
from gossamer.privacy.mechanisms import FixedSize, Gaussian, NeighboringRelation, Poisson, ReleaseKind, WithReplacement

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE


def words(seed: int) -> Callable[[int], np.ndarray]:
    generator = np.random.default_rng(seed)
    return lambda count: generator.integers(0, 2**64, count, dtype=np.uint64)


# The grid


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_are_exact_sums_on_the_grid(dtype: type) -> None:
    noise = GridGaussian(1.0, 2.0**-20, 2**20 + 3, 5000)
    total = np.random.default_rng(0).normal(0, 3, 5000).astype(dtype)
    answer = noise.release(total, words(1))
    drawn = discrete_gaussian(words(1), noise.scale, 5000)
    for value, integer, found in zip(total.tolist(), drawn.tolist(), answer.tolist(), strict=True):
        assert Fraction(found) == (round(Fraction(value) * 2**20) + integer) * Fraction(1, 2**20)


def test_a_large_release_has_little_beside_its_answer() -> None:
    size = 2**21 + 1
    noise, total = GridGaussian(1.0, 2.0**-30, 2**25, size), np.full(size, 0.1)
    draw = words(1)
    tracemalloc.start()
    noise.release(total, draw)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most <= 2 * 8 * size  # bytes: an eighth each for some arrays of a piece
    assert (total == 0.1).all()


def test_rounding_moves_sums_apart_by_half_a_step_each_and_no_more() -> None:
    noise = GridGaussian(1.0, 0.25, 100, 9)
    near = np.full(9, 0.125)
    below, above = np.nextafter(near, 0), np.nextafter(near, 1)
    moved = (noise.rounded(above) - noise.rounded(below)) * noise.step
    assert np.linalg.norm(moved) == 0.25 * 3  # g sqrt(d), of sums that are the same but for their last bit
    clip = np.full(9, 1 / 3)
    moved = (noise.rounded(above + clip - 1e-9) - noise.rounded(below)) * noise.step
    assert np.linalg.norm(moved) <= noise.sensitivity(ADD_OR_REMOVE)
    assert noise.sensitivity(ADD_OR_REMOVE) == pytest.approx(1 + 0.75, rel=1e-11)
    assert noise.sensitivity(REPLACE) == pytest.approx(2 + 0.75, rel=1e-11)
    generator = np.random.default_rng(0)
    for _ in range(200):
        total, other = generator.normal(0, 5, (2, 9))
        other = total + other / np.linalg.norm(other) * generator.uniform(0, 1)
        moved = (noise.rounded(total) - noise.rounded(other)) * noise.step
        assert np.linalg.norm(moved) <= np.linalg.norm(total - other) + 0.75 + 1e-12


def test_nothing_is_refused_and_nothing_wraps_around() -> None:
    noise = GridGaussian(1.0, 2.0**-44, 2**44, 6)
    total = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-310])
    assert noise.rounded(total).tolist() == [MOST, -MOST, 0, MOST, -MOST, 0]
    answer = noise.release(total, words(0))
    assert np.isfinite(answer).all()
    assert (np.abs(answer / noise.step) < 2**53).all()
    assert GridGaussian(1.0, 2.0**-900, 100, 1).rounded(np.array([1e200])).tolist() == [MOST]
    assert GridGaussian(1.0, 2.0**900, 100, 1).rounded(np.array([1e-200])).tolist() == [0]


@pytest.mark.parametrize("shape", [(4,), (6,), (5, 1), ()])
def test_a_sum_has_its_size(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="sums of 5 coordinates"):
        GridGaussian(1.0, 0.5, 100, 5).release(np.zeros(shape), words(0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip": 0.0}, "clip must be a finite number > 0"),
        ({"clip": math.inf}, "clip must be a finite number > 0"),
        ({"error": -1.0}, "error must be a finite number >= 0"),
        ({"error": math.nan}, "error must be a finite number >= 0"),
        ({"step": 0.3}, "power of two"),
        ({"step": -0.5}, "power of two"),
        ({"step": 0.0}, "power of two"),
        ({"step": math.inf}, "power of two"),
        ({"step": 2.0**-901}, "power of two"),
        ({"scale": 15}, "steps wide"),
        ({"scale": 2**44 + 1}, "steps wide"),
        ({"scale": 20.0}, "steps wide"),
        ({"size": 0}, "size must be a whole number > 0"),
    ],
)
def test_numbers_out_of_range_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        GridGaussian(**{"clip": 1.0, "step": 0.5, "scale": 20, "size": 3, **change})  # type: ignore[arg-type]


def test_it_describes_itself() -> None:
    noise = GridGaussian(1.0, 0.5, 20, 3, 0.1)
    assert noise.describe() == {
        "mechanism": "GridGaussian", "clip": 1.0, "step": 0.5, "scale": 20, "size": 3, "error": 0.1
    }  # fmt: skip
    assert noise.standard_deviation == 10.0


# Noise like continuous noise


@pytest.mark.parametrize("error", [0.0, 0.01])
def test_noise_like_another_is_as_private_and_hardly_more(error: float) -> None:
    for size, clip, multiplier in itertools.product([1, 10**4, 10**7], [1e-9, 0.3, 1.0, 1e6], [0.01, 0.5, 1.0, 30.0]):
        wanted = Gaussian(clip, multiplier)
        noise = GridGaussian.like(wanted, size, error=error * clip)
        assert noise.equivalent.noise_multiplier >= multiplier
        assert noise.standard_deviation >= wanted.standard_deviation
        assert noise.standard_deviation <= wanted.standard_deviation * (1 + 2 * error) * (1 + 2**-16 + 2**-10)
        assert noise.step * math.sqrt(size) <= 2**-16 * clip
        assert noise.scale >= 2**10
        assert noise.clip == clip and noise.error == error * clip  # noqa: PT018


def test_the_step_may_be_given_and_is_paid_for_in_noise() -> None:
    noise = GridGaussian.like(Gaussian(1.0, 2.0), 10_000, step=2.0**-10)
    assert noise.step == 2.0**-10
    assert noise.standard_deviation == pytest.approx(2.0 * (1 + 100 / 1024), rel=1e-3)
    with pytest.raises(SpecError, match="steps wide"):
        GridGaussian.like(Gaussian(1.0, 2.0), 10_000, step=2.0**-60)
    with pytest.raises(SpecError, match="tiny"):
        GridGaussian.like(Gaussian(1e-290, 2.0), 10_000)


def test_noise_like_another_makes_up_for_the_smoothing() -> None:
    """20.99 steps of noise: 21 have the variance of 20.9 and so are too few."""
    noise = GridGaussian.like(Gaussian(15.0, 20.99 / 16), 1, step=1.0)
    assert noise.scale == 22
    assert noise.equivalent.noise_multiplier >= 20.99 / 16


def test_an_equivalent_has_the_larger_clip_and_the_smaller_variance() -> None:
    noise = GridGaussian(3.0, 0.5, 16, 16, error=0.25)
    found = noise.equivalent
    assert found.clip == pytest.approx(3 + 0.5 + 0.5 * 4, rel=1e-11)
    assert found.standard_deviation == pytest.approx(0.5 * math.sqrt(16**2 - 2**2), rel=1e-11)
    assert noise.sensitivity(REPLACE) == pytest.approx(6 + 0.5 + 2, rel=1e-11)
    assert noise.rho(REPLACE) == pytest.approx(8.5**2 / (2 * 64), rel=1e-11)
    assert found.clip > 5.5
    assert found.standard_deviation < 0.5 * math.sqrt(16**2 - 2**2)


@pytest.mark.parametrize("smoothing", [0.5, 0.6, 0.8])
@pytest.mark.parametrize("extra", [0.03, 0.3, 5.0])
def test_what_is_left_of_continuous_noise_is_discrete_noise(smoothing: float, extra: float) -> None:
    """By the trapezoidal rule: the law of K is as near as it says, and with little noise before it no nearer."""
    variance = smoothing**2 + extra
    y = np.linspace(-32, 32, 20_001)
    density = np.exp(-(y**2) / (2 * extra))
    everything = np.arange(-80, 81)
    weights = np.exp(-((everything[:, None] - y) ** 2) / (2 * smoothing**2))
    kernel = weights[60:101] / weights.sum(0)
    processed = (kernel * density).sum(1) / density.sum()
    exact = np.exp(-(everything**2) / (2 * variance))
    exact = exact[60:101] / exact.sum()
    apart = np.abs(np.log(processed / exact)).max()
    assert apart <= smoothing_error(smoothing) + 1e-12
    assert apart > 0.5 * smoothing_error(smoothing) or extra > 0.1


def test_the_smoothing_error_is_that_of_the_series() -> None:
    for smoothing in (0.5, 0.7, 2.0):
        tau = 2 * sum(math.exp(-2 * math.pi**2 * smoothing**2 * m**2) for m in range(1, 20))
        exact = math.log1p(tau) - math.log1p(-tau)
        assert exact <= smoothing_error(smoothing) <= exact * (1 + 1e-9) + 1e-30
    assert smoothing_error(SMOOTHING) < 2.1e-34


# Epsilon, against sums over all outcomes


def outcomes(scale: int) -> np.ndarray:
    """Probabilities of -24 s to 24 s."""
    law = np.exp(-(np.arange(-24 * scale, 24 * scale + 1.0) ** 2) / (2 * scale**2))
    return law / law.sum()


def true_delta(p: np.ndarray, q: np.ndarray, releases: int, at: float) -> float:
    """Of so many releases, each p on one data set and q on the other, over all outcomes."""
    ahead, behind = p.ravel(), q.ravel()
    for _ in range(releases - 1):
        ahead, behind = np.multiply.outer(ahead, p.ravel()).ravel(), np.multiply.outer(behind, q.ravel()).ravel()
    return float(np.maximum(ahead - math.exp(at) * behind, 0).sum())


def shifted(law: np.ndarray, by: int) -> np.ndarray:
    return np.concatenate([np.zeros(by), law[:-by]])


@pytest.mark.parametrize(("rate", "releases"), [(1.0, 1), (1.0, 2), (0.1, 1), (0.1, 2), (0.5, 2)])
@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_epsilon_covers_the_true_loss_in_one_dimension(
    rate: float, releases: int, relation: NeighboringRelation
) -> None:
    """Sums 16 steps apart, by a clip of 15 and rounding. Never less than needed, and hardly more."""
    noise, delta = GridGaussian(15.0, 1.0, 20, 1), 1e-4
    found = grid_epsilon({(noise, Poisson(rate)): releases}, delta, relation).epsilon
    law = outcomes(20)
    ahead, back = shifted(law, 16), shifted(law[::-1], 16)[::-1]
    with_it = rate * ahead + (1 - rate) * law
    without = law if relation is ADD_OR_REMOVE else rate * back + (1 - rate) * law
    pairs = [(with_it, without), (without, with_it)]
    assert max(true_delta(p, q, releases, found) for p, q in pairs) <= delta
    assert max(true_delta(p, q, releases, 0.985 * found - 0.002) for p, q in pairs) > delta


@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_epsilon_covers_the_true_loss_in_two_dimensions(rate: float) -> None:
    """Sums (9, 12) steps apart: 15, by a clip of 15 - sqrt(2) and rounding."""
    noise, delta = GridGaussian(15.0 - math.sqrt(2), 1.0, 16, 2), 1e-5
    found = grid_epsilon({(noise, Poisson(rate)): 1}, delta, ADD_OR_REMOVE).epsilon
    law = outcomes(16)
    without = np.multiply.outer(law, law)
    with_it = rate * np.multiply.outer(shifted(law, 9), shifted(law, 12)) + (1 - rate) * without
    pairs = [(with_it, without), (without, with_it)]
    assert max(true_delta(p, q, 1, found) for p, q in pairs) <= delta
    assert max(true_delta(p, q, 1, 0.98 * found - 0.002) for p, q in pairs) > delta


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0])
def test_one_release_is_as_concentrated_as_it_says(order: float) -> None:
    noise = GridGaussian(15.0, 1.0, 20, 1)
    law = np.log(outcomes(20))
    p, q = law[16:], law[:-16]
    found = float(logsumexp(order * p + (1 - order) * q)) / (order - 1)
    assert found <= noise.rho(ADD_OR_REMOVE) * order * (1 + 1e-9)
    assert found >= 0.99 * noise.rho(ADD_OR_REMOVE) * order


def test_noise_like_another_costs_no_epsilon() -> None:
    wanted, sampling = Gaussian(0.5, 1.1), FixedSize(1000, 20)
    noise = GridGaussian.like(wanted, 7850)
    found = grid_epsilon({(noise, sampling): 500}, 1e-5, REPLACE)
    continuous = epsilon({ReleaseKind(wanted, sampling, 7850): 500}, 1e-5, REPLACE)
    assert found.epsilon <= continuous.epsilon * (1 + 1e-9)
    assert found.epsilon >= continuous.epsilon * (1 - 1e-4)
    assert "discrete Gaussian on a grid" in found.accountant


def test_the_remainder_is_counted() -> None:
    """In 4e24 coordinates the factor exp(eta) shows; a delta below what the sampler loses proves nothing."""
    noise = GridGaussian(1e12, 1.0, 2**43, 4 * 10**24)
    sampling, delta = Poisson(1.0), 1e-5
    found = grid_epsilon({(noise, sampling): 1}, delta, ADD_OR_REMOVE).epsilon
    kind = ReleaseKind(noise.equivalent, sampling, 1)
    continuous = epsilon({kind: 1}, delta * (1 - 1e-9), ADD_OR_REMOVE).epsilon
    eta = 4e24 * smoothing_error(2.0)
    assert found - continuous == pytest.approx(2 * eta, rel=0.01)
    assert math.isinf(grid_epsilon({(noise, sampling): 2}, delta, ADD_OR_REMOVE).epsilon)
    small = GridGaussian(1.0, 2.0**-10, 2**10, 10)
    assert grid_epsilon({(small, sampling): 1}, 1e-34, ADD_OR_REMOVE).epsilon < 30
    assert math.isinf(grid_epsilon({(small, sampling): 1}, 1e-37, ADD_OR_REMOVE).epsilon)
    loud = GridGaussian(100.0, 2.0**-10, 2**10, 10)
    assert math.isinf(grid_epsilon({(loud, sampling): 1}, 1e-5, ADD_OR_REMOVE).epsilon)


def test_releases_of_one_multiplier_are_counted_together() -> None:
    noise, sampling = GridGaussian(1.0, 2.0**-10, 2**10, 4), Poisson(0.1)
    doubled = GridGaussian(2.0, 2.0**-9, 2**10, 4)
    assert noise.equivalent.noise_multiplier == doubled.equivalent.noise_multiplier
    together = grid_epsilon({(noise, sampling): 3, (doubled, sampling): 4}, 1e-5, ADD_OR_REMOVE)
    assert together == grid_epsilon({(noise, sampling): 7}, 1e-5, ADD_OR_REMOVE)
    assert grid_epsilon({}, 1e-5, ADD_OR_REMOVE).epsilon == 0.0


def test_what_is_not_accounted_for_is_refused() -> None:
    noise = GridGaussian(1.0, 2.0**-10, 2**10, 4)
    with pytest.raises(AccountingError, match="WithReplacement"):
        grid_epsilon({(noise, WithReplacement(10, 2)): 1}, 1e-5, ADD_OR_REMOVE)
    with pytest.raises(AccountingError, match="delta"):
        grid_epsilon({(noise, Poisson(0.1)): 1}, 0.0, ADD_OR_REMOVE)
    with pytest.raises(AccountingError, match="a count of releases"):
        grid_epsilon({(noise, Poisson(0.1)): -1}, 1e-5, ADD_OR_REMOVE)


# Errors of the sum itself


def test_the_error_of_a_sum() -> None:
    """Against exact sums, of numbers whose float32 sums go wrong the most: many small ones after a large one."""
    bound = summation_error(1.0, 1001, np.float32)
    vectors = np.full((1001, 1), 2.0**-24 * 0.999, np.float32)
    vectors[0] = 1.0
    found = np.float32(0)
    for vector in vectors[:, 0]:
        found = np.float32(found + vector)
    exact = math.fsum(vectors[:, 0].tolist())
    assert 0 < abs(float(found) - exact) <= bound
    assert bound == pytest.approx(1000 * 2.0**-24 * 1001, rel=1e-3)
    assert summation_error(3.0, 1001, np.float64) == pytest.approx(3 * 1000 * 2.0**-53 * 1001, rel=1e-3)
    assert summation_error(1.0, 1, np.float32) == 0.0
    assert summation_error(1.0, 2, np.float64) == pytest.approx(2 * 2.0**-53, rel=1e-9)
    with pytest.raises(SpecError, match="may be all error"):
        summation_error(1.0, 2**24, np.float32)


# The page

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "privacy" / "safe-noise.md").read_text(encoding="utf-8")


def test_the_page_runs() -> None:
    pytest.importorskip("cryptography", reason="needs the extra: secure")
    (block,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    exec(compile(block, "safe-noise.md", "exec"), {})


def test_the_page_has_the_costs() -> None:
    """The first table's percentages are those of the formula and of noise that is drawn for such a step, as printed."""
    rows = re.findall(r"^\| 2\^(-\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 5
    for exponent, cells in rows:
        for cell, size in zip(cells.split(" | "), (10**4, 10**6, 11 * 10**6), strict=True):
            printed = float(cell.removesuffix(" %").replace("10^-5", "1e-5")) / 100
            step = 2.0 ** int(exponent)
            assert step * math.sqrt(size) == pytest.approx(printed, rel=0.1)
            found = GridGaussian.like(Gaussian(1.0, 1.0), size, step=step).standard_deviation - 1
            assert found == pytest.approx(step * math.sqrt(size), rel=0.02, abs=2 * step)


def test_the_page_has_the_epsilons() -> None:
    (steps,) = re.findall(r"^\| g \| (2\^-10 \| 2.*) \|$", PAGE, re.MULTILINE)
    (printed,) = re.findall(r"^\| epsilon \| (.*) \|$", PAGE, re.MULTILINE)
    for step, cell in zip(steps.split(" | "), printed.split(" | "), strict=True):
        fineness = int(step.removeprefix("2^-"))
        noise = GridGaussian(1.0, 2.0**-fineness, 2**fineness, 10**6)
        found = grid_epsilon({(noise, Poisson(0.01)): 3000}, 1e-5, ADD_OR_REMOVE).epsilon
        assert found == pytest.approx(float(cell), rel=2e-3)
