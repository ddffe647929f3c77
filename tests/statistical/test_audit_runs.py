"""Whole runs, audited with canaries: below what is proved, and above it where the noise is not what it claims to be.

Where right code is audited bounds are at confidence 1 - 1e-7; with fewer than ten of them it fails with probability
below 1e-6. Seeds are fixed, so it fails for good or never.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gossamer.experiment.audits.canary_audit import audit_run
from gossamer.experiment.specs.spec_file import parse_spec
from gossamer.objectives.linear.model import LinearModel
from gossamer.privacy.mechanisms import Gaussian

CONFIDENCE, DELTA = 1 - 1e-7, 1e-12


def spec(**sections: Any) -> Any:
    content = {
        "dataset": "digits",
        "algorithm": {"name": "gossip", "nodes": 4, "batch_size": 60, "learning_rate": 0.5, "updates_per_node": 60},
        "evaluation": "off",
        **sections,
    }
    return parse_spec({key: value for key, value in content.items() if value is not None})


def audit(experiment: Any, **options: Any) -> dict[str, Any]:
    settings = {"canaries": 200, "guesses": 80, "confidence": CONFIDENCE, **options}
    found: dict[str, Any] = audit_run(experiment, **settings).summary["privacy"]["audits"]["one_run"]
    return found


@pytest.mark.some(1)
@pytest.mark.parametrize(
    "privacy",
    [
        {},
        {"sampling": "fixed_size"},
        {"neighboring_relation": "replace_one"},
        {"clip": {"policy": "quantile", "initial": 1.0}},
    ],
    ids=["poisson", "fixed_size", "replace_one", "quantile clip"],
)
def test_a_run_is_as_private_as_proved(privacy: dict[str, Any]) -> None:
    found = audit(spec(privacy=privacy, budget={"epsilon": 1.0, "delta": DELTA}))
    assert found["epsilon_lower_bound"] <= found["proved_epsilon"] <= 1.0
    assert not found["refuted"]


@pytest.mark.slow
def test_noise_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan claims epsilon 0.3; the noise is a hundredth of what it should be."""
    law = Gaussian.noise

    def too_little(self: Gaussian, generator: np.random.Generator, size: int, dtype: npt.DTypeLike) -> Any:
        return law(self, generator, size, dtype) / 100

    experiment = spec(budget={"epsilon": 0.3, "delta": DELTA})
    assert not audit(experiment)["refuted"]
    monkeypatch.setattr(Gaussian, "noise", too_little)
    assert audit(experiment)["refuted"]


def test_without_noise_the_bound_is_large_and_nothing_is_proved() -> None:
    found = audit(spec(privacy={"mechanism": "none", "clip": 1.0, "delta": DELTA}))
    assert found["proved_epsilon"] is None
    assert not found["refuted"]
    assert 0.8 < found["epsilon_lower_bound"] < 1.6  # all 80 guesses right: q^80 = 1e-7 at log(q/(1 - q)) = 1.50


# Bugs that are planted, in audits as the command makes them


CLAIMED = {
    "algorithm": {"name": "gossip", "nodes": 3, "batch_size": 160, "learning_rate": 0.5, "updates_per_node": 40},
    "budget": {"epsilon": 5.0, "delta": 1e-4},
}


def usual(experiment: Any) -> dict[str, Any]:
    found: dict[str, Any] = audit_run(experiment).summary["privacy"]["audits"]["one_run"]
    return found


@pytest.mark.slow
def test_an_audit_of_every_example_finds_half_of_what_is_proved() -> None:
    """By chance 1 in 10 runs would find less; the noise of this test is its own."""
    found = usual(spec(**CLAIMED))
    assert (found["canaries"], found["refuted"]) == (1442, False)
    assert 0.5 * found["proved_epsilon"] < found["epsilon_lower_bound"] < found["proved_epsilon"]


@pytest.mark.slow
def test_half_the_noise_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    law = Gaussian.noise
    monkeypatch.setattr(Gaussian, "noise", lambda self, *of: law(self, *of) / 2)
    found = usual(spec(**CLAIMED))
    assert found["refuted"]
    assert found["epsilon_lower_bound"] > found["proved_epsilon"]


@pytest.mark.slow
def test_gradients_that_are_not_clipped_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of canaries are about three times as long as the clip."""
    law = LinearModel.clipped_gradients
    unclipped = lambda self, models, data, batches, clip: law(self, models, data, batches, math.inf)  # noqa: E731
    monkeypatch.setattr(LinearModel, "clipped_gradients", unclipped)
    found = usual(spec(**CLAIMED))
    assert found["refuted"]
    assert found["epsilon_lower_bound"] > found["proved_epsilon"]
