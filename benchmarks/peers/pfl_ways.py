"""Client updates by pfl-research, on as many processes as the job has threads."""

from __future__ import annotations

import sys

from peers.apart import federated
from peers.measured import Asked, Measured

PACKAGES = ("torch", "numpy", "pfl")


def command(asked: Asked) -> list[str]:
    """How its run is started: by itself, or by ``torchrun``."""
    many = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(asked.job.threads)]
    return [sys.executable, *(many if asked.job.threads > 1 else []), "-m", "peers.pfl_run"]


def clients(asked: Asked) -> Measured:
    """Rounds of a run of its own."""
    return federated(asked, command(asked), {"PFL_PYTORCH_DEVICE": "cpu"})


WAYS = {("clients", "pfl-research"): clients}
