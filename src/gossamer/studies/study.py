"""Making the runs of a study: checked before the first, made by several processes, gathered at the end."""

from __future__ import annotations

import statistics
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from gossamer.algorithms.plan import Plan
from gossamer.errors import CallerError, DataError, RunWarning, SpecError, beginning, counted
from gossamer.experiment.preparation.planning import plan_run
from gossamer.experiment.preparation.prepare import Prepared, prepare
from gossamer.experiment.specs.spec import Experiment, resolved
from gossamer.experiment.specs.spec_file import override, parse_spec, read_spec
from gossamer.files import held, make_own_folder, real_path, to_json, write_own
from gossamer.objectives.score_words import shown
from gossamer.privacy.guarantees import rounded_up
from gossamer.report.article import figures_of
from gossamer.report.drawing import PageSection
from gossamer.report.page import write_report
from gossamer.report.privacy import added
from gossamer.report.records import read_record
from gossamer.studies.runs import StudyRun, Tell, Workers, each_seed, workers_of
from gossamer.version import __version__

# Scores of runs that differ in their seed alone, in one figure.

AREA, ACCURACY, LOSS = "auroc", "accuracy", "loss"
MOST_RUNS = 10_000


@dataclass(frozen=True)
class Spread:
    """Mean and spread of a figure.

    Attributes
    ----------
    values : tuple of float
        One for each run; NaN and None are left out before.
    """

    values: tuple[float, ...]

    @property
    def mean(self) -> float | None:
        """The mean; None of nothing."""
        return statistics.fmean(self.values) if self.values else None

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds, with n - 1 below; None of fewer than two."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"mean": self.mean, "standard_deviation": self.deviation, "runs": len(self.values)}


@dataclass(frozen=True)
class Scores:
    """Figures of the finished runs of a setting.

    Attributes
    ----------
    kind : str
        `AREA` under the ROC curve of two classes, `ACCURACY` of more, or `LOSS`.
    score : Spread
        Score on test examples: of the run's model, or of nodes' own where nobody has a common one.
    interval : tuple of float, optional
        Least and largest end of the 95 % intervals of these scores, which are those of the run's model.
    constant : float, optional
        Mean score of the constant predictor.
    r2 : Spread
        Share of the variance that a regression's common model predicts; empty elsewhere.
    seconds, size : Spread
        Virtual seconds, and bytes sent.
    better : bool
        Whether a model of these runs is better than one that says the same of every row; true where that is not known.
    epsilon, delta : float or None
        Proved of each run; None where nothing is.
    unit : str
        Unit that these are of, such as an example or a client.
    statuses : tuple of str
        Statuses with which runs ended.
    """

    kind: str
    score: Spread
    interval: tuple[float, float] | None
    constant: float | None
    r2: Spread
    seconds: Spread
    size: Spread
    better: bool
    epsilon: float | None
    delta: float | None
    unit: str
    statuses: tuple[str, ...]

    @property
    def rank(self) -> float | None:
        """A number that is less for better scores; None where a run has no score, so that it is not compared."""
        if self.score.mean is None or len(self.score.values) < len(self.statuses):
            return None
        return self.score.mean if self.kind == LOSS else -self.score.mean

    @property
    def called(self) -> str:
        """Name of the score in words."""
        return "ROC area" if self.kind == AREA else self.kind

    def figures(self) -> dict[str, str]:
        """Figures for a table, by what stands above them; R2 only where there is one."""
        digits = ".4g" if self.kind == LOSS else ".3f"
        return {
            "epsilon": "-" if self.epsilon is None else rounded_up(self.epsilon),
            "epsilon is of": self.unit,
            "score": number(self.score.mean, digits),
            "+-": number(self.score.deviation, digits),
            "95 %": "-" if self.interval is None else " to ".join(f"{end:{digits}}" for end in self.interval),
            "constant": number(self.constant, digits),
            **({"R2": shown("r2", self.r2.mean)} if self.r2.values else {}),
            "virtual s": number(self.seconds.mean, ".4g"),
            "MiB sent": number(None if self.size.mean is None else self.size.mean / 2**20, ".3g"),
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            self.kind: self.score.as_dict(),
            "interval": self.interval,
            "constant": self.constant,
            **({"r2": self.r2.as_dict()} if self.r2.values else {}),
            "virtual_seconds": self.seconds.as_dict(),
            "bytes": self.size.as_dict(),
            "better_than_constant": self.better,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "statuses": list(self.statuses),
        }


def number(value: float | None, form: str) -> str:
    """A figure in words; a dash where there is none."""
    return "-" if value is None else f"{value:{form}}"


def columns_of(scores: Mapping[str, Scores]) -> list[str]:
    """Names of the figures on how good models are that a table of settings has, of those in `Scores.figures`."""
    judged = any(one.constant is not None for one in scores.values())
    fits = any(one.r2.values for one in scores.values())
    return ["score", "+-", *(["95 %", "constant"] if judged else []), *(["R2"] if fits else [])]


def scores_of(summaries: Sequence[Mapping[str, Any]], *, shared: bool) -> Scores:
    """Return the scores of finished runs; ``shared`` where somebody has the run's model."""
    each = [figures_of(summary, shared) for summary in summaries]
    common = shared or all(summary["nodes"] == 1 for summary in summaries)
    judged = [summary.get("scores", {}) for summary in summaries]
    kind = ACCURACY if all("test_accuracy" in summary["metrics"] for summary in summaries) else LOSS
    if each and all(AREA in one for one in each) and not any(one.get("by_class") for one in judged):
        kind = AREA
    figures = [one.get("figures", {}).get(_JUDGED_BY[kind], {}) for one in judged] if common else []
    ends = [figure["interval"] for figure in figures if figure.get("interval")] if kind != LOSS else []
    gains = [figure.get("gain") for figure in figures]
    guarantees = [summary["privacy"]["guarantee"] for summary in summaries]
    return Scores(
        kind,
        _spread(one.get(kind) for one in each),
        (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None,
        None if kind == LOSS else _spread(figure.get("constant") for figure in figures).mean,
        _spread(summary["metrics"].get("test_r2") if common else None for summary in summaries),
        _spread(one.get("virtual_seconds") for one in each),
        _spread(one.get("bytes") for one in each),
        not gains or any(gain is None or gain[0] > 0 for gain in gains),
        _largest(guarantee.get("epsilon") for guarantee in guarantees),
        _largest(guarantee.get("delta") for guarantee in guarantees),
        " / ".join(sorted({guarantee.get("unit", "") for guarantee in guarantees})),
        tuple(summary["status"] for summary in summaries),
    )


_JUDGED_BY = {AREA: AREA, ACCURACY: ACCURACY, LOSS: "r2"}
"""Figure by which a model is held against a constant."""


def _spread(values: Any) -> Spread:
    return Spread(tuple(float(value) for value in values if value is not None))


def _largest(values: Any) -> float | None:
    """The weakest of several; None if one of them is."""
    found = list(values)
    return None if not found or None in found else max(found)


# Checking settings before any of their runs: as `gossamer check` does, with each warning once.


@contextmanager
def gathered(remarks: list[str]) -> Iterator[None]:
    """Gather what runs are warned of inside the block, each line once."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", RunWarning)
        yield
    lines = [str(one.message) for one in found if issubclass(one.category, RunWarning)]
    remarks += dict.fromkeys(line for line in lines if line not in remarks)


def checked(experiment: Experiment, name: str, remarks: list[str]) -> tuple[Prepared, Plan]:
    """Prepare and plan a run of the setting ``name``, of which nothing is computed.

    Raises
    ------
    CallerError
        If it cannot be run; the line begins with the setting.
    """
    with beginning(name, CallerError), gathered(remarks):
        prepared = prepare(experiment)
        plan = plan_run(prepared)
    return prepared, plan


Spec = Experiment | Mapping[str, Any] | str | Path


def nobody(line: str) -> None:
    """Hear nothing."""


@dataclass(repr=False)
class Study(ABC):
    """Runs of several settings, each with several seeds: a sweep, or a price.

    Attributes
    ----------
    out : Path
        The folder that theirs are in.
    runs : list of StudyRun
        All of them.
    shared : dict of str to bool
        Whether somebody has the run's model, by setting.
    errors : dict of Path to str
        Reasons why runs failed, by folder.
    scores : dict of str to Scores
        Scores of the finished runs, by setting, once they are made; without settings none of whose runs is finished.
    """

    FILE: ClassVar[str]
    """Name of the file that says what came of it."""

    out: Path
    runs: list[StudyRun]
    shared: dict[str, bool]
    errors: dict[Path, str] = field(default_factory=dict)
    scores: dict[str, Scores] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The study in a line, and one for each setting with its score."""
        figures = {
            name: (one.called, *map(one.figures().get, ("score", "+-", "epsilon"))) for name, one in self.scores.items()
        }
        said = [
            f"  {self.called(name)}: {what} {mean} +- {off}, epsilon {proved}"
            for name, (what, mean, off, proved) in figures.items()
        ]
        head = f"{type(self).__name__} in {self.out}, {len(self.finished)} of {counted(len(self.runs), 'run')} finished"
        return "\n".join([head, *said])

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Plain data for JSON, as in the `FILE`."""

    @abstractmethod
    def called(self, setting: str) -> str:
        """Name of a setting for people, by its name in names of folders."""

    def made_by(self, engine: str, jobs: int | None, tell: Tell) -> Self:
        """Have all runs made; see `sweep`."""
        with workers_of(engine, jobs) as workers:
            self.make(workers, tell)
        return self

    def make(self, workers: Workers, tell: Tell = nobody) -> None:
        """Have all runs made that are not finished, and write what came of it beside their folders.

        Raises
        ------
        UnderWay
            If another process makes runs in this folder.
        """
        make_own_folder(self.out)
        with held(self.out):
            self._make(workers, tell)
        by_setting: dict[str, list[StudyRun]] = {}
        for one in self.finished:
            by_setting.setdefault(one.setting, []).append(one)
        self.scores = {name: self._scores(runs) for name, runs in by_setting.items()}
        write_own(self.out / self.FILE, to_json({"gossamer": __version__, **self.as_dict()}, indent=2) + "\n")

    def _make(self, workers: Workers, tell: Tell) -> None:
        missing = {one.number: one for one in self.runs if not one.finished}
        if before := len(self.runs) - len(missing):
            tell(f"finished before: {before} of {counted(len(self.runs), 'run')}")
        for done, outcome in enumerate(workers.outcomes([*missing.values()], tell), before + 1):
            one = missing[outcome.number]
            if outcome.error:
                self.errors[one.folder] = outcome.error
            else:
                self.errors.pop(one.folder, None)
            said = f"failed: {outcome.error}" if outcome.error else self._said(one)
            tell(f"{done} of {len(self.runs)}: {one.setting}, seed {one.seed}: {said} ({outcome.seconds:.1f} s)")

    @property
    def finished(self) -> list[StudyRun]:
        """Runs that came to their end, in this call or an earlier one."""
        return [one for one in self.runs if one.folder not in self.errors and one.finished]

    def added_up(self) -> str:
        """Say in one line to what the budgets of all runs that have a guarantee add up: basic composition."""
        released = [one.summary()["privacy"]["guarantee"] for one in self.finished]
        released = [one for one in released if one.get("epsilon") is not None]
        if not released:
            return "No run here has a guarantee."
        said = f"And if the {counted(len(released), 'run')} with a guarantee are on the same data, their budgets add up"
        if len({(one.get("unit"), one.get("neighboring_relation")) for one in released}) > 1:
            return f"{said}."
        epsilon, delta = (added([one[key] for one in released]) for key in ("epsilon", "delta"))
        return f"{said}, to epsilon {rounded_up(epsilon)} at delta {rounded_up(delta, 3)}."

    def diverged(self) -> list[str]:
        """A line on settings some of whose runs ended worse than they began."""
        found = {name: (one.statuses.count("diverged"), len(one.statuses)) for name, one in self.scores.items()}
        named = "; ".join(f"{self.called(name)} ({many} of {runs})" for name, (many, runs) in found.items() if many)
        what = "Diverged, with a larger loss than at the beginning, or none"
        return [f"{what}: {named}. Lower the learning rate or the noise."] if named else []

    def report(self, *before: PageSection) -> Path:
        """Write one report of all finished runs, after sections of one's own, and return where it is.

        Raises
        ------
        DataError
            If no run is finished, or the packages that draw it are not installed.
        """
        if not (names := {one.folder: self._named(one) for one in self.finished}):
            raise DataError(f"{self.out}: no run is finished, so there is nothing to report")
        return write_report([read_record(*one) for one in names.items()], self.out, before=before)

    def described(self) -> list[dict[str, Any]]:
        """Every run as plain data, with its folder's name and why it failed."""
        return [
            {"setting": one.setting, "seed": one.seed, "folder": one.folder.name, "called": self._named(one)}
            | ({"error": self.errors[one.folder]} if one.folder in self.errors else {})
            for one in self.runs
        ]

    def _named(self, run: StudyRun) -> str:
        return f"{self.called(run.setting)}, seed {run.seed}"

    def _scores(self, runs: Sequence[StudyRun]) -> Scores:
        return scores_of([one.summary() for one in runs], shared=self.shared[runs[0].setting])

    def _said(self, one: StudyRun) -> str:
        found = self._scores([one])
        mean = found.score.mean
        return f"{found.called} {'none' if mean is None else f'{mean:.4g}'}"


def experiment_of(spec: Spec, settings: Sequence[str]) -> Experiment:
    """The experiment of a spec with overrides; its paths are whole, so that it is the same wherever it is read.

    Raises
    ------
    SpecError
        If it is no spec.
    """
    if isinstance(spec, str | Path):
        return read_spec(spec, settings)
    content = spec.model_dump(mode="json") if isinstance(spec, Experiment) else spec
    found = resolved(parse_spec(override(content, settings)), real_path(Path.cwd()))
    return found.model_copy(update={"dataset": found.dataset.complete()})


def runs_of(
    out: Path,
    first: Mapping[str, Callable[[], Experiment]],
    seeds: int,
    jobs: int | None,
    tell: Tell,
    remarks: list[str],
    shared: Mapping[str, bool],
    left_out: dict[str, str] | None = None,
    look: Callable[[Prepared, Plan], None] = lambda prepared, plan: None,
) -> tuple[list[StudyRun], dict[str, bool]]:
    """Check every setting and every folder; return the runs, and whether somebody has their model, by setting.

    Parameters
    ----------
    out : Path
        Folder of the study.
    first : mapping of str to callable
        Makers of the first spec of each setting.
    seeds, jobs : int
        Number of runs of each setting, and of those at a time.
    tell : callable
        Is called with a line about each warning.
    remarks : list of str
        Warnings so far.
    shared : mapping of str to bool
        Settings that were checked already, and whether somebody has the run's model.
    left_out : dict of str to str, optional
        Gets the settings that cannot be run, and why; without it one such is an error.
    look : callable, optional
        Is given what each setting that is checked here would run.

    Raises
    ------
    CallerError
        If there are too many or too few runs, a setting cannot be run, or a folder has results of another spec.
    """
    check_runs(len(first), seeds, jobs)
    if out.exists() and not out.is_dir():
        raise CallerError(f"{out} is a file, expected a folder for the results; choose another --out")
    found, runs = dict(shared), list[StudyRun]()
    for name, make in first.items():
        try:
            with gathered(remarks):
                experiment = make()
            if name not in found:
                prepared, plan = checked(experiment, name, remarks)
                look(prepared, plan)
                found[name] = plan.words.shared
        except CallerError as problem:
            if left_out is None:
                raise
            left_out[name] = str(problem).removeprefix(f"{name}: ")
            continue
        runs += each_seed(name, experiment, seeds, out, len(runs))
    for one in runs:
        one.check_folder()
    for line in remarks:
        tell(f"warning: {line}")
    return runs, found


def check_runs(settings: int, seeds: int, jobs: int | None) -> None:
    """Raise SpecError unless so many settings, seeds and processes can be."""
    if seeds < 1 or (jobs is not None and jobs < 1):
        found = f"{seeds}{'' if jobs is None else f' and {jobs}'}"
        raise SpecError(f"expected --seeds and --jobs of at least 1, found {found}")
    if settings * seeds > MOST_RUNS:
        found = f"{counted(settings, 'setting')} with {counted(seeds, 'seed')} each"
        raise SpecError(f"expected at most {MOST_RUNS:,} runs, found {found}; take fewer values or seeds")
