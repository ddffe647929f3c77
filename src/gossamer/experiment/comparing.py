"""Holding a repeat against the results that it repeats: which files say something else, and what that means.

Rounding that differs between processors, or between versions of numpy or torch, reaches the model first, and figures
through it. So where the model came out the same, byte for byte, and something else did not, that file was changed after
the run; and so was a model that differs while every figure of it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from gossamer.bounded import MOST_RECORDS, read_file
from gossamer.errors import DataError
from gossamer.experiment.result import Result
from gossamer.experiment.results_folder import read_summary
from gossamer.privacy import guarantee_card

_METRICS, _MODEL, _SUMMARY = "metrics.jsonl", "model.safetensors", "summary.json"
_LINES = ("metrics.csv", "ledger.jsonl", "private.jsonl", guarantee_card.FILE, "nodes.json")
"""What a result has only in a folder."""


@dataclass(frozen=True)
class Earlier:
    """Results that lie in a folder.

    Attributes
    ----------
    path : Path
        The folder.
    rows : list of dict
        The run's metrics.
    summary : dict
        Its summary.
    model : mapping of str to ndarray, or None
        Its model, if it came to its end.
    """

    path: Path
    rows: list[dict[str, Any]]
    summary: dict[str, Any]
    model: Mapping[str, npt.NDArray[Any]] | None

    @classmethod
    def read(cls, path: Path) -> Earlier:
        """The results in ``path``.

        Raises
        ------
        DataError
            If it is not a run's folder, or not whole.
        """
        summary = read_summary(path)
        ended = summary.get("status") not in ("interrupted", "running")
        return cls(path, _read_rows(path / _METRICS), summary, _read_model(path / _MODEL) if ended else None)

    def check(self, result: Result) -> None:
        """Raise DataError unless a repeat gave the same; of a run that did not end, as far as it came."""
        differing = self._differing(result)
        if not differing:
            return
        named, be = " and ".join(differing), "were" if differing[1:] else "was"
        if self.model is not None and not {_METRICS, _MODEL} <= set(differing):
            same = "figures" if _MODEL in differing else "model"
            raise DataError(
                f"{self.path}: {named} {be} changed since the run, because the repeat gave its {same} again, to the "
                f"last bit, and something else there; publish one of the two at most"
            )
        raise DataError(
            f"{self.path}: the repeat has the same noise and gave other results than {named}, which {be} changed since "
            "the run, or rounding is another on this processor or with this version of numpy or torch; publish one of "
            "the two at most"
        )

    def _differing(self, result: Result) -> list[str]:
        """The files that do not say what the repeat gave."""
        rows = json.loads(json.dumps(result.metrics))
        if self.model is None:
            return [] if _alike(self.rows, rows[: len(self.rows)]) else [_METRICS]
        alike = {
            _METRICS: _alike(self.rows, rows),
            _MODEL: _same_model(self.model, result),
            _SUMMARY: _alike(self.summary, json.loads(json.dumps(result.summary))),
        }
        if result.folder is not None:
            alike.update({name: _bytes(self.path / name) == _bytes(result.folder / name) for name in _LINES})
        return [name for name, same in alike.items() if not same]


def _read_rows(path: Path) -> list[dict[str, Any]]:
    """A row a line; one that a killed process did not finish is none."""
    rows = []
    for number, line in enumerate(_bytes(path, missing=False).split(b"\n")[:-1], 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise _unreadable(path, f"line {number} is no row of metrics")
        rows.append(row)
    return rows


def _read_model(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    try:
        return load_file(path)
    except (OSError, ValueError, SafetensorError) as error:
        raise _unreadable(path, str(error)) from None


def _bytes(path: Path, *, missing: bool = True) -> bytes:
    """The content of a file; nothing where it may be ``missing``."""
    try:
        return read_file(path, MOST_RECORDS)
    except OSError as error:
        if missing and not path.exists():
            return b""
        raise _unreadable(path, error.strerror or str(error)) from None


def _unreadable(path: Path, why: str) -> DataError:
    return DataError(
        f"{path.parent}: the results cannot be read ({path.name}: {why}), so no repeat can be held against them; bring "
        "back what the run wrote"
    )


def _alike(earlier: Any, new: Any) -> bool:
    """The same values; keys that only the earlier ones have were added: measured beside, or by an attack."""
    if isinstance(earlier, dict) and isinstance(new, dict):
        return all(key in earlier and _alike(earlier[key], value) for key, value in new.items())
    if isinstance(earlier, list) and isinstance(new, list):
        return len(earlier) == len(new) and all(map(_alike, earlier, new))
    return bool(earlier == new)


def _same_model(earlier: Mapping[str, npt.NDArray[Any]], result: Result) -> bool:
    return earlier.keys() == result.model.keys() and all(
        part.tobytes() == np.ascontiguousarray(result.model[name]).tobytes() for name, part in earlier.items()
    )
