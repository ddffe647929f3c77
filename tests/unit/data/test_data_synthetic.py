"""The regression that is drawn: laws of its owners, whose example is whose, and what its settings refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.cli.main import main
from gossamer.data.datasets import DatasetSettings, graph_regression, known_datasets, load_dataset
from gossamer.data.partition import Natural, partition
from gossamer.data.settings import SyntheticSettings
from gossamer.errors import SpecError
from gossamer.experiment.specs.spec_file import parse_spec, write_spec


def drawn(**settings: Any) -> Any:
    return load_dataset(DatasetSettings(name="graph_regression", synthetic=settings))


def test_a_bare_name_is_the_papers_size() -> None:
    """1,000 agents with 100 examples of 2 features (section V-A)."""
    data = load_dataset(DatasetSettings(name="graph_regression"))
    assert data.train.features.shape == (100_000, 2)
    assert data.test.features.shape == (1000, 2)
    assert (data.classes, data.labels, data.source) == (None, None, "drawn with seed 0")
    assert {data.train.features.dtype, data.train.targets.dtype, data.test.targets.dtype} == {np.dtype(np.float32)}


def test_the_same_settings_give_the_same_examples() -> None:
    first, again, other = drawn(owners=20), drawn(owners=20), drawn(owners=20, seed=1)
    assert np.array_equal(first.train.features, again.train.features)
    assert np.array_equal(first.train.targets, again.train.targets)
    assert np.array_equal(first.test.targets, again.test.targets)
    assert not np.isin(first.train.features, other.train.features).any()
    assert not np.isin(first.test.features, first.train.features).any()
    more = drawn(owners=20, test_examples=7)
    assert np.array_equal(first.train.targets, more.train.targets)
    assert len(more.test) == 7


def test_nodes_get_owners_in_order_of_their_numbers() -> None:
    """Owner 10 comes after 9, not after 1."""
    data = drawn(owners=12, examples=3)
    parts = partition(Natural(), data.train.targets, 12, np.random.default_rng(0), data.owners)
    assert [part.tolist() for part in parts] == [[3 * k, 3 * k + 1, 3 * k + 2] for k in range(12)]


def test_without_noise_one_model_fits_all_owners() -> None:
    """d = u'w + v with v = 0: least squares of any owner's examples give the same w, to the digits of float32."""
    data = drawn(owners=5, examples=10, features=3, noise_variance=[0, 0])
    models = [
        np.linalg.lstsq(data.train.features[10 * k : 10 * k + 10], data.train.targets[10 * k : 10 * k + 10])[0]
        for k in range(5)
    ]
    assert np.allclose(models, models[0], atol=1e-4)
    assert np.allclose(data.test.features @ models[0], data.test.targets, atol=1e-4)
    other = drawn(owners=5, examples=10, features=3, noise_variance=[0, 0], seed=1).train
    assert not np.allclose(np.linalg.lstsq(other.features, other.targets)[0], models[0], atol=0.1)


def test_laws_of_owners() -> None:
    """Variances along an owner's axes, and of its noise, are uniform between the bounds.

    Of 400 owners with n = 4,000 examples: an eigenvalue of a sample covariance has a relative deviation of about
    sqrt(2/n) = 0.022, so all lie within [0.2, 1.8] widened by 15 % (seven deviations; false alarms below 1e-8). Means
    of 800 and 400 uniform draws are 1 and 1, with deviations (1.6/sqrt 12)/sqrt 800 = 0.016 and (1/sqrt 12)/20 =
    0.0144: 6 deviations are allowed (false alarms below 1e-8). Features of owners differ in direction: the mean
    covariance of the two features is 0, and their spread over owners is not.
    """
    settings = SyntheticSettings(owners=400, examples=4000)
    train, _ = graph_regression(settings)
    u, d = train.features.reshape(400, 4000, 2).astype(np.float64), train.labels.reshape(400, 4000)
    weights = np.linalg.lstsq(train.features, train.labels)[0]
    covariances = np.swapaxes(u, 1, 2) @ u / 4000
    principal = np.linalg.eigvalsh(covariances)
    assert 0.2 * 0.85 < principal.min() < 0.4
    assert 1.6 < principal.max() < 1.8 * 1.15
    assert abs(principal.mean() - 1) < 0.1
    noise = np.var(d - u @ weights, axis=1)
    assert 0.5 * 0.85 < noise.min() < 0.55
    assert 1.45 < noise.max() < 1.5 * 1.15
    assert abs(noise.mean() - 1) < 0.09
    skew = covariances[:, 0, 1]
    assert abs(skew.mean()) < 6 * skew.std() / 20
    assert skew.std() > 0.1
    assert abs(u.mean()) < 6 / np.sqrt(u.size)


def test_test_examples_are_of_owners_evenly_spaced() -> None:
    """The i-th of m test examples is of owner i K // m; three owners whose spreads are far apart show it.

    A spread of 2,000 examples has a relative deviation of 1/sqrt(4000) = 0.016; the difference of two is allowed 0.15
    (more than six deviations).
    """
    settings = SyntheticSettings(
        owners=3, examples=2000, features=1, test_examples=6000, feature_variance=(0, 9), seed=1
    )
    train, test = graph_regression(settings)
    by_train = train.features.reshape(3, 2000).std(axis=1)
    by_test = test.features.reshape(3, 2000).std(axis=1)
    assert test.owners is None
    assert np.allclose(by_train, by_test, rtol=0.15)
    assert not np.isclose(by_train[:, None], by_train, rtol=0.3)[~np.eye(3, dtype=bool)].any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "digits", "synthetic": {}}, "synthetic is for graph_regression, but this data set is 'digits'"),
        ({"name": "graph_regression", "task": "classification"}, "its task is regression"),
        ({"name": "graph_regression", "path": "a.csv"}, "path does not apply to graph_regression"),
        ({"name": "graph_regression", "normalise": "unit_norm"}, "normalise does not apply"),
        ({"name": "graph_regression", "test_fraction": 0.5}, "test_fraction does not apply"),
        ({"name": "graph_regression", "synthetic": {"noise_variance": [2, 1]}}, r"\[least, most\], found \[2, 1\]"),
        ({"name": "graph_regression", "synthetic": {"feature_variance": [1]}}, "2 or more of them, found 1"),
        ({"name": "graph_regression", "synthetic": {"feature_variance": [-1, 1]}}, "greater than or equal to 0"),
        ({"name": "graph_regression", "synthetic": {"owners": 0}}, "greater than or equal to 1"),
        ({"name": "graph_regression", "synthetic": {"owners": 10**9}}, "more than 200,000,000 numbers"),
        ({"name": "graph_regression", "synthetic": {"features": 10**6}}, "more than 200,000,000 numbers"),
        (
            {"name": "graph_regression", "synthetic": {"owners": 10**5, "examples": 1, "features": 100}},
            "more than 200,000,000 numbers",
        ),
        ({"name": "graph_regression", "synthetic": {"test_examples": 10**9}}, "more than 200,000,000 numbers"),
        ({"name": "graph_regression", "synthetic": {"agents": 10}}, "unknown key synthetic.agents"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DatasetSettings(**settings)


def test_a_written_spec_says_what_was_drawn() -> None:
    experiment = parse_spec({"dataset": "graph_regression", "privacy": "none"})
    assert experiment.dataset.task == "regression"
    assert experiment.dataset.synthetic == SyntheticSettings()
    written = write_spec(experiment)
    assert "feature_variance" in written
    assert DatasetSettings(name="graph_regression", synthetic=None) == experiment.dataset


def test_the_list_of_datasets_has_it(capsys: pytest.CaptureFixture[str]) -> None:
    record = known_datasets()[-1]
    assert (record.name, record.files, record.path) == ("graph_regression", (), None)
    assert main(["datasets"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("graph_regression")]
    assert line.endswith("needs no files")
