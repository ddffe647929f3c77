"""What is provided for in computed sums, against sums of fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from gossamer.data.examples import Split
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective
from gossamer.privacy.mechanisms import FixedSize, Poisson, WithReplacement
from gossamer.sides import sums
from gossamer.sides.sums import NETWORK_SLACK, UNLIKELY, Rounding, clip_slack, largest_batch

if TYPE_CHECKING:
    from gossamer.objectives.networks.module import TorchModule


@pytest.mark.parametrize("count", [1, 10, 1500, 60_000])
def test_larger_samples_are_as_unlikely_as_said(count: int) -> None:
    for rate in [1e-6, 0.001, 0.04, 0.5, 1.0]:
        most = largest_batch(Poisson(rate), count)
        assert 1 <= most <= count
        assert stats.binom.sf(most, count, rate) <= UNLIKELY


def test_what_is_provided_for_is_no_more_than_it_has_to_be() -> None:
    """Bernstein's bound against the exact tail: not far beyond it."""
    exact = next(k for k in range(64, 400) if stats.binom.logsf(k, 1500, 64 / 1500) <= math.log(UNLIKELY))
    assert exact <= largest_batch(Poisson(64 / 1500), 1500) <= 1.2 * exact


@pytest.mark.parametrize("sampling", [FixedSize(100, 7), WithReplacement(100, 7)])
def test_fixed_samples_are_as_large_as_they_are(sampling: FixedSize | WithReplacement) -> None:
    assert largest_batch(sampling, 100) == 7


@pytest.mark.parametrize(
    ("count", "piece", "expected"),
    [(0, 4, [[]]), (3, 4, [[0, 1, 2]]), (4, 4, [[0, 1, 2, 3]]), (9, 4, [[0, 1, 2, 3], [4, 5, 6, 7], [8]])],
)
def test_pieces_are_every_example_once(count: int, piece: int, expected: list[list[int]]) -> None:
    rounding = Rounding(100, piece, np.dtype(np.float32), 0.0)
    assert [list(range(count))[run] for run in rounding.pieces(count)] == expected


def model(dtype: type, features: int = 5) -> LinearModel:
    return LinearModel("squared", features, None, dtype=np.dtype(dtype))


def test_pieces_get_smaller_as_samples_get_larger_down_to_a_smallest() -> None:
    small, large = (Rounding.of(model(np.float32), FixedSize(n, n), n) for n in (1000, 100_000))
    assert small.piece * small.most * 2.0**-24 == pytest.approx(sums.SHARE, rel=0.02)
    assert large.piece == sums.SMALLEST_PIECE
    assert Rounding.of(model(np.float64), FixedSize(10**6, 10**6), 10**6).piece == 10**6
    assert Rounding.of(model(np.float32), FixedSize(9, 4), 9).piece == sums.SMALLEST_PIECE


def one_by_one(numbers: np.ndarray) -> float:
    """The sum, rounded to the numbers' type after every addition."""
    return float(np.add.accumulate(numbers)[-1])


@pytest.mark.parametrize("count", [2, 16, 300, 2000])
def test_the_error_of_additions_covers_the_worst_that_was_found(count: int) -> None:
    """Equal numbers, whose additions round to one side for long: covered in pieces and without, and without them within
    a factor of 20 of what is attained. Pieces are what makes the bound small."""
    whole, pieces = (Rounding(count, piece, np.dtype(np.float32), 0.0) for piece in (count, 16))
    worst = 0.0
    for value in np.random.default_rng(count).uniform(0.5, 1, 300).astype(np.float32):
        numbers, true = np.full(count, value), count * Fraction(float(value))
        parts = np.array([one_by_one(numbers[run]) for run in pieces.pieces(count)])
        errors = [abs(float(Fraction(found) - true)) for found in (one_by_one(numbers), one_by_one(parts))]
        assert errors[0] <= whole.error(float(value))
        assert errors[1] <= pieces.error(float(value)) <= whole.error(float(value)) * 1.001
        worst = max(worst, errors[0] / whole.error(float(value)))
    if count == 2000:
        assert worst > 1 / 20
        assert pieces.error(1.0) < whole.error(1.0) / 50


def test_a_whole_clipped_sum_errs_by_its_own_rounding_alone() -> None:
    whole = Rounding.of_clipped_sum(model(np.float32))
    assert whole.error(2.0) < 2.0 * 2.0**-21
    assert 0 < whole.slack < 2.0**-22


def squared_length(values: list[float]) -> Fraction:
    """The exact sum of squares: floats are whole numbers over powers of two, so over the largest one of those."""
    ratios = [value.as_integer_ratio() for value in values]
    most = max(denominator for _, denominator in ratios)
    return Fraction(sum((numerator * (most // denominator)) ** 2 for numerator, denominator in ratios), most**2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("features", [1, 30, 4000])
def test_gradients_of_linear_models_are_no_longer_than_the_slack_says(dtype: type, features: int) -> None:
    """Of 200 examples each, clipped to some norms, in exact arithmetic."""
    generator = np.random.default_rng(features)
    data = Split(generator.normal(0, 3, (200, features)).astype(np.float32), generator.normal(0, 9, 200))
    objective = model(dtype, features)
    slack = clip_slack(objective)
    assert slack < 1e-6
    point = generator.normal(0, 1, (1, objective.size)).astype(dtype)
    longest = 0.0
    for row in range(len(data)):
        clip = float(generator.uniform(0.01, 3))
        found = objective.clipped_gradients(point, data, [np.array([row])], clip).sums[0]
        square = squared_length(found.tolist())
        longest = max(longest, math.sqrt(square / Fraction(clip) ** 2))
        assert square <= (Fraction(clip) * (1 + Fraction(slack))) ** 2
    assert longest > 1 - 1e-6


def test_a_network_has_more_room() -> None:
    class Network(Objective):
        """An objective that is no linear model."""

        size, dtype, parts, l2 = 3, np.dtype(np.float32), (), 0.0
        initial = clipped_gradients = evaluate = None

    assert clip_slack(Network()) == NETWORK_SLACK == 2.0**-10


def amplifier(network: TorchModule) -> np.ndarray:
    """An mlp whose logits are rounding errors made large: of products that cancel, to the last bit or not."""
    generator = np.random.default_rng(1)
    weights = {part.name: np.zeros(part.shape, np.float32) for part in network.parts}
    first, second, last = (weights[f"{name}.weight"] for name in ("hidden1", "hidden2", "output"))
    a, b = generator.integers(1, 2**12, (2, 66, 784)).astype(np.float32)
    first[:66], first[66:132], first[132:198] = a, b, a + b
    for unit in range(66):
        for sign, row in ((1, unit), (-1, 66 + unit)):
            second[row, [unit, 66 + unit]], second[row, 132 + unit] = sign * 1e8, -sign * 1e8
    last[:] = generator.choice([-1, 1], last.shape) * 1e3
    return np.concatenate([part.ravel() for part in weights.values()])


def test_no_model_turns_other_examples_gradients_when_one_comes_or_goes() -> None:
    """A peer chooses the model. Kernels of networks round differently for 15 rows and for 16."""
    pytest.importorskip("torch")
    from gossamer.objectives.models import build_model
    from gossamer.objectives.networks.module import TorchModule

    generator, count, clip = np.random.default_rng(1), 40, 1.0
    images = generator.random((count, 1, 28, 28), dtype=np.float32)
    network = TorchModule(build_model("mlp", (1, 28, 28), 10), loss="cross_entropy")
    data, hostile = Split(images, generator.integers(0, 10, count)), amplifier(network)
    rounding = Rounding.of(network, Poisson(0.4), count)
    sums = []
    for rows in (np.arange(16), np.arange(15)):
        found = [
            network.clipped_gradients(hostile[None], data, [rows[run]], clip) for run in rounding.pieces(len(rows))
        ]
        sums.append(sum(gradients.sums[0].astype(np.float64) for gradients in found))
    assert rounding.piece == 1
    assert np.linalg.norm(sums[0] - sums[1]) <= rounding.clip(clip) + 2 * rounding.error(clip)
