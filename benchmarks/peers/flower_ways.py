"""Client updates by Flower's simulation, with as many actors as the job has threads."""

from __future__ import annotations

import sys

from peers.apart import federated
from peers.measured import Asked, Measured

PACKAGES = ("torch", "numpy", "flwr", "ray")


def clients(asked: Asked) -> Measured:
    """Rounds of a run of its own, which tells nobody that it runs."""
    silent = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "FLWR_HOME": str(asked.cache / "flower"),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    return federated(asked, [sys.executable, "-m", "peers.flower_run"], silent)


WAYS = {("clients", "Flower"): clients}
