"""A small made-up table with all kinds of columns: unscaled numbers, a text, truth values, and cells that are empty."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

COLUMNS: dict[str, Any] = {
    "age": [0, 100],
    "income": {"mean": 30_000, "deviation": 12_000},
    "sex": ["female", "male"],
    "smoker": "boolean",
    "stay": {"range": [0, 60], "missing": 5},
    "ward_type": {"categories": ["a", "b", "c"], "missing": "b"},
}
"""Declared as a spec may: the order is not that of the file."""
INPUTS = ["age", "income", "sex=female", "sex=male", "smoker", "stay", "ward_type=a", "ward_type=b", "ward_type=c"]
"""Names of the features."""


def rows(count: int = 200, seed: int = 0) -> list[dict[str, Any]]:
    """Rows with their target ``ill`` and a real one, ``cost``; some values are outside of the declared ranges."""
    generator = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        row: dict[str, Any] = {
            "ward_type": str(generator.choice(["a", "b", "c", ""])),
            "stay": "" if generator.random() < 0.1 else f"{generator.uniform(0, 70):.1f}",
            "smoker": str(generator.choice(["yes", "no", "TRUE", "0"])),
            "sex": str(generator.choice(["female", "male"])),
            "income": f"{generator.normal(30_000, 12_000):.2f}",
            "age": f"{generator.uniform(5, 105):.1f}",
        }
        risk = float(row["age"]) / 50 + (row["sex"] == "male") + truth(row["smoker"]) + generator.normal() / 3
        found.append({**row, "ill": "yes" if risk > 2 else "no", "cost": f"{1000 * risk:.1f}"})
    return found


def truth(cell: str) -> float:
    """A truth value as a number."""
    return float(cell in ("yes", "TRUE"))


def write(path: Path, table: list[dict[str, Any]], without: tuple[str, ...] = ()) -> Path:
    """Write rows as a CSV file."""
    names = [name for name in table[0] if name not in without]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(table)
    return path


def dataset(path: Path, **more: Any) -> dict[str, Any]:
    """The section of a spec that reads the table."""
    return {"name": "wards", "path": str(path), "target": "ill", "labels": ["no", "yes"], "columns": COLUMNS, **more}


def inputs(table: list[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers for an export, in the order of `INPUTS`: an empty number is NaN, an empty text its declared filling."""
    return np.array(
        [
            [
                float(row["age"]),
                float(row["income"]),
                *(float(row["sex"] == text) for text in ("female", "male")),
                truth(row["smoker"]),
                float(row["stay"] or "nan"),
                *(float((row["ward_type"] or "b") == text) for text in ("a", "b", "c")),
            ]
            for row in table
        ]
    )


def cells(table: list[dict[str, Any]]) -> np.ndarray[Any, np.dtype[np.object_]]:
    """Cells for scikit-learn, in the declared order of the columns: texts as texts, and NaN for what is empty."""
    return np.array(
        [
            [
                float(row["age"]),
                float(row["income"]),
                row["sex"],
                truth(row["smoker"]),
                float(row["stay"] or "nan"),
                row["ward_type"] or np.nan,
            ]
            for row in table
        ],
        object,
    )
