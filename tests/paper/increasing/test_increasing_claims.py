"""Paper 4 (increasing sample sizes): eq. 14, the theorem of D.3, and both theorems solved for epsilon."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gossamer.algorithms.increasing.claims import (
    MainTheorem,
    higher_order,
    increasing_claims,
    largest_r0,
    recommended_r0,
    theorem_22,
    u_constants,
)
from gossamer.algorithms.increasing.settings import TheoryDelay
from gossamer.errors import SpecError

DELTA = 5.5e-8
Q, M = 0.00013216327772100012, 12.106237281566509
SIZES = [16 + math.ceil(1.3216327772100012 * i) for i in range(195)]  # Example 3
LIMIT = 1 / math.e


def test_constants_of_example_3() -> None:
    """D.3.2, to the printed digits; the last two are the coefficients of K- at the printed m/T."""
    assert u_constants(LIMIT, 8) == pytest.approx((0.4495546831835495, 0.15275204077456322), rel=1e-14)
    assert higher_order(LIMIT, 8) == pytest.approx(5.7460446671129635, rel=1e-13)
    assert MainTheorem(1, LIMIT, 8).b == pytest.approx(0.1368988621622339, rel=1e-13)
    assert MainTheorem(1, LIMIT, 8, 0.055680412559207).b == pytest.approx(0.12819685818649007, rel=1e-13)
    assert MainTheorem(1, LIMIT, 8, 0.061482363524606794).b == pytest.approx(0.12734354695486969, rel=1e-13)
    assert math.exp(MainTheorem(1, LIMIT, 8).log_d) == pytest.approx(0.0010573069002860367, rel=1e-13)


@pytest.mark.parametrize(("sigma", "value"), [(3, 0.0110), (5, 0.0203), (8, 0.0248)])
def test_r0_of_sigma(sigma: float, value: float) -> None:
    """The paper prints 0.0110, 0.0202 and 0.0247."""
    assert round(recommended_r0(sigma, 1), 4) == value


@pytest.mark.parametrize("power", [0.0, 0.3, 1.0])
def test_r0_of_sigma_is_what_the_papers_iteration_finds(power: float) -> None:
    for sigma in [1.137, 1.5, 3, 8, 100]:
        factor = (math.sqrt(3) - 1) / 2 * (3 * power + 1) / ((power + 1) * (2 * power + 1))
        r0 = 0.0
        for _ in range(1000):
            root = math.sqrt(r0 * sigma)
            first = (sigma - r0) / (sigma - r0 - 2 * root)
            second = (sigma - r0) * sigma / ((sigma - r0) * sigma - 2 * math.e * root)
            r0 = (
                factor * (1 - r0 / sigma) ** 2 / (8 * (first + second * (math.e / sigma) ** 3) * math.exp(3 / sigma**2))
            )
        assert recommended_r0(sigma, power) == pytest.approx(r0, rel=1e-9)


def test_with_r0_of_sigma_the_general_constants_are_those_of_the_main_text() -> None:
    """B = ((sqrt 3 - 1)/2 (2p + 1))^((1+p)/(1+2p))/(1 + p) and A = B, with m/T neglected; 0.53217972702 for p = 1."""
    for p in (0.0, 0.5, 1.0):
        theorem = MainTheorem(p, recommended_r0(5, p), 5)
        expected = ((math.sqrt(3) - 1) / 2 * (2 * p + 1)) ** ((1 + p) / (1 + 2 * p)) / (1 + p)
        assert (theorem.b, theorem.a) == pytest.approx((expected, expected), rel=1e-9)
        assert theorem.case_2_applies
    assert MainTheorem(1, recommended_r0(3, 1), 3).b == pytest.approx(0.5321797270231777, rel=1e-9)
    assert not MainTheorem(1, recommended_r0(3, 1) / 2, 3).case_2_applies


@pytest.mark.parametrize("sigma", [0.3, 1.137, 1.5, 2.0, 3.0, 8.0])
def test_the_largest_r0(sigma: float) -> None:
    """Up to it u0 and u1 are below 1, just above it one of them is not, or r0 is above 1/e."""
    most = largest_r0(sigma)
    assert max(u_constants(most * (1 - 1e-9), sigma)) < 1
    assert most == LIMIT or max(u_constants(most * (1 + 1e-9), sigma)) >= 1
    assert most <= LIMIT


@pytest.mark.parametrize("power", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("ratio", [0.0, 0.06, 0.4])
def test_k_star_is_where_the_last_round_is_r0_over_sigma(power: float, ratio: float) -> None:
    """D.3.1: with T at its upper bound ((p+1) K/s)^(1/(1+p)), q (T (1 + gamma))^p = alpha: hence (1+gamma)^-(1+p).

    With the printed (1+gamma)^(1+p) the last round is (1+gamma)^(2p) times as large as it may be.
    """
    theorem, q, n = MainTheorem(power, 0.2, 8, ratio), 1e-4, 10_000

    def last_round(gradients: float) -> float:
        rounds = ((power + 1) * gradients / (n * q)) ** (1 / (1 + power))
        return q * (rounds * (1 + ratio)) ** power

    assert last_round(theorem.k_star(q, n)) == pytest.approx(0.2 / 8, rel=1e-12)
    printed = theorem.k_star(q, n) * (1 + ratio) ** (2 * (1 + power))
    assert last_round(printed) == pytest.approx(0.2 / 8 * (1 + ratio) ** (2 * power), rel=1e-12)


def needed_sigma(sizes: list[int], n: int, sigma: float, epsilon: float, delta: float) -> float:
    """The right side of the first theorem, as it is printed."""
    rounds = len(sizes)
    s1, s2, s3 = (sum(s**j / (n * (n - s) ** (j - 1)) for s in sizes) / rounds for j in (1, 2, 3))
    rho, rho_hat = s1 * s3 / s2**2, s1**2 / s2
    r = higher_order(sigma * max(sizes) / n, sigma)
    c1 = epsilon / (rounds * s1**2)
    c0 = min((math.sqrt(2 * r * rho * c1 + 1) - 1) / (r * rho * c1), 2 / (rho_hat * c1))
    return 2 / math.sqrt(c0) * math.sqrt(s2 * rounds * math.log(1 / delta)) / epsilon


@pytest.mark.parametrize(
    ("sizes", "sigma"),
    [
        (SIZES, 8.0),
        ([16] * 1563, 8.0),
        ([1, 50, 3, 200, 7], 3.0),
        ([250] * 20_000, 8.0),  # the first branch of c
    ],
)
def test_the_first_theorem_solved_for_epsilon(sizes: list[int], sigma: float) -> None:
    (claim,) = increasing_claims(sizes, 10_000, sigma, DELTA)
    assert claim.valid, claim.why
    assert needed_sigma(sizes, 10_000, sigma, claim.epsilon, DELTA) == pytest.approx(sigma, rel=1e-9)
    assert needed_sigma(sizes, 10_000, sigma, claim.epsilon * 0.99, DELTA) > sigma


def test_both_branches_of_c_are_tested_above() -> None:
    """In the second, c(x) = 2/(rho_hat x), epsilon is 2 ln(1/delta)/sigma^2 whatever the sizes."""
    for sizes, sigma, second in (([16] * 1563, 8.0, True), ([250] * 20_000, 8.0, False)):
        (claim,) = increasing_claims(sizes, 10_000, sigma, DELTA)
        assert (claim.epsilon == pytest.approx(2 * math.log(1 / DELTA) / sigma**2, rel=1e-9)) is second


def test_the_main_theorem_of_example_3s_own_sizes() -> None:
    """Case 1 put together by hand, with alpha = q (T + m), T = 195 and m/T: epsilon 0.98, within the paper's 1."""
    first, main = increasing_claims(SIZES, 10_000, 8, 5.502343985212556e-08, (Q, M, 1))
    alpha, ratio = max(273 / 10_000, Q * (195 + M)), M / 195
    by_noise = 2 * math.log(1 / 5.502343985212556e-08) * (1 + ratio) ** 10 / (1 - alpha) / 64
    assert main.valid
    assert main.epsilon == pytest.approx(by_noise, rel=1e-12)
    assert first.epsilon < main.epsilon < 1
    assert "case 1" in main.why


def test_the_main_theorem_is_limited_by_k_minus() -> None:
    """With little wish for delta, K <= K- decides: K is exactly K- at the claimed epsilon."""
    _, main = increasing_claims(SIZES, 10_000, 8, 0.5, (Q, M, 1))
    theorem = MainTheorem(1, main.parameters["r0"], 8, M / 195)
    assert theorem.k_minus(main.epsilon, Q, 10_000) == pytest.approx(sum(SIZES), rel=1e-12)


def test_case_2() -> None:
    """Many gradients: (28) put together by hand, K >= K+ at the claimed epsilon."""
    q, m, rounds, n, sigma, delta = 2e-6, 1.0, 15_000, 10_000, 8.0, 0.5
    sizes = [math.ceil(n * q * (i + m) * (1 - 1e-12)) for i in range(rounds)]
    _, main = increasing_claims(sizes, n, sigma, delta, (q, m, 1))
    epochs, alpha, ratio = sum(sizes) / n, main.parameters["r0"] / sigma, m / rounds
    assert "case 2" in main.why
    expected = epochs * math.sqrt(8 * math.log(1 / delta) / (1 - alpha)) * 2 / math.sqrt(3) * (1 + ratio) ** 1.5
    assert main.epsilon == pytest.approx(expected / (sigma * math.sqrt(rounds)), rel=1e-12)
    assert MainTheorem(1, alpha * sigma, sigma, ratio).k_plus(main.epsilon, q, n) <= sum(sizes)


def test_the_main_theorem_never_claims_more_than_the_first() -> None:
    """It is proved from it."""
    generator = np.random.default_rng(5)
    for _ in range(200):
        p, sigma, n = generator.uniform(0.2, 2), generator.uniform(1.2, 20), 100_000
        rounds = int(generator.integers(5, 2000))
        m = float(generator.uniform(1, rounds))
        q = float(largest_r0(sigma) / sigma * generator.uniform(0.05, 0.8) / (rounds + m) ** p)
        sizes = np.ceil(n * q * (np.arange(rounds) + m) ** p).astype(np.int64)
        first, main = increasing_claims(sizes, n, sigma, 1e-6, (q, m, p))
        if first.valid and main.valid:
            assert first.epsilon <= main.epsilon * (1 + 2 / float(sizes.min()))


@pytest.mark.parametrize(
    ("sizes", "sigma", "power", "index", "words"),
    [
        ([16, 500], 8.0, None, 0, "the largest round is 0.05 of the data set"),
        ([16, 10_000], 8.0, None, 0, "at most r0/sigma = 0.04598"),
        (SIZES, 1.0, (Q, M, 1.0), 1, "the main theorem needs sigma >= 1.137, found 1"),
        ([*SIZES[:-1], 275], 8.0, (Q, M, 1.0), 1, "round 194 has 275"),
        ([16, 18], 8.0, (1.0, 1e3, 300.0), 1, "do not follow"),
    ],
)
def test_what_is_not_valid_says_why(
    sizes: list[int], sigma: float, power: tuple[float, float, float] | None, index: int, words: str
) -> None:
    claim = increasing_claims(sizes, 10_000, sigma, DELTA, power)[index]
    assert not claim.valid
    assert words in claim.why


def test_little_noise_claims_nothing() -> None:
    (claim,) = increasing_claims([16], 10_000, 0.01, DELTA)
    assert (claim.valid, claim.epsilon) == (False, math.inf)


def test_a_schedule_that_starts_at_nothing() -> None:
    """m = 0 is allowed: round 0 has one gradient instead of none."""
    sizes = [max(1, math.ceil(10_000 * Q * i)) for i in range(100)]
    assert increasing_claims(sizes, 10_000, 8, DELTA, (Q, 0.0, 1.0))[1].valid


def test_nothing_is_claimed_of_nothing() -> None:
    assert increasing_claims([], 100, 8, DELTA) == []
    assert increasing_claims([0, 0], 100, 8, DELTA) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([16, 101], 100, 8, DELTA), "from 0 to the 100 examples of the data set, found 101 in round 1"),
        (([-1], 100, 8, DELTA), "found -1 in round 0"),
        (([1.5], 100, 8, DELTA), "found 1.5 in round 0"),
        (([math.nan], 100, 8, DELTA), "found nan in round 0"),
        (([1], 0, 8, DELTA), "dataset_size"),
        (([1], 100, 0, DELTA), "noise_multiplier"),
        (([1], 100, math.inf, DELTA), "noise_multiplier"),
        (([1], 100, 8, 1.0), "delta"),
        (([1], 100, 8, DELTA, (0.0, 1.0, 1.0)), "q must be"),
        (([1], 100, 8, DELTA, (0.1, -1.0, 1.0)), "m must be"),
        (([1], 100, 8, DELTA, (0.1, 1.0, -1.0)), "power must be"),
    ],
)
def test_impossible_numbers_are_refused(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(SpecError, match=words.replace("(", r"\(")):
        increasing_claims(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("r0", "sigma"), [(0.0, 8), (0.4, 8), (0.3, 1.5), (math.nan, 8), (0.1, math.nan)])
def test_an_r0_that_is_not_admissible(r0: float, sigma: float) -> None:
    with pytest.raises(SpecError):
        MainTheorem(1, r0, sigma)


def test_r0_of_sigma_needs_noise() -> None:
    with pytest.raises(SpecError, match=r"the main theorem needs a finite sigma >= 1\.137"):
        recommended_r0(1.136, 1)


def test_the_rate_of_theorem_2_2_by_hand() -> None:
    """L = mu = 1, m = 19, d = 0: M0 = 100, M1 = 2 * 36, and after 300 gradients tau = 72 + sqrt(400/(4 ln 400)).

    With N = 2 it is 8 * 36^2 * 2 * 300/(300 + 2 tau - 1)^2 = 6,220,800/(443 + 20/sqrt(ln 400))^2, and T_0 = e^146.
    """
    theory = TheoryDelay(m=19, d=0, smoothness=1, strong_convexity=1)
    claim = theorem_22(300, 1.0, theory)
    assert claim.bound == pytest.approx(6_220_800 / (443 + 20 / math.sqrt(math.log(400))) ** 2)
    assert not claim.valid
    assert "T_0 = exp(146)" in claim.why
    assert theorem_22(1e64, 1.0, theory).valid  # e^147.4
    assert theorem_22(1e64, 1.0, theory).bound == pytest.approx(16 * 36**2 / 1e64)  # its leading term


def test_theorem_2_2_needs_a_tau_within_the_papers_bound() -> None:
    """(12): tau(t)^2 <= t/ln t (1 - 1/ln t), which t^(1/g) leaves in the end for g < 2.

    At t = 10^64, ln t = 147.4: t/ln t (1 - 1/147.4) is 0.9932 t/ln t, and tau^2 is t/(gamma ln t) for g = 2.
    """
    constants = {"m": 19, "d": 0, "smoothness": 1, "strong_convexity": 1}
    assert theorem_22(1e64, 1.0, TheoryDelay(**constants, g=3)).valid
    assert theorem_22(1e64, 1.0, TheoryDelay(**constants, gamma=1.01)).valid
    for outside in (TheoryDelay(**constants, gamma=1.0), TheoryDelay(**constants, g=1.9, gamma=1e12)):
        claim = theorem_22(1e64, 1.0, outside)
        assert not claim.valid
        assert "(12), found" in claim.why
