"""One owner's data at two agents of a run, whose units' noise is what counts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.end_to_end.test_deployment_refusals import Party
from tests.reference.deployments import charge, experiment
from tests.reference.founded_broker import free_port

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import HOST

pytestmark = pytest.mark.usefixtures("called_here")

SPEC = """
dataset: digits
algorithm: {name: graph_federated, units: 2, agents: 3, local_steps: 2, batch_size: 4, rounds: 2, topology: complete%s}
privacy: {clip: 1.0}
budget: {epsilon: 200, delta: 1.0e-4}
"""


@pytest.mark.parametrize("masks", ["", ", masking: secure"], ids=["open", "masked"])
def test_data_are_at_one_agent(masks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two of a unit with the same data move its sum twice as far: four times the squared loss, for two charges."""
    there = LocalFederation.found(experiment(SPEC % masks), tmp_path / "f", f"mqtt://{HOST}:{free_port()}")
    party = Party(there, "node-0", capsys)
    policy = party.place / "policy.yaml"
    policy.write_text(re.sub("epsilon: .*", "epsilon: 100000", policy.read_text()))
    charge(there, "node-0")
    code, said = party.started("node-1")
    assert "node-1: examples of data set 'node-0' are in this run already, at node-0" in said
    assert (code, len(said.splitlines())) == (2, 1)
