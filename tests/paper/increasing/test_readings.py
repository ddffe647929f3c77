"""The plain loop of Algorithm A that the study of readings has: what must not depend on how it is read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from experiments.increasing.readings import READINGS, Reading, trained_by

from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec_file import parse_spec


def prepared(nodes: int, gradients: int = 240) -> Prepared:
    return prepare(
        parse_spec(
            {
                "dataset": {
                    "name": "graph_regression",
                    "synthetic": {"owners": 5, "examples": 40, "features": 3, "noise_variance": [0.1, 0.2]},
                },
                "objective": {"name": "squared"},
                "partition": {"name": "iid"},
                "algorithm": {
                    "name": "increasing",
                    "nodes": nodes,
                    "sizes": 10 * nodes,
                    "learning_rate": 0.01,
                    "gradients": gradients,
                },
                "privacy": {"mechanism": "none"},
                "seed": 3,
            }
        )
    )


def test_of_one_client_nothing_depends_on_who_hears_of_whom() -> None:
    """It has all updates there are, its own, whatever comes when: plain SGD, and the mean of one is itself."""
    one, plain = prepared(1), Reading()
    expected = trained_by(plain, one)
    for reading in (replace(plain, mean=True), replace(plain, each=True), replace(plain, spread=0.02)):
        found = trained_by(reading, one)
        assert found.server == pytest.approx(expected.server, rel=1e-4)
        assert found.client == pytest.approx(expected.server, rel=1e-4)
    assert trained_by(replace(plain, turns=True), one).server == pytest.approx(expected.server, rel=1e-4)


def test_updates_that_come_together_are_sent_together() -> None:
    """Rounds of equal length end at one moment, so a model after each update is that of the complete round."""
    five = prepared(5)
    together = Reading(spread=0)
    expected = trained_by(together, five).server
    assert trained_by(replace(together, each=True), five).server == pytest.approx(expected, rel=1e-4)
    assert trained_by(replace(together, mean=True), five).server != pytest.approx(expected, rel=1e-2)
    assert trained_by(replace(together, turns=True), five).server != pytest.approx(expected, rel=1e-3)


def test_a_first_round_is_the_sum_of_walks_from_the_same_model() -> None:
    """With one round nothing is received, and the mean of five goes a fifth of the way of the sum."""
    five = prepared(5, gradients=50)
    start = five.objective.initial(np.random.default_rng(3))
    summed, mean = (trained_by(Reading(mean=mean), five).server - start for mean in (False, True))
    assert summed == pytest.approx(5 * mean, rel=1e-4)


def test_readings_change_one_thing() -> None:
    """But for the spreads of what is sent after each update."""
    printed = Reading()
    for name, reading in READINGS.items():
        changed = [field for field in vars(printed) if getattr(reading, field) != getattr(printed, field)]
        assert len(changed) == (name != "Algorithm A") + (reading.each and reading.spread != printed.spread)
