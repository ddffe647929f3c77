"""How often intervals of private evaluation hold the truth of scores that the grid of bins does not know.

    python benchmarks/score_grid.py [SEEDS]

Writes the table of docs/privacy/private-evaluation.md, at epsilon 0.5, delta 1e-5 and five parties. Scores are normal,
and their truth is that of the law itself, without bins. Counts of cells are drawn by their exact chances.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from gossamer.objectives.noisy_figures import noisy_figures
from gossamer.objectives.score_histogram import BINS, SIZE, ScoreCounts, cells, measured, middle

DEVIATION = 7.032 * 5**0.5
"""Noise of five parties: the analytic Gaussian mechanism's multiplier, of rows that come or go."""
CASES = [
    # middle of log odds, deviation of scores, slope that is right for them, rows
    (-2.4, 0.25, 3.0, 4_000),
    (-2.4, 0.25, 3.0, 20_000),
    (-4.6, 1.0, 1.0, 20_000),
    (-5.4, 1.0, 1.0, 40_000),
    (-6.7, 1.0, 1.0, 100_000),
    (0.0, 1.0, 1.0, 4_000),
    (-2.44, 1.5, 1.0, 4_000),
    (-2.44, 1.5, 1.0, 40_000),
]


def line(centre: float, spread: float, slope: float, rows: int, seeds: int) -> str:
    """Return a row of the table: without a declared prevalence, and with it."""
    scores = np.linspace(centre - 9 * spread, centre + 9 * spread, 200_001)
    weight = np.exp(-(((scores - centre) / spread) ** 2) / 2)
    weight /= weight.sum()
    likely = expit(centre + slope * (scores - centre))
    one, zero = weight * likely, weight * (1 - likely)
    share = float(one.sum())
    area = float(one @ (np.cumsum(zero) - zero / 2)) / (share * (1 - share))
    off = float(brentq(lambda shift: float((expit(scores + shift) - likely) @ weight), -5, 5))
    told = []
    for prevalence in (None, share):
        around, rng = middle(prevalence), np.random.default_rng(1)
        both = [cells(scores, np.full(len(scores), outcome), around) for outcome in (0, 1)]
        chances = sum(np.bincount(cell, part, 2 * BINS) for cell, part in zip(both, (zero, one), strict=True))
        areas, hits, offs = [], [], []
        for _ in range(seeds):
            drawn = np.repeat(np.arange(2 * BINS), rng.multinomial(rows, chances / chances.sum()))
            noisy = measured(drawn) + rng.normal(size=SIZE) * DEVIATION
            found = noisy_figures(ScoreCounts.of(noisy, DEVIATION, rows, around))
            ranks, shift = found["auroc"], found["calibration_intercept"]
            areas.append((0.5 if ranks.value is None else ranks.value) - area)
            hits.append(ranks.low <= area <= ranks.high)  # type: ignore[operator]
            offs.append(shift.low <= off <= shift.high)  # type: ignore[operator]
        told += [f"{np.mean(areas):.3f}", f"{np.mean(hits):.0%}", f"{np.mean(offs):.0%}"]
    columns = [f"{share:.2g}", f"{spread:g} (area {area:.2f})", f"{rows:,}", *told]
    return f"| {' | '.join(columns)} |"


def main() -> None:
    """Print the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for case in CASES:
        print(line(*case, seeds), flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
