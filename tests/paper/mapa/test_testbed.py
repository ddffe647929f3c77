"""The paper's testbed: its constants, the models that a server sent, as its trace has them, and a run by processes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from experiments.mapa.testbed import by_processes, sent
from experiments.study import named

from gossamer.algorithms.clients.nodes import Halt, NewestAtClip
from gossamer.algorithms.mapa.box import problem_of
from gossamer.algorithms.mapa.stages import Problem
from gossamer.experiment.specs.spec import Experiment
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
    variants = study.variants({"edges": "5", "seed": "0", "world": "testbed"})
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


NOISE = {"mechanism": "l2_laplace", "epsilon": 1, "norm": "exponential", "noise_scope": "first_layer"}


def preset(name: str, objective: str = "cnn_mapa", **said: object) -> Experiment:
    privacy = NOISE if name in ("mapa", "audp") else "none"
    algorithm = {"name": name, "paper": "testbed", **said}
    return Experiment.model_validate({"objective": objective, "algorithm": algorithm, "privacy": privacy})


def test_the_preset_has_the_constants_of_the_testbeds_code() -> None:
    """b 24, s 30, L 10, D_F 50, kappa 0.001, rho 1/2 and tau = K; AUDP's step with s 30 and ASGD's with s 5, R 50."""
    found = preset("mapa", nodes=20).algorithm
    assert problem_of(found) == Problem(30.0, 10.0, 50.0, staleness=20, batch_size=24, kappa=0.001, reduction=0.5)
    audp, asgd = preset("audp", nodes=5).algorithm, preset("asgd", nodes=5).algorithm
    assert audp.batch_size == asgd.batch_size == 24
    # After 24 updates, with noise of second moment 37.5 = s^2/b: 1/(2 10 5 + sqrt(75 24)), and 1/(10 5^2 + 1/10).
    assert 1 / audp.learning_rate.at_update(23, 5, 24, 37.5) == pytest.approx(100 + math.sqrt(75 * 24))
    assert 1 / asgd.learning_rate.at_update(23, 5, 24, 0.0) == pytest.approx(250 + 5 / 50)


def test_what_a_spec_says_goes_before_the_preset() -> None:
    assert preset("mapa", batch_size=64, loss_gap=2.3).algorithm.loss_gap == 2.3
    assert {preset(name, batch_size=64).algorithm.batch_size for name in ("mapa", "audp", "asgd")} == {64}
    assert preset("audp", learning_rate=0.1).algorithm.learning_rate.initial == 0.1


@pytest.mark.parametrize("name", ["mapa", "audp", "asgd", "csgd"])
@pytest.mark.parametrize("objective", ["logistic", "lenet5"])
def test_the_preset_is_for_the_model_it_was_stated_for(name: str, objective: str) -> None:
    with pytest.raises(ValueError, match=f"has constants for objective: cnn_mapa, found {objective}; take that model"):
        preset(name, objective)


def test_fig_8_is_the_preset_and_fig_7_says_the_same_constants() -> None:
    """The latter in words, since it has logistic regression beside the CNN."""
    (eight,), (seven,) = named(["mapa/figure-8"]), named(["mapa/figure-7-testbed"])
    own = {"mapa": "10", "audp": "10", "asgd": "10", "csgd": "5"}  # edges; of centralised SGD at the first place
    for name, edges in own.items():
        at = {"algorithm": name, "seed": "0"}
        (preset_of,) = eight.variants({**at, "edges": edges, "world": "simulation"})
        (variant,) = seven.variants({**at, "edges": "10", "problem": "cnn mnist"})
        said = {**variant.experiment.algorithm.model_dump(), "paper": "testbed"}
        assert said == preset_of.experiment.algorithm.model_dump()
