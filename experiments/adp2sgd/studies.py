"""Table 1 and Figs. 2 to 4 of A(DP)2SGD."""

from __future__ import annotations

from pathlib import Path

from experiments.adp2sgd.figures import draw
from experiments.sweeps import Paper

PAPER = Paper(Path(__file__).resolve().parent, ("table-1", "figure-2", "figure-3", "figure-4", "stragglers"), draw)
