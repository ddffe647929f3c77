"""The sum and the count of a release on one grid: how far neighbours come apart, over all samples of small shards."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from gossamer.data.examples import Split
from gossamer.errors import SpecError
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.exact.secret_randomness import SecretRandomness
from gossamer.privacy.mechanisms import FixedSize, Gaussian, NeighboringRelation, Poisson
from gossamer.sides.sums import GridQuery, Rounding

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
SHARES = [0.0, 0.01, 0.3, 0.9]


def query(share: float = 0.0, clip: float = 1.0, multiplier: float = 1.0, count: int = 5) -> GridQuery:
    objective = LinearModel("squared", 2, None)
    rounding = Rounding.of(objective, FixedSize(count, count), count)
    return GridQuery.of(Gaussian(clip, multiplier), objective.size, rounding, share)


@pytest.mark.parametrize("share", SHARES[1:])
@pytest.mark.parametrize("clip", [0.01, 1.0, 300.0])
def test_noise_on_sum_and_count_is_that_of_the_simulated_side(share: float, clip: float) -> None:
    """z C and s_b of `clipping`, but for what the grid costs."""
    found, law = query(share, clip, 1.3), Gaussian(clip, 1.3)
    on_sum, on_count = law.divided(share)
    assert isinstance(on_sum, Gaussian)
    assert found.noise.standard_deviation == pytest.approx(on_sum.standard_deviation, rel=1e-3)
    assert found.noise.standard_deviation / found.per_example == pytest.approx(on_count, rel=1e-3)
    assert found.noise.standard_deviation >= on_sum.standard_deviation
    assert found.noise.standard_deviation / found.per_example >= on_count
    assert found.noise.size == 4


@pytest.mark.parametrize("share", SHARES)
def test_the_multiplier_that_is_charged_is_not_less_than_that_of_the_grid(share: float) -> None:
    for multiplier, clip in itertools.product([1e-4, 0.05, 1.0, 40.0], [1e-9, 0.3, 1e9]):
        noise = query(share, clip, multiplier).noise
        assert multiplier <= noise.equivalent.noise_multiplier < 1.002 * multiplier
        assert noise.clip >= clip / math.sqrt(1 - share)


def contributions(generator: np.random.Generator, count: int) -> tuple[LinearModel, Split, np.ndarray]:
    """Examples whose gradients are short and long and all lie in one direction or its opposite, or anywhere."""
    objective = LinearModel("squared", 2, None)
    features = np.where(generator.random((count, 1)) < 0.5, 1.0, generator.normal(0, 1, (count, 2)))
    targets = generator.normal(0, 1, count) * 10.0 ** generator.integers(-3, 3, count)
    return objective, Split(features.astype(np.float32), targets), generator.normal(0, 1, (1, 3)).astype(np.float32)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_no_sample_of_neighbours_comes_further_apart_than_the_noise_covers(
    share: float, relation: NeighboringRelation
) -> None:
    """The whole deployed query, as the kernels compute it, on all samples of 5 examples with any one of them removed or
    replaced: the integers that get the noise. Something near the bound is attained."""
    generator, largest, clip = np.random.default_rng(7), 0.0, 0.37
    found = query(share, clip)
    samples = [sample for size in range(7) for sample in itertools.combinations(range(6), size)]
    for _ in range(12):
        objective, data, model = contributions(generator, 6)
        batches = [np.array(sample, np.int64) for sample in samples]
        sums = objective.clipped_gradients(np.repeat(model, len(samples), axis=0), data, batches, clip)
        counts = sums.unclipped - np.array([len(sample) for sample in samples]) / 2
        steps = {
            sample: found.noise.rounded(found.vector(total, count)).astype(float)
            for sample, total, count in zip(samples, sums.sums, counts, strict=True)
        }
        for sample in samples:
            for one in sample if 5 not in sample else ():  # the sixth example takes the place of one
                rest = tuple(other for other in sample if other != one)
                there = rest if relation is ADD_OR_REMOVE else tuple(sorted((*rest, 5)))
                moved = float(np.linalg.norm(steps[sample] - steps[there])) * found.noise.step
                assert moved <= found.noise.sensitivity(relation)
                largest = max(largest, moved)
    attained = {ADD_OR_REMOVE: clip / math.sqrt(1 - share), REPLACE: 2 * clip}[relation]
    assert largest > 0.99 * attained


@pytest.mark.parametrize("share", SHARES[1:])
def test_the_bound_of_a_replaced_example_is_attained(share: float) -> None:
    """Against each other: a gradient just below the clip, and one just above it in the opposite direction."""
    found = query(share)
    one = found.vector(np.array([1.0, 0.0, 0.0]), 0.5)
    other = found.vector(np.array([-1.0, 0.0, 0.0]), -0.5)
    moved = float(np.linalg.norm((found.noise.rounded(one) - found.noise.rounded(other)).astype(float)))
    assert moved * found.noise.step == pytest.approx(found.noise.sensitivity(REPLACE), rel=1e-3)
    assert moved * found.noise.step <= found.noise.sensitivity(REPLACE)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_gradients_longer_than_the_clip_by_the_slack_are_covered(share: float) -> None:
    """Half as long again: clip, error, count and noise all grow by a half."""
    tight, loose = (Rounding(9, 9, np.dtype(np.float32), slack) for slack in (0.0, 0.5))
    found = [GridQuery.of(Gaussian(0.7, 1.2), 3, rounding, share) for rounding in (tight, loose)]
    assert found[0].noise.error >= tight.error(0.7)
    for name in ("clip", "error", "standard_deviation"):
        one, other = (getattr(each.noise, name) for each in found)
        assert other == pytest.approx(1.5 * one, rel=1e-3)
        assert other > 0
    assert found[1].per_example == pytest.approx(1.5 * found[0].per_example)


def test_the_grid_depends_on_public_numbers_alone() -> None:
    objective = LinearModel("softmax", 4, 3)
    first, second = (Rounding.of(objective, Poisson(0.1), 300) for _ in range(2))
    assert GridQuery.of(Gaussian(1.0, 2.0), 15, first, 0.1) == GridQuery.of(Gaussian(1.0, 2.0), 15, second, 0.1)
    larger = Rounding.of(objective, Poisson(0.1), 3000)
    assert (
        GridQuery.of(Gaussian(1.0, 2.0), 15, first).noise.error
        < GridQuery.of(Gaussian(1.0, 2.0), 15, larger).noise.error
    )


def test_an_answer_is_the_sum_and_the_count_with_noise() -> None:
    """At a multiplier of 1e-4, noise is below 0.01 in each but for a probability of 1e-100.

    Its deviation is of 1,876 steps, so it is 0 once in 4,700 times; in all of three answers, for one of four numbers,
    with probability 4e-11.
    """
    found, exact = query(0.2, multiplier=1e-4), [3.0, -1.0, 0.5, -1.5]
    total = np.array(exact[:3], np.float32)
    answers = np.stack([found.release(total, exact[3], SecretRandomness().words) for _ in range(3)])
    np.testing.assert_allclose(answers, [exact] * 3, atol=0.01)
    assert (answers != exact).any(axis=0).all()
    assert query(multiplier=1e-4).release(np.zeros(3), 0.0, SecretRandomness().words).shape == (3,)


@pytest.mark.parametrize(
    ("multiplier", "message"), [(1e-12, "too little for sums"), (1e9, "cannot be drawn.*steps wide")]
)
def test_noise_out_of_range_is_refused(multiplier: float, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        query(multiplier=multiplier)


def test_what_is_in_range_for_any_clip_is_in_range_for_each() -> None:
    """Noise as little, and as much, as is accepted before a run, at 200 clips of `bound_of`'s range."""
    objective = LinearModel("squared", 999, None)
    rounding = Rounding.of(objective, FixedSize(50, 50), 50)

    def fits(multiplier: float, clip: float, any_clip: bool) -> bool:
        try:
            GridQuery.of(Gaussian(clip, multiplier), 1000, rounding, 0.05, any_clip=any_clip)
        except SpecError:
            return False
        return True

    multipliers = np.geomspace(1e-12, 1e9, 400).tolist()
    accepted = [multiplier for multiplier in multipliers if fits(multiplier, 1.0, True)]
    assert multipliers[0] < accepted[0] < 1e-6
    assert 1e4 < accepted[-1] < multipliers[-1]
    for clip in 10 ** np.random.default_rng(0).uniform(-9, 9, 200):
        assert fits(accepted[0], float(clip), False)
        assert fits(accepted[-1], float(clip), False)


def test_saturation_is_refused_and_not_reached() -> None:
    """The least noise that is accepted: the largest sum there can be is within the grid's range."""
    objective = LinearModel("squared", 2, None)
    rounding = Rounding.of(objective, FixedSize(5, 5), 5)
    least = next(m for m in np.geomspace(1e-12, 1, 2000).tolist() if _fits(m, rounding))
    found = GridQuery.of(Gaussian(1.0, least), 3, rounding)
    total = np.array([5.0, 0.0, 0.0])
    assert found.noise.rounded(total)[0] * found.noise.step == 5.0


def _fits(multiplier: float, rounding: Rounding) -> bool:
    try:
        return GridQuery.of(Gaussian(1.0, multiplier), 3, rounding) is not None
    except SpecError:
        return False
