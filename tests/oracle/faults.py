"""The fault lab: what each of a few seeds does to small runs, as its hosts had it on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from tests.oracle.called import Hashes, sha256
from tests.oracle.handles import fault_runs

SEEDS = range(24)

_UNITS = {"name": "graph_federated"}
_LEVEL = {"clip": 1.0, "noise_multiplier": 1.0}
_NOISY = {"clip": 1.0, "standard_deviation": 1.0}
FAULTS: dict[str, dict[str, Any]] = {
    "gossip": {"algorithm": {"name": "gossip"}, "privacy": _LEVEL},
    "gossip-quantile": {"algorithm": {"name": "gossip"}, "privacy": {**_LEVEL, "clip": {"policy": "quantile"}}},
    "gossip-pure": {"algorithm": {"name": "gossip"}, "privacy": {"mechanism": "l2_laplace", "epsilon": 1.0}},
    "allreduce": {"algorithm": {"name": "allreduce", "timeout": 3.0}, "privacy": _LEVEL},
    "audp": {"algorithm": {"name": "audp"}, "privacy": _LEVEL},
    "asgd": {"algorithm": {"name": "asgd"}, "privacy": "none"},
    "mapa": {"algorithm": {"name": "mapa"}, "privacy": {"noise_multiplier": 1.0}},
    "increasing": {"algorithm": {"name": "increasing"}, "privacy": _LEVEL},
    "increasing-clipped-sum": {"algorithm": {"name": "increasing", "round_update": "clipped_sum"}, "privacy": _LEVEL},
    "graph": {"algorithm": {**_UNITS, "temporal": "independent"}, "privacy": _NOISY},
    "graph-walk": {"algorithm": {**_UNITS, "temporal": "random_walk"}, "privacy": {**_NOISY, "mechanism": "laplace"}},
    "graph-random": {"algorithm": {**_UNITS, "noise": "random"}, "privacy": _NOISY},
    "graph-none": {"algorithm": _UNITS, "privacy": "none"},
    "graph-secure": {"algorithm": {**_UNITS, "masking": "secure"}, "privacy": {**_NOISY, "agent_noise": 5.0}},
}


def run(name: str, keep: Path | None) -> Hashes:
    """For each seed a hash of every durable step of every host, of the faults as they happened, and of what failed."""
    found = {}
    for seed, (story, steps) in zip(SEEDS, fault_runs({"dataset": "digits", **FAULTS[name]}, SEEDS)):
        digest = hashlib.sha256()
        for step in steps:
            digest.update(len(step).to_bytes(8, "little") + step)
        text = "\n".join(story)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            (keep / f"{seed}.txt").write_text(text)
        found[f"seed {seed}, {len(steps)} steps"] = digest.hexdigest()
        found[f"seed {seed}, story"] = sha256(text.encode())
    return found
