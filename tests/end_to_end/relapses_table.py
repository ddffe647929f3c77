"""A made-up table of times to an event: a row for each person and month at risk; and how it was drawn.

``python -m tests.end_to_end.relapses_table`` from the repository's root writes `examples/relapses.csv` anew, the same
bytes each time. No person of it exists.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PERSONS, MONTHS, LEFT = 1200, 6, 0.03
HEADER = ("person", "month", "age", "treated", "relapse")


def months(seed: int = 17) -> Iterator[tuple[str, ...]]:
    """Months of a person until the relapse, the end of the study, or the one after which nobody knows more."""
    generator = np.random.default_rng(seed)
    for person in range(PERSONS):
        age, treated = int(generator.integers(20, 81)), int(generator.integers(0, 2))
        for month in range(1, MONTHS + 1):
            logit = -1.8 - 0.25 * (month - 1) + 0.03 * (age - 50) - 0.9 * treated
            relapse = generator.random() < 1 / (1 + math.exp(-logit))
            yield (f"R{person:04d}", str(month), str(age), str(treated), "yes" if relapse else "no")
            if relapse or generator.random() < LEFT:
                break


def main(examples: Path = EXAMPLES) -> None:
    """Write the example anew."""
    with (examples / "relapses.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows(months())


if __name__ == "__main__":
    main()
