"""A sweep: runs of every combination of settings, each with several seeds."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.algorithms.plan import Plan
from gossamer.errors import SpecError, did_you_mean, shortened
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results.summary import figure_names
from gossamer.experiment.specs.folder_names import setting_name
from gossamer.report.article import COSTS, SWEEP, Article, Axes, Mean, against, figures_of, means_section, of_several
from gossamer.report.drawing import PageSection, needed
from gossamer.strict_yaml import load_yaml
from gossamer.studies.runs import Tell
from gossamer.studies.study import LOSS, Spec, Study, columns_of, experiment_of, nobody, runs_of

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
    labels : mapping of str to str
        The same values as people call them.
    """

    name: str
    given: Mapping[str, str]
    labels: Mapping[str, str]

    @property
    def overrides(self) -> list[str]:
        """The combination as ``--set`` takes it."""
        return [f"{key}={value}" for key, value in self.given.items()]

    @property
    def title(self) -> str:
        """The labels in a line; values that are no words stand beside the last part of their key."""
        said = []
        for key, label in self.labels.items():
            bare = label == self.given[key] and not isinstance(load_yaml(label), str)
            said.append(f"{key.rpartition('.')[2].replace('_', ' ')} {label}" if bare else label)
        return ", ".join(said) or self.name


def read_grid(texts: Sequence[str], option: str = "--grid") -> dict[str, list[str]]:
    """Values by key, from texts such as ``algorithm.batch_size=8,32`` that an ``option`` was given.

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
            raise SpecError(f"{option}: expected key=a,b,c, {_EXAMPLE}, found {shortened(text)}")
        if key in grid:
            raise SpecError(f"{option}: {key} is there twice; give all its values in one {option}")
        grid[key] = _split(values)
    return grid


def as_grid(grid: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """The same from Python's values: texts stand for themselves, others are written as YAML takes them."""
    if not isinstance(grid, Mapping):
        raise SpecError(f"grid: expected lists of values by key, found {shortened(grid)}")
    for key, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise SpecError(f"grid: expected a list of values for {key}, found {shortened(values)}")
    return {key: [value if isinstance(value, str) else _written(key, value) for value in grid[key]] for key in grid}


def _written(key: str, value: Any) -> str:
    try:  # settings such as `Gossip`, and numbers of NumPy
        return json.dumps(
            value, default=lambda one: one.model_dump(mode="json") if hasattr(one, "model_dump") else one.item()
        )
    except (TypeError, AttributeError, ValueError):
        raise SpecError(f"grid: expected values of {key} as a spec has them, found {shortened(value)}") from None


def settings_of(
    grid: Mapping[str, Sequence[str]], otherwise: str, labels: Mapping[str, Sequence[str]] | None = None
) -> list[Setting]:
    """Every combination, the values of the last key varying fastest; one named ``otherwise`` where the grid is empty.

    Values are called by their ``labels``, by key in the order of the values; by default a section is called by its
    name, and any other value is what it is. Folders are called by the latter where it tells values apart, so that runs
    which are there stay those of a setting that is called otherwise, and nothing is released again.

    Raises
    ------
    SpecError
        If a key has no value, or one twice, or cannot be in a grid, or two of its values are called the same.
    """
    for key, values in grid.items():
        _check(key, values)
    for key in labels or {}:
        if key not in grid:
            raise SpecError(f"--label: {shortened(key)} is no key of the grid{did_you_mean(key, grid)}")
    called = {key: _labels(key, values, (labels or {}).get(key)) for key, values in grid.items()}
    found = []
    for places in itertools.product(*(range(len(values)) for values in grid.values())):
        given, named = ({key: of[key][place] for key, place in zip(grid, places, strict=True)} for of in (grid, called))
        words = {key: _words(grid[key], called[key])[place] for key, place in zip(grid, places, strict=True)}
        found.append(Setting(setting_name(words) or otherwise, given, named))
    return found


def _labels(key: str, values: Sequence[str], chosen: Sequence[str] | None) -> Sequence[str]:
    """Return names of the values of a key, each otherwise than the others, also as part of a folder's name."""
    if chosen is not None:  # quotes are for a comma inside
        chosen = [re.sub(r"^(['\"])(.*)\1$", r"\2", str(one)) for one in chosen]
    if chosen is not None and (len(chosen) != len(values) or not all(chosen)):
        raise SpecError(f"--label: expected a name for each of the {len(values)} values of {key}, found {chosen}")
    called = [_name_of(value) for value in values] if chosen is None else chosen
    words = _words(values, called)
    if len({*called}) < len(called):
        words = called
    if twice := [place for place, word in enumerate(words) if word in words[:place]]:
        one, other = words.index(words[twice[0]]), twice[0]
        raise SpecError(
            f"--label: {shortened(values[one])} and {shortened(values[other])} of {key} would both be called "
            f"{words[other]}; give their names: --label {key}=A,B,..."
        )
    return called


def _words(values: Sequence[str], called: Sequence[str]) -> Sequence[str]:
    """Return values' own names as names of folders have them, or where two are the same what they are ``called``."""
    own = [_in_a_name(_name_of(value)) for value in values]
    return own if len({*own}) == len(own) else [_in_a_name(label) for label in called]


def _name_of(value: str) -> str:
    """A value without what is below a section's name."""
    try:
        found = load_yaml(value)
    except SpecError:
        return value  # which the first run's spec says more of
    name = found.get("name", found.get("mechanism")) if isinstance(found, Mapping) else None
    return name if isinstance(name, str) else value


def _in_a_name(label: str) -> str:
    """A label as a folder's name may have it."""
    word = re.sub(r"[^A-Za-z0-9_.+-]+", "-", label)
    return (label if word == label else word.strip("-"))[-_LONGEST:] or "-"


_LONGEST = 32  # characters of a value in a folder's name; the end of a path tells more than its beginning


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


@dataclass(repr=False)
class Sweep(Study):
    """A sweep and what came of it.

    Attributes
    ----------
    settings : list of Setting
        The combinations, in order.
    axes : Axes, optional
        Axes of the figure that is drawn of it.
    baseline : tuple of str, optional
        Key of the grid and its value that others are tested against.
    """

    FILE = SWEEP
    settings: list[Setting] = field(default_factory=list)
    axes: Axes | None = None
    baseline: tuple[str, str] | None = None

    def called(self, setting: str) -> str:
        return next(one.title for one in self.settings if one.name == setting)

    def publish(self) -> None:
        """Write tables and the figure, if one is asked for, into the folder."""
        self.article.write(self.out)

    def report(self, *before: PageSection) -> Path:
        """Write the report, which begins with the means, once tables and figure are written; see `Study.report`."""
        return super().report(means_section(self.article.rows(), self.article.caption, self.out), *before)

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
        article = self.article
        return {
            "settings": [self._described(setting) for setting in self.settings],
            "best": self.best,
            "warning": self.warning,
            "means": article.rows(),
            "caption": article.caption,
            "runs": self.described(),
        }

    def _described(self, setting: Setting) -> dict[str, Any]:
        scores = self.scores.get(setting.name)
        named = {"name": setting.name, "set": dict(setting.given), "labels": dict(setting.labels)}
        return {**named, **({} if scores is None else scores.as_dict())}

    def frame(self) -> dict[str, list[Any]]:
        """Return the finished runs by column, one value for each run, as ``pandas.DataFrame`` and others take them.

        There are the setting's name, its value of each key of the grid, a number where it is one, the seed, the status,
        every figure of the run, and the ends of its 95 % interval, such as ``auroc_low`` and ``auroc_high``; None where
        a run does not have one that others have.
        """
        labels = {one.name: {key: _number(label) for key, label in one.labels.items()} for one in self.settings}
        rows = []
        for run in self.finished:
            summary = run.summary()
            about = {"setting": run.setting, **labels[run.setting], "seed": run.seed, "status": summary["status"]}
            rows.append(about | figures_of(summary, self.shared[run.setting]))
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: [row.get(name) for row in rows] for name in names}

    @cached_property
    def article(self) -> Article:
        """Means of a figure over seeds: of the one that is drawn, or else of the score."""
        kinds = {score.kind for score in self.scores.values()}
        figure = self.axes.y if self.axes is not None else min(kinds, default=LOSS)
        frame, values = self.frame(), dict[str, dict[int, float]]()
        for name, seed, value in zip(*(frame.get(key, ()) for key in ("setting", "seed", figure)), strict=False):
            if value is not None:
                values.setdefault(name, {})[seed] = value
        means = []
        for one in self.settings:
            found = self.scores.get(one.name)
            proved = (None, None) if found is None else (found.epsilon, found.unit)
            means.append(Mean(one.labels or {"setting": one.name}, values.get(one.name, {}), *proved))
        delta = max((score.delta for score in self.scores.values() if score.delta is not None), default=None)
        lacking = len(self.runs) - sum(map(len, values.values()))
        if self.baseline is None:
            return Article(figure, means, self.axes, delta=delta, lacking=lacking)
        p = against(means, *self.baseline)
        tested = [replace(one, p=p.get(place)) for place, one in enumerate(means)]
        return Article(figure, tested, self.axes, self.baseline[1], delta, lacking)

    def _whole(self, name: str) -> bool:
        made = sum(one.setting == name for one in self.runs)
        return len(self.scores[name].statuses) == made


def _number(label: str) -> str | float:
    try:
        return float(label)
    except ValueError:
        return label


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
    labels: Mapping[str, Sequence[str]] | None = None,
    figure: str | None = None,
    baseline: str | None = None,
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
        Folder for the runs' folders, each named by its setting and seed, for ``sweep.json`` and tables.
    seeds : int
        Number of runs of each setting.
    jobs : int, optional
        Runs at a time, at most; by default one on this machine, and on Ray as many as it has processors.
    engine : str
        Engine that makes runs: ``processes`` of this machine, or ``ray``, on the cluster that ``RAY_ADDRESS`` names or
        else started here.
    settings : sequence of str
        Overrides that all runs have, as ``--set`` takes them.
    labels : mapping of str to sequence of str, optional
        Names of the values of a key, in their order.
    figure : str, optional
        Figure to draw, such as ``x=budget.epsilon,y=accuracy,hue=algorithm``.
    baseline : str, optional
        Value of a key that the others are tested against in pairs by seed, such as ``algorithm=gossip``.
    tell : callable, optional
        Is called with a line about each run.

    Raises
    ------
    CallerError
        If a combination cannot be run, or a folder has results of another spec; nothing has been run.
    """
    paper = Paper(labels or {}, figure, baseline)
    planned = plan_sweep(spec, as_grid(grid or {}), Path(out), seeds, jobs, settings, paper, tell)
    planned.made_by(engine, jobs, tell).publish()
    return planned


class Paper(NamedTuple):
    """Looks of a sweep: names of values by key, a figure to draw, and a baseline; see `sweep`."""

    labels: Mapping[str, Sequence[str]] = {}
    figure: str | None = None
    baseline: str | None = None


def plan_sweep(
    spec: Spec,
    grid: Mapping[str, Sequence[str]],
    out: Path,
    seeds: int,
    jobs: int | None,
    settings: Sequence[str],
    paper: Paper,
    tell: Tell,
) -> Sweep:
    """Check every combination, every folder and how it is shown; return the sweep, of which no run is made."""
    combinations = settings_of(grid, Path(spec).stem if isinstance(spec, str | Path) else "run", paper.labels)
    axes = None if paper.figure is None else Axes.read(paper.figure, [*grid])
    baseline = None if paper.baseline is None else _baseline(paper.baseline, combinations, seeds)
    if axes is not None:
        needed("matplotlib", "figures", "a figure")
    first = {one.name: partial(experiment_of, spec, [*settings, *one.overrides]) for one in combinations}

    def look(prepared: Prepared, plan: Plan) -> None:
        if axes and axes.y not in COSTS and axes.y not in (known := figure_names(prepared, plan.words.shared)):
            raise SpecError(f"--figure: y={axes.y} is no figure of this task{did_you_mean(axes.y, {*known, *COSTS})}")

    runs, shared = runs_of(out, first, seeds, jobs, tell, [], {}, look=look)
    by_title: dict[str, Setting] = {}
    for one in combinations:
        if (other := by_title.setdefault(one.title, one)) is not one:
            raise SpecError(
                f"--label: {other.name} and {one.name} would both be called {shortened(one.title)}; give names "
                "that stay apart side by side, such as some without a comma"
            )
    return Sweep(out, runs, shared, settings=combinations, axes=axes, baseline=baseline)


def _baseline(text: str, settings: Sequence[Setting], seeds: int) -> tuple[str, str]:
    key, _, label = (part.strip() for part in text.partition("="))
    keys, labels = [*settings[0].labels], {one.labels.get(key, "") for one in settings}
    if key not in keys:
        hint = did_you_mean(key, keys) or "; give a --grid"
        raise SpecError(f"--baseline: expected key=value of the grid, found {shortened(text)}{hint}")
    if label not in labels:
        raise SpecError(f"--baseline: {key} has no value {shortened(label)}{did_you_mean(label, labels)}")
    if seeds < 2:
        raise SpecError(f"--baseline: its test is of pairs of seeds; expected 2 seeds or more, found {seeds}")
    return key, label


def marked(found: Sweep) -> list[tuple[str, ...]]:
    """Rows of the table at the end, with the best setting marked."""
    kinds = " / ".join(sorted({score.called for score in found.scores.values()})) or "score"
    units = ["epsilon is of"] if of_several(score.unit for score in found.scores.values()) else []
    columns = [*columns_of(found.scores), "epsilon", *units, "virtual s", "MiB sent"]
    keys = [*found.settings[0].labels] or ["setting"]
    rows = [("", *keys, "runs", *(kinds if name == "score" else name for name in columns), "ended")]
    for setting in found.settings:
        named = [*setting.labels.values()] or [setting.name]
        if (score := found.scores.get(setting.name)) is None:
            rows.append(("", *named, "0", *["-"] * (len(columns) + 1)))
            continue
        figures = score.figures() | ({"epsilon": "none"} if score.epsilon is None else {})
        best, ended = "*" if setting.name == found.best else "", ", ".join(sorted({*score.statuses}))
        runs = str(len(score.statuses))
        rows.append((best, *named, runs, *(figures.get(name, "-") for name in columns), ended))
    return rows
