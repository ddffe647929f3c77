"""MAPA, section 6: the first clip (Theorem 3), the stages, and what the published noise makes of them."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction
from itertools import islice

import numpy as np
import pytest
from tests.reference.mapa_slow import first_clip, stage

from gossamer.algorithms.mapa.stages import (
    MOST_UPDATES,
    Problem,
    Schedule,
    gaussian_second_moment,
    initial_clip,
    l2_laplace_second_moment,
    stages,
)
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import L2Laplace, NeighboringRelation

ADD_OR_REMOVE, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
PROBLEM = Problem(gradient_sd=3.0, smoothness=0.25, loss_gap=2.0, staleness=4, batch_size=64)


def no_noise(clip: float) -> float:
    return 0.0


def test_stages_by_hand():
    """s = 8, b = 16, kappa = 3/4, rho = 1/2, tau = 1, L = 1/2, D_F = 3; noise with E||n||^2 = G^2/64.

    sqrt(1 - kappa) = 1/2, so dS = 2 8/(16 sqrt(1/2)) = sqrt 2 and G = 8 sqrt 2, G^2 = 128.
    Stage 1: Delta_b = 4 + 2 = 6, P = max(1, 12/(2 128/4)) = 1, eta = 1/2, T = ceil(4 1/2 3 4/6) = 4.
    Stage 2: G^2 = 32, Delta_b = 4.5, P = max(1, 9/16) = 1, eta = 1/2, T = ceil(24/4.5) = 6.
    Stage 3: G^2 = 8, Delta_b = 4.125, P = 8.25/4 = 2.0625, eta = 1/4.125, T = ceil(24 2.0625^2/4.125) = ceil(24.75).
    """
    problem = Problem(8.0, 0.5, 3.0, staleness=1, batch_size=16, kappa=0.75, reduction=0.5)
    first, second, third = islice(stages(problem, lambda clip: clip**2 / 64), 3)
    assert first.clip == pytest.approx(math.sqrt(128))
    assert first.sensitivity == pytest.approx(math.sqrt(2))
    assert [stage.updates for stage in (first, second, third)] == [4, 6, 25]
    assert [stage.penalty for stage in (first, second, third)] == pytest.approx([1, 1, 2.0625])
    assert [stage.learning_rate for stage in (first, second, third)] == pytest.approx([0.5, 0.5, 1 / 4.125])
    assert [stage.noise_second_moment for stage in (first, second, third)] == pytest.approx([2, 0.5, 0.125])
    assert third.sensitivity == pytest.approx(first.sensitivity / 4)


@pytest.mark.parametrize("noise", ["none", "gaussian", "l2_laplace"])
@pytest.mark.parametrize("seed", range(5))
def test_stages_agree_with_exact_arithmetic(noise, seed):
    draw = np.random.default_rng(seed)
    s, L, gap = (float(x) for x in draw.lognormal(0, 1, 3))
    tau, b, size = int(draw.integers(0, 20)), int(draw.integers(1, 200)), int(draw.integers(1, 10_000))
    kappa, rho = float(draw.uniform(0.01, 0.99)), float(draw.uniform(0.1, 0.9))
    z, epsilon = 1.25, 0.1
    problem = Problem(s, L, gap, tau, b, kappa, rho)
    moments, exact = {
        "none": (no_noise, lambda clip: Fraction(0)),
        "gaussian": (gaussian_second_moment(size, z, b), lambda clip: size * (Fraction(z) * clip / b) ** 2),
        "l2_laplace": (
            l2_laplace_second_moment(size, epsilon, b, REPLACE),
            lambda clip: size * (size + 1) * (2 * clip / b) ** 2 / Fraction(epsilon) ** 2,
        ),
    }[noise]
    clip = first_clip(s, b, kappa)
    for found in islice(stages(problem, moments), 6):
        sensitivity, penalty, eta, updates = stage(s, L, gap, tau, b, rho, clip, exact(clip))
        assert found.clip == pytest.approx(float(clip), rel=1e-12)
        assert found.sensitivity == pytest.approx(float(sensitivity), rel=1e-12)
        assert found.noise_second_moment == pytest.approx(float(exact(clip)), rel=1e-12)
        assert found.penalty == pytest.approx(float(penalty), rel=1e-12)
        assert found.learning_rate == pytest.approx(float(eta), rel=1e-12)
        assert found.updates == pytest.approx(updates, abs=1, rel=1e-12)
        clip *= Fraction(rho)


def test_theorem_3_at_the_default_failure():
    """kappa = 0.1: sqrt(0.9) = 0.9486832980505138, so G = s / sqrt(0.0513167019494862) = 4.4143893... s."""
    assert initial_clip(PROBLEM) == pytest.approx(4.414389310029772 * 3, rel=1e-12)
    assert initial_clip(Problem(1.0, 1, 1, 0, 1, kappa=1e-16)) == pytest.approx(math.sqrt(2e16), rel=1e-9)


def test_a_penalised_stage_ends_at_the_next_clip():
    """With P > 1, the bound sqrt(2 Delta_b / (P (tau + 1))) on the gradient norm is rho G."""
    moment = gaussian_second_moment(7850, 2.0, 64)
    penalised = [found for found in islice(stages(PROBLEM, moment), 8) if found.penalty > 1]
    assert len(penalised) == 8
    for found in penalised:
        variance = 9.0 / 64 + found.noise_second_moment
        assert math.sqrt(2 * variance / (found.penalty * 5)) == pytest.approx(0.5 * found.clip)


def test_the_bound_of_theorem_4_at_the_end_of_a_stage():
    """After T_s updates the first term, 2 D_F/(eta T), is no more than the radius of the ball, Delta_b/(P (tau + 1)).

    2 D_F/(eta T) = 4 L P (tau + 1) D_F/T, which is at most Delta_b/(P (tau + 1)) from T = T_s on and not at T_s - 1.
    """
    for found in islice(stages(PROBLEM, gaussian_second_moment(7850, 2.0, 64)), 4):
        ball = (9.0 / 64 + found.noise_second_moment) / (found.penalty * 5)
        assert 2 * 2.0 / (found.learning_rate * found.updates) <= ball
        assert 2 * 2.0 / (found.learning_rate * (found.updates - 1)) > ball


def test_published_noise_at_the_published_size():
    """d = 7,840, b = 64, 0.1 a release, replace-one: E||n|| = d (2 G/b)/eps = 2,450 G, against ||mean gradient|| <= G.

    The noise drowns the sampling variance, so P = 2 d (d + 1) (2/(b eps))^2/((tau + 1) rho^2) = 9.605e6 for tau = 4 and
    rho = 1/2, whatever the problem. With m = d (d + 1) (2/(b eps))^2 the stage takes T = 16 m L D_F/(rho^4 G^2)
    updates, which for s = L = 1, a gap of ln 2 and G = 4.414 is 55 million.
    """
    moment = l2_laplace_second_moment(7840, 0.1, 64, REPLACE)
    assert math.sqrt(moment(1.0)) == pytest.approx(2450, rel=1e-3)
    problem = Problem(1.0, 1.0, math.log(2), staleness=4, batch_size=64)
    first, second = islice(stages(problem, moment), 2)
    m = 7840 * 7841 * 0.3125**2
    assert first.penalty == pytest.approx(2 * m / (5 * 0.25), rel=1e-6)
    assert first.updates == pytest.approx(16 * m * math.log(2) / (0.5**4 * first.clip**2), rel=1e-6)
    assert 5.4e7 < first.updates < 5.5e7
    assert second.updates == pytest.approx(4 * first.updates, rel=1e-6)


@pytest.mark.parametrize("relation", [ADD_OR_REMOVE, REPLACE])
def test_the_second_moment_is_that_of_the_mechanism(relation):
    """E||n||^2 of 4,000 draws of the sum's noise, over b^2.

    The norm is Gamma(d), so the mean of n draws of its square has a relative sd of about 2/sqrt(d n) = 0.7 %; five of
    them are exceeded in fewer than one run in a million. d^2 instead of d (d + 1) would be off by 5 %, and is rejected.
    """
    mechanism = L2Laplace(3.0, 0.5, relation)
    generator = np.random.default_rng(1)
    drawn = [np.sum(mechanism.noise(generator, 20, np.float64) ** 2) for _ in range(4000)]
    expected = l2_laplace_second_moment(20, 0.5, 8, relation)(3.0)
    assert np.mean(drawn) / 64 == pytest.approx(expected, rel=0.035)
    assert np.mean(drawn) / 64 != pytest.approx(expected * 20 / 21, rel=0.035)


def test_a_schedule_counts_updates_from_zero():
    """Lengths 4, 6, 25 of the stages by hand: updates 0-3, 4-9 and 10-34."""
    problem = Problem(8.0, 0.5, 3.0, staleness=1, batch_size=16, kappa=0.75, reduction=0.5)
    schedule = Schedule(problem, lambda clip: clip**2 / 64)
    expected = list(islice(stages(problem, lambda clip: clip**2 / 64), 4))
    for update, number in [(10, 3), (0, 1), (3, 1), (4, 2), (9, 2), (34, 3), (35, 4), (5, 2)]:  # in any order
        assert schedule.at(update) == (number, expected[number - 1])
    assert [len(schedule.lengths(updates)) for updates in (0, 1, 4, 5, 10, 11)] == [0, 1, 1, 2, 2, 3]
    assert schedule.lengths(35) == expected[:3]
    with pytest.raises(SpecError, match="from 0"):
        schedule.at(-1)


def test_a_schedule_travels():
    schedule = Schedule(PROBLEM, gaussian_second_moment(100, 1.0, 64), clip=2.0)
    before = schedule.at(10_000)
    assert before[1].clip < 2.0
    assert pickle.loads(pickle.dumps(schedule)).at(10_000) == before


def test_a_stage_without_end_is_the_last():
    """Without noise Delta_b = 9/64, so P > 1 from G < sqrt(0.225) on: stage 6, with G = 13.243/32 and P = 1.314.

    It has 4 P^2 1/4 2 25/(9/64) = 614 updates, and each further stage 16 times as many: stage 20 has more than 2^63.
    """
    found = list(stages(PROBLEM, no_noise))
    assert len(found) == 20
    assert found[5].updates == 614
    assert found[-1].updates == MOST_UPDATES
    assert found[-2].updates / found[-3].updates == pytest.approx(16, rel=1e-6)
    schedule = Schedule(PROBLEM, no_noise)
    assert schedule.at(10**30) == (len(found), found[-1])
    assert schedule.lengths(10**30) == found


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"kappa": 0.0}, "kappa must be a finite number > 0 and < 1, found 0.0"),
        ({"kappa": 1.0}, "kappa must be a finite number"),
        ({"reduction": 1.0}, "reduction must be a finite number > 0 and < 1, found 1.0"),
        ({"reduction": math.nan}, "reduction"),
        ({"gradient_sd": 0.0}, "gradient_sd must be a finite number > 0, found 0.0"),
        ({"smoothness": math.inf}, "smoothness"),
        ({"loss_gap": math.nan}, "loss_gap"),
        ({"batch_size": 0}, "batch_size"),
        ({"staleness": -1}, "staleness must be a whole number >= 0"),
        ({"staleness": 0.5}, "staleness"),
        ({"staleness": math.inf}, "staleness"),
    ],
)
def test_a_problem_out_of_range_gets_one_line(changed, expected):
    settings = {"gradient_sd": 3.0, "smoothness": 0.25, "loss_gap": 2.0, "staleness": 4, "batch_size": 64}
    with pytest.raises(SpecError, match=expected):
        Problem(**{**settings, **changed})


@pytest.mark.parametrize(
    ("settings", "moment", "clip", "expected"),
    [
        ({"gradient_sd": 1e-200}, no_noise, 1.0, "finite variance > 0, found 0"),
        ({"gradient_sd": 1e200}, no_noise, 1.0, "finite variance > 0, found inf"),
        ({}, lambda clip: math.nan, 1.0, "finite variance"),
        ({}, lambda clip: -1e-9, 1.0, "finite variance"),
        ({}, no_noise, 0.0, "finite clip"),
        ({}, no_noise, math.inf, "finite clip"),
        ({}, no_noise, 1e-200, "finite clip"),
        ({}, no_noise, 1e200, "finite clip"),
        ({"smoothness": 1e-320}, no_noise, 1.0, "learning rate"),
        ({"smoothness": 1e308, "gradient_sd": 1e9}, no_noise, 1e-3, "learning rate"),
    ],
)
def test_stages_that_cannot_be_get_one_line(settings, moment, clip, expected):
    problem = Problem(
        **{"gradient_sd": 3.0, "smoothness": 0.25, "loss_gap": 2.0, "staleness": 4, "batch_size": 64, **settings}
    )
    with pytest.raises(SpecError, match=expected):
        next(stages(problem, moment, clip))
    with pytest.raises(SpecError, match=expected):
        Schedule(problem, moment, clip)


def test_a_stage_takes_at_least_one_update():
    """4 L D_F is 0 in floating point."""
    problem = Problem(1.0, 1e-9, 1e-320, staleness=0, batch_size=1)
    assert next(stages(problem, no_noise)).updates == 1
