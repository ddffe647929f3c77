"""Five hospitals, each a process with its own patients, against the simulation of the same spec."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.founded_broker import FoundedBroker, free_port

import gossamer as gs
from gossamer.cli import main
from gossamer.experiment.preparation.prepare import prepare
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import HOST, Mosquitto
from gossamer.vectors import pack

pytestmark = pytest.mark.usefixtures("called_here")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SPEC = EXAMPLES / "hospitals.yaml"
LONG = 240.0
UPDATES = 100
POINTS, LOSS = 0.03, 0.03
"""How far a deployment may be from the simulation: three points of accuracy, and as much of the loss, which is 0.4 and
of which a model without privacy saves 0.01."""


@pytest.fixture(scope="module")
def simulated() -> dict[str, Any]:
    return gs.run(gs.read_spec(SPEC)).summary


def epsilons(summary: dict[str, Any]) -> list[float]:
    return [node["epsilon"] for _, node in sorted(summary["privacy"]["nodes"].items())]


def check_privacy(parties: dict[str, Any], simulated: dict[str, Any]) -> None:
    """Each party's epsilon is the simulated node's; what the samplers of a deployment are off by is far below 1e-3."""
    for (name, summary), epsilon in zip(sorted(parties.items()), epsilons(simulated), strict=True):
        assert summary["finished"] == "quota", name
        assert summary["privacy"]["releases"] == UPDATES
        assert epsilon * (1 - 1e-12) <= summary["privacy"]["epsilon"] <= epsilon * (1 + 1e-3)


@pytest.mark.slow
def test_up_is_what_run_is(simulated: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Five processes and the embedded broker, by one command."""
    assert main(["up", str(SPEC), "--out", "up", "--json", "--log-file", "up.jsonl"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = simulated["metrics"]
    assert found["metrics"]["test_accuracy"] == pytest.approx(expected["mean_model_test_accuracy"], abs=POINTS)
    assert found["metrics"]["test_loss"] == pytest.approx(expected["mean_model_test_loss"], abs=LOSS)
    assert len(found["parties"]) == 5
    assert json.loads(Path("up", "summary.json").read_text()) == found
    events = [json.loads(line)["event"] for line in Path("up.jsonl").read_text().splitlines()]
    assert {f"{name}: starting" for name in found["parties"]} <= set(events)
    said = Path("up", "summary.txt").read_text()
    assert all(f"{name}  worker" in said for name in found["parties"])
    assert f"test accuracy {found['metrics']['test_accuracy']:.4g}" in said
    check_privacy(found["parties"], simulated)


def names() -> list[str]:
    with (EXAMPLES / "hospitals" / "hospitals.csv").open(newline="", encoding="utf-8") as file:
        return sorted({row["hospital"] for row in csv.DictReader(file)})


def write_patients(hospital: str, path: Path) -> int:
    """A hospital's own file: its patients, in columns of its own order, and nothing about whose they are."""
    with (EXAMPLES / "hospitals" / "hospitals.csv").open(newline="", encoding="utf-8") as file:
        patients = [row for row in csv.DictReader(file) if row["hospital"] == hospital]
    columns = sorted(name for name in patients[0] if name != "hospital")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(patients)
    return len(patients)


def mean_model_scores(models: list[Path]) -> tuple[float, float]:
    """Loss and accuracy of the mean of saved models on the patients of elsewhere.

    The mean is compared, as in the simulation, since exchanges leave it as it is. Each hospital's own model hangs on
    the machine as well: who made its updates before the others had begun has moved towards models without any.
    """
    prepared = prepare(gs.read_spec(SPEC))
    objective = prepared.objective
    mean = np.mean([pack(load_file(path), objective.parts, objective.dtype) for path in models], axis=0)
    found = objective.evaluate(mean[None], prepared.dataset.test)
    return float(found.loss[0]), float(found.accuracy[0])


def node(name: str) -> subprocess.Popen[str]:
    place = Path("f", name)
    files = {"invitation": "invitation.yaml", "policy": "policy.yaml", "data": "wards.csv"}
    options = [word for option, file in files.items() for word in (f"--{option}", str(place / file))]
    options += ["--test", str(EXAMPLES / "hospitals" / "elsewhere.csv")]
    command = [sys.executable, "-m", "gossamer", "node", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_over_a_mosquitto_with_certificates(simulated: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """From ``federation new`` to five models, by the commands that hospitals and their organiser call."""
    if (reason := Mosquitto.missing()) is not None:
        pytest.skip(reason)
    hospitals = {f"hospital-{number}": hospital for number, hospital in enumerate(names())}
    Path("own").mkdir()
    sizes = {name: write_patients(hospital, Path("own", name)) for name, hospital in hospitals.items()}
    examples = ",".join(f"{name}={size}" for name, size in sizes.items())
    new = ["federation", "new", "f", "--spec", str(SPEC), "--nodes", ",".join(hospitals), "--examples", examples]
    assert main([*new, "--broker", f"mqtts://{HOST}:{free_port()}"]) == 0
    organiser = read_signed("f/federation.yaml").organiser.fingerprint
    for name in hospitals:
        Path("own", name).rename(Path("f", name, "wards.csv"))
        policy = {
            "data": {"wards": {"epsilon": 8, "delta": 1e-4, "path": "wards.csv"}},
            "organisers": [organiser],
            "algorithms": ["gossip"],
            "smallest_noise_multiplier": 0.3,
        }
        Path("f", name, "policy.yaml").write_text(json.dumps(policy))
    with FoundedBroker(Path("f")), ExitStack() as stack:
        processes = {name: stack.enter_context(node(name)) for name in hospitals}
        stack.callback(lambda: [process.kill() for process in processes.values()])
        said = {name: process.communicate(timeout=LONG)[0] for name, process in processes.items()}
    assert not any(process.returncode for process in processes.values()), said
    summaries = {name: json.loads(Path("f", name, "state", "summary.json").read_text()) for name in hospitals}
    check_privacy(summaries, simulated)
    loss, accuracy = mean_model_scores([Path("f", name, "state", "model.safetensors") for name in hospitals])
    expected = simulated["metrics"]
    assert accuracy == pytest.approx(expected["mean_model_test_accuracy"], abs=POINTS)
    assert loss == pytest.approx(expected["mean_model_test_loss"], abs=LOSS)
    for name, summary in summaries.items():
        own = summary["metrics"]
        assert own["test_accuracy"] == pytest.approx(expected["mean_model_test_accuracy"], abs=POINTS), name
        assert math.isfinite(own["test_loss"]), name
    assert "Traceback" not in "".join(said.values())


def test_the_hospitals_own_files_hold_the_simulators_shards(tmp_path: Path) -> None:
    """Or the comparison would be one of different data."""
    prepared = prepare(gs.read_spec(SPEC))
    for hospital, shard in zip(names(), prepared.shards, strict=True):
        assert write_patients(hospital, tmp_path / "own.csv") == len(shard)
