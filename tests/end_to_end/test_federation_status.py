"""``gossamer federation status``, as the organiser and members call it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import experiment, parties, until

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.deployment.founding.founding import found
from gossamer.keys.invitations import read_signed
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

SPEC = "dataset: digits\nalgorithm: {name: audp, updates_per_node: 9, batch_size: 20}\nprivacy: {noise_multiplier: 1}\n"
RUNS = """
dataset: digits
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 32, updates_per_node: 20000}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 0.5}
"""


def founded(folder: Path) -> Path:
    found(folder, spec=SPEC, parties={"a": 300, "b": 200}, broker="mqtt://127.0.0.1:1")
    return folder


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["federation", "status", *map(str, words), "--wait", "0.2"]) != 0
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [line for line in said.err.splitlines() if line.startswith("gossamer: error: ")]
    return line


def test_the_key_of_another_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = founded(tmp_path / "one"), founded(tmp_path / "other")
    shutil.copy(other / "overview" / "identity.key", one / "overview" / "identity.key")
    line = refused(capsys, one)
    assert "expected the overview's key of run" in line
    assert f"found that of another federation, {read_signed(other / 'federation.yaml').overview.fingerprint}" in line


def test_what_is_no_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "federation.yaml: cannot read the invitation" in refused(capsys, tmp_path)
    (founded(tmp_path / "f") / "overview" / "identity.key").unlink()
    assert "cannot read the key" in refused(capsys, tmp_path / "f")


def test_a_broker_that_is_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, founded(tmp_path / "f"))
    assert "overview has had no connection to the broker mqtt://127.0.0.1:1" in line
    assert line.endswith("is it running there, or is a longer --wait needed?")


@pytest.mark.slow
@pytest.mark.usefixtures("called_here")
def test_parties_that_run_one_that_forbids_it_and_one_that_is_killed(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, metrics = tmp_path / "f", tmp_path / "all.prom"
    with parties(LocalFederation.found(experiment(RUNS), folder, broker.url), ("--connect-timeout", "60")) as there:
        there.start()
        until(lambda: all(there.updates(name) > 2 for name in there.names), "both to run")
        # What a node has told is told again for ten seconds, such as that it waits.
        until(lambda: not main(["federation", "status", str(folder)]), "both to say so", 20)
        table = capsys.readouterr().out.splitlines()
        table = table[table.index("OK") :]
        assert [line.split()[:3] for line in table[2:]] == [[f"node-{i}", "ok", "running"] for i in range(2)]

        shutil.copytree(folder / "overview", tmp_path / "mine")  # as a member gets it
        assert main(["federation", "status", str(tmp_path / "mine"), "--json", "--prometheus", str(metrics)]) == 0
        found = json.loads(capsys.readouterr().out)
        assert {name: one["level"] for name, one in found.items()} == {"node-0": "ok", "node-1": "ok"}
        assert found["node-0"]["releases"] > 0
        assert not {"policy", "seconds", "datagrams"} & set(found["node-0"])
        assert 'gossamer_node_level{store="node-1"' in metrics.read_text()

        policy = folder / "node-1" / "policy.yaml"
        policy.write_text(f"{policy.read_text()}overview: no\n")
        assert main(["stop", str(there.folder("node-1").path)]) == 0
        there.start("node-1")
        until(lambda: there.status("node-1")["state"] == "running", "it to go on")
        until(lambda: there.peer("node-1", of="node-0") == "up", "it to be heard")
        capsys.readouterr()
        assert main(["federation", "status", str(folder), "--wait", "16"]) == 1
        assert "WARNING: node-1 not heard for" in (said := capsys.readouterr().out)
        assert "its policy forbids this" in said

        there.kill("node-0")
        assert main(["federation", "status", str(folder), "--wait", "16"]) == 1
        line, *_ = capsys.readouterr().out.splitlines()
        assert line.startswith(
            "WARNING: each of node-0, node-1 not heard, and nobody is: the run has not begun, is over"
        )
