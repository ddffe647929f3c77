"""Two hundred processes of parties killed at random instants of their runs, and started again.

Nothing is lost, nothing is done twice, and no ledger is short: `tests.reference.deployments.check_lives` goes through
all that the nodes ever committed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("amqtt", reason="needs the extra broker")
pytest.importorskip("cryptography", reason="needs the extra secure")

from tests.reference.deployments import Parties, charges, check_lives, experiment, keep_history, parties, until

from gossamer.cli.federation.local_federation import LocalFederation
from gossamer.runtimes.mqtt.broker import EmbeddedBroker

pytestmark = pytest.mark.slow

KILLS = 50
UNITS = "units: 2, agents: 3, local_steps: 2, batch_size: 20, step_size: 0.5, rounds: 60, topology: ring"
SPECS = {
    "gossip": "algorithm: {name: gossip, nodes: 4, topology: ring, batch_size: 32, updates_per_node: 4000}\n"
    "budget: {epsilon: 30, delta: 1.0e-4}",
    "audp": "algorithm: {name: audp, nodes: 3, batch_size: 32, updates_per_node: 800}\n"
    "budget: {epsilon: 20, delta: 1.0e-4}",
    "allreduce": "algorithm: {name: allreduce, nodes: 3, batch_size: 32, updates_per_node: 300}\n"
    "budget: {epsilon: 20, delta: 1.0e-4}",
    "masked": f"algorithm: {{name: graph_federated, {UNITS}, masking: {{name: secure, minimum: 2, threshold: 2}}}}\n"
    "privacy: {clip: 1.0}\nbudget: {epsilon: 2000, delta: 1.0e-4}",
}


def kill_some(there: Parties, kills: int, seed: int) -> Counter[str]:
    """Kill and start again parties that have not finished; every other one in the midst of its work."""
    instants, killed = random.Random(seed), Counter[str]()
    while sum(killed.values()) < kills:
        time.sleep(instants.uniform(0.0, 0.5))
        busy = [name for name in there.names if not there.status(name).get("finished")]
        assert busy, f"all have finished after {sum(killed.values())} kills: the runs are too short"
        name = instants.choice(busy)
        if instants.random() < 0.5:
            until(lambda name=name: there.status(name)["state"] in ("running", "lingering"), f"{name} to run")
            time.sleep(instants.uniform(0.0, 0.2))
        there.kill(name)
        killed[name] += 1
        assert there.status(name)["state"] in ("killed", "starting")
        there.start(name)
    return killed


@pytest.mark.parametrize("name", SPECS)
def test_killed_at_random(name: str, tmp_path: Path) -> None:
    spec = experiment(f"dataset: digits\nlinks: {{retry_after: 0.5}}\n{SPECS[name]}\n")
    with EmbeddedBroker() as broker:
        federation = LocalFederation.found(spec, tmp_path / name, broker.url)
        with parties(federation) as there:
            keep_history(there)
            there.start()
            killed = kill_some(there, KILLS, seed=len(name))
            there.finish(patience=600.0)
            lives = check_lives(there, killed)
            print(f"{name}: killed {dict(killed)}, charged { ({n: charges(there, n) for n in there.names}) }")
    for party, quota in (federation.plan.quotas or {}).items():
        # A release that was charged and lost with its process is one update less, and a node that has made its quota
        # of updates has finished.
        found, charged = lives[party].host, charges(there, party)
        assert found.finished in ("quota", "budget")
        assert charged is None or charged == quota
        updates = getattr(found.node.state, "updates", quota)
        assert quota - killed[party] <= updates <= quota, (party, updates, killed)
        assert (updates == quota) == (found.finished == "quota") or name == "allreduce"
