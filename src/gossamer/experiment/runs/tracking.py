"""Telling trackers of a run: those that may send figures elsewhere only what may be known.

Whoever watches a server of such a program learns what it is told. So it is told of counts, which follow from the spec
and from what anyone on the wires sees, and of what follows from releases, which the guarantee covers. Scores on test
examples are neither, and go there only if somebody says so.
"""

from __future__ import annotations

import math
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.algorithms.plan import Plan
from gossamer.errors import CallerError, RunWarning, shortened
from gossamer.experiment.preparation.prepared import Prepared
from gossamer.experiment.results.observing import Row
from gossamer.experiment.runs.progress import NullProgress
from gossamer.extras import install_line
from gossamer.files import make_own_folder

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


class Tracker(NamedTuple):
    """Program that keeps figures.

    Attributes
    ----------
    begin : callable
        Tells it that a run begins.
    here : bool
        Whether what it is told stays in the results folder; others may send it to servers.
    """

    begin: Begin
    here: bool = False


def tracker_of(name: str) -> Tracker:
    """Return the tracker of that name.

    Raises
    ------
    CallerError
        If there is none, or it is not installed.
    """
    if name not in TRACKERS:
        raise CallerError(f"track: expected one of {', '.join(TRACKERS)}, found {shortened(name)}; give one of these")
    if find_spec(name) is None:
        raise CallerError(f"tracking with {name} needs its package, which is not installed: {install_line(name)}")
    return TRACKERS[name]


@contextmanager
def quietly() -> Iterator[None]:
    """Have what trackers print go where remarks go: standard output is for results."""
    with redirect_stdout(sys.stderr):
        yield


def _tensorboard(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    if folder is None:
        raise CallerError("tensorboard writes into the results folder, found no folder; give one, or another tracker")
    begun: list[Any] = []

    def writer() -> Any:
        """The writer of events: made for the first, so that a run that is refused leaves nothing."""
        if not begun:
            place = folder / "tensorboard"
            make_own_folder(place)
            for earlier in place.glob("events.out.tfevents.*"):
                earlier.unlink()
            begun.append(import_module("tensorboard.summary").Writer(str(place)))
        return begun[0]

    def log(figures: dict[str, float], step: int) -> None:
        for name, value in figures.items():
            writer().add_scalar(name, value, step)
        writer().flush()

    return Told(log, lambda whole: [writer.close() for writer in begun])


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
        disable_code=True,
        disable_git=True,
        save_code=False,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    project = os.environ.get("WANDB_PROJECT") or PROJECT
    run = wandb.init(
        project=project, name=_name(folder), config=dict(plan), settings=settings, reinit="create_new", save_code=False
    )
    return Told(
        lambda figures, step: run.log(figures, step=step), lambda whole: run.finish(exit_code=0 if whole else 1)
    )


def _trackio(folder: Path | None, plan: Mapping[str, Any]) -> Told:
    trackio = import_module("trackio")
    run = trackio.init(project=PROJECT, name=_name(folder), config=dict(plan), embed=False, auto_log_gpu=False)
    return Told(lambda figures, step: run.log(figures, step=step), lambda whole: run.finish())


def _name(folder: Path | None) -> str | None:
    return None if folder is None else folder.resolve().name


TRACKERS: Mapping[str, Tracker] = {
    "tensorboard": Tracker(_tensorboard, here=True),
    "mlflow": Tracker(_mlflow),
    "wandb": Tracker(_wandb),
    "trackio": Tracker(_trackio),
}
"""By the name of its package, which is also that of its extra."""


_COUNTS = ("updates", "virtual_seconds", "messages", "bytes", "most_releases", "epsilon_so_far")
_HERE = tuple(name for name, tracker in TRACKERS.items() if tracker.here)
_ON_PUBLIC_EXAMPLES = ("public_accuracy", "public_loss")


def trackers_of(names: str | Sequence[str]) -> dict[str, Tracker]:
    """Return the trackers of those names.

    Raises
    ------
    CallerError
        If one is unknown or not installed.
    """
    return {name: tracker_of(name) for name in ([names] if isinstance(names, str) else names)}


def may_be_known(prepared: Prepared, plan: Plan) -> frozenset[str]:
    """Names of figures that are public, or follow from what was released."""
    # Models of units are released inside them alone, and without a guarantee nothing covers any model.
    covered = math.isfinite(plan.guarantee.epsilon) and not prepared.units
    return frozenset(_COUNTS + (_ON_PUBLIC_EXAMPLES if covered else ()))


def facts_of(plan: Plan) -> dict[str, Any]:
    """Facts of a plan that are public, for a tracker's table of runs: nothing of the data, not even its name."""
    guarantee = plan.guarantee
    proved = {"epsilon": guarantee.epsilon, "delta": guarantee.delta} if math.isfinite(guarantee.epsilon) else {}
    return {**proved, "planned_updates": plan.updates, **plan.describe()}


class Tracking(NullProgress):
    """Progress that trackers hear of.

    Parameters
    ----------
    told : mapping of str to (Told, Collection of str or None)
        Runs by the name of the tracker: its run, and the figures that it may be told; None for all.
    """

    def __init__(self, told: Mapping[str, tuple[Told, Collection[str] | None]]) -> None:
        self._told = dict(told)

    def looked(self, row: Row) -> None:
        """Tell all trackers; one that fails is told no more, since releases that are charged cannot be taken back."""
        # As in metrics.jsonl: trackers differ in what they make of infinity, and one keeps the largest float for it.
        known = {key: float(value) for key, value in row.items() if value is not None and math.isfinite(value)}
        for name, (run, allowed) in list(self._told.items()):
            figures = {key: value for key, value in known.items() if allowed is None or key in allowed}
            try:
                with quietly():
                    run.log(figures, row["updates"])
            except Exception as error:
                del self._told[name]
                _warn(name, error)
                with suppress(Exception), quietly():
                    run.end(False)

    def end(self, whole: bool) -> None:
        """Tell them that the run is over, and whether it came to its end."""
        for name, (run, _) in self._told.items():
            try:
                with quietly():
                    run.end(whole)
            except Exception as error:
                _warn(name, error)


@contextmanager
def tracked(
    trackers: Mapping[str, Tracker], prepared: Prepared, plan: Plan, folder: Path | None, private: bool
) -> Iterator[Tracking]:
    """Trackers that have begun, and end with the block.

    Parameters
    ----------
    trackers : mapping of str to Tracker
        Trackers, from `trackers_of`.
    prepared, plan
        Run, as it was prepared and planned.
    folder : Path or None
        Folder of the results.
    private : bool
        Whether all of them are told everything.

    Raises
    ------
    CallerError
        If one cannot begin, or may not hear of the run at all.
    """
    if not private and plan.hides_schedule:
        _refuse_watchers(trackers)
    known = may_be_known(prepared, plan)
    told: dict[str, tuple[Told, Collection[str] | None]] = {}
    tracking = Tracking({})
    whole = False
    try:
        for name, tracker in trackers.items():
            told[name] = _begun(name, tracker, plan, folder), None if tracker.here or private else known
            tracking = Tracking(told)
        yield tracking
        whole = True
    finally:
        tracking.end(whole)


def _refuse_watchers(trackers: Mapping[str, Tracker]) -> None:
    """Refuse those that may send figures elsewhere: when one is told, and that a run ended, are times too."""
    for name, tracker in trackers.items():
        if not tracker.here:
            raise CallerError(
                f"{name}: expected a run whose times and counts may be known, found secret cohorts, whose guarantee "
                f"holds only if they are not; track with {' or '.join(_HERE)}, or allow all that it can be told with "
                "--track-private (track_private=True)"
            )


def _begun(name: str, tracker: Tracker, plan: Plan, folder: Path | None) -> Told:
    try:
        with quietly():
            return tracker.begin(folder, facts_of(plan))
    except CallerError:
        raise
    except Exception as error:
        raise CallerError(f"{name} cannot begin ({_said(error)}); put that right, or leave it out") from None


def _warn(name: str, error: Exception) -> None:
    line = f"{name} is told no more of this run, which goes on ({_said(error)})"
    warnings.warn(line, RunWarning, stacklevel=4)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
