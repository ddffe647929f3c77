"""MAPA's figures, and what its stages are worth where a guarantee is proved: run, draw and check them.

    python experiments/mapa/run.py [STUDY ...] [--out DIR] [--full] [--check] [--resume] [--redraw] [--jobs N]

A study is a folder beside this file: `sweep.yaml` holds one spec and the axes along which it is varied, `expected.json`
what must come out, `figure.png` and `results.json` what did. ``--full`` is the paper's size.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from figures import draw  # noqa: E402
from sweeps import KEPT, Paper, main  # noqa: E402

STUDIES = ("proved-cnn",)
PAPER = Paper(HERE, STUDIES, draw, kept=(*KEPT, "mean_model_test_loss", "gradient_norm"))

if __name__ == "__main__":
    sys.exit(main(PAPER, str(__doc__)))
