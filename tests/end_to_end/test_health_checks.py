"""The health checks of ``deploy/kubernetes`` find a node that hangs, on one that does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import experiment, parties, until

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

PARTY = Path(__file__).parents[2] / "deploy" / "kubernetes" / "party.yaml"
SPEC = """
dataset: digits
algorithm: {name: gossip, nodes: 2, topology: complete, batch_size: 32, updates_per_node: 20000}
budget: {epsilon: 100, delta: 1.0e-4}
links: {retry_after: 0.5}
"""
LONG = 240.0  # seconds; what hangs has written nothing for two minutes

pytestmark = pytest.mark.slow


def test_a_node_that_hangs_is_found_and_started_again(tmp_path: Path, broker: EmbeddedBroker) -> None:
    """The very commands of the manifest, on the state folder: a node that gets on passes them, and one that hangs not.

    Once its broker is away a node is not ready, and not to be started anew for it.
    """
    (job,) = [one for one in yaml.safe_load_all(PARTY.read_text(encoding="utf-8")) if one["kind"] == "Job"]
    (node,) = job["spec"]["template"]["spec"]["containers"]
    federation = LocalFederation.found(experiment(SPEC), tmp_path / "f", broker.url)

    def passes(probe: str, there: Any) -> bool:
        words = [word.replace("/state", str(there.folder("node-0").path)) for word in node[probe]["exec"]["command"]]
        own = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(words, env={**os.environ, "PATH": own}, capture_output=True, check=False, timeout=60)
        return done.returncode == 0

    with parties(federation, ("--connect-timeout", "60")) as there:
        there.start("node-0")
        until(lambda: there.status("node-0").get("connected") is True, "it to have the broker")
        process = there.status("node-0")["process"]
        assert passes("readinessProbe", there)
        assert passes("livenessProbe", there)
        broker.stop()
        until(lambda: not passes("readinessProbe", there), "it not to be ready")
        assert passes("livenessProbe", there)
        os.kill(process, signal.SIGSTOP)
        try:
            until(lambda: not passes("livenessProbe", there), "it to be found", LONG)
        finally:
            os.kill(process, signal.SIGCONT)
        until(lambda: passes("livenessProbe", there), "it to go on")
