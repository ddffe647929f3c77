"""A sweep: runs of every combination of settings, each with several seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.errors import SpecError, shortened
from gossamer.experiment.specs.folder_names import setting_name
from gossamer.studies.runs import Tell
from gossamer.studies.study import Remarks, Spec, Study, experiment_of, nobody, runs_of

# Grids of settings: every combination of the values that some keys of a spec take.

_OPEN, _CLOSE, _QUOTES = "[{", "]}", "\"'"
_EXAMPLE = "such as algorithm.batch_size=8,32"


@dataclass(frozen=True)
class Setting:
    """One combination of a grid.

    Attributes
    ----------
    name : str
        Name of the setting in names of folders.
    given : mapping of str to str
        Values in YAML, by key.
    """

    name: str
    given: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        """The combination as ``--set`` takes it."""
        return [f"{key}={value}" for key, value in self.given.items()]


def read_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Values by key, from texts such as ``algorithm.batch_size=8,32``.

    A comma inside brackets, braces or quotes is part of a value.

    Raises
    ------
    SpecError
        If a text is not like that, or a key stands there twice.
    """
    grid: dict[str, list[str]] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise SpecError(f"--grid: expected key=a,b,c, {_EXAMPLE}, found {shortened(text)}")
        if key in grid:
            raise SpecError(f"--grid: {key} is there twice; give all its values in one --grid")
        grid[key] = _split(values)
    return grid


def as_grid(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """The same from Python's values: texts stand for themselves, others are written as YAML takes them."""
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise SpecError(f"grid: expected a list of values for {key}, found {shortened(values)}")
    return {key: [value if isinstance(value, str) else json.dumps(value) for value in grid[key]] for key in grid}


def settings_of(grid: Mapping[str, Sequence[str]], otherwise: str) -> list[Setting]:
    """Every combination, the values of the last key varying fastest; one named ``otherwise`` where the grid is empty.

    Raises
    ------
    SpecError
        If a key has no value, or one twice, or cannot be in a grid.
    """
    for key, values in grid.items():
        _check(key, values)
    combinations = [dict(zip(grid, chosen, strict=True)) for chosen in itertools.product(*grid.values())]
    return [Setting(setting_name(given) or otherwise, given) for given in combinations]


def _check(key: str, values: Sequence[str]) -> None:
    if key == "seed":
        raise SpecError("--grid: seed is varied by --seeds, and its first value is --seed; leave it out of the grid")
    if not values or not all(values):
        raise SpecError(f"--grid: expected key=a,b,c, {_EXAMPLE}, found an empty value of {key}; leave it out")
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise SpecError(f"--grid: {key} has the value {shortened(twice[0])} twice; give each once")


def _split(text: str) -> list[str]:
    """Parts between commas that stand in no bracket, brace or quotes."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += (letter in _OPEN) - (letter in _CLOSE)
        if letter == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


@dataclass
class Sweep(Study):
    """A sweep and what came of it.

    Attributes
    ----------
    settings : list of Setting
        The combinations, in order.
    """

    FILE = "sweep.json"
    settings: list[Setting] = field(default_factory=list)

    @property
    def best(self) -> str | None:
        """Name of the setting with the best mean score, among those all of whose runs have one."""
        whole = {name: score.rank for name, score in self.scores.items() if self._whole(name)}
        ranked = {name: rank for name, rank in whole.items() if rank is not None}
        return min(ranked, key=ranked.__getitem__) if ranked else None

    @property
    def warning(self) -> str:
        """One line on privacy: of choosing by scores, and of several runs on the same data."""
        return f"{_CHOOSING} {self.added_up()}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "settings": [self._described(setting) for setting in self.settings],
            "best": self.best,
            "warning": self.warning,
            "runs": self.described(),
        }

    def _described(self, setting: Setting) -> dict[str, Any]:
        scores = self.scores.get(setting.name)
        return {"name": setting.name, "set": dict(setting.given), **({} if scores is None else scores.as_dict())}

    def _whole(self, name: str) -> bool:
        made = sum(one.setting == name for one in self.runs)
        return len(self.scores[name].statuses) == made


_CHOOSING = "Choosing a setting by scores on private test examples spends privacy that no epsilon counts."


def sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path,
    seeds: int = 5,
    jobs: int | None = None,
    engine: str = "processes",
    settings: Sequence[str] = (),
    tell: Tell = nobody,
) -> Sweep:
    """Run every combination of settings with several seeds, and compare their scores.

    Runs that ``out`` has the results of already are kept, so a sweep that was interrupted goes on.

    Parameters
    ----------
    spec : Experiment, mapping or path
        Spec that the combinations change; its seed is the first one.
    grid : mapping of str to sequence, optional
        Values of each key, such as ``{"algorithm.batch_size": [8, 32]}``; texts are YAML.
    out : path
        Folder for the runs' folders, each named by its setting and seed, for ``sweep.json`` and the report.
    seeds : int
        Number of runs of each setting.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.
    engine : str
        Engine that makes runs: ``processes`` of this machine, or ``ray``, on the cluster that ``RAY_ADDRESS`` names or
        else started here.
    settings : sequence of str
        Overrides that all runs have, as ``--set`` takes them.
    tell : callable, optional
        Is called with a line about each run.

    Raises
    ------
    CallerError
        If a combination cannot be run, or a folder has results of another spec; nothing has been run.
    """
    planned = plan_sweep(spec, as_grid(grid or {}), Path(out), seeds, jobs, settings, tell)
    return planned.made_by(engine, jobs, tell)


def plan_sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[str]],
    out: Path,
    seeds: int,
    jobs: int | None,
    settings: Sequence[str],
    tell: Tell,
) -> Sweep:
    """Check every combination and every folder; return the sweep, of which no run is made."""
    combinations = settings_of(grid, Path(spec).stem if isinstance(spec, str | Path) else "run")
    first = {one.name: partial(experiment_of, spec, [*settings, *one.overrides]) for one in combinations}
    return Sweep(out, *runs_of(out, first, seeds, jobs, tell, Remarks(), {}), settings=combinations)


def marked(found: Sweep) -> list[tuple[str, ...]]:
    """Rows of the table at the end, with the best setting marked."""
    kinds = " / ".join(sorted({score.called for score in found.scores.values()})) or "score"
    fits = any(score.r2.values for score in found.scores.values())
    judged = any(score.constant is not None for score in found.scores.values())
    columns = (
        "score",
        "+-",
        *(["95 %", "constant"] if judged else []),
        *(["R2"] if fits else []),
        "epsilon",
        "virtual s",
        "MiB sent",
    )
    rows = [("", "setting", "runs", *(kinds if name == "score" else name for name in columns), "ended")]
    for setting in found.settings:
        if (score := found.scores.get(setting.name)) is None:
            rows.append(("", setting.name, "0", *["-"] * (len(columns) + 1)))
            continue
        figures = score.figures() | ({"epsilon": "none"} if score.epsilon is None else {})
        best, ended = "*" if setting.name == found.best else "", ", ".join(sorted({*score.statuses}))
        runs = str(len(score.statuses))
        rows.append((best, setting.name, runs, *(figures.get(name, "-") for name in columns), ended))
    return rows
