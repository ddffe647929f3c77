"""Declared ranges of targets: what is learnt is near -1 to 1, and what people see is in the target's own unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file
from sklearn.metrics import r2_score, root_mean_squared_error
from tests.sampling import examples

import gossamer as gs
from gossamer.data.columns import TargetRange
from gossamer.data.datasets import DatasetSettings, load_dataset, undeclared_labels, unlearnable
from gossamer.deployment.party.data import load_party_split, shard_settings, write_party_file
from gossamer.errors import DataError, RunWarning, SpecError

REAL: dict[str, Any] = {"name": "mine", "task": "regression"}
X = np.random.default_rng(0).uniform(-1, 1, (60, 3))
Y = 130 + 30 * X[:, 0] - 12 * X[:, 1] + np.random.default_rng(1).normal(0, 4, 60)
QUICK: dict[str, Any] = {
    "algorithm": {"name": "central", "batch_size": 24, "updates_per_node": 60, "learning_rate": 0.3},
    "objective": "squared",
    "privacy": "none",
}
FULL = {"mechanism": "none", "sampling": "fixed_size"}


# Declarations


@pytest.mark.parametrize(
    ("said", "shift", "unit"),
    [
        ([80, 200], 140, 60),
        ({"range": [80, 200]}, 140, 60),
        ({"mean": 130, "deviation": 20}, 130, 20),
    ],
)
def test_a_range_is_said_shortly_or_in_full(said: Any, shift: float, unit: float) -> None:
    found = DatasetSettings(**REAL, target_range=said).target_scale
    assert found is not None
    assert found.shift_and_unit == (shift, unit)


def test_none_is_meant() -> None:
    kept = DatasetSettings(**REAL, target_range="none")
    assert kept.target_scale is None
    assert kept.target_range == "none"


def test_settings_without_a_range_are_written_as_before() -> None:
    assert "target_range" not in DatasetSettings(**REAL).model_dump()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ([200, 80], "the least being less"),
        ([80, 80], "the least being less"),
        ([80], "2 or more of them, found 1"),
        ([1, 2, 3], "at most 2"),
        ([float("nan"), 1], "finite number"),
        ([0, float("inf")], "finite number"),
        (["low", "high"], "valid number"),
        ([False, True], "number"),
        ("wide", "such as .80, 200., found 'wide'"),
        (80, "such as .80, 200., found 80"),
        ([], "2 or more of them, found 0"),
        ({}, "give the least and the most"),
        ({"mean": 130}, "a mean and a deviation"),
        ({"mean": 130, "deviation": 0}, "greater than 0"),
        ({"range": [0, 1], "mean": 1, "deviation": 1}, "found both"),
        ({"ranges": [0, 1]}, "unknown key target_range.ranges; did you mean range"),
        ([-1e308, 1e308], "fit float32"),
        ([0, 1e-320], "fit float32"),
    ],
)
def test_what_is_no_range_is_refused(said: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        DatasetSettings(**REAL, target_range=said)


def test_classes_have_no_range() -> None:
    with pytest.raises(SpecError, match="target_range is for targets that are numbers; say task: regression"):
        DatasetSettings(name="mine", target_range=[0, 1])


# Scaling


def test_ends_of_a_range_are_minus_one_and_one() -> None:
    found = TargetRange(range=(80, 200))
    inside = found.inside([80, 140, 155, 200], clipped=True)
    assert inside.tolist() == [-1, 0, 0.25, 1]
    assert found.own(inside).tolist() == [80, 140, 155, 200]


def test_targets_to_train_on_are_clipped_and_others_are_not() -> None:
    """An error of a test example is the whole error."""
    data = gs.Data(X[:4], [80, 260, 20, 200], x_test=X[:2], y_test=[260, 20], task="regression", target_range=[80, 200])
    found = data.dataset(data.settings(None))
    assert found.train.targets.tolist() == [-1, 1, -1, 1]
    assert found.test.targets.tolist() == [2, -2]


def test_a_mean_clips_nothing() -> None:
    assert TargetRange(mean=100, deviation=10).inside([0, 100, 125], clipped=True).tolist() == [-10, 0, 2.5]


def test_what_float32_does_not_hold_is_refused() -> None:
    with pytest.raises(DataError, match=r"the target 3e\+38 is no finite number of float32 once it is scaled"):
        TargetRange(range=(0, 1e-20)).inside([3e38], clipped=False)


@settings(max_examples=examples(200), deadline=None)
@given(
    low=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    targets=st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
)
def test_targets_in_their_own_unit_scale_to_just_those_they_came_from(
    low: float, width: float, targets: list[float]
) -> None:
    """A party's file has the bits that a simulation has, whatever they were rounded to."""
    assume(low < low + width and (low == 0 or abs(low) > 1e-30))
    found = TargetRange(range=(low, low + width))
    for clipped in (True, False):
        inside = found.inside(targets, clipped=clipped)
        np.testing.assert_array_equal(found.inside(found.exactly(inside), clipped=False), inside)


# All formats


def _csv(folder: Path) -> dict[str, Any]:
    rows = [f"{','.join(map(repr, x))},{y!r}" for x, y in zip(X.tolist(), Y.tolist())]
    (folder / "a.csv").write_text("\n".join(["a,b,c,y", *rows]))
    return {"path": folder / "a.csv", "target": "y", "scale": "none"}


def _parquet(folder: Path) -> dict[str, Any]:
    table = pyarrow.table({**dict(zip("abc", X.T)), "y": Y})
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    return {"path": folder / "a.parquet", "target": "y", "scale": "none"}


def _npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "a.npz", features=X, targets=Y)
    return {"path": folder / "a.npz"}


def _libsvm(folder: Path) -> dict[str, Any]:
    dump_svmlight_file(X, Y, str(folder / "a.svm"), zero_based=False)
    return {"path": folder / "a.svm"}


@pytest.mark.parametrize("write", [_csv, _parquet, _npz, _libsvm])
def test_a_range_holds_for_files_of_every_format(write: Any, tmp_path: Path) -> None:
    keys = write(tmp_path)
    plain = load_dataset(DatasetSettings(**REAL, **keys))
    scaled = load_dataset(DatasetSettings(**REAL, **keys, target_range=[60, 220]))
    np.testing.assert_allclose(scaled.train.targets, (plain.train.targets - 140) / 80, atol=1e-6)
    assert scaled.train.targets.dtype == np.float32
    party, _ = load_party_split(
        DatasetSettings(**REAL, **keys, target_range=[60, 220], features=3, layout="dense"), keys["path"]
    )
    np.testing.assert_allclose(party.targets, (Y - 140) / 80, atol=1e-6)
    run = gs.run({**QUICK, "dataset": {**REAL, **keys, "target_range": [60, 220]}}, tmp_path / "out")
    model = gs.load_model(tmp_path / "out")
    found = model.predict(keys["path"])
    assert abs(found.values - Y).mean() < 8
    np.testing.assert_array_equal(run.predict(keys["path"]).values, found.values)
    assert model.evaluate(keys["path"])["figures"]["rmse"]["value"] == pytest.approx(
        root_mean_squared_error(Y, found.values), rel=1e-5
    )


# Figures


@pytest.mark.parametrize("objective", ["squared", "mlp"])
def test_a_run_is_that_of_targets_scaled_by_hand(objective: str) -> None:
    """The same model where every step takes all examples; predictions are 60 times that, and 140."""
    algorithm = {**QUICK["algorithm"], "batch_size": 48}
    spec = {**QUICK, "objective": objective, "algorithm": algorithm, "privacy": FULL}
    y = np.clip(Y, 100, 160)
    given = gs.run(spec, data=gs.Data(X, y, task="regression", target_range=[80, 200]))
    hand = gs.run(spec, data=gs.Data(X, (y - 140) / 60, task="regression"))
    for name in hand.model:
        np.testing.assert_array_equal(given.model[name], hand.model[name])
    found, own = given.summary["metrics"], hand.summary["metrics"]
    assert found["test_loss"] == pytest.approx(own["test_loss"], rel=1e-9)
    assert found["test_r2"] == pytest.approx(own["test_r2"], rel=1e-9)
    assert found["test_rmse"] == pytest.approx(60 * own["test_rmse"], rel=1e-9)
    np.testing.assert_allclose(given.predict(X).values, 60 * hand.predict(X).values + 140, rtol=1e-12)
    np.testing.assert_array_equal(given.predict(X).scores, hand.predict(X).scores)


@pytest.mark.parametrize("said", [[80, 200], {"mean": 130, "deviation": 20}, [60, 230]])
def test_figures_are_in_the_targets_own_unit(said: Any) -> None:
    data = gs.Data(X[:40], Y[:40], x_test=X[40:], y_test=Y[40:], task="regression", target_range=said)
    run = gs.run(QUICK, data=data)
    predicted = run.predict(X[40:]).values
    rmse, r2 = root_mean_squared_error(Y[40:], predicted), r2_score(Y[40:], predicted)
    metrics, evaluated = run.summary["metrics"], run.model.evaluate(X[40:], Y[40:])
    assert (metrics["test_rmse"], metrics["test_r2"]) == (pytest.approx(rmse, rel=1e-5), pytest.approx(r2, rel=1e-4))
    assert tuple(evaluated["figures"][name]["value"] for name in ("rmse", "r2")) == (
        pytest.approx(rmse, rel=1e-5),
        pytest.approx(r2, rel=1e-4),
    )
    assert evaluated["loss"] == pytest.approx(metrics["test_loss"], rel=1e-6)
    unit = DatasetSettings(**REAL, target_range=said).target_scale.unit  # type: ignore[union-attr]
    assert metrics["test_loss"] == pytest.approx((rmse / unit) ** 2 / 2, rel=1e-4)  # half of the square, as learnt


def test_the_model_says_what_its_target_was_scaled_by(tmp_path: Path) -> None:
    gs.run(QUICK, tmp_path / "out", data=gs.Data(X, Y, task="regression", target_range=[80, 200]))
    assert '"range": [\n        80.0,\n        200.0\n      ]' in (tmp_path / "out" / "model.json").read_text()
    assert gs.load_model(tmp_path / "out").card.data.target_range == TargetRange(range=(80, 200))


def test_a_partys_own_file_has_the_bits_of_the_simulation(tmp_path: Path) -> None:
    data = gs.Data(X, Y * 1e3, x_test=X[:5], y_test=Y[:5] * 2e3, task="regression", target_range=[100e3, 150e3])
    whole = data.dataset(data.settings(None))
    told = write_party_file(tmp_path / "a.npz", whole.train, whole, whole.test)
    assert told == shard_settings(whole)
    assert told.target_scale == TargetRange(range=(100e3, 150e3))
    train, test = load_party_split(told, tmp_path / "a.npz")
    np.testing.assert_array_equal(train.targets, whole.train.targets)
    assert test is not None
    np.testing.assert_array_equal(test.targets, whole.test.targets)


# Arrays


def test_arrays_and_their_spec_do_not_contradict_each_other() -> None:
    data = gs.Data(X, Y, task="regression", target_range=np.array([80, 200]))
    told = data.settings(None)
    assert data.settings(told) == told
    with pytest.raises(SpecError, match=r"dataset\.target_range of the spec is not what data= says"):
        data.settings(told.model_copy(update={"target_range": TargetRange(range=(0, 200))}))


@pytest.mark.parametrize("said", [[200, 80], "wide", 5, [1, float("nan")], object()])
def test_a_range_of_arrays_is_refused_where_it_is_given(said: Any) -> None:
    with pytest.raises(DataError, match=r"^target_range: ") as caught:
        gs.Data(X, Y, task="regression", target_range=said)
    assert "\n" not in str(caught.value)


def test_arrays_of_classes_have_no_range() -> None:
    with pytest.raises(SpecError, match="target_range is for targets that are numbers"):
        gs.Data(X, [0, 1] * 30, target_range=[0, 1]).settings(None)


# Advice


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (REAL, True),
        ({**REAL, "target_range": [0, 1]}, False),
        ({**REAL, "target_range": {"mean": 0, "deviation": 1}}, False),
        ({**REAL, "target_range": "none"}, False),
        ({"name": "mine"}, False),
        ({"name": "graph_regression"}, False),
    ],
)
def test_a_target_that_nobody_scales_is_said(said: dict[str, Any], told: bool) -> None:
    assert len(unlearnable(DatasetSettings(**said))) == told


PRIVATE = {**QUICK, "privacy": {"noise_multiplier": 1.0}}


@pytest.mark.parametrize(("privacy", "told"), [("none", False), ({"noise_multiplier": 1.0}, True)])
def test_a_private_regression_without_a_range_warns_and_looks_at_nothing(
    privacy: Any, told: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """Targets that are between -1 and 1 already are warned of as well: only what is declared counts."""
    with pytest.warns(RunWarning, match="nothing says how large targets are") if told else _nothing():
        gs.run({**QUICK, "privacy": privacy}, data=gs.Data(X, X[:, 0], task="regression"))


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()


def test_a_private_regression_with_a_range_warns_of_nothing() -> None:
    gs.run(PRIVATE, data=gs.Data(X, Y, task="regression", target_range=[80, 200]))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"name": "mine", "path": "a.csv"}, True),
        ({"name": "mine", "path": "a.csv", "labels": (0, 1)}, False),
        ({"name": "mine", "path": "a.csv", "positive": (1,)}, True),
        ({"name": "mine", "path": "a.csv", "task": "regression"}, False),
        ({"name": "in memory"}, True),
        ({"name": "digits"}, False),
        ({"name": "mnist", "path": "mine"}, False),
    ],
)
def test_labels_that_nobody_declares_are_said(said: dict[str, Any], told: bool) -> None:
    assert len(undeclared_labels(DatasetSettings(**said))) == told


@pytest.mark.parametrize("labels", [None, ["no", "yes"]])
def test_a_private_run_on_undeclared_labels_warns_once(labels: Any) -> None:
    data, spec = gs.Data(X, np.where(Y > 130, "yes", "no"), labels=labels), {**PRIVATE, "objective": "logistic"}
    if labels is not None:
        gs.run(spec, data=data)
        return
    with pytest.warns(RunWarning, match="which ones occur in the private rows is told by model.json") as caught:
        gs.run(spec, data=data)
    assert len(caught) == 1
    gs.run({**spec, "privacy": "none"}, data=data)
