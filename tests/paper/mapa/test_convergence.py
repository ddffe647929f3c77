"""MAPA, sections 5.2 and 6.2: Lemma 1, Theorems 2 and 4, by hand and against quadratics whose moments are exact."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

import numpy as np
import pytest

from gossamer.algorithms.edge_cloud.box import AgarwalDuchiRate
from gossamer.algorithms.mapa import stages as calculators
from gossamer.algorithms.mapa.stages import Problem, Stage, gaussian_second_moment, stages


@dataclass(frozen=True)
class Theory:
    """L, tau and Delta_b, in the terms of which the theorems are stated."""

    smoothness: float
    staleness: int
    variance: float

    @property
    def constant_rate(self) -> float:
        """1/(2 L (tau + 1)), the largest learning rate of Theorem 4 (Eq. 13)."""
        return 1 / (2 * self.smoothness * (self.staleness + 1))

    def problem(self, gap: float) -> Problem:
        return Problem(1e-200, self.smoothness, gap, self.staleness, 1)  # all variance is that of noise

    def stage(self, rate: float, updates: int) -> Stage:
        return Stage(1.0, 1.0, self.variance, 1.0, rate, updates)


THEORY = Theory(smoothness=0.5, staleness=1, variance=4.0)


def theorem_2(theory: Theory, updates: int, radius: float) -> float:
    return calculators.theorem_2(theory.problem(1.0), theory.stage(1.0, updates), updates, radius)


def theorem_4(theory: Theory, rate: float, updates: int, gap: float) -> float:
    return calculators.theorem_4(theory.problem(gap), theory.stage(rate, updates))


def convex_rate(theory: Theory) -> float:
    """1/(L (tau + 1)^2), which a learning rate has to be below in Lemma 1."""
    return 1 / (theory.smoothness * (theory.staleness + 1) ** 2)


def lemma_1(theory: Theory, rates: Sequence[float], radius: float) -> float:
    """Bound the mean of E F(x_t) - F* over the updates 1 .. T (MAPA, Lemma 1).

    F is convex, no rate is larger than the one before, and no model is further from the optimum than ``radius`` in root
    mean square; with a constant rate, the first one.
    """
    assert all(after <= before < convex_rate(theory) for before, after in pairwise([*rates, 0.0]))
    slack = sum(1 / (1 / rate - 1 / convex_rate(theory)) for rate in rates)  # the sum of c_t
    return (radius**2 / (2 * rates[-1]) + theory.variance / 2 * slack) / len(rates)


def squares(theory: Theory, rates: Sequence[float], start: float) -> list[float]:
    """E x_t^2 for t = 0 .. T of x_{t+1} = x_t - eta_t (L x_{t-tau} + e_t), e_t independent of variance Delta_b.

    The last tau + 1 models are linear in the noise, so their mean and covariance follow exactly, without any draw; the
    first models are all x_0. F(x) = L x^2 / 2 has its optimum at 0.
    """
    size = theory.staleness + 1
    mean, covariance = np.full(size, start), np.zeros((size, size))
    found = [start**2]
    for rate in rates:
        step = np.eye(size, k=-1)  # x_t moves to the second place, and so on
        step[0, 0] = 1.0
        step[0, -1] -= rate * theory.smoothness
        mean, covariance = step @ mean, step @ covariance @ step.T
        covariance[0, 0] += rate**2 * theory.variance
        found.append(float(mean[0] ** 2 + covariance[0, 0]))
    return found


def theory_rates(theory: Theory, updates: int, radius: float) -> list[float]:
    rate = AgarwalDuchiRate(smoothness=theory.smoothness, gradient_sd=0.0, radius=radius)
    return [rate.at_update(t, theory.staleness + 1, 1, theory.variance) for t in range(updates)]


def test_lemma_1_by_hand() -> None:
    """L (tau + 1)^2 = 2. With eta = 1/4, c = 1/(4 - 2) = 1/2, T = 2, R = 3: (9 4/2 + 4/2 (1/2 + 1/2))/2 = 10."""
    assert lemma_1(THEORY, [0.25, 0.25], 3.0) == pytest.approx(10)
    # eta = 1/4, 1/6: c = 1/2, 1/4, and the last step counts for R: (9 6/2 + 2 3/4)/2
    assert lemma_1(THEORY, [1 / 4, 1 / 6], 3.0) == pytest.approx((27 + 1.5) / 2)


def test_theorem_2_by_hand() -> None:
    """R = 3, T = 9: 1/2 9 4/18 + 3/2 3 sqrt(4/9) = 1 + 3."""
    assert theorem_2(THEORY, 9, 3.0) == pytest.approx(4)


def test_theorem_4_by_hand() -> None:
    """D_F = 6, eta = 1/4, T = 12: 2 6/3 + 2 1/2 1/4 4 = 4 + 1; the largest step is 1/(2 1/2 2) = 1/2."""
    assert theorem_4(THEORY, 0.25, 12, 6.0) == pytest.approx(5)
    assert THEORY.constant_rate == 0.5


@pytest.mark.parametrize("updates", [1, 10, 1000])
def test_theorem_2_is_lemma_1_with_its_step(updates: int) -> None:
    """It rounds the sum of 1/sqrt(t + 1) up to 2 sqrt(T), which is at most 2 - 1/sqrt(T) more, and nothing else."""
    exact, radius = lemma_1(THEORY, theory_rates(THEORY, updates, 3.0), 3.0), 3.0
    more = theorem_2(THEORY, updates, radius) - exact
    assert 0 <= more <= radius * math.sqrt(THEORY.variance) / 2 * 2 / updates


QUADRATICS = [
    Theory(smoothness, staleness, variance)
    for smoothness in (1.0, 3.0)
    for staleness in (0, 1, 4, 20)
    for variance in (0.01, 5.0)
]


@pytest.mark.parametrize("theory", QUADRATICS, ids=str)
def test_convex_bounds_hold_for_quadratics(theory: Theory) -> None:
    """Models stay in the ball of radius R, so that nothing but the mean error has to be compared."""
    for updates in [3, 50, 600]:
        radius = 2.0
        rates = theory_rates(theory, updates, radius)
        moments = squares(theory, rates, radius / 2)
        assert math.sqrt(max(moments)) <= radius
        mean_error = theory.smoothness / 2 * float(np.mean(moments[1:]))
        assert mean_error <= lemma_1(theory, rates, radius) <= theorem_2(theory, updates, radius) * (1 + 1e-12)
        constant = [convex_rate(theory) / 2] * updates  # with a constant step the first distance is enough
        mean_error = theory.smoothness / 2 * float(np.mean(squares(theory, constant, radius)[1:]))
        assert mean_error <= lemma_1(theory, constant, radius)


@pytest.mark.parametrize("theory", QUADRATICS, ids=str)
def test_theorem_4_holds_for_quadratics(theory: Theory) -> None:
    for share, updates in itertools.product([1.0, 0.2], [3, 50, 600]):
        rate, gap = share * theory.constant_rate, theory.smoothness / 2 * 2.0**2
        moments = squares(theory, [rate] * updates, 2.0)
        mean_square = theory.smoothness**2 * float(np.mean(moments[:-1]))
        assert mean_square <= theorem_4(theory, rate, updates, gap)


def test_the_bounds_are_not_idle() -> None:
    """On a quadratic without noise or staleness Theorem 4's is within a factor of 8, and half of it fails somewhere.

    x_{t+1} = x_t/2 from 1 with L = 1, eta = 1/2: sum x_t^2 -> 4/3, so the mean is 4/(3 T), and the bound is 2/T. After
    one update the mean is 1, and the bound 2: half of it is met with equality.
    """
    theory = Theory(1.0, 0, 0.0)
    moments = squares(theory, [0.5] * 40, 1.0)
    assert np.mean(moments[:-1]) == pytest.approx(4 / 3 / 40)
    assert theorem_4(theory, 0.5, 40, 0.5) == pytest.approx(2 / 40)
    assert theorem_4(theory, 0.5, 1, 0.5) / 2 == pytest.approx(1.0)


def test_a_penalised_stage_ends_at_the_next_clip_by_theorem_4() -> None:
    """The bound of a whole stage is (rho G)^2, less what rounding T_s up gains (section 6.2)."""
    problem = Problem(3.0, 0.25, 2.0, staleness=4, batch_size=64)
    for stage in islice(stages(problem, gaussian_second_moment(7850, 2.0, 64)), 5):
        bound = calculators.theorem_4(problem, stage)
        assert stage.learning_rate <= Theory(0.25, 4, 0.0).constant_rate
        assert bound <= (0.5 * stage.clip) ** 2 * (1 + 1e-12)
        assert bound == pytest.approx((0.5 * stage.clip) ** 2, rel=1 / stage.updates)


def test_the_published_step_is_beyond_lemma_1() -> None:
    """1/(2 L (tau + 1)) against 1/(L (tau + 1)^2): longer where tau > 1, so the theory says nothing of it."""
    rate = AgarwalDuchiRate(smoothness=0.5, gradient_sd=0.1, lag="linear")
    assert rate.at_update(0, 5, 1, 0.0) == pytest.approx(0.196, abs=1e-3)
    assert convex_rate(Theory(0.5, 4, 0.01)) == pytest.approx(0.08)
