"""Hospitals that find the scale of their columns together: real processes, a real broker, predictions on raw rows."""

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

from tests.reference.deployments import check_lives, experiment, keep_history, parties, until
from tests.reference.founded_broker import FoundedBroker, free_port
from tests.reference.party_processes import all_ended, started

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.founding.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, Mosquitto

pytestmark = [
    pytest.mark.slow,
    pytest.mark.usefixtures("called_here"),
    # paho leaves the socket to the collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

EXAMPLES = {"a": 150, "b": 140, "c": 160}
UPDATES = 25
SPEC = f"""
dataset:
  name: stays
  format: csv
  target: longer
  labels: ["no", "yes"]
  columns: {{dose: number, ward: [east, west], share: {{kind: number, missing: 0.02}}}}
  scale: private
objective: logistic
algorithm: {{name: gossip, batch_size: 40, updates_per_node: {UPDATES}, learning_rate: 2}}
privacy: {{clip: 1}}
budget: {{epsilon: 40, delta: 1.0e-4}}
"""
"""With so large a budget that what is learnt does not depend on luck."""


def write_data(path: Path, examples: int, seed: int) -> None:
    """Rows whose outcome follows from the dose, which lies around 30,000; other columns are small."""
    generator = np.random.default_rng(seed)
    doses, shares = generator.uniform(-6e4, 6e4, examples), generator.uniform(0.01, 0.03, examples)
    rows = [
        f"{dose:.6g},{['east', 'west'][i % 2]},{'' if i % 50 == 0 else f'{share:.4g}'},{['no', 'yes'][int(dose > 0)]}\n"
        for i, (dose, share) in enumerate(zip(doses, shares))
    ]
    path.write_text("".join(["dose,ward,share,longer\n", *rows]))


@pytest.fixture
def broker(called_here: None, capsys: pytest.CaptureFixture[str]) -> Iterator[FoundedBroker]:
    """The federation, founded by the command in the folder ``f``, and its broker."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    Path("spec.yaml").write_text(SPEC)
    Path("keys").mkdir()
    for name in EXAMPLES:
        assert main(["federation", "identity", name]) == 0
        Path(name, f"{name}.pub").rename(Path("keys", f"{name}.pub"))
    examples = ",".join(f"{name}={count}" for name, count in EXAMPLES.items())
    new = ["federation", "new", "f", "--spec", "spec.yaml", "--nodes", ",".join(EXAMPLES), "--examples", examples]
    capsys.readouterr()
    assert main([*new, "--broker", f"mqtts://{HOST}:{free_port()}", "--keys", "keys"]) == 0
    out, err = capsys.readouterr()
    assert f" {UPDATES + 1} " in out  # releases of each
    assert "gossamer federation combine" in err
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for number, name in enumerate(EXAMPLES):
        for file in Path("f", name).iterdir():
            file.replace(Path(name, file.name))
        write_data(Path(name, "train.csv"), EXAMPLES[name], number)
        policy = {"data": {"stays": {"path": "train.csv", "epsilon": 60, "delta": 1e-4}}, "organisers": [organiser]}
        Path(name, "policy.yaml").write_text(json.dumps(policy | {"smallest_noise_multiplier": 0.0}))
    with FoundedBroker(Path("f")) as broker:
        yield broker


def node(name: str) -> subprocess.Popen[str]:
    """A party's process."""
    options = [word for option in ("invitation", "policy") for word in (f"--{option}", f"{name}/{option}.yaml")]
    return started(options)


def run(*names: str) -> dict[str, tuple[int, str]]:
    """Exit code and output of each party's process, once all have ended."""
    return all_ended(node, names)


def document(capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    capsys.readouterr()
    assert main([*command]) == 0
    return json.loads(capsys.readouterr().out)


def test_from_releases_to_predictions(broker: FoundedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    ((code, said),) = run("a").values()
    assert code == 2
    assert "a/scale.yaml: cannot read the scale that this run starts with" in said
    assert not Path("a/policy.ledger").exists()
    releases = {}
    for name in EXAMPLES:
        command = ("federation", "scale", f"{name}/invitation.yaml", "--policy", f"{name}/policy.yaml", "--json")
        releases[name] = document(capsys, *command)["release"]
        first = Path(releases[name]).read_bytes()
        assert document(capsys, *command) == {"release": releases[name]}
        assert Path(releases[name]).read_bytes() == first
    found = document(capsys, "federation", "combine", "f", *releases.values(), "--json")
    # Four geometric means, to a factor of 2: the noise on log2 of it has a standard deviation of about 0.15.
    raw = np.concatenate([np.abs(_doses(name)) for name in EXAMPLES])
    assert 0.5 < found["ranges"]["dose"] / (4 * np.exp(np.log(raw).mean())) < 2
    for name in EXAMPLES:
        Path(name, "scale.yaml").write_bytes(Path("f/scale.yaml").read_bytes())
    ended = run(*EXAMPLES)
    assert {name: code for name, (code, _) in ended.items()} == dict.fromkeys(ended, 0), ended
    for name in EXAMPLES:
        summary = json.loads(Path(name, "state", "summary.json").read_text())
        privacy = summary["privacy"]
        assert privacy["planned_releases"] == UPDATES + 1
        assert UPDATES // 2 < privacy["releases"] <= UPDATES + 1
        assert privacy["epsilon"] <= 40.001
        columns = json.loads(Path(name, "state", "model.json").read_text())["data"]["columns"]
        for column, most in found["ranges"].items():
            assert columns[column]["range"] == [-most, most]
        shown = document(capsys, "data", "show", f"{name}/policy.yaml", "--json")
        assert shown["data_sets"][0]["runs"][0]["releases"] == privacy["releases"]
    write_data(Path("new.csv"), 200, 99)
    assert document(capsys, "evaluate", "a/state", "new.csv", "--json")["accuracy"] > 0.85


def _doses(name: str) -> Any:
    lines = Path(name, "train.csv").read_text().splitlines()[1:]
    return np.array([float(line.split(",")[0]) for line in lines])


def test_a_node_that_is_killed_goes_on_by_its_scale(called_here: None) -> None:
    """Nothing is released twice: each ledger has the release for the scale, and one for each answer given or lost."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    write_data(Path("stays.csv"), 450, 5)
    spec = SPEC.replace("format: csv", "path: stays.csv").replace("name: gossip,", "name: gossip, nodes: 3,")
    spec = spec.replace(f"updates_per_node: {UPDATES}", "updates_per_node: 400")
    with Mosquitto() as broker:
        federation = LocalFederation.found(experiment(spec), Path("up"), broker.url)
        federation.find_scale(lambda line: None)
        with parties(federation) as there:
            keep_history(there)
            there.start()
            killed = there.names[0]
            until(lambda: there.updates(killed) >= 3, "updates before the kill")
            there.kill(killed)
            there.start(killed)
            there.finish()
        check_lives(there, {killed: 1})
    for name in there.names:
        columns = json.loads(Path("up", name, "state", "model.json").read_text())["data"]["columns"]
        assert {column: columns[column]["range"][1] for column in federation.ranges} == federation.ranges


def test_on_one_machine_it_is_done_by_itself(called_here: None, capsys: pytest.CaptureFixture[str]) -> None:
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    write_data(Path("stays.csv"), 450, 5)
    spec = SPEC.replace("format: csv", "path: stays.csv").replace("name: gossip,", "name: gossip, nodes: 3,")
    Path("spec.yaml").write_text(spec)
    found = document(capsys, "up", "spec.yaml", "--out", "up", "--broker", "mosquitto", "--json")
    assert found["failed"] == {}
    assert {party["privacy"]["planned_releases"] for party in found["parties"].values()} == {UPDATES + 1}
    papers = {Path("up", name, "scale.yaml").read_bytes() for name in found["parties"]}
    assert len(papers) == 1
    assert set(found["private_ranges"]) == {"dose", "share"}
    assert found["metrics"]["test_accuracy"] > 0.85
    # The run's model reads rows as they are in the file.
    write_data(Path("new.csv"), 200, 99)
    assert document(capsys, "evaluate", "up", "new.csv", "--json")["accuracy"] > 0.85
    for name in found["parties"]:
        columns = json.loads(Path("up", name, "state", "model.json").read_text())["data"]["columns"]
        assert {column: columns[column]["range"][1] for column in found["private_ranges"]} == found["private_ranges"]
