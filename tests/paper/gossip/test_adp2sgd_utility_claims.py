"""Paper 1, Theorem 1 and Propositions 1 and 2: the formulas, and two slips between them."""

import itertools
import math

import pytest
from tests.reference.adp2sgd_proposition2 import adp2sgd_proposition2, adp2sgd_theorem2_variance

from gossamer.algorithms.gossip.claims import (
    Adp2sgdNetwork,
    Adp2sgdProblem,
    Adp2sgdSetting,
    adp2sgd_iterations_needed,
    adp2sgd_proposition1,
    adp2sgd_rho_bar,
    adp2sgd_theorem1,
    adp2sgd_theorem1_conditions,
)
from gossamer.errors import SpecError

PROBLEM = Adp2sgdProblem(loss_gap=2.0, smoothness=0.5, within_variance=8.0, between_variance=0.25, size=10)


def test_rho_bar_by_hand():
    """K = 2, rho = 1/4: 1/2 (4/3 + 2 * 1/2 / (1/2)^2) = 8/3; rho = 0: (K - 1)/K."""
    assert adp2sgd_rho_bar(0.25, 2) == pytest.approx(8 / 3)
    assert adp2sgd_rho_bar(0.0, 5) == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("network", "smoothness", "expected"),
    [
        # rho_bar = 1/2: terms 96, 1024 * 4/4, 0, 2^(-1/6) 8^2; times L^2 K^2.
        (Adp2sgdNetwork(nodes=2, rho=0.0, staleness=0), 1.0, 4 * 1024),
        # One worker has rho_bar = 0: only 64 tau^2/K^2 is left.
        (Adp2sgdNetwork(nodes=1, rho=0.0, staleness=3), 2.0, 4 * 64 * 9),
        # rho_bar = 1/2, tau = 8: the last term, 2^(-1/6) (8 sqrt(6) 4 + 8)^2 (8 + 1)^(2/3), is the largest.
        (
            Adp2sgdNetwork(nodes=2, rho=0.0, staleness=8),
            1.0,
            4 * 2 ** (-1 / 6) * (32 * math.sqrt(6) + 8) ** 2 * 9 ** (2 / 3),
        ),
    ],
)
def test_iterations_needed_by_hand(network, smoothness, expected):
    assert adp2sgd_iterations_needed(smoothness, network) == pytest.approx(expected)


def test_the_conditions_of_theorem_1_by_hand():
    """K = 2, rho_bar = 1/2, tau = 2, eta B L = 0.1: tau (K-1)/K + rho_bar = 1.5.

    C_1 = 1 - 24 * 0.01 * 1.5;
    C_2/(eta B) = 1/4 - 0.1/4 - 2 * 0.01 * 4/8 - (0.1/2 + 0.06/4 + 0.012 * 4/8) * 0.4 * 1.5/C_1;
    C_3 = 1/2 + 0.1 * 4/2 + (0.06 + 2 * 0.1 + 0.012 * 4/2) * 2 * 0.5/C_1.
    """
    conditions = adp2sgd_theorem1_conditions(0.1, Adp2sgdNetwork(nodes=2, rho=0.0, staleness=2))
    assert conditions == pytest.approx((0.64, 0.1484375, 1.14375))
    assert not conditions.hold


def test_theorem_1_by_hand():
    """K = 2, T = 1000, eta = 0.001, B = 4, sigma = 4: eta B/K = 0.002 and

    2 * 2/(0.002 * 1000) + 2 * 0.002 * 0.5 (8/4 + 6 * 0.25 + 10 * 4^2/4^2) = 2 + 0.002 * 13.5.
    """
    network = Adp2sgdNetwork(nodes=2, rho=0.0, staleness=2)
    claim = adp2sgd_theorem1(1_000, 0.001, 4.0, 4, PROBLEM, network)
    assert (claim.bound, claim.valid) == (pytest.approx(2.027), True)
    long = adp2sgd_theorem1(1_000, 0.05, 4.0, 4, PROBLEM, network)  # eta B L = 0.1, as below
    assert not long.valid
    assert long.why == "Theorem 1 needs C1 > 0, C2 >= 0 and C3 <= 1, found 0.64, 0.148 (over eta B) and 1.14"
    assert not adp2sgd_theorem1(1_000, 1 / 12, 4.0, 4, PROBLEM, network).valid  # eta B L = 1/6 makes C1 0, or just not


def test_proposition_1_by_hand():
    """2 (2 + 0.5 (8/4 + 6 * 0.25)) + 2 * 0.5 * 10 * 4^2/4^2 = 7.5 + 10, over sqrt(10^4)."""
    network = Adp2sgdNetwork(nodes=2, rho=0.0, staleness=0)
    claim = adp2sgd_proposition1(10_000, 4.0, 4, PROBLEM, network)
    assert claim.bound == pytest.approx(0.175)
    assert claim.valid
    assert adp2sgd_proposition1(10_000, 0.0, 4, PROBLEM, network).bound == pytest.approx(0.075)


def test_too_few_iterations_are_said_to_be_too_few():
    network = Adp2sgdNetwork(nodes=2, rho=0.0, staleness=0)
    claim = adp2sgd_proposition1(1_000, 0.0, 4, PROBLEM, network)
    assert not claim.valid
    assert "needs T >= 1024, found 1000" in claim.why


def test_proposition_1_implies_the_conditions_of_theorem_1_at_moderate_staleness() -> None:
    """At the least T and above."""
    for nodes, rho, staleness in [
        (k, rho, tau * k) for k, rho, tau in itertools.product([2, 4, 16, 64], [0, 0.5, 0.99], [0, 1, 4])
    ]:
        network = Adp2sgdNetwork(nodes, rho, staleness)
        needed = adp2sgd_iterations_needed(3.0, network)
        for iterations in (needed, 100 * needed):
            assert adp2sgd_theorem1_conditions(3.0 * nodes / math.sqrt(iterations), network).hold


def test_proposition_1_does_not_imply_them_at_great_staleness():
    """The term eta B L tau^2/K = L tau^2/sqrt(T) of C_3 exceeds 1/2 when T < 4 L^2 tau^4, and the bound on T grows
    like tau^2 only."""
    network = Adp2sgdNetwork(nodes=16, rho=0.3, staleness=1_600)
    needed = adp2sgd_iterations_needed(1.0, network)
    assert needed < 4 * 1_600**4
    assert adp2sgd_theorem1_conditions(16 / math.sqrt(needed), network).c3 > 0.5 + 1_600**2 / math.sqrt(needed) > 1
    problem = Adp2sgdProblem(1.0, 1.0, 0.0, 0.0, 1)
    claim = adp2sgd_proposition1(needed, 0.0, 1, problem, network)
    assert not claim.valid
    assert "C3 <= 1" in claim.why


SETTING = Adp2sgdSetting(lipschitz=1.5, batch_size=4, iterations=1, nodes=100, smallest_shard=10_000)


@pytest.mark.parametrize("mu", [0.3, 0.5])
def test_proposition_2_is_proposition_1_with_theorem_2_s_sigma_but_for_the_one_in_alpha(mu):
    """Put sigma^2 = 20 G^2 T alpha/(K^2 n1^2 mu epsilon) into Proposition 1. With alpha = log(1/delta)/((1-mu) epsilon)
    and eq. 8's T the sum is Proposition 2's bound; the "+ 1" that alpha has too adds
    40 L d G^2 sqrt(T)/(B^2 K^2 n1^2 mu epsilon), which Proposition 2 leaves out."""
    epsilon, delta, network = 2.0, 1e-6, Adp2sgdNetwork(nodes=100, rho=0.9, staleness=100)
    claim = adp2sgd_proposition2(SETTING, epsilon, delta, mu, PROBLEM, network)
    run = Adp2sgdSetting(1.5, 4, claim.iterations, 100, 10_000)
    sigma = math.sqrt(adp2sgd_theorem2_variance(run, epsilon, delta, mu))
    full = adp2sgd_proposition1(claim.iterations, sigma, 4, PROBLEM, network).bound
    left_out = 40 * 0.5 * 10 * 1.5**2 * math.sqrt(claim.iterations) / (4**2 * (100 * 10_000) ** 2 * mu * epsilon)
    assert claim.bound == pytest.approx(full - left_out, rel=1e-12)


def test_eq_8_by_hand():
    """H = 2 + 0.5 (8/4 + 6 * 0.25) = 3.75; 2 H (10^6 * 2)^2/(40 * 10 * 0.5 * 1.5^2 * 10) with log(1/delta) = 10."""
    network = Adp2sgdNetwork(nodes=100, rho=0.9, staleness=100)
    claim = adp2sgd_proposition2(SETTING, 2.0, math.exp(-10), 0.5, PROBLEM, network)
    assert claim.iterations == pytest.approx(7.5 * 4e12 / 4_500)


def test_proposition_2_says_what_fails():
    """The T of eq. 8 here is so large that Theorem 2's sigma is huge, and its second condition fails."""
    network = Adp2sgdNetwork(nodes=100, rho=0.9, staleness=100)
    claim = adp2sgd_proposition2(SETTING, 2.0, 1e-6, 0.5, PROBLEM, network)
    assert not claim.valid
    assert "the second condition fails" in claim.why


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Adp2sgdNetwork(2, 1.0, 0), "rho must be a finite number >= 0 and < 1"),
        (lambda: Adp2sgdNetwork(2, 0.5, -1), "staleness must be a whole number >= 0"),
        (lambda: Adp2sgdProblem(1.0, 0.0, 0.0, 0.0, 1), "smoothness must be a finite number > 0"),
        (lambda: Adp2sgdProblem(-1.0, 1.0, 0.0, 0.0, 1), "loss_gap must be a finite number >= 0"),
    ],
)
def test_values_out_of_range_are_refused(call, message):
    with pytest.raises(SpecError, match=message):
        call()
