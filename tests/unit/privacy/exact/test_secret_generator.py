"""Secret numbers in the place of numpy's generator: exact where they are integers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from gossamer.privacy.exact.secret_randomness import FreshNumbers, SecretRandomness
from gossamer.privacy.mechanisms import FixedSize, L2Laplace, Laplace, NeighboringRelation, Poisson, WithReplacement


class Repeated(SecretRandomness):
    """Words that a test chooses."""

    def __init__(self, *calls: list[int]) -> None:
        self.calls = list(calls)

    def words(self, count: int) -> np.ndarray:
        found = self.calls.pop(0)
        assert len(found) == count
        return np.array(found, np.uint64)


def uniform(counts: Counter[object], outcomes: int) -> None:
    """All outcomes as often as each other: wrong with probability 1e-6 by the chi-squared law."""
    observed = np.array([*counts.values()] + [0] * (outcomes - len(counts)))
    assert len(observed) == outcomes
    statistic = float(((observed - observed.mean()) ** 2 / observed.mean()).sum())
    assert statistic < stats.chi2.isf(1e-6, outcomes - 1)


def test_orders_are_all_equally_likely() -> None:
    """False alarm: 1e-6."""
    generator = SecretRandomness()
    uniform(Counter(tuple(generator.permutation(4).tolist()) for _ in range(4800)), math.factorial(4))


def test_sets_are_all_equally_likely() -> None:
    """False alarm: 1e-6."""
    draw = FixedSize(5, 2).draw
    found = Counter(tuple(draw(FreshNumbers().at(0), 5).tolist()) for _ in range(4000))
    assert set(found) <= set(itertools.combinations(range(5), 2))
    uniform(found, 10)


def test_a_tie_is_drawn_again() -> None:
    """Keys 7, 7, 1 are refused, whatever order a sort would give them."""
    generator = Repeated([7, 7, 1], [9, 5, 7])
    assert generator.permutation(3).tolist() == [1, 2, 0]


def test_every_member_of_a_poisson_sample_has_a_coin() -> None:
    """All 8 samples of 3 examples at rate 1/4, against their probabilities: false alarm 1e-6."""
    rate, draws = 0.25, 8000
    found = Counter(tuple(Poisson(rate).draw(FreshNumbers().at(0), 3).tolist()) for _ in range(draws))
    statistic = 0.0
    for size in range(4):
        for sample in itertools.combinations(range(3), size):
            expected = draws * rate**size * (1 - rate) ** (3 - size)
            statistic += (found.pop(sample, 0) - expected) ** 2 / expected
    assert not found
    assert statistic < stats.chi2.isf(1e-6, 7)


def test_draws_with_replacement_and_slots_are_uniform() -> None:
    """False alarm: 3e-6."""
    generator = SecretRandomness()
    pairs = Counter(tuple(WithReplacement(3, 2).draw(generator, 3).tolist()) for _ in range(3600))
    uniform(pairs, 9)
    uniform(Counter(Poisson(0.5).slots(generator, 6000, 6).tolist()), 6)
    uniform(Counter(tuple(FixedSize(9, 3).slots(generator, 3, 3).tolist()) for _ in range(3000)), 6)


def test_shapes() -> None:
    generator = SecretRandomness()
    assert generator.integers(5, (2, 3)).shape == (2, 3)
    assert generator.integers(5, 4).shape == (4,)
    assert generator.integers(1, (0, 3)).shape == (0, 3)
    assert generator.permutation(0).tolist() == []
    assert generator.binomial(0, 0.5) == 0
    assert generator.standard_normal(3, dtype=np.float32).dtype == np.float32
    with pytest.raises(NotImplementedError):
        generator.choice(3, 2, replace=True, shuffle=False)


@pytest.mark.parametrize(
    ("draw", "law"),
    [
        (lambda g: g.standard_normal(20_000), stats.norm()),
        (lambda g: g.laplace(1.0, 2.0, 20_000), stats.laplace(1.0, 2.0)),
        (lambda g: np.array([g.gamma(1.0, 2.0) for _ in range(4000)]), stats.gamma(1.0, scale=2.0)),
        (lambda g: np.array([g.gamma(7850, 0.5) for _ in range(4000)]), stats.gamma(7850, scale=0.5)),
        (lambda g: np.array([g.gamma(11_000_000, 1.0) for _ in range(2000)]), stats.gamma(11_000_000)),
    ],
    ids=["normal", "laplace", "exponential", "gamma", "large gamma"],
)
def test_floating_point_numbers_have_their_law(draw: Callable[[SecretRandomness], np.ndarray], law: object) -> None:
    """Kolmogorov and Smirnov: false alarm 1e-6."""
    assert stats.kstest(draw(SecretRandomness()), law.cdf).pvalue > 1e-6  # type: ignore[attr-defined]


def test_tails_are_the_inverse_at_both_ends() -> None:
    """A word's lowest bit is the sign; the other 63 are the tail, whose least is 2^-65."""
    generator = Repeated([0, 1, (1 << 64) - 1])
    low, high, middle = generator.standard_normal(3)
    assert low == -high
    assert low == pytest.approx(stats.norm.ppf(2.0**-65), rel=1e-12)
    assert middle == 0
    generator = Repeated([1 << 63, 1 + (1 << 63)])  # probability a quarter on either side
    np.testing.assert_allclose(generator.laplace(0.0, 1.0, 2), [-math.log(2), math.log(2)])
    assert Repeated([1 << 63]).gamma(1.0, 1.0) == pytest.approx(-math.log(0.75))
    assert Repeated([1 + (1 << 63)]).gamma(1.0, 1.0) == pytest.approx(-math.log(0.25))


@pytest.mark.parametrize("law", [L2Laplace(1.0, 0.5, NeighboringRelation.ADD_OR_REMOVE_ONE), Laplace(1.0, 0.5)])
def test_noise_laws_take_it(law: L2Laplace | Laplace) -> None:
    """The mean square of 400 draws of 50 numbers: within 6 standard errors, of which the largest is 5 %."""
    squares = [float((law.noise(FreshNumbers().at(0), 50, np.float64) ** 2).sum()) for _ in range(400)]
    error = np.std(squares) / math.sqrt(len(squares))
    assert abs(np.mean(squares) - law.second_moment(50)) < 6 * error < 0.3 * law.second_moment(50)


def test_fresh_numbers_do_not_depend_on_the_number() -> None:
    fresh = FreshNumbers()
    assert fresh.at(3).integers(1 << 62, 4).tolist() != fresh.at(3).integers(1 << 62, 4).tolist()
