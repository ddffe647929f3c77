"""A run that another process starts, resumes and kills; it makes checkpoints for half of its time."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gossamer as gs
from gossamer.errors import RunWarning
from gossamer.experiment.results.results_folder import CHECKPOINT
from gossamer.experiment.runs import checkpoints

SECRET = gs.NoiseSecret(bytes(range(16)))


def spec(updates: int) -> dict[str, Any]:
    """Private gossip over links that lose messages, with nodes that come and go, and a clip that moves."""
    return {
        "dataset": "digits",
        "algorithm": {"name": "gossip", "nodes": 6, "batch_size": 32, "updates_per_node": updates},
        "privacy": {"clip": {"policy": "quantile"}, "noise_multiplier": 4.0},
        "speeds": {"name": "lognormal"},
        "links": {"loss": 0.1, "jitter": 0.2},
        "faults": {"availability": {"name": "day_and_night", "day": 40.0, "there": 0.8}},
        "evaluation": {"every_updates": 50},
    }


def go(updates: int, out: Path) -> None:
    """Resume the run in a folder, or begin it, and let it end."""
    checkpoints.SHARE = 0.5
    trace = out.with_suffix(".trace")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RunWarning)
        if (out / CHECKPOINT).exists():
            gs.resume_run(out, trace=trace, checkpoint=0)
        else:
            gs.run(spec(updates), out, trace=trace, secret=SECRET, checkpoint=0)
