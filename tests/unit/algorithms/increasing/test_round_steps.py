"""Step sizes in rounds of growing length, against the paper's formulas by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from gossamer.algorithms.increasing.settings import PowerSizes, PublicRounds, RoundRate, Settings, TheorySizes

ADAPTER: TypeAdapter[RoundRate] = TypeAdapter(RoundRate)

LINEAR = PowerSizes(a=12, b=12)  # 12, 24, 36, ... in all


def rounds_of(schedule, *examples, weights="equal"):
    chosen = Settings().model_copy(update={"sizes": schedule, "weights": weights})
    return PublicRounds(chosen, {f"client-{c}": n for c, n in enumerate(examples)}, seed=0)


def step_sizes(settings, sizes, i, name="client-0"):
    """eta of every step of the round."""
    return ADAPTER.validate_python(settings).of_round(i, sizes, name).at(np.arange(sizes.of(name, i)))


def test_a_number_is_a_constant():
    sizes = rounds_of(LINEAR, 10, 10, 10)
    for value in (0.0025, "2.5e-3", {"schedule": "constant", "initial": 0.0025}):
        assert step_sizes(value, sizes, 2).tolist() == [0.0025] * 12


@pytest.mark.parametrize("exponent", [1, 0.5])
def test_diminishing1_counts_the_steps_of_all_clients(exponent):
    """E.2.3 with N = 3 clients and s_jc = s_j/N: t = N (sum_{j<i} s_jc + h). In round 2, t = 36 + 3 h."""
    sizes = rounds_of(LINEAR, 10, 10, 10)
    found = step_sizes({"schedule": "diminishing1", "initial": 0.1, "beta": 0.02, "exponent": exponent}, sizes, 2)
    t = 3 * (np.array([4 + 8 + h for h in range(12)]))
    assert found == pytest.approx(0.1 / (1 + 0.02 * t**exponent), rel=1e-14)


def test_diminishing1_meets_the_next_round():
    """A step after the round's last would have the next round's first step size, whatever the client's share."""
    sizes = rounds_of(LINEAR, 10, 20, 30, weights="shards")
    rate = ADAPTER.validate_python({"schedule": "diminishing1", "initial": 0.1, "beta": 0.02})
    for name in sizes.names:
        for i in range(5):
            here, there = rate.of_round(i, sizes, name), rate.of_round(i + 1, sizes, name)
            assert float(here.at(np.array(sizes.of(name, i)))) == pytest.approx(there.first, rel=1e-14)


@pytest.mark.parametrize(("i", "t"), [(0, 0), (1, 12), (2, 36), (3, 72)])
@pytest.mark.parametrize("exponent", [1, 0.5])
def test_diminishing2_is_held_over_the_round(i, t, exponent):
    sizes = rounds_of(LINEAR, 10, 10, 10)
    settings = {"schedule": "diminishing2", "initial": 0.1, "beta": 0.02, "exponent": exponent}
    found = step_sizes(settings, sizes, i)
    assert len(found) == 4 * (i + 1)
    assert found == pytest.approx(0.1 / (1 + 0.02 * t**exponent), rel=1e-14)


def test_the_two_begin_a_round_alike():
    sizes = rounds_of(LINEAR, 10, 20, 30, weights="shards")
    for i in range(6):
        first, second = (
            step_sizes({"schedule": name, "initial": 0.3, "beta": 0.1, "exponent": 0.5}, sizes, i, "client-1")
            for name in ("diminishing1", "diminishing2")
        )
        assert first[0] == second[0]
        assert (first[1:] < second[1:]).all()


def test_theory_by_hand():
    """m = 999, d = 1, L = 0.25, mu = 0.01: M0 = 250,000, M1 = 1800 and s_i = 3 for i < 74 (see the sizes' test).

    i = 0: 1200/(3600 + sqrt(250000/ln 250000)) = 1200/(3600 + sqrt(250000/12.429216)) = 1200/3741.823 = 0.3206992.
    i = 70: S = 210: 1200/(210 + 3600 + sqrt(250210/12.430056)) = 1200/(3810 + 141.8775) = 0.3036532.
    """
    sizes = rounds_of(TheorySizes(m=999, d=1), 10**6)
    settings = {"schedule": "theory", "m": 999, "d": 1, "smoothness": 0.25, "strong_convexity": 0.01}
    assert step_sizes(settings, sizes, 0) == pytest.approx(0.3206992, abs=2e-7)
    assert step_sizes(settings, sizes, 70) == pytest.approx(0.3036532, abs=2e-7)


def test_theory_steps_are_those_of_lemma_b_4():
    """eta_t = alpha_t/(mu (t + E_t)) with 12 <= alpha_t <= 36 and E_t = 2 tau(t), for all t of the first 300 rounds."""
    m, d, smoothness, mu = 50, 1, 1.0, 0.5
    sizes = rounds_of(TheorySizes(m=m, d=d), 10**6)
    rate = ADAPTER.validate_python(
        {"schedule": "theory", "m": m, "d": d, "smoothness": smoothness, "strong_convexity": mu}
    )
    for i in range(300):
        eta = rate.of_round(i, sizes, "client-0").first
        for t in range(sizes.before(i), sizes.before(i + 1)):
            y = t + (m + 1) ** 2 / 4
            tau = 2 * smoothness * 36 / mu + math.sqrt(y / (4 * math.log(y)))
            assert 12 * (1 - 1e-12) <= eta * mu * (t + 2 * tau) <= 36


@pytest.mark.parametrize(
    "bad",
    [
        0,
        -1,
        "fast",
        {"schedule": "step", "initial": 1},
        {"schedule": "constant", "initial": math.inf},
        {"schedule": "diminishing1", "initial": 1},
        {"schedule": "diminishing1", "initial": 1, "beta": -1},
        {"schedule": "diminishing2", "initial": 1, "beta": 1, "exponent": 0},
        {"schedule": "diminishing2", "initial": 1, "beta": 1, "exponent": 1.5},
        {"schedule": "diminishing2", "initial": 1, "beta": 1, "stride": 1},
        {"schedule": "theory", "m": 9, "d": 1, "smoothness": 1, "strong_convexity": 1},
        {"schedule": "theory", "m": 10, "d": 1, "smoothness": 1, "strong_convexity": 1.1},
        {"schedule": "theory", "m": 10, "d": 1, "smoothness": 1},
    ],
)
def test_what_is_no_schedule(bad):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python(bad)
