"""What the four papers' core claims deserve: slow links, more nodes, topologies at one epsilon, and real seconds."""

from __future__ import annotations

from pathlib import Path

from experiments.claims.figures import draw
from experiments.provenance import EnoughError, FirstUpdates
from experiments.stored import Record
from experiments.sweeps import Paper, Variant

STUDIES = ("slow-links", "speed-up", "topologies", "wall-clock")


def over_processes(study: str, variant: Variant, folder: Path | None, first: FirstUpdates) -> Record:
    """A federation of processes, over wall time; no two begin alike, so nothing is made again of one."""
    if first.alone:
        raise EnoughError
    from experiments.claims.wall_clock import timed  # a broker and keys are needed for this study alone

    return timed(variant.experiment)


PAPER = Paper(Path(__file__).resolve().parent, STUDIES, draw, runners={"wall-clock": over_processes})
