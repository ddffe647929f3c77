"""How often intervals of private evaluation hold the truth of scores that the grid of bins does not know, and errors.

    python benchmarks/score_grid.py [SEEDS]

Writes two tables of docs/privacy/private-evaluation.md, at epsilon 0.5, delta 1e-5 and five parties. Scores are normal.
The truth of the first is that of the law itself, without bins, and counts of cells are drawn by their exact chances.
Errors of the second are against the exact figures of the same rows, and beside them stands the least that one number
without bias would err by, with Gaussian noise for the whole epsilon: it takes the other outcome's scores and the number
of rows with the rarer one as known, so that a row moves it by half of one over that number.
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from gossamer.objectives.figures import ranking, recalibrated
from gossamer.objectives.noisy_figures import noisy_figures
from gossamer.objectives.score_histogram import BINS, SIZE, ScoreCounts, cells, measured, middle

MULTIPLIER = 7.032
"""The analytic Gaussian mechanism's, of rows that come or go."""
DEVIATION = MULTIPLIER * 5**0.5
"""Noise of five parties."""
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


SHARES, ROWS = (0.08, 0.2, 0.3, 0.5), 4_000
SUMS = {"a histogram each": 5.0, "their sum, `honest: 0.8`": 5 / 4, "their sum, `honest: 1`": 1.0}
"""Variance of what parties release together, of one's alone."""


def errors(share: float, released: str, rows: int, seeds: int) -> str:
    """Return a row of the table of errors, of scores with a deviation of 1 and a declared prevalence."""
    grid = np.linspace(-9, 9, 20_001)
    weight = np.exp(-(grid**2) / 2) / np.exp(-(grid**2) / 2).sum()
    centre = float(brentq(lambda middle: float(expit(grid + middle) @ weight) - share, -15, 15))
    rng, around, deviation = np.random.default_rng(2), middle(share), MULTIPLIER * SUMS[released] ** 0.5
    off = np.empty((seeds, 2))
    for seed in range(seeds):
        scores = rng.normal(size=rows) + centre
        outcomes = rng.random(rows) < expit(scores)
        exact = (
            ranking(scores, outcomes)(np.ones(rows))["auroc"],
            recalibrated(expit(scores), outcomes, np.ones(rows))[0],
        )
        noisy = measured(cells(scores, outcomes, around)) + rng.normal(size=SIZE) * deviation
        found = noisy_figures(ScoreCounts.of(noisy, deviation, rows, around))
        for which, name in enumerate(("auroc", "calibration_intercept")):
            value = found[name].value
            off[seed, which] = np.inf if value is None else abs(value - float(exact[which]))
    least = 1.96 * deviation / (2 * min(share, 1 - share) * rows)
    columns = [f"{share:.0%}", f"{rows:,}", released]
    for which, near in enumerate((0.02, 0.1)):
        columns += [f"{(off[:, which] <= near).mean():.0%}", f"{np.quantile(off[:, which], 0.95):.3f}"]
    return f"| {' | '.join(columns)} | {least:.3f} |"


def main() -> None:
    """Print the tables."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for case in CASES:
        print(line(*case, seeds), flush=True)  # type: ignore[arg-type]
    for released in SUMS:
        for share in SHARES:
            print(errors(share, released, ROWS, seeds), flush=True)
    print(errors(SHARES[0], next(iter(SUMS)), 10 * ROWS, seeds), flush=True)


if __name__ == "__main__":
    main()
