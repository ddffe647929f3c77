"""Listeners to a run: its progress, a trace, and trackers.

Trackers that may send figures elsewhere are told only what may be known.

Whoever watches a server of such a program learns what it is told. So it is told of counts, which follow from the spec
and from what anyone on the wires sees, and of what follows from releases, which the guarantee covers. Scores on test
examples are neither, and go there only if somebody says so.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, Protocol

from gossamer.algorithms.plan import Plan
from gossamer.errors import CallerError, DataError, RunWarning, SpecError, counted, failing_as, shortened
from gossamer.experiment.preparation.prepare import Prepared
from gossamer.experiment.results.observer import Measure, Row
from gossamer.experiment.results.summary import COUNTS
from gossamer.extras import install_line
from gossamer.files import for_owner, make_own_folder, named
from gossamer.protocol.snapshots import Kept
from gossamer.protocol.trace import TraceStep, check_is_trace, write_step
from gossamer.runtimes.simulator import Simulator

# Progress of a run, for whoever wants to hear of it.


@dataclass(frozen=True)
class Watched:
    """A run under way.

    Attributes
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    simulator : Simulator
        Simulator in which it happens.
    """

    prepared: Prepared
    plan: Plan
    simulator: Simulator

    @property
    def share(self) -> float:
        """Share of the run that is over, by what is made or by virtual time: 0 to 1."""
        stop = self.plan.stop
        shares = [self.simulator.counters.updates / self.plan.updates if self.plan.updates else 0.0]
        if stop.virtual_seconds:
            shares.append(self.simulator.elapsed / stop.virtual_seconds)
        return min(1.0, max(shares))


class RunProgress(Protocol):
    """Is told how a run goes."""

    def planned(self, plan: Plan) -> None:
        """The run is planned."""
        return None

    def began(self, run: Watched) -> None:
        """The run has begun."""
        return None

    def remarked(self, line: str) -> None:
        """There is something that people should know."""
        return None

    def updated(self, updates: int) -> None:
        """So many updates have been made."""
        return None

    def looked(self, row: Row) -> None:
        """The run was evaluated."""
        return None


class NullProgress(RunProgress):
    """Progress that nobody hears."""


class ProgressLine(RunProgress):
    """A bar in one line of a terminal or a notebook, written anew a few times a second and taken away at the end."""

    def __init__(self) -> None:
        self._run: Watched | None = None
        self._score, self._shown = "", ""
        self._began = self._next = self._before = 0.0

    def began(self, run: Watched) -> None:
        """Begin to draw."""
        self._run, self._began, self._before = run, time.perf_counter(), run.share
        self.updated(0)

    def looked(self, row: Row) -> None:
        """Keep the score, and make room for what trackers print."""
        self._show("")
        found = ((words, row.get(name)) for name, words in _SCORES.items())
        self._score = next((f", {words} {value:.3g}" for words, value in found if value is not None), "")

    def updated(self, updates: int) -> None:
        """Draw, unless that was done a moment ago."""
        now = time.perf_counter()
        if self._run is not None and now >= self._next:
            share = self._run.share
            # What a run that is resumed had done before took none of this time.
            each = (now - self._began) / (share - self._before) if share > self._before else None
            left = "" if each is None else f", {timedelta(seconds=round(each * (1 - share)))} left"
            made = counted(updates, "update", form=",")
            self._show(f"{share:4.0%} [{'=' * round(20 * share):20}] {made}{self._score}{left}")
            self._next = now + _EVERY

    def close(self) -> None:
        """Take the bar away."""
        self._show("")
        self._run = None

    def _show(self, text: str) -> None:
        text = text[: max(0, _columns() - 3)]  # a terminal writes ^C behind it
        print(f"\r{text:{len(self._shown) + 2}}\r{text}", end="", file=sys.stderr, flush=True)
        self._shown = text


def _columns() -> int:
    """Width of the terminal that is written to, which need not be standard output's."""
    with suppress(OSError, ValueError, AttributeError):
        if found := os.get_terminal_size(sys.stderr.fileno()).columns:
            return found
    return shutil.get_terminal_size().columns


_EVERY = 0.2
"""Seconds from one drawing to the next, at least."""
_SCORES = {"test_auroc": "ROC area", "mean_model_test_accuracy": "accuracy", "mean_model_test_loss": "loss"}


def is_looked_at() -> bool:
    """Whether somebody sees what is written of progress: in a terminal or a notebook, unless a machine runs tests."""
    if "PYTEST_CURRENT_TEST" in os.environ or os.environ.get("CI"):
        return False
    terminal = sys.stderr.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb", "unknown")
    return terminal or "ipykernel" in sys.modules


# Writing down every event and effect of a run.


class TraceFile(Kept):
    """A file that a simulator's steps are written to; calling it adds one.

    Parameters
    ----------
    path : Path
        Path of the file.
    goes_on : bool
        Whether what is in it is kept, until `restore` says how much of it is to stay.

    Raises
    ------
    SpecError
        If the file cannot be written, or is something else.
    """

    changing = ("_length",)

    def __init__(self, path: Path, *, goes_on: bool = False) -> None:
        self._path = path
        self._length: int | None = None
        with failing_as(SpecError, f"{path}: cannot write the trace (", "); choose another file"):
            check_is_trace(path)
            # Raw models of units may be in it, so it is for nobody else to read.
            self._file: BinaryIO = open(path, "r+b" if goes_on else "wb", opener=for_owner)  # noqa: SIM115  # `close` does

    def close(self) -> None:
        """Write what is left, and let go of the file."""
        with named(self._path):
            self._file.close()

    def __call__(self, step: TraceStep) -> None:
        with named(self._path):
            write_step(self._file, step)

    def before_snapshot(self) -> None:
        """Have all that was written be on disk, and note how many bytes that is, but for a pipe or a device."""
        if self._path.is_file():
            with named(self._path):
                self._file.flush()
                os.fsync(self._file.fileno())
                self._length = self._file.tell()

    def after_restore(self) -> None:
        """Go on after so many bytes; what is behind them is cut off.

        Raises
        ------
        DataError
            If there are fewer.
        """
        if self._length is None:
            return
        with named(self._path):
            if (found := self._file.seek(0, os.SEEK_END)) < self._length:
                raise DataError(
                    f"{self._path}: expected the {self._length} bytes that the checkpoint goes on from, found {found}; "
                    "give the trace of this run"
                )
            self._file.seek(self._length)
            self._file.truncate()


# A line in `TRACKERS` is all that one more of them takes. What they have a habit of sending by themselves, such as the
# lines of the terminal, code, or facts of the machine, is switched off as far as they let it be.

PROJECT = "gossamer"
"""Name that runs are kept under where a tracker asks for one."""


class Told(NamedTuple):
    """Run whose tracker has begun.

    Attributes
    ----------
    log : callable
        Takes figures by name and the number of updates that have been made.
    end : callable
        Takes whether the run came to its end.
    """

    log: Callable[[dict[str, float], int], object]
    end: Callable[[bool], object]


Begin = Callable[[Path | None, Mapping[str, Any]], Told]
"""(results folder, facts of the plan) -> the run, begun."""


def quietly(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function of a tracker, and have what it prints go where remarks go: standard output is for results."""
    with redirect_stdout(sys.stderr):
        return function(*given)


def _tensorboard(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    if folder is None:
        raise CallerError("tensorboard writes into the results folder, found no folder; give one, or another tracker")
    place = folder / "tensorboard"

    @cache
    def writer() -> Any:
        """The writer of events: made for the first, so that a run that is refused leaves nothing."""
        make_own_folder(place)
        for earlier in place.glob("events.out.tfevents.*"):
            earlier.unlink()
        return import_module("tensorboard.summary").Writer(str(place))

    def log(figures: dict[str, float], step: int) -> None:
        for name, value in figures.items():
            writer().add_scalar(name, value, step)
        writer().flush()

    return Told(log, lambda whole: writer().close() if writer.cache_info().currsize else None)


def _mlflow(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    mlflow = import_module("mlflow")
    mlflow.start_run(run_name=_name(folder), nested=True, log_system_metrics=False)
    try:
        mlflow.log_params(dict(plan))
    except BaseException:
        mlflow.end_run(status="FAILED")  # otherwise what the caller does next would belong to it
        raise
    return Told(
        lambda figures, step: mlflow.log_metrics(figures, step=step),
        lambda whole: mlflow.end_run(status="FINISHED" if whole else "KILLED"),
    )


def _wandb(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    wandb = import_module("wandb")
    settings = wandb.Settings(
        console="off",  # lines of the terminal have scores
        **dict.fromkeys(("disable_code", "disable_git", "x_disable_meta", "x_disable_stats"), True),
        **dict.fromkeys(("save_code", "x_save_requirements"), False),
    )
    project, more = os.environ.get("WANDB_PROJECT") or PROJECT, {"reinit": "create_new", "save_code": False}
    run = wandb.init(project=project, name=_name(folder), config=dict(plan), settings=settings, **more)
    return Told(
        lambda figures, step: run.log(figures, step=step), lambda whole: run.finish(exit_code=0 if whole else 1)
    )


def _trackio(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    trackio = import_module("trackio")
    run = trackio.init(project=PROJECT, name=_name(folder), config=dict(plan), embed=False, auto_log_gpu=False)
    return Told(lambda figures, step: run.log(figures, step=step), lambda whole: run.finish())


def _name(folder: Path | None) -> str | None:
    return None if folder is None else folder.resolve().name


TRACKERS: Mapping[str, Begin] = {"tensorboard": _tensorboard, "mlflow": _mlflow, "wandb": _wandb, "trackio": _trackio}
"""By the name of its package, which is also that of its extra."""
_HERE = ("tensorboard",)
"""Trackers that write what they are told into the results folder; others may send it to servers."""


_ON_PUBLIC_EXAMPLES = ("public_accuracy", "public_loss")


ALL = "all"
"""Said after the name of a tracker, and a colon, that is told everything wherever it sends it."""


def trackers_of(names: str | Sequence[str]) -> dict[str, bool]:
    """Return the names of trackers, and whether each is told everything.

    Raises
    ------
    CallerError
        If one is unknown or not installed.
    """
    found: dict[str, bool] = {}
    for said in [names] if isinstance(names, str) else names:
        name, colon, told = said.partition(":")
        if name not in TRACKERS or (colon and told != ALL):
            known = ", ".join(TRACKERS)
            raise CallerError(
                f"track: expected one of {known}, or one with :{ALL} after it, which is told everything, found "
                f"{shortened(said)}; give one of these"
            )
        found[name] = bool(colon) or name in _HERE or found.get(name, False)
        if find_spec(name) is None:
            raise CallerError(f"tracking with {name} needs its package, which is not installed: {install_line(name)}")
    return found


def may_be_known(prepared: Prepared, plan: Plan) -> frozenset[str]:
    """Names of figures that are public, or follow from what was released."""
    # Models of units are released inside them alone, and without a guarantee nothing covers any model.
    covered = math.isfinite(plan.guarantee.epsilon) and not prepared.units
    return frozenset(COUNTS + (_ON_PUBLIC_EXAMPLES if covered else ()))


def facts_of(plan: Plan) -> dict[str, Any]:
    """Facts of a plan that are public, for a tracker's table of runs: nothing of the data, not even its name."""
    guarantee = plan.guarantee
    proved = {"epsilon": guarantee.epsilon, "delta": guarantee.delta} if math.isfinite(guarantee.epsilon) else {}
    return {**proved, "planned_updates": plan.updates, **plan.describe()}


class Tracking:
    """Trackers that are told of each evaluation."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[Told, Collection[str] | None]] = {}

    def add(self, name: str, run: Told, allowed: Collection[str] | None) -> None:
        """Tell one more, by its name: its run, and the figures that it may be told; None for all."""
        self._told[name] = run, allowed

    def looked(self, row: Row) -> None:
        """Tell all trackers; one that fails is told no more, since releases that are charged cannot be taken back."""
        # As in metrics.jsonl: trackers differ in what they make of infinity, and one keeps the largest float for it.
        known = {key: float(value) for key, value in row.items() if value is not None and math.isfinite(value)}
        for name, (run, allowed) in list(self._told.items()):
            figures = {key: value for key, value in known.items() if allowed is None or key in allowed}
            try:
                quietly(run.log, figures, row["updates"])
            except Exception as error:
                del self._told[name]
                _warn(name, error)
                with suppress(Exception):
                    quietly(run.end, False)

    def end(self, whole: bool) -> None:
        """Tell them that the run is over, and whether it came to its end."""
        for name, (run, _) in self._told.items():
            try:
                quietly(run.end, whole)
            except Exception as error:
                _warn(name, error)


@dataclass(frozen=True)
class Listeners:
    """Those who are told how a run goes, and change nothing in it.

    Attributes
    ----------
    progress : RunProgress
        Hearer of how it goes.
    tracking : Tracking
        Trackers that are told of each evaluation.
    watch : callable or None
        Observer of every step of every node, as a trace has it.
    measure : callable or None
        Measure of further figures at each evaluation.
    """

    progress: RunProgress = field(default_factory=NullProgress)
    tracking: Tracking = field(default_factory=Tracking)
    watch: Callable[[TraceStep], None] | None = None
    measure: Measure | None = None


@contextmanager
def listening(
    prepared: Prepared,
    plan: Plan,
    progress: RunProgress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    trackers: Mapping[str, bool] = MappingProxyType({}),
    folder: Path | None = None,
    *,
    goes_on: bool = False,
) -> Iterator[Listeners]:
    """Listeners to a run whose trace is open and whose trackers have begun; both end with the block.

    Parameters
    ----------
    prepared, plan
        Run, as it was prepared and planned.
    progress, trace, measure
        Arguments as for `run`.
    trackers : mapping of str to bool
        Trackers, from `trackers_of`.
    folder : Path or None
        Folder of the results.
    goes_on : bool
        Whether the trace keeps what is in it, until it is told how much of that is to stay.

    Raises
    ------
    CallerError
        If the trace cannot be written, or is something else; if a tracker cannot begin, or may not hear of the run.
    """
    if plan.hides_schedule and (watchers := [name for name, everything in trackers.items() if not everything]):
        # When one is told, and that a run ended, are times too.
        raise CallerError(
            f"{watchers[0]}: expected a run whose times and counts may be known, found secret cohorts, whose guarantee "
            f"holds only if they are not; track with {' or '.join(_HERE)}, or say {watchers[0]}:{ALL} to tell it "
            "everything"
        )
    tracking, known, whole = Tracking(), may_be_known(prepared, plan), False
    bar = ProgressLine() if progress is None and is_looked_at() else None
    with nullcontext() if trace is None else closing(TraceFile(Path(trace), goes_on=goes_on)) as watch:
        if watch is not None and prepared.cast.trust:
            warning = f"{trace} will hold raw models of units: keep it as private as the data"
            warnings.warn(warning, RunWarning, stacklevel=4)
        try:
            for name, everything in trackers.items():
                tracking.add(name, _begun(name, plan, folder), None if everything else known)
            yield Listeners(progress or bar or NullProgress(), tracking, watch, measure)
            whole = True
        finally:
            if bar is not None:
                bar.close()
            tracking.end(whole)


def _begun(name: str, plan: Plan, folder: Path | None) -> Any:
    try:
        return quietly(TRACKERS[name], folder, facts_of(plan))
    except CallerError:
        raise
    except Exception as error:
        raise CallerError(f"{name} cannot begin ({_said(error)}); put that right, or leave it out") from None


def _warn(name: str, error: Exception) -> None:
    line = f"{name} is told no more of this run, which goes on ({_said(error)})"
    warnings.warn(line, RunWarning, stacklevel=4)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
