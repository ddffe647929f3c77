"""Paper 4 (increasing sample sizes): B.3 for any g, C.1's masks, and C.2.1's constant steps."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.reference.hogwild_masks import masks, step

from gossamer.algorithms.increasing.delay import ConstantSteps, DelayedSizes
from gossamer.algorithms.increasing.sizes import TheorySizes
from gossamer.errors import SpecError
from gossamer.vectors import Coordinates, Public, spread


def flat(z: float) -> float:
    return 1.0


def slow(z: float) -> float:
    """A logarithm that is at least 1: gamma'(z) z is at most 1, and g/(g - 1) at most 3 for g >= 1.5."""
    return 3 + math.log(1 + z)


@pytest.mark.parametrize("gamma", [flat, slow], ids=["constant", "logarithm"])
@pytest.mark.parametrize("g", [1.5, 2.0, 3.0])
@pytest.mark.parametrize(("d", "m"), [(0, 0), (1, 0), (1, 30), (3, 10)])
def test_sizes_keep_to_the_delay(gamma: object, g: float, d: int, m: int) -> None:
    """Condition (2), tau(s_0 + ... + s_i) >= s_(i-d) + ... + s_i for i >= d + 1; and sizes do grow, as i^(1/(g-1))."""
    schedule = DelayedSizes(g, gamma, d, m)  # type: ignore[arg-type]
    sizes = [schedule.size(i) for i in range(300)]
    made = np.cumsum(sizes)
    for i in range(d + 1, 300):
        assert schedule.tau(float(made[i])) >= sum(sizes[i - d : i + 1])
    if gamma is flat:
        expected = ((m + 300) / (d + 1) * (g - 1) / g) ** (1 / (g - 1)) / (d + 1)
        assert sizes[-1] == math.ceil(expected)
    doubled = [2 * size for size in sizes]
    if g == 1.5 and gamma is flat:  # sizes twice as large do not: the condition is not empty
        made = np.cumsum(doubled)
        assert any(schedule.tau(float(made[i])) < sum(doubled[i - d : i + 1]) for i in range(d + 1, 300))


@pytest.mark.parametrize(("d", "m"), [(0, 60), (1, 200)])
def test_for_g_2_it_is_the_schedule_theory(d: int, m: int) -> None:
    """C.2.2 has gamma(z) = 4 ln z: S(x)/(d + 1) is (m+i+1)/(16 (d+1)^2)/ln((m+i+1)/(2 (d+1)))."""
    schedule = DelayedSizes(2.0, lambda z: 4 * math.log(z), d, m)
    for i in (0, 1, 7, 100, 5000):
        x = m + i + 1
        assert schedule.size(i) == math.ceil(x / (16 * (d + 1) ** 2) / math.log(x / (2 * (d + 1))))
    assert TheorySizes(m=m, d=d).at(np.arange(5)).tolist() == pytest.approx(
        [x / (16 * (d + 1) ** 2) / math.log(x / (2 * (d + 1))) for x in range(m + 1, m + 6)], abs=1
    )


def test_constant_steps() -> None:
    """By hand: eta = 1e-3, mu = 0.1, L = 1, Delta = 1/4, tau = 10: C_1 = 6, C_2 = 0.5006."""
    steps = ConstantSteps(1e-3, 0.1, 1.0, 0.25)
    assert steps.longest_delay == pytest.approx(10_000)
    assert (steps.largest_size(0), steps.largest_size(1)) == (10_000, 5_000)
    assert steps.largest_eta(10) == pytest.approx(1 / (5 * 11 * math.sqrt(1.1)))
    ball = (4e-3 * (6 + 10 * 0.5006) / 0.1 + 2e-6 * 6 * 10) * 3.0
    assert steps.squared_distance(1000, 10, 4.0, 3.0) == pytest.approx(8 * (1 - 1e-4) ** 1000 + ball)
    with pytest.raises(SpecError, match="with a delay of 10000 the bound needs"):
        steps.squared_distance(1, 10_000, 1.0, 1.0)
    with pytest.raises(SpecError, match="0 < mu <= L"):
        ConstantSteps(1e-3, 2.0, 1.0)


@pytest.mark.parametrize("d", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("support", [[0], [1, 4], [0, 2, 3, 6, 7]])
def test_masks_are_right_in_the_mean(d: int, support: list[int]) -> None:
    """Equation (8): d_xi E[S_u] = D_xi, with pieces of floor or ceil(|D_xi|/D), none empty."""
    found = masks(np.array(support), 8, d)
    whole = np.zeros(8)
    whole[support] = 1
    assert len(found) == min(d, len(support))
    assert np.array_equal(len(found) * np.mean(found, axis=0), whole)
    assert {int(one.sum()) for one in found} <= {len(support) // len(found), -(-len(support) // len(found))}
    assert len(masks(np.array(support), 8, 1)) == 1  # equation (10)
    assert all(one.sum() == 1 for one in masks(np.array(support), 8, 8))  # equation (9)


@pytest.mark.parametrize("parts", [1, 3, 8])
def test_parts_of_the_model_are_such_masks_too(parts: int) -> None:
    """Of a full support: `Coordinates` splits the whole model, and is scaled by D."""
    found = []
    for u in range(parts):
        where = Coordinates(u, parts)
        found.append(np.asarray(spread(Public(np.ones(where.count(8))), where, 8).values))
    assert np.array_equal(parts * np.mean(found, axis=0), np.ones(8))
    assert {int(one.sum()) for one in found} <= {8 // parts, -(-8 // parts)}


def test_masked_steps_find_the_same_minimum() -> None:
    """Of logistic regression on rows (1, 1) and (1, -1), whose labels are 3 to 1 for and against: w = (0, ln 3).

    The mean of the second half of 20,000 steps has a deviation of 0.034 over 12 seeds; 0.2 is six of them, and
    the seed is fixed. Masks that are not scaled by d_xi have the same minimum; their first step is half as long.
    """
    rows = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0]])
    examples = [(rows[0], 1.0)] * 3 + [(rows[0], -1.0)] + [(rows[1], -1.0)] * 3 + [(rows[1], 1.0)]
    rng = np.random.default_rng(0)
    model, mean = np.zeros(3), np.zeros(3)
    first = step(model, rows[0], 1.0, 1.0, 2, rng)
    assert sorted(first.tolist()) == [0.0, 0.0, 1.0]  # 2 * 1/2 at one place of the support
    for t in range(20_000):
        x, y = examples[rng.integers(len(examples))]
        model = step(model, x, y, 1.0 / (1 + 0.01 * t), 2, rng)
        mean += model * (t >= 10_000) / 10_000
    assert mean == pytest.approx([0.0, math.log(3), 0.0], abs=0.2)
