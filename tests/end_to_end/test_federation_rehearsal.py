"""``gossamer federation rehearse``: who could begin, before anything is charged, with a process for each party."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import experiment, parties, until

from gossamer.cli import main
from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.cli.main import parser
from gossamer.deployment.party.agreement import PartyOptions, accept
from gossamer.deployment.party.state_folder import StateFolder
from gossamer.deployment.party.store import fitting, stored_node
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 32, updates_per_node: 200}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]


def killed_before_its_plan_was_charged(place: Path, command: list[str]) -> None:
    """Leave the store that a process leaves that ends there."""
    given = parser(filled=True).parse_args(command)
    chosen = {name: value for name, value in vars(given).items() if name in PartyOptions.__dataclass_fields__}
    options = PartyOptions(**chosen)
    with ExitStack() as stack:
        folder = StateFolder(options.state)
        folder.take()
        stack.callback(folder.give_back)
        stored_node(options, fitting(options, accept(options), folder), folder, stack)


@pytest.mark.nightly
def test_who_is_ready_and_who_is_off(
    tmp_path: Path, broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "f"
    with parties(LocalFederation.found(experiment(SPEC), folder, broker.url), ("--connect-timeout", "60")) as there:
        there.start("node-0", more=["--rehearse"])
        until(lambda: there.status("node-0")["state"] == "waiting", "it to rehearse")
        assert main(["federation", "rehearse", str(folder), "--wait", "16"]) == 1
        head, zero, one = capsys.readouterr().out.splitlines()
        assert head.split() == ["party", "ready", "what", "it", "lacks"]
        assert zero == "node-0  no     node-1 is not heard"
        assert one.startswith("node-1  no     not heard for ")

        there.start("node-1", more=["--wait", "1"])  # which begins with nobody that only rehearses
        until(lambda: there.status("node-1")["state"] == "waiting", "the other to wait")
        assert main(["federation", "rehearse", str(folder), "--wait", "8"]) == 1
        assert "node-1  no     does not rehearse: it is waiting; start it with --rehearse" in capsys.readouterr().out
        assert there.status("node-1")["state"] == "waiting"
        assert main(["stop", str(there.folder("node-1").path)]) == 0

        killed_before_its_plan_was_charged(folder / "node-1", there.federation.command("node-1", "--rehearse"))
        there.start("node-1", more=["--rehearse"])
        assert main(["federation", "rehearse", str(folder), "--json", "--wait", "60"]) == 0
        ready = {"ready": True, "lacks": []}
        assert json.loads(capsys.readouterr().out) == {"node-0": ready, "node-1": ready}
        for name in there.names:
            assert main(["stop", str(there.folder(name).path)]) == 0
        for name in there.names:  # nothing of it is left but the store that there was, and nothing was charged
            assert there.folder(name).path.exists() == (name == "node-1")
            assert main(["data", "show", str(folder / name / "policy.yaml"), "--json"]) == 0
            (spent,) = json.loads(capsys.readouterr().out)["data_sets"]
            assert spent["runs"] == []

        there.start()
        there.finish()
        there.start("node-0", more=["--rehearse"])
        assert there.join("node-0") == {"node-0": 2}
        assert "the node has begun, so there is nothing to rehearse; leave out --rehearse" in there.output("node-0")
