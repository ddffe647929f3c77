"""Private scales: found by a charged release, the same for all nodes, and within one budget with the run."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gossamer.data.declaration import Declaration
from gossamer.data.table import table_of
from gossamer.errors import CallerError, RunWarning
from gossamer.experiment.audits import canary_audit
from gossamer.experiment.audits.canary_audit import audit_membership, audit_run
from gossamer.experiment.audits.inversion_audit import invert
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Sources, prepare
from gossamer.experiment.preparation.private_scale import WIDTH, beforehand, scaled
from gossamer.experiment.runs.running import run
from gossamer.experiment.specs.spec import Experiment
from gossamer.privacy.accounting.accountants import epsilon
from gossamer.sides.plan import counts_of

_NODES = 3


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of three owners with columns of very different magnitudes."""
    generator = np.random.default_rng(5)
    size, weight = generator.uniform(1e4, 5e4, 600), generator.uniform(0.01, 0.03, 600)
    path = tmp_path / "things.csv"
    rows = (f"{a:.6g},{b:.6g},{'ab'[i % 2]},o{i % _NODES},{int(a > 3e4)}" for i, (a, b) in enumerate(zip(size, weight)))
    path.write_text("size,weight,kind,owner,good\n" + "\n".join(rows) + "\n")
    return path


def _spec(path: Path, scale: Any = "private", **more: Any) -> Experiment:
    dataset = {
        "name": "things",
        "path": path,
        "target": "good",
        "owner": "owner",
        "labels": [0, 1],
        "columns": {"size": "number", "kind": ["a", "b"], "weight": {"kind": "number", "missing": 1e5}},
        "scale": scale,
    }
    given = {
        "dataset": dataset,
        "partition": "natural",
        "algorithm": {"name": "gossip", "nodes": _NODES, "batch_size": 20},
        "objective": "logistic",
        "budget": {"epsilon": 1.0, "delta": 1e-5},
        "stop": {"epochs": 1},
        "evaluation": {"every_updates": 20},  # each look reads an epsilon, which takes a while
    }
    return Experiment.model_validate(given | more)


def test_without_noise_ranges_are_geometric_means(table: Path) -> None:
    experiment = _spec(table, privacy={"mechanism": "none"}, budget=None)
    prepared = prepare(experiment)
    found = scaled(prepared, plan_run(prepared), Sources(0))
    raw = prepared.dataset.train.features
    for name, place in (("size", 0), ("weight", 3)):
        mean = float(np.exp(np.log(raw[:, place].astype(np.float64)).mean()))
        assert found.ranges[name] == pytest.approx(WIDTH * mean, rel=5e-3)  # three digits
    assert np.abs(found.prepared.dataset.train.features).max() <= 1
    np.testing.assert_array_equal(found.prepared.dataset.train.features[:, 1:3], raw[:, 1:3])


def test_the_release_and_the_run_are_within_one_budget(table: Path) -> None:
    experiment = _spec(table)
    prepared = prepare(experiment)
    plan, (kind,) = plan_run(prepared), beforehand(prepared)
    for name in prepared.names:
        counts = counts_of(plan.side(name))
        assert counts is not None
        assert counts[kind] == 1
        assert plan.epsilons[name] == epsilon(counts, 1e-5, experiment.privacy.relation).epsilon <= 1.0
    alone = plan_run(prepare(_spec(table, scale="none")))
    assert plan.mechanisms["node-0"].noise_multiplier > alone.mechanisms["node-0"].noise_multiplier  # type: ignore[attr-defined]
    # By itself the release costs its share.
    assert epsilon({kind: 1}, 1e-5, experiment.privacy.relation).epsilon == pytest.approx(0.1, rel=5e-3)


def test_ledgers_have_the_release_and_the_model_says_the_ranges(table: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        result = run(_spec(table, scale={"name": "private", "share": 0.5}), tmp_path / "out")
    lines = [json.loads(line) for line in (tmp_path / "out" / "ledger.jsonl").read_text().splitlines()]
    first = [line for line in lines if line.get("probability") == 1.0]
    assert [(line["node"], line["releases"], line["size"]) for line in first] == [
        (f"node-{node}", 1, 4) for node in range(_NODES)
    ]
    assert set(result.summary["private_ranges"]) == {"size", "weight"}
    node = result.summary["privacy"]["nodes"]["node-0"]
    assert node["releases"] == node["planned_releases"]
    assert result.guarantee.epsilon <= 1.0
    assert "before the run" in result.guarantee.proof


def test_noise_differs_from_run_to_run_and_follows_the_secret(table: Path) -> None:
    experiment = _spec(table, scale={"name": "private", "noise_multiplier": 20.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        one, other = run(experiment), run(experiment)
        again = run(experiment, secret=one.secret)
    assert one.summary["private_ranges"] == again.summary["private_ranges"] != other.summary["private_ranges"]


def test_further_rows_are_scaled_alike(table: Path) -> None:
    prepared = prepare(_spec(table, privacy={"mechanism": "none"}, budget=None))
    found = scaled(prepared, plan_run(prepared), Sources(0))
    told = found.prepared.dataset.declaration
    assert told is not None
    kept = Declaration.model_validate_json(told.model_dump_json())  # the filling is within the range
    rows = kept.read(table_of([{"size": 2e4, "kind": "b", "weight": 0.02}, {"size": 9e9, "kind": "a", "weight": None}]))
    size, weight = found.ranges["size"], found.ranges["weight"]
    np.testing.assert_allclose(rows.features, [[2e4 / size, 0, 1, 0.02 / weight], [1, 1, 0, 1]], rtol=1e-6)


def test_it_is_said_where_noise_hides_a_scale(table: Path) -> None:
    with pytest.warns(RunWarning, match="'size', 'weight' are, so their scale is little more than a guess"):
        run(_spec(table, scale={"name": "private", "noise_multiplier": 500.0}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dataset_scale": {"name": "private", "noise_multiplier": 1.0}}, "alone needs epsilon 4"),
        ({"budget": None, "privacy": {"noise_multiplier": 1.0}}, "dataset.scale.noise_multiplier is missing"),
        (
            {"algorithm": {"name": "fedavg", "nodes": _NODES, "clients_per_round": 2}, "stop": {"updates": 6}},
            "declare ranges under dataset.columns",
        ),
    ],
)
def test_what_it_cannot_do_is_refused(table: Path, changed: dict[str, Any], words: str) -> None:
    scale = changed.pop("dataset_scale", "private")
    with pytest.raises(CallerError, match=words):
        plan_run(prepare(_spec(table, scale, **changed)))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"columns": None}, "declare columns"),
        ({"normalise": "unit_norm"}, "leave normalise and layout out"),
        ({"scale": {"name": "private", "share": 1.5}}, "less than 1"),
        ({"scale": {"name": "private", "magnitudes": [10, 1]}}, "the least being less"),
    ],
)
def test_settings_that_do_not_fit_are_refused(table: Path, keys: dict[str, Any], words: str) -> None:
    dataset = _spec(table).dataset.model_dump() | {"scale": "private"} | keys
    with pytest.raises(ValueError, match=words):
        _spec(table, dataset={key: value for key, value in dataset.items() if value is not None})


def test_public_examples_are_scaled_alike(table: Path) -> None:
    """A run that ends by their accuracy looks at features as its model was trained on."""
    prepared = prepare(_spec(table, evaluation={"public_path": table}, privacy={"mechanism": "none"}, budget=None))
    found = scaled(prepared, plan_run(prepared), Sources(0))
    assert prepared.public is not None
    assert np.abs(prepared.public.features).max() > 1
    assert found.prepared.public is not None
    assert np.abs(found.prepared.public.features).max() <= 1


def test_members_are_looked_for_by_the_features_that_the_model_has_seen(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(_spec(table, privacy={"mechanism": "none"}, budget=None), tmp_path / "out")
    scores: list[np.ndarray[Any, Any]] = []
    monkeypatch.setattr(canary_audit, "membership", lambda *given: scores.extend(given[:2]) or {})
    audit_membership(tmp_path / "out")
    # Unscaled features are above 10,000: losses of a model of scaled ones would be in the thousands.
    assert len(scores) == 2
    assert max(np.abs(one).max() for one in scores) < 10


def test_what_looks_at_unscaled_features_is_refused(table: Path) -> None:
    with pytest.raises(CallerError, match="an audit with canaries looks at features as they are before the run"):
        audit_run(_spec(table), canaries=10, guesses=5)
    with pytest.raises(CallerError, match="inversion looks at features as they are before the run"):
        invert(prepare(_spec(table)), examples=1, batch_size=1, epsilons=(1.0,))
