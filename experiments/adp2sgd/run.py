"""Table 1 and Figs. 2 to 4 of A(DP)2SGD: run them, draw them, and check what is expected of them.

    python experiments/adp2sgd/run.py [STUDY ...] [--out DIR] [--full] [--check] [--resume] [--redraw] [--jobs N]

A study is a folder beside this file: `sweep.yaml` holds one spec and the axes along which it is varied, `expected.json`
what must come out, `figure.png` and `results.json` what did. ``--full`` is the paper's size of Table 1, which takes a
GPU or days, and changes nothing about the figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from figures import draw  # noqa: E402
from sweeps import Paper, main  # noqa: E402

PAPER = Paper(HERE, ("table-1", "figure-2", "figure-3", "figure-4"), draw)

if __name__ == "__main__":
    sys.exit(main(PAPER, str(__doc__)))
