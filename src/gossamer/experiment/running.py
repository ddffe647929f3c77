"""Running: from a spec to results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from gossamer.algorithms.plan import Plan
from gossamer.arrays import IndexArray
from gossamer.data.memory import Data
from gossamer.experiment.checkpoints import Checkpoint
from gossamer.experiment.from_memory import FromMemory
from gossamer.experiment.keeping import EVERY, check_interval
from gossamer.experiment.nodes_and_sides import Coins
from gossamer.experiment.noise_secret import NoiseSecret
from gossamer.experiment.observing import Measure
from gossamer.experiment.planning import plan_run
from gossamer.experiment.prepare import prepare
from gossamer.experiment.prepared import Prepared
from gossamer.experiment.progress import NullProgress, Progress, Several
from gossamer.experiment.reading import spec_of
from gossamer.experiment.result import Result
from gossamer.experiment.results_folder import ResultsFolder, results_folder
from gossamer.experiment.secrets import chosen_secret
from gossamer.experiment.spec import Experiment
from gossamer.experiment.tracing import tracing
from gossamer.experiment.tracking import tracked, trackers_of
from gossamer.experiment.under_way import Run
from gossamer.protocol.trace import Step
from gossamer.runtimes.crew import Engine

if TYPE_CHECKING:
    from gossamer.objectives.models import Given


def run(
    experiment: Experiment | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    data: Data | None = None,
    module: Given | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    trace: str | Path | None = None,
    measure: Measure | None = None,
    secret: NoiseSecret | None = None,
    track: str | Sequence[str] = (),
    track_private: bool = False,
    checkpoint: float | None = EVERY,
    engine: Engine | None = None,
) -> Result:
    """Run an experiment in the simulator, with noise that nobody can guess.

    Parameters
    ----------
    experiment : Experiment, mapping or path
        What to run: a spec as an object, as plain data, or a YAML file.
    out : path, optional
        Folder for the results; None writes nothing.
    data : Data, optional
        Examples from memory, in the place of the spec's ``dataset``.
    module : torch.nn.Module, or a class or function that makes one, optional
        The network, in the place of the spec's ``objective.module``. It is copied. A module starts from the parameters
        that it has, which must not come from the private data; what a class or a function makes starts from parameters
        drawn with the spec's seed, and is called with ``input_shape`` and ``classes`` as far as it takes them.
    overwrite : bool
        Whether ``out`` may hold the results of an earlier run, which are then replaced.
    progress : Progress, optional
        Is told how the run goes.
    trace : path, optional
        File for every event and effect, for `gossamer.protocol.trace.replay`.
    measure : callable, optional
        Called with what is run and the run's model [size] at each evaluation; the figures that it returns, by name, are
        added to the row of metrics.
    secret : NoiseSecret, optional
        That of an earlier run, to repeat it; by default a fresh one is drawn. The guarantee holds only of one that
        nobody else knows.
    track : str or sequence of str
        Programs that are told of the run: ``tensorboard``, ``mlflow``, ``wandb``, ``trackio``.
    track_private : bool
        Whether those that may send figures elsewhere are also told what no guarantee covers, such as scores on test
        examples.
    checkpoint : float, optional
        Seconds of wall time from one checkpoint in ``out`` to the next, from which `resume_run` goes on; more where
        they would take over 1 % of the run's time. None makes none.
    engine : Engine, optional
        Shards that the run's nodes are dealt out to, such as `gossamer.RayShards`; by default there is one process.
        What comes out has the same bytes, `timing.json` aside. What cannot be sharded runs in one process, and a
        warning says why.

    Raises
    ------
    CallerError
        If the experiment cannot be run; nothing has been released.
    KeyboardInterrupt
        If interrupted; ``out`` then holds the results up to the last evaluation, and a checkpoint of the moment.
    """
    check_interval(checkpoint)
    # Sums in BLAS depend on the number of threads; results must not.
    with threadpool_limits(1), results_folder(out, overwrite=overwrite) as folder:
        trackers = trackers_of(track)
        started = time.perf_counter()
        prepared = prepare(spec_of(experiment), FromMemory(data, module))
        plan = plan_run(prepared)
        drawn = chosen_secret(prepared.experiment, secret)
        place = None if folder is None else folder.path
        with tracing(trace, prepared) as watch, tracked(trackers, prepared, plan, place, track_private) as tracking:
            told = Several([progress or NullProgress(), tracking]) if trackers else progress or NullProgress()
            session = Run(
                prepared,
                plan,
                folder,
                told,
                started,
                watch,
                measure=measure,
                secret=drawn,
                checkpoint=checkpoint,
                engine=engine,
            )
            return session.go()


def run_prepared(
    prepared: Prepared,
    plan: Plan,
    folder: ResultsFolder | None = None,
    *,
    progress: Progress | None = None,
    watch: Callable[[Step], None] | None = None,
    blank: IndexArray | None = None,
    purpose: str,
    secret: NoiseSecret | None = None,
    measure: Measure | None = None,
    checkpoint: float | None = None,
    resumed: Checkpoint | None = None,
    engine: Engine | None = None,
) -> Result:
    """Run what is prepared and planned already, such as an audit's examples in the place of the spec's own.

    Parameters
    ----------
    prepared, plan
        From `prepare` and `plan_run`.
    folder : ResultsFolder, optional
        Where the results go; None writes nothing.
    progress : Progress, optional
        Is told how the run goes.
    watch : callable, optional
        Sees every step of every node, as a trace has it.
    blank : ndarray of int64, optional
        Rows whose slots hold nothing: they count in the sizes of shards and are sampled, and have no gradient.
    purpose : str
        What decides gradients beside what is prepared; runs that differ in it share no noise.
    secret, measure, checkpoint, engine
        As for `run`; by default there are no checkpoints.
    resumed : Checkpoint, optional
        Where a run goes on from, in the same ``folder``.

    Raises
    ------
    CallerError
        If it is no checkpoint of this run.
    """
    with threadpool_limits(1):
        started = time.perf_counter()
        drawn = chosen_secret(prepared.experiment, secret)
        run = Run(
            prepared,
            plan,
            folder,
            progress or NullProgress(),
            started,
            watch,
            blank,
            measure=measure,
            purpose=purpose,
            secret=drawn,
            checkpoint=checkpoint,
            resumed=resumed,
            engine=engine,
        )
        return run.go()


def run_with(
    coins: Coins,
    prepared: Prepared,
    plan: Plan,
    folder: ResultsFolder | None = None,
    *,
    progress: Progress,
    watch: Callable[[Step], None],
    blank: IndexArray | None = None,
    updates: int | None = None,
) -> Result:
    """Run with given ``coins``, in the place of those that follow from a secret, settings and examples.

    For comparisons of two runs, thousands of them: it leaves the number of threads to the caller, and ends after so
    many ``updates`` if the plan has more. The rest is as for `run_prepared`.
    """
    run = Run(prepared, plan, folder, progress, time.perf_counter(), watch, blank, coins=coins, updates=updates)
    return run.go()
