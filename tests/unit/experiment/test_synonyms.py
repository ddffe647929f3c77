"""Keys that people know from elsewhere get one line that names ours."""

from __future__ import annotations

from typing import Any

import pytest

import gossamer as gs
from gossamer.algorithms.table import OWN
from gossamer.mistakes import key_of, nearest_key, synonyms

ALGORITHMS: dict[str, Any] = {name: algorithm.Settings for name, algorithm in OWN.items()}

SAID: dict[str, tuple[dict[str, Any], str]] = {
    "lr": ({"lr": 0.1}, "unknown key lr; here it is algorithm.learning_rate"),
    "in a section": ({"objective": {"lr": 0.1}}, "unknown key objective.lr; here it is algorithm.learning_rate"),
    "momentum": (
        {"algorithm": {"name": "gossip", "momentum": 0.9}},
        r"unknown key algorithm.momentum; here it is algorithm.optimizer: \{name: momentum, momentum: 0.9\}",
    ),
    "a server's momentum": (
        {"algorithm": {"name": "fedavg", "momentum": 0.9}},
        r"here it is algorithm.server_optimizer: \{name: momentum, momentum: 0.9\}",
    ),
    "scheduler": ({"scheduler": "cosine"}, r"unknown key scheduler; here it is algorithm.learning_rate: \{schedule: "),
    "weight_decay": ({"algorithm": {"weight_decay": 0.1, "name": "gossip"}}, "here it is objective.l2"),
    "epochs": ({"epochs": 3}, "unknown key epochs; here it is stop.epochs"),
    "epochs of an algorithm": ({"algorithm": {"name": "gossip", "epochs": 3}}, "here it is stop.epochs"),
    "batch_size": ({"batch_size": 3}, "unknown key batch_size; here it is algorithm.batch_size"),
    "num_clients": ({"num_clients": 3}, "unknown key num_clients; here it is algorithm.nodes"),
    "rounds": ({"rounds": 3}, "unknown key rounds; here it is algorithm.rounds"),
    "noise_multiplier": ({"noise_multiplier": 1}, "here it is privacy.noise_multiplier"),
    "of the budget": ({"budget": {"epsilon": 1, "noise_multiplier": 1}}, "here it is privacy.noise_multiplier"),
    "max_grad_norm": ({"privacy": {"max_grad_norm": 1}}, "unknown key privacy.max_grad_norm; here it is privacy.clip"),
    "target_epsilon": ({"privacy": {"target_epsilon": 1}}, "here it is budget.epsilon"),
    "target-delta": ({"budget": {"epsilon": 1, "target-delta": 1}}, "here it is budget.delta"),
    "checkpoint": ({"checkpoint": "a.safetensors"}, "unknown key checkpoint; here it is objective.pretrained"),
    "init": ({"algorithm": {"name": "gossip", "init": "a"}}, "here it is objective.pretrained"),
    "model": ({"model": "mlp"}, "unknown key model; here it is objective.name"),
}


@pytest.mark.parametrize("case", SAID)
def test_a_key_from_elsewhere_is_translated_in_a_line(case: str) -> None:
    content, said = SAID[case]
    with pytest.raises(gs.SpecError, match=said) as caught:
        gs.parse_spec({"privacy": "none", **content})
    assert "\n" not in str(caught.value)


def test_keys_of_the_same_section_and_slips_come_as_before() -> None:
    for content, said in (
        ({"algorithm": {"name": "fedavg", "lr": 1}}, "did you mean local_learning_rate"),
        ({"algorithm": {"name": "gossip", "nodez": 3}}, "did you mean nodes"),
        ({"algorithm": {"name": "gossip", "optimizer": {"name": "adam", "eps": 1e-8}}}, "did you mean floor"),
        ({"algorithm": {"name": "gossip", "optimizer": {"name": "adam", "betas": [0.9]}}}, "did you mean beta1"),
        ({"personalisation": {"steps": 3, "epochs": 1}}, "expected one of batch_size, learning_rate"),
    ):
        with pytest.raises(gs.SpecError, match=said):
            gs.parse_spec(content)


@pytest.mark.parametrize("written", sorted({one for many in synonyms().values() for one in many}))
def test_what_is_named_is_in_specs(written: str) -> None:
    """The key is one of its section, and where a value stands beside it, some algorithm takes it."""
    section = written.partition(":")[0].partition(".")[0]
    assert section in gs.Experiment.model_fields
    if section == "algorithm":
        takers = [
            name for name, settings in ALGORITHMS.items() if key_of(written).split(".")[0] in settings.model_fields
        ]
        assert takers
    elif key := key_of(written):
        default = gs.Experiment.model_fields[section].default
        assert key in (gs.Budget if section == "budget" else type(default)).model_fields
    if ":" in written:
        path, _, value = written.partition(":")
        setting = f"{path}={value.strip()}"
        takers = [name for name in ALGORITHMS if _takes(name, setting)]
        assert takers


def _takes(name: str, setting: str) -> bool:
    try:
        gs.parse_spec(gs.override({"privacy": "none", "algorithm": {"name": name}}, [setting]))
    except gs.SpecError:
        return False
    return True


@pytest.mark.parametrize("name", ALGORITHMS)
def test_an_algorithm_is_told_only_of_keys_that_it_has(name: str) -> None:
    options = set(ALGORITHMS[name].model_fields)
    for word in synonyms().keys() - options:
        said = nearest_key(word, "algorithm", sorted(options))
        found = said.removeprefix("; here it is ")
        assert not found.startswith("algorithm.") or key_of(found) in options
        assert "did you mean" not in said or said.split()[-1].rstrip("?") in options
