"""Resuming a run whose process was killed or interrupted, from the checkpoint in its results folder.

What it did after the checkpoint happens again, to the same bytes: everything follows from the spec, the examples and
the run's noise secret, and each release's noise and sample from the number of its charge. So it is the same release,
and the ledger, which is set back to the checkpoint with all else, has it once. Where something that noise follows from
is not what it was, nothing is resumed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from gossamer.data.memory import Data
from gossamer.errors import DataError, SpecError, counted
from gossamer.experiment.checkpoints import read_checkpoint
from gossamer.experiment.keeping import EVERY, check_interval
from gossamer.experiment.observing import Measure
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import FromMemory, prepare
from gossamer.experiment.progress import NullProgress, Progress
from gossamer.experiment.reading import read_spec
from gossamer.experiment.repeating import check_tested
from gossamer.experiment.result import Result
from gossamer.experiment.results_folder import CHECKPOINT, UNFINISHED, ResultsFolder, read_summary
from gossamer.experiment.running import Run
from gossamer.experiment.secrets import FILE, KeptSecret
from gossamer.experiment.spec import Experiment
from gossamer.experiment.tracing import tracing
from gossamer.runtimes.crew import Engine
from gossamer.runtimes.ray_shards import RayShards

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


def resume_run(
    results: str | Path,
    *,
    data: Data | None = None,
    module: Given | None = None,
    progress: Progress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    checkpoint: float | None = EVERY,
    engine: Engine | None = None,
) -> Result:
    """Go on with the run of a results folder from its checkpoint, to the bytes that it would have had at its end.

    Parameters
    ----------
    results : path
        The results folder of a run that was killed or interrupted; the rest of the results goes there too.
    data, module, measure
        What the run was given, if it was.
    progress, checkpoint
        As for `run`.
    trace : path, optional
        The trace of the run, if it writes one: what it has from after the checkpoint is cut off.
    engine : Engine, optional
        Where the shards of the run are from now on, if it has some, such as another cluster; by default on this
        machine. They are as many as before.

    Raises
    ------
    CallerError
        If there is nothing to resume, or something that the run depends on is not what it was; nothing is lost by it.
    KeyboardInterrupt
        If interrupted, as `run`.
    """
    check_interval(checkpoint)
    path = _path_of(results)
    folder = ResultsFolder(path, overwrite=True)
    with threadpool_limits(1), folder.held():
        resumed = read_checkpoint(path)
        goes_on = _engine_of(path, resumed.origin.shards, engine)
        experiment = read_spec(path / "spec.yaml")
        kept = _secret_of(path, experiment)
        prepared = prepare(experiment, FromMemory(data, module))
        if kept is not None:
            check_tested(path, kept, prepared)
        plan = plan_run(prepared)
        with tracing(trace, prepared, goes_on=True) as watch:
            return Run(
                prepared,
                plan,
                folder,
                progress=progress or NullProgress(),
                watch=watch,
                secret=None if kept is None else kept.secret,
                measure=measure,
                checkpoint=checkpoint,
                resumed=resumed,
                engine=goes_on,
            ).go()


def _engine_of(path: Path, shards: int | None, engine: Engine | None) -> Engine | None:
    """Return where a run goes on that had so many ``shards``."""
    if shards is None:
        if engine is not None:
            raise SpecError(f"{path}: the run is made in one process, found shards to go on with; leave them out")
        return None
    if engine is None:
        return RayShards(shards)
    if engine.shards not in (None, shards):
        raise SpecError(
            f"{path}: the run is made on {counted(shards, 'shard')}, found {engine.shards} to go on with; leave the "
            "number out"
        )
    return engine.of(shards)


def _path_of(results: str | Path) -> Path:
    """Return the folder of a run that can be resumed, as far as the names of its files tell."""
    path = Path(results)
    if not str(results) or not path.is_dir():
        raise DataError(
            f"expected the results folder of a run to resume, found no folder {str(results)!r}; give another"
        )
    if (path / CHECKPOINT).exists():
        return path
    if (path / "summary.json").exists() and read_summary(path).get("status") not in UNFINISHED:
        raise SpecError(f"{path}: this run has ended, so there is nothing to resume; gossamer report {path} shows it")
    raise DataError(
        f"{path}: expected a checkpoint, {CHECKPOINT}, found none, so there is nothing to resume; run the spec anew"
    )


def _secret_of(path: Path, experiment: Experiment) -> KeptSecret | None:
    if not experiment.secretive:
        return None
    if not (path / FILE).exists():
        raise DataError(
            f"{path}: expected the run's noise secret, {FILE}, found none; without it nobody can go on with the run's "
            "noise: run the spec as a new run"
        )
    return KeptSecret.read(path)
