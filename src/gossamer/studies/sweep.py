"""A sweep: runs of every combination of settings, each with several seeds."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.errors import SpecError, counted, shortened
from gossamer.experiment.specs.folder_names import setting_name
from gossamer.studies.runs import Tell, workers_of
from gossamer.studies.study import Remarks, Scores, Spec, Study, experiment_of, needs_folder, nobody, study_of

# Grids of settings: every combination of the values that some keys of a spec take.

_OPEN, _CLOSE, _QUOTES = "[{", "]}", "\"'"
_EXAMPLE = "such as algorithm.batch_size=8,32"
MOST_RUNS = 10_000


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


def check_runs(settings: int, seeds: int, jobs: int | None) -> None:
    """Raise SpecError unless so many settings, seeds and processes can be."""
    if seeds < 1 or (jobs is not None and jobs < 1):
        found = f"{seeds}{'' if jobs is None else f' and {jobs}'}"
        raise SpecError(f"expected --seeds and --jobs of at least 1, found {found}")
    if settings * seeds > MOST_RUNS:
        found = f"{counted(settings, 'setting')} with {counted(seeds, 'seed')} each"
        raise SpecError(f"expected at most {MOST_RUNS:,} runs, found {found}; take fewer values or seeds")


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


FILE = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """Outcome of a sweep.

    Attributes
    ----------
    study : Study
        Study of its runs.
    settings : list of Setting
        The combinations, in order.
    scores : mapping of str to Scores
        Scores of the finished runs, by setting.
    """

    study: Study
    settings: list[Setting]
    scores: Mapping[str, Scores]

    @property
    def folder(self) -> Path:
        """Folder that the runs' folders are in."""
        return self.study.out

    @property
    def best(self) -> str | None:
        """Name of the setting with the best mean score, among those all of whose runs have one."""
        whole = {name: score.rank for name, score in self.scores.items() if self._whole(name)}
        ranked = {name: rank for name, rank in whole.items() if rank is not None}
        return min(ranked, key=ranked.__getitem__) if ranked else None

    @property
    def warning(self) -> str:
        """One line on privacy: of choosing by scores, and of several runs on the same data."""
        return f"{_CHOOSING} {self.study.added_up()}"

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as in ``sweep.json``."""
        return {
            "settings": [self._described(setting) for setting in self.settings],
            "best": self.best,
            "warning": self.warning,
            "runs": self.study.described(),
        }

    def _described(self, setting: Setting) -> dict[str, Any]:
        scores = self.scores.get(setting.name)
        return {"name": setting.name, "set": dict(setting.given), **({} if scores is None else scores.as_dict())}

    def _whole(self, name: str) -> bool:
        made = sum(one.setting == name for one in self.study.runs)
        return len(self.scores[name].statuses) == made


_CHOOSING = "Choosing a setting by scores on private test examples spends privacy that no epsilon counts."


def sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[Any]] | None = None,
    *,
    out: str | Path,
    seeds: int = 5,
    jobs: int | None = None,
    engine: str | None = None,
    address: str | None = None,
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
    engine : str, optional
        Engine that makes runs: ``processes`` of this machine, or ``ray``; by default ``ray`` with an address.
    address : str, optional
        ``HOST:PORT`` of a Ray cluster that this machine is a node of, or ``auto``; by default Ray is started here.
    settings : sequence of str
        Overrides that all runs have, as ``--set`` takes them.
    tell : callable, optional
        Is called with a line about each run.

    Raises
    ------
    CallerError
        If a combination cannot be run, or a folder has results of another spec; nothing has been run.
    """
    sweeping, combinations = plan_sweep(spec, as_grid(grid or {}), Path(out), seeds, jobs, settings, tell)
    with workers_of(engine, jobs, address) as workers:
        sweeping.make(workers, tell)
    found = Sweep(sweeping, combinations, sweeping.scores())
    sweeping.write(FILE, found.as_dict())
    return found


def plan_sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[str]],
    out: Path,
    seeds: int,
    jobs: int | None,
    settings: Sequence[str],
    tell: Tell,
) -> tuple[Study, list[Setting]]:
    """Check every combination and every folder; return the study, of which no run is made."""
    combinations = settings_of(grid, spec_name(spec))
    check_runs(len(combinations), seeds, jobs)
    needs_folder(out)
    first = {one.name: partial(experiment_of, spec, [*settings, *one.overrides]) for one in combinations}
    return study_of(out, first, seeds, tell, Remarks()), combinations


def spec_name(spec: Spec) -> str:
    """The name of a spec's file, or a word where there is none."""
    return Path(spec).stem if isinstance(spec, str | Path) else "run"


def marked(found: Sweep) -> list[tuple[str, ...]]:
    """Rows of the table at the end, with the best setting marked."""
    kinds = " / ".join(sorted({score.kind for score in found.scores.values()})) or "score"
    fits = any(score.r2.values for score in found.scores.values())
    columns = ("score", "+-", *(["R2"] if fits else []), "epsilon", "virtual s", "MiB sent")
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
