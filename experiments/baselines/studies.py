"""What asynchronous algorithms are measured against, at the same proved epsilon."""

from __future__ import annotations

from pathlib import Path

from experiments.baselines.figures import draw
from experiments.stored import Record
from experiments.sweeps import KEPT, Paper


def condense(study: str, record: Record) -> Record:
    """The end of a run, which is all that is compared, and what it sent."""
    last = record["curve"][-1]
    return {**record, "curve": [last], "bytes": last["bytes"]}


PAPER = Paper(Path(__file__).resolve().parent, ("equal-epsilon",), draw, kept=(*KEPT, "bytes"), condense=condense)
