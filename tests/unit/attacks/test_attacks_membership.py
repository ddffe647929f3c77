"""Membership inference: rates against counting, and known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from gossamer.attacks.audit import auc, membership, roc
from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Objective


def test_auc_counts_pairs() -> None:
    """Of 3 x 2 pairs: 4 > 1, 4 > 3, 3 > 1, 2 > 1 are right, 3 = 3 is half, 2 < 3 is wrong: 4.5/6."""
    members, others = np.array([4.0, 3.0, 2.0]), np.array([1.0, 3.0])
    assert auc(members, others) == pytest.approx(4.5 / 6)
    assert auc(others, members) == pytest.approx(1.5 / 6)
    assert auc(np.ones(5), np.ones(7)) == 0.5


def test_the_curve_goes_through_every_threshold() -> None:
    false, true = roc(np.array([4.0, 3.0, 2.0]), np.array([1.0, 3.0]))
    np.testing.assert_allclose(false, [0, 0, 0.5, 0.5, 1])
    np.testing.assert_allclose(true, [0, 1 / 3, 2 / 3, 1, 1])
    trapezoids = np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2)
    assert trapezoids == pytest.approx(auc(np.array([4.0, 3.0, 2.0]), np.array([1.0, 3.0])))


def test_of_two_normal_distributions_it_finds_what_theory_says() -> None:
    """N(1, 1) against N(0, 1): AUC = Phi(1/sqrt 2), advantage 2 Phi(1/2) - 1, TPR at FPR a = Phi(1 - Phi^-1(1 - a)).

    Six standard deviations of n = 40,000 (of 400 false positives for the rates): a chance of about 1e-8 in all.
    """
    generator = np.random.default_rng(1)
    found = membership(1 + generator.standard_normal(40_000), generator.standard_normal(40_000), generator)
    assert found["auc"] == pytest.approx(norm.cdf(np.sqrt(0.5)), abs=0.015)
    assert found["advantage"] == pytest.approx(2 * norm.cdf(0.5) - 1, abs=0.03)
    for rate, tolerance in ((0.01, 0.03), (0.001, 0.02)):
        assert found[f"tpr_at_fpr_{rate:g}"] == pytest.approx(norm.cdf(1 - norm.isf(rate)), abs=tolerance)


def test_without_a_difference_there_is_no_advantage() -> None:
    """The threshold that looks best on one half is judged on the other: means of 0, not of the maximum's bias."""
    generator = np.random.default_rng(2)
    found = [membership(*generator.standard_normal((2, 200)), generator) for _ in range(400)]
    # Each has a standard deviation of at most 0.1; six of the mean's are 0.03.
    assert abs(np.mean([one["advantage"] for one in found])) < 0.03
    assert abs(np.mean([one["auc"] for one in found]) - 0.5) < 0.01


def test_small_groups() -> None:
    found = membership(np.array([2.0, np.nan]), np.array([0.0, 1.0]), np.random.default_rng(3))
    assert found["auc"] == 0.5  # NaN is the lowest
    assert found["tpr_at_fpr_0.001"] is found["tpr_at_fpr_0.01"] is None
    assert set(found) == {"members", "non_members", "auc", "advantage", "tpr_at_fpr_0.001", "tpr_at_fpr_0.01"}
    with pytest.raises(DataError, match="at least 2 members"):
        membership(np.zeros(1), np.zeros(5), np.random.default_rng(3))


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared", "hinge"])
def test_losses_of_examples_have_the_mean_that_an_evaluation_gives(loss: str) -> None:
    generator = np.random.default_rng(4)
    classes = {"logistic": 2, "squared": None}.get(loss, 3)
    targets = generator.integers(0, classes or 5, 2000)
    data = Split(generator.standard_normal((2000, 4), np.float32), targets if classes else targets.astype(np.float32))
    objective = LinearModel(loss, 4, classes, dtype=np.float64)
    models = generator.standard_normal((3, objective.size))
    losses = objective.losses(models, data)
    np.testing.assert_allclose(losses.mean(axis=1), objective.evaluate(models, data).loss)
    few = Split(data.features[:20], data.targets[:20])
    np.testing.assert_allclose(losses[:, :20], Objective.losses(objective, models, few))


def test_losses_of_networks() -> None:
    pytest.importorskip("torch", reason="needs gossamer-fl[torch]")
    from torch import nn

    from gossamer.objectives.networks.module import TorchModule

    generator = np.random.default_rng(5)
    data = Split(generator.standard_normal((50, 4), np.float32), generator.integers(0, 3, 50))
    objective = TorchModule(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    models = generator.standard_normal((2, objective.size)).astype(np.float32)
    np.testing.assert_allclose(
        objective.losses(models, data), Objective.losses(objective, models, data), rtol=1e-5, atol=1e-6
    )
