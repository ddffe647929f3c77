"""Settings that are tuned: for each place of a sweep by itself, on seeds that are not reported.

In `sweep.yaml`:

    tune: {setting: algorithm.learning_rate, among: [0.25, 0.5, 1.0, 2.0], seeds: [5, 6, 7], by: final_accuracy}

The value whose runs have the largest median is taken, of equal ones the first; `tuning.json` has all of them. The axis
``seed`` does not count as a place, and neither do those of ``but_not``: a list, or ``{axis: {axis: place}}``, by
which each does not count at such places alone. Where the last of ``among`` is the best, those of ``beyond`` are tried
as well, one after the other, as long as the last one is the best; where the first is, so are those of ``below``, of
which each is less than the one before. With ``where: {axis: [place, ...]}`` it is tuned at these places alone;
elsewhere the spec says it. A study with
``tuned_in: table-1`` has what was tuned in another one, at the places of the same names. With ``also: [override, ...]``
the runs that tune differ in more than the setting and the seed, such as in how often they are looked at.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from experiments.checks import lies_at
from experiments.stored import Record, Stored

Tried = Mapping[float, Sequence[float]]
"""By value, what its runs came to, a number a seed."""


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
    but_not : list of str, or dict of str to dict
        Axes along which the setting is the same: that of their first place. By axis, the places where it is so.
    beyond : list of float
        Further values, tried where the best is the last.
    below : list of float
        Further values, tried where the best is the first.
    where : dict of str to list of str
        The places on some axes at which it is tuned; at all where nothing is said.
    also : list of str
        Further overrides of the runs that tune.
    """

    setting: str
    among: Sequence[float]
    seeds: Sequence[int]
    by: str = "final_accuracy"
    but_not: Sequence[str] | Mapping[str, Mapping[str, str | list[str]]] = ()
    beyond: Sequence[float] = ()
    below: Sequence[float] = ()
    where: Mapping[str, Sequence[str]] = field(default_factory=dict)
    also: Sequence[str] = ()

    @classmethod
    def of(cls, sweep: Mapping[str, Any], *, full: bool) -> Tuning | None:
        """That of a sweep, if it has one; none at full size where that says the setting itself."""
        found = cls(**sweep["tune"]) if "tune" in sweep else None
        said = sweep.get("full", []) if full else []
        return None if found and any(one.startswith(f"{found.setting}=") for one in said) else found

    def covers(self, place: Mapping[str, str]) -> bool:
        """Whether the setting is tuned there."""
        return all(place[axis] in places for axis, places in self.where.items())

    def place(self, place: Mapping[str, str]) -> str:
        """Name of what is tuned together."""
        same = self.but_not if isinstance(self.but_not, Mapping) else {axis: {} for axis in self.but_not}
        alike = {"seed", *(axis for axis, where in same.items() if lies_at(place, where))}
        return "/".join(at for axis, at in place.items() if axis not in alike)

    def trials(self, tried: Tried) -> Iterator[tuple[float, int]]:
        """Each value with each seed, at a place where so much was ``tried``."""
        for value in self.values(tried):
            for seed in self.seeds:
                yield value, seed

    def values(self, tried: Tried) -> list[float]:
        """All values of a place where so much was ``tried``, in order: beyond and below ``among`` as far as is due."""
        values = list(self.among)
        for further in self.beyond:
            if self.best(values, tried) != values[-1]:
                break
            values.append(further)
        for further in self.below:
            if self.best(values, tried) != values[0]:
                break
            values.insert(0, further)
        return values

    def best(self, values: Sequence[float], tried: Tried) -> float | None:
        """The value with the largest median; None where one has not been tried with each seed."""
        if any(len(tried.get(value, ())) < len(self.seeds) for value in values):
            return None
        return max(values, key=lambda value: statistics.median(tried[value]))

    def setting_of(self, value: float) -> str:
        """An override."""
        return f"{self.setting}={value}"

    def tried(self, path: Path) -> dict[str, Tried]:
        """All that was found at each place, by the file ``path``."""
        found: dict[str, dict[float, list[float]]] = {}
        for record in Stored.read(path).records:
            found.setdefault(record["tuned"], {}).setdefault(record["value"], []).append(record["found"])
        return dict(found)

    def chosen(self, path: Path) -> dict[str, float]:
        """The best value at each place whose trials are all in the file ``path``."""
        best = {at: self.best(self.values(tried), tried) for at, tried in self.tried(path).items()}
        return {at: value for at, value in best.items() if value is not None}

    def at_an_edge(self, path: Path) -> list[str]:
        """Places whose best value is the first or last that was tried, so that a better one may lie beyond."""
        ends = {at: self.values(tried) for at, tried in self.tried(path).items()}
        return [at for at, value in self.chosen(path).items() if value in (ends[at][0], ends[at][-1])]


def trial(record: Record, tuned: str, value: float, found: float) -> Record:
    """What is kept of a run that tunes."""
    return {"name": record["name"], "tuned": tuned, "value": value, "found": found, "made": record["made"]}
