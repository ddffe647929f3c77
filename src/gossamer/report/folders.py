"""Reading the results folder of a run back."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gossamer.errors import SpecError, did_you_mean

Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """What a run left.

    Attributes
    ----------
    path : Path
        The folder.
    spec, summary : dict
        ``spec.yaml`` and ``summary.json``.
    rows : list of dict
        ``metrics.jsonl``: a row an evaluation.
    ledger : list of dict
        ``ledger.jsonl``: a row for each kind of release of each node.
    """

    path: Path
    spec: dict[str, Any]
    summary: dict[str, Any]
    rows: list[Row]
    ledger: list[Row]

    def column(self, name: str) -> list[float]:
        """One number of every row.

        Parameters
        ----------
        name : str
            A key of the rows, or ``epochs``: how often a node has gone through its own examples, in expectation and
            on average over nodes.

        Raises
        ------
        SpecError
            If rows have no such number.
        """
        if name == "epochs":
            return self._epochs()
        if not all(isinstance(row.get(name), (int, float)) for row in self.rows):
            numbers = [key for key, value in self.rows[0].items() if isinstance(value, (int, float))]
            raise SpecError(f"{self.path} has no column {name!r}{did_you_mean(name, [*numbers, 'epochs'])}")
        return [float(row[name]) for row in self.rows]

    def _epochs(self) -> list[float]:
        passes: dict[str, float] = {}
        for line in self.ledger:
            passes[line["node"]] = passes.get(line["node"], 0.0) + line["releases"] * _rate(line)
        updates = self.column("updates")
        # All nodes make updates at a steady pace, so epochs are in proportion to updates.
        scale = statistics.fmean(passes.values()) / updates[-1] if passes and any(updates) else 0.0
        return [scale * count for count in updates]


def _rate(line: Row) -> float:
    """Share of a node's examples in one of its batches, in expectation."""
    return float(line["probability"] if "probability" in line else line["batch_size"] / line["dataset_size"])


def read_results(path: str | Path) -> Results:
    """Read a results folder.

    Raises
    ------
    SpecError
        If the folder holds no results of a run, or a file in it is damaged.
    """
    folder = Path(path)
    try:
        return Results(
            folder,
            yaml.safe_load((folder / "spec.yaml").read_text(encoding="utf-8")),
            json.loads((folder / "summary.json").read_text(encoding="utf-8")),
            _lines(folder / "metrics.jsonl"),
            _lines(folder / "ledger.jsonl"),
        )
    except OSError as error:
        raise SpecError(
            f"{folder} is no results folder: {Path(error.filename).name}: {error.strerror}; name the --out of a run"
        ) from None
    except (ValueError, yaml.YAMLError) as error:
        raise SpecError(f"{folder}: a file of the results is damaged ({error}); run the spec again") from None


def _lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
