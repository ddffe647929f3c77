"""Estimates of s, L and D_F against closed forms, and samples that owe nothing to protected data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.reference.glm_slow import example_gradient

from gossamer.data.examples import Split
from gossamer.errors import DataError
from gossamer.experiment.preparation import objective
from gossamer.experiment.preparation.objective import estimate_problem, synthetic_sample
from gossamer.objectives.linear.model import LinearModel
from gossamer.objectives.objective import Evaluation, Gradients, Objective


class Quadratic(Objective):
    """f(w; x) = w' diag(curvature) w / 2 + x' w + c, whose Hessian is known and whose smoothness is not told."""

    def __init__(self, curvature: list[float], l2: float = 0.0, dtype: type = np.float64) -> None:
        self.curvature = np.array(curvature, dtype)
        self.size, self.dtype, self.parts, self.l2 = len(curvature), np.dtype(dtype), (), l2

    def initial(self, generator):
        return np.ones(self.size, self.dtype)

    def clipped_gradients(self, models, data, batches, clip):
        assert clip == math.inf
        rows = [len(b) * m * self.curvature + data.features[b].sum(0) for m, b in zip(models, batches)]
        return Gradients(np.array(rows, self.dtype), np.zeros(len(batches), int), np.array([len(b) for b in batches]))

    def evaluate(self, models, split):
        losses = [m @ (self.curvature * m) / 2 + (split.features @ m).mean() + 100 for m in models]
        return Evaluation(np.array(losses), np.full(len(models), np.nan))


def normal_split(count: int, features: int, seed: int = 0) -> Split:
    draw = np.random.default_rng(seed)
    return Split(draw.standard_normal((count, features), np.float32), draw.integers(3, size=count))


def test_the_spread_of_gradients_agrees_with_autograd_of_single_examples():
    objective = LinearModel("softmax", 7, 3, dtype=np.float64, l2=0.3)
    sample = normal_split(40, 7)
    model = np.random.default_rng(1).standard_normal(objective.size)
    gradients = np.array([example_gradient("softmax", model, x, y, 3, True) for x, y in zip(*vars(sample).values())])
    expected = math.sqrt(np.square(gradients - gradients.mean(0)).sum(1).mean())
    assert estimate_problem(objective, sample, model, 0).gradient_sd == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("entries", [1, 7 * 3, 7 * 40, 2**22])
def test_the_spread_does_not_depend_on_the_chunks(monkeypatch, entries):
    """f's gradients differ by x only: s^2 is the sum of the variances of the features, here with a mean of 1000."""
    monkeypatch.setattr(objective, "_ENTRIES", entries)
    sample = Split(normal_split(40, 7).features + np.float32(1000), np.zeros(40, int))
    expected = math.sqrt(sample.features.astype(np.float64).var(axis=0).sum())
    found = estimate_problem(Quadratic([1.0] * 7), sample, np.ones(7), 0)
    assert found.gradient_sd == pytest.approx(expected, rel=1e-9)


def test_the_loss_gap_is_the_loss_at_the_start_with_its_l2_term():
    """ln 10 at a softmax of zeros; a quadratic has w'Hw/2 + mean x'w + 100 + l2 w'w/2 at ones."""
    softmax = LinearModel("softmax", 5, 10, l2=0.5)
    assert estimate_problem(softmax, normal_split(20, 5), np.zeros(60), 0).loss_gap == pytest.approx(math.log(10))
    sample = normal_split(20, 2)
    found = estimate_problem(Quadratic([1.0, 3.0], l2=0.25), sample, np.ones(2), 0)
    assert found.loss_gap == pytest.approx(2 + sample.features.sum(1).mean() + 100 + 0.25)
    assert found.examples == 20


def test_a_known_smoothness_is_taken_as_it_is():
    objective, sample = LinearModel("squared", 4, None, l2=0.1), normal_split(30, 4)
    sample = Split(sample.features, sample.features[:, 0])
    rows = np.hstack((sample.features, np.ones((30, 1)))).astype(np.float64)
    expected = np.linalg.eigvalsh(rows.T @ rows / 30)[-1] + 0.1
    found = estimate_problem(objective, sample, np.zeros(5), 0)
    assert found.smoothness == pytest.approx(expected, rel=1e-6)
    assert "bound" in found.smoothness_by


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("curvature", [[1.0, 8.0, 0.5], [2.0, -8.0, 3.0]])
def test_an_unknown_smoothness_is_the_largest_eigenvalue_in_size(curvature, dtype):
    """12 power iterations shrink what is not the first eigenvector by at least (3/8)^12, below 1e-5."""
    objective = Quadratic(curvature, l2=0.5, dtype=dtype)
    found = estimate_problem(objective, normal_split(20, 3), np.ones(3), 0)
    assert found.smoothness == pytest.approx(8.5, rel=1e-3)
    assert "finite differences" in found.smoothness_by
    assert "estimate" in found.smoothness_by


def test_the_estimate_of_a_glm_is_below_its_bound_and_near_its_curvature(monkeypatch):
    """At w = 0 the logistic loss has the Hessian X'X/(4 n), which is the bound itself."""
    objective, sample = LinearModel("logistic", 6, 2, dtype=np.float64), normal_split(50, 6)
    sample = Split(sample.features, np.minimum(sample.targets, 1))
    bound = objective.smoothness(sample)
    monkeypatch.setattr(LinearModel, "smoothness", lambda self, data: None)
    estimates = [estimate_problem(objective, sample, np.zeros(7), seed).smoothness for seed in range(3)]
    assert all(0.8 * bound < estimate < bound * (1 + 1e-6) for estimate in estimates)


@pytest.mark.parametrize("x", [1.0, 0.5])
def test_a_hinge_is_measured_over_the_first_step_that_meets_a_kink(x):
    """Three examples of max(0, 1 - x w) and one of max(0, 1 + x w): the mean gradient bends at w = 1/x and w = -1/x.

    Steps h are 2^k eps^(1/3). At the first one past 1/x, only the one example has a gradient at +h, +x/4, and only the
    three others have one at -h, -3x/4. The slope between is (x/4 + 3x/4)/(2 h).
    """
    objective = LinearModel("hinge", 1, 2, intercept=False, l2=0.125, dtype=np.float64)
    sample = Split(np.full((4, 1), x, np.float32), np.array([1, 1, 1, 0]))
    found = estimate_problem(objective, sample, np.zeros(1), 0)
    step = np.finfo(np.float64).eps ** (1 / 3)
    while step < 1 / x:
        step *= 2
    assert found.smoothness == pytest.approx(x / (2 * step) + 0.125)
    assert "finite differences" in found.smoothness_by


def test_estimates_depend_on_the_seed_only_through_the_direction():
    objective, sample = Quadratic([1.0, 8.0, 0.5]), normal_split(20, 3)
    first, again, other = (estimate_problem(objective, sample, np.ones(3), seed) for seed in (0, 0, 1))
    assert first == again
    assert (first.gradient_sd, first.loss_gap) == (other.gradient_sd, other.loss_gap)


@pytest.mark.parametrize(
    ("sample", "initial", "expected"),
    [
        (normal_split(1, 3), 1.0, "at least 2 examples, found 1"),
        (Split(np.ones((9, 3), np.float32), np.zeros(9, int)), 1.0, "gradient_sd .* all gradients are equal; give"),
        (normal_split(20, 3), math.inf, "gradient_sd .* not finite"),
    ],
)
def test_a_sample_that_tells_nothing_gets_one_line(sample, initial, expected):
    with pytest.raises(DataError, match=expected):
        estimate_problem(Quadratic([1.0, 8.0, 0.5]), sample, np.full(3, initial), 0)


def test_a_gradient_that_an_objective_would_count_as_zero_is_no_estimate():
    features = np.ones((4, 1), np.float32)
    features[2] = np.inf
    hinge = LinearModel("hinge", 1, 2)
    with pytest.raises(DataError, match=r"gradient_sd .* not finite"):
        estimate_problem(hinge, Split(features, np.array([0, 1, 0, 1])), np.zeros(2), 0)


def test_a_gradient_that_never_changes_gets_one_line():
    with pytest.raises(DataError, match=r"smoothness cannot .* does not change near the initial model; give"):
        estimate_problem(Quadratic([0.0, 0.0], l2=0.5), normal_split(20, 2), np.ones(2), 0)


def test_a_synthetic_sample_has_the_laws_that_the_page_states():
    """20,000 numbers: means within 5 sd of theirs, which fails by chance less than once in a million."""
    pictures, rows = synthetic_sample((1, 5, 8), 10, 500), synthetic_sample((40,), None, 500)
    assert pictures.features.shape == (500, 1, 5, 8)
    assert (pictures.features.dtype, pictures.targets.dtype) == (np.float32, np.int64)
    assert 0 <= pictures.features.min() < 0.01 < 0.99 < pictures.features.max() <= 1
    assert pictures.features.mean() == pytest.approx(1 / 2, abs=5 / math.sqrt(12 * 20_000))
    assert set(pictures.targets) == set(range(10))
    assert rows.features.mean() == pytest.approx(0, abs=5 / math.sqrt(20_000))
    assert np.square(rows.features).mean() == pytest.approx(1, abs=5 * math.sqrt(2 / 20_000))
    assert rows.targets.dtype == np.float32
    assert len(set(rows.targets)) > 490
    again, other = synthetic_sample((40,), None, 500), synthetic_sample((40,), None, 500, seed=1)
    assert np.array_equal(rows.features, again.features)
    assert not np.array_equal(rows.features, other.features)
    scaled = synthetic_sample((40,), 2, 9, unit_norm=True).features
    assert np.linalg.norm(scaled, axis=1) == pytest.approx(np.ones(9))
