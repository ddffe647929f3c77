"""Results files: the records of a study, and the machines that made them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DIGITS = 5
"""Significant digits of the numbers that are kept."""

Record = dict[str, Any]


class ResultsError(Exception):
    """A results file that cannot be read."""


@dataclass(frozen=True)
class Stored:
    """Records of a study.

    Attributes
    ----------
    records : list of Record
        Each with its place on the axes; and, unless it is older than that, with ``made``: what made it.
    machines : dict of str to dict
        Facts of the machines that these name.
    """

    records: list[Record] = field(default_factory=list)
    machines: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Stored:
        """Those of a file; none where there is none.

        Raises
        ------
        ResultsError
            If it holds something else.
        """
        if not path.exists():
            return cls()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(list(content["records"]), dict(content["machines"]))
        except (ValueError, KeyError, TypeError):
            raise ResultsError(f"{path}: expected records and machines, found something else; remove it") from None

    def write(self, path: Path) -> None:
        """A line a record; of the machines those that records name."""
        named = {record["made"]["machine"] for record in self.records if "made" in record}
        machines = json.dumps({name: self.machines[name] for name in sorted(named)})
        lines = ",\n".join(json.dumps(record) for record in self.records)
        whole = f'{{"machines": {machines},\n"records": [\n{lines}\n]}}\n'
        beside = path.with_suffix(".part")
        beside.write_text(whole, encoding="utf-8")
        beside.replace(path)


def figures(record: Record) -> Record:
    """A record without what made it."""
    return {key: value for key, value in record.items() if key != "made"}


def is_measured(record: Record) -> bool:
    """Whether it is of real time, which never passes twice alike."""
    return any("wall_seconds" in row for row in record.get("curve", []))


def changed(before: Iterable[Record], after: Sequence[Record]) -> list[str]:
    """Names of the records whose figures are not what they were, but for those of real time."""
    old = {record["name"]: figures(record) for record in before if not is_measured(record)}
    return [new["name"] for new in after if new["name"] in old and figures(new) != old[new["name"]]]


def rounded(value: Any) -> Any:
    """``value`` with numbers of few digits in it."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, (list, tuple)) else value
