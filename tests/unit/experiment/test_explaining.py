"""What `gossamer check` says in plain words, and the forecast beside it."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.reference.gaussian_mu_slow import both_ways

import gossamer as gs
from gossamer.experiment.preparation import planning
from gossamer.experiment.preparation.planning import Forecast, Words, explain, forecast, plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.specs.spec_file import read_spec

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def said(spec: gs.Experiment) -> tuple[Words, Forecast]:
    prepared = prepare(spec)
    plan = plan_run(prepared)
    found = forecast(prepared, plan)
    return explain(prepared, plan, found), found


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["digits-edge-cloud", "digits-fedavg-examples", "hospitals"])
def test_the_forecast_is_what_the_run_then_does(name: str, tmp_path: Path) -> None:
    spec = read_spec(EXAMPLES / f"{name}.yaml", ["evaluation=off"])
    _, found = said(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.RunWarning)
        summary = gs.run(spec, tmp_path / "out").summary
    assert found.whole
    assert (found.messages, found.size) == (summary["messages"], summary["bytes"])
    assert found.virtual_seconds == pytest.approx(summary["virtual_seconds"], abs=1e-6)


def test_a_long_run_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST", 100)
    words, found = said(read_spec(EXAMPLES / "hospitals.yaml", []))
    assert not found.whole
    assert 100 <= found.messages < 120
    assert "more than" in words["how long"]
    assert "as far as was looked ahead" in words["how long"]


def test_a_long_run_without_messages_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "_MOST", 100)
    _, found = said(
        gs.Experiment(dataset="digits", privacy="none", algorithm={"name": "local", "updates_per_node": 1000})
    )
    assert not found.whole
    assert found.messages == 0


@pytest.mark.parametrize("stop", [{"updates": 200}, {"virtual_seconds": 50.0}])
def test_a_long_look_ahead_is_told(stop: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once and before, with how much of it there is: of 8 nodes that take two seconds each, 200 in 50 seconds."""
    monkeypatch.setattr(planning, "_LONG", 200)
    algorithm = {"name": "gossip", "nodes": 8}
    spec = gs.Experiment(dataset="digits", privacy="none", algorithm=algorithm, stop=stop, speeds={"seconds": 2.0})
    with pytest.warns(gs.RunWarning, match=r"and is long: about 200 updates; .*updates_per_node") as told:
        plan_run(prepare(spec))
    assert len(told) == 1


def test_examples_are_weighed() -> None:
    """Digits: 1,797 pictures of 64 float32, and an int64 class each."""
    _, found = said(gs.Experiment(dataset="digits", privacy="none"))
    assert found.examples == 1797 * (64 * 4 + 8)
    assert found.memory > found.examples


def test_hospitals_in_plain_words() -> None:
    """The numbers are the spec's, the table's (2,011 patients of five hospitals) and the formula's."""
    spec = read_spec(EXAMPLES / "hospitals.yaml", [])
    words, _ = said(spec)
    assert words["who"] == (
        "5 nodes, without a server. The 2,011 training examples are split by owner (column hospital), one owner each: "
        "227 to 535 examples each."
    )
    assert "at most 100 sums, each over about 40 of its examples drawn at random" in words["what leaves"]
    assert words["epsilon planned"].startswith("4 at delta 0.0001 for each example")
    assert "whether a certain example was in the data" in words["which means"]
    (multiplier,) = {law["noise_multiplier"] for law in plan_run(prepare(spec)).noise}
    right = (1 + both_ways(multiplier, 40 / 227, 100).get_delta_for_epsilon(0)) / 2
    assert f"at most {math.ceil(1000 * right) / 10:g} times in 100" in words["which means"]
    assert "1,578 test examples" in words["public"]


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"privacy": "none"}, "privacy", "no guarantee. privacy: none"),
    ({"privacy": "none"}, "what leaves", "drawn at random, without noise"),
    (
        {"budget": {"epsilon": 20, "delta": 1e-4}},
        "which means",
        "times in 100 after seeing it all. That promises little",
    ),
    ({"budget": {"epsilon": 120, "delta": 1e-4}}, "which means", "may be right nearly always"),
    (
        {"budget": {"epsilon": 1, "delta": 1e-4}, "privacy": {"noise_secret": "reproducible"}},
        "privacy",
        "no guarantee. This run has no guarantee: reproducible noise",
    ),
    ({"budget": {"epsilon": 1, "delta": 1e-4}, "algorithm": "central"}, "who", "1 node. The 1,442 training examples"),
    ({"privacy": "none", "partition": "dirichlet"}, "who", "dealt to them by class"),
]


@pytest.mark.some(3)
@pytest.mark.parametrize(("spec", "about", "expected"), CASES)
def test_other_runs(spec: dict[str, Any], about: str, expected: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gs.RunWarning)
        words, _ = said(gs.Experiment.model_validate({"dataset": "digits", **spec}))
    assert expected in words[about]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("digits-fed*.yaml")), ids=lambda path: path.stem)
def test_what_leaves_clients_follows_who_adds_the_noise(path: Path) -> None:
    words, _ = said(read_spec(path, []))
    raw = "shows updates of the model without noise to its own server alone"
    trusted = path.stem in ("digits-fedavg", "digits-fedbuff")
    assert (raw in words["what leaves"]) == trusted
    assert ("Not protected from: the trusted server" in words["who may see it"]) == trusted
    assert ("masked updates" in words["what leaves"]) == (path.stem == "digits-fedavg-masked")
