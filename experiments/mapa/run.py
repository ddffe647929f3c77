"""MAPA's figures, and what its stages are worth where a guarantee is proved: run, draw and check them.

    python experiments/mapa/run.py [STUDY ...] [--out DIR] [--full] [--check] [--resume] [--redraw] [--jobs N]

A study is a folder beside this file: `sweep.yaml` holds one spec and the axes along which it is varied, `expected.json`
what must come out, `figure.png` and `results.json` what did. ``--full`` is the paper's size.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from figures import draw  # noqa: E402
from sweeps import KEPT, Paper, main  # noqa: E402

STUDIES = ("figure-5", "figure-6", "figure-7", "figure-9", "proved-linear", "proved-cnn")


def gradient_norm(prepared: Any, model: Any) -> dict[str, float]:
    """Of the mean gradient over all training examples; the observer's figure, which no node has."""
    train, objective = prepared.dataset.train, prepared.objective
    found = objective.clipped_gradients(model[None], train, [np.arange(len(train))], math.inf)
    return {"gradient_norm": float(np.linalg.norm(found.sums[0] / len(train) + objective.l2 * model))}


PAPER = Paper(
    HERE,
    STUDIES,
    draw,
    kept=(*KEPT, "mean_model_test_loss", "gradient_norm"),
    measures={"figure-5": gradient_norm},
)

if __name__ == "__main__":
    sys.exit(main(PAPER, str(__doc__)))
