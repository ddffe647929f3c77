"""A hundred processes of parties on one machine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from gossamer.cli import main
from gossamer.runtimes.mqtt.broker import EmbeddedBroker, Mosquitto

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("called_here")]

NODES, UPDATES = 100, 20
SPEC = f"""
dataset: digits
algorithm: {{name: gossip, nodes: {NODES}, topology: exponential, batch_size: 4, updates_per_node: {UPDATES}}}
budget: {{epsilon: 8, delta: 1.0e-4}}
"""


@pytest.mark.parametrize("broker", [EmbeddedBroker, Mosquitto])
def test_a_hundred_parties(
    broker: type[EmbeddedBroker | Mosquitto], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if (reason := broker.missing()) is not None:
        pytest.skip(reason)
    Path("spec.yaml").write_text(SPEC)
    name = broker.__name__.lower().removesuffix("broker")
    assert main(["up", "spec.yaml", "--out", "up", "--broker", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["parties"]) == NODES
    assert {summary["finished"] for summary in found["parties"].values()} == {"quota"}
    assert {summary["privacy"]["releases"] for summary in found["parties"].values()} == {UPDATES}
    # Ten classes; each node alone has fourteen examples.
    assert found["metrics"]["test_accuracy"] > 0.3
    ahead = [log for log in Path("up").glob("*/state/node.log") if re.search("goes ahead without", log.read_text())]
    assert not ahead, "they did not find each other in time"
