"""Two hospitals and a server, from keys to models: real processes, a real Mosquitto, certificates and access list."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho", reason="needs the extra mqtt")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.founded_broker import FoundedBroker, free_port
from tests.reference.party_processes import all_ended, started

from gossamer.cli import main
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, Mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

EXAMPLES = {"a": 80, "b": 60}
UPDATES = 10
SPEC = f"""
dataset: {{name: stays, format: csv, target: longer, features: [x, y], labels: [0, 1]}}
objective: logistic
algorithm: {{name: audp, batch_size: 20, updates_per_node: {UPDATES}}}
privacy: {{clip: 1}}
budget: {{epsilon: 3, delta: 1.0e-4}}
"""


@pytest.fixture
def broker(called_here: None) -> Iterator[FoundedBroker]:
    """The federation, founded by the command in the folder ``f``, and its broker."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    Path("spec.yaml").write_text(SPEC)
    Path("keys").mkdir()
    for name in EXAMPLES:
        assert main(["federation", "identity", name]) == 0
        Path(name, f"{name}.pub").rename(Path("keys", f"{name}.pub"))
    url = f"mqtts://{HOST}:{free_port()}"
    examples = ",".join(f"{name}={count}" for name, count in EXAMPLES.items())
    new = ["federation", "new", "f", "--spec", "spec.yaml", "--nodes", ",".join(EXAMPLES), "--examples", examples]
    assert main([*new, "--broker", url, "--keys", "keys"]) == 0
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for number, name in enumerate(EXAMPLES):
        take_over(name)
        write_data(Path(name, "train.csv"), EXAMPLES[name], number)
        policy = {"data": {"stays": {"epsilon": 5, "delta": 1e-4}}, "organisers": [organiser]}
        Path(name, "policy.yaml").write_text(json.dumps(policy))
    with FoundedBroker(Path("f")) as broker:
        yield broker


def take_over(name: str) -> None:
    """What the organiser mailed is put beside the party's own key."""
    for file in Path("f", name).iterdir():
        file.replace(Path(name, file.name))


def write_data(path: Path, examples: int, seed: int) -> None:
    points = np.random.default_rng(seed).normal(size=(examples, 2)).round(3)
    lines = [f"{x},{y},{int(x > y)}\n" for x, y in points.tolist()]
    path.write_text("".join(["x,y,longer\n", *lines]))


def node(name: str) -> subprocess.Popen[str]:
    """A party's process."""
    if name == "server":
        organiser = read_signed("f/federation.yaml").organiser.fingerprint
        options = ["--invitation", "f/server/invitation.yaml", "--organiser", organiser]
    else:
        files = {"invitation": "invitation.yaml", "policy": "policy.yaml", "data": "train.csv"}
        options = [word for option, file in files.items() for word in (f"--{option}", f"{name}/{file}")]
    return started(options)


def run(*names: str) -> dict[str, tuple[int, str]]:
    """Exit code and output of each party's process, once all have ended."""
    return all_ended(node, names)


def summary(name: str) -> Any:
    return json.loads(Path(name, "state", "summary.json").read_text())


def test_from_keys_to_models(broker: FoundedBroker) -> None:
    ended = run("server", *EXAMPLES)
    assert {name: code for name, (code, _) in ended.items()} == dict.fromkeys(ended, 0), ended
    run_name = read_signed("f/federation.yaml").run
    for name in EXAMPLES:
        found = summary(name)
        assert (found["run"], found["node"], found["role"]) == (run_name, name, "edge")
        assert 0 < found["privacy"]["releases"] <= UPDATES
        assert found["privacy"]["epsilon"] <= 3.001
        assert Path(name, "state", "model.safetensors").exists()


def test_a_key_that_others_may_read(broker: FoundedBroker) -> None:
    Path("a/identity.key").chmod(0o644)
    ((code, said),) = run("a").values()
    assert code == 2
    assert "a/identity.key: others may use this key (mode 0644, expected 0600)" in said
    assert not Path("a/policy.ledger").exists()


def test_another_partys_invitation(broker: FoundedBroker) -> None:
    Path("b/invitation.yaml").replace("a/invitation.yaml")
    ((code, said),) = run("a").values()
    assert code == 2
    assert "a/invitation.yaml: it is for b with key" in said
    assert not Path("a/policy.ledger").exists()
