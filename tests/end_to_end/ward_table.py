"""A made-up table like one's own: seven wards, texts, gaps, columns of very different size; and how it was drawn.

``python -m tests.end_to_end.ward_table`` from the repository's root writes `examples/wards.csv` and
`examples/wards-new.csv` anew, the same bytes each time. No patient of it exists.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROWS = 3000
TARGET, OWNER = "readmitted", "ward"
HEADER = (
    "patient",
    "ward",
    "age",
    "sex",
    "admission",
    "smoker",
    "heart_rate",
    "creatinine",
    "medicines",
    "income",
    "readmitted",
)
WARDS = {
    "Birch": 0.22,
    "Cedar": 0.18,
    "Elm": 0.16,
    "Hazel": 0.14,
    "Linden": 0.12,
    "Maple": 0.10,
    "Rowan": 0.08,
}
"""Names of wards, and the share of patients in each."""
RANGES = {
    "age": (20, 90),
    "heart_rate": (50, 120),
    "creatinine": (40, 180),
    "medicines": (0, 12),
    "income": (0, 60000),
}
"""Ranges of most adults in hospital, as somebody would declare them who has not seen the table."""
CATEGORIES = {"sex": ("female", "male"), "admission": ("planned", "emergency", "transfer")}
MISSING = {"creatinine": 90.0, "income": 30000.0}
"""Columns with gaps, and what a reader would take in their place."""
LABELS = ("no", "yes")

Row = dict[str, str]


def ward_table(seed: int, rows: int = ROWS) -> Iterator[Row]:
    """Patients, a row each: who is readmitted follows a logistic model of all columns but the income and the name."""
    generator = np.random.default_rng(seed)
    names = list(WARDS)
    for number in range(rows):
        ward = str(generator.choice(names, p=list(WARDS.values())))
        # Wards differ: the later ones have older patients.
        age = float(np.clip(generator.normal(55 + 2.5 * names.index(ward), 17), 18, 100).round())
        sex = str(generator.choice(CATEGORIES["sex"]))
        admission = str(generator.choice(CATEGORIES["admission"], p=[0.45, 0.4, 0.15]))
        smoker = generator.random() < 0.3
        rate = float(np.clip(generator.normal(84 + 8 * (admission == "emergency"), 15), 40, 160).round())
        creatinine = float(np.clip(math.exp(generator.normal(4.5 + 0.004 * (age - 60), 0.4)), 30, 300).round(1))
        medicines = int(min(generator.poisson(3 + max(age - 40, 0) / 12), 20))
        income = float(np.clip(math.exp(generator.normal(10.2, 0.5)), 4000, 100000).round(-2))
        logit = (
            -0.75
            + 1.3 * (age - 60) / 17
            + {"planned": -1.1, "emergency": 0.9, "transfer": 0.3}[admission]
            + 0.9 * smoker
            + 0.5 * (rate - 87) / 15
            + 0.6 * (creatinine - 95) / 40
            + 0.5 * (medicines - 5) / 2.5
            + 0.2 * (sex == "male")
        )
        readmitted = generator.random() < 1 / (1 + math.exp(-logit))
        cells = (
            f"P{number + 1:04d}",
            ward,
            f"{age:g}",
            sex,
            admission,
            "yes" if smoker else "no",
            f"{rate:g}",
            "" if generator.random() < 0.06 else f"{creatinine:g}",
            str(medicines),
            "" if generator.random() < 0.04 else f"{income:.0f}",
            LABELS[readmitted],
        )
        yield dict(zip(HEADER, cells, strict=True))


def write(path: Path, rows: Iterator[Row], without: tuple[str, ...] = ()) -> None:
    """Write rows as CSV with a header; columns ``without`` are left out."""
    columns = [name for name in HEADER if name not in without]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def main(examples: Path = EXAMPLES) -> None:
    """Write the examples anew."""
    write(examples / "wards.csv", ward_table(17))
    write(examples / "wards-new.csv", ward_table(34, 12), without=(TARGET,))


if __name__ == "__main__":
    main()
