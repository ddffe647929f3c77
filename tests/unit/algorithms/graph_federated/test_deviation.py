"""The best model of a regression in closed form, the distances from it, and where a run reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from tests.reference.gfl_slow import measures, risk, train

import gossamer as gs
from gossamer.algorithms.gossip import box as gossip
from gossamer.algorithms.interface import Cast
from gossamer.algorithms.table import ALGORITHMS
from gossamer.data.examples import Split
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.results.observer import best_model, deviations
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.linear.model import LinearModel

SIZES = ((3, 1, 4), (2, 7))
"""Examples of each agent of each unit: units and agents of different sizes."""


def unequal(features: int = 3) -> tuple[Split, list[list[np.ndarray]]]:
    """Examples of two units; some belong to nobody."""
    generator = np.random.default_rng(0)
    rows = iter(np.split(generator.permutation(20), np.cumsum([n for sizes in SIZES for n in sizes])))
    units = [[next(rows) for _ in sizes] for sizes in SIZES]
    data = generator.normal(size=(20, features)).astype(np.float32), generator.normal(size=20).astype(np.float32)
    return Split(*data), units


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_optimum_minimises_the_risk(intercept: bool, l2: float) -> None:
    """Equation (54), by loops; a numerical minimiser finds the same model."""
    data, units = unequal()
    objective = LinearModel("squared", 3, None, l2=l2, intercept=intercept)
    ones = np.ones((len(data), int(intercept)))
    features, targets = np.hstack([data.features.astype(np.float64), ones]), data.targets.astype(np.float64)
    agents = [[(features[rows], targets[rows]) for rows in unit] for unit in units]
    best = minimize(risk, np.zeros(objective.size), (agents, l2), options={"gtol": 1e-9})
    found = best_model(objective, data, units)
    assert found is not None
    assert np.allclose(found, best.x, atol=1e-6)


@pytest.mark.parametrize("loss", ["squared", "squared_error"])
def test_the_librarys_gradient_is_zero_there(loss: str) -> None:
    """Of the mean over units of the mean over agents, with the gradient of l2/2 |w|^2."""
    data, units = unequal()
    objective = LinearModel(loss, 3, None, l2=0.3, dtype=np.float64)
    found = best_model(objective, data, units)
    assert found is not None
    gradient = 0.3 * found
    for unit in units:
        for rows in unit:
            sums = objective.clipped_gradients(found[None], data, [rows], np.inf).sums[0]
            gradient = gradient + sums / (len(units) * len(unit) * len(rows))
    assert np.abs(gradient).max() < 1e-7


def test_the_whole_square_with_twice_the_term_has_the_same_optimum() -> None:
    """Equation (54) is twice the halved risk with the same rho."""
    data, units = unequal()
    half = best_model(LinearModel("squared", 3, None, l2=0.3), data, units)
    whole = best_model(LinearModel("squared_error", 3, None, l2=0.6), data, units)
    assert half is not None
    assert whole is not None
    assert np.allclose(half, whole, rtol=1e-12)


def test_pictures_are_flattened() -> None:
    data, units = unequal(4)
    pictures = Split(data.features.reshape(-1, 1, 2, 2), data.targets)
    objective = LinearModel("squared", 4, None)
    found, flat = best_model(objective, pictures, units), best_model(objective, data, units)
    assert found is not None
    assert np.array_equal(found, flat)


def test_no_optimum_where_there_is_no_closed_form() -> None:
    data, units = unequal()
    sparse = Split(sp.csr_array(data.features), data.targets)
    classes = Split(data.features, (data.targets > 0).astype(np.int64))
    assert best_model(LinearModel("squared", 3, None, l2=1), sparse, units) is None
    assert best_model(LinearModel("logistic", 3, 2, l2=1), classes, units) is None
    assert best_model(LinearModel("squared", 3, None, l2=1), data, []) is None


def test_no_optimum_where_more_than_one_model_is_best() -> None:
    """Two features that are the same; an L2 term tells them apart."""
    data, units = unequal()
    twice = Split(np.repeat(data.features[:, :1], 2, axis=1), data.targets)
    assert best_model(LinearModel("squared", 2, None), twice, units) is None
    found = best_model(LinearModel("squared", 2, None, l2=0.1, intercept=False), twice, units)
    assert found is not None
    assert found[0] == pytest.approx(found[1])


def test_measures_are_those_of_loops() -> None:
    generator = np.random.default_rng(1)
    models, best = generator.normal(size=(5, 3)).astype(np.float32), generator.normal(size=3)
    found = deviations(models, best)
    assert found == pytest.approx(measures(list(models.astype(np.float64)), best), rel=1e-12)
    assert deviations(models, None) == {"disagreement": found["disagreement"]}
    # Pythagoras: models deviate by how far their mean does, and how far they do from it.
    assert found["individual_msd"] == pytest.approx(found["centroid_msd"] + found["disagreement"])


MEMBERS = {"server-0": ("node-0", "node-1"), "server-1": ("node-2", "node-3", "node-4")}


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gossip with two units, whose models are those of node 1 and node 4; only these are tested."""

    def unit_models(nodes: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {server: gossip.ALGORITHM.model_of(nodes[agents[-1]]).values for server, agents in MEMBERS.items()}

    def cast(settings: gossip.Settings, names: tuple[str, ...]) -> Cast:
        trust = {agent: server for server, agents in MEMBERS.items() for agent in agents}
        return Cast(names, holders=("node-1", "node-4"), trust=trust)

    own = replace(gossip.ALGORITHM, figures=replace(gossip.ALGORITHM.figures, unit_models=unit_models), cast=cast)
    monkeypatch.setitem(ALGORITHMS, "gossip", own)


def spec(**more: Any) -> Any:
    content = {
        "dataset": {"name": "graph_regression", "synthetic": {"owners": 5, "examples": 8, "test_examples": 30}},
        "partition": "natural",
        "objective": {"name": "squared", "intercept": False, "l2": 0.1, "dtype": "float64"},
        "algorithm": {"name": "gossip", "nodes": 5, "batch_size": 2, "learning_rate": 0.05},
        "privacy": "none",
        "stop": {"updates": 40},
        "evaluation": {"every_updates": 10},
    }
    return parse_spec({**content, **more})


def test_a_run_reports_deviations_and_each_units_test_loss(units: None) -> None:
    result = gs.run(spec())
    prepared = prepare(spec())
    train = prepared.dataset.train
    agents = [
        [(train.features[8 * k : 8 * k + 8].astype(float), train.targets[8 * k : 8 * k + 8]) for k in members]
        for members in ((0, 1), (2, 3, 4))
    ]
    best = minimize(risk, np.zeros(2), (agents, 0.1), options={"gtol": 1e-9}).x
    first, last = result.metrics[0], result.metrics[-1]
    assert first["centroid_msd"] == pytest.approx(first["individual_msd"]) == pytest.approx(float(best @ best))
    assert first["disagreement"] == 0
    assert last["disagreement"] > 0
    assert last["individual_msd"] == pytest.approx(last["centroid_msd"] + last["disagreement"])
    assert {name: result.summary["metrics"][name] for name in ("centroid_msd", "individual_msd", "disagreement")} == {
        name: last[name] for name in ("centroid_msd", "individual_msd", "disagreement")
    }
    own = result.summary["gossip"]["msd"]
    assert list(own) == list(MEMBERS)
    assert np.mean(list(own.values())) == pytest.approx(last["individual_msd"])
    losses = result.summary["gossip"]["test_loss"]
    assert list(losses) == list(MEMBERS)
    assert np.mean(list(losses.values())) == pytest.approx(last["test_loss"])  # the holders are the units
    assert losses["server-0"] != losses["server-1"]


def test_a_run_with_classes_reports_disagreement_and_test_errors(units: None, monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(
        ALGORITHMS["gossip"], figures=replace(ALGORITHMS["gossip"].figures, report=lambda nodes: {"nodes": len(nodes)})
    )
    monkeypatch.setitem(ALGORITHMS, "gossip", own)
    result = gs.run(spec(dataset="digits", objective={"name": "softmax"}, partition="iid"))
    last = result.metrics[-1]
    assert "centroid_msd" not in last
    assert last["disagreement"] > 0
    assert 0 <= last["centroid_test_accuracy"] <= 1
    assert result.summary["gossip"]["nodes"] == 5  # the algorithm's own figures are still there
    errors = result.summary["gossip"]["test_error"]
    assert np.mean(list(errors.values())) == pytest.approx(1 - last["test_accuracy"])
    assert max(errors.values()) == pytest.approx(1 - last["worst_node_test_accuracy"])


def test_figures_of_the_mean_of_known_models(units: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """(1, 0) and (0, 2) have the mean (0.5, 1), from which each has a squared distance of 1.25."""
    models = {"server-0": np.array([1.0, 0.0]), "server-1": np.array([0.0, 2.0])}
    known = replace(
        ALGORITHMS["gossip"], figures=replace(ALGORITHMS["gossip"].figures, unit_models=lambda nodes: models)
    )
    monkeypatch.setitem(ALGORITHMS, "gossip", known)
    row, test = gs.run(spec()).metrics[-1], prepare(spec()).dataset.test
    assert row["disagreement"] == pytest.approx(1.25)
    errors = test.targets - test.features.astype(np.float64) @ [0.5, 1.0]
    assert row["centroid_test_loss"] == pytest.approx(np.mean(errors**2) / 2, rel=1e-6)
    assert "centroid_test_accuracy" not in row  # there are no classes


def test_a_run_without_units_reports_none_of_it() -> None:
    result = gs.run(spec())
    assert not {"centroid_msd", "individual_msd", "disagreement"} & set(result.metrics[-1])
    assert set(result.summary["gossip"]) == {
        "exchanges",
        "busy_answers",
        "open_exchanges",
        "rho",
        "staleness_mean",
        "staleness_max",
    }


def test_what_diverged_is_reported_as_far_as_models_go(units: None) -> None:
    """JSON has no word for infinity, and models stay within 1e12."""
    content = spec().model_dump(mode="json")
    content["algorithm"]["learning_rate"] = 1e200
    with np.errstate(all="ignore"):
        result = gs.run(parse_spec(content))
    assert 1e20 < result.metrics[-1]["centroid_msd"] < 1e26
    assert all(loss > 1e20 for loss in result.summary["gossip"]["test_loss"].values())


def test_linear_models_without_intercept() -> None:
    assert prepare(spec()).objective.size == 2
    assert prepare(spec(objective={"name": "squared"})).objective.size == 3


def test_networks_say_themselves_whether_they_have_biases() -> None:
    pytest.importorskip("torch")
    with pytest.raises(gs.GossamerError, match=r"objective\.intercept: false is for linear models"):
        prepare(spec(objective={"name": "mlp", "intercept": False}))


def test_noise_that_cancels_at_each_receiver_moves_no_model() -> None:
    """A thousand times the noise, of the same draws, with weights that differ: the path stays the same."""
    unequal = np.array([[0.4, 0.3, 0.2, 0.1], [0.3, 0.4, 0.1, 0.2], [0.2, 0.1, 0.4, 0.3], [0.1, 0.2, 0.3, 0.4]])
    units = [[(np.eye(2) + p, np.ones(2))] for p in range(4)]
    options = {"rounds": 5, "step_size": 0.1, "l2": 0.1, "agents_sampled": 1, "local_steps": (1, 2)}

    def path(noise: str, deviation: float) -> np.ndarray:
        generator = np.random.default_rng(0)
        options["generator"] = generator
        return train(
            units, unequal, noise=noise, deviation=deviation, gradient_at="hidden", batch_size=(1, 2), **options
        )

    assert np.abs(path("at each receiver", 1e3) - path("at each receiver", 1.0)).max() < 1e-9
    assert np.abs(path("homomorphic", 1e3) - path("homomorphic", 1.0)).max() > 1
