"""Fig. 8: the models that a server sent, as its trace has them, and a run by processes."""

from __future__ import annotations

import numpy as np
import pytest
from experiments.mapa.testbed import by_processes, sent
from experiments.study import named

from gossamer.algorithms.clients.nodes import Halt, NewestAtClip
from gossamer.protocol.effects import Record, Send
from gossamer.protocol.events import Started
from gossamer.protocol.trace import TraceStep
from gossamer.vectors import Public


def model(value: float) -> Public:
    return Public(np.array([value]))


def test_models_are_those_that_were_sent_with_seconds_from_the_first() -> None:
    """Two edges pull x_0 at 7.0 and 7.5; an update at 8.0 answers with x_1, and the run ends at 9.0 with x_2."""
    newest = [NewestAtClip(1, version, model(0.0), model(float(version))) for version in (0, 0, 1)]
    steps = [
        TraceStep(6.0, "server", Started(), [Record("stage.number", 1.0)]),
        TraceStep(7.0, "server", Started(), [Send("a", newest[0])]),
        TraceStep(7.5, "server", Started(), [Send("b", newest[1])]),
        TraceStep(8.0, "server", Started(), [Record("x", 0.0), Send("a", newest[2])]),
        TraceStep(9.0, "server", Started(), [Send("a", Halt(2, model(2.0))), Send("b", Halt(2, model(2.0)))]),
    ]
    found = [(version, seconds, float(values[0])) for version, seconds, values in sent(steps)]
    assert found == [(0, 0.0, 0.0), (0, 0.5, 0.0), (1, 1.0, 1.0), (2, 2.0, 2.0), (2, 2.0, 2.0)]


def test_processes_are_not_started_for_their_first_updates() -> None:
    """`--check` begins every run; what processes do is not the same again."""
    (study,) = named(["mapa/figure-8"])
    variants = study.variants({"edges": "20", "seed": "0", "world": "testbed"})
    assert {variant.place["algorithm"] for variant in variants} >= {"mapa", "audp"}
    assert all(study.of.first_of(study.name, variant) is None for variant in variants)


@pytest.mark.slow
def test_a_run_by_processes_learns() -> None:
    pytest.importorskip("amqtt", reason="needs the extra broker")
    pytest.importorskip("cryptography", reason="needs the extra secure")
    content = {
        "dataset": "digits",
        "algorithm": {"name": "audp", "nodes": 2, "batch_size": 32},
        "privacy": {"clip": 1.0, "noise_multiplier": 0.5, "noise_secret": "reproducible"},
        "speeds": "cyclic",
        "stop": {"updates": 60},
    }
    curve = by_processes(content, None)["curve"]
    assert [row["updates"] for row in curve] == list(range(0, 61, 6))
    seconds = [row["wall_seconds"] for row in curve]
    assert seconds == sorted(seconds)
    assert curve[-1]["mean_model_test_accuracy"] > curve[0]["mean_model_test_accuracy"] + 0.2
