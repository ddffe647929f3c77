"""A made-up table with persons: visits of patients who come up to three times; and how it was drawn.

``python -m tests.end_to_end.visits_table`` from the repository's root writes `examples/visits.csv` anew, the same bytes
each time. No patient of it exists.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PATIENTS, MOST = 700, 3
HEADER = ("patient", "age", "pain", "weeks", "treated", "came_back")


def visits(seed: int = 41) -> Iterator[tuple[str, ...]]:
    """Visits, a row each: who comes back follows a logistic model of all columns but the name."""
    generator = np.random.default_rng(seed)
    for patient in range(PATIENTS):
        age = float(np.clip(generator.normal(50, 15), 18, 90).round())
        for _ in range(int(generator.integers(1, MOST + 1))):
            pain = int(generator.integers(0, 11))
            weeks = float(np.clip(generator.exponential(5), 0, 26).round(1))
            treated = generator.random() < 0.5
            logit = (age - 50) / 12 + 0.5 * (pain - 5) - 1.2 * (treated - 0.5) + 0.1 * (weeks - 5)
            back = generator.random() < 1 / (1 + math.exp(-logit))
            yield (f"N{patient:03d}", f"{age:g}", str(pain), f"{weeks:g}", str(int(treated)), str(int(back)))


def main(examples: Path = EXAMPLES) -> None:
    """Write the example anew."""
    with (examples / "visits.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(visits())


if __name__ == "__main__":
    main()
