"""A study's figure as files: a picture for the page, the same for print, and its numbers.

The picture (PNG) is part of the repository; the others (PDF and CSV) are made beside it whenever it is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from experiments.stored import Record
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt

NOTE = "Noise is reproducible, so these runs guarantee nothing: an epsilon is that of the same run with a noise secret."
"""Below figures that name an epsilon."""
_COLOURS = 128
_DPI = 100


def save(figure: Any, records: Sequence[Record], path: Path) -> None:
    """Write ``figure`` as ``path`` (PNG) and as a PDF, and what it shows as a CSV; and close it."""
    figure.savefig(path, dpi=_DPI)
    figure.savefig(path.with_suffix(".pdf"), metadata={"CreationDate": None})
    plt.close(figure)
    with Image.open(path) as image:  # a palette is enough, and a third of the size
        # Covering all colours: by their frequency, those of thin lines and small markers become others.
        few = image.convert("RGB").quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE)
        few.save(path, optimize=True)
    write_table(records, path.with_suffix(".csv"))


def write_table(records: Sequence[Record], path: Path) -> None:
    """Write a line for each evaluation of each record, or one for a record that has none."""
    rows = [row for record in records for row in _rows(record)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, columns)
        table.writeheader()
        table.writerows(rows)


def _rows(record: Record) -> Iterator[dict[str, Any]]:
    plain = {key: value for key, value in record.items() if key not in ("made", "curve")}
    shared = {key: value for key, value in plain.items() if not isinstance(value, list | dict)}
    shared |= {
        f"{key}.{part}": one for key, value in plain.items() if isinstance(value, dict) for part, one in value.items()
    }
    for row in record.get("curve", [{}]):
        yield {**shared, **row}
