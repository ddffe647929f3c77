"""Paper 1, Theorem 2 and Remark 1: the formulas, their conditions, and where they fail."""

import json
import math
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.optimize import brentq
from scipy.special import expit
from tests.reference.adp2sgd_proposition2 import adp2sgd_order, adp2sgd_theorem2_variance

from gossamer.algorithms.context import Batches
from gossamer.algorithms.gossip.box import claims
from gossamer.algorithms.gossip.claims import (
    Adp2sgdSetting,
    adp2sgd_remark1,
    adp2sgd_theorem2,
)
from gossamer.errors import SpecError
from gossamer.privacy.mechanisms import Gaussian

DELTA = 1e-5

# Section 5 and Appendix B: CIFAR-10, 50,000 images on 16 learners, batches of 256, 300 epochs.
PAPER = Adp2sgdSetting(lipschitz=1.0, batch_size=256, iterations=300 * 50_000 / 256, nodes=16, smallest_shard=3125)
SETTINGS = [
    PAPER,
    Adp2sgdSetting(lipschitz=0.1, batch_size=32, iterations=2_000, nodes=8, smallest_shard=500),
    Adp2sgdSetting(lipschitz=3.0, batch_size=8, iterations=50_000, nodes=100, smallest_shard=1_000),
]


def printed_conditions(setting, epsilon, delta, mu):
    """The two conditions as they stand in Theorem 2 and eq. 7, symbol by symbol."""
    B, T, K, n1 = setting.batch_size, setting.iterations, setting.nodes, setting.smallest_shard
    alpha = np.log(1 / delta) / ((1 - mu) * epsilon) + 1
    first = epsilon <= 10 * B**2 * T * alpha / (3 * K**2 * n1**2 * mu)
    second = alpha <= np.log(K**3 * n1**3 * mu * epsilon / (K**2 * n1**2 * mu * epsilon * B + 5 * T * alpha * B**3))
    return first & second


def sigma_for(setting, noise_multiplier):
    """Noise of sd z G on the sum is noise of sd z G/B on the mean."""
    return noise_multiplier * setting.lipschitz / setting.batch_size


def test_the_variance_by_hand():
    """alpha = 5/0.5 + 1 = 11; 20 * 2^2 * 100 * 11 / (2^2 * 100^2 * 0.5 * 1) = 4.4."""
    setting = Adp2sgdSetting(lipschitz=2.0, batch_size=10, iterations=100, nodes=2, smallest_shard=100)
    delta = math.exp(-5)
    assert adp2sgd_order(1.0, delta, 0.5) == pytest.approx(11)
    assert adp2sgd_theorem2_variance(setting, 1.0, delta, 0.5) == pytest.approx(4.4)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("mu", [0.1, 0.5, 0.9])
def test_the_variance_composes_to_epsilon_by_the_paper_s_own_lemmas(setting, mu):
    """Appendix E: Lemma 2 at rate B/(K n1) with sensitivity 2 G/B, T times (Lemma 3), converted (Lemma 4)."""
    epsilon = 3.0
    variance, alpha = adp2sgd_theorem2_variance(setting, epsilon, DELTA, mu), adp2sgd_order(epsilon, DELTA, mu)
    one_step = 5 * setting.sampling_rate**2 * alpha * setting.sensitivity**2 / variance
    assert setting.iterations * one_step + math.log(1 / DELTA) / (alpha - 1) == pytest.approx(epsilon)


@pytest.mark.some(2)
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("noise_multiplier", [2.5, 4.0, 7.0, 12.0])
def test_the_claim_is_the_best_over_mu_under_the_printed_conditions(setting, noise_multiplier):
    """Against brute force: for 2,000 values of mu solve the variance for epsilon and keep those the theorem allows."""
    sigma, allowed = sigma_for(setting, noise_multiplier), []
    for mu in expit(np.linspace(-12, 7, 2_000)):
        epsilon = brentq(
            lambda e, mu=mu: math.log(adp2sgd_theorem2_variance(setting, e, DELTA, mu) / sigma**2), 1e-6, 1e9
        )
        if printed_conditions(setting, epsilon, DELTA, mu):
            allowed.append(epsilon)
    claim = adp2sgd_theorem2(setting, sigma, DELTA)
    assert claim.valid == bool(allowed)
    if allowed:
        assert claim.epsilon <= min(allowed) * (1 + 1e-9)
        assert claim.epsilon == pytest.approx(min(allowed), rel=1e-2)
        variance = adp2sgd_theorem2_variance(setting, claim.epsilon, DELTA, claim.parameters["mu"])
        assert variance == pytest.approx(sigma**2)
        assert "both conditions hold" in claim.why


def test_at_the_paper_s_own_size_no_epsilon_up_to_8_meets_the_conditions():
    """K = 16, n_k = 3125, B = 256, 300 epochs, delta = 1e-5: brute force over epsilon and mu."""
    epsilon, mu = np.meshgrid(np.linspace(0.05, 8, 160), np.linspace(0.0005, 0.9995, 2_000))
    assert not printed_conditions(PAPER, epsilon, DELTA, mu).any()
    claims = [adp2sgd_theorem2(PAPER, sigma_for(PAPER, z), DELTA) for z in np.geomspace(2.5, 1e4, 20_000)]
    least = min(claim.epsilon for claim in claims if claim.valid)
    assert least > 8
    # It is the least with any noise: just above it there is a mu, just below there is none.
    fine = np.linspace(0.0005, 0.9995, 200_000)
    assert printed_conditions(PAPER, least * 1.001, DELTA, fine).any()
    assert not printed_conditions(PAPER, least * 0.999, DELTA, fine).any()


def test_noise_below_the_square_root_of_six_clips_is_outside_the_theorem():
    """sigma^2 >= 6 G^2/B^2 (eq. 25) is z >= sqrt(6), at any size."""
    for setting in SETTINGS:
        short = adp2sgd_theorem2(setting, sigma_for(setting, 2.0), DELTA)
        assert not short.valid
        assert f"sigma is {2 / math.sqrt(6):.3g} times what it must be" in short.why
        assert adp2sgd_theorem2(setting, sigma_for(setting, math.sqrt(6)), DELTA).valid


def test_too_much_noise_is_outside_the_theorem_too():
    """The second condition allows orders up to log(1/(gamma (1 + z^2/4))), which must exceed 1."""
    claim = adp2sgd_theorem2(PAPER, sigma_for(PAPER, 20), DELTA)
    assert not claim.valid
    assert f"is {math.log(1 / (0.00512 * 101)):.4g}" in claim.why
    # The formula alone, minimised over alpha: c + 2 sqrt(c log(1/delta)).
    c = 20 * PAPER.iterations / (50_000**2 * sigma_for(PAPER, 20) ** 2)
    assert claim.epsilon == pytest.approx(c + 2 * math.sqrt(c * math.log(1e5)))


def test_a_theorem_that_no_noise_satisfies_says_so():
    tiny = Adp2sgdSetting(lipschitz=1.0, batch_size=50, iterations=100, nodes=1, smallest_shard=100)
    assert not any(adp2sgd_theorem2(tiny, sigma_for(tiny, z), DELTA).valid for z in np.geomspace(0.1, 1e4, 500))


def test_the_claim_is_below_what_a_neighbour_can_learn_when_there_are_many_workers():
    """Why a claim is not a guarantee: the factor 1/K.

    A neighbour sees which worker moves, so what it learns from is worker k's own T/K releases, at rate B/n_k. An
    optimistic discretisation of their privacy loss gives a lower bound of the true epsilon, which is above the claim,
    although both conditions of the theorem hold.
    """
    nodes, size, batch, own_steps, z = 1_000, 1_000, 100, 1_000, 4.0
    setting = Adp2sgdSetting(1.0, batch, nodes * own_steps, nodes, size)
    claim = adp2sgd_theorem2(setting, sigma_for(setting, z), DELTA)
    one = privacy_loss_distribution.from_gaussian_mechanism(
        z,
        pessimistic_estimate=False,
        use_connect_dots=False,
        value_discretization_interval=1e-4,
        sampling_prob=batch / size,
    )
    assert claim.valid
    assert claim.epsilon < one.self_compose(own_steps).get_epsilon_for_delta(DELTA)


def test_a_model_halfway_has_the_square_root_of_the_claim():
    """Remark 1: (sqrt(t/T) epsilon, delta), as valid as what it follows from."""
    whole = adp2sgd_theorem2(PAPER, sigma_for(PAPER, 4), DELTA)
    part = adp2sgd_remark1(whole, iteration=25, iterations=100)
    assert part.epsilon == pytest.approx(whole.epsilon / 2)
    assert (part.delta, part.valid) == (whole.delta, whole.valid)
    assert "Remark 1" in part.theorem
    with pytest.raises(SpecError, match=r"in \(0, 100\], found 101"):
        adp2sgd_remark1(whole, 101, 100)


def claims_of(updates=58_594, mechanism=Gaussian(0.5, 4.0)):  # noqa: B008
    shards = {f"node-{i:02}": 3125 + i for i in range(16)}
    problem = SimpleNamespace(
        names=tuple(shards),
        shard_sizes=shards,
        size=10,
        workload=Batches(256, shards),
        spec=SimpleNamespace(delta=DELTA),
        settings=SimpleNamespace(whole=False),
    )
    return claims(problem, SimpleNamespace(updates=updates, mechanisms=dict.fromkeys(shards, mechanism)))


def test_a_run_s_claim_takes_its_noise_relative_to_the_mean_gradient():
    """sd z C on the sum of B gradients is z C/B on their mean, half of z sensitivities: the clip cancels."""
    (claim,) = claims_of()
    assert claim == adp2sgd_theorem2(Adp2sgdSetting(0.5, 256, 58_594, 16, 3125), 4 * 0.5 / 256, DELTA)
    (rescaled,) = claims_of(mechanism=Gaussian(50.0, 4.0))
    assert rescaled.epsilon == pytest.approx(claim.epsilon)


def test_a_run_without_updates_claims_nothing():
    assert claims_of(updates=0) == []


def test_a_claim_is_plain_data():
    (claim,) = claims_of()
    plain = json.loads(json.dumps(asdict(claim), allow_nan=False))
    assert set(plain) == {"theorem", "epsilon", "delta", "valid", "why", "parameters"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Adp2sgdSetting(0.0, 1, 1, 1, 1), "lipschitz must be a finite number > 0, found 0.0"),
        (lambda: Adp2sgdSetting(1.0, 1, math.inf, 1, 1), "iterations must be a finite number > 0"),
        (lambda: adp2sgd_theorem2(PAPER, 0.0, DELTA), "sigma_mean must be"),
        (lambda: adp2sgd_theorem2(PAPER, 1.0, 0.0), "delta must lie between 0 and 1"),
        (lambda: adp2sgd_theorem2_variance(PAPER, 1.0, DELTA, 1.0), "mu must lie between 0 and 1, found 1.0"),
        (lambda: adp2sgd_theorem2_variance(PAPER, -1.0, DELTA, 0.5), "epsilon must be"),
    ],
)
def test_values_that_make_no_sense_are_refused(call, message):
    with pytest.raises(SpecError, match=message):
        call()
