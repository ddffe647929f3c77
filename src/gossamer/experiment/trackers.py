"""Programs that keep figures of runs, and how each is told of one.

A line in `TRACKERS` is all that one more of them takes. What they have a habit of sending by themselves, such as the
lines of the terminal, code, or facts of the machine, is switched off as far as they let it be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gossamer.errors import CallerError, shortened
from gossamer.extras import install_line
from gossamer.files import make_own_folder

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
