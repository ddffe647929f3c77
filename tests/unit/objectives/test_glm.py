"""Linear models: settings, what data they take, evaluation and smoothness."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.metrics import accuracy_score, hinge_loss, log_loss, mean_squared_error
from tests.reference.glm_slow import example_loss

from gossamer.data.examples import Split
from gossamer.errors import DataError, SpecError
from gossamer.objectives.linear import model as glm
from gossamer.objectives.linear.model import LinearModel, largest_eigenvalue
from gossamer.vectors import Part, unpack

LOSSES = [("logistic", 2), ("softmax", 2), ("softmax", 4), ("squared", None), ("hinge", 2), ("hinge", 4)]


def split_for(classes: int | None, count: int = 50, features: int = 6, seed: int = 0) -> Split:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, features)).astype(np.float32)
    y = rng.standard_normal(count).astype(np.float32) if classes is None else rng.integers(0, classes, count)
    return Split(x, y)


def sparse(split: Split) -> Split:
    return Split(sp.csr_array(split.features), split.targets)


# Settings


@pytest.mark.parametrize(
    ("name", "classes", "outputs"),
    [
        ("logistic", 2, 1),
        ("softmax", 2, 2),
        ("softmax", 10, 10),
        ("squared", None, 1),
        ("hinge", 2, 1),
        ("hinge", 3, 3),
    ],
)
def test_parts_are_those_of_a_torch_linear_layer(name: str, classes: int | None, outputs: int) -> None:
    layer = torch.nn.Linear(5, outputs).state_dict()
    model = LinearModel(name, 5, classes)
    assert model.parts == tuple(Part(key, tuple(value.shape)) for key, value in layer.items())
    assert model.size == 6 * outputs
    assert LinearModel(name, 5, classes, intercept=False).parts == (Part("weight", (outputs, 5)),)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_start_is_zero_and_draws_nothing(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    start = LinearModel("softmax", 3, 4, dtype=dtype).initial(generator)
    assert start.dtype == dtype
    assert start.tolist() == [0] * 16
    assert generator.bit_generator.state == before


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            ("probit", 3, 2),
            {},
            "squared, squared_error, poisson, hinge, found 'probit'",
        ),
        (("logistic", 0, 2), {}, "1 feature or more, .*found 0, "),
        (("logistic", 3, 2), {"l2": -1.0}, "l2 of 0 or more, .*found 3, -1.0 "),
        (("logistic", 3, 2), {"l2": math.nan}, "l2 of 0 or more, .*found 3, nan "),
        (("logistic", 3, 2), {"dtype": np.float16}, "float32 or float64, found 3, 0.0 and float16"),
    ],
)
def test_settings_that_make_no_sense_are_refused(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        LinearModel(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "classes", "wanted"),
    [
        ("logistic", 3, "2 classes"),
        ("logistic", None, "2 classes"),
        ("softmax", 1, "2 or more classes"),
        ("softmax", None, "2 or more classes"),
        ("hinge", 1, "2 or more classes"),
        ("squared", 2, "real targets"),
    ],
)
def test_a_number_of_classes_that_the_loss_is_not_for_is_refused(name: str, classes: int | None, wanted: str) -> None:
    found = "real targets" if classes is None else f"{classes} classes"
    with pytest.raises(DataError, match=f"the {name} loss is for {wanted}, found {found}"):
        LinearModel(name, 3, classes)


# Data


@pytest.mark.parametrize("target", [-1.0, 4.0, 0.5, math.nan])
def test_a_target_that_is_no_class_is_refused_in_one_line(target: float) -> None:
    split = Split(np.ones((2, 3), np.float32), np.array([0, target], np.float32))
    with pytest.raises(DataError) as refusal:
        LinearModel("softmax", 3, 4).evaluate(np.zeros((1, 16)), split)
    assert str(refusal.value).startswith(f"targets must be classes 0..3, found {target:g}; ")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((2, 4), np.float32), r"expected features \[2, 3\], found \[2, 4\]"),
        (np.ones((5, 3), np.float32), r"expected features \[2, 3\], found \[5, 3\]"),
        (np.ones((2, 3), np.uint8), "features must be float32, found uint8"),
        (sp.csr_array(np.ones((2, 4), np.float32)), r"expected features \[2, 3\], found \[2, 4\]"),
    ],
)
def test_features_that_do_not_fit_are_refused(features: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        LinearModel("logistic", 3, 2).evaluate(np.zeros((1, 4)), Split(features, np.array([0, 1])))


def test_targets_that_are_not_one_a_row_are_refused() -> None:
    split = Split(np.ones((2, 3), np.float32), np.array([[0], [1]]))
    with pytest.raises(DataError, match=r"expected one target an example, found targets \[2, 1\]"):
        LinearModel("logistic", 3, 2).evaluate(np.zeros((1, 4)), split)


def test_a_csr_entry_stored_in_pieces_is_refused_because_its_norm_would_be_too_small() -> None:
    twice = sp.csr_array((np.ones(2, np.float32), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    split = Split(twice, np.array([1]))
    model = LinearModel("logistic", 3, 2)
    with pytest.raises(DataError, match=r"call sum_duplicates\(\)"):
        model.clipped_gradients(np.zeros((1, 4)), split, [np.array([0])], 0.1)
    twice.sum_duplicates()
    sums = model.clipped_gradients(np.zeros((1, 4)), split, [np.array([0])], 0.1).sums
    assert np.linalg.norm(sums) == pytest.approx(0.1)


def test_a_csr_array_that_points_outside_of_itself_is_refused() -> None:
    wrong = sp.csr_array(np.ones((1, 3), np.float32))
    wrong.indices[2] = 1_000_000
    with pytest.raises(DataError, match="the CSR features are malformed"):
        LinearModel("logistic", 3, 2).evaluate(np.zeros((1, 4)), Split(wrong, np.array([1])))


def test_splits_are_remembered_only_while_they_live_and_never_copied() -> None:
    model, split = LinearModel("logistic", 6, 2), split_for(2)
    before = model.evaluate(np.ones((1, 7)), split)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert len(twin._memory) == 0
        assert twin.evaluate(np.ones((1, 7)), split) == before
    gone = weakref.ref(split)
    del split
    gc.collect()
    assert gone() is None
    assert len(model._memory) == 0


def test_csr_data_of_many_features_stay_sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,000 examples of 4 million features are 32 GB when dense. Only 40 columns are used, so that a dense model
    of 40 features says what must come out."""
    features, count, rng = 4_000_000, 2_000, np.random.default_rng(0)
    columns = np.sort(rng.choice(features, 40, replace=False))
    small = sp.random_array((count, 40), density=0.2, rng=rng, dtype=np.float32, format="csr")
    small.sort_indices()
    big = sp.csr_array((small.data, columns[small.indices], small.indptr), shape=(count, features))
    y = rng.integers(0, 2, count)
    narrow = LinearModel("logistic", 40, 2), Split(small.toarray(), y)
    wide = LinearModel("logistic", features, 2), Split(big, y)
    w = rng.standard_normal(41).astype(np.float32)
    places = np.append(columns, features)
    models = np.zeros((2, features + 1), np.float32)
    models[:, places] = w
    batches = [np.arange(100), np.array([7])]
    monkeypatch.setattr(sp.csr_array, "toarray", lambda *_: pytest.fail("densified"))
    tracemalloc.start()
    sums = wide[0].clipped_gradients(models, wide[1], batches, 0.3).sums
    scores = wide[0].evaluate(models, wide[1])
    bound = wide[0].smoothness(wide[1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10 * models.nbytes
    expected = narrow[0].clipped_gradients(np.stack([w, w]), narrow[1], batches, 0.3).sums
    np.testing.assert_allclose(sums[:, places], expected, atol=1e-5)
    assert np.count_nonzero(sums) == np.count_nonzero(expected)
    np.testing.assert_allclose(scores.loss, narrow[0].evaluate(w[None], narrow[1]).loss[0], rtol=1e-6)
    assert bound == pytest.approx(narrow[0].smoothness(narrow[1]), rel=0.02)
    assert bound >= narrow[0].smoothness(narrow[1]) * (1 - 1e-12)


# Evaluation


def outputs_of(model: LinearModel, w: np.ndarray, x: np.ndarray) -> np.ndarray:
    """z [n, outputs] in float64."""
    arrays = unpack(w.astype(np.float64), model.parts)
    return x.astype(np.float64) @ arrays["weight"].T + arrays["bias"]


def sklearn_scores(name: str, classes: int | None, z: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    if name == "squared":
        return mean_squared_error(y, z[:, 0]) / 2, math.nan
    found = z.argmax(axis=1) if z.shape[1] > 1 else (z[:, 0] > 0).astype(int)
    accuracy = accuracy_score(y, found)
    if name == "hinge":
        own = range(z.shape[1]) if z.shape[1] > 1 else [1]
        return sum(hinge_loss(y == c, z[:, k], labels=[False, True]) for k, c in enumerate(own)), accuracy
    scores = z if name == "softmax" else np.column_stack((np.zeros(len(z)), z))
    chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    return log_loss(y, chances, labels=range(scores.shape[1])), accuracy


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [lambda split: split, sparse])
@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_evaluation_is_that_of_sklearn(
    name: str, classes: int | None, layout: Any, dtype: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(glm, "_ROWS", 16)  # several chunks of examples, the last one short,
    monkeypatch.setattr(glm, "_OUTPUTS", 16 * 8)  # and of models
    data = split_for(classes)
    model = LinearModel(name, 6, classes, l2=5.0, dtype=dtype)
    models = np.random.default_rng(1).standard_normal((11, model.size)).astype(dtype)
    found = model.evaluate(models, layout(data))
    expected = [sklearn_scores(name, classes, outputs_of(model, w, data.features), data.targets) for w in models]
    np.testing.assert_allclose(found.loss, [loss for loss, _ in expected], rtol=1e-5 if dtype == np.float32 else 1e-12)
    np.testing.assert_array_equal(found.accuracy, [accuracy for _, accuracy in expected])


def test_extreme_outputs_have_finite_losses() -> None:
    """At z = 1e4 s the logistic loss is 0 for the right class and 1e4 for the wrong one; softmax likewise."""
    x = np.ones((2, 1), np.float32)
    logistic = LinearModel("logistic", 1, 2, intercept=False)
    assert logistic.evaluate(np.array([[1e4]]), Split(x, np.array([0, 1]))).loss.tolist() == [5e3]
    softmax = LinearModel("softmax", 1, 3, intercept=False)
    found = softmax.evaluate(np.array([[1e4, 0, -1e4]]), Split(x, np.array([0, 2])))
    assert found.loss.tolist() == [1e4]
    assert found.accuracy.tolist() == [0.5]


@pytest.mark.parametrize(("name", "classes"), [loss for loss in LOSSES if loss[1]])
def test_a_tie_goes_to_the_first_class(name: str, classes: int) -> None:
    data = split_for(classes)
    model = LinearModel(name, 6, classes)
    found = model.evaluate(model.initial(np.random.default_rng())[None], data)
    assert found.accuracy == np.mean(data.targets == 0)


@pytest.mark.parametrize(("name", "classes"), LOSSES)
def test_a_model_that_is_not_finite_is_scored_without_a_warning(name: str, classes: int | None) -> None:
    model = LinearModel(name, 6, classes)
    models = np.zeros((3, model.size), np.float32)
    models[0], models[1] = np.nan, np.inf
    found = model.evaluate(models, split_for(classes))
    assert math.isnan(found.loss[0])
    assert math.isfinite(found.loss[2])


def test_an_empty_split_cannot_be_evaluated() -> None:
    with pytest.raises(DataError, match="at least 1 example"):
        LinearModel("logistic", 6, 2).evaluate(np.zeros((1, 7)), split_for(2, count=0))


# Smoothness


def hessian(name: str, model: LinearModel, w: np.ndarray, data: Split) -> np.ndarray:
    """Of the mean loss plus the L2 term, by automatic differentiation."""
    x = torch.tensor(data.features, dtype=torch.float64)

    def objective(flat: torch.Tensor) -> torch.Tensor:
        weight = flat[: model.outputs * model.features].reshape(model.outputs, -1)
        z = x @ weight.T + (flat[weight.numel() :] if model.intercept else 0)
        losses = [example_loss(name, z[i], float(y)) for i, y in enumerate(data.targets)]
        return torch.stack(losses).mean() + model.l2 / 2 * flat.dot(flat)

    return torch.autograd.functional.hessian(objective, torch.tensor(w)).numpy()


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("name", "classes", "tightness"),
    # Exact for the squared loss everywhere, for two-class losses at W = 0 (sigma' = 1/4; softmax curvature 1/2);
    # for four classes the softmax's curvature at W = 0 is 1/4, half of the bound.
    [("squared", None, 1.0), ("logistic", 2, 1.0), ("softmax", 2, 1.0), ("softmax", 4, 0.5)],
)
def test_smoothness_bounds_the_hessian(name: str, classes: int | None, tightness: float, intercept: bool) -> None:
    data, l2 = split_for(classes, count=20, features=4), 0.3
    model = LinearModel(name, 4, classes, intercept=intercept, l2=l2)
    bound = model.smoothness(data)
    assert bound is not None
    assert bound == pytest.approx(model.smoothness(sparse(data)))
    start = np.linalg.eigvalsh(hessian(name, model, np.zeros(model.size), data))[-1]
    assert start - l2 == pytest.approx(tightness * (bound - l2), rel=1e-6)
    for seed in range(5):
        w = np.random.default_rng(seed).standard_normal(model.size)
        assert np.linalg.eigvalsh(hessian(name, model, w, data))[-1] <= bound * (1 + 1e-12)


def test_the_hinge_has_no_smoothness() -> None:
    assert LinearModel("hinge", 6, 2).smoothness(split_for(2)) is None


@pytest.mark.parametrize("count", [0, 3])
def test_smoothness_needs_finite_examples(count: int) -> None:
    data = split_for(2, count=count)
    data.features[:, 0] = np.nan
    with pytest.raises(DataError, match="finite features"):
        LinearModel("logistic", 6, 2).smoothness(data)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_many_features_bound_the_eigenvalue_from_above(signed: bool, intercept: bool) -> None:
    """Against the singular value that LAPACK finds; without signs the power iteration must come near."""
    rng = np.random.default_rng(0)
    x = sp.random_array((60, 1500), density=0.05, rng=rng, dtype=np.float32, format="csr")
    x.data -= 0.5 * signed
    x = sp.hstack((x, sp.csr_array((60, 10), dtype=np.float32)), format="csr")  # and some empty columns
    full = np.column_stack((x.toarray(), np.ones((60, int(intercept))))).astype(np.float64)
    truth = np.linalg.norm(full, 2) ** 2
    for matrix in (x, x.toarray()):
        bound = largest_eigenvalue(matrix, intercept)
        assert truth <= bound <= np.square(full).sum() * (1 + 1e-6)
        if not signed:
            assert bound <= 1.01 * truth


def test_no_data_at_all_has_eigenvalue_zero() -> None:
    for features in (3, 2000):
        assert largest_eigenvalue(np.zeros((5, features), np.float32), intercept=False) == 0
