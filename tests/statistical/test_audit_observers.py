"""Runs audited by each observer: below what is proved against it and what it learns by the network's figure.

Bounds are at confidence 1 - 1e-7, of fewer than 20 audits, so this fails with probability below 2e-6; seeds are fixed.
Every example is in every batch, so that the figure, which counts no sampling, is about what is there to be found.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gossamer.attacks.inversion import cosine_similarity, recover_input
from gossamer.experiment.audits.canary_audit import audit_run, canaries_of
from gossamer.experiment.audits.observers import View
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import prepare
from gossamer.experiment.runs.running import Run, sources_of
from gossamer.experiment.runs.trackers import Listeners
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.privacy.mechanisms import Gaussian
from gossamer.protocol.events import Completed
from gossamer.protocol.trace import TraceStep

RING = {"name": "d_psgd", "nodes": 5, "topology": "ring", "batch_size": 288, "updates_per_node": 4}


def spec(changes: dict[str, Any], noise: float, **sections: Any) -> Any:
    privacy = {"noise_multiplier": noise, "delta": 1e-4}
    run = {"dataset": "digits", "algorithm": {**RING, **changes}, "privacy": privacy, "evaluation": "off"}
    return parse_spec({**run, **sections})


def audit(experiment: Any, observer: str, confidence: float = 1 - 1e-7) -> dict[str, Any]:
    result = audit_run(experiment, observer=observer, confidence=confidence)
    found: dict[str, Any] = result.summary["privacy"]["audits"]["one_run"]
    return found


OBSERVERS = ["everyone", "node:node-0", "coalition:node-0,node-1", "link:node-0,node-1", "everyone+node:node-2"]


@pytest.mark.some(3)
@pytest.mark.parametrize("observer", OBSERVERS)
@pytest.mark.parametrize(
    "changes",
    [{}, {"noise": "pairwise"}, {"name": "gossip"}, {"name": "push_sum", "topology": "directed_ring"}],
    ids=["d_psgd", "pairwise", "gossip", "push_sum"],
)
def test_no_observer_finds_more_than_is_proved(changes: dict[str, Any], observer: str) -> None:
    found = audit(spec(changes, 1.0), observer)
    assert found["epsilon_lower_bound"] <= min(found["gradients_fixed_epsilon"], found["proved_epsilon"] * (1 + 1e-9))
    assert not found["refuted"]
    assert found["observer"] == observer


def test_who_knows_draws_is_held_against_what_holds_for_it() -> None:
    """A node knows those that it shares, and so more than whoever the first guarantee is about."""
    one, other = (audit(spec({"noise": "pairwise"}, 1.0), observer) for observer in ("everyone", "node:node-0"))
    assert one["proved_epsilon"] < one["gradients_fixed_epsilon"] * (1 + 1e-2) < 10 < other["proved_epsilon"]


@pytest.mark.some(1)
@pytest.mark.parametrize("changes", [{}, {"noise": "pairwise"}], ids=["independent", "pairwise"])
def test_everyone_finds_much_of_what_is_proved(changes: dict[str, Any]) -> None:
    """Scores that were not of the view would be right in half of the guesses, and nothing would be found."""
    found = audit(spec(changes, 1.0), "everyone", 0.95)
    assert found["epsilon_lower_bound"] > 0.3 * found["proved_epsilon"]


def test_half_the_noise_is_noticed_by_an_observer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 351 guesses about 0.99 are right where noise is as planned; of noise that is a fourth, all."""
    law = Gaussian.noise
    monkeypatch.setattr(Gaussian, "noise", lambda self, *of: law(self, *of) / 4)
    found = audit(spec({}, 2.0), "everyone", 0.95)
    assert found["refuted"]
    assert found["epsilon_lower_bound"] > found["gradients_fixed_epsilon"]


FEW = {"name": "muffliato", "gossip_steps": 5, "acceleration": "none", "batch_size": 1, "updates_per_node": 2}


@pytest.fixture
def one_row_each(tmp_path: Any) -> dict[str, Any]:
    """Five training examples of eight numbers, so that each of five nodes has one."""
    rows = [[*values, number % 2] for number, values in enumerate(np.random.default_rng(0).normal(size=(10, 8)))]
    columns = [f"x{number}" for number in range(8)]
    text = "\n".join(",".join(f"{value:.6g}" for value in row) for row in rows)
    (tmp_path / "few.csv").write_text(",".join([*columns, "sign"]) + "\n" + text + "\n")
    kept = {
        "target": "sign",
        "labels": [0, 1],
        "columns": dict.fromkeys(columns, "number"),
        "test_fraction": 0.5,
        "scale": "none",
    }
    return {"dataset": {"name": "few", "path": str(tmp_path / "few.csv"), **kept}, "objective": "logistic"}


@pytest.mark.parametrize(("noise", "recovered"), [(0.01, True), (100.0, False)])
def test_examples_are_reconstructed_through_the_network_without_noise(
    one_row_each: dict[str, Any], noise: float, recovered: bool
) -> None:
    """A node two links away, which averages five times after each gradient: two messages for each that is unknown.

    With noise a hundred times the clip the cosine of 8 numbers is above 0.99 in about 1 of 10^6 runs.
    """
    prepared = prepare(spec(FEW, noise, **one_row_each))
    plan, released = plan_run(prepared), {}
    view = View(prepared, canaries_of(prepared, 1, "random"), True, plan, "node:node-0")

    def watch(step: TraceStep) -> None:
        view(step)
        if isinstance(step.event, Completed):
            released.setdefault(step.node, []).append(np.asarray(step.event.released.values, np.float64))

    Run(prepared, plan, sources_of(prepared, plan), listeners=Listeners(watch=watch), simulated=True).go()
    found = view.gradients()
    first = next(at for at, draw in enumerate(view.system.draws) if draw.owner == "node-2")
    mine = prepared.dataset.train.features[prepared.shards[2][0]]
    scale = plan.mechanisms["node-2"].normal.standard_deviation
    np.testing.assert_allclose(found[first] * scale, released["node-2"][0], rtol=0, atol=1e-3 * max(1.0, noise))
    example = recover_input(found[first], prepared.objective.parts, 8)
    assert (abs(cosine_similarity(mine, example)) > 0.99) == recovered
