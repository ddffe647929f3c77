"""Audits stay below what is proved, and notice what is broken.

Every test uses fixed seeds, so it passes or fails for good. A bound at confidence 1 - 1e-8 exceeds the true epsilon
with probability at most 1e-8; there are fewer than 100 here, so right code fails with probability at most 1e-6
(family-wise). The broken mechanisms are each rejected at the same confidence, and with it at any lower one.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.reference.audited_releases import Statistic, audit_release

from gossamer.attacks.audit import LowerBound, epsilon_from_runs, epsilon_one_run, rejects
from gossamer.attacks.canaries import Sum
from gossamer.privacy.accounting.accountants import epsilon as proved_epsilon
from gossamer.privacy.accounting.accountants import profile as proved_profile
from gossamer.privacy.guarantees import PrivacyProfile
from gossamer.privacy.mechanisms import (
    BatchSampling,
    FixedSize,
    Gaussian,
    L2Laplace,
    Laplace,
    Mechanism,
    NeighboringRelation,
    PaperNoise,
    Poisson,
    ReleaseKind,
)

ADD, REPLACE = NeighboringRelation
CONFIDENCE = 1 - 1e-8
FULL = Poisson(1.0)


def audit(
    mechanism: Mechanism, relation: NeighboringRelation, size: int, sampling: BatchSampling = FULL, delta: float = 0.0
) -> LowerBound:
    statistic: Statistic = "projection" if isinstance(mechanism, Gaussian) else "distance"
    return audit_release(
        mechanism,
        relation,
        size,
        sampling=sampling,
        statistic=statistic,
        delta=delta,
        draws=10_000,
        confidence=CONFIDENCE,
        seed=7,
    )


def proved(
    mechanism: Mechanism, relation: NeighboringRelation, size: int, sampling: BatchSampling, delta: float
) -> float:
    kind = ReleaseKind(mechanism.unit(), sampling, size)
    return proved_epsilon({kind: 1}, max(delta, 1e-12), relation).epsilon


# Releases


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 20])
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize(
    ("relation", "sampling"), [(ADD, FULL), (REPLACE, FULL), (ADD, Poisson(0.3)), (REPLACE, FixedSize(5, 2))]
)
def test_l2_laplace_is_as_private_as_proved(
    epsilon: float, size: int, relation: NeighboringRelation, sampling: BatchSampling
) -> None:
    mechanism = L2Laplace(0.5, epsilon, relation)
    assert audit(mechanism, relation, size, sampling).epsilon <= proved(mechanism, relation, size, sampling, 0.0) + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize("multiplier", [0.7, 2.0])
@pytest.mark.parametrize("delta", [1e-5, 0.05])
@pytest.mark.parametrize(
    ("relation", "sampling"),
    [(ADD, FULL), (REPLACE, FULL), (ADD, Poisson(0.3)), (REPLACE, Poisson(0.3)), (REPLACE, FixedSize(5, 2))],
)
def test_gaussian_is_as_private_as_proved(
    multiplier: float, size: int, delta: float, relation: NeighboringRelation, sampling: BatchSampling
) -> None:
    mechanism = Gaussian(0.5, multiplier)
    found = audit(mechanism, relation, size, sampling, delta).epsilon
    assert found <= proved(mechanism, relation, size, sampling, delta)


def test_laplace_is_as_private_as_proved() -> None:
    """In d = 3 the canary lies along (1, 1, 1), where the L1 norm is largest: epsilon = sqrt(3) C/scale."""
    mechanism = Laplace(1.0, 1.0)
    found = audit(mechanism, ADD, 3).epsilon
    assert 1.0 < found <= math.sqrt(3)  # more than the 1 that the L2 norm would give


@pytest.mark.some(1)
@pytest.mark.parametrize(("relation", "sampling"), [(ADD, FULL), (REPLACE, FULL), (ADD, Poisson(0.5))])
def test_half_the_noise_is_noticed(relation: NeighboringRelation, sampling: BatchSampling) -> None:
    claimed, broken = Gaussian(0.5, 1.4), Gaussian(0.5, 0.7)
    limit = proved(claimed, relation, 10, sampling, 0.05)
    assert audit(claimed, relation, 10, sampling, 0.05).epsilon <= limit
    assert audit(broken, relation, 10, sampling, 0.05).epsilon > limit


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [1, 2])
def test_half_the_noise_of_l2_laplace_is_noticed(size: int) -> None:
    assert (
        audit(L2Laplace(1.0, 2.0, ADD), ADD, size).epsilon > 1.0 >= audit(L2Laplace(1.0, 1.0, ADD), ADD, size).epsilon
    )


@pytest.mark.some(1)
@pytest.mark.parametrize("size", [2, 20])
def test_an_exponential_norm_is_noticed(size: int) -> None:
    """The noise of MAPA's experiments: in more than one dimension its density is unbounded at 0."""
    broken = PaperNoise(1.0, 1.0, ADD, norm="exponential")
    assert audit(broken, ADD, size).epsilon > 1.0
    # With the Gamma norm, which is the mechanism's own, the same class passes.
    assert audit(PaperNoise(1.0, 1.0, ADD, norm="gamma"), ADD, size).epsilon <= 1.0


def test_noise_that_leaves_a_coordinate_out_is_noticed() -> None:
    broken = PaperNoise(1.0, 1.0, ADD, norm="gamma", coordinates=3)
    assert audit(broken, ADD, 4).epsilon > 1.0


def test_a_canary_is_clipped() -> None:
    """Its gradient is 8 C before clipping. Were it not clipped, the bound would be that of noise 8 times smaller."""
    assert audit(Gaussian(0.5, 4.0), ADD, 4, delta=0.05).epsilon <= proved(Gaussian(0.5, 4.0), ADD, 4, FULL, 0.05)
    assert audit(Gaussian(0.5, 0.5), ADD, 4, delta=0.05).epsilon > 1.0


# Coverage: how often a bound is wrong


def test_bounds_from_runs_are_wrong_no_more_often_than_they_say() -> None:
    """Randomised response at epsilon = 1, which the event reaches: 2,000 bounds at confidence 0.8. More than 487 wrong
    ones have probability below 1e-6 even if each were wrong with probability 0.2. The ratio of frequencies, which is no
    bound, is wrong about every other time, and that is noticed."""
    generator, q = np.random.default_rng(8), math.e / (1 + math.e)
    present, absent = generator.random((2, 2000, 100))
    bounds = [epsilon_from_runs(x < q, y < 1 - q, 0.0, ADD, 0.8).epsilon for x, y in zip(present, absent)]
    wrong = np.sum(np.array(bounds) > 1.0)
    assert binom.sf(wrong - 1, 2000, 0.2) > 1e-6
    plain = [math.log((np.mean(x < q) + 1e-9) / (np.mean(y < 1 - q) + 1e-9)) for x, y in zip(present, absent)]
    assert binom.sf(np.sum(np.array(plain) > 1.0) - 1, 2000, 0.2) < 1e-6


@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_bounds_of_one_run_are_wrong_no_more_often_than_they_say(delta: float) -> None:
    """Randomised response of 100 bits at epsilon = 1 which with probability delta shows all: 20,000 runs at 0.95."""
    generator, q, m = np.random.default_rng(9), math.e / (1 + math.e), 100
    correct = np.where(generator.random(20_000) < delta, m, generator.binomial(m, q, 20_000))
    # It is not idle either: randomised response at epsilon = 2 is found to be above 1 in most runs.
    other = generator.binomial(m, math.exp(2) / (1 + math.exp(2)), 1000)
    bounds = {v: epsilon_one_run(m, m, int(v), delta, ADD).epsilon for v in {*correct, *other}}
    assert binom.sf(sum(bounds[v] > 1.0 for v in correct) - 1, 20_000, 0.05) > 1e-6
    assert np.mean([bounds[v] > 1.0 for v in other]) > 0.5


@pytest.mark.parametrize(
    ("share", "mu", "guessed"), [(0.04, 3.0, 100), (0.04, 1.0, 30), (0.3, 1.0, 100), (1.0, 1.0, 30)]
)
def test_profiles_that_are_true_are_rejected_no_more_often_than_they_say(share: float, mu: float, guessed: int) -> None:
    """With probability ``share``, which everybody sees, each of 100 coins is told as well as mu allows; else none is.
    Of 4,000 runs at 0.95 more than 266 rejections have a probability below 1e-6, were each as likely as 0.05. A bound
    that takes coins for independent fails that where 0.3 of the runs tell. It is not idle either: where few runs tell,
    a third of mu is rejected in most of these."""
    generator, m = np.random.default_rng(12), 100
    coins, tells = generator.choice([-1.0, 1.0], (4000, m)), generator.random((4000, 1)) < share
    scores = np.where(tells, mu / 2, 0.0) * coins + generator.standard_normal((4000, m))
    surest = np.argsort(-np.abs(scores), axis=1)[:, :guessed]
    correct = (np.take_along_axis(scores * coins, surest, axis=1) > 0).sum(axis=1)

    def rejected(strength: float) -> int:
        told = PrivacyProfile.gaussian(strength)
        profile = PrivacyProfile.of(np.array(told.losses), share * np.array(told.deltas))
        verdicts = {v: rejects(m, guessed, v, profile, 0.05) for v in set(correct.tolist())}
        return sum(verdicts[v] for v in correct.tolist())

    assert binom.sf(rejected(mu) - 1, 4000, 0.05) > 1e-6
    if share == 0.04:
        assert rejected(mu / 3) > 0.5 * tells.sum()
    if guessed == m and share == 0.3:
        accuracy = 0.5 + share * (PrivacyProfile.gaussian(mu).accuracy - 0.5)
        assert binom.sf(np.sum(binom.sf(correct - 1, m, accuracy) < 0.05) - 1, 4000, 0.05) < 1e-6


@pytest.mark.slow
def test_the_scores_of_a_mechanism_of_known_epsilon_claim_no_more() -> None:
    """Twenty releases of 300 orthogonal canaries, sampled with rate 0.3, 300 times: more than 41 claims above the
    truth have a probability below 1e-6, were each as likely as 0.05. With a third of the noise nearly every run claims
    more."""
    generator, m, releases, rate, claimed = np.random.default_rng(13), 300, 20, 0.3, 2.0
    kind = ReleaseKind(Gaussian(1.0, claimed), Poisson(rate), m)
    truth = proved_profile([({kind: releases}, 1)], ADD)
    directions, blank, nothing = np.eye(m), np.zeros((m, m)), np.zeros((0, m))

    def refuted(noise: float) -> bool:
        included, scores = generator.random(m) < 0.5, np.zeros(m)
        for _ in range(releases):
            seen = included * (generator.random(m) < rate) + noise * generator.standard_normal(m)
            scores += Sum(seen, directions, blank, nothing, 0.0, rate).log_likelihood_ratios()
        order = np.argsort(scores)
        correct = int((~included[order[:30]]).sum() + included[order[-30:]].sum())
        return rejects(m, 60, correct, truth, 0.05)

    assert binom.sf(sum(refuted(claimed) for _ in range(300)) - 1, 300, 0.05) > 1e-6
    assert np.mean([refuted(claimed / 3) for _ in range(40)]) > 0.9
