"""Made-up tables whose target is a number far from 0: pressures of patients, prices of flats, hours of machines.

Each is drawn as somebody's own could be: owners that differ, texts beside numbers, some values outside of what their
user declares, and noise that no model can tell. Nothing of them is real.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

Row = dict[str, str]


@dataclass(frozen=True)
class Made:
    """A table, and what its user declares of it without a look at it.

    Attributes
    ----------
    target : str
        Its column.
    ranges : mapping of str to (float, float)
        Of the numbers, the target's among them.
    categories : mapping of str to tuple of str
        Of the texts.
    draw : callable
        A row, by a generator and the number of an owner.
    owners : tuple of str
        Those of the column ``owner``; none if all rows are one party's.
    """

    target: str
    ranges: Mapping[str, tuple[float, float]]
    categories: Mapping[str, tuple[str, ...]]
    draw: Callable[[np.random.Generator, int], Row]
    owners: tuple[str, ...] = ()

    def rows(self, seed: int, count: int) -> list[Row]:
        """So many rows, each of an owner; the first owner has most."""
        generator = np.random.default_rng(seed)
        sizes = np.linspace(1.6, 0.6, max(1, len(self.owners)))
        found = []
        for _ in range(count):
            owner = int(generator.choice(len(sizes), p=sizes / sizes.sum()))
            row = self.draw(generator, owner)
            found.append({"owner": self.owners[owner], **row} if self.owners else row)
        return found

    def write(self, path: Path, seed: int, count: int) -> None:
        """Write such rows as CSV."""
        rows = self.rows(seed, count)
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)

    def flags(self, name: str) -> list[str]:
        """Arguments of ``gossamer new`` for the table."""
        flags = ["new", name, "--data", f"{name}.csv", "--target", self.target, "--regression"]
        flags += ["--range", *(f"{column}={low:g}..{high:g}" for column, (low, high) in self.ranges.items())]
        if self.categories:
            flags += ["--categories", *(f"{column}={','.join(texts)}" for column, texts in self.categories.items())]
        return flags + (["--owner", "owner"] if self.owners else [])


def _pressure(generator: np.random.Generator, owner: int) -> Row:
    """Systolic pressure of adults, in mmHg: older, heavier and smoking ones have more."""
    age = np.clip(generator.normal(50 + 2 * owner, 16), 18, 95)
    weight = np.clip(generator.normal(77, 14), 40, 160)
    sex = generator.choice(["female", "male"])
    smoker = generator.random() < 0.25
    sport = np.clip(generator.gamma(2, 1.5), 0, 20)
    mean = 128 + 0.55 * (age - 52) + 0.35 * (weight - 77) + 4 * (sex == "male") + 5 * smoker - 1.2 * (sport - 3)
    return {
        "age": f"{age:.0f}",
        "weight": f"{weight:.1f}",
        "sex": str(sex),
        "smoker": "yes" if smoker else "no",
        "sport": f"{sport:.1f}",
        "pressure": f"{generator.normal(mean, 9):.0f}",
    }


def _price(generator: np.random.Generator, owner: int) -> Row:
    """Price of a flat, in euros: a share of it is in proportion, so dear ones are less certain."""
    area = np.clip(generator.lognormal(4.3, 0.4), 18, 300)
    rooms = max(1, round(area / 28 + generator.normal(0, 0.7)))
    year = generator.integers(1900, 2024)
    place = generator.choice(["centre", "suburb", "country"], p=[0.3, 0.5, 0.2])
    metre = {"centre": 4200.0, "suburb": 3000.0, "country": 1900.0}[str(place)] * (1 + 0.05 * owner)
    price = area * metre * (1 + 0.003 * (year - 1960)) * generator.lognormal(0, 0.15) + 6000 * rooms
    return {
        "area": f"{area:.0f}",
        "rooms": str(rooms),
        "year": str(year),
        "place": str(place),
        "price": f"{price:.0f}",
    }


def _hours(generator: np.random.Generator, owner: int) -> Row:
    """Hours until a machine needs its next repair, few of which are explained by what is known of it."""
    age = generator.uniform(0, 20)
    load = np.clip(generator.beta(4, 2), 0, 1)
    temperature = generator.normal(55, 12)
    vibration = generator.gamma(3, 0.8)
    made_by = generator.choice(["A", "B", "C", "D"])
    offset = {"A": 500, "B": 0, "C": -250, "D": 150}[str(made_by)]
    mean = 3600 - 75 * age - 1100 * (load - 0.66) - 14 * (temperature - 55) - 110 * (vibration - 2.4) + offset
    return {
        "age": f"{age:.1f}",
        "load": f"{load:.2f}",
        "temperature": f"{temperature:.1f}",
        "vibration": f"{vibration:.2f}",
        "made_by": str(made_by),
        "hours": f"{max(0.0, generator.normal(mean, 500)):.0f}",
    }


MADE: Mapping[str, Made] = {
    "pressure": Made(
        "pressure",
        {"age": (20, 90), "weight": (45, 120), "sport": (0, 10), "pressure": (80, 200)},
        {"sex": ("female", "male"), "smoker": ("no", "yes")},
        _pressure,
        ("Birch", "Cedar", "Elm", "Hazel", "Linden", "Maple", "Rowan"),
    ),
    "price": Made(
        "price",
        {"area": (20, 200), "rooms": (1, 7), "year": (1900, 2025), "price": (0, 800_000)},
        {"place": ("centre", "suburb", "country")},
        _price,
        ("north", "south", "west"),
    ),
    "hours": Made(
        "hours",
        {"age": (0, 20), "load": (0, 1), "temperature": (20, 90), "vibration": (0, 8), "hours": (0, 6000)},
        {"made_by": ("A", "B", "C", "D")},
        _hours,
    ),
}
