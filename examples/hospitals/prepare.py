"""Writes hospitals.csv and elsewhere.csv from the table `azprocedure` as a CSV file; the same bytes every time.

    python examples/hospitals/prepare.py azprocedure.csv

README.md beside this file says where the table is from and what the columns are.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
PARTIES = 5
WEEK = 7
COLUMNS = ("hospital", "bypass", "male", "urgent", "over_75", "longer_than_a_week")


def cleaned(row: dict[str, str]) -> tuple[str, ...]:
    """A patient with our names of columns; the source's codes of hospitals carry a float's noise."""
    return (
        f"{float(row['hospital']):.1f}",
        *(str(int(row[name])) for name in ("procedure", "sex", "admit", "age75")),
        str(int(int(row["los"]) > WEEK)),
    )


def write(path: Path, rows: list[tuple[str, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def main() -> None:
    with Path(sys.argv[1]).open(newline="", encoding="utf-8") as file:
        rows = [cleaned(row) for row in csv.DictReader(file)]
    largest = {hospital for hospital, _ in Counter(row[0] for row in rows).most_common(PARTIES)}
    # Sorted, since the source's order has to do with the length of stay.
    write(HERE / "hospitals.csv", sorted(row for row in rows if row[0] in largest))
    write(HERE / "elsewhere.csv", sorted(row for row in rows if row[0] not in largest))


if __name__ == "__main__":
    main()
