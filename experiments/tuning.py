"""Settings that are tuned: for each place of a sweep by itself, on seeds that are not reported.

In `sweep.yaml`:

    tune: {setting: algorithm.learning_rate, among: [0.25, 0.5, 1.0, 2.0], seeds: [5, 6, 7], by: final_accuracy}

The value whose runs have the largest median is taken, of equal ones the first; `tuning.json` has all of them. The axis
``seed`` does not count as a place, and neither do those of ``but_not``. With ``where: {axis: [place, ...]}`` it is
tuned at these places alone; elsewhere the spec says it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.stored import Record, Stored


@dataclass(frozen=True)
class Tuning:
    """What is tuned in a study.

    Attributes
    ----------
    setting : str
        Key of the spec.
    among : list of float
        Its values, in order.
    seeds : list of int
        None of them is reported.
    by : str
        The quantity, of `experiments.checks`, that is to be largest.
    but_not : list of str
        Axes along which the setting is the same: that of their first place.
    where : dict of str to list of str
        The places on some axes at which it is tuned; at all where nothing is said.
    """

    setting: str
    among: Sequence[float]
    seeds: Sequence[int]
    by: str = "final_accuracy"
    but_not: Sequence[str] = ()
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, sweep: Mapping[str, Any]) -> Tuning | None:
        """That of a sweep, if it has one."""
        return cls(**sweep["tune"]) if "tune" in sweep else None

    def covers(self, place: Mapping[str, str]) -> bool:
        """Whether the setting is tuned there."""
        return all(place[axis] in places for axis, places in self.where.items())

    def place(self, place: Mapping[str, str]) -> str:
        """Name of what is tuned together."""
        return "/".join(at for axis, at in place.items() if axis not in ("seed", *self.but_not))

    def trials(self) -> Iterator[tuple[float, int]]:
        """Each value with each seed."""
        for value in self.among:
            for seed in self.seeds:
                yield value, seed

    def setting_of(self, value: float) -> str:
        """An override."""
        return f"{self.setting}={value}"

    def chosen(self, path: Path) -> dict[str, float]:
        """The best value at each place whose trials are all in the file ``path``."""
        found: dict[str, dict[float, list[float]]] = {}
        for record in Stored.read(path).records:
            found.setdefault(record["tuned"], {}).setdefault(record["value"], []).append(record["found"])
        complete = {at: values for at, values in found.items() if all(self._tried(values, one) for one in self.among)}
        return {at: max(self.among, key=lambda one: statistics.median(complete[at][one])) for at in complete}

    def _tried(self, values: Mapping[float, Sequence[float]], value: float) -> bool:
        return len(values.get(value, ())) >= len(self.seeds)

    def at_an_edge(self, chosen: Mapping[str, float]) -> list[str]:
        """Places whose best value is the first or last that was tried, so that a better one may lie beyond."""
        return [at for at, value in chosen.items() if value in (self.among[0], self.among[-1])]


def trial(record: Record, tuned: str, value: float, found: float) -> Record:
    """What is kept of a run that tunes."""
    return {"name": record["name"], "tuned": tuned, "value": value, "found": found, "made": record["made"]}
