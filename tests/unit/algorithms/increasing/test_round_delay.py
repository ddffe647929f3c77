"""Delay functions and wait rules, against the client's loop in the paper and its condition (2)."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from tests.reference.delay_slow import assignment, consistent, rho, steps_before_waiting

from gossamer.algorithms.increasing.settings import (
    ConstantSizes,
    Delay,
    PowerDelay,
    PowerSizes,
    PublicRounds,
    RoundsAhead,
    Settings,
    TheoryDelay,
    TheorySizes,
    WithinTau,
    first_breach,
    first_stall,
    steps_allowed,
)

ADAPTER: TypeAdapter[Delay] = TypeAdapter(Delay)


class LeastTheoryDelay:
    """The tau of Lemma B.3 with the least M1 it permits, d + 1, which a problem's L and mu would raise."""

    def __init__(self, m, d, g=2, gamma=4):
        self.m, self.d, self.g, self.gamma = m, d, g, gamma

    def at(self, t):
        y = t + ((self.m + 1) * (self.g - 1) / self.g) ** (self.g / (self.g - 1))
        return self.d + 1 + (y / (self.gamma * math.log(y))) ** (1 / self.g)


def rounds_of(schedule, *examples, counts="rounded", weights="equal", seed=0):
    chosen = Settings().model_copy(update={"sizes": schedule, "weights": weights, "counts": counts})
    return PublicRounds(chosen, {f"client-{c}": n for c, n in enumerate(examples or (10**9,))}, seed)


def table(sizes, rounds):
    return [sizes.sizes(i) for i in range(rounds)]


def test_the_theorys_constants_by_hand():
    """m = 999, d = 1, L = 0.25, mu = 0.01: M0 = 250,000; M1 = max{2, 2 0.25 36/0.01 = 1800, 3/2}.

    tau(0) = 1800 + sqrt(250000/(4 12.4292)) = 1870.911; tau(750,000) = 1800 + sqrt(10^6/(4 13.815511)) = 1934.520.
    """
    tau = TheoryDelay(m=999, d=1, smoothness=0.25, strong_convexity=0.01)
    assert tau.shift == 250_000
    assert tau.least == 1800
    assert tau.at(0) == tau.at(-1) == pytest.approx(1870.911, abs=1e-3)
    assert tau.at(750_000) == pytest.approx(1934.520, abs=1e-3)


def test_the_least_delay_is_the_largest_of_three():
    """L = mu and alpha = 12 give 24; d = 30 gives 31; and s_0 = ceil(10^5/16/ln(5 10^4)) = ceil(577.6) gives 289."""
    easy = {"smoothness": 1.0, "strong_convexity": 1.0, "alpha": 12}
    assert TheoryDelay(m=100, d=1, **easy).least == 24
    assert TheoryDelay(m=1000, d=30, **easy).least == 31
    assert TheoryDelay(m=99_999, d=0, **easy).least == 289


@pytest.mark.parametrize(
    "tau",
    [
        TheoryDelay(m=5, d=0, smoothness=1, strong_convexity=1),
        TheoryDelay(m=10, d=1, smoothness=1, strong_convexity=1),
        TheoryDelay(m=13, d=0, smoothness=1, strong_convexity=1, g=1.25, gamma=0.2),
        TheoryDelay(m=10, d=1, smoothness=1, strong_convexity=1, g=5, gamma=1),
        PowerDelay(constant=5, factor=1, exponent=0.5),
        PowerDelay(constant=5, factor=1, exponent=1),
        PowerDelay(constant=5, factor=0.3, exponent=0),
    ],
)
def test_neither_tau_nor_the_age_falls(tau):
    """What the rules' proofs rest on."""
    values = [tau.at(t) for t in range(-1, 2000)]
    assert all(0 <= later - earlier <= 1 + 1e-9 for earlier, later in pairwise(values))


@pytest.mark.parametrize(("t", "expected"), [(-1, 7), (0, 7), (4, 8), (100, 12)])
def test_power_by_hand(t, expected):
    assert PowerDelay(constant=7, factor=0.5, exponent=0.5).at(t) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"name": "power", "factor": 1.01, "exponent": 0.5}, "must not fall, .* found factor 1.01 and exponent 0.5"),
        ({"name": "power", "factor": 0.01, "exponent": 1.01}, "must not fall"),
        ({"name": "power", "constant": -1}, "greater than or equal to 0"),
        ({"name": "theory", "m": 9, "d": 1, "smoothness": 1, "strong_convexity": 1}, "which is 10 for d = 1, found 9"),
        ({"name": "theory", "m": 10, "d": 1, "smoothness": 1, "strong_convexity": 2}, "strong_convexity is at most"),
        ({"name": "theory", "m": 10, "d": 1, "smoothness": 1, "strong_convexity": 1, "alpha": 11}, "alpha"),
        ({"name": "linear"}, "expected tags"),
    ],
)
def test_what_is_no_delay_function(settings, expected):
    with pytest.raises(ValidationError, match=expected):
        ADAPTER.validate_python({"rule": "tau", "tau": settings})


def test_rules_as_they_are_written():
    assert ADAPTER.validate_python({"rule": "rounds"}) == RoundsAhead(d=1, tau=None)
    tau = {"name": "power", "constant": 3}
    assert ADAPTER.validate_python({"rule": "tau", "tau": tau}) == WithinTau(tau=PowerDelay(constant=3))
    for bad in ({"rule": "tau"}, {"rule": "rounds", "d": -1}, {"rule": "tau", "tau": tau, "d": 1}, {"rule": "never"}):
        with pytest.raises(ValidationError):
            ADAPTER.validate_python(bad)


@pytest.mark.parametrize("d", [0, 1, 3])
def test_rounds_ahead(d):
    """All of a round, while i <= k + d."""
    sizes = rounds_of(PowerSizes(a=10, b=4), 99, 99)
    for i in range(8):
        for k in range(i + 1):
            expected = sizes.of("client-1", i) if i - k <= d else 0
            assert steps_allowed(RoundsAhead(d=d), sizes, "client-1", i, k) == expected


def test_within_tau_by_hand():
    """Two clients, 5 steps each round; tau = 12. In round 1 t_glob = 20 - (5 - h) - 1 = 14 + h.

    With k = 0, t_delay = 15 + h: not below 12 for any h. With k = 1, t_delay = 5 + h: steps 0 to 4, below 12.
    With tau = 8.5 and k = 1 steps h = 0 to 3 are free: 8 < 8.5, 9 is not. With tau = 8, t_delay = 8 waits.
    """
    sizes = rounds_of(ConstantSizes(size=10), 99, 99)
    for constant, k, expected in [(12, 0, 0), (12, 1, 5), (8.5, 1, 4), (8, 1, 3), (5, 1, 0), (5.01, 1, 1)]:
        rule = WithinTau(tau=PowerDelay(constant=constant, factor=0))
        assert steps_allowed(rule, sizes, "client-0", 1, k) == expected


@pytest.mark.parametrize("counts", ["rounded", "coins"])
@pytest.mark.parametrize(
    "tau",
    [
        PowerDelay(constant=0, factor=1, exponent=1),
        PowerDelay(constant=2, factor=1, exponent=0.7),
        PowerDelay(constant=30, factor=0.9, exponent=0.5),
        TheoryDelay(m=10, d=1, smoothness=1, strong_convexity=1, alpha=12),
    ],
)
def test_steps_allowed_are_those_of_the_loop(tau, counts):
    sizes = rounds_of(PowerSizes(a=6, b=4), 40, 10, 25, weights="shards", counts=counts)
    steps = table(sizes, 12)
    found = {
        (c, i, k): steps_allowed(WithinTau(tau=tau), sizes, f"client-{c}", i, k)
        for i in range(12)
        for k in range(i + 1)
        for c in range(3)
    }
    assert found == {(c, i, k): steps_before_waiting(tau.at, steps, c, i, k) for c, i, k in found}
    assert len(set(found.values())) > 5


def test_one_client_alone():
    """t_glob = -1 at its first step, where tau is tau(0)."""
    sizes = rounds_of(ConstantSizes(size=4))
    for constant, expected in [(0, 0), (1, 1), (3.5, 4)]:
        rule = WithinTau(tau=PowerDelay(constant=constant, factor=0))
        assert steps_allowed(rule, sizes, "client-0", 0, 0) == expected


@pytest.mark.parametrize(("m", "d"), [(5, 0), (10, 1), (11, 1), (16, 2), (100, 1), (300, 3), (5800, 1), (100_000, 5)])
def test_theory_sizes_keep_to_condition_2(m, d):
    """Lemma B.3, for 5,000 rounds and the least M1 that it permits; and with the M1 of a problem, which is larger."""
    sizes = rounds_of(TheorySizes(m=m, d=d))
    assert first_breach(LeastTheoryDelay(m, d), sizes, d, 5000) is None
    tau = TheoryDelay(m=m, d=d, smoothness=1, strong_convexity=1, alpha=12)
    assert tau.at(1000) >= LeastTheoryDelay(m, d).at(1000)
    assert first_breach(tau, sizes, d, 5000) is None
    assert first_stall(tau, sizes, 5000) is None


@pytest.mark.parametrize(("g", "gamma", "m"), [(1.25, 4, 50), (1.5, 0.4, 20), (1.5, 1, 16), (3, 1, 20), (8, 1, 5000)])
@pytest.mark.parametrize("d", [0, 1])
def test_sizes_of_another_g_keep_to_condition_2(g, gamma, m, d):
    """Lemma B.3 of any g > 1, with its least M1; and TheoryDelay is its tau, with a larger M1."""
    sizes, least = rounds_of(TheorySizes(m=m, d=d, g=g, gamma=gamma)), LeastTheoryDelay(m, d, g, gamma)
    assert first_breach(least, sizes, d, 2000) is None
    tau = TheoryDelay(m=m, d=d, g=g, gamma=gamma, smoothness=1, strong_convexity=1, alpha=12)
    for t in (0, 1000, 10**6):
        assert tau.at(t) - tau.least == pytest.approx(least.at(t) - d - 1)


def test_sizes_of_a_smaller_g_break_condition_2():
    """They grow like i^2 for g = 1.5, where delays of g = 2 permit i."""
    sizes = rounds_of(TheorySizes(m=50, d=1, g=1.5))
    assert first_breach(LeastTheoryDelay(50, 1), sizes, 1, 2000) is not None


def test_linear_sizes_break_condition_2():
    """s_i = i, m = 10, d = 1: M0 = 30.25, M1 = 24 at L = mu. s_{i-1} + s_i = 2i - 1 is about sqrt(8 t).

    i = 13: t = 1 + 91 = 92 (round 0 has one step), tau = 24 + sqrt(122.25/19.2243) = 26.522 >= 25.
    i = 14: t = 106, tau = 24 + sqrt(136.25/19.6580) = 26.633 < 27.
    """
    tau = TheoryDelay(m=10, d=1, smoothness=1, strong_convexity=1, alpha=12)
    sizes = rounds_of(PowerSizes(a=1))
    assert tau.at(92) == pytest.approx(26.522, abs=1e-3)
    assert tau.at(106) == pytest.approx(26.633, abs=1e-3)
    assert first_breach(tau, sizes, 1, 14) is None
    assert first_breach(tau, sizes, 1, 15) == first_breach(tau, sizes, 1, 1000) == 14


def test_condition_2_is_word_for_word():
    sizes = rounds_of(PowerSizes(a=3, c=1.3, b=2), 10, 20, 30, counts="coins")
    s = [sizes.total(i) for i in range(60)]
    for d in (0, 1, 2, 4):
        for tau in (PowerDelay(constant=60), PowerDelay(constant=10, factor=0.5, exponent=1), PowerDelay(factor=0)):
            breaches = [i for i in range(d + 1, 60) if not tau.at(sum(s[: i + 1])) >= sum(s[i - d : i + 1])]
            assert first_breach(tau, sizes, d, 60) == (breaches[0] if breaches else None)


def test_condition_2_may_be_met_with_nothing_to_spare():
    """10 a round, d = 1: s_{i-1} + s_i = 20."""
    sizes = rounds_of(ConstantSizes(size=10))
    assert first_breach(PowerDelay(constant=20, factor=0), sizes, 1, 50) is None
    assert first_breach(PowerDelay(constant=19.99, factor=0), sizes, 1, 50) == 2


def test_a_stall_is_a_round_that_nobody_can_finish():
    """10 i steps a round of five clients and tau = 35: round 4 has 40, and step 36 has a delay of 35."""
    sizes = rounds_of(PowerSizes(a=10), *[99] * 5)
    rule = WithinTau(tau=PowerDelay(constant=35, factor=0))
    assert first_stall(rule.tau, sizes, 4) is None
    assert first_stall(rule.tau, sizes, 5) == first_stall(rule.tau, sizes, 50) == 4
    for name in sizes.names:
        assert steps_allowed(rule, sizes, name, 3, 3) == sizes.of(name, 3)
        assert steps_allowed(rule, sizes, name, 4, 4) < sizes.of(name, 4)
    # With a delay of s_i - 1 = 39 at the last step, 39 is not enough and anything above is.
    assert first_stall(PowerDelay(constant=39, factor=0), sizes, 5) == 4
    assert first_stall(PowerDelay(constant=39.01, factor=0), sizes, 5) is None


def test_numbers_of_steps_by_hand():
    """Appendix B.1: round 0 is a b a, round 1 is b b a."""
    numbers = rho([["a", "b", "a"], ["b", "b", "a"]])
    assert numbers == {
        ("a", 0, 0): 0,
        ("b", 0, 0): 1,
        ("a", 0, 1): 2,
        ("b", 1, 0): 3,
        ("b", 1, 1): 4,
        ("a", 1, 0): 5,
    }


def test_consistency_by_hand():
    """tau = 2: the model of computation 5 includes 0, 1, 2."""
    assert consistent(lambda t: 2, 5, {0, 1, 2})
    assert consistent(lambda t: 2, 5, {0, 1, 2, 4})
    assert not consistent(lambda t: 2, 5, {0, 1, 4})
    assert consistent(lambda t: 2.5, 5, {0, 1})
    assert consistent(lambda t: 2, 2, set())


@pytest.mark.parametrize("counts", ["rounded", "coins"])
def test_assignments_have_the_sizes(counts):
    sizes = rounds_of(PowerSizes(a=7, b=3), 10, 20, 30, weights="shards", counts=counts)
    steps = table(sizes, 6)
    assigned = assignment(sizes.names, steps, np.random.default_rng(0))
    assert [tuple(of_round.count(c) for c in sizes.names) for of_round in assigned] == steps
    numbers = rho(assigned)
    assert sorted(numbers.values()) == list(range(sizes.before(6)))
    assert all(sizes.before(i) <= t < sizes.before(i + 1) for (_, i, _), t in numbers.items())
