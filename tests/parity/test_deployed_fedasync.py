"""FedAsync over MQTT, where the model follows from who comes when: compared with simulations at the deployment's times.

A spec does not say when clients come. Simulated ones start within the time of a local step, take turns and are stale by
all others; deployed ones start when their processes do, and the first may have made its quota before the second is
there, with nothing stale. Four clients with 20 updates each then move the model by 48 updates in the place of 13, and
have noise of 5.4 z C in it in the place of 1.5 (`tests/unit/algorithms/fedasync/test_order.py`). At the same times
nothing but the noise is left to differ.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployed_runs import Run, at_its_times, deployed
from tests.reference.deployments import experiment
from tests.reference.mixed_models import shares
from tests.reference.server_traces import ages, models, pushes, updates

import gossamer as gs
from gossamer.algorithms.clients.nodes import SERVER
from gossamer.arrays import FloatArray
from gossamer.experiment.specs.spec import Experiment
from gossamer.protocol.trace import TraceStep, read_steps

pytestmark = pytest.mark.slow

FALSE_ALARMS = 1e-5
"""Of each comparison of noise; there are six."""
CLIP, SD, TOTAL = 1.0, 1.5, 60
"""C, the noise's standard deviation in each coordinate of an update, and updates in all."""


def spec(batch_size: int, privacy: str, seed: int = 0) -> Experiment:
    settings = f"{{name: fedasync, nodes: 4, updates_per_node: {TOTAL // 4}, batch_size: {batch_size}}}"
    return experiment(f"dataset: digits\nseed: {seed}\nalgorithm: {settings}\nprivacy: {privacy}\n")


def simulated(like: Experiment, run: Run, trace: Path) -> tuple[list[TraceStep], gs.Result]:
    """The server's steps in a simulation at the times of ``run``, and what came of it."""
    result = gs.run(at_its_times(like, run), trace=trace)
    with trace.open("rb") as file:
        return [step for step in read_steps(file) if step.node == SERVER], result


def order(steps: list[TraceStep]) -> list[tuple[str, int]]:
    """Who pushed, and from which version."""
    return [(client, push.version) for client, push in pushes(steps)]


def last(steps: list[TraceStep]) -> FloatArray:
    """The model at the end."""
    return models(steps)[TOTAL]


def test_without_noise_the_models_are_the_same(tmp_path: Path) -> None:
    """Version for version, as local steps of all examples leave nothing to chance but the order of a sum.

    The sum is of n terms of one size, in two orders, in float32: a step is off by sqrt(n) ulps or so of what it adds,
    and 60 of them by less than 1e-5 of a model of size 1. Other shards at the same times make a model far from that.
    """
    whole = spec(10_000, "none")
    run = deployed(whole, tmp_path / "run")
    assert not run.found.failed
    steps, result = simulated(whole, run, tmp_path / "trace")
    there = run.steps[SERVER]
    assert order(steps) == order(there)
    assert len(order(there)) == run.federation.nodes()[SERVER].state.taken == result.summary["updates"] == TOTAL
    assert models(steps).keys() == models(there).keys()
    for version, model in models(there).items():
        np.testing.assert_allclose(models(steps)[version], model, atol=1e-5, err_msg=f"version {version}")
    # All have the last model, so that their mean loss is its loss; of another model it would not be.
    for figure, value in run.found.metrics.items():
        assert result.summary["metrics"][figure] == pytest.approx(value, abs=1e-5), figure
    other, _ = simulated(spec(10_000, "none", seed=1), run, tmp_path / "other")
    assert np.abs(last(other) - last(there)).max() > 1e-3  # the same order, with examples dealt out otherwise


def test_an_update_has_the_noise_that_is_planned_and_the_model_what_its_order_makes_of_it(tmp_path: Path) -> None:
    """In both worlds: once, in every coordinate, and independent from update to update.

    Squares of normal variables have a chi-squared sum. An update without noise is C long at most, and adds that much to
    the norm of all at most, sqrt(T) C, and to the model's the sum of the shares times C. A noise that is twice as large
    in variance, or that is the same in all updates, is far outside.
    """
    noisy = spec(16, f"{{clip: {CLIP}, noise_multiplier: {SD / CLIP}}}")
    run = deployed(noisy, tmp_path / "run")
    assert not run.found.failed
    settings = noisy.algorithm
    for steps in (run.steps[SERVER], simulated(noisy, run, tmp_path / "trace")[0]):
        assert order(steps) == order(run.steps[SERVER])
        came, weights = updates(steps), shares(ages(steps), settings.mixing, settings.staleness_weight.of)
        assert len(came) == TOTAL
        assert agrees(np.linalg.norm(came), came.size, SD, CLIP * np.sqrt(TOTAL))
        assert not agrees(np.linalg.norm(came), came.size, SD * np.sqrt(2), CLIP * np.sqrt(TOTAL))
        # The recursion, with the updates that came, is the server's model; it was started at zero.
        model = last(steps)
        np.testing.assert_allclose(weights @ came, model, atol=1e-4)
        spread = float(np.linalg.norm(weights)) * SD
        assert agrees(np.linalg.norm(model), model.size, spread, CLIP * weights.sum())
        assert not agrees(np.linalg.norm(model), model.size, float(weights.sum()) * SD, CLIP * weights.sum())


def agrees(norm: np.floating, size: int, sd: float, more: float) -> bool:
    """Whether so many normal variables of this standard deviation have that norm, give or take ``more``."""
    low, high = sd * np.sqrt(stats.chi2.ppf([FALSE_ALARMS / 2, 1 - FALSE_ALARMS / 2], size))
    return bool(low - more <= norm <= high + more)
