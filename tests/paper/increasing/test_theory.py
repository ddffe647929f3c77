"""Paper 4 (increasing sample sizes): the sizes of C.2.2, and C.1's masks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.reference.hogwild_masks import masks, step

from gossamer.algorithms.increasing.settings import TheorySizes
from gossamer.vectors import Coordinates, Public, spread


@pytest.mark.parametrize(("d", "m"), [(0, 60), (1, 200)])
def test_sizes_of_the_schedule_theory(d: int, m: int) -> None:
    """C.2.2 has (m+i+1)/(16 (d+1)^2)/ln((m+i+1)/(2 (d+1)))."""
    assert TheorySizes(m=m, d=d).at(np.arange(5)).tolist() == pytest.approx(
        [x / (16 * (d + 1) ** 2) / math.log(x / (2 * (d + 1))) for x in range(m + 1, m + 6)]
    )


@pytest.mark.parametrize("support", [[0], [1, 4], [0, 2, 3, 6, 7]])
def test_masks_are_right_in_the_mean(support: list[int]) -> None:
    """Equation (8): d_xi E[S_u] = D_xi, with pieces of floor or ceil(|D_xi|/D), none empty."""
    for d in [1, 2, 3, 5, 9]:
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
